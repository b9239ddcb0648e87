// The runtime module of a region: what TVM's virtual machine calls and what exports and reloads.
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <cinttypes>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "executor.h"
#include "options.h"
#include "schedule.h"

namespace byoc {
namespace example_npu {
namespace {

namespace json = ffi::json;

constexpr const char* kKind = "example_npu_json";
constexpr int64_t kFormat = 1;  // of the bytes that a module is saved as

/*! \brief FNV-1a, so that damaged bytes are an error and not another graph. */
std::string Checksum(const std::string& text) {
  uint64_t hash = 14695981039346656037u;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  char out[17];
  std::snprintf(out, sizeof(out), "%016" PRIx64, hash);
  return out;
}

bool Matches(const DLTensor& tensor, const TensorInfo& info) {
  if (!SameType(tensor.dtype, info.dtype)) return false;
  if (tensor.ndim != static_cast<int32_t>(info.shape.size())) return false;
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    if (info.shape[i] >= 0 && tensor.shape[i] != info.shape[i]) return false;
  }
  return tensor.device.device_type == kDLCPU || tensor.device.device_type == kDLCUDAHost;
}

std::string DeviceText(DLDevice device) {
  std::string type = device.device_type == kDLCPU ? "cpu"
                     : device.device_type == kDLCUDA
                         ? "cuda"
                         : "device type " + std::to_string(device.device_type);
  return type + ":" + std::to_string(device.device_id);
}

std::string Text(const DLTensor& tensor) {
  return TensorText(tensor.dtype, Shape(tensor.shape, tensor.shape + tensor.ndim)) + " on " +
         DeviceText(tensor.device);
}

/*! \brief Where an argument belongs, for messages: "argument 0 (`x`)". */
struct Place {
  std::string symbol, what;
};

Tensor TakeTensor(const ffi::AnyView& value, const TensorInfo& info, const Place& place,
                  bool writable) {
  auto tensor = value.try_cast<DLTensor*>();
  std::string expected = TensorText(info.dtype, info.shape) + " on cpu";
  if (!tensor.has_value() || *tensor == nullptr) {
    TVM_FFI_THROW(ValueError) << "example_npu: region `" << place.symbol << "`: " << place.what
                              << " must be a tensor " << expected << ", found a "
                              << value.GetTypeKey();
  }
  if (!Matches(**tensor, info)) {
    TVM_FFI_THROW(ValueError) << "example_npu: region `" << place.symbol << "`: " << place.what
                              << " must be " << expected << ", found " << Text(**tensor);
  }
  return Borrowed(**tensor, writable);
}

/*! \brief An R.Shape argument as a tensor of its dimensions, which is what its node is. */
Tensor TakeShape(const ffi::AnyView& value, const TensorInfo& info, const Place& place) {
  auto shape = value.try_cast<ffi::Shape>();
  int64_t rank = info.shape.empty() ? 0 : info.shape[0];
  if (!shape.has_value() || static_cast<int64_t>(shape->size()) != rank) {
    TVM_FFI_THROW(ValueError) << "example_npu: region `" << place.symbol << "`: " << place.what
                              << " must be a shape of " << rank << " dimensions";
  }
  Tensor out = Memory(/*dry=*/false).Allocate({rank}, kInt64);
  std::copy(shape->begin(), shape->end(), out.as<int64_t>());
  return out;
}

/*! \brief What __init_ gave, and views on it. */
struct Constants {
  ffi::Array<ffi::Tensor> owners;
  std::vector<Tensor> views;
};

bool SameShapes(const NodeOutputs& a, const NodeOutputs& b) {
  auto same = [](const TensorInfo& x, const TensorInfo& y) { return x.shape == y.shape; };
  auto all_same = [&](const std::vector<TensorInfo>& x, const std::vector<TensorInfo>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), all_same);
}

/*!
 * \brief A region on the example NPU.
 *
 * Everything that a call reads is fixed when the module is made or by the first __init_, so calls
 * may come from several threads; what a call needs for itself lives on its stack.
 */
class ExampleNPUModule : public ffi::ModuleObj {
 public:
  ExampleNPUModule(std::string symbol, std::string graph_json, ffi::Array<ffi::String> const_names)
      : symbol_(std::move(symbol)),
        graph_json_(std::move(graph_json)),
        const_names_(std::move(const_names)),
        graph_(ParseGraph(graph_json_)),
        options_(ParseOptions(graph_.options)),
        executor_(graph_) {
    if (const_names_.size() != graph_.consts.size()) {
      TVM_FFI_THROW(ValueError) << "example_npu: region `" << symbol_ << "` has "
                                << graph_.consts.size() << " constants in its graph, but "
                                << const_names_.size() << " names of constants";
    }
  }

