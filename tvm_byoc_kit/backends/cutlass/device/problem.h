/*!
 * \file problem.h
 * \brief What a region tells its kernel: sizes, steps and addresses, which no kernel is compiled
 * for, so that regions of other sizes share it.
 *
 * Read by two compilers: by nvcc for the kernels, and by the C++ compiler for the regions.
 */
#ifndef BYOC_CUTLASS_PROBLEM_H_
#define BYOC_CUTLASS_PROBLEM_H_

#include <cstdint>

namespace byoc::cutlass_kernels {

/*! \brief Addresses of the operands; `vector` and `source` are null where there is none. */
struct Operands {
  void* a = nullptr;
  void* b = nullptr;
  /*! \brief One value for each column, or the matrix that the product is combined with. */
  void* source = nullptr;
  /*! \brief The biases of a kernel that has a residual too. */
  void* vector = nullptr;
  void* d = nullptr;
  /*! \brief What `source` is multiplied with: 1, or 0 where there is none. */
  float beta = 0;
};

/*! \brief d[m, n] = epilogue(a[m, k] * b[k, n], source), `batch` times. */
struct Gemm : Operands {
  int m = 0, n = 0, k = 0, batch = 1;
  /*! \brief Parts of the sum over k that different thread blocks compute; 1 in a batch. */
  int split_k = 1;
  int64_t lda = 0, ldb = 0, ldc = 0, ldd = 0;
  int64_t step_a = 0, step_b = 0, step_c = 0, step_d = 0;
};

/*! \brief d[n, p, q, k] = epilogue(conv(a[n, h, w, c], b[k, r, s, c]), source). */
struct Conv2d : Operands {
  int n = 0, h = 0, w = 0, c = 0, k = 0, r = 0, s = 0, p = 0, q = 0;
  int pad_h = 0, pad_w = 0, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int split_k = 1;
  /*! \brief Whether `source` is of the result's shape; else it is one value for each channel. */
  bool whole_source = false;
};

/*! \brief Launches a kernel on a stream; gives what went wrong, or null. */
template <typename Problem>
using Kernel = const char* (*)(const Problem& problem, void* stream);

}  // namespace byoc::cutlass_kernels

#endif  // BYOC_CUTLASS_PROBLEM_H_
