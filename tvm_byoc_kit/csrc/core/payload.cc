// The runtime module of every backend whose compiled form is bytes, whatever they mean.
//
// The module knows no backend. It holds the bytes that a codegen made, its payload, and at the
// first call asks the global function `byoc.runtime.<backend>` for an executor:
//
//   byoc.runtime.<backend>(payload: Bytes, constants: Array<Tensor>) -> Function
//
// The executor is kept, and called with the tensors of the call in destination-passing style:
// inputs (Tensor, or Shape for a shape parameter), then outputs.  It may be called from several
// threads at once.  Either may be written in Python, C++ or whatever tvm-ffi can call.
//
// Copies of the payload: one when the module is made, one when it is saved (into the bytes that are
// saved), one when it is loaded.  An executor in C++ gets the module's own bytes; one in Python
// gets them as `bytes`, a copy that goes when its maker lets go of it.
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "once.h"

namespace byoc {
namespace {

constexpr const char* kKind = "byoc_payload";
constexpr std::string_view kMagic = "byocpay1";  // the digit is the format's
constexpr const char* kProvide = "byoc.payload.provide";

/*! \brief What a payload module holds. */
struct Region {
  ffi::String backend;
  ffi::String package;  // that provides the backend's runtime, for messages
  ffi::String symbol;
  ffi::Array<ffi::String> const_names;
  ffi::Bytes payload;
};

[[noreturn]] void Damaged(const std::string& reason) {
  TVM_FFI_THROW(ValueError) << "byoc: a saved region is damaged (" << reason
                            << "): export the model again";
  TVM_FFI_UNREACHABLE();
}

/*!
 * \brief A checksum of 8 bytes at a time, so that damaged bytes are an error and not a crash.
 *
 * FNV-1a on words. Each step can be undone, so one changed word always changes the result.
 */
uint64_t Checksum(std::string_view bytes) {
  uint64_t hash = 14695981039346656037u ^ bytes.size();
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof(word), bytes.size() - i));
    hash = (hash ^ word) * 1099511628211u;
  }
  return hash;
}

