/*!
 * \file conv2d.h
 * \brief Convolutions of NHWC by OHWI: with a source that is added, or with biases and a residual.
 */
#ifndef BYOC_CUTLASS_CONV2D_H_
#define BYOC_CUTLASS_CONV2D_H_

#include <cutlass/conv/kernel/default_conv2d_fprop.h>
#include <cutlass/conv/kernel/default_conv2d_fprop_with_broadcast.h>

// After them, for it takes the sizes of a convolution for known.
#include <cutlass/conv/device/implicit_gemm_convolution.h>

#include "launch.h"

namespace byoc::cutlass_kernels {

inline cutlass::conv::Conv2dProblemSize Size(const Conv2d& x) {
  return {x.n,        x.h,          x.w,          x.c,
          x.k,        x.r,          x.s,          x.p,
          x.q,        x.pad_h,      x.pad_w,      x.stride_h,
          x.stride_w, x.dilation_h, x.dilation_w, cutlass::conv::Mode::kCrossCorrelation,
          x.split_k};
}

template <typename Element>
auto Tensor(void* data, int n, int h, int w, int c) {
  using Layout = cutlass::layout::TensorNHWC;
  return cutlass::TensorRef<Element, Layout>(static_cast<Element*>(data),
                                             Layout::packed({n, h, w, c}));
}

/*! \brief The source: a tensor of the result's shape, or a vector that no step leads away from. */
template <typename Element>
auto Source(const Conv2d& x) {
  using Layout = cutlass::layout::TensorNHWC;
  if (x.whole_source) return Tensor<Element>(x.source, x.n, x.p, x.q, x.k);
  return cutlass::TensorRef<Element, Layout>(static_cast<Element*>(x.source),
                                             Layout(Layout::Stride(0)));
}

/*! \brief activation(conv(a, b) + beta * source). */
template <typename Operation>
const char* Linear(const Conv2d& x, void* stream) {
  return Launch<Operation>({Size(x),
                            Tensor<typename Operation::ElementA>(x.a, x.n, x.h, x.w, x.c),
                            Tensor<typename Operation::ElementB>(x.b, x.k, x.r, x.s, x.c),
                            Source<typename Operation::ElementC>(x),
                            Tensor<typename Operation::ElementC>(x.d, x.n, x.p, x.q, x.k),
                            {1.0f, x.beta}},
                           stream);
}

/*! \brief unary(binary(activation(conv(a, b) + vector), source)). */
template <typename Operation>
const char* Residual(const Conv2d& x, void* stream) {
  return Launch<Operation>({Size(x),
                            Tensor<typename Operation::ElementA>(x.a, x.n, x.h, x.w, x.c),
                            Tensor<typename Operation::ElementB>(x.b, x.k, x.r, x.s, x.c),
                            Source<typename Operation::ElementC>(x),
                            Tensor<typename Operation::ElementC>(x.d, x.n, x.p, x.q, x.k),
                            {1.0f, x.beta},
                            cutlass::conv::SplitKMode::kSerial,
                            x.vector},
                           stream);
}

}  // namespace byoc::cutlass_kernels

#endif  // BYOC_CUTLASS_CONV2D_H_