  const char* kind() const final { return kKind; }
  int GetPropertyMask() const final {
    return ffi::Module::kBinarySerializable | ffi::Module::kRunnable;
  }
  ffi::String InspectSource(const ffi::String&) const final { return graph_json_; }

  ffi::Bytes SaveToBytes() const final {
    json::Object out;
    out.Set(ffi::String("kind"), ffi::String(kKind));
    out.Set(ffi::String("format"), kFormat);
    out.Set(ffi::String("symbol"), ffi::String(symbol_));
    out.Set(ffi::String("constants"), json::Array(const_names_.begin(), const_names_.end()));
    out.Set(ffi::String("checksum"), ffi::String(Checksum(graph_json_)));
    out.Set(ffi::String("graph"), ffi::String(graph_json_));
    return ffi::Bytes(std::string(json::Stringify(out)));
  }

  static ffi::Module LoadFromBytes(const ffi::Bytes& bytes) {
    std::string error;
    ffi::Any root = detail::ParseJson({bytes.data(), bytes.size()}, &error);
    auto object = error.empty() ? root.as<json::Object>() : std::nullopt;
    if (!object.has_value()) Damaged(error.empty() ? "it is no object" : error);
    auto format = Member<int64_t>(*object, "format");
    if (format != kFormat) {
      TVM_FFI_THROW(ValueError) << "example_npu: the saved region has format " << format
                                << "; this plugin reads format " << kFormat
                                << ": export the model again with it";
    }
    std::string graph = Member<ffi::String>(*object, "graph");
    if (Member<ffi::String>(*object, "checksum") != Checksum(graph)) {
      Damaged("its graph has another checksum");
    }
    return Create(Member<ffi::String>(*object, "symbol"), graph,
                  Member<ffi::Array<ffi::String>>(*object, "constants"));
  }

  static ffi::Module Create(ffi::String symbol, ffi::String graph_json,
                            ffi::Array<ffi::String> const_names) {
    return ffi::Module(ffi::make_object<ExampleNPUModule>(
        std::string(symbol), std::string(graph_json), std::move(const_names)));
  }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    ffi::ObjectPtr<ffi::Object> self = ffi::GetObjectPtr<ffi::Object>(this);
    if (name == symbol_) {
      return ffi::Function::FromPacked(
          [self, this](ffi::PackedArgs args, ffi::Any*) { this->Run(args); });
    }
    if (name == "__init_" + symbol_) {
      return ffi::Function::FromTyped([self, this](ffi::Array<ffi::Tensor> constants) {
        this->Init(std::move(constants));
        return 0;
      });
    }
    if (name == "get_symbol") {
      return ffi::Function::FromTyped([self, this]() { return ffi::String(symbol_); });
    }
    if (name == "get_const_vars") {
      return ffi::Function::FromTyped([self, this]() { return const_names_; });
    }
    if (name == "get_graph") {
      return ffi::Function::FromTyped([self, this]() { return ffi::String(graph_json_); });
    }
    if (name == "get_schedule") {
      return ffi::Function::FromTyped([self, this]() { return ffi::String(this->Schedule()); });
    }
    return std::nullopt;
  }

 private:
  [[noreturn]] static void Damaged(const std::string& reason) {
    TVM_FFI_THROW(ValueError) << "example_npu: the saved region is damaged (" << reason
                              << "): export the model again";
    TVM_FFI_UNREACHABLE();
  }

  template <typename T>
  static T Member(const json::Object& object, const char* key) {
    auto it = object.find(ffi::String(key));
    if (it == object.end()) Damaged(std::string("it has no `") + key + "`");
    auto value = (*it).second.template try_cast<T>();
    if (!value.has_value()) Damaged(std::string("its `") + key + "` is malformed");
    return *std::move(value);
  }

