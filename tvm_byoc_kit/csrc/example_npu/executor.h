// Runs a graph: node by node, and inside a node op by op, with the shapes of the call.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"

namespace byoc {
namespace example_npu {

/*! \brief Shapes and types of the outputs of each node. */
using NodeOutputs = std::vector<std::vector<TensorInfo>>;

/*! \brief Immutable after construction: one executor may run on several threads at once. */
class Executor {
 public:
  /*!
   * \param graph The graph, which must outlive the executor.
   * \throws ValueError when an op is not supported or, for static shapes, does not fit its
   * operands.
   */
  explicit Executor(const Graph& graph);

  /*! \brief Whether all shapes are known without a call. */
  bool is_static() const { return is_static_; }
  /*! \brief What each node gives when nothing is symbolic. */
  const NodeOutputs& static_outputs() const { return static_outputs_; }

  /*!
   * \brief Compute the region's outputs.
   * \param leaves Tensors of the input and const nodes, by node id; others are empty.
   * \param outputs Where the heads go, one tensor each.
   * \return What each node gave.
   */
  NodeOutputs Run(std::vector<Tensor> leaves, const std::vector<Tensor>& outputs) const;

  /*! \brief As Run, but shapes only: `leaves` need no data, nothing is written. */
  NodeOutputs InferShapes(std::vector<Tensor> leaves) const;

 private:
  /*! \brief A value and whether this is its last use: then its memory may be used again. */
  struct Use {
    ValueRef ref;
    bool last = false;
  };
  struct PlannedOp {
    const Kernel* kernel;
    OpRef ref;
    std::vector<Use> args;
  };
  struct PlannedNode {
    int64_t id;
    std::vector<Use> inputs;
    std::vector<PlannedOp> ops;
    std::vector<Use> results;
    bool widen;         // compute float16 in float32
    int64_t head = -1;  // the output of the region that this node alone makes
  };
  using Values = std::vector<std::vector<Tensor>>;

  PlannedNode PlanNode(int64_t id) const;
  void MarkLastUses();
  void RunNode(const PlannedNode& plan, Memory* memory, Values* values) const;
  NodeOutputs Execute(Memory* memory, std::vector<Tensor> leaves,
                      const std::vector<Tensor>* outputs) const;
  void WriteOutputs(const Values& values, const std::vector<Tensor>& outputs) const;
  static Tensor Take(const Use& use, Values* values);

  const Graph& graph_;
  std::vector<PlannedNode> nodes_;
  bool is_static_ = true;
  NodeOutputs static_outputs_;
};

}  // namespace example_npu
}  // namespace byoc
