// Blocked product after Goto and van de Geijn: a block of B is packed into panels as wide as the
// register tile, so that the innermost loop reads it in order; rows of A are read where they are,
// since each is used for a whole block.
#include "gemm.h"

#include <algorithm>

#include "simd.h"

namespace byoc {
namespace example_npu {
namespace {

constexpr int64_t kBlockK = 256;  // exactness of integer products rests on it: see gemm.h
constexpr int64_t kBlockN = 384;  // a block of B takes 384 KB: it fits the L2 cache
constexpr int64_t kGroup = 8;     // columns that are copied at once when they are contiguous

/*! \brief A packed block of B and the rows of A and C that go with it. */
struct Block {
  int64_t m, n, k;
  const float* a;
  int64_t a_stride;
  const float* panels;
  void* c;
  int64_t c_stride;
  bool accumulate;
};

/*! \brief Writes columns [0, n) of a block as panels of `width` columns, filled up with zeros. */
template <typename T>
BYOC_INLINE void PackPanels(const T* b, const int64_t* k_offsets, const int64_t* n_offsets,
                            int64_t k, int64_t n, int64_t width, float* to) {
  for (int64_t start = 0; start < n; start += width) {
    const int64_t* offsets = n_offsets + start;
    int64_t columns = std::min(width, n - start);
    int64_t groups = columns / kGroup;
    bool contiguous[8] = {};
    for (int64_t g = 0; g < groups; ++g) {
      contiguous[g] = true;
      for (int64_t j = 1; j < kGroup; ++j) {
        contiguous[g] &= offsets[g * kGroup + j] == offsets[g * kGroup] + j;
      }
    }
    for (int64_t row = 0; row < k; ++row, to += width) {
      const T* from = b + k_offsets[row];
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t* o = offsets + g * kGroup;
        float* out = to + g * kGroup;
        if (contiguous[g]) {
          const T* run = from + o[0];
          for (int64_t j = 0; j < kGroup; ++j) out[j] = static_cast<float>(run[j]);
        } else {
          for (int64_t j = 0; j < kGroup; ++j) out[j] = static_cast<float>(from[o[j]]);
        }
      }
      for (int64_t j = groups * kGroup; j < columns; ++j)
        to[j] = static_cast<float>(from[offsets[j]]);
      for (int64_t j = columns; j < width; ++j) to[j] = 0;
    }
  }
}

BYOC_MULTIVERSION void PackFloat(const float* b, const int64_t* k_offsets, const int64_t* n_offsets,
                                 int64_t k, int64_t n, int64_t width, float* to) {
  PackPanels(b, k_offsets, n_offsets, k, n, width, to);
}
BYOC_MULTIVERSION void PackInt8(const int8_t* b, const int64_t* k_offsets, const int64_t* n_offsets,
                                int64_t k, int64_t n, int64_t width, float* to) {
  PackPanels(b, k_offsets, n_offsets, k, n, width, to);
}
BYOC_MULTIVERSION void PackUInt8(const uint8_t* b, const int64_t* k_offsets,
                                 const int64_t* n_offsets, int64_t k, int64_t n, int64_t width,
                                 float* to) {
  PackPanels(b, k_offsets, n_offsets, k, n, width, to);
}

/*!
 * \brief kRows x (kVectors * lanes of V) elements of C, held in registers over the whole of k.
 * \param columns How many columns of the tile exist in C.
 */
template <int kRows, int kVectors, typename V, typename C>
BYOC_INLINE void Tile(const Block& block, const float* a, const float* panel, C* c,
                      int64_t columns) {
  constexpr int kWidth = sizeof(V) / sizeof(float);
  V sum[kRows][kVectors] = {};
  for (int64_t k = 0; k < block.k; ++k) {
    V b[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) b[v] = Load<V>(panel + (k * kVectors + v) * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] += a[r * block.a_stride + k] * b[v];
    }
  }
  if (std::is_same_v<C, float> && columns == kVectors * kWidth) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        C* out = c + r * block.c_stride + v * kWidth;
        Store(out, block.accumulate ? Load<V>(out) + sum[r][v] : sum[r][v]);
      }
    }
    return;
  }
  float tile[kRows][kVectors * kWidth];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) Store(&tile[r][v * kWidth], sum[r][v]);
  }
  for (int r = 0; r < kRows; ++r) {
    C* out = c + r * block.c_stride;
    for (int64_t j = 0; j < columns; ++j) {
      out[j] = static_cast<C>(tile[r][j]) + (block.accumulate ? out[j] : C(0));
    }
  }
}

/*! \brief `count` rows of C from row `row` on, by tiles of kRows rows. */
template <int kRows, int kVectors, typename V, typename C>
BYOC_INLINE void Rows(const Block& block, int64_t row) {
  constexpr int64_t kPanel = kVectors * sizeof(V) / sizeof(float);
  const float* a = block.a + row * block.a_stride;
  C* c = static_cast<C*>(block.c) + row * block.c_stride;
  for (int64_t n = 0; n < block.n; n += kPanel) {
    Tile<kRows, kVectors, V, C>(block, a, block.panels + n * block.k, c + n,
                                std::min(kPanel, block.n - n));
  }
}

template <int kRows, int kVectors, typename V, typename C>
BYOC_INLINE void Multiply(const Block& block) {
  int64_t row = 0;
  for (; row + kRows <= block.m; row += kRows) Rows<kRows, kVectors, V, C>(block, row);
  if (kRows > 4 && block.m - row >= 4) Rows<4, kVectors, V, C>(block, row), row += 4;
  if (block.m - row >= 2) Rows<2, kVectors, V, C>(block, row), row += 2;
  if (block.m - row >= 1) Rows<1, kVectors, V, C>(block, row);
}

