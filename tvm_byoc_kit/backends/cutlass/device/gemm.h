/*!
 * \file gemm.h
 * \brief Matrix products: with a source that is added, or with biases and a residual.
 */
#ifndef BYOC_CUTLASS_GEMM_H_
#define BYOC_CUTLASS_GEMM_H_

#include <cutlass/gemm/device/gemm_universal.h>
#include <cutlass/gemm/device/gemm_universal_with_broadcast.h>

#include "launch.h"

namespace byoc::cutlass_kernels {

inline cutlass::gemm::GemmUniversalMode Mode(const Gemm& p) {
  return p.batch == 1 ? cutlass::gemm::GemmUniversalMode::kGemm
                      : cutlass::gemm::GemmUniversalMode::kBatched;
}

/*! \brief activation(a * b + beta * source). */
template <typename Operation>
const char* Linear(const Gemm& p, void* stream) {
  return Launch<Operation>({Mode(p),
                            {p.m, p.n, p.k},
                            p.batch == 1 ? p.split_k : p.batch,
                            {1.0f, p.beta},
                            p.a,
                            p.b,
                            p.source,
                            p.d,
                            p.step_a,
                            p.step_b,
                            p.step_c,
                            p.step_d,
                            p.lda,
                            p.ldb,
                            p.ldc,
                            p.ldd},
                           stream);
}

/*! \brief unary(binary(activation(a * b + vector), source)). */
template <typename Operation>
const char* Residual(const Gemm& p, void* stream) {
  return Launch<Operation>({Mode(p),
                            {p.m, p.n, p.k},
                            p.batch,
                            {1.0f, p.beta},
                            p.a,
                            p.b,
                            p.source,
                            p.d,
                            p.vector,
                            nullptr,
                            p.step_a,
                            p.step_b,
                            p.step_c,
                            p.step_d,
                            0,
                            0,
                            static_cast<int>(p.lda),
                            static_cast<int>(p.ldb),
                            static_cast<int>(p.ldc),
                            static_cast<int>(p.ldd),
                            0,
                            0},
                           stream);
}

}  // namespace byoc::cutlass_kernels

#endif  // BYOC_CUTLASS_GEMM_H_
