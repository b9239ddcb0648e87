#include "options.h"

#include <tvm/ffi/extra/json.h>

#include <string>
#include <utility>
#include <vector>

namespace byoc {
namespace example_npu {
namespace {

template <typename T>
using Names = std::vector<std::pair<const char*, T>>;

const Names<Mode> kModes = {{"simulate", Mode::kSimulate}, {"record", Mode::kRecord}};

const Names<PowerMode> kPowerModes = {{"high_performance", PowerMode::kHighPerformance},
                                      {"balanced", PowerMode::kBalanced},
                                      {"low_power", PowerMode::kLowPower}};

const Names<int64_t Options::*> kSizes = {{"l0_bytes", &Options::l0_bytes},
                                          {"l1_bytes", &Options::l1_bytes},
                                          {"l2_bytes", &Options::l2_bytes}};

template <typename T>
std::string Listed(const Names<T>& names) {
  std::string out;
  for (const auto& name : names) out += (out.empty() ? "" : ", ") + std::string(name.first);
  return out;
}

[[noreturn]] void Refuse(const std::string& key, const ffi::Any& value,
                         const std::string& expected) {
  TVM_FFI_THROW(ValueError) << "example_npu: option `" << key << "` is "
                            << std::string(ffi::json::Stringify(value)) << "; expected "
                            << expected;
  TVM_FFI_UNREACHABLE();
}

template <typename T>
T Choice(const std::string& key, const ffi::Any& value, const Names<T>& names) {
  auto text = value.as<ffi::String>();
  for (const auto& name : names) {
    if (text.has_value() && *text == name.first) return name.second;
  }
  Refuse(key, value, "one of " + Listed(names));
}

template <typename T>
const T* Find(const Names<T>& names, const std::string& key) {
  for (const auto& name : names) {
    if (key == name.first) return &name.second;
  }
  return nullptr;
}

void SetOption(const std::string& key, const ffi::Any& value, Options* options) {
  if (key == "mode") {
    options->mode = Choice(key, value, kModes);
  } else if (key == "power_mode") {
    options->power_mode = Choice(key, value, kPowerModes);
  } else if (auto size = Find(kSizes, key)) {
    auto bytes = value.type_index() == ffi::TypeIndex::kTVMFFIBool ? std::nullopt
                                                                   : value.try_cast<int64_t>();
    if (!bytes.has_value() || *bytes <= 0) Refuse(key, value, "a positive number of bytes");
    options->*(*size) = *bytes;
  } else {
    TVM_FFI_THROW(ValueError) << "example_npu: unknown option `" << key
                              << "`; known are mode, power_mode, " << Listed(kSizes);
  }
}

}  // namespace

Options ParseOptions(const ffi::Map<ffi::String, ffi::Any>& values) {
  Options options;
  for (const auto& item : values) SetOption(item.first, item.second, &options);
  return options;
}

}  // namespace example_npu
}  // namespace byoc
