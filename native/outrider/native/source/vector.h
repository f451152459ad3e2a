// Sixteen floats at a time, in the vector extensions that gcc and clang share: for narrower hardware the compiler
// splits vectors. gcc splits choices and shuffles into single lanes, so the hot ones are split into halves here.
// Every function gives a lane the same bits whatever stands in the others.
#pragma once
#if defined(__aarch64__)
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

#include <cmath>
#include <cstdint>
#include <cstring>

namespace outrider {

typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16u __attribute__((vector_size(64), aligned(4), may_alias));
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8u __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16u __attribute__((vector_size(64), aligned(2), may_alias));
typedef uint16_t u16x16u __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef uint32_t u32x8u __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint16_t u16x16 __attribute__((vector_size(32)));
typedef uint16_t u16x32 __attribute__((vector_size(64)));
typedef uint16_t u16x32u __attribute__((vector_size(64), aligned(2), may_alias));
typedef int8_t i8x16 __attribute__((vector_size(16)));
typedef int8_t i8x16u __attribute__((vector_size(16), aligned(1), may_alias));

constexpr int64_t LANES = 16;
typedef uint16_t bf16;
struct f16 {  // IEEE 754's binary16
  uint16_t bits;
};

struct Halves {
  f32x8 low, high;
};

static inline f32x16 splat(float x) { return f32x16{} + x; }
static inline f32x16 load(const float* p) { return *(const f32x16u*)p; }
static inline void store(float* p, f32x16 v) { *(f32x16u*)p = v; }
static inline f32x16 load(const bf16* p) { return (f32x16)(__builtin_convertvector(*(const u16x16u*)p, u32x16) << 16); }

#if defined(__aarch64__)
static inline float32x4_t four_halves(const void* p) {
  uint16x4_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return vcvt_f32_f16((float16x4_t)bits);
}
static inline f32x8 load_eight(const f16* p) {
  const float32x4_t parts[] = {four_halves(p), four_halves(p + 4)};
  f32x8 v;
  std::memcpy(&v, parts, sizeof v);
  return v;
}
static inline f32x8 eight_of(float x) { return f32x8{} + x; }
#else
static inline f32x8 load_eight(const f16* p) { return (f32x8)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
// A load alone, where compilers add the zeros of f32x8{} + x.
static inline f32x8 eight_of(float x) { return (f32x8)_mm256_set1_ps(x); }
#endif
static inline f32x16 load(const f16* p) {
#if defined(__AVX512F__)
  return (f32x16)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
#else
  const Halves parts = {load_eight(p), load_eight(p + 8)};
  f32x16 v;
  std::memcpy(&v, &parts, sizeof v);
  return v;
#endif
}
static inline f32x8 load_eight(const float* p) { return *(const f32x8u*)p; }
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

// Integers of at most 127; `store` rounds to nearest, ties to even.
static inline f32x16 load(const int8_t* p) {
  return __builtin_convertvector(__builtin_convertvector(*(const i8x16u*)p, i32x16), f32x16);
}
static inline void store(int8_t* p, f32x16 v) {
  *(i8x16u*)p = __builtin_convertvector((i32x16)(v + 12582912.0f), i8x16);  // 1.5 * 2^23 leaves v in the low bits
}

#if defined(__AVX512BF16__)
// Sixteen pairs of neighbours; one pair sixteen times; and sums to which the dot products of pairs are added, lane by
// lane. Numbers below 2^-126 count as zero.
static inline u32x16 pairs(const bf16* p) { return *(const u32x16u*)p; }
static inline u32x16 splat_pair(const bf16* p) {
  uint32_t pair;
  std::memcpy(&pair, p, sizeof pair);
  return u32x16{} + pair;
}
static inline f32x16 add_dots(f32x16 sum, u32x16 a, u32x16 b) {
  return (f32x16)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
#endif

// Writes 32 pairs, of an even position's features and the odd one's.
static inline void interleave(bf16* to, const bf16* even, const bf16* odd) {
  const u16x32 a = *(const u16x32u*)even, b = *(const u16x32u*)odd;
  *(u16x32u*)to = __builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41,
                                          10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47);
  *(u16x32u*)(to + 32) = __builtin_shufflevector(a, b, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                                                 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
}

static inline Halves halves(f32x16 v) {
  Halves parts;
  std::memcpy(&parts, &v, sizeof v);
  return parts;
}
static inline f32x16 whole(f32x8 low, f32x8 high) {
  const Halves parts = {low, high};
  f32x16 v;
  std::memcpy(&v, &parts, sizeof v);
  return v;
}

static inline f32x8 max(f32x8 a, f32x8 b) { return a > b ? a : b; }
static inline f32x16 max(f32x16 a, f32x16 b) {
#if defined(__AVX512F__)
  return a > b ? a : b;
#else
  const Halves x = halves(a), y = halves(b);
  return whole(max(x.low, y.low), max(x.high, y.high));
#endif
}

// Lane by lane: `highest` and its `place` become v and `here` where v is higher.
template <class Floats, class Integers>
static inline void keep_higher_of(Floats v, Integers here, Floats& highest, Integers& place) {
  auto higher = v > highest;
  highest = higher ? v : highest;
  place = higher ? here : place;
}
static inline void keep_higher(f32x16 v, i32x16 here, f32x16& highest, i32x16& place) {
#if defined(__AVX512F__)
  keep_higher_of(v, here, highest, place);
#else
  const Halves value = halves(v), at = halves((f32x16)here);
  Halves best = halves(highest), where = halves((f32x16)place);
  i32x8 low = (i32x8)where.low, high = (i32x8)where.high;
  keep_higher_of(value.low, (i32x8)at.low, best.low, low);
  keep_higher_of(value.high, (i32x8)at.high, best.high, high);
  highest = whole(best.low, best.high);
  place = (i32x16)whole((f32x8)low, (f32x8)high);
#endif
}

// -1 in lanes of numbers below a limit, else 0.
static inline i32x16 below(f32x16 v, float limit) {
#if defined(__AVX512F__)
  return (i32x16)(v < limit);
#else
  const Halves parts = halves(v);
  return (i32x16)whole((f32x8)(parts.low < limit), (f32x8)(parts.high < limit));
#endif
}

// All lanes combined, in one fixed order.
template <class Combine>
static inline float folded(f32x8 v, const Combine& combine) {
  v = combine(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
  v = combine(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5));
  v = combine(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6));
  return v[0];
}
static inline float sum(f32x8 v) {
  return folded(v, [](f32x8 a, f32x8 b) { return a + b; });
}
static inline float sum(f32x16 v) { return sum(halves(v).low + halves(v).high); }
static inline float largest(f32x8 v) {
  return folded(v, [](f32x8 a, f32x8 b) { return max(a, b); });
}
static inline float largest(f32x16 v) { return largest(max(halves(v).low, halves(v).high)); }

// 2^x to about one unit in the last place; 0 below 2^-126, x at most 127. Not-a-number stays one.
template <class Floats, class Integers>
static inline Floats power(Floats x) {
  Floats clamped = max(x, Floats{} - 126.0f);
  Floats magic = Floats{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  Floats whole = (clamped + magic) - magic;
  Floats f = clamped - whole;
  // Taylor's series of 2^f about 0, |f| <= 1/2.
  Floats p = Floats{} + 1.5252734e-5f;
  p = p * f + 1.5403530e-4f;
  p = p * f + 1.3333558e-3f;
  p = p * f + 9.6181291e-3f;
  p = p * f + 5.5504109e-2f;
  p = p * f + 2.4022651e-1f;
  p = p * f + 6.9314718e-1f;
  p = p * f + 1.0f;
  Integers exponent = (__builtin_convertvector(whole, Integers) + 127) << 23;
  Floats scaled = p * (Floats)exponent;
  Floats kept = x == x ? scaled : x;
  return x < -126.0f ? Floats{} : kept;
}
static inline f32x8 exp2(f32x8 x) { return power<f32x8, i32x8>(x); }
static inline f32x16 exp2(f32x16 x) {
#if defined(__AVX512F__)
  return power<f32x16, i32x16>(x);
#else
  const Halves parts = halves(x);
  return whole(exp2(parts.low), exp2(parts.high));
#endif
}

// Lane i of the result is the lanes of v[i] combined, in one fixed order.
template <class Combine>
static inline f32x16 each_folded(const f32x16 v[16], const Combine& combine) {
  f32x16 a[8], b[4], c[2];
  for (int32_t i = 0; i < 8; i++)
    a[i] = combine(
        __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30),
        __builtin_shufflevector(v[2 * i], v[2 * i + 1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31));
  for (int32_t i = 0; i < 4; i++)
    b[i] = combine(
        __builtin_shufflevector(a[2 * i], a[2 * i + 1], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
        __builtin_shufflevector(a[2 * i], a[2 * i + 1], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
  for (int32_t i = 0; i < 2; i++)
    c[i] = combine(
        __builtin_shufflevector(b[2 * i], b[2 * i + 1], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
        __builtin_shufflevector(b[2 * i], b[2 * i + 1], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31));
  return combine(__builtin_shufflevector(c[0], c[1], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
                 __builtin_shufflevector(c[0], c[1], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
}
static inline f32x16 sums(const f32x16 v[16]) {
  return each_folded(v, [](f32x16 a, f32x16 b) { return a + b; });
}

// Lane i of the result is the sum of the lanes of v[i], in one fixed order.
static inline f32x8 sums_of_eight(const f32x8 v[8]) {
  f32x8 a[4], b[2];
  for (int32_t i = 0; i < 4; i++)
    a[i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 2, 8, 10, 4, 6, 12, 14) +
           __builtin_shufflevector(v[2 * i], v[2 * i + 1], 1, 3, 9, 11, 5, 7, 13, 15);
  for (int32_t i = 0; i < 2; i++)
    b[i] = __builtin_shufflevector(a[2 * i], a[2 * i + 1], 0, 2, 8, 10, 4, 6, 12, 14) +
           __builtin_shufflevector(a[2 * i], a[2 * i + 1], 1, 3, 9, 11, 5, 7, 13, 15);
  return __builtin_shufflevector(b[0], b[1], 0, 1, 2, 3, 8, 9, 10, 11) +
         __builtin_shufflevector(b[0], b[1], 4, 5, 6, 7, 12, 13, 14, 15);
}

// Sixteen rows of sixteen become columns.
static inline void transpose(u32x16 v[16]) {
  u32x16 t[16];
  for (int32_t i = 0; i < 8; i++) {
    t[2 * i] =
        __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
    t[2 * i + 1] =
        __builtin_shufflevector(v[2 * i], v[2 * i + 1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
  }
  for (int32_t i = 0; i < 16; i += 4)
    for (int32_t j = 0; j < 2; j++) {
      v[i + j] =
          __builtin_shufflevector(t[i + j], t[i + j + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      v[i + j + 2] =
          __builtin_shufflevector(t[i + j], t[i + j + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
  for (int32_t i = 0; i < 16; i += 8)
    for (int32_t j = 0; j < 4; j++) {
      t[i + j] =
          __builtin_shufflevector(v[i + j], v[i + j + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
      t[i + j + 4] =
          __builtin_shufflevector(v[i + j], v[i + j + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
    }
  for (int32_t j = 0; j < 8; j++) {
    v[j] = __builtin_shufflevector(t[j], t[j + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    v[j + 8] = __builtin_shufflevector(t[j], t[j + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
}

}  // namespace outrider
