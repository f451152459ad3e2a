// The logarithms of the exponential variates of some positions, to the bit as outrider.kernels.philox defines them: its
// roundings are those of single operations, so no product and sum may be made one here.
#pragma once
#include "vector.h"

namespace outrider {

#if defined(__clang__)
#pragma clang fp contract(off)
#else
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif

typedef uint64_t u64x8 __attribute__((vector_size(64)));

// Products of the lower halves of eight lanes, in 64 bits: what a round of Philox needs, high and low word at once.
static inline u64x8 times(u64x8 a, uint32_t b) {
#if defined(__AVX512F__)
  return (u64x8)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#elif defined(__aarch64__)
  uint64x2_t part[4];
  std::memcpy(part, &a, sizeof part);
  for (uint64x2_t& lanes : part) lanes = vmull_u32(vmovn_u64(lanes), vdup_n_u32(b));
  std::memcpy(&a, part, sizeof part);
  return a;
#else
  __m256i half[2];
  std::memcpy(half, &a, sizeof half);
  for (__m256i& lanes : half) lanes = _mm256_mul_epu32(lanes, _mm256_set1_epi64x(b));
  std::memcpy(&a, half, sizeof half);
  return a;
#endif
}

// Words of eight counters, four of each in their order.
struct Words {
  u32x16 first, second;
};

// Philox 4x32-10 (Salmon et al. 2011) of eight counters (lane, position, 0, 0). The upper halves of lanes
// between the rounds are ignored.
static inline Words philox(u64x8 lanes, uint32_t position, uint64_t seed) {
  u64x8 c0 = lanes, c1 = u64x8{} + position, c2{}, c3{};
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (int32_t round = 0; round < 10; round++, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
    const u64x8 p0 = times(c0, 0xD2511F53), p1 = times(c2, 0xCD9E8D57);
    c0 = (p1 >> 32) ^ c1 ^ k0;
    c1 = p1;
    c2 = (p0 >> 32) ^ c3 ^ k1;
    c3 = p0;
  }
  const u64x8 left = (c0 & 0xFFFFFFFFull) | c1 << 32, right = (c2 & 0xFFFFFFFFull) | c3 << 32;
  return {(u32x16)__builtin_shufflevector(left, right, 0, 8, 1, 9, 2, 10, 3, 11),
          (u32x16)__builtin_shufflevector(left, right, 4, 12, 5, 13, 6, 14, 7, 15)};
}

// log(1 + m) for m from -1/4 to 1/2.
static inline f32x16 log1p(f32x16 m) {
  f32x16 s = m / (m + 2.0f), square = s * s;
  f32x16 series = ((square * 0.15181218f + 0.19978869f) * square + 0.33333474f) * square;
  f32x16 twice = s + s;
  return series * twice + twice;
}
constexpr float LN2_PER_BIT = 8.26295829e-8f;

static inline f32x16 log_exponential(u32x16 word) {
  f32x16 u = (__builtin_convertvector(word, f32x16) + 0.5f) * 0x1p-32f;
  u = (f32x16)((i32x16)u - (((i32x16)u + 0x800000) >> 30));  // 1 becomes the number below it, all others stay
  i32x16 exponent = ((i32x16)(1.0f - u) - 0x3F400000) & -0x800000;
  f32x16 scale = (f32x16)(0x3F800000 - exponent);
  f32x16 variate = -(log1p((scale - 1.0f) - scale * u) + __builtin_convertvector(exponent, f32x16) * LN2_PER_BIT);
  i32x16 bits = (i32x16)variate;
  exponent = (bits - 0x3F400000) & -0x800000;
  f32x16 excess = (f32x16)(bits - exponent) - 1.0f;
  return log1p(excess) + __builtin_convertvector(exponent, f32x16) * LN2_PER_BIT;
}

static void log_exponentials(uint64_t seed, uint32_t position, int64_t vocabulary, float* out) {
  u64x8 lanes = {0, 1, 2, 3, 4, 5, 6, 7};
  for (int64_t v = 0; v < vocabulary; v += 32, lanes += 8) {
    const Words w = philox(lanes, position, seed);
    const f32x16 logs[2] = {log_exponential(w.first), log_exponential(w.second)};
    std::memcpy(out + v, logs, (vocabulary - v < 32 ? vocabulary - v : 32) * sizeof(float));
  }
}

#if !defined(__clang__)
#pragma GCC pop_options
#endif

}  // namespace outrider
