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
//
// A shape parameter of a symbolic region (R.Shape) is an input node with the attribute
// {"is_shape": 1}: an int64 vector, given at the call as an ffi::Shape.
#pragma once

#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
  ValueRef tensor;         // kTensor
  std::vector<Arg> tuple;  // kTuple
  Shape shape;             // kShape
  int64_t int_value = 0;   // kInt
  double float_value = 0;  // kInt (converted) and kFloat
  std::string str_value;   // kString
};

/*! \brief Attributes of an inner op, with typed access; None is stored as an empty string. */
class Attrs {
 public:
  Attrs() = default;
  /*!
   * \param owner What the attributes belong to, for messages.
   * \param map Attribute name to an int, float, string or array of those.
   */
  Attrs(std::string owner, ffi::Map<ffi::String, ffi::Any> map)
      : owner_(std::move(owner)), map_(std::move(map)) {}

  /*! \brief Whether `key` is present and not None. */
  bool Has(const std::string& key) const {
    auto it = map_.find(key);
    if (it == map_.end() || (*it).second == nullptr) return false;
    auto text = (*it).second.as<ffi::String>();
    return !(text.has_value() && text->empty());
  }
  int64_t Int(const std::string& key) const { return Get<int64_t>(key, "an integer"); }
  int64_t Int(const std::string& key, int64_t otherwise) const {
    return Has(key) ? Int(key) : otherwise;
  }
  double Float(const std::string& key, double otherwise) const {
    return Has(key) ? Get<double>(key, "a number") : otherwise;
  }
  bool Bool(const std::string& key, bool otherwise) const {
    return Has(key) ? Int(key) != 0 : otherwise;
  }
  std::string Str(const std::string& key, const std::string& otherwise) const {
    return Has(key) ? std::string(Get<ffi::String>(key, "a string")) : otherwise;
  }
  Shape Ints(const std::string& key) const {
    Shape out;
    for (const ffi::Any& item : Get<ffi::Array<ffi::Any>>(key, "an array of integers")) {
      auto value = item.try_cast<int64_t>();
      if (!value.has_value()) Fail(key, "an array of integers");
      out.push_back(*value);
    }
    return out;
  }

 private:
  template <typename T>
  T Get(const std::string& key, const char* expected) const {
    auto it = map_.find(key);
    if (it == map_.end()) Fail(key, expected);
    auto value = (*it).second.template try_cast<T>();
    if (!value.has_value()) Fail(key, expected);
    return *std::move(value);
  }
  [[noreturn]] void Fail(const std::string& key, const char* expected) const {
    TVM_FFI_THROW(ValueError) << owner_ << ": attribute `" << key << "` must be " << expected;
    TVM_FFI_UNREACHABLE();
  }

  std::string owner_;
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
  std::string name;              // parameter, constant or composite name
  bool is_shape = false;         // an input that is an R.Shape parameter
  std::vector<ValueRef> inputs;  // of a kernel
  std::vector<TensorInfo> outputs;
  std::vector<InnerOp> ops;       // of a kernel, in execution order
  std::vector<ValueRef> results;  // of a kernel, numbered as inner arguments, one for each output
};

struct Graph {
  std::vector<Node> nodes;                  // in topological order
  std::vector<int64_t> inputs;              // node ids, in the order of the call's arguments
  std::vector<int64_t> consts;              // node ids, in the order given to __init_
  std::vector<ValueRef> heads;              // the region's outputs
  ffi::Map<ffi::String, ffi::Any> options;  // of the backend, as given to RunCodegen
};

namespace detail {

namespace json = ffi::json;

/*! \brief Whether arrays and objects in a JSON text nest deeper than `limit`. */
inline bool NestsDeeperThan(std::string_view text, int limit) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > limit) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

/*!
 * \brief Parse JSON that may come from a damaged file.
 * \param error Empty when the text could be parsed.
 *
 * tvm-ffi's parser recurses: a text that nests too deep would overflow the stack.
 */
inline ffi::Any ParseJson(std::string_view text, std::string* error) {
  constexpr int kMaxDepth = 100;  // a graph nests about ten deep
  if (NestsDeeperThan(text, kMaxDepth)) {
    *error = "it nests deeper than " + std::to_string(kMaxDepth) + " levels";
    return nullptr;
  }
  ffi::String message;
  ffi::Any root = json::Parse(ffi::String(text.data(), text.size()), &message);
  *error = message;
  return root;
}

/*! \brief Reads a JSON graph and refuses, naming the place, whatever does not fit. */
class GraphParser {
 public:
  Graph Parse(const std::string& text) {
    std::string error;
    ffi::Any root = ParseJson(text, &error);
    if (!error.empty()) Fail("the graph", "is not JSON: " + error);
    json::Object object = As<json::Object>(root, "the graph", "an object");
    json::Array nodes = As<json::Array>(At(object, "nodes", "the graph"), "nodes", "an array");
    for (const ffi::Any& node : nodes) ParseNode(node);
    json::Array heads = As<json::Array>(At(object, "heads", "the graph"), "heads", "an array");
    for (const ffi::Any& head : heads) graph_.heads.push_back(ParseRef(head, "heads"));
    for (const ValueRef& head : graph_.heads) CheckNodeRef(head, graph_.nodes.size(), "heads");
    if (graph_.heads.empty()) Fail("the graph", "has no heads, that is, no outputs");
    CheckArgNodes(object);
    if (auto options = Find(object, "options")) {
      graph_.options = Named(*options, "options");
    }
    return std::move(graph_);
  }

