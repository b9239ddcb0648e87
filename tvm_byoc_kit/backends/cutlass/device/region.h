/*!
 * \file region.h
 * \brief What the functions of regions are made of: they read tensors and launch a kernel.
 */
#ifndef BYOC_CUTLASS_REGION_H_
#define BYOC_CUTLASS_REGION_H_

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <algorithm>

#include "problem.h"

namespace byoc::cutlass_kernels {

/*! \brief Where the elements are, which kernels read by up to 16 bytes at once. */
inline void* Data(const DLTensor* tensor) {
  char* data = static_cast<char*>(tensor->data) + tensor->byte_offset;
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0) {
    TVM_FFI_THROW(ValueError) << "a tensor for CUTLASS begins at " << static_cast<void*>(data)
                              << "; expected a multiple of 16: copy it first";
  }
  return data;
}

inline bool IsEmpty(const DLTensor* tensor) {
  return std::count(tensor->shape, tensor->shape + tensor->ndim, 0) != 0;
}

/*! \brief Launches on the current stream of the device that holds the result. */
template <typename Problem>
void Run(Kernel<Problem> kernel, const char* name, const Problem& problem, const DLTensor* result) {
  if (result->device.device_type != kDLCUDA) {
    TVM_FFI_THROW(ValueError) << name << " runs on an NVIDIA GPU, and was given tensors of device "
                              << "type " << result->device.device_type << "; expected " << kDLCUDA;
  }
  if (IsEmpty(result)) return;
  void* stream = TVMFFIEnvGetStream(kDLCUDA, result->device.device_id);
  if (const char* wrong = kernel(problem, stream)) {
    TVM_FFI_THROW(RuntimeError) << "CUTLASS kernel " << name << " failed: " << wrong;
  }
}

}  // namespace byoc::cutlass_kernels

#endif  // BYOC_CUTLASS_REGION_H_
