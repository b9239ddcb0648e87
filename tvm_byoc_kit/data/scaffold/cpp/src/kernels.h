// What the hardware computes: replace the kernels by calls of your SDK.
#pragma once

#include <byoc/graph.h>

#include <memory>
#include <vector>

// float32, row-major; `memory` is empty where TVM owns the elements.
struct Tensor {
  byoc::Shape shape;
  const float* data = nullptr;
  std::shared_ptr<std::vector<float>> memory;
};

int64_t Size(const byoc::Shape& shape);

// Throws unless there is a kernel for `op`.
void CheckKernel(const byoc::InnerOp& op);

// Computes `op`; with `bfloat16`, factors are cut to that before they are multiplied.
Tensor RunOp(const byoc::InnerOp& op, const std::vector<Tensor>& operands, bool bfloat16);