 private:
  [[noreturn]] static void Fail(const std::string& where, const std::string& what) {
    TVM_FFI_THROW(ValueError) << "malformed JSON graph: " << where << " " << what;
    TVM_FFI_UNREACHABLE();
  }
  template <typename T>
  static T As(const ffi::Any& value, const std::string& where, const char* expected) {
    auto typed = value.try_cast<T>();
    if (!typed.has_value()) Fail(where, std::string("must be ") + expected);
    return *std::move(typed);
  }
  static std::optional<ffi::Any> Find(const json::Object& object, const char* key) {
    auto it = object.find(ffi::String(key));
    if (it == object.end()) return std::nullopt;
    return (*it).second;
  }
  static ffi::Any At(const json::Object& object, const char* key, const std::string& where) {
    auto value = Find(object, key);
    if (!value.has_value()) Fail(where, std::string("has no `") + key + "`");
    return *value;
  }
  static ffi::Map<ffi::String, ffi::Any> Named(const ffi::Any& value, const std::string& where) {
    ffi::Map<ffi::String, ffi::Any> out;
    for (const auto& item : As<json::Object>(value, where, "an object")) {
      out.Set(As<ffi::String>(item.first, where, "an object with string keys"), item.second);
    }
    return out;
  }
  static Shape ParseShape(const ffi::Any& value, const std::string& where) {
    Shape out;
    for (const ffi::Any& item : As<json::Array>(value, where, "an array of dimensions")) {
      out.push_back(As<int64_t>(item, where, "an array of integer dimensions"));
      if (out.back() < -1) Fail(where, "has a negative dimension");
    }
    return out;
  }
  static ValueRef ParseRef(const ffi::Any& value, const std::string& where) {
    json::Array pair = As<json::Array>(value, where, "[id, output]");
    if (pair.size() < 2) Fail(where, "must be [id, output]");
    return {As<int64_t>(pair[0], where, "[id, output] of integers"),
            As<int64_t>(pair[1], where, "[id, output] of integers")};
  }
  static std::vector<TensorInfo> ParseTensors(const json::Object& object,
                                              const std::string& where) {
    json::Array shapes = As<json::Array>(At(object, "shape", where), where + ".shape", "an array");
    json::Array dtypes = As<json::Array>(At(object, "dtype", where), where + ".dtype", "an array");
    if (shapes.size() != dtypes.size() || shapes.empty()) {
      Fail(where, "must give one shape and one dtype for each output");
    }
    std::vector<TensorInfo> out;
    for (size_t i = 0; i < shapes.size(); ++i) {
      out.push_back({ParseShape(shapes[i], where + ".shape"), ParseDType(dtypes[i], where)});
    }
    return out;
  }
  static DLDataType ParseDType(const ffi::Any& value, const std::string& where) {
    ffi::String text = As<ffi::String>(value, where + ".dtype", "an array of strings");
    try {
      return ffi::StringToDLDataType(text);
    } catch (const ffi::Error&) {
      Fail(where, "has an unknown dtype `" + std::string(text) + "`");
    }
  }
  void CheckNodeRef(const ValueRef& ref, size_t limit, const std::string& where) const {
    if (ref.id < 0 || static_cast<size_t>(ref.id) >= limit) {
      Fail(where, "refers to node " + std::to_string(ref.id) + ", which does not come before");
    }
    CheckOutput(ref, graph_.nodes[ref.id].outputs.size(), where);
  }
  static void CheckOutput(const ValueRef& ref, size_t outputs, const std::string& where) {
    if (ref.output < 0 || static_cast<size_t>(ref.output) >= outputs) {
      Fail(where, "refers to output " + std::to_string(ref.output) + " of value " +
                      std::to_string(ref.id) + ", which has " + std::to_string(outputs));
    }
  }
  void ParseNode(const ffi::Any& value) {
    size_t id = graph_.nodes.size();
    std::string where = "node " + std::to_string(id);
    json::Object object = As<json::Object>(value, where, "an object");
    Node node;
    node.name = As<ffi::String>(At(object, "name", where), where + ".name", "a string");
    where += " (" + node.name + ")";
    std::string op = As<ffi::String>(At(object, "op", where), where + ".op", "a string");
    json::Object attrs =
        As<json::Object>(At(object, "attrs", where), where + ".attrs", "an object");
    node.outputs = ParseTensors(attrs, where);
    if (op == "input") {
      node.kind = Node::Kind::kInput;
      node.is_shape = Find(attrs, "is_shape").has_value();
      graph_.inputs.push_back(id);
    } else if (op == "const") {
      node.kind = Node::Kind::kConst;
      graph_.consts.push_back(id);
    } else if (op == "kernel") {
      node.kind = Node::Kind::kKernel;
      ParseKernel(object, attrs, where, &node);
    } else {
      Fail(where, "is of kind `" + op + "`; expected input, const or kernel");
    }
    graph_.nodes.push_back(std::move(node));
  }
  void ParseKernel(const json::Object& object, const json::Object& attrs, const std::string& where,
                   Node* node) {
    if (auto inputs = Find(object, "inputs")) {
      for (const ffi::Any& input : As<json::Array>(*inputs, where + ".inputs", "an array")) {
        node->inputs.push_back(ParseRef(input, where + ".inputs"));
        CheckNodeRef(node->inputs.back(), graph_.nodes.size(), where + ".inputs");
      }
    }
    for (const ffi::Any& op :
         As<json::Array>(At(attrs, "ops", where), where + ".ops", "an array")) {
      node->ops.push_back(ParseOp(op, *node, where));
    }
    json::Array results =
        As<json::Array>(At(attrs, "results", where), where + ".results", "an array");
    for (const ffi::Any& result : results) {
      node->results.push_back(ParseRef(result, where + ".results"));
      CheckInnerRef(node->results.back(), *node, where + ".results");
    }
    if (node->results.size() != node->outputs.size()) {
      Fail(where, "must have one of `results` for each output");
    }
  }
  void CheckInnerRef(const ValueRef& ref, const Node& node, const std::string& where) const {
    int64_t inputs = static_cast<int64_t>(node.inputs.size());
    if (ref.id < 0 || ref.id >= inputs + static_cast<int64_t>(node.ops.size())) {
      Fail(where, "refers to value " + std::to_string(ref.id) + ", which does not come before");
    }
    // An input of a kernel is one tensor already: [node, output] was resolved by `inputs`.
    CheckOutput(ref, ref.id < inputs ? 1 : node.ops[ref.id - inputs].outputs.size(), where);
  }
  InnerOp ParseOp(const ffi::Any& value, const Node& node, std::string where) {
    json::Object object = As<json::Object>(value, where + ".ops", "an array of objects");
    InnerOp op;
    op.name = As<ffi::String>(At(object, "op", where + ".ops"), where + ".ops", "named by strings");
    where += " " + op.name;
    for (const ffi::Any& arg : As<json::Array>(At(object, "args", where), where, "an array")) {
      op.args.push_back(ParseArg(arg, node, where));
    }
    if (auto attrs = Find(object, "attrs")) op.attrs = Attrs(where, Named(*attrs, where));
    op.outputs = ParseTensors(object, where);
    return op;
  }
  Arg ParseArg(const ffi::Any& value, const Node& node, const std::string& where) {
    Arg arg;
    if (value.as<json::Array>().has_value()) {
      arg.kind = Arg::Kind::kTensor;
      arg.tensor = ParseRef(value, where);
      CheckInnerRef(arg.tensor, node, where);
      return arg;
    }
    json::Object object = As<json::Object>(value, where, "called with arrays and objects");
    if (auto tuple = Find(object, "tuple")) {
      arg.kind = Arg::Kind::kTuple;
      for (const ffi::Any& field : As<json::Array>(*tuple, where, "called with arrays of fields")) {
        arg.tuple.push_back(ParseArg(field, node, where));
      }
    } else if (auto shape = Find(object, "shape")) {
      arg.kind = Arg::Kind::kShape;
      arg.shape = ParseShape(*shape, where);
    } else if (auto scalar = Find(object, "value")) {
      ParseScalar(*scalar, where, &arg);
    } else if (!Find(object, "none").has_value()) {
      Fail(where, "has an argument that is no tensor, tuple, shape, value or none");
    }
    return arg;
  }
  static void ParseScalar(const ffi::Any& value, const std::string& where, Arg* arg) {
    if (auto text = value.as<ffi::String>()) {
      arg->kind = Arg::Kind::kString;
      arg->str_value = *text;
    } else if (value.type_index() == ffi::TypeIndex::kTVMFFIFloat) {
      arg->kind = Arg::Kind::kFloat;
      arg->float_value = value.cast<double>();
    } else {
      arg->kind = Arg::Kind::kInt;
      arg->int_value = As<int64_t>(value, where, "called with numbers and strings as values");
      arg->float_value = static_cast<double>(arg->int_value);
    }
  }
  void CheckArgNodes(const json::Object& object) const {
    auto listed = Find(object, "arg_nodes");
    if (!listed.has_value()) return;
    size_t leaves = graph_.inputs.size() + graph_.consts.size();
    if (As<json::Array>(*listed, "arg_nodes", "an array").size() != leaves) {
      Fail("arg_nodes", "must list every input and const node");
    }
  }

  Graph graph_;
};

}  // namespace detail

/*!
 * \brief Parse and check a JSON graph.
 * \throws ValueError naming the node and what is wrong with it: unknown keys or kinds, references
 *         to a node that does not come before, missing shapes, dtypes or ops.
 */
inline Graph ParseGraph(const std::string& text) { return detail::GraphParser().Parse(text); }

}  // namespace byoc
