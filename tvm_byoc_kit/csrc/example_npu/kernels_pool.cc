// Pooling over height and width, for images with the channels before or after them.
#include <algorithm>
#include <limits>

#include "dispatch.h"
#include "kernels.h"
#include "simd.h"

namespace byoc {
namespace example_npu {
namespace {

struct PoolAttrs {
  Shape window, strides, dilation;  // height, width
  Shape padding;                    // top, left, bottom, right
  bool ceil_mode, count_include_pad;
  std::string layout, out_layout;
};

PoolAttrs ParsePool(const OpRef& op) {
  PoolAttrs attrs;
  attrs.window = op.Ints("pool_size", 2, 1);
  attrs.strides = op.Ints("strides", 2, 1);
  attrs.dilation = op.Ints("dilation", 2, 1);
  attrs.padding = op.Ints("padding", 4, 0);
  attrs.ceil_mode = op.attrs().Bool("ceil_mode", false);
  attrs.count_include_pad = op.attrs().Bool("count_include_pad", false);
  attrs.layout = op.attrs().Str("layout", "NCHW");
  attrs.out_layout = op.attrs().Str("out_layout", attrs.layout);
  for (const std::string& layout : {attrs.layout, attrs.out_layout}) {
    if (layout != "NCHW" && layout != "NHWC") {
      op.Fail("layout `" + layout + "`; supported are NCHW and NHWC");
    }
  }
  return attrs;
}

/*! \brief Pooling along one axis. */
struct Axis {
  int64_t in, out, window, stride, dilation, before, after;

  int64_t Start(int64_t at) const { return at * stride - before; }
  /*! \brief First element of the window that is not padding. */
  int64_t First(int64_t at) const {
    int64_t start = Start(at);
    return start >= 0 ? 0 : std::min(window, (-start + dilation - 1) / dilation);
  }
  /*! \brief One after the last element of the window before `limit`. */
  int64_t Last(int64_t at, int64_t limit) const {
    int64_t room = limit - Start(at);
    return room <= 0 ? 0 : std::min(window, (room + dilation - 1) / dilation);
  }
};

/*! \brief The size of the output, as relax infers it: no window starts in the padding after. */
int64_t OutputSize(const Call& call, const Axis& axis, bool ceil_mode) {
  int64_t room = axis.in + axis.before + axis.after - axis.dilation * (axis.window - 1) - 1;
  if (ceil_mode) room += axis.stride - 1;
  call.Require(room >= 0, "the window is larger than the padded input");
  int64_t size = room / axis.stride + 1;
  bool starts_outside = ceil_mode && (size - 1) * axis.stride >= axis.in + axis.before;
  return starts_outside ? size - 1 : size;
}

/*!
 * \brief A pooling: `outer` images of height x width x `inner` elements.
 *
 * NCHW has inner = 1 and N * C images, NHWC has inner = C and N images.
 */
struct PoolProblem {
  int64_t outer, inner;
  Axis h, w;
  bool count_include_pad;

