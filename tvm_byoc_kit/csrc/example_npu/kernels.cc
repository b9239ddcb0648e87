#include "kernels.h"

#include <algorithm>
#include <initializer_list>

namespace byoc {
namespace example_npu {
namespace {

const Kernel kKernels[] = {
    // name, function, tensors from, to, types, attributes
    {"relax.nn.conv1d", Conv, 2, 2, Types::kMac, CheckConv},
    {"relax.nn.conv2d", Conv, 2, 2, Types::kMac, CheckConv},
    {"relax.matmul", Matmul, 2, 2, Types::kMac},
    {"relax.nn.max_pool2d", MaxPool, 1, 1, Types::kNumber, CheckPool},
    {"relax.nn.avg_pool2d", AvgPool, 1, 1, Types::kNumber, CheckPool},
    {"relax.add", Add, 2, 2, Types::kNumber},
    {"relax.subtract", Subtract, 2, 2, Types::kNumber},
    {"relax.multiply", Multiply, 2, 2, Types::kNumber},
    {"relax.divide", Divide, 2, 2, Types::kNumber},
    {"relax.maximum", Maximum, 2, 2, Types::kNumber},
    {"relax.minimum", Minimum, 2, 2, Types::kNumber},
    {"relax.nn.relu", Relu, 1, 1, Types::kNumber},
    {"relax.clip", Clip, 1, 1, Types::kNumber},
    {"relax.negative", Negative, 1, 1, Types::kNumber},
    {"relax.nn.leakyrelu", LeakyRelu, 1, 1, Types::kFloat},
    {"relax.nn.gelu", Gelu, 1, 1, Types::kFloat},
    {"relax.nn.gelu_tanh", GeluTanh, 1, 1, Types::kFloat},
    {"relax.nn.silu", Silu, 1, 1, Types::kFloat},
    {"relax.sigmoid", SigmoidOp, 1, 1, Types::kFloat},
    {"relax.tanh", TanhOp, 1, 1, Types::kFloat},
    {"relax.exp", ExpOp, 1, 1, Types::kFloat},
    {"relax.sqrt", Sqrt, 1, 1, Types::kFloat},
    {"relax.nn.batch_norm", BatchNorm, 5, 5, Types::kFloat},
    {"relax.nn.layer_norm", LayerNorm, 3, 3, Types::kFloat},
    {"relax.nn.softmax", Softmax, 1, 1, Types::kFloat},
    {"relax.nn.log_softmax", LogSoftmax, 1, 1, Types::kFloat},
    {"relax.mean", Mean, 1, 1, Types::kFloat},
    {"relax.reshape", Reshape, 1, 2, Types::kAny},
    {"relax.flatten", Flatten, 1, 1, Types::kAny},
    {"relax.permute_dims", PermuteDims, 1, 1, Types::kAny},
    {"relax.concat", Concat, 1, 1 << 16, Types::kAny},
    {"relax.squeeze", Squeeze, 1, 1, Types::kAny},
    {"relax.expand_dims", ExpandDims, 1, 1, Types::kAny},
    {"relax.quantize", Quantize, 3, 3, Types::kQuantize},
    {"relax.dequantize", Dequantize, 3, 3, Types::kDequantize},
};

/*! \brief What the messages say is supported, by Types. */
const char* const kTypesText[] = {
    "float32 and float16",
    "float32, float16, int8, uint8, int16, int32 and int64, the same for all operands",
    "float32 and float16, or int8 and uint8 with an output (out_dtype) of int32 or int8",
    "any type of 1, 2, 4 or 8 bytes, the same for all operands",
    "float32 and float16 to int8, uint8 or int16",
    "int8, uint8, int16 and int32 to float32 or float16",
};

bool OneOf(DLDataType type, std::initializer_list<DLDataType> types) {
  return std::any_of(types.begin(), types.end(),
                     [type](DLDataType other) { return SameType(type, other); });
}
bool IsFloat(DLDataType type) { return OneOf(type, {kFloat32, kFloat16}); }
bool IsByte(DLDataType type) { return OneOf(type, {kInt8, kUInt8}); }
bool IsNumber(DLDataType type) {
  return IsFloat(type) || OneOf(type, {kInt8, kUInt8, kInt16, kInt32, kInt64});
}
bool IsMovable(DLDataType type) {
  return type.lanes == 1 &&
         (type.bits == 8 || type.bits == 16 || type.bits == 32 || type.bits == 64);
}
bool IsZeroPoint(DLDataType type) {
  return IsFloat(type) || OneOf(type, {kInt8, kUInt8, kInt16, kInt32});
}

using TypeList = std::vector<DLDataType>;

template <typename Predicate>
bool All(const TypeList& types, Predicate predicate) {
  return std::all_of(types.begin(), types.end(), predicate);
}

bool Accepts(Types types, const TypeList& in, const TypeList& out) {
  auto like_first = [&](DLDataType type) { return SameType(type, in[0]); };
  switch (types) {
    case Types::kFloat:
      return All(in, IsFloat) && All(out, IsFloat);
    case Types::kNumber:
      return IsNumber(in[0]) && All(in, like_first) && All(out, like_first);
    case Types::kMac:
      return (All(in, IsFloat) && All(out, IsFloat)) ||
             (All(in, IsByte) && OneOf(out[0], {kInt32, kInt8}));
    case Types::kAny:
      return IsMovable(in[0]) && All(in, like_first) && All(out, like_first);
    case Types::kQuantize:
      return IsFloat(in[0]) && IsFloat(in[1]) && IsZeroPoint(in[2]) &&
             OneOf(out[0], {kInt8, kUInt8, kInt16});
    case Types::kDequantize:
      return OneOf(in[0], {kInt8, kUInt8, kInt16, kInt32}) && IsFloat(in[1]) &&
             IsZeroPoint(in[2]) && IsFloat(out[0]);
  }
  return false;
}

std::string Listed(const TypeList& types) {
  std::string out;
  for (DLDataType type : types) {
    out += (out.empty() ? "" : ", ") + std::string(ffi::DLDataTypeToString(type));
  }
  return out;
}

/*! \brief Types of the operands; the shape that a reshape gets as a tensor does not count. */
TypeList InputTypes(const Graph& graph, const OpRef& ref) {
  TypeList types;
  for (const ValueRef& arg : TensorArgs(*ref.op)) {
    types.push_back(InnerInfo(graph, *ref.node, arg).dtype);
  }
  if (ref.op->name == "relax.reshape") types.resize(std::min<size_t>(types.size(), 1));
  return types;
}

std::string KernelNames() {
  std::string out;
  for (const Kernel& kernel : kKernels) out += (out.empty() ? "" : ", ") + std::string(kernel.name);
  return out;
}

void CheckOp(const Graph& graph, const OpRef& ref) {
  const Kernel* kernel = FindKernel(ref.op->name);
  if (kernel == nullptr) ref.Fail("is no op of the example NPU; supported are " + KernelNames());
  int count = static_cast<int>(TensorArgs(*ref.op).size());
  if (count < kernel->min_inputs || count > kernel->max_inputs) {
    ref.Fail("has " + std::to_string(count) + " tensors as operands; expected " +
             std::to_string(kernel->min_inputs) +
             (kernel->max_inputs > kernel->min_inputs ? " or more" : ""));
  }
  TypeList in = InputTypes(graph, ref), out;
  for (const TensorInfo& info : ref.op->outputs) out.push_back(info.dtype);
  if (!Accepts(kernel->types, in, out)) {
    ref.Fail("cannot take " + Listed(in) + " to " + Listed(out) + "; supported are " +
             kTypesText[static_cast<int>(kernel->types)]);
  }
  if (kernel->check_attrs != nullptr) kernel->check_attrs(ref);
}

}  // namespace

std::string OpRef::Where() const {
  return "example_npu: node " + std::to_string(node_id) + " (" + node->name + "), " + op->name;
}

void OpRef::Fail(const std::string& what) const {
  TVM_FFI_THROW(ValueError) << Where() << ": " << what;
  TVM_FFI_UNREACHABLE();
}

Shape OpRef::Ints(const char* key, size_t count, int64_t least) const {
  Shape values = attrs().Ints(key);
  constexpr int64_t kMost = 1 << 24;  // no product of a size and one of these overflows
  auto fits = [=](int64_t value) { return value >= least && value <= kMost; };
  bool holds = values.size() == count && std::all_of(values.begin(), values.end(), fits);
  if (!holds) {
    Fail(std::string(key) + " is " + ShapeText(values) + "; expected " + std::to_string(count) +
         " numbers of at least " + std::to_string(least));
  }
  return values;
}

int64_t Call::Axis(int64_t axis, int64_t rank) const {
  int64_t found = axis < 0 ? axis + rank : axis;
  if (found < 0 || found >= rank) {
    Fail("axis " + std::to_string(axis) + " of a tensor with " + std::to_string(rank) +
         " dimensions");
  }
  return found;
}

Shape Call::Axes(const std::string& key, int64_t rank, const Shape& otherwise) const {
  if (!attrs().Has(key)) return otherwise;
  Shape axes = attrs().Ints(key);
  std::vector<bool> seen(rank, false);
  for (int64_t& axis : axes) {
    axis = Axis(axis, rank);
    Require(!seen[axis], "an axis is given twice");
    seen[axis] = true;
  }
  return axes;
}

const Kernel* FindKernel(const std::string& op) {
  for (const Kernel& kernel : kKernels) {
    if (op == kernel.name) return &kernel;
  }
  return nullptr;
}

const TensorInfo& InnerInfo(const Graph& graph, const Node& node, const ValueRef& ref) {
  size_t inputs = node.inputs.size();
  if (static_cast<size_t>(ref.id) >= inputs) return node.ops[ref.id - inputs].outputs[ref.output];
  const ValueRef& outer = node.inputs[ref.id];
  return graph.nodes[outer.id].outputs[outer.output];
}

std::vector<ValueRef> TensorArgs(const InnerOp& op) {
  std::vector<ValueRef> out;
  auto visit = [&out](const Arg& arg, const auto& self) -> void {
    if (arg.kind == Arg::Kind::kTensor) out.push_back(arg.tensor);
    for (const Arg& field : arg.tuple) self(field, self);
  };
  for (const Arg& arg : op.args) visit(arg, visit);
  return out;
}

void CheckSupported(const Graph& graph) {
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    for (const InnerOp& op : node.ops) CheckOp(graph, {static_cast<int64_t>(id), &node, &op});
  }
}

}  // namespace example_npu
}  // namespace byoc
