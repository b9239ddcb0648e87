// A region as the example NPU (or a vendor's runtime) sees it: TVM's JSON graph, typed and checked.
//
// The JSON is TVM's own form (nodes / arg_nodes / heads / node_row_ptr) with one addition: a kernel
// node carries the ops of its composite function under the attribute "ops", so that a runtime need
// not guess from the composite's name what to compute.
//
//   {"op": "kernel", "name": "example_npu.conv2d_relu_fused", "inputs": [[0,0,0],[1,0,0]],
//    "attrs": {"num_inputs": 2, "num_outputs": 1, "shape": [[1,16,30,30]], "dtype": ["float32"],
//              "ops": [{"op": "relax.nn.conv2d", "args": [[0,0],[1,0]],
//                       "attrs": {"strides": [1,1], ...}, "shape": [[1,16,30,30]],
//                       "dtype": ["float32"]},
//                      {"op": "relax.nn.relu", "args": [[2,0]], ...}],
//              "results": [[3,0]]}}
//
// An inner argument [value, output] names a value of the composite: values 0 .. num_inputs-1 are
// the kernel's inputs, value num_inputs + k is the k-th inner op.  An argument that is no tensor is
// an object: {"tuple": [...]}, {"shape": [1, -1]}, {"value": 6.0} or {"none": true}.
#pragma once

#include <tvm/ffi/container/map.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace byoc {

namespace ffi = tvm::ffi;

/*! \brief Dimensions; -1 stands for a symbolic one, known only when the region is called. */
using Shape = std::vector<int64_t>;

/*! \brief Output `output` of value or node `id`. */
struct ValueRef {
  int64_t id = 0;
  int64_t output = 0;
};

/*! \brief What is known of a tensor when the region is compiled. */
struct TensorInfo {
  Shape shape;
  DLDataType dtype{};
};

/*! \brief An argument of an inner op. */
struct Arg {
  enum class Kind { kTensor, kTuple, kShape, kInt, kFloat, kString, kNone };
  Kind kind = Kind::kNone;
  ValueRef tensor;          // kTensor
  std::vector<Arg> tuple;   // kTuple
  Shape shape;              // kShape
  int64_t int_value = 0;    // kInt
  double float_value = 0;   // kInt (converted) and kFloat
  std::string str_value;    // kString
};

/*! \brief Attributes of an inner op, with typed access; None is stored as an empty string. */
class Attrs {
 public:
  Attrs() = default;
  explicit Attrs(ffi::Map<ffi::String, ffi::Any> map) : map_(std::move(map)) {}

  /*! \brief Whether `key` is present and not None. */
  bool Has(const std::string& key) const;
  int64_t Int(const std::string& key) const;
  int64_t Int(const std::string& key, int64_t otherwise) const;
  double Float(const std::string& key, double otherwise) const;
  bool Bool(const std::string& key, bool otherwise) const;
  std::string Str(const std::string& key, const std::string& otherwise) const;
  Shape Ints(const std::string& key) const;

 private:
  ffi::Map<ffi::String, ffi::Any> map_;
};

/*! \brief One Relax op of a composite function. */
struct InnerOp {
  std::string name;  // "relax.nn.conv2d"
  std::vector<Arg> args;
  Attrs attrs;
  std::vector<TensorInfo> outputs;
};

struct Node {
  enum class Kind { kInput, kConst, kKernel };
  Kind kind = Kind::kInput;
  std::string name;               // parameter, constant or composite name
  std::vector<ValueRef> inputs;   // of a kernel
  std::vector<TensorInfo> outputs;
  std::vector<InnerOp> ops;       // of a kernel, in execution order
  std::vector<ValueRef> results;  // of a kernel, numbered as inner arguments
};

struct Graph {
  std::vector<Node> nodes;        // in topological order
  std::vector<int64_t> inputs;    // node ids, in the order of the call's arguments
  std::vector<int64_t> consts;    // node ids, in the order of the constants given to __init_
  std::vector<ValueRef> heads;    // the region's outputs
  ffi::Map<ffi::String, ffi::Any> options;  // of the backend, as given to RunCodegen
};

/*!
 * \brief Parse and check a JSON graph.
 * \throws ValueError naming the node and what is wrong with it: unknown keys or kinds, references
 *         to a node that does not come before, missing shapes, dtypes or ops.
 */
Graph ParseGraph(const std::string& json);

}  // namespace byoc