/*! \brief The register tile of an instruction set. */
struct Kernel {
  int64_t panel;  // columns
  void (*multiply_float)(const Block&);
  void (*multiply_integer)(const Block&);
};

using Vec16 = float __attribute__((vector_size(16)));
void FloatBase(const Block& block) { Multiply<4, 2, Vec16, float>(block); }
void IntegerBase(const Block& block) { Multiply<4, 2, Vec16, int32_t>(block); }

#ifdef BYOC_X86_VERSIONS
using Vec32 = float __attribute__((vector_size(32)));
__attribute__((target("arch=x86-64-v3"))) void FloatAvx2(const Block& block) {
  Multiply<6, 2, Vec32, float>(block);
}
__attribute__((target("arch=x86-64-v3"))) void IntegerAvx2(const Block& block) {
  Multiply<6, 2, Vec32, int32_t>(block);
}
__attribute__((target("arch=x86-64-v4"))) void FloatAvx512(const Block& block) {
  Multiply<8, 2, VecF, float>(block);
}
__attribute__((target("arch=x86-64-v4"))) void IntegerAvx512(const Block& block) {
  Multiply<8, 2, VecF, int32_t>(block);
}
#endif

Kernel ChooseKernel() {
#ifdef BYOC_X86_VERSIONS
  if (__builtin_cpu_supports("x86-64-v4")) return {32, FloatAvx512, IntegerAvx512};
  if (__builtin_cpu_supports("x86-64-v3")) return {16, FloatAvx2, IntegerAvx2};
#endif
  return {8, FloatBase, IntegerBase};
}

void Pack(const GemmProblem& p, int64_t k0, int64_t k, int64_t n0, int64_t n, int64_t width,
          float* to) {
  const int64_t* rows = p.k_offsets + k0;
  const int64_t* columns = p.n_offsets + n0;
  if (SameType(p.b_type, kInt8)) {
    PackInt8(static_cast<const int8_t*>(p.b), rows, columns, k, n, width, to);
  } else if (SameType(p.b_type, kUInt8)) {
    PackUInt8(static_cast<const uint8_t*>(p.b), rows, columns, k, n, width, to);
  } else {
    PackFloat(static_cast<const float*>(p.b), rows, columns, k, n, width, to);
  }
}

void FillZero(const GemmProblem& p) {
  for (int64_t row = 0; row < p.m; ++row) {
    // float and int32 are both 4 bytes, zero in both being zero bits.
    std::memset(static_cast<float*>(p.c) + row * p.c_stride, 0, p.n * sizeof(float));
  }
}

}  // namespace

std::vector<int64_t> Offsets(int64_t count, int64_t step) {
  std::vector<int64_t> out(count);
  for (int64_t i = 0; i < count; ++i) out[i] = i * step;
  return out;
}

void Gemm(const GemmProblem& p) {
  static const Kernel kernel = ChooseKernel();
  if (p.k == 0) return FillZero(p);
  std::shared_ptr<Buffer> panels = Buffer::Take(kBlockK * kBlockN * sizeof(float));
  auto packed = reinterpret_cast<float*>(panels->data());
  for (int64_t n0 = 0; n0 < p.n; n0 += kBlockN) {
    int64_t n = std::min(kBlockN, p.n - n0);
    for (int64_t k0 = 0; k0 < p.k; k0 += kBlockK) {
      int64_t k = std::min(kBlockK, p.k - k0);
      Pack(p, k0, k, n0, n, kernel.panel, packed);
      void* c = static_cast<float*>(p.c) + n0;
      Block block{p.m, n, k, p.a + k0, p.a_stride, packed, c, p.c_stride, k0 > 0};
      p.integer ? kernel.multiply_integer(block) : kernel.multiply_float(block);
    }
  }
}

BYOC_MULTIVERSION void RowTimesTransposed(const float* a, const float* b, int64_t b_stride,
                                          int64_t n, int64_t k, float* c) {
  for (int64_t j = 0; j < n; ++j) {
    const float* row = b + j * b_stride;
    VecF sums[4] = {};
    int64_t i = 0;
    for (; i + 4 * kLanes <= k; i += 4 * kLanes) {
      for (int v = 0; v < 4; ++v) {
        sums[v] += Load<VecF>(a + i + v * kLanes) * Load<VecF>(row + i + v * kLanes);
      }
    }
    for (; i + kLanes <= k; i += kLanes) sums[0] += Load<VecF>(a + i) * Load<VecF>(row + i);
    float total = Sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < k; ++i) total += a[i] * row[i];
    c[j] = total;
  }
}

BYOC_MULTIVERSION void RowTimesMatrix(const float* a, const float* b, int64_t b_stride, int64_t n,
                                      int64_t k, float* c) {
  constexpr int64_t kStrip = 4 * kLanes;
  int64_t j = 0;
  for (; j + kStrip <= n; j += kStrip) {
    VecF sums[4] = {};
    for (int64_t i = 0; i < k; ++i) {
      const float* row = b + i * b_stride + j;
      for (int v = 0; v < 4; ++v) sums[v] += a[i] * Load<VecF>(row + v * kLanes);
    }
    for (int v = 0; v < 4; ++v) Store(c + j + v * kLanes, sums[v]);
  }
  for (; j < n; ++j) {
    float sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += a[i] * b[i * b_stride + j];
    c[j] = sum;
  }
}

}  // namespace example_npu
}  // namespace byoc
