// Vectors of sixteen floats in the compiler's own vector extension, and functions on them.
//
// The compiler maps a vector to one AVX-512, two AVX2 or four SSE/NEON registers.  Everything is
// forced inline so that it is compiled for the instruction set of the function that uses it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

// The portable wheel carries each hot loop for three instruction sets; the loader picks one.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__)
#define BYOC_X86_VERSIONS 1
#define BYOC_MULTIVERSION \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define BYOC_MULTIVERSION
#endif

#define BYOC_INLINE inline __attribute__((always_inline))

namespace byoc {
namespace example_npu {

using VecF = float __attribute__((vector_size(64)));
using VecI = int32_t __attribute__((vector_size(64)));
using VecU = uint32_t __attribute__((vector_size(64)));
using VecH = uint16_t __attribute__((vector_size(32)));  // sixteen float16 as bits
inline constexpr int64_t kLanes = 16;

template <typename V, typename T>
BYOC_INLINE V Load(const T* from) {
  V v;
  std::memcpy(&v, from, sizeof(V));
  return v;
}
template <typename V, typename T>
BYOC_INLINE void Store(T* to, V v) {
  std::memcpy(to, &v, sizeof(V));
}
template <typename To, typename From>
BYOC_INLINE To Bits(From v) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To out;
  std::memcpy(&out, &v, sizeof(To));
  return out;
}
BYOC_INLINE VecF Splat(float x) { return VecF{} + x; }
BYOC_INLINE float Sum(VecF v) {
  float total = 0;
  for (int i = 0; i < kLanes; ++i) total += v[i];
  return total;
}
// Of two values as TVM's LLVM code generator compares them: with a NaN the second one wins.
BYOC_INLINE VecF Max(VecF a, VecF b) { return a > b ? a : b; }
BYOC_INLINE VecF Min(VecF a, VecF b) { return a < b ? a : b; }

/*! \brief e^x to about 1 ulp: 2^n * e^r with |r| <= ln(2)/2 and e^r by its Taylor series. */
BYOC_INLINE VecF Exp(VecF x) {
  x = x > 89.0f ? Splat(89.0f) : x;  // overflows to infinity below
  x = x < -104.0f ? Splat(-104.0f) : x;
  const VecF round = Splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  VecF n = (x * 1.44269504088896341f + round) - round;
  VecF r = x - n * 0.693359375f;  // ln(2) in two parts, the first exact in 9 bits
  r = r + n * 2.12194440e-4f;
  VecF p = Splat(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  VecI whole = __builtin_convertvector(n, VecI);
  VecI half = whole >> 1;  // two factors, since 2^128 is no float
  VecF low = Bits<VecF>((Bits<VecU>(half) + 127u) << 23);
  VecF high = Bits<VecF>((Bits<VecU>(whole - half) + 127u) << 23);
  return p * low * high;
}

BYOC_INLINE VecF Sigmoid(VecF x) { return 1.0f / (1.0f + Exp(-x)); }

/*! \brief Taylor series near zero, where the quotient of exponentials loses digits. */
BYOC_INLINE VecF Tanh(VecF x) {
  VecF t = x < 0.0f ? -x : x;
  VecF e = Exp(-2.0f * t);
  VecF far = (1.0f - e) / (1.0f + e);
  far = x < 0.0f ? -far : far;
  VecF s = x * x;
  VecF p = Splat(21844.0f / 6081075);
  p = p * s - 1382.0f / 155925;
  p = p * s + 62.0f / 2835;
  p = p * s - 17.0f / 315;
  p = p * s + 2.0f / 15;
  p = p * s - 1.0f / 3;
  VecF near = x + x * s * p;
  return t < 0.4f ? near : far;
}

/*!
 * \brief Error function, absolute error below 2e-7.
 *
 * Its Maclaurin series up to 1, beyond that Abramowitz and Stegun 7.1.26.
 */
BYOC_INLINE VecF Erf(VecF x) {
  VecF t = x < 0.0f ? -x : x;
  VecF s = x * x;
  VecF p = Splat(-1.0f / (362880.0f * 19));
  p = p * s + 1.0f / (40320.0f * 17);
  p = p * s - 1.0f / (5040.0f * 15);
  p = p * s + 1.0f / (720.0f * 13);
  p = p * s - 1.0f / (120.0f * 11);
  p = p * s + 1.0f / (24.0f * 9);
  p = p * s - 1.0f / (6.0f * 7);
  p = p * s + 1.0f / (2.0f * 5);
  p = p * s - 1.0f / 3;
  p = p * s + 1.0f;
  VecF near = 1.12837916709551257f * x * p;
  VecF u = 1.0f / (1.0f + 0.3275911f * t);
  VecF q = Splat(1.061405429f);
  q = q * u - 1.453152027f;
  q = q * u + 1.421413741f;
  q = q * u - 0.284496736f;
  q = q * u + 0.254829592f;
  VecF far = 1.0f - q * u * Exp(-s);
  far = x < 0.0f ? -far : far;
  return t < 1.0f ? near : far;
}

/*! \brief float16 bits to float32: exponent and mantissa moved, then scaled (so denormals work). */
BYOC_INLINE VecF HalfToFloat(const VecH& half) {
  VecU h = __builtin_convertvector(half, VecU);
  VecF value = Bits<VecF>((h & 0x7fffu) << 13) * 0x1p112f;
  VecU bits = Bits<VecU>(value);
  // Infinity and NaN: 0x7c00 and above became 2^16 and above.
  bits = value >= 65536.0f ? (bits | 0x7f800000u) : bits;
  return Bits<VecF>(bits | ((h & 0x8000u) << 16));
}

/*! \brief float32 to float16 bits, to nearest, ties to even. */
BYOC_INLINE VecH FloatToHalf(VecF x) {
  VecU bits = Bits<VecU>(x);
  VecU sign = bits & 0x80000000u;
  bits ^= sign;
  VecU normal = (bits + 0xc8000fffu + ((bits >> 13) & 1u)) >> 13;
  // Below 2^-14 adding 0.5 leaves the denormal's mantissa, rounded, in the low bits.
  VecU denormal = Bits<VecU>(Bits<VecF>(bits) + 0.5f) - 0x3f000000u;
  VecU special = bits > 0x7f800000u ? (VecU{} + 0x7e00u) : (VecU{} + 0x7c00u);
  VecU out = bits < 0x38800000u ? denormal : normal;
  out = bits >= 0x47800000u ? special : out;
  return __builtin_convertvector(out | (sign >> 16), VecH);
}

/*! \brief y[i] = f(x[i]) for a function of vectors given as a type with a static `Apply`. */
template <typename F, typename... Params>
BYOC_INLINE void MapLoop(const float* x, float* y, int64_t n, Params... params) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(y + i, F::Apply(Load<VecF>(x + i), params...));
  if (i < n) {
    float rest[kLanes] = {};
    std::memcpy(rest, x + i, (n - i) * sizeof(float));
    Store(rest, F::Apply(Load<VecF>(rest), params...));
    std::memcpy(y + i, rest, (n - i) * sizeof(float));
  }
}

}  // namespace example_npu
}  // namespace byoc
