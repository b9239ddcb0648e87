#include "op_cost.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <unordered_map>

namespace byoc {
namespace example_npu {
namespace {

/*! \brief What an op does to one element, and where. */
struct OpRule {
  enum class Kind { kConv, kMatmul, kPool, kElementwise, kReduction, kView };
  Kind kind = Kind::kElementwise;
  Engine engine = Engine::kVector;
  int64_t ops = 1;  // per output element; per input element of a reduction
};

const OpRule& RuleOf(const std::string& op) {
  using Kind = OpRule::Kind;
  static const OpRule kDefault;  // one vector operation per element: arithmetic, copies, casts
  static const OpRule kActivation{Kind::kElementwise, Engine::kActivation, 1};
  static const OpRule kSoftmax{Kind::kElementwise, Engine::kVector, 5};  // max, -, exp, sum, /
  static const OpRule kPool{Kind::kPool, Engine::kPooling, 1};
  static const OpRule kView{Kind::kView, Engine::kVector, 1};
  static const OpRule kConv{Kind::kConv, Engine::kConv, 0};
  static const std::unordered_map<std::string, OpRule> kRules = {
      {"relax.nn.conv1d", kConv},
      {"relax.nn.conv2d", kConv},
      {"relax.matmul", {Kind::kMatmul, Engine::kMatrix, 0}},
      {"relax.nn.max_pool2d", kPool},
      {"relax.nn.avg_pool2d", kPool},
      // A comparator or a lookup table gives one result a cycle; a clip compares twice.
      {"relax.nn.relu", kActivation},
      {"relax.nn.leakyrelu", kActivation},
      {"relax.nn.gelu", kActivation},
      {"relax.nn.gelu_tanh", kActivation},
      {"relax.nn.silu", kActivation},
      {"relax.sigmoid", kActivation},
      {"relax.tanh", kActivation},
      {"relax.exp", kActivation},
      {"relax.sqrt", kActivation},
      {"relax.clip", {Kind::kElementwise, Engine::kActivation, 2}},
      {"relax.nn.softmax", kSoftmax},
      {"relax.nn.log_softmax", kSoftmax},
      // Inference: one scale and one shift, from the four parameters.
      {"relax.nn.batch_norm", {Kind::kElementwise, Engine::kVector, 2}},
      // Sum, subtract, square, sum, divide by the deviation, scale, shift.
      {"relax.nn.layer_norm", {Kind::kElementwise, Engine::kVector, 7}},
      // Divide, round, add the zero point, saturate; and back: subtract it, multiply.
      {"relax.quantize", {Kind::kElementwise, Engine::kVector, 4}},
      {"relax.dequantize", {Kind::kElementwise, Engine::kVector, 2}},
      {"relax.mean", {Kind::kReduction, Engine::kVector, 1}},
      {"relax.reshape", kView},
      {"relax.flatten", kView},
      {"relax.squeeze", kView},
      {"relax.expand_dims", kView},
  };
  auto it = kRules.find(op);
  return it == kRules.end() ? kDefault : it->second;
}

/*! \brief Size of the dimension that `layout` calls `axis`; 1 where it has none. */
int64_t Dim(const Shape& shape, const std::string& layout, char axis) {
  size_t at = layout.find(axis);
  return at < shape.size() ? shape[at] : 1;
}

int64_t Product(const Shape& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<int64_t>());
}

/*! \brief The `index`-th last of `values`, or `otherwise` when there are not so many. */
int64_t FromBack(const Shape& values, size_t index, int64_t otherwise) {
  return index < values.size() ? values[values.size() - 1 - index] : otherwise;
}

/*! \brief A convolution's layouts, shapes and attributes by name. */
struct ConvView {
  ConvView(const InnerOp& op, const Shape& input, const Shape& weight)
      : spatial_rank(static_cast<int64_t>(input.size()) - 2),
        data_layout(op.attrs.Str("data_layout", spatial_rank == 1 ? "NCW" : "NCHW")),
        out_layout(op.attrs.Str("out_layout", data_layout)),
        groups(std::max<int64_t>(op.attrs.Int("groups", 1), 1)) {
    std::string layout = op.attrs.Str("kernel_layout", spatial_rank == 1 ? "OIW" : "OIHW");
    batch = Dim(input, data_layout, 'N');
    input_rows = Dim(input, data_layout, 'H');
    input_columns = Dim(input, data_layout, 'W');
    out_channels = Dim(weight, layout, 'O');
    group_inputs = Dim(weight, layout, 'I');
    kernel_h = Dim(weight, layout, 'H');
    kernel_w = Dim(weight, layout, 'W');
    if (op.attrs.Has("strides")) strides = op.attrs.Ints("strides");
    if (op.attrs.Has("dilation")) dilation = op.attrs.Ints("dilation");
    if (op.attrs.Has("padding")) padding = op.attrs.Ints("padding");
    // A 1-d convolution has one row, which FromBack's defaults describe.
    auto positive = [](int64_t value) { return std::max<int64_t>(value, 1); };
    stride_w = positive(FromBack(strides, 0, 1));
    stride_h = positive(FromBack(strides, 1, 1));
    window_w = (kernel_w - 1) * positive(FromBack(dilation, 0, 1)) + 1;
    window_h = (kernel_h - 1) * positive(FromBack(dilation, 1, 1)) + 1;
  }

