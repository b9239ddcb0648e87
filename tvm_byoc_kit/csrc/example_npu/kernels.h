// The ops that the simulator computes: one table from Relax op to function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor.h"

namespace byoc {
namespace example_npu {

/*! \brief An op of the graph, for messages and attributes. */
struct OpRef {
  int64_t node_id;
  const Node* node;
  const InnerOp* op;

  const Attrs& attrs() const { return op->attrs; }
  /*! \brief Start of a message: "example_npu: node 3 (example_npu.conv2d), relax.nn.conv2d: ". */
  std::string Where() const;
  /*! \throws ValueError saying where and `what`. */
  [[noreturn]] void Fail(const std::string& what) const;
  void Require(bool holds, const char* what) const {
    if (!holds) Fail(what);
  }
  /*! \brief The attribute `key`: `count` integers of at least `least`. */
  Shape Ints(const char* key, size_t count, int64_t least) const;
};

/*! \brief One execution of an op. */
struct Call : OpRef {
  std::vector<Tensor> inputs;  // tensor arguments, tuples flattened
  Memory* memory;

  bool dry() const { return memory->dry(); }
  Tensor Allocate(const Shape& shape, DLDataType type) const {
    return memory->Allocate(shape, type);
  }
  /*! \brief Input `i` made dense. */
  Tensor Dense(size_t i) const { return memory->Dense(inputs[i]); }
  /*! \brief The type that output 0 is computed in. */
  DLDataType type() const { return ComputeType(op->outputs[0].dtype); }
  /*! \brief `axis`, counted from the end when negative, of a tensor of `rank` dimensions. */
  int64_t Axis(int64_t axis, int64_t rank) const;
  /*! \brief The attribute `key` as axes; `otherwise` when it is None. */
  Shape Axes(const std::string& key, int64_t rank, const Shape& otherwise) const;
};

/*! \brief Infers the outputs' shapes and, unless the call is dry, computes them. */
using Compute = std::vector<Tensor> (*)(Call&);

/*! \brief Which element types an op takes. */
enum class Types { kFloat, kNumber, kMac, kAny, kQuantize, kDequantize };

struct Kernel {
  const char* name;  // of the Relax op
  Compute compute;
  int min_inputs, max_inputs;  // tensors
  Types types;
  void (*check_attrs)(const OpRef&) = nullptr;  // what is wrong whatever the shapes are
};

/*! \brief The kernel of `op`, or nullptr. */
const Kernel* FindKernel(const std::string& op);

/*! \brief What the graph says of a value inside a kernel node. */
const TensorInfo& InnerInfo(const Graph& graph, const Node& node, const ValueRef& ref);

/*! \brief The tensors among the arguments of an op, tuples flattened. */
std::vector<ValueRef> TensorArgs(const InnerOp& op);

/*!
 * \brief Check that every op is in the table and takes its number of operands and their types.
 * \throws ValueError naming node, op, what was found and what is supported.
 */
void CheckSupported(const Graph& graph);

std::vector<Tensor> Conv(Call& call);
void CheckConv(const OpRef& op);
std::vector<Tensor> Matmul(Call& call);

std::vector<Tensor> MaxPool(Call& call);
std::vector<Tensor> AvgPool(Call& call);
void CheckPool(const OpRef& op);

std::vector<Tensor> Add(Call& call);
std::vector<Tensor> Subtract(Call& call);
std::vector<Tensor> Multiply(Call& call);
std::vector<Tensor> Divide(Call& call);
std::vector<Tensor> Maximum(Call& call);
std::vector<Tensor> Minimum(Call& call);

std::vector<Tensor> Relu(Call& call);
std::vector<Tensor> LeakyRelu(Call& call);
std::vector<Tensor> Clip(Call& call);
std::vector<Tensor> Gelu(Call& call);
std::vector<Tensor> GeluTanh(Call& call);
std::vector<Tensor> Silu(Call& call);
std::vector<Tensor> SigmoidOp(Call& call);
std::vector<Tensor> TanhOp(Call& call);
std::vector<Tensor> ExpOp(Call& call);
std::vector<Tensor> Sqrt(Call& call);
std::vector<Tensor> Negative(Call& call);

std::vector<Tensor> BatchNorm(Call& call);
std::vector<Tensor> LayerNorm(Call& call);
std::vector<Tensor> Softmax(Call& call);
std::vector<Tensor> LogSoftmax(Call& call);
std::vector<Tensor> Mean(Call& call);

std::vector<Tensor> Reshape(Call& call);
std::vector<Tensor> Flatten(Call& call);
std::vector<Tensor> PermuteDims(Call& call);
std::vector<Tensor> Concat(Call& call);
std::vector<Tensor> Squeeze(Call& call);
std::vector<Tensor> ExpandDims(Call& call);

std::vector<Tensor> Quantize(Call& call);
std::vector<Tensor> Dequantize(Call& call);

}  // namespace example_npu
}  // namespace byoc
