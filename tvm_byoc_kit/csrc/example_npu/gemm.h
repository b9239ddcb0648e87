// Matrix product for convolutions and matmuls.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor.h"

namespace byoc {
namespace example_npu {

/*!
 * \brief C[m, n] = sum over k of A[m, k] * B[k, n].
 *
 * B is read as `b[k_offsets[k] + n_offsets[n]]`, which covers a matrix of any strides as well as
 * the windows of an image (im2col) without building either.
 */
struct GemmProblem {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;  // rows of `a_stride`, columns contiguous
  int64_t a_stride = 0;
  const void* b = nullptr;
  DLDataType b_type{};  // float32, int8 or uint8
  const int64_t* k_offsets = nullptr;
  const int64_t* n_offsets = nullptr;
  void* c = nullptr;  // rows of `c_stride`
  int64_t c_stride = 0;
  bool integer = false;  // C is int32 and A and B hold 8-bit integers; else C is float32
};

/*!
 * \brief Compute the product, on one thread.
 *
 * Integer products are exact although they run on float units: at most 256 products of 8-bit
 * integers are added in float32, which holds integers up to 2^24, before they go to int32.
 */
void Gemm(const GemmProblem& problem);

/*! \brief The offsets 0, step, 2 * step ... */
std::vector<int64_t> Offsets(int64_t count, int64_t step);

/*! \brief c[n] = sum over k of a[k] * b[n * b_stride + k]: one row times a transposed matrix. */
void RowTimesTransposed(const float* a, const float* b, int64_t b_stride, int64_t n, int64_t k,
                        float* c);

/*! \brief c[n] = sum over k of a[k] * b[k * b_stride + n]: one row times a matrix. */
void RowTimesMatrix(const float* a, const float* b, int64_t b_stride, int64_t n, int64_t k,
                    float* c);

}  // namespace example_npu
}  // namespace byoc
