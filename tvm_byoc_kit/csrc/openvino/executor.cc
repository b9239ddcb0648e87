// The OpenVINO backend's executor without Python; takes the place of backends/openvino/executor.py.
//
// A call binds the caller's tensors to the ports of an inference request, without copying them, and
// runs the request. OpenVINO checks and wraps whatever is bound, which costs more than a small
// model does, so what is bound already stays: a host gives the same memory again and again.
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <openvino/core/model.hpp>
#include <openvino/op/constant.hpp>
#include <openvino/op/parameter.hpp>
#include <openvino/runtime/compiled_model.hpp>
#include <openvino/runtime/core.hpp>
#include <openvino/runtime/infer_request.hpp>
#include <openvino/runtime/tensor.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "payload.h"

namespace byoc::openvino {
namespace {

/*! \brief What a DLPack dtype is called in OpenVINO; null for those that it does not have. */
struct DType {
  uint8_t code;
  uint8_t bits;
  ov::element::Type_t type;
};

constexpr DType kDTypes[] = {
    {kDLFloat, 32, ov::element::f32},   {kDLFloat, 16, ov::element::f16},
    {kDLFloat, 64, ov::element::f64},   {kDLBfloat, 16, ov::element::bf16},
    {kDLInt, 8, ov::element::i8},       {kDLInt, 16, ov::element::i16},
    {kDLInt, 32, ov::element::i32},     {kDLInt, 64, ov::element::i64},
    {kDLUInt, 8, ov::element::u8},      {kDLUInt, 16, ov::element::u16},
    {kDLUInt, 32, ov::element::u32},    {kDLUInt, 64, ov::element::u64},
    {kDLBool, 8, ov::element::boolean}, {kDLUInt, 1, ov::element::boolean},
};

ov::element::Type ElementType(DLDataType dtype) {
  for (const DType& known : kDTypes) {
    if (dtype.lanes == 1 && known.code == dtype.code && known.bits == dtype.bits) {
      return known.type;
    }
  }
  TVM_FFI_THROW(TypeError) << "OpenVINO has no tensors of dtype " << ffi::DLDataTypeToString(dtype);
  TVM_FFI_UNREACHABLE();
}

/*! \brief An argument of a call: a tensor in CPU memory, or a shape as a vector of int64. */
class Argument {
 public:
  explicit Argument(ffi::AnyView value) {
    if (auto shape = value.as<ffi::Shape>()) {
      data_ = const_cast<int64_t*>(shape->data());
      length_ = static_cast<int64_t>(shape->size());
      shape_ = &length_;
      ndim_ = 1;
      dtype_ = DLDataType{kDLInt, 64, 1};
      return;
    }
    auto* tensor = value.cast<DLTensor*>();
    if (tensor->device.device_type != kDLCPU || !ffi::IsContiguous(*tensor)) {
      TVM_FFI_THROW(ValueError)
          << "the OpenVINO backend takes contiguous tensors in CPU memory, found a tensor "
          << (tensor->device.device_type == kDLCPU ? "with strides" : "in other memory");
    }
    data_ = static_cast<char*>(tensor->data) + tensor->byte_offset;
    shape_ = tensor->shape;
    ndim_ = static_cast<size_t>(tensor->ndim);
    dtype_ = tensor->dtype;
  }
  Argument(const Argument&) = delete;
  Argument& operator=(const Argument&) = delete;

  void* data() const { return data_; }
  DLDataType dtype() const { return dtype_; }
  const int64_t* begin() const { return shape_; }
  const int64_t* end() const { return shape_ + ndim_; }
  size_t ndim() const { return ndim_; }

  size_t NumBytes() const {
    size_t bytes = (static_cast<size_t>(dtype_.bits) * dtype_.lanes + 7) / 8;
    for (int64_t size : *this) bytes *= static_cast<size_t>(size);
    return bytes;
  }

