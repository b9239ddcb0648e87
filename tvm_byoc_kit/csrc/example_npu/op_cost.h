// What a kernel computes: engine, multiply-accumulates, element operations, compute cycles.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "byoc/graph.h"
#include "machine.h"

namespace byoc {
namespace example_npu {

/*!
 * \brief Loops of a convolution or matmul, as the tiling needs them.
 *
 * A matmul [batch, rows, reduce] x [reduce, channels] has one group and a 1x1 window.
 */
struct MacLoops {
  bool is_conv = false;
  int64_t batch = 1;
  int64_t groups = 1;
  int64_t channels = 1;  // output channels of one group
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t reduce = 1;    // input channels of one group
  int64_t window_h = 1;  // with dilation
  int64_t window_w = 1;
  int64_t stride_h = 1;
  int64_t stride_w = 1;
  int64_t input_rows = 1;
  int64_t input_columns = 1;
  bool batched_weight = false;  // each item of the batch has a weight of its own
  int64_t input = -1;           // which of the kernel's inputs; -1: computed inside the kernel
  int64_t weight = -1;
};

/*! \brief The computation of one kernel. */
struct Work {
  Engine engine = Engine::kVector;
  bool fused = false;            // more than one op that computes
  int64_t macs = 0;              // multiply-accumulates
  int64_t element_ops = 0;       // operations on single elements, MACs apart
  int64_t inner_bytes = 0;       // of the values that pass from op to op inside a fused kernel
  int64_t compute_cycles = 0;    // of the slowest stage, for stages work as a pipeline
  std::vector<bool> parameters;  // for each input: a weight by its place or by its shape
  std::optional<MacLoops> loops;
};

/*!
 * \brief Count the work of a kernel node.
 * \param node The kernel.
 * \param inputs Its inputs with their actual shapes.
 * \param outputs Its outputs with their actual shapes.
 * \param machine Supplies the rates.
 */
Work CountWork(const Node& node, const std::vector<TensorInfo>& inputs,
               const std::vector<TensorInfo>& outputs, const Machine& machine);

/*! \brief Product of the dimensions. */
int64_t Elements(const Shape& shape);
/*! \brief Size of a dense tensor. */
int64_t Bytes(const TensorInfo& tensor);
/*! \brief Quotient of non-negative `a` and positive `b`, rounded up. */
inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
/*! \brief Cycles that `amount` takes at `rate` per cycle, rounded up. */
int64_t Cycles(double amount, double rate);

}  // namespace example_npu
}  // namespace byoc
