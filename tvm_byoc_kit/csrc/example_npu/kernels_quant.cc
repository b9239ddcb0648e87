// Quantization: q = clip(round(x / scale) + zero_point) and back, per tensor or along an axis.
#include <algorithm>
#include <cmath>
#include <limits>

#include "dispatch.h"
#include "kernels.h"
#include "simd.h"

namespace byoc {
namespace example_npu {
namespace {

/*! \brief A tensor seen as outer x channels x inner, with the parameters of each channel. */
struct QuantProblem {
  Tensor x;
  int64_t outer, channels, inner;
  std::vector<float> scale, zero_point;  // for each channel
};

std::vector<float> Parameter(const Call& call, size_t index, int64_t channels) {
  Tensor values = call.Dense(index);
  int64_t count = values.size();
  if (count != 1 && (count != channels || values.rank() != 1)) {
    call.Fail(std::string(index == 1 ? "scale" : "zero_point") + " has shape " +
              ShapeText(values.shape) + "; expected a scalar or " + ShapeText({channels}));
  }
  std::vector<float> out(channels);
  if (call.dry()) return out;
  WithNumber(values.dtype, [&](auto zero) {
    for (int64_t i = 0; i < channels; ++i) {
      out[i] = static_cast<float>(values.as<decltype(zero)>()[count == 1 ? 0 : i]);
    }
  });
  return out;
}

QuantProblem MakeProblem(const Call& call) {
  QuantProblem p{call.Dense(0), 1, 1, 1, {}, {}};
  const Shape& shape = p.x.shape;
  bool per_tensor = call.inputs[1].size() == 1 && call.inputs[2].size() == 1;
  if (per_tensor) {
    p.inner = p.x.size();
  } else {
    int64_t axis = call.Axis(call.attrs().Int("axis", -1), p.x.rank());
    p.outer = Count(Shape(shape.begin(), shape.begin() + axis));
    p.channels = shape[axis];
    p.inner = Count(Shape(shape.begin() + axis + 1, shape.end()));
  }
  p.scale = Parameter(call, 1, p.channels);
  p.zero_point = Parameter(call, 2, p.channels);
  return p;
}

/*! \brief Calls `row(x, y, channel)` for each contiguous row of one channel. */
template <typename In, typename Out, typename Row>
void ForEachRow(const QuantProblem& p, const Tensor& out, Row row) {
  const In* x = p.x.as<In>();
  Out* y = out.as<Out>();
  for (int64_t o = 0; o < p.outer; ++o) {
    for (int64_t c = 0; c < p.channels; ++c, x += p.inner, y += p.inner) row(x, y, c);
  }
}

/*! \brief Rounds half to even and makes NaN the largest value, as TVM's lowering does. */
template <typename T>
BYOC_INLINE T QuantizeOne(float x, float scale, float zero_point) {
  constexpr float kLeast = std::numeric_limits<T>::min(), kMost = std::numeric_limits<T>::max();
  float value = std::nearbyint(x / scale) + zero_point;
  value = value < kMost ? value : kMost;
  return static_cast<T>(value > kLeast ? value : kLeast);
}

template <typename T>
void QuantizeTo(const QuantProblem& p, const Tensor& out) {
  ForEachRow<float, T>(p, out, [&](const float* x, T* y, int64_t c) {
    float scale = p.scale[c], zero_point = p.zero_point[c];
    for (int64_t i = 0; i < p.inner; ++i) y[i] = QuantizeOne<T>(x[i], scale, zero_point);
  });
}

/*! \brief Differences of integers are exact in int32, as TVM's lowering takes them. */
template <typename T>
void DequantizeFrom(const QuantProblem& p, const Tensor& out, float limit) {
  ForEachRow<T, float>(p, out, [&](const T* x, float* y, int64_t c) {
    float scale = p.scale[c];
    auto zero_point = static_cast<int64_t>(p.zero_point[c]);
    for (int64_t i = 0; i < p.inner; ++i) {
      float value = static_cast<float>(static_cast<int64_t>(x[i]) - zero_point) * scale;
      y[i] = std::max(-limit, std::min(limit, value));
    }
  });
}

}  // namespace

std::vector<Tensor> Quantize(Call& call) {
  QuantProblem p = MakeProblem(call);
  Tensor out = call.Allocate(p.x.shape, call.type());
  if (call.dry()) return {out};
  if (SameType(out.dtype, kInt8)) {
    QuantizeTo<int8_t>(p, out);
  } else if (SameType(out.dtype, kUInt8)) {
    QuantizeTo<uint8_t>(p, out);
  } else {
    QuantizeTo<int16_t>(p, out);
  }
  return {out};
}

std::vector<Tensor> Dequantize(Call& call) {
  QuantProblem p = MakeProblem(call);
  Tensor out = call.Allocate(p.x.shape, kFloat32);
  if (call.dry()) return {out};
  constexpr float kMostHalf = 65504;
  bool half = SameType(call.op->outputs[0].dtype, kFloat16);
  float limit = half ? kMostHalf : std::numeric_limits<float>::infinity();
  if (SameType(p.x.dtype, kInt8)) {
    DequantizeFrom<int8_t>(p, out, limit);
  } else if (SameType(p.x.dtype, kUInt8)) {
    DequantizeFrom<uint8_t>(p, out, limit);
  } else if (SameType(p.x.dtype, kInt16)) {
    DequantizeFrom<int16_t>(p, out, limit);
  } else {
    DequantizeFrom<int32_t>(p, out, limit);
  }
  return {out};
}

}  // namespace example_npu
}  // namespace byoc
