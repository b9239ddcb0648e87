// From an element type to the C++ type that holds it.
#pragma once

#include "tensor.h"

namespace byoc {
namespace example_npu {

/*! \brief Calls `f` with a zero of the C++ type of `type`, which is one of Types::kNumber. */
template <typename F>
void WithNumber(DLDataType type, F f) {
  if (SameType(type, kFloat32)) return f(float());
  if (SameType(type, kInt8)) return f(int8_t());
  if (SameType(type, kUInt8)) return f(uint8_t());
  if (SameType(type, kInt16)) return f(int16_t());
  if (SameType(type, kInt32)) return f(int32_t());
  f(int64_t());
}

}  // namespace example_npu
}  // namespace byoc