  /*! \brief Sum of the padding before and after spatial axis `axis`. */
  int64_t Padding(size_t axis) const {
    size_t rank = static_cast<size_t>(spatial_rank);
    if (padding.empty() || axis >= rank) return 0;
    if (padding.size() == 2 * rank) return padding[axis] + padding[axis + rank];
    return 2 * (padding.size() == rank ? padding[axis] : padding[0]);
  }

  Shape OutputShape() const {
    int64_t columns = (input_columns + Padding(spatial_rank - 1) - window_w) / stride_w + 1;
    int64_t rows = spatial_rank == 1 ? 1 : (input_rows + Padding(0) - window_h) / stride_h + 1;
    Shape shape;
    for (char axis : out_layout) {
      shape.push_back(axis == 'N'   ? batch
                      : axis == 'C' ? out_channels
                      : axis == 'H' ? rows
                                    : columns);
    }
    return shape;
  }

  int64_t spatial_rank;
  std::string data_layout, out_layout;
  int64_t groups;
  int64_t batch, input_rows, input_columns, out_channels, group_inputs, kernel_h, kernel_w;
  int64_t stride_h, stride_w, window_h, window_w;
  Shape strides, dilation, padding;
};

/*! \brief Dimensions of both, broadcast against each other from the right. */
Shape Broadcast(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    out[out.size() - 1 - i] = std::max(FromBack(a, i, 1), FromBack(b, i, 1));
  }
  return out;
}

/*! \brief All dimensions but the last two. */
Shape BatchDims(const Shape& shape) {
  return shape.size() <= 2 ? Shape() : Shape(shape.begin(), shape.end() - 2);
}

/*! \brief Rows, columns and batch of a matmul, with vectors promoted as NumPy does. */
struct MatmulView {
  MatmulView(const Shape& a, const Shape& b)
      : batch_dims(Broadcast(BatchDims(a), BatchDims(b))),
        batch(Product(batch_dims)),
        weight_batch(Product(BatchDims(b))),
        rows(FromBack(a, 1, 1)),
        channels(b.size() == 1 ? 1 : FromBack(b, 0, 1)),
        reduce(FromBack(a, 0, 1)) {}

  Shape OutputShape(const Shape& a, const Shape& b) const {
    Shape shape = batch_dims;
    if (a.size() > 1) shape.push_back(rows);
    if (b.size() > 1) shape.push_back(channels);
    return shape;
  }

  Shape batch_dims;
  int64_t batch, weight_batch, rows, channels, reduce;
};

/*! \brief Walks the ops of one kernel with actual shapes. */
class WorkCounter {
 public:
  WorkCounter(const Node& node, const std::vector<TensorInfo>& inputs,
              const std::vector<TensorInfo>& outputs, const Machine& machine)
      : node_(node), outputs_(outputs), machine_(machine) {
    for (const TensorInfo& input : inputs) values_.push_back({input});
    work_.parameters.assign(inputs.size(), false);
    for (const InnerOp& op : node.ops) computing_ += RuleOf(op.name).kind != OpRule::Kind::kView;
  }

