// Normalisations and means: reductions over some axes, then a function of each element.
#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "simd.h"

namespace byoc {
namespace example_npu {
namespace {

BYOC_INLINE float SumOf(const float* x, int64_t n) {
  VecF sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int v = 0; v < 4; ++v) sums[v] += Load<VecF>(x + i + v * kLanes);
  }
  for (; i + kLanes <= n; i += kLanes) sums[0] += Load<VecF>(x + i);
  float total = Sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < n; ++i) total += x[i];
  return total;
}

BYOC_INLINE float SquaresOf(const float* x, int64_t n, float mean) {
  VecF sums[2] = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    for (int v = 0; v < 2; ++v) {
      VecF d = Load<VecF>(x + i + v * kLanes) - mean;
      sums[v] += d * d;
    }
  }
  float total = Sum(sums[0] + sums[1]);
  for (; i < n; ++i) total += (x[i] - mean) * (x[i] - mean);
  return total;
}

BYOC_MULTIVERSION float RowSum(const float* x, int64_t n) { return SumOf(x, n); }
BYOC_MULTIVERSION float RowSquares(const float* x, int64_t n, float mean) {
  return SquaresOf(x, n, mean);
}

/*! \brief y = (x - shift) * scale + offset. */
BYOC_MULTIVERSION void ScaleRow(const float* x, float* y, int64_t n, float shift, float scale,
                                float offset) {
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - shift) * scale + offset;
}
BYOC_MULTIVERSION void ScaleRowBy(const float* x, float* y, int64_t n, const float* shift,
                                  const float* scale, const float* offset) {
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - shift[i]) * scale[i] + offset[i];
}

BYOC_MULTIVERSION void LayerNormRow(const float* x, const float* gamma, const float* beta,
                                    float epsilon, int64_t n, float* y) {
  float mean = SumOf(x, n) / n;
  float scale = 1.0f / std::sqrt(SquaresOf(x, n, mean) / n + epsilon);
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale * gamma[i] + beta[i];
}

struct ShiftedExpOf {
  static BYOC_INLINE VecF Apply(VecF x, float shift) { return Exp(x - shift); }
};

BYOC_INLINE float MaxOf(const float* x, int64_t n) {
  float most = x[0];
  for (int64_t i = 1; i < n; ++i) most = most > x[i] ? most : x[i];
  return most;
}

BYOC_MULTIVERSION void SoftmaxRow(const float* x, int64_t n, float* y) {
  MapLoop<ShiftedExpOf>(x, y, n, MaxOf(x, n));
  float scale = 1.0f / SumOf(y, n);
  for (int64_t i = 0; i < n; ++i) y[i] *= scale;
}

BYOC_MULTIVERSION void LogSoftmaxRow(const float* x, int64_t n, float* scratch, float* y) {
  float most = MaxOf(x, n);
  MapLoop<ShiftedExpOf>(x, scratch, n, most);
  float shift = most + std::log(SumOf(scratch, n));
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] - shift;
}

/*! \brief Axes of a tensor of `rank` dimensions: those not in `last`, then `last`. */
Shape WithLast(int64_t rank, const Shape& last) {
  Shape order;
  for (int64_t i = 0; i < rank; ++i) {
    if (std::find(last.begin(), last.end(), i) == last.end()) order.push_back(i);
  }
  order.insert(order.end(), last.begin(), last.end());
  return order;
}

Shape Inverse(const Shape& order) {
  Shape inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
  return inverse;
}

int64_t CountOf(const Tensor& t, const Shape& axes) {
  Shape dims;
  for (int64_t axis : axes) dims.push_back(t.shape[axis]);
  return Count(dims);
}

/*! \brief Applies `row(x, n, y)` to each line of input 0 along `axes`. */
template <typename Row>
std::vector<Tensor> AlongAxes(Call& call, const Shape& axes, Row row) {
  Shape order = WithLast(call.inputs[0].rank(), axes);
  int64_t n = CountOf(call.inputs[0], axes);
  Tensor x = call.memory->Dense(call.inputs[0].Permuted(order));
  Tensor y = call.Allocate(x.shape, kFloat32);
  if (!call.dry() && y.size() > 0) {
    for (int64_t at = 0; at < y.size(); at += n) row(x.as<float>() + at, n, y.as<float>() + at);
  }
  return {y.Permuted(Inverse(order))};
}

struct BatchNormProblem {
  Tensor x, gamma, beta, mean, variance;  // float32 and dense
  int64_t outer, channels, inner;
  float epsilon;
  bool scale, center;
};

/*! \brief Mean and variance over everything but the channels, in double against cancellation. */
void Statistics(const BatchNormProblem& p, std::vector<float>* mean, std::vector<float>* variance) {
  double count = static_cast<double>(p.outer * p.inner);
  for (int64_t c = 0; c < p.channels; ++c) {
    double sum = 0, squares = 0;
    auto each_row = [&](auto visit) {
      for (int64_t o = 0; o < p.outer; ++o) {
        visit(p.x.as<float>() + (o * p.channels + c) * p.inner);
      }
    };
    each_row([&](const float* row) { sum += RowSum(row, p.inner); });
    (*mean)[c] = static_cast<float>(sum / count);
    each_row([&](const float* row) { squares += RowSquares(row, p.inner, (*mean)[c]); });
    (*variance)[c] = static_cast<float>(squares / count);
  }
}