/*! \brief Magic, checksum of what follows, texts, constants, payload; each after its size. */
ffi::Bytes Save(const Region& region) {
  std::string out;
  out.reserve(region.payload.size() + 4096);
  auto number = [&out](uint64_t value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  auto bytes = [&](const auto& value) {
    number(value.size());
    out.append(value.data(), value.size());
  };
  out.append(kMagic);
  number(0);  // the checksum's place
  bytes(region.backend);
  bytes(region.package);
  bytes(region.symbol);
  number(region.const_names.size());
  for (const ffi::String& name : region.const_names) bytes(name);
  bytes(region.payload);
  size_t start = kMagic.size() + sizeof(uint64_t);
  uint64_t checksum = Checksum(std::string_view(out).substr(start));
  std::memcpy(out.data() + kMagic.size(), &checksum, sizeof(checksum));
  return ffi::Bytes(std::move(out));
}

/*! \brief Reads what `Save` wrote, and nothing beyond it. */
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  Region Read() {
    if (Take(kMagic.size()) != kMagic) Damaged("it does not start with `byocpay1`");
    if (Number() != Checksum(rest_)) Damaged("its checksum does not match");
    Region region;
    region.backend = Text();
    region.package = Text();
    region.symbol = Text();
    for (uint64_t left = Number(); left > 0; --left) region.const_names.push_back(Text());
    std::string_view payload = Take(Number());
    region.payload = ffi::Bytes(payload.data(), payload.size());
    if (!rest_.empty()) Damaged("it goes on after its end");
    return region;
  }

 private:
  std::string_view Take(uint64_t size) {
    if (size > rest_.size()) Damaged("it ends too early");
    std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  uint64_t Number() {
    uint64_t value;
    std::memcpy(&value, Take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  ffi::String Text() {
    std::string_view text = Take(Number());
    return ffi::String(text.data(), text.size());
  }

  std::string_view rest_;
};

/*! \brief A vector of bytes over the memory of `bytes`, which it keeps alive. */
ffi::Tensor View(const ffi::Bytes& bytes) {
  struct Owner {
    ffi::Bytes bytes;
    int64_t size;
    DLManagedTensor managed;
  };
  auto* owner = new Owner{bytes, static_cast<int64_t>(bytes.size()), {}};
  owner->managed.dl_tensor.data = const_cast<char*>(owner->bytes.data());
  owner->managed.dl_tensor.device = {kDLCPU, 0};
  owner->managed.dl_tensor.ndim = 1;
  owner->managed.dl_tensor.dtype = {kDLUInt, 8, 1};
  owner->managed.dl_tensor.shape = &owner->size;
  owner->managed.manager_ctx = owner;
  owner->managed.deleter = [](DLManagedTensor* self) {
    delete static_cast<Owner*>(self->manager_ctx);
  };
  return ffi::Tensor::FromDLPack(&owner->managed);
}

/*! \brief A maker of executors from one that takes the payload as a tensor. */
ffi::Function Viewed(ffi::Function make) {
  return ffi::Function::FromTyped(
      [make](ffi::Bytes payload, ffi::Array<ffi::Tensor> constants) -> ffi::Any {
        return make(View(payload), constants);
      });
}

/*! \brief A region of a backend whose compiled form is bytes. */
class PayloadModule : public ffi::ModuleObj {
 public:
  explicit PayloadModule(Region region)
      : region_(std::move(region)), where_("region `" + std::string(region_.symbol) + "`") {}

  const char* kind() const final { return kKind; }
  int GetPropertyMask() const final {
    return ffi::Module::kBinarySerializable | ffi::Module::kRunnable;
  }
  ffi::Bytes SaveToBytes() const final { return Save(region_); }

  static ffi::Module LoadFromBytes(const ffi::Bytes& bytes) {
    return ffi::Module(
        ffi::make_object<PayloadModule>(Reader({bytes.data(), bytes.size()}).Read()));
  }

  static ffi::Module Create(ffi::String backend, ffi::String package, ffi::String symbol,
                            ffi::Bytes payload, ffi::Array<ffi::String> const_names) {
    return ffi::Module(ffi::make_object<PayloadModule>(
        Region{std::move(backend), std::move(package), std::move(symbol), std::move(const_names),
               std::move(payload)}));
  }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    // The functions keep the module alive.
    ffi::ObjectPtr<ffi::Object> self = ffi::GetObjectPtr<ffi::Object>(this);
    if (name == region_.symbol) {
      return ffi::Function::FromPacked([self, this](ffi::PackedArgs args, ffi::Any* result) {
        executor_.Get([this] { return MakeExecutor(); }).CallPacked(args, result);
      });
    }
    if (name == "__init_" + std::string(region_.symbol)) {
      return ffi::Function::FromTyped([self, this](ffi::Array<ffi::Tensor> constants) {
        this->Init(std::move(constants));
        return 0;
      });
    }
    if (name == "get_symbol") return Getter(self, region_.symbol);
    if (name == "get_const_vars") return Getter(self, region_.const_names);
    if (name == "get_backend") return Getter(self, region_.backend);
    if (name == "get_package") return Getter(self, region_.package);
    if (name == "get_payload") return Getter(self, region_.payload);
    return std::nullopt;
  }

 private:
  template <typename T>
  static ffi::Function Getter(ffi::ObjectPtr<ffi::Object> self, const T& value) {
    return ffi::Function::FromTyped([self, &value]() { return value; });
  }

  /*! \brief Keeps the constants; the first call counts, since each virtual machine makes one. */
  void Init(ffi::Array<ffi::Tensor> constants) {
    if (constants.size() != region_.const_names.size()) {
      TVM_FFI_THROW(ValueError) << where_ << " expects " << region_.const_names.size()
                                << " constants, found " << constants.size();
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (constants_.empty()) constants_ = std::move(constants);
  }

  ffi::Function MakeExecutor() {
    ffi::Array<ffi::Tensor> constants;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      constants = constants_;
    }
    if (constants.size() != region_.const_names.size()) {
      TVM_FFI_THROW(RuntimeError) << where_ << " was called before __init_" << region_.symbol
                                  << " gave it its constants";
    }
    ffi::Any made = FindRuntime()(region_.payload, constants);
    auto executor = made.as<ffi::Function>();
    if (!executor.has_value()) {
      TVM_FFI_THROW(TypeError) << RuntimeName() << " must give a function, found a "
                               << made.GetTypeKey();
    }
    return *std::move(executor);
  }

  std::string RuntimeName() const { return "byoc.runtime." + std::string(region_.backend); }

  /*! \brief What makes executors; where it is not there, Python may know who registers it. */
  ffi::Function FindRuntime() const {
    std::optional<ffi::Function> found = ffi::Function::GetGlobal(RuntimeName());
    if (found.has_value()) return *std::move(found);
    if (auto provide = ffi::Function::GetGlobal(kProvide)) {
      (*provide)(region_.backend, region_.package);
      found = ffi::Function::GetGlobal(RuntimeName());
      if (found.has_value()) return *std::move(found);
    }
    std::string remedy = "load what registers it before the first call";
    if (!region_.package.empty()) remedy = "pip install " + std::string(region_.package);
    TVM_FFI_THROW(RuntimeError) << where_ << " is for backend '" << region_.backend
                                << "', whose runtime is not here: there is no global function "
                                << RuntimeName() << ". To add it: " << remedy;
    TVM_FFI_UNREACHABLE();
  }

  const Region region_;
  const std::string where_;

  std::mutex mutex_;  // of constants_
  ffi::Array<ffi::Tensor> constants_;
  Once<ffi::Function> executor_;
};

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def("byoc.payload.create", PayloadModule::Create)
      .def("byoc.payload.viewed", Viewed)
      .def("ffi.Module.load_from_bytes.byoc_payload", PayloadModule::LoadFromBytes);
}

}  // namespace byoc
