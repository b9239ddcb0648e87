#include "executor.h"

#include <algorithm>
#include <set>
#include <utility>

namespace byoc {
namespace example_npu {
namespace {

bool IsStatic(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.is_shape) return false;
    for (const TensorInfo& info : node.outputs) {
      if (std::count(info.shape.begin(), info.shape.end(), -1) > 0) return false;
    }
  }
  return true;
}

/*! \brief A tensor without data. */
Tensor ShapeOnly(const TensorInfo& info) {
  Tensor out;
  out.shape = info.shape;
  Count(info.shape);  // refuses what is too large
  out.strides = DenseStrides(info.shape);
  out.dtype = info.dtype;
  return out;
}

/*! \brief Whether `value` is a view into the memory of the dense `output`. */
bool InMemoryOf(const Tensor& value, const Tensor& output) {
  return value.data >= output.data && value.data < output.data + output.bytes();
}

bool Fits(const Shape& actual, const Shape& declared) {
  if (actual.size() != declared.size()) return false;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (declared[i] >= 0 && actual[i] != declared[i]) return false;
  }
  return true;
}

void CheckOutputs(const OpRef& ref, const std::vector<Tensor>& outputs) {
  const std::vector<TensorInfo>& declared = ref.op->outputs;
  if (outputs.size() != declared.size()) {
    ref.Fail("gives " + std::to_string(outputs.size()) + " outputs, the graph has " +
             std::to_string(declared.size()));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!Fits(outputs[i].shape, declared[i].shape)) {
      ref.Fail("gives " + ShapeText(outputs[i].shape) + " where the graph has " +
               ShapeText(declared[i].shape));
    }
  }
}

}  // namespace

Executor::Executor(const Graph& graph) : graph_(graph), is_static_(IsStatic(graph)) {
  CheckSupported(graph);
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    if (graph.nodes[id].kind == Node::Kind::kKernel) nodes_.push_back(PlanNode(id));
  }
  MarkLastUses();
  if (!is_static_) return;
  std::vector<Tensor> leaves(graph.nodes.size());
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    if (graph.nodes[id].kind != Node::Kind::kKernel) {
      leaves[id] = ShapeOnly(graph.nodes[id].outputs.at(0));
    }
  }
  static_outputs_ = InferShapes(std::move(leaves));
}

Executor::PlannedNode Executor::PlanNode(int64_t id) const {
  const Node& node = graph_.nodes[id];
  PlannedNode plan{id, {}, {}, {}, false, -1};
  for (const ValueRef& input : node.inputs) plan.inputs.push_back({input});
  for (const InnerOp& op : node.ops) {
    PlannedOp planned{FindKernel(op.name), {id, &node, &op}, {}};
    for (const ValueRef& arg : TensorArgs(op)) planned.args.push_back({arg});
    plan.widen |= planned.kernel->types != Types::kAny;
    plan.ops.push_back(std::move(planned));
  }
  for (size_t i = 0; i < node.results.size(); ++i) {
    plan.results.push_back({node.results[i]});
    if (!SameType(InnerInfo(graph_, node, node.results[i]).dtype, node.outputs[i].dtype)) {
      TVM_FFI_THROW(ValueError) << "example_npu: node " << id << " (" << node.name << "): output "
                                << i << " has not the dtype of the op that gives it";
    }
  }
  if (node.outputs.size() == 1) {
    auto is_this = [id](const ValueRef& head) { return head.id == id; };
    auto head = std::find_if(graph_.heads.begin(), graph_.heads.end(), is_this);
    if (std::count_if(graph_.heads.begin(), graph_.heads.end(), is_this) == 1) {
      plan.head = head - graph_.heads.begin();
    }
  }
  return plan;
}

void Executor::MarkLastUses() {
  using Seen = std::set<std::pair<int64_t, int64_t>>;
  auto mark = [](Seen* seen, std::vector<Use>* uses) {
    for (size_t i = uses->size(); i-- > 0;) {
      Use& use = (*uses)[i];
      use.last = seen->insert({use.ref.id, use.ref.output}).second;
    }
  };
  Seen outer;
  for (const ValueRef& head : graph_.heads) outer.insert({head.id, head.output});
  for (size_t n = nodes_.size(); n-- > 0;) {
    mark(&outer, &nodes_[n].inputs);
    Seen inner;
    mark(&inner, &nodes_[n].results);
    for (size_t i = nodes_[n].ops.size(); i-- > 0;) mark(&inner, &nodes_[n].ops[i].args);
  }
}

Tensor Executor::Take(const Use& use, Values* values) {
  Tensor& value = (*values)[use.ref.id][use.ref.output];
  return use.last ? std::exchange(value, Tensor()) : value;
}

void Executor::RunNode(const PlannedNode& plan, Memory* memory, Values* values) const {
  const Node& node = graph_.nodes[plan.id];
  Values inner;
  for (const Use& input : plan.inputs) {
    Tensor value = Take(input, values);
    inner.push_back({plan.widen ? memory->Convert(value, ComputeType(value.dtype)) : value});
  }
  for (const PlannedOp& op : plan.ops) {
    Call call{op.ref, {}, memory};
    for (const Use& arg : op.args) call.inputs.push_back(Take(arg, &inner));
    inner.push_back(op.kernel->compute(call));
    CheckOutputs(op.ref, inner.back());
  }
  for (size_t i = 0; i < plan.results.size(); ++i) {
    Tensor result = Take(plan.results[i], &inner);
    (*values)[plan.id].push_back(memory->Convert(result, node.outputs[i].dtype));
  }
}

NodeOutputs Executor::Execute(Memory* memory, std::vector<Tensor> leaves,
                              const std::vector<Tensor>* outputs) const {
  Values values(graph_.nodes.size());
  NodeOutputs given(graph_.nodes.size());
  for (size_t id = 0; id < leaves.size(); ++id) {
    if (graph_.nodes[id].kind == Node::Kind::kKernel) continue;
    given[id].push_back({leaves[id].shape, leaves[id].dtype});
    values[id].push_back(std::move(leaves[id]));
  }
  for (const PlannedNode& plan : nodes_) {
    if (outputs != nullptr && plan.head >= 0 && (*outputs)[plan.head].dense()) {
      memory->Offer((*outputs)[plan.head]);
    }
    RunNode(plan, memory, &values);
    memory->Withdraw();
    for (const Tensor& value : values[plan.id])
      given[plan.id].push_back({value.shape, value.dtype});
  }
  if (outputs != nullptr) WriteOutputs(values, *outputs);
  return given;
}

void Executor::WriteOutputs(const Values& values, const std::vector<Tensor>& outputs) const {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ValueRef& head = graph_.heads[i];
    const Tensor &from = values[head.id][head.output], &to = outputs[i];
    if (from.shape != to.shape) {
      TVM_FFI_THROW(ValueError) << "example_npu: output " << i << " has shape "
                                << ShapeText(from.shape) << ", but the tensor given for it has "
                                << ShapeText(to.shape);
    }
    if (from.data == to.data && from.dense() && to.dense()) continue;
    Copy(InMemoryOf(from, to) ? Memory(/*dry=*/false).Dense(from) : from, to);
  }
}

NodeOutputs Executor::Run(std::vector<Tensor> leaves, const std::vector<Tensor>& outputs) const {
  Memory memory(/*dry=*/false);
  return Execute(&memory, std::move(leaves), &outputs);
}

NodeOutputs Executor::InferShapes(std::vector<Tensor> leaves) const {
  Memory memory(/*dry=*/true);
  return Execute(&memory, std::move(leaves), nullptr);
}

}  // namespace example_npu
}  // namespace byoc
