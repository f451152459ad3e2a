// The logarithms of the exponential variates of some positions, to the bit as outrider.kernels.philox defines them: its
// roundings are those of single operations, so no product and sum may be made one here.
#pragma once
#include "vector.h"

#if defined(__clang__)
#pragma clang fp contract(off)
#else
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif

typedef uint64_t u64x16 __attribute__((vector_size(128)));

struct Words {
  u32x16 c0, c1, c2, c3;
};

// Philox 4x32-10 (Salmon et al. 2011) of sixteen counters (lane, position, 0, 0).
static inline Words philox(u32x16 lanes, uint32_t position, uint64_t seed) {
  Words w{lanes, u32x16{} + position, u32x16{}, u32x16{}};
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (int round = 0; round < 10; round++, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
    u64x16 p0 = __builtin_convertvector(w.c0, u64x16) * 0xD2511F53ull;
    u64x16 p1 = __builtin_convertvector(w.c2, u64x16) * 0xCD9E8D57ull;
    u32x16 high0 = __builtin_convertvector(p0 >> 32, u32x16), high1 = __builtin_convertvector(p1 >> 32, u32x16);
    w = {high1 ^ w.c1 ^ k0, __builtin_convertvector(p1, u32x16), high0 ^ w.c3 ^ k1, __builtin_convertvector(p0, u32x16)};
  }
  return w;
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
  u = u > 0x1.fffffep-1f ? splat(0x1.fffffep-1f) : u;
  i32x16 exponent = ((i32x16)(1.0f - u) - 0x3F400000) & -0x800000;
  f32x16 scale = (f32x16)(0x3F800000 - exponent);
  f32x16 variate = -(log1p((scale - 1.0f) - scale * u) + __builtin_convertvector(exponent, f32x16) * LN2_PER_BIT);
  i32x16 bits = (i32x16)variate;
  exponent = (bits - 0x3F400000) & -0x800000;
  f32x16 excess = (f32x16)(bits - exponent) - 1.0f;
  return log1p(excess) + __builtin_convertvector(exponent, f32x16) * LN2_PER_BIT;
}

static void roll(uint64_t seed, uint32_t position, long vocabulary, float* out) {
  u32x16 lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (long v = 0; v < vocabulary; v += 64, lanes += 16) {
    Words w = philox(lanes, position, seed);
    const f32x16 logs[4] = {log_exponential(w.c0), log_exponential(w.c1), log_exponential(w.c2), log_exponential(w.c3)};
    alignas(64) float mixed[64];
    for (int i = 0; i < 16; i++)
      for (int j = 0; j < 4; j++) mixed[4 * i + j] = logs[j][i];
    std::memcpy(out + v, mixed, (vocabulary - v < 64 ? vocabulary - v : 64) * sizeof(float));
  }
}

#if !defined(__clang__)
#pragma GCC pop_options
#endif
