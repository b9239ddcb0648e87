/*!
 * \file launch.h
 * \brief Runs an operation of CUTLASS on a stream, with the workspace that it asks for; and what
 * operations may do at the end.
 */
#ifndef BYOC_CUTLASS_LAUNCH_H_
#define BYOC_CUTLASS_LAUNCH_H_

#include <cutlass/cutlass.h>
#include <cutlass/epilogue/thread/activation.h>
#include <cutlass/epilogue/thread/linear_combination.h>
#include <cutlass/epilogue/thread/linear_combination_gelu.h>
#include <cutlass/epilogue/thread/linear_combination_relu.h>
#include <cutlass/epilogue/thread/linear_combination_residual_block.h>
#include <cutlass/epilogue/thread/linear_combination_silu.h>

#include "problem.h"

namespace byoc::cutlass_kernels {

/*! \brief Memory that is given and taken back in the order of a stream, without waiting for it. */
class Workspace {
 public:
  Workspace(size_t size, cudaStream_t stream) : stream_(stream) {
    if (size != 0) error_ = cudaMallocAsync(&data_, size, stream);
  }
  ~Workspace() {
    if (data_ != nullptr) cudaFreeAsync(data_, stream_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  void* data() const { return data_; }
  cudaError_t error() const { return error_; }

 private:
  void* data_ = nullptr;
  cudaStream_t stream_;
  cudaError_t error_ = cudaSuccess;
};

template <typename Operation>
const char* Launch(const typename Operation::Arguments& arguments, void* on) {
  auto stream = static_cast<cudaStream_t>(on);
  cutlass::Status status = Operation::can_implement(arguments);
  if (status != cutlass::Status::kSuccess) return cutlassGetStatusString(status);
  Workspace workspace(Operation::get_workspace_size(arguments), stream);
  if (workspace.error() != cudaSuccess) return cudaGetErrorString(workspace.error());
  Operation operation;
  status = operation(arguments, workspace.data(), stream);
  if (status == cutlass::Status::kSuccess) return nullptr;
  cudaError_t error = cudaGetLastError();
  return error != cudaSuccess ? cudaGetErrorString(error) : cutlassGetStatusString(status);
}

}  // namespace byoc::cutlass_kernels

#endif  // BYOC_CUTLASS_LAUNCH_H_
