// Matrix product of tensors, with broadcast batches.
#include <algorithm>

#include "gemm.h"
#include "kernels_mac.h"
#include "simd.h"

namespace byoc {
namespace example_npu {
namespace {

BYOC_MULTIVERSION void BytesToFloat(const int8_t* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i];
}
BYOC_MULTIVERSION void UnsignedToFloat(const uint8_t* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i];
}

/*! \brief The two matrices of a matmul, one-dimensional operands made matrices. */
struct MatmulProblem {
  Tensor a, b;
  bool a_vector, b_vector;
  Shape batch;             // of the result
  Shape a_steps, b_steps;  // strides along `batch`, 0 where an operand is repeated
  int64_t m() const { return a.shape[a.rank() - 2]; }
  int64_t k() const { return a.shape[a.rank() - 1]; }
  int64_t n() const { return b.shape[b.rank() - 1]; }
};

/*! \brief Strides of the batch dimensions of `t` along the `batch` of the result. */
Shape BatchSteps(const Call& call, const Tensor& t, const Shape& batch) {
  Shape steps(batch.size(), 0);
  int64_t own = t.rank() - 2;
  for (int64_t i = 0; i < own; ++i) {
    int64_t at = static_cast<int64_t>(batch.size()) - own + i;
    call.Require(t.shape[i] == batch[at] || t.shape[i] == 1, "the batches do not go together");
    steps[at] = t.shape[i] == 1 ? 0 : t.strides[i];
  }
  return steps;
}

MatmulProblem MakeMatmul(const Call& call) {
  MatmulProblem p{call.inputs[0], call.inputs[1], false, false, {}, {}, {}};
  call.Require(p.a.rank() >= 1 && p.b.rank() >= 1, "operands must have a dimension");
  p.a_vector = p.a.rank() == 1;
  p.b_vector = p.b.rank() == 1;
  if (p.a_vector) {
    p.a.shape.insert(p.a.shape.begin(), 1);
    p.a.strides.insert(p.a.strides.begin(), 0);
  }
  if (p.b_vector) {
    p.b.shape.push_back(1);
    p.b.strides.push_back(0);
  }
  if (p.k() != p.b.shape[p.b.rank() - 2]) {
    call.Fail("cannot multiply " + ShapeText(call.inputs[0].shape) + " by " +
              ShapeText(call.inputs[1].shape));
  }
  const Shape& longer = p.a.rank() >= p.b.rank() ? p.a.shape : p.b.shape;
  const Shape& shorter = p.a.rank() >= p.b.rank() ? p.b.shape : p.a.shape;
  p.batch.assign(longer.begin(), longer.end() - 2);
  for (size_t i = 0; i + 2 < shorter.size(); ++i) {
    int64_t& dim = p.batch[p.batch.size() + 2 - shorter.size() + i];
    if (dim == 1) dim = shorter[i];
  }
  p.a_steps = BatchSteps(call, p.a, p.batch);
  p.b_steps = BatchSteps(call, p.b, p.batch);
  return p;
}

Shape MatmulShape(const MatmulProblem& p) {
  Shape shape = p.batch;
  if (!p.a_vector) shape.push_back(p.m());
  if (!p.b_vector) shape.push_back(p.n());
  return shape;
}

/*! \brief Makes a batch of left matrices that share the right one a single taller matrix. */
void FoldBatch(MatmulProblem* p) {
  bool shared = std::all_of(p->b_steps.begin(), p->b_steps.end(), [](int64_t s) { return s == 0; });
  if (p->batch.empty() || !shared || p->a.rank() != static_cast<int64_t>(p->batch.size()) + 2)
    return;
  if (Count(p->batch) * p->m() * p->k() != p->a.size()) return;  // `a` is repeated
  p->a = p->a.Reshaped({Count(p->batch) * p->m(), p->k()});
  p->batch.clear();
}

void MultiplyOne(const GemmProblem& gemm, int64_t k_step, int64_t n_step) {
  constexpr int64_t kFewRows = 2;  // packing B would cost more than the product
  if (gemm.m > kFewRows || gemm.integer || (k_step != 1 && n_step != 1)) return Gemm(gemm);
  for (int64_t row = 0; row < gemm.m; ++row) {
    const float* a = gemm.a + row * gemm.a_stride;
    auto b = static_cast<const float*>(gemm.b);
    float* c = static_cast<float*>(gemm.c) + row * gemm.c_stride;
    if (k_step == 1) {
      RowTimesTransposed(a, b, n_step, gemm.n, gemm.k, c);
    } else {
      RowTimesMatrix(a, b, k_step, gemm.n, gemm.k, c);
    }
  }
}

void ComputeMatmul(const Call& call, MatmulProblem* p, const Tensor& out) {
  if (out.size() == 0) return;
  p->a = AsFloat(call, p->a);
  p->a_steps = BatchSteps(call, p->a, p->batch);
  FoldBatch(p);
  int64_t k_step = p->b.strides[p->b.rank() - 2], n_step = p->b.strides[p->b.rank() - 1];
  std::vector<int64_t> k_offsets = Offsets(p->k(), k_step), n_offsets = Offsets(p->n(), n_step);
  GemmProblem gemm;
  gemm.m = p->m();
  gemm.n = gemm.c_stride = p->n();
  gemm.k = gemm.a_stride = p->k();
  gemm.b_type = p->b.dtype;
  gemm.k_offsets = k_offsets.data();
  gemm.n_offsets = n_offsets.data();
  gemm.integer = SameType(out.dtype, kInt32);
  for (int64_t i = 0, count = Count(p->batch); i < count; ++i) {
    int64_t a_offset = 0, b_offset = 0, rest = i;
    for (size_t d = p->batch.size(); d-- > 0; rest /= p->batch[d]) {
      a_offset += rest % p->batch[d] * p->a_steps[d];
      b_offset += rest % p->batch[d] * p->b_steps[d];
    }
    gemm.a = p->a.as<float>() + a_offset;
    gemm.b = p->b.data + b_offset * ItemBytes(p->b.dtype);
    gemm.c = out.as<float>() + i * gemm.m * gemm.n;
    MultiplyOne(gemm, k_step, n_step);
  }
}

}  // namespace

Tensor AsFloat(const Call& call, const Tensor& tensor) {
  Tensor from = call.memory->Dense(tensor);
  if (SameType(from.dtype, kFloat32)) return from;
  Tensor out = call.Allocate(from.shape, kFloat32);
  if (SameType(from.dtype, kInt8)) {
    BytesToFloat(from.as<int8_t>(), out.as<float>(), out.size());
  } else {
    UnsignedToFloat(from.as<uint8_t>(), out.as<float>(), out.size());
  }
  return out;
}

Tensor CutTo(const Call& call, const Tensor& sums, DLDataType type) {
  if (SameType(sums.dtype, type)) return sums;
  Tensor out = call.Allocate(sums.shape, type);
  if (call.dry()) return out;
  for (int64_t i = 0, n = out.size(); i < n; ++i) {
    out.as<int8_t>()[i] = static_cast<int8_t>(sums.as<int32_t>()[i]);
  }
  return out;
}

std::vector<Tensor> Matmul(Call& call) {
  MatmulProblem p = MakeMatmul(call);
  Tensor sums = call.Allocate(MatmulShape(p), SumType(p.a.dtype));
  if (!call.dry()) ComputeMatmul(call, &p, sums);
  return {CutTo(call, sums, call.type())};
}

}  // namespace example_npu
}  // namespace byoc
