// Sixteen floats at a time, in the vector extensions that gcc and clang share: what the hardware lacks in width is
// split by the compiler. Every function gives a lane the same bits whatever stands in the others.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16u __attribute__((vector_size(64), aligned(4), may_alias));
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8u __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef uint16_t u16x8u __attribute__((vector_size(16), aligned(2), may_alias));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16u __attribute__((vector_size(64), aligned(2), may_alias));
typedef uint16_t u16x16u __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint16_t u16x16 __attribute__((vector_size(32)));
typedef uint16_t u16x32 __attribute__((vector_size(64)));
typedef uint16_t u16x32u __attribute__((vector_size(64), aligned(2), may_alias));

constexpr long LANES = 16;
typedef uint16_t bf16;

static inline f32x16 splat(float x) { return f32x16{} + x; }
static inline f32x16 load(const float* p) { return *(const f32x16u*)p; }
static inline void store(float* p, f32x16 v) { *(f32x16u*)p = v; }
static inline f32x16 load(const bf16* p) {
  return (f32x16)(__builtin_convertvector(*(const u16x16u*)p, u32x16) << 16);
}

static inline f32x8 load_eight(const float* p) { return *(const f32x8u*)p; }
static inline f32x8 load_eight(const bf16* p) {
  return (f32x8)(__builtin_convertvector(*(const u16x8u*)p, u32x8) << 16);
}
static inline void store(float* p, f32x8 v) { *(f32x8u*)p = v; }

// Rounds to nearest, ties to even; not-a-number stays one.
static inline u16x16 to_bf16(f32x16 v) {
#if defined(__AVX512BF16__)
  return (u16x16)_mm512_cvtneps_pbh((__m512)v);
#endif
  u32x16 bits = (u32x16)v;
  u32x16 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  u32x16 quiet = (bits >> 16) | 0x40;
  return __builtin_convertvector((u32x16)(v == v ? (i32x16)rounded : (i32x16)quiet), u16x16);
}
static inline void store(bf16* p, f32x16 v) { *(u16x16u*)p = to_bf16(v); }

#if defined(__AVX512BF16__)
// Sixteen pairs of neighbours; one pair sixteen times; and sums to which the products of pairs are added, lane by lane.
// What is below 2^-126 counts as zero.
static inline u32x16 pairs(const bf16* p) { return *(const u32x16u*)p; }
static inline u32x16 splat_pair(const bf16* p) {
  uint32_t pair;
  std::memcpy(&pair, p, sizeof pair);
  return u32x16{} + pair;
}
static inline f32x16 add_products(f32x16 sum, u32x16 a, u32x16 b) {
  return (f32x16)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
#endif

// Writes 32 pairs, of an even position's features and the odd one's.
static inline void interleave(bf16* to, const bf16* even, const bf16* odd) {
  const u16x32 a = *(const u16x32u*)even, b = *(const u16x32u*)odd;
  *(u16x32u*)to = __builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10,
                                          42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47);
  *(u16x32u*)(to + 32) = __builtin_shufflevector(a, b, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24,
                                                 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
}

static inline f32x16 max(f32x16 a, f32x16 b) { return a > b ? a : b; }

template <class Combine>
static inline float folded(f32x16 v, const Combine& combine) {
  v = combine(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  v = combine(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  v = combine(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  v = combine(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
  return v[0];
}
static inline float sum(f32x16 v) {
  return folded(v, [](f32x16 a, f32x16 b) { return a + b; });
}
static inline float largest(f32x16 v) { return folded(v, max); }

// 2^x to about one unit in the last place; 0 below 2^-126, x at most 127. Not-a-number stays one.
static inline f32x16 exp2(f32x16 x) {
  f32x16 clamped = max(x, splat(-126.0f));
  f32x16 magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  f32x16 whole = (clamped + magic) - magic;
  f32x16 f = clamped - whole;
  // Taylor's series of 2^f about 0, |f| <= 1/2.
  f32x16 p = splat(1.5252734e-5f);
  p = p * f + 1.5403530e-4f;
  p = p * f + 1.3333558e-3f;
  p = p * f + 9.6181291e-3f;
  p = p * f + 5.5504109e-2f;
  p = p * f + 2.4022651e-1f;
  p = p * f + 6.9314718e-1f;
  p = p * f + 1.0f;
  i32x16 exponent = (__builtin_convertvector(whole, i32x16) + 127) << 23;
  f32x16 scaled = p * (f32x16)exponent;
  f32x16 kept = x == x ? scaled : x;
  return x < -126.0f ? f32x16{} : kept;
}

// Lane i of the result is the lanes of v[i] combined, in one fixed order.
template <class Combine>
static inline f32x16 each_folded(const f32x16 v[16], const Combine& combine) {
  f32x16 a[8], b[4], c[2];
  for (int i = 0; i < 8; i++)
    a[i] = combine(
        __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30),
        __builtin_shufflevector(v[2 * i], v[2 * i + 1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31));
  for (int i = 0; i < 4; i++)
    b[i] = combine(
        __builtin_shufflevector(a[2 * i], a[2 * i + 1], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
        __builtin_shufflevector(a[2 * i], a[2 * i + 1], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
  for (int i = 0; i < 2; i++)
    c[i] = combine(
        __builtin_shufflevector(b[2 * i], b[2 * i + 1], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
        __builtin_shufflevector(b[2 * i], b[2 * i + 1], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31));
  return combine(
      __builtin_shufflevector(c[0], c[1], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
      __builtin_shufflevector(c[0], c[1], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
}
static inline f32x16 sums(const f32x16 v[16]) {
  return each_folded(v, [](f32x16 a, f32x16 b) { return a + b; });
}

// Sixteen rows of sixteen become columns.
static inline void transpose(u32x16 v[16]) {
  u32x16 t[16];
  for (int i = 0; i < 8; i++) {
    t[2 * i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
    t[2 * i + 1] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; j++) {
      v[i + j] = __builtin_shufflevector(t[i + j], t[i + j + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      v[i + j + 2] = __builtin_shufflevector(t[i + j], t[i + j + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
  for (int i = 0; i < 16; i += 8)
    for (int j = 0; j < 4; j++) {
      t[i + j] = __builtin_shufflevector(v[i + j], v[i + j + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
      t[i + j + 4] = __builtin_shufflevector(v[i + j], v[i + j + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
    }
  for (int j = 0; j < 8; j++) {
    v[j] = __builtin_shufflevector(t[j], t[j + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    v[j + 8] = __builtin_shufflevector(t[j], t[j + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
}