  Work Count() {
    for (const InnerOp& op : node_.ops) {
      values_.push_back(ResolveOutputs(op));
      CountOp(op);
      MarkParameters(op);
    }
    CountInnerBytes();
    work_.fused = computing_ > 1;
    work_.engine = MainEngine();
    work_.compute_cycles = std::max<int64_t>(
        {Cycles(mac_cycles_, 1), StageCycles(Engine::kVector, machine_.vector_ops),
         StageCycles(Engine::kPooling, machine_.pooling_ops),
         StageCycles(Engine::kActivation, machine_.activation_ops)});
    return std::move(work_);
  }

 private:
  const TensorInfo& Tensor(const ValueRef& ref) const { return values_.at(ref.id).at(ref.output); }

  /*! \brief The tensors among the arguments, tuples flattened. */
  static std::vector<ValueRef> TensorArgs(const InnerOp& op) {
    std::vector<ValueRef> refs;
    for (const Arg& arg : op.args) AppendTensors(arg, &refs);
    return refs;
  }

  static void AppendTensors(const Arg& arg, std::vector<ValueRef>* refs) {
    if (arg.kind == Arg::Kind::kTensor) refs->push_back(arg.tensor);
    for (const Arg& item : arg.tuple) AppendTensors(item, refs);
  }

  // Shapes ---------------------------------------------------------------------------------------

  /*! \brief Actual shapes of an op's outputs; the value's number is the next one. */
  std::vector<TensorInfo> ResolveOutputs(const InnerOp& op) const {
    std::vector<TensorInfo> outputs = op.outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      Shape& shape = outputs[i].shape;
      if (std::find(shape.begin(), shape.end(), -1) == shape.end()) continue;
      shape = ResolveShape(op, {static_cast<int64_t>(values_.size()), static_cast<int64_t>(i)},
                           std::move(shape));
    }
    return outputs;
  }

  Shape ResolveShape(const InnerOp& op, const ValueRef& self, Shape declared) const {
    for (size_t i = 0; i < node_.results.size(); ++i) {
      const ValueRef& result = node_.results[i];
      if (result.id == self.id && result.output == self.output) return outputs_[i].shape;
    }
    std::vector<ValueRef> args = TensorArgs(op);
    OpRule::Kind kind = RuleOf(op.name).kind;
    if (args.size() >= 2 && kind == OpRule::Kind::kConv) {
      return ConvView(op, Tensor(args[0]).shape, Tensor(args[1]).shape).OutputShape();
    }
    if (args.size() >= 2 && kind == OpRule::Kind::kMatmul) {
      const Shape &a = Tensor(args[0]).shape, &b = Tensor(args[1]).shape;
      return MatmulView(a, b).OutputShape(a, b);
    }
    return FillFromArgs(args, std::move(declared));
  }

