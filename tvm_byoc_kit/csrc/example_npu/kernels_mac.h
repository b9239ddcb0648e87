// What convolution and matmul share: their element types.
#pragma once

#include "kernels.h"

namespace byoc {
namespace example_npu {

/*! \brief The type of sums of products: float32, or int32 for 8-bit operands. */
inline DLDataType SumType(DLDataType input) {
  return SameType(input, kFloat32) ? kFloat32 : kInt32;
}

/*! \brief A dense float32 copy of bytes, or the tensor itself made dense. */
Tensor AsFloat(const Call& call, const Tensor& tensor);

/*! \brief int32 sums cut to the int8 that was asked for, as TVM's own sums in int8 overflow. */
Tensor CutTo(const Call& call, const Tensor& sums, DLDataType type);

}  // namespace example_npu
}  // namespace byoc