  /*! \brief Number of elements that an average divides by. */
  int64_t Divisor(int64_t y, int64_t x) const {
    if (count_include_pad) {
      return h.Last(y, h.in + h.after) * w.Last(x, w.in + w.after);
    }
    return std::max<int64_t>(1, (h.Last(y, h.in) - h.First(y)) * (w.Last(x, w.in) - w.First(x)));
  }
};

template <typename T>
struct MaxOf {
  using Sum = T;
  static constexpr T kStart = std::numeric_limits<T>::lowest();
  static BYOC_INLINE void Add(Sum* to, T value) { *to = *to > value ? *to : value; }
};

/*! \brief Integers are added in 64 bits: no overflow, where TVM's lowering wraps around. */
template <typename T>
struct SumOf {
  using Sum = std::conditional_t<std::is_same_v<T, float>, float, int64_t>;
  static constexpr Sum kStart = 0;
  static BYOC_INLINE void Add(Sum* to, T value) { *to += value; }
};

/*! \brief Reduces the windows of output row `y`; `row` holds columns * inner sums. */
template <typename Reduce, typename T, typename Sum>
BYOC_INLINE void PoolRow(const PoolProblem& p, const T* image, int64_t y, Sum* row) {
  const Axis &h = p.h, &w = p.w;
  for (int64_t i = 0; i < w.out * p.inner; ++i) row[i] = Reduce::kStart;
  for (int64_t dy = h.First(y); dy < h.Last(y, h.in); ++dy) {
    const T* line = image + (h.Start(y) + dy * h.dilation) * w.in * p.inner;
    for (int64_t dx = 0; dx < w.window; ++dx) {
      int64_t shift = dx * w.dilation - w.before;  // of the element of output column 0
      int64_t from = shift >= 0 ? 0 : (-shift + w.stride - 1) / w.stride;
      int64_t to = w.in <= shift ? 0 : std::min(w.out, (w.in - shift - 1) / w.stride + 1);
      if (p.inner == 1) {
        const T* at = line + shift;
        if (w.stride == 1) {
          for (int64_t x = from; x < to; ++x) Reduce::Add(row + x, at[x]);
        } else {
          for (int64_t x = from; x < to; ++x) Reduce::Add(row + x, at[x * w.stride]);
        }
      } else {
        for (int64_t x = from; x < to; ++x) {
          const T* at = line + (x * w.stride + shift) * p.inner;
          for (int64_t c = 0; c < p.inner; ++c) Reduce::Add(row + x * p.inner + c, at[c]);
        }
      }
    }
  }
}

BYOC_MULTIVERSION void MaxRow(const PoolProblem& p, const float* image, int64_t y, float* row) {
  PoolRow<MaxOf<float>>(p, image, y, row);
}
template <typename T>
void MaxRow(const PoolProblem& p, const T* image, int64_t y, T* row) {
  PoolRow<MaxOf<T>>(p, image, y, row);
}

BYOC_MULTIVERSION void SumRow(const PoolProblem& p, const float* image, int64_t y, float* row) {
  PoolRow<SumOf<float>>(p, image, y, row);
}
template <typename T>
void SumRow(const PoolProblem& p, const T* image, int64_t y, int64_t* row) {
  PoolRow<SumOf<T>>(p, image, y, row);
}

template <typename T>
void MaxPoolOf(const PoolProblem& p, const T* x, T* out) {
  int64_t image = p.h.in * p.w.in * p.inner, row = p.w.out * p.inner;
  for (int64_t i = 0; i < p.outer; ++i, x += image) {
    for (int64_t y = 0; y < p.h.out; ++y, out += row) MaxRow(p, x, y, out);
  }
}

template <typename T>
void AvgPoolOf(const PoolProblem& p, const T* x, T* out) {
  int64_t image = p.h.in * p.w.in * p.inner, row = p.w.out * p.inner;
  std::vector<typename SumOf<T>::Sum> sums(row);
  for (int64_t i = 0; i < p.outer; ++i, x += image) {
    for (int64_t y = 0; y < p.h.out; ++y, out += row) {
      SumRow(p, x, y, sums.data());
      for (int64_t column = 0; column < p.w.out; ++column) {
        auto divisor = static_cast<typename SumOf<T>::Sum>(p.Divisor(y, column));
        for (int64_t c = column * p.inner; c < (column + 1) * p.inner; ++c) {
          out[c] = static_cast<T>(sums[c] / divisor);
        }
      }
    }
  }
}

PoolProblem MakeProblem(const Call& call, const PoolAttrs& attrs) {
  const Tensor& x = call.inputs[0];
  call.Require(x.rank() == 4, "the input must have 4 dimensions");
  bool last = attrs.layout == "NHWC";
  const Shape& pad = attrs.padding;
  PoolProblem p;
  p.h = {x.shape[last ? 1 : 2], 0,      attrs.window[0], attrs.strides[0],
         attrs.dilation[0],     pad[0], pad[2]};
  p.w = {x.shape[last ? 2 : 3], 0,      attrs.window[1], attrs.strides[1],
         attrs.dilation[1],     pad[1], pad[3]};
  p.h.out = OutputSize(call, p.h, attrs.ceil_mode);
  p.w.out = OutputSize(call, p.w, attrs.ceil_mode);
  p.outer = last ? x.shape[0] : x.shape[0] * x.shape[1];
  p.inner = last ? x.shape[3] : 1;
  p.count_include_pad = attrs.count_include_pad;
  return p;
}

template <typename Apply>
std::vector<Tensor> Pool(Call& call, Apply apply) {
  PoolAttrs attrs = ParsePool(call);
  PoolProblem p = MakeProblem(call, attrs);
  bool last = attrs.layout == "NHWC";
  Tensor x = call.Dense(0);
  Shape shape = last ? Shape{x.shape[0], p.h.out, p.w.out, x.shape[3]}
                     : Shape{x.shape[0], x.shape[1], p.h.out, p.w.out};
  Tensor out = call.Allocate(shape, x.dtype);
  if (!call.dry() && out.size() > 0) {
    WithNumber(x.dtype, [&](auto zero) {
      using T = decltype(zero);
      apply(p, x.as<T>(), out.as<T>());
    });
  }
  if (attrs.out_layout == attrs.layout) return {out};
  return {out.Permuted(last ? Shape{0, 3, 1, 2} : Shape{0, 2, 3, 1})};
}

}  // namespace

void CheckPool(const OpRef& op) { ParsePool(op); }

std::vector<Tensor> MaxPool(Call& call) {
  return Pool(call, [](const PoolProblem& p, auto* x, auto* out) { MaxPoolOf(p, x, out); });
}

std::vector<Tensor> AvgPool(Call& call) {
  return Pool(call, [](const PoolProblem& p, auto* x, auto* out) { AvgPoolOf(p, x, out); });
}

}  // namespace example_npu
}  // namespace byoc
