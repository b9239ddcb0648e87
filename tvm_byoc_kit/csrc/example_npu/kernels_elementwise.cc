// Binary operators with broadcasting, and functions of one element.
#include <algorithm>
#include <cmath>
#include <limits>

#include "dispatch.h"
#include "kernels.h"
#include "simd.h"

namespace byoc {
namespace example_npu {
namespace {

// Integers wrap around, which C++ defines for unsigned ones only.
template <typename T, typename F>
BYOC_INLINE T Wrapped(T a, T b, F f) {
  if constexpr (std::is_same_v<T, float>) {
    return f(a, b);
  } else {
    return static_cast<T>(f(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  }
}

struct AddOf {
  template <typename T>
  static BYOC_INLINE T Apply(T a, T b) {
    return Wrapped(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct SubtractOf {
  template <typename T>
  static BYOC_INLINE T Apply(T a, T b) {
    return Wrapped(a, b, [](auto x, auto y) { return x - y; });
  }
};
struct MultiplyOf {
  template <typename T>
  static BYOC_INLINE T Apply(T a, T b) {
    return Wrapped(a, b, [](auto x, auto y) { return x * y; });
  }
};
struct DivideOf {
  template <typename T>
  static BYOC_INLINE T Apply(T a, T b) {
    if constexpr (std::is_same_v<T, float>) {
      return a / b;
    } else {
      if (b == 0) return 0;  // what would stop the process must not
      if (std::is_signed_v<T> && b == T(-1)) return SubtractOf::Apply<T>(0, a);
      return a / b;
    }
  }
};
struct MaximumOf {
  template <typename T>
  static BYOC_INLINE T Apply(T a, T b) {
    return a > b ? a : b;
  }
};
struct MinimumOf {
  template <typename T>
  static BYOC_INLINE T Apply(T a, T b) {
    return a < b ? a : b;
  }
};

/*! \brief A dimension of the result and the operands' strides along it, 0 where one is repeated. */
struct Dim {
  int64_t count, a, b;
};

/*! \brief Strides of `t` along `shape`, which it is broadcast to. */
Shape BroadcastStrides(const Tensor& t, const Shape& shape) {
  Shape strides(shape.size(), 0);
  size_t skip = shape.size() - t.shape.size();
  for (size_t i = 0; i < t.shape.size(); ++i) {
    strides[skip + i] = t.shape[i] == 1 ? 0 : t.strides[i];
  }
  return strides;
}

std::vector<Dim> MergedDims(const Tensor& a, const Tensor& b, const Shape& shape) {
  Shape a_strides = BroadcastStrides(a, shape), b_strides = BroadcastStrides(b, shape);
  std::vector<Dim> dims;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    Dim dim{shape[i], a_strides[i], b_strides[i]};
    if (!dims.empty() && dims.back().a == dim.a * dim.count && dims.back().b == dim.b * dim.count) {
      dims.back() = {dims.back().count * dim.count, dim.a, dim.b};
    } else {
      dims.push_back(dim);
    }
  }
  if (dims.empty()) dims.push_back({1, 1, 1});
  return dims;
}

Shape BroadcastShape(const Call& call) {
  const Shape &a = call.inputs[0].shape, &b = call.inputs[1].shape;
  Shape out(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) {
      call.Fail("shapes " + ShapeText(a) + " and " + ShapeText(b) + " do not go together");
    }
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

template <typename Op, typename T>
void Inner(const Dim& dim, const T* a, const T* b, T* out) {
  int64_t n = dim.count;
  if (dim.a == 1 && dim.b == 1) {
    for (int64_t i = 0; i < n; ++i) out[i] = Op::Apply(a[i], b[i]);
  } else if (dim.a == 1 && dim.b == 0) {
    T y = *b;
    for (int64_t i = 0; i < n; ++i) out[i] = Op::Apply(a[i], y);
  } else if (dim.a == 0 && dim.b == 1) {
    T x = *a;
    for (int64_t i = 0; i < n; ++i) out[i] = Op::Apply(x, b[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = Op::Apply(a[i * dim.a], b[i * dim.b]);
  }
}

/*! \brief Applies the op over dimensions from `depth` on; returns the end of what was written. */
template <typename Op, typename T>
T* Outer(const std::vector<Dim>& dims, size_t depth, const T* a, const T* b, T* out) {
  const Dim& dim = dims[depth];
  if (depth + 1 == dims.size()) {
    Inner<Op>(dim, a, b, out);
    return out + dim.count;
  }
  for (int64_t i = 0; i < dim.count; ++i) {
    out = Outer<Op>(dims, depth + 1, a + i * dim.a, b + i * dim.b, out);
  }
  return out;
}

/*! \brief Memory for the result: an operand's own, when nobody else needs it. */
Tensor ResultLike(Call& call, const Shape& shape) {
  for (Tensor& input : call.inputs) {
    if (input.shape == shape && input.reusable()) return input;
  }
  return call.Allocate(shape, call.inputs[0].dtype);
}

template <typename Op>
std::vector<Tensor> Binary(Call& call) {
  Shape shape = BroadcastShape(call);
  const Tensor &a = call.inputs[0], &b = call.inputs[1];
  Tensor out = ResultLike(call, shape);
  if (call.dry() || out.size() == 0) return {out};
  std::vector<Dim> dims = MergedDims(a, b, shape);
  WithNumber(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    Outer<Op>(dims, 0, a.as<T>(), b.as<T>(), out.as<T>());
  });
  return {out};
}

// Functions of one element, by vectors.

struct ReluOf {
  static BYOC_INLINE VecF Apply(VecF x) { return Max(x, Splat(0)); }
};
struct LeakyReluOf {
  static BYOC_INLINE VecF Apply(VecF x, float alpha) { return x > 0.0f ? x : x * alpha; }
};
struct ClipOf {
  static BYOC_INLINE VecF Apply(VecF x, float low, float high) {
    return Max(Min(x, Splat(high)), Splat(low));
  }
};
struct GeluOf {
  static BYOC_INLINE VecF Apply(VecF x) { return x * (0.5f + 0.5f * Erf(x * 0.70710678118f)); }
};
struct GeluTanhOf {
  static BYOC_INLINE VecF Apply(VecF x) {
    return 0.5f * x * (1.0f + Tanh(0.79788456080f * x * (1.0f + 0.044715f * x * x)));
  }
};
struct SiluOf {
  static BYOC_INLINE VecF Apply(VecF x) { return x * Sigmoid(x); }
};
struct SigmoidOf {
  static BYOC_INLINE VecF Apply(VecF x) { return Sigmoid(x); }
};
struct TanhOf {
  static BYOC_INLINE VecF Apply(VecF x) { return Tanh(x); }
};
struct ExpOf {
  static BYOC_INLINE VecF Apply(VecF x) { return Exp(x); }
};
struct SqrtOf {
  static BYOC_INLINE VecF Apply(VecF x) {
    VecF out;
    for (int i = 0; i < kLanes; ++i) out[i] = std::sqrt(x[i]);
    return out;
  }
};
struct NegativeOf {
  static BYOC_INLINE VecF Apply(VecF x) { return -x; }
};

using Loop = void (*)(const float* x, float* y, int64_t n);

BYOC_MULTIVERSION void ReluLoop(const float* x, float* y, int64_t n) { MapLoop<ReluOf>(x, y, n); }
BYOC_MULTIVERSION void GeluLoop(const float* x, float* y, int64_t n) { MapLoop<GeluOf>(x, y, n); }
BYOC_MULTIVERSION void GeluTanhLoop(const float* x, float* y, int64_t n) {
  MapLoop<GeluTanhOf>(x, y, n);
}
BYOC_MULTIVERSION void SiluLoop(const float* x, float* y, int64_t n) { MapLoop<SiluOf>(x, y, n); }
BYOC_MULTIVERSION void SigmoidLoop(const float* x, float* y, int64_t n) {
  MapLoop<SigmoidOf>(x, y, n);
}
BYOC_MULTIVERSION void TanhLoop(const float* x, float* y, int64_t n) { MapLoop<TanhOf>(x, y, n); }
BYOC_MULTIVERSION void ExpLoop(const float* x, float* y, int64_t n) { MapLoop<ExpOf>(x, y, n); }
BYOC_MULTIVERSION void SqrtLoop(const float* x, float* y, int64_t n) { MapLoop<SqrtOf>(x, y, n); }
BYOC_MULTIVERSION void NegativeLoop(const float* x, float* y, int64_t n) {
  MapLoop<NegativeOf>(x, y, n);
}
BYOC_MULTIVERSION void LeakyReluLoop(const float* x, float* y, int64_t n, float alpha) {
  MapLoop<LeakyReluOf>(x, y, n, alpha);
}
BYOC_MULTIVERSION void ClipLoop(const float* x, float* y, int64_t n, float low, float high) {
  MapLoop<ClipOf>(x, y, n, low, high);
}

/*! \brief y = f(x) over the elements of input 0, in place when nobody else needs it. */
template <typename Apply>
std::vector<Tensor> Unary(Call& call, Apply apply) {
  call.inputs[0] = call.Dense(0);
  Tensor out = ResultLike(call, call.inputs[0].shape);
  if (!call.dry()) apply(call.inputs[0], out);
  return {out};
}

std::vector<Tensor> FloatUnary(Call& call, Loop loop) {
  return Unary(call, [loop](const Tensor& x, const Tensor& out) {
    loop(x.as<float>(), out.as<float>(), out.size());
  });
}

/*! \brief `loop` on float32, `f` element by element on integers. */
template <typename F>
std::vector<Tensor> NumberUnary(Call& call, Loop loop, F f) {
  if (SameType(call.inputs[0].dtype, kFloat32)) return FloatUnary(call, loop);
  return Unary(call, [f](const Tensor& x, const Tensor& out) {
    WithNumber(x.dtype, [&](auto zero) {
      using T = decltype(zero);
      std::transform(x.as<T>(), x.as<T>() + x.size(), out.as<T>(), f);
    });
  });
}

double ClipBound(const Call& call, size_t index) {
  bool is_number = call.op->args.size() > index && (call.op->args[index].kind == Arg::Kind::kInt ||
                                                    call.op->args[index].kind == Arg::Kind::kFloat);
  call.Require(is_number, "the bounds must be numbers");
  return call.op->args[index].float_value;
}

/*! \brief `value` as T, the nearest one that exists. */
template <typename T>
T Saturated(double value) {
  if constexpr (!std::is_same_v<T, float>) {
    if (!(value > static_cast<double>(std::numeric_limits<T>::lowest()))) {
      return std::numeric_limits<T>::lowest();
    }
    if (value >= static_cast<double>(std::numeric_limits<T>::max())) {
      return std::numeric_limits<T>::max();
    }
  }
  return static_cast<T>(value);
}

}  // namespace

std::vector<Tensor> Add(Call& call) { return Binary<AddOf>(call); }
std::vector<Tensor> Subtract(Call& call) { return Binary<SubtractOf>(call); }
std::vector<Tensor> Multiply(Call& call) { return Binary<MultiplyOf>(call); }
std::vector<Tensor> Divide(Call& call) { return Binary<DivideOf>(call); }
std::vector<Tensor> Maximum(Call& call) { return Binary<MaximumOf>(call); }
std::vector<Tensor> Minimum(Call& call) { return Binary<MinimumOf>(call); }

std::vector<Tensor> Gelu(Call& call) { return FloatUnary(call, GeluLoop); }
std::vector<Tensor> GeluTanh(Call& call) { return FloatUnary(call, GeluTanhLoop); }
std::vector<Tensor> Silu(Call& call) { return FloatUnary(call, SiluLoop); }
std::vector<Tensor> SigmoidOp(Call& call) { return FloatUnary(call, SigmoidLoop); }
std::vector<Tensor> TanhOp(Call& call) { return FloatUnary(call, TanhLoop); }
std::vector<Tensor> ExpOp(Call& call) { return FloatUnary(call, ExpLoop); }
std::vector<Tensor> Sqrt(Call& call) { return FloatUnary(call, SqrtLoop); }

std::vector<Tensor> Relu(Call& call) {
  return NumberUnary(call, ReluLoop, [](auto x) { return std::max<decltype(x)>(x, 0); });
}
std::vector<Tensor> Negative(Call& call) {
  return NumberUnary(call, NegativeLoop,
                     [](auto x) { return SubtractOf::Apply<decltype(x)>(0, x); });
}

std::vector<Tensor> LeakyRelu(Call& call) {
  auto alpha = static_cast<float>(call.attrs().Float("alpha", 0.01));
  return Unary(call, [alpha](const Tensor& x, const Tensor& out) {
    LeakyReluLoop(x.as<float>(), out.as<float>(), out.size(), alpha);
  });
}

std::vector<Tensor> Clip(Call& call) {
  double low = ClipBound(call, 1), high = ClipBound(call, 2);
  return Unary(call, [low, high](const Tensor& x, const Tensor& out) {
    if (SameType(x.dtype, kFloat32)) {
      return ClipLoop(x.as<float>(), out.as<float>(), out.size(), static_cast<float>(low),
                      static_cast<float>(high));
    }
    WithNumber(x.dtype, [&](auto zero) {
      using T = decltype(zero);
      T least = Saturated<T>(low), most = Saturated<T>(high);
      std::transform(x.as<T>(), x.as<T>() + x.size(), out.as<T>(),
                     [=](T v) { return std::max(std::min(v, most), least); });
    });
  });
}

}  // namespace example_npu
}  // namespace byoc