  /*! \brief Unknown dimensions from arguments of the same rank, else so that no element is lost. */
  Shape FillFromArgs(const std::vector<ValueRef>& args, Shape shape) const {
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      if (shape[dim] != -1) continue;
      for (const ValueRef& arg : args) {
        const Shape& other = Tensor(arg).shape;
        if (other.size() == shape.size()) shape[dim] = std::max(shape[dim], other[dim]);
      }
    }
    for (int64_t& dim : shape) {
      if (dim != -1) continue;
      int64_t known = 1;
      for (int64_t other : shape) known *= other == -1 ? 1 : std::max<int64_t>(other, 1);
      dim = args.empty() ? 1 : std::max<int64_t>(Elements(Tensor(args[0]).shape) / known, 1);
    }
    return shape;
  }

  // Counts ---------------------------------------------------------------------------------------

  void CountOp(const InnerOp& op) {
    const OpRule& rule = RuleOf(op.name);
    std::vector<ValueRef> args = TensorArgs(op);
    int64_t out_elements = values_.back().empty() ? 0 : Elements(values_.back()[0].shape);
    int64_t in_elements = args.empty() ? 0 : Elements(Tensor(args[0]).shape);
    switch (rule.kind) {
      case OpRule::Kind::kConv:
      case OpRule::Kind::kMatmul:
        if (args.size() >= 2) CountMacs(op, rule, args, out_elements);
        return;
      case OpRule::Kind::kPool: {
        Shape window = op.attrs.Has("pool_size") ? op.attrs.Ints("pool_size") : Shape();
        return AddOps(rule.engine, out_elements * Product(window));
      }
      case OpRule::Kind::kReduction:
        return AddOps(rule.engine, rule.ops * in_elements);
      case OpRule::Kind::kView:
        // Alone it is a copy; in front of another op it only renames the elements.
        if (computing_ == 0) AddOps(rule.engine, rule.ops * out_elements);
        return;
      case OpRule::Kind::kElementwise:
        return AddOps(rule.engine, rule.ops * out_elements);
    }
  }

  void AddOps(Engine engine, int64_t count) {
    work_.element_ops += count;
    stage_ops_[static_cast<int>(engine)] += count;
  }

  void CountMacs(const InnerOp& op, const OpRule& rule, const std::vector<ValueRef>& args,
                 int64_t out_elements) {
    const TensorInfo &input = Tensor(args[0]), &weight = Tensor(args[1]);
    MacLoops loops = rule.kind == OpRule::Kind::kConv ? ConvLoops(op, input.shape, weight.shape)
                                                      : MatmulLoops(input.shape, weight.shape);
    loops.input = SourceInput(args[0]);
    loops.weight = SourceInput(args[1]);
    int64_t window = 1;
    if (loops.is_conv) {
      ConvView conv(op, input.shape, weight.shape);
      window = conv.kernel_h * conv.kernel_w;
    }
    int64_t macs = out_elements * loops.reduce * window;
    double rate = loops.is_conv ? machine_.conv_macs : machine_.matrix_macs;
    // The array takes one output channel of a group per column; the other columns stay idle.
    double busy = std::min<double>(loops.channels, machine_.array_columns) /
                  static_cast<double>(machine_.array_columns);
    if (macs > 0) mac_cycles_ += macs / (rate * busy * Speedup(input.dtype, weight.dtype));
    work_.macs += macs;
    if (!work_.loops.has_value()) work_.loops = loops;
  }

  double Speedup(const DLDataType& a, const DLDataType& b) const {
    int bits = std::max(a.bits, b.bits);
    return bits <= 8 ? machine_.int8_mac_speedup : bits <= 16 ? machine_.float16_mac_speedup : 1;
  }

  MacLoops ConvLoops(const InnerOp& op, const Shape& input, const Shape& weight) const {
    ConvView conv(op, input, weight);
    const Shape& out = values_.back()[0].shape;
    MacLoops loops;
    loops.is_conv = true;
    loops.batch = conv.batch;
    loops.groups = conv.groups;
    loops.channels = conv.out_channels / conv.groups;
    loops.rows = Dim(out, conv.out_layout, 'H');
    loops.columns = Dim(out, conv.out_layout, 'W');
    loops.reduce = conv.group_inputs;
    loops.window_h = conv.window_h;
    loops.window_w = conv.window_w;
    loops.stride_h = conv.stride_h;
    loops.stride_w = conv.stride_w;
    loops.input_rows = conv.input_rows;
    loops.input_columns = conv.input_columns;
    return loops;
  }

  /*! \brief With one weight for the whole batch, the batch is more rows. */
  static MacLoops MatmulLoops(const Shape& a, const Shape& b) {
    MatmulView view(a, b);
    MacLoops loops;
    loops.batched_weight = view.weight_batch > 1;
    loops.batch = loops.batched_weight ? view.batch : 1;
    loops.rows = loops.batched_weight ? view.rows : view.batch * view.rows;
    loops.channels = view.channels;
    loops.reduce = view.reduce;
    loops.input_rows = loops.rows;
    return loops;
  }

  /*! \brief The kernel input that a value is made from, through reshapes, casts and the like. */
  int64_t SourceInput(ValueRef ref) const {
    int64_t num_inputs = static_cast<int64_t>(node_.inputs.size());
    while (ref.id >= num_inputs) {
      std::vector<ValueRef> args = TensorArgs(node_.ops[ref.id - num_inputs]);
      if (args.empty()) return -1;
      ref = args[0];
    }
    return ref.id;
  }

  /*!
   * \brief Weights are the operands at a weight's place (conv and matmul: the second; norms: all
   * but the first) and those that are broadcast, such as a bias or a scale.
   */
  void MarkParameters(const InnerOp& op) {
    const OpRule& rule = RuleOf(op.name);
    bool has_weights = rule.kind == OpRule::Kind::kConv || rule.kind == OpRule::Kind::kMatmul ||
                       op.name.find("_norm") != std::string::npos;
    int64_t out_elements = values_.back().empty() ? 0 : Elements(values_.back()[0].shape);
    if (rule.kind != OpRule::Kind::kElementwise && !has_weights) return;
    for (size_t i = 0; i < op.args.size(); ++i) {
      if (op.args[i].kind != Arg::Kind::kTensor) continue;
      const ValueRef& arg = op.args[i].tensor;
      bool broadcast = op.args.size() > 1 && Elements(Tensor(arg).shape) < out_elements;
      int64_t source = SourceInput(arg);
      if (source >= 0 && (has_weights ? i > 0 : broadcast)) work_.parameters[source] = true;
    }
  }

  /*! \brief Values that are neither inputs nor results stay in the registers: written, then read.
   */
  void CountInnerBytes() {
    if (computing_ < 2) return;
    for (size_t op = 0; op < node_.ops.size(); ++op) {
      int64_t id = static_cast<int64_t>(node_.inputs.size() + op);
      bool is_result = std::any_of(node_.results.begin(), node_.results.end(),
                                   [id](const ValueRef& ref) { return ref.id == id; });
      if (is_result || RuleOf(node_.ops[op].name).kind == OpRule::Kind::kView) continue;
      for (const TensorInfo& tensor : values_[id]) work_.inner_bytes += Bytes(tensor);
    }
  }

  // Engine ---------------------------------------------------------------------------------------

  int64_t StageCycles(Engine engine, double rate) const {
    return Cycles(static_cast<double>(stage_ops_[static_cast<int>(engine)]), rate);
  }

  /*! \brief The engine of the heaviest kind of op; the others are stages behind it. */
  Engine MainEngine() const {
    for (Engine engine : {Engine::kConv, Engine::kMatrix, Engine::kPooling, Engine::kVector}) {
      for (const InnerOp& op : node_.ops) {
        const OpRule& rule = RuleOf(op.name);
        bool counts = rule.kind != OpRule::Kind::kView || computing_ == 0;
        if (counts && rule.engine == engine) return engine;
      }
    }
    return Engine::kActivation;
  }

  const Node& node_;
  const std::vector<TensorInfo>& outputs_;
  const Machine& machine_;
  std::vector<std::vector<TensorInfo>> values_;  // inputs, then the outputs of each op
  int computing_ = 0;                            // ops that are no views
  double mac_cycles_ = 0;
  std::array<int64_t, kEngineCount> stage_ops_{};
  Work work_;
};

}  // namespace

Work CountWork(const Node& node, const std::vector<TensorInfo>& inputs,
               const std::vector<TensorInfo>& outputs, const Machine& machine) {
  return WorkCounter(node, inputs, outputs, machine).Count();
}

int64_t Elements(const Shape& shape) { return Product(shape); }

int64_t Bytes(const TensorInfo& tensor) {
  return Product(tensor.shape) * ((tensor.dtype.bits * tensor.dtype.lanes + 7) / 8);
}

int64_t Cycles(double amount, double rate) {
  return static_cast<int64_t>(std::ceil(amount / rate));
}

}  // namespace example_npu
}  // namespace byoc