 private:
  void* data_;
  const int64_t* shape_;
  int64_t length_ = 0;
  size_t ndim_;
  DLDataType dtype_;
};

/*!
 * \brief Refuses integers of 64 bits that OpenVINO, which computes them in 32, would cut off.
 * \throws ffi::Error ValueError; `number` is the argument's.
 */
void CheckRange(const Argument& argument, size_t number) {
  if (argument.dtype().code != kDLInt || argument.dtype().bits != 64) return;
  const auto* value = static_cast<const int64_t*>(argument.data());
  const int64_t* end = value + argument.NumBytes() / sizeof(*value);
  uint64_t beyond = 0;
  for (; value != end; ++value) beyond |= (static_cast<uint64_t>(*value) + (1u << 31)) >> 32;
  if (beyond == 0) return;
  TVM_FFI_THROW(ValueError) << "input " << number << " of a region holds integers beyond 32 bits, "
                            << "in which OpenVINO computes; build the model for a backend that "
                            << "has 64";
}

/*! \brief What is bound to a port of a request. */
class Binding {
 public:
  /*! \brief Whether `argument` is what is bound already. */
  bool Is(const Argument& argument) const {
    DLDataType dtype = argument.dtype();
    return data_ == argument.data() && dtype_.code == dtype.code && dtype_.bits == dtype.bits &&
           shape_.size() == argument.ndim() &&
           std::equal(argument.begin(), argument.end(), shape_.begin());
  }

  /*! \brief OpenVINO's view of `argument`, and remembers it. */
  ov::Tensor Set(const Argument& argument) {
    data_ = argument.data();
    dtype_ = argument.dtype();
    shape_.assign(argument.begin(), argument.end());
    ov::Shape shape(argument.begin(), argument.end());
    if (argument.NumBytes() == 0) return ov::Tensor(ElementType(dtype_), shape);
    return ov::Tensor(ElementType(dtype_), shape, data_);
  }

 private:
  void* data_ = nullptr;
  DLDataType dtype_{};
  std::vector<int64_t> shape_{-1};  // no tensor has it: nothing is bound yet
};

/*! \brief An inference request, which runs one call at a time. */
struct Request {
  ov::InferRequest infer;
  std::vector<Binding> inputs;
  std::vector<Binding> outputs;
};

/*! \brief What `error` says, in one line: OpenVINO puts the place in its sources first. */
std::string Reason(const std::exception& error) {
  std::istringstream text(error.what());
  std::string reason = "unknown error";
  for (std::string line; std::getline(text, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) reason = line;
  }
  return reason;
}

/*!
 * \brief OpenVINO itself, one for the process: regions share its threads.
 *
 * Never destroyed: executors may live until the process ends, in whatever order that takes.
 */
ov::Core& Core() {
  static auto* core = new ov::Core();
  return *core;
}

/*! \brief A constant on the memory of `tensor`, which must outlive it. */
std::shared_ptr<ov::op::v0::Constant> SharedConstant(const ffi::Tensor& tensor) {
  const Argument held{ffi::AnyView(tensor)};
  return std::make_shared<ov::op::v0::Constant>(
      ElementType(held.dtype()), ov::Shape(held.begin(), held.end()), held.data(), nullptr);
}

/*!
 * \brief Puts constants in the place of the model's last parameters.
 *
 * OpenVINO sees them before it compiles the model, and folds, packs and quantizes them.
 */
void PutBack(ov::Model& model, const ffi::Array<ffi::Tensor>& constants) {
  const ov::ParameterVector parameters = model.get_parameters();
  const size_t first = parameters.size() - constants.size();
  for (size_t i = 0; i < constants.size(); ++i) {
    const auto& parameter = parameters.at(first + i);
    parameter->output(0).replace(SharedConstant(constants[i])->output(0));
    model.remove_parameter(parameter);
  }
}

ov::CompiledModel Compile(const Payload& payload, const ffi::Array<ffi::Tensor>& constants) {
  if (payload.constants != constants.size()) {
    TVM_FFI_THROW(ValueError) << "a payload of the OpenVINO backend goes with " << payload.constants
                              << " constants, found " << constants.size()
                              << "; build the model again";
  }
  try {
    // A view: OpenVINO reads the weights where they are. It writes into no constant.
    ov::Tensor weights;
    if (!payload.weights.empty()) {
      weights = ov::Tensor(ov::element::u8, ov::Shape{payload.weights.size()},
                           const_cast<char*>(payload.weights.data()));
    }
    ov::AnyMap properties(payload.properties.begin(), payload.properties.end());
    std::shared_ptr<ov::Model> model = Core().read_model(std::string(payload.model), weights);
    PutBack(*model, constants);
    return Core().compile_model(model, payload.device, properties);
  } catch (const std::exception& error) {
    std::string devices;
    for (const std::string& name : Core().get_available_devices()) {
      devices += (devices.empty() ? "" : ", ") + name;
    }
    TVM_FFI_THROW(ValueError) << "OpenVINO cannot compile the model for " << payload.device << ": "
                              << Reason(error) << "; it has " << devices
                              << ". Build with another device, or cache_dir, among the options";
  }
  TVM_FFI_UNREACHABLE();
}

/*! \brief One region, compiled; called from any number of threads. */
class Executor {
 public:
  Executor(const ffi::Bytes& bytes, const ffi::Array<ffi::Tensor>& constants)
      : bytes_(bytes),
        constants_(constants),
        payload_(ReadPayload(bytes_)),
        num_arguments_(payload_.NumArguments()),
        compiled_(Compile(payload_, constants_)) {}