void Normalize(const BatchNormProblem& p, const float* mean, const float* variance, float* y) {
  std::vector<float> scale(p.channels), offset(p.channels, 0.0f);
  for (int64_t c = 0; c < p.channels; ++c) {
    scale[c] = (p.scale ? p.gamma.as<float>()[c] : 1.0f) / std::sqrt(variance[c] + p.epsilon);
    if (p.center) offset[c] = p.beta.as<float>()[c];
  }
  const float* x = p.x.as<float>();
  for (int64_t o = 0; o < p.outer; ++o) {
    if (p.inner == 1) {
      ScaleRowBy(x, y, p.channels, mean, scale.data(), offset.data());
      x += p.channels;
      y += p.channels;
      continue;
    }
    for (int64_t c = 0; c < p.channels; ++c, x += p.inner, y += p.inner) {
      ScaleRow(x, y, p.inner, mean[c], scale[c], offset[c]);
    }
  }
}

/*! \brief (1 - momentum) * old + momentum * now. */
void Blend(const Tensor& old, const std::vector<float>& now, float momentum, float* out) {
  for (size_t c = 0; c < now.size(); ++c) {
    out[c] = (1 - momentum) * old.as<float>()[c] + momentum * now[c];
  }
}

BatchNormProblem MakeBatchNorm(const Call& call) {
  int64_t rank = call.inputs[0].rank(), axis = call.Axis(call.attrs().Int("axis"), rank);
  BatchNormProblem p{
      call.Dense(0), call.Dense(1), call.Dense(2), call.Dense(3), call.Dense(4), 1, 1, 1, 0,
      true,          true};
  const Shape& shape = p.x.shape;
  p.outer = Count(Shape(shape.begin(), shape.begin() + axis));
  p.channels = shape[axis];
  p.inner = Count(Shape(shape.begin() + axis + 1, shape.end()));
  p.epsilon = static_cast<float>(call.attrs().Float("epsilon", 1e-5));
  p.scale = call.attrs().Bool("scale", true);
  p.center = call.attrs().Bool("center", true);
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    if (call.inputs[i].shape != Shape{p.channels}) {
      call.Fail("operand " + std::to_string(i) + " has shape " + ShapeText(call.inputs[i].shape) +
                "; expected " + ShapeText({p.channels}) + " for data of " + ShapeText(shape));
    }
  }
  return p;
}

}  // namespace

std::vector<Tensor> BatchNorm(Call& call) {
  BatchNormProblem p = MakeBatchNorm(call);
  Tensor y = call.Allocate(p.x.shape, kFloat32);
  // Outside training the moving statistics pass through unchanged.
  if (!call.attrs().Bool("training", false)) {
    if (!call.dry()) {
      Normalize(p, p.mean.as<float>(), p.variance.as<float>(), y.as<float>());
    }
    return {y, p.mean, p.variance};
  }
  Tensor moving_mean = call.Allocate(p.mean.shape, kFloat32);
  Tensor moving_variance = call.Allocate(p.variance.shape, kFloat32);
  if (!call.dry()) {
    std::vector<float> mean(p.channels), variance(p.channels);
    Statistics(p, &mean, &variance);
    Normalize(p, mean.data(), variance.data(), y.as<float>());
    auto momentum = static_cast<float>(call.attrs().Float("momentum", 0.1));
    Blend(p.mean, mean, momentum, moving_mean.as<float>());
    Blend(p.variance, variance, momentum, moving_variance.as<float>());
  }
  return {y, moving_mean, moving_variance};
}

std::vector<Tensor> LayerNorm(Call& call) {
  int64_t rank = call.inputs[0].rank();
  Shape axes = call.Axes("axes", rank, {rank - 1});
  Shape dims;
  for (int64_t axis : axes) dims.push_back(call.inputs[0].shape[axis]);
  Tensor gamma = call.Dense(1), beta = call.Dense(2);
  if (gamma.shape != dims || beta.shape != dims) {
    call.Fail("gamma and beta have shapes " + ShapeText(gamma.shape) + " and " +
              ShapeText(beta.shape) + "; expected " + ShapeText(dims));
  }
  auto epsilon = static_cast<float>(call.attrs().Float("epsilon", 1e-5));
  return AlongAxes(call, axes, [&](const float* x, int64_t n, float* y) {
    LayerNormRow(x, gamma.as<float>(), beta.as<float>(), epsilon, n, y);
  });
}

std::vector<Tensor> Softmax(Call& call) {
  int64_t axis = call.Axis(call.attrs().Int("axis", -1), call.inputs[0].rank());
  return AlongAxes(call, {axis}, [](const float* x, int64_t n, float* y) { SoftmaxRow(x, n, y); });
}

std::vector<Tensor> LogSoftmax(Call& call) {
  int64_t axis = call.Axis(call.attrs().Int("axis", -1), call.inputs[0].rank());
  std::vector<float> scratch(call.inputs[0].shape[axis]);
  return AlongAxes(call, {axis}, [&](const float* x, int64_t n, float* y) {
    LogSoftmaxRow(x, n, scratch.data(), y);
  });
}

std::vector<Tensor> Mean(Call& call) {
  const Tensor& input = call.inputs[0];
  int64_t rank = input.rank();
  Shape all(rank);
  for (int64_t i = 0; i < rank; ++i) all[i] = i;
  Shape axes = call.Axes("axis", rank, all);
  std::sort(axes.begin(), axes.end());
  Shape shape;
  for (int64_t i = 0; i < rank; ++i) {
    bool reduced = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (!reduced) shape.push_back(input.shape[i]);
    if (reduced && call.attrs().Bool("keepdims", false)) shape.push_back(1);
  }
  int64_t n = CountOf(input, axes);
  Tensor x = call.memory->Dense(input.Permuted(WithLast(rank, axes)));
  Tensor y = call.Allocate(shape, kFloat32);
  if (call.dry()) return {y};
  for (int64_t i = 0; i < y.size(); ++i) {
    y.as<float>()[i] = RowSum(x.as<float>() + i * n, n) / static_cast<float>(n);
  }
  return {y};
}

}  // namespace example_npu
}  // namespace byoc
