#include "payload.h"

#include <tvm/ffi/cast.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace byoc::openvino {
namespace {

namespace json = tvm::ffi::json;

constexpr std::string_view kMagic = "OPENVIN2";  // the digit is the format's
constexpr std::string_view kOlder = "OPENVINO";  // with all weights in it
constexpr size_t kAlignment = 64;

[[noreturn]] void CutOff() {
  TVM_FFI_THROW(ValueError)
      << "a payload of the OpenVINO backend is cut off; build the model again";
  TVM_FFI_UNREACHABLE();
}

std::string_view Part(std::string_view bytes, size_t start, size_t size) {
  if (start > bytes.size() || size > bytes.size() - start) CutOff();
  return bytes.substr(start, size);
}

std::vector<size_t> Numbers(const json::Value& value) {
  std::vector<size_t> numbers;
  for (const json::Value& item : value.cast<json::Array>()) {
    numbers.push_back(static_cast<size_t>(item.cast<int64_t>()));
  }
  return numbers;
}

}  // namespace

size_t Payload::NumArguments() const {
  size_t count = 0;
  for (size_t number : inputs) count = std::max(count, number + 1);
  for (size_t number : outputs) count = std::max(count, number + 1);
  for (auto [source, target] : copies) count = std::max({count, source + 1, target + 1});
  return count;
}

Payload ReadPayload(const ffi::Bytes& bytes) {
  std::string_view view(bytes.data(), bytes.size());
  if (view.substr(0, kOlder.size()) == kOlder) {
    TVM_FFI_THROW(ValueError) << "this payload of the OpenVINO backend is of an older release of "
                              << "the kit, which stored weights otherwise; build the model again";
  }
  if (view.substr(0, kMagic.size()) != kMagic) {
    TVM_FFI_THROW(ValueError)
        << "this is no payload of the OpenVINO backend; build the model again";
  }
  uint64_t length = 0;
  std::string_view size = Part(view, kMagic.size(), sizeof(length));
  std::memcpy(&length, size.data(), sizeof(length));
  const size_t start = kMagic.size() + sizeof(length);
  std::string_view text = Part(view, start, length);
  auto header = json::Parse(ffi::String(text.data(), text.size())).cast<json::Object>();
  auto field = [&header](const char* name) { return header.at(ffi::String(name)); };

  Payload payload;
  payload.device = field("device").cast<ffi::String>();
  for (const auto& [name, value] : field("properties").cast<json::Object>()) {
    payload.properties[name.cast<ffi::String>()] = value.cast<ffi::String>();
  }
  payload.inputs = Numbers(field("inputs"));
  payload.outputs = Numbers(field("outputs"));
  for (const json::Value& pair : field("copies").cast<json::Array>()) {
    std::vector<size_t> numbers = Numbers(pair);
    payload.copies.emplace_back(numbers.at(0), numbers.at(1));
  }
  payload.constants = static_cast<size_t>(field("constants").cast<int64_t>());
  const size_t model = start + length;
  const auto model_size = static_cast<size_t>(field("model_bytes").cast<int64_t>());
  payload.model = Part(view, model, model_size);
  const size_t weights = (model + model_size + kAlignment - 1) / kAlignment * kAlignment;
  payload.weights =
      Part(view, weights, static_cast<size_t>(field("weights_bytes").cast<int64_t>()));
  if (weights + payload.weights.size() != view.size()) CutOff();
  return payload;
}

}  // namespace byoc::openvino
