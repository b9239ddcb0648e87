// The runtime module of a region: what TVM calls, saves and loads.
#include "runtime.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <mutex>

#include "kernels.h"

namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

Tensor View(ffi::AnyView value) {
  const DLTensor& tensor = *value.cast<DLTensor*>();
  if (!ffi::IsContiguous(tensor)) TVM_FFI_THROW(ValueError) << "my_backend reads no strides";
  const char* data = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  byoc::Shape shape(tensor.shape, tensor.shape + tensor.ndim);
  return {std::move(shape), reinterpret_cast<const float*>(data), nullptr};
}

class Region : public ffi::ModuleObj {
 public:
  explicit Region(byoc::RegionGraph region)
      : region_(std::move(region)), graph_(byoc::ParseGraph(region_.json)) {
    byoc::Attrs options("options of my_backend", graph_.options);
    bfloat16_ = options.Str("precision", "float32") == "bfloat16";
  }

  const char* kind() const final { return "my_backend"; }
  int GetPropertyMask() const final {
    return ffi::Module::kBinarySerializable | ffi::Module::kRunnable;
  }

  // The bytes in the artifact. Another format than JSON belongs here and into Load.
  ffi::Bytes SaveToBytes() const final {
    json::Array names(region_.constants.begin(), region_.constants.end());
    json::Array saved{ffi::String(region_.symbol), ffi::String(region_.json), names};
    return ffi::Bytes(std::string(json::Stringify(saved)));
  }
  static ffi::Module Load(const ffi::Bytes& bytes) {
    auto saved = json::Parse(ffi::String(bytes.data(), bytes.size())).cast<json::Array>();
    return MakeRegion({saved[0].cast<ffi::String>(), saved[1].cast<ffi::String>(),
                       saved[2].cast<ffi::Array<ffi::String>>()});
  }

  // What TVM asks for: the region, its name, those of its weights, and what is given the weights.
  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    ffi::ObjectPtr<Region> self = ffi::GetObjectPtr<Region>(this);
    if (name == region_.symbol) {
      return ffi::Function::FromPacked(
          [self](ffi::PackedArgs args, ffi::Any*) { self->Run(args); });
    }
    if (name == "get_symbol") {
      return ffi::Function::FromTyped([self] { return ffi::String(self->region_.symbol); });
    }
    if (name == "get_const_vars") {
      return ffi::Function::FromTyped([self] { return self->region_.constants; });
    }
    if (name == "__init_" + region_.symbol) {
      return ffi::Function::FromTyped([self](ffi::Array<ffi::Tensor> constants) {
        std::call_once(self->initialized_, [&] { self->constants_ = constants; });
        return 0;
      });
    }
    return std::nullopt;
  }

 private:
  // The inputs, then the outputs to fill. Several threads may call at once.
  void Run(const ffi::PackedArgs& args) const {
    std::vector<std::vector<Tensor>> values(graph_.nodes.size());  // by node and output
    size_t arg = 0, constant = 0;
    for (size_t id = 0; id < graph_.nodes.size(); ++id) {
      const byoc::Node& node = graph_.nodes[id];
      switch (node.kind) {
        case byoc::Node::Kind::kInput:
          values[id] = {View(args[arg++])};
          break;
        case byoc::Node::Kind::kConst:
          values[id] = {View(constants_[constant++])};
          break;
        case byoc::Node::Kind::kKernel:
          values[id] = RunKernel(node, values);
      }
    }
    for (const byoc::ValueRef& head : graph_.heads) {
      const Tensor& result = values[head.id][head.output];
      float* out = const_cast<float*>(View(args[arg++]).data);
      std::copy_n(result.data, Size(result.shape), out);
    }
  }

  // One match of a pattern: node.name is the pattern's, node.ops are the ops that it matched.
  std::vector<Tensor> RunKernel(const byoc::Node& node,
                                const std::vector<std::vector<Tensor>>& values) const {
    std::vector<Tensor> known;  // the node's inputs, then the result of each op
    for (const byoc::ValueRef& input : node.inputs) {
      known.push_back(values[input.id][input.output]);
    }
    for (const byoc::InnerOp& op : node.ops) {
      std::vector<Tensor> operands;
      for (const byoc::Arg& operand : op.args) {
        if (operand.kind == byoc::Arg::Kind::kTensor) operands.push_back(known[operand.tensor.id]);
        // The tensors of a tuple, such as concat's.
        for (const byoc::Arg& part : operand.tuple) operands.push_back(known[part.tensor.id]);
      }
      known.push_back(RunOp(op, operands, bfloat16_));
    }
    std::vector<Tensor> results;
    for (const byoc::ValueRef& result : node.results) results.push_back(known[result.id]);
    return results;
  }

  const byoc::RegionGraph region_;
  const byoc::Graph graph_;
  bool bfloat16_;
  std::once_flag initialized_;
  ffi::Array<ffi::Tensor> constants_;
};

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef().def("ffi.Module.load_from_bytes.my_backend", Region::Load);
}

}  // namespace

ffi::Module MakeRegion(byoc::RegionGraph graph) {
  return ffi::Module(ffi::make_object<Region>(std::move(graph)));
}