  /*! \brief Keeps the constants; the first call counts, since each virtual machine makes one. */
  void Init(ffi::Array<ffi::Tensor> constants) {
    if (constants.size() != graph_.consts.size()) {
      TVM_FFI_THROW(ValueError) << "example_npu: region `" << symbol_ << "` expects "
                                << graph_.consts.size() << " constants, found " << constants.size();
    }
    auto given = std::make_shared<Constants>();
    given->owners = constants;
    for (size_t i = 0; i < constants.size(); ++i) {
      Place place{symbol_,
                  "constant " + std::to_string(i) + " (`" + std::string(const_names_[i]) + "`)"};
      given->views.push_back(TakeTensor(constants[i], graph_.nodes[graph_.consts[i]].outputs[0],
                                        place, /*writable=*/false));
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (constants_ == nullptr) constants_ = std::move(given);
  }

  std::shared_ptr<const Constants> GetConstants() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (constants_ == nullptr && !graph_.consts.empty()) {
      TVM_FFI_THROW(RuntimeError) << "example_npu: region `" << symbol_
                                  << "` was called before __init_" << symbol_
                                  << " gave it its constants";
    }
    return constants_;
  }

  void Run(const ffi::PackedArgs& args) {
    size_t inputs = graph_.inputs.size(), count = inputs + graph_.heads.size();
    if (static_cast<size_t>(args.size()) != count) {
      TVM_FFI_THROW(ValueError) << "example_npu: region `" << symbol_ << "` expects " << inputs
                                << " inputs and " << graph_.heads.size() << " outputs, found "
                                << args.size() << " arguments";
    }
    std::vector<Tensor> leaves(graph_.nodes.size());
    for (size_t i = 0; i < inputs; ++i) {
      leaves[graph_.inputs[i]] = TakeInput(args[i], i, graph_.nodes[graph_.inputs[i]]);
    }
    std::vector<Tensor> outputs;
    for (size_t i = 0; i < graph_.heads.size(); ++i) {
      const ValueRef& head = graph_.heads[i];
      Place place{symbol_, "output " + std::to_string(i)};
      outputs.push_back(TakeTensor(args[inputs + i], graph_.nodes[head.id].outputs[head.output],
                                   place, /*writable=*/true));
    }
    std::shared_ptr<const Constants> constants = GetConstants();
    for (size_t i = 0; i < graph_.consts.size(); ++i) {
      leaves[graph_.consts[i]] = constants->views[i];
    }
    if (options_.mode == Mode::kRecord) {
      if (!executor_.is_static()) Remember(executor_.InferShapes(std::move(leaves)));
    } else {
      Remember(executor_.Run(std::move(leaves), outputs));
    }
  }

  Tensor TakeInput(const ffi::AnyView& value, size_t index, const Node& node) const {
    Place place{symbol_, "argument " + std::to_string(index) + " (`" + node.name + "`)"};
    if (node.is_shape) return TakeShape(value, node.outputs[0], place);
    return TakeTensor(value, node.outputs[0], place, /*writable=*/false);
  }

  /*! \brief Notes the shapes of a call, for the schedule. */
  void Remember(NodeOutputs outputs) {
    if (executor_.is_static()) return;
    std::lock_guard<std::mutex> lock(mutex_);
    if (SameShapes(outputs, last_outputs_)) return;
    last_outputs_ = std::move(outputs);
    schedule_.clear();
  }

  /*! \brief The schedule of the last call's shapes, computed once for these. */
  std::string Schedule() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!schedule_.empty()) return schedule_;
    if (!executor_.is_static() && last_outputs_.empty()) {
      TVM_FFI_THROW(ValueError) << "example_npu: region `" << symbol_
                                << "` has symbolic shapes: call it before asking for its schedule";
    }
    const NodeOutputs& outputs = executor_.is_static() ? executor_.static_outputs() : last_outputs_;
    schedule_ = ScheduleJson(PlanSchedule(graph_, options_, outputs));
    return schedule_;
  }

  const std::string symbol_;
  const std::string graph_json_;
  const ffi::Array<ffi::String> const_names_;
  const Graph graph_;
  const Options options_;
  const Executor executor_;

  std::mutex mutex_;  // of what follows
  std::shared_ptr<const Constants> constants_;
  NodeOutputs last_outputs_;
  std::string schedule_;
};

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def("runtime.ExampleNPUJSONRuntimeCreate", ExampleNPUModule::Create)
      .def("ffi.Module.load_from_bytes.example_npu_json", ExampleNPUModule::LoadFromBytes);
}

}  // namespace example_npu
}  // namespace byoc
