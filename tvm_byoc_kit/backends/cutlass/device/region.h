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

inline void* Data(const DLTensor* tensor) {
  return static_cast<char*>(tensor->data) + tensor->byte_offset;
}

/*! \brief Launches on the current stream of the device that holds the result. */
template <typename Problem>
void Run(Kernel<Problem> kernel, const char* name, const Problem& problem, const DLTensor* result) {
  if (result->device.device_type != kDLCUDA) {
    TVM_FFI_THROW(ValueError) << name << " runs on an NVIDIA GPU, and was given tensors of device "
                              << "type " << result->device.device_type << "; expected " << kDLCUDA;
  }
  void* stream = TVMFFIEnvGetStream(kDLCUDA, result->device.device_id);
  if (const char* wrong = kernel(problem, stream)) {
    TVM_FFI_THROW(RuntimeError) << "CUTLASS kernel " << name << " failed: " << wrong;
  }
}

}  // namespace byoc::cutlass_kernels

#endif  // BYOC_CUTLASS_REGION_H_