  /*! \brief Runs on the arguments: inputs, then outputs, which are written. */
  void Run(ffi::PackedArgs arguments) {
    if (static_cast<size_t>(arguments.size()) < num_arguments_) {
      TVM_FFI_THROW(TypeError) << "this region of the OpenVINO backend takes " << num_arguments_
                               << " arguments, found " << arguments.size();
    }
    if (!payload_.outputs.empty()) Infer(arguments);
    for (auto [from, to] : payload_.copies) {
      const Argument source(arguments[from]), target(arguments[to]);
      std::memcpy(target.data(), source.data(), std::min(source.NumBytes(), target.NumBytes()));
    }
  }

 private:
  void Infer(ffi::PackedArgs arguments) {
    std::unique_ptr<Request> request = Acquire();
    try {
      for (size_t port = 0; port < payload_.inputs.size(); ++port) {
        const Argument argument(arguments[payload_.inputs[port]]);
        CheckRange(argument, payload_.inputs[port]);
        Binding& bound = request->inputs[port];
        if (!bound.Is(argument)) request->infer.set_input_tensor(port, bound.Set(argument));
      }
      for (size_t port = 0; port < payload_.outputs.size(); ++port) {
        const Argument argument(arguments[payload_.outputs[port]]);
        Binding& bound = request->outputs[port];
        if (!bound.Is(argument)) request->infer.set_output_tensor(port, bound.Set(argument));
      }
      request->infer.infer();
    } catch (const ffi::Error&) {
      throw;
    } catch (const std::exception& error) {
      TVM_FFI_THROW(RuntimeError) << "OpenVINO: " << Reason(error);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(request));  // one that has thrown is not used again
  }

  /*! \brief A request that no other call uses now; there are as many as there were at once. */
  std::unique_ptr<Request> Acquire() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Request> request = std::move(idle_.back());
        idle_.pop_back();
        return request;
      }
    }
    return std::make_unique<Request>(Request{compiled_.create_infer_request(),
                                             std::vector<Binding>(payload_.inputs.size()),
                                             std::vector<Binding>(payload_.outputs.size())});
  }

  const ffi::Bytes bytes_;                   // weights are read where they are, and so
  const ffi::Array<ffi::Tensor> constants_;  // both are kept
  const Payload payload_;
  const size_t num_arguments_;
  ov::CompiledModel compiled_;
  std::mutex mutex_;  // of idle_
  std::vector<std::unique_ptr<Request>> idle_;
};

ffi::Function MakeExecutor(ffi::Bytes payload, ffi::Array<ffi::Tensor> constants) {
  auto executor = std::make_shared<Executor>(payload, constants);
  return ffi::Function::FromPacked(
      [executor](ffi::PackedArgs arguments, ffi::Any*) { executor->Run(arguments); });
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef().def("byoc.openvino.make_executor", MakeExecutor);
}

}  // namespace byoc::openvino
