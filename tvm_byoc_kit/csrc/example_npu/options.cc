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

/*! \brief An integer option and the least value that makes sense. */
struct Number {
  int64_t Options::* field;
  int64_t least;
};

/*! \brief The greatest value of every number: no product of two leaves 64 bits. */
constexpr int64_t kMost = 2147483647;

const Names<Number> kNumbers = {
    {"l0_bytes", {&Options::l0_bytes, 1}},
    {"l1_bytes", {&Options::l1_bytes, 1}},
    {"l2_bytes", {&Options::l2_bytes, 1}},
    {"frequency_mhz", {&Options::frequency_mhz, 1}},
    {"matrix_macs_per_cycle", {&Options::matrix_macs_per_cycle, 1}},
    {"conv_macs_per_cycle", {&Options::conv_macs_per_cycle, 1}},
    {"array_columns", {&Options::array_columns, 1}},
    {"float16_mac_speedup", {&Options::float16_mac_speedup, 1}},
    {"int8_mac_speedup", {&Options::int8_mac_speedup, 1}},
    {"vector_ops_per_cycle", {&Options::vector_ops_per_cycle, 1}},
    {"pooling_ops_per_cycle", {&Options::pooling_ops_per_cycle, 1}},
    {"activation_ops_per_cycle", {&Options::activation_ops_per_cycle, 1}},
    {"l0_bytes_per_cycle", {&Options::l0_bytes_per_cycle, 1}},
    {"l1_bytes_per_cycle", {&Options::l1_bytes_per_cycle, 1}},
    {"l2_bytes_per_cycle", {&Options::l2_bytes_per_cycle, 1}},
    {"l3_mbytes_per_second", {&Options::l3_mbytes_per_second, 1}},
    {"l0_access_cycles", {&Options::l0_access_cycles, 0}},
    {"l1_access_cycles", {&Options::l1_access_cycles, 0}},
    {"l2_access_cycles", {&Options::l2_access_cycles, 0}},
    {"l3_access_cycles", {&Options::l3_access_cycles, 0}},
};

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

template <typename T>
std::string NameOf(const Names<T>& names, T value) {
  for (const auto& name : names) {
    if (name.second == value) return name.first;
  }
  return "";
}

void SetOption(const std::string& key, const ffi::Any& value, Options* options) {
  if (key == "mode") {
    options->mode = Choice(key, value, kModes);
  } else if (key == "power_mode") {
    options->power_mode = Choice(key, value, kPowerModes);
  } else if (auto number = Find(kNumbers, key)) {
    auto given = value.type_index() == ffi::TypeIndex::kTVMFFIBool ? std::nullopt
                                                                   : value.try_cast<int64_t>();
    if (!given.has_value() || *given < number->least || *given > kMost) {
      Refuse(key, value,
             "an integer of at least " + std::to_string(number->least) + " and at most " +
                 std::to_string(kMost));
    }
    options->*(number->field) = *given;
  } else {
    TVM_FFI_THROW(ValueError) << "example_npu: unknown option `" << key
                              << "`; known are mode, power_mode, " << Listed(kNumbers);
  }
}

}  // namespace

Options ParseOptions(const ffi::Map<ffi::String, ffi::Any>& values) {
  Options options;
  for (const auto& item : values) SetOption(item.first, item.second, &options);
  return options;
}

std::string Name(Mode mode) { return NameOf(kModes, mode); }

std::string Name(PowerMode power_mode) { return NameOf(kPowerModes, power_mode); }

}  // namespace example_npu
}  // namespace byoc
