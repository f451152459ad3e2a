// Vectors of 8-bit quants and of their sums: sixteen lanes with AVX-512, four with NEON, else eight. One set of names
// for all widths, so that quantized.h is written once.
#pragma once
#include <cstdint>
#include <cstring>

#include "vector.h"

namespace outrider {

#if defined(__AVX512F__)
constexpr int32_t WIDE = 16;  // lanes, each of four quants
typedef __m512i Quads;
typedef __m512 Floats;

static inline Quads quads(const void* p) { return _mm512_loadu_si512(p); }
static inline Quads quad(const void* p) {
  int32_t four;
  std::memcpy(&four, p, 4);
  return _mm512_set1_epi32(four);
}
static inline Quads both(Quads v, int32_t mask) { return _mm512_and_si512(v, _mm512_set1_epi8((char)mask)); }
static inline Quads shifted(Quads v, int32_t by) {
  return by < 0 ? _mm512_srli_epi16(v, -by) : _mm512_slli_epi16(v, by);
}
static inline Quads either(Quads a, Quads b) { return _mm512_or_si512(a, b); }
static inline Quads no_sum() { return _mm512_setzero_si512(); }
// Sums of two products, in 16 bits; and sums of two of those.
static inline Quads products(Quads quants, Quads row) { return _mm512_maddubs_epi16(quants, row); }
static inline Quads widened(Quads words) { return _mm512_madd_epi16(words, _mm512_set1_epi16(1)); }
static inline Quads add_words(Quads a, Quads b) { return _mm512_add_epi16(a, b); }
static inline Quads add(Quads a, Quads b) { return _mm512_add_epi32(a, b); }
static inline Quads times_sixteen(Quads v) { return _mm512_slli_epi32(v, 4); }
#if defined(__AVX512VNNI__)
template <int32_t BITS>
static inline Quads dots(Quads sum, Quads quants, Quads row) {
  return _mm512_dpbusd_epi32(sum, quants, row);
}
#endif
static inline Floats zeros() { return _mm512_setzero_ps(); }
static inline Floats all_lanes(float x) { return _mm512_set1_ps(x); }
static inline Floats numbers(Quads sum) { return _mm512_cvtepi32_ps(sum); }
static inline Floats times(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
static inline Floats plus(Floats a, Floats b, Floats sum) { return _mm512_fmadd_ps(a, b, sum); }
static inline Floats minus(Floats a, Floats b, Floats sum) { return _mm512_fnmadd_ps(a, b, sum); }
static inline Floats floats(const float* p) { return _mm512_loadu_ps(p); }
static inline void put(float* p, Floats v) { _mm512_storeu_ps(p, v); }
static inline Floats halves_at(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
static inline Floats bytes_at(const void* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)));
}
static inline Floats signed_bytes_at(const void* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
}
#elif defined(__aarch64__)
constexpr int32_t WIDE = 4;
typedef int32x4_t Quads;
typedef float32x4_t Floats;

static inline Quads quads(const void* p) { return (Quads)vld1q_u8((const uint8_t*)p); }
static inline Quads quad(const void* p) {
  int32_t four;
  std::memcpy(&four, p, 4);
  return vdupq_n_s32(four);
}
static inline Quads both(Quads v, int32_t mask) { return v & (Quads)vdupq_n_s8((int8_t)mask); }
static inline Quads shifted(Quads v, int32_t by) {
  return by < 0 ? (Quads)((uint16x8_t)v >> -by) : (Quads)((uint16x8_t)v << by);
}
static inline Quads either(Quads a, Quads b) { return a | b; }
static inline Quads no_sum() { return vdupq_n_s32(0); }
// Of quants below 128.
static inline Quads products(Quads quants, Quads row) {
  const int8x16_t a = (int8x16_t)quants, b = (int8x16_t)row;
  return (Quads)vpaddq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b));
}
static inline Quads widened(Quads words) { return vpaddlq_s16((int16x8_t)words); }
static inline Quads add_words(Quads a, Quads b) { return (Quads)vaddq_s16((int16x8_t)a, (int16x8_t)b); }
static inline Quads add(Quads a, Quads b) { return vaddq_s32(a, b); }
static inline Quads times_sixteen(Quads v) { return vshlq_n_s32(v, 4); }
#if defined(__ARM_FEATURE_MATMUL_INT8)
template <int32_t BITS>
static inline Quads dots(Quads sum, Quads quants, Quads row) {
  return vusdotq_s32(sum, (uint8x16_t)quants, (int8x16_t)row);
}
#elif defined(__ARM_FEATURE_DOTPROD)
// The instruction takes quants from 128 on as 256 less than they are.
template <int32_t BITS>
static inline Quads dots(Quads sum, Quads quants, Quads row) {
  const int8x16_t b = (int8x16_t)row;
  if constexpr (BITS == 8) sum += vshlq_n_s32(vdotq_s32(no_sum(), (int8x16_t)vshrq_n_u8((uint8x16_t)quants, 7), b), 8);
  return vdotq_s32(sum, (int8x16_t)quants, b);
}
#endif
static inline Floats zeros() { return vdupq_n_f32(0); }
static inline Floats all_lanes(float x) { return vdupq_n_f32(x); }
static inline Floats numbers(Quads sum) { return vcvtq_f32_s32(sum); }
static inline Floats times(Floats a, Floats b) { return vmulq_f32(a, b); }
static inline Floats plus(Floats a, Floats b, Floats sum) { return vfmaq_f32(sum, a, b); }
static inline Floats minus(Floats a, Floats b, Floats sum) { return vfmsq_f32(sum, a, b); }
static inline Floats floats(const float* p) { return vld1q_f32(p); }
static inline void put(float* p, Floats v) { vst1q_f32(p, v); }
static inline Floats halves_at(const void* p) { return four_halves(p); }
static inline Floats bytes_at(const void* p) {
  uint32_t four;
  std::memcpy(&four, p, 4);
  return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four)))));
}
static inline Floats signed_bytes_at(const void* p) {
  uint32_t four;
  std::memcpy(&four, p, 4);
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four)))));
}
#else
constexpr int32_t WIDE = 8;
typedef __m256i Quads;
typedef __m256 Floats;

static inline Quads quads(const void* p) { return _mm256_loadu_si256((const __m256i*)p); }
static inline Quads quad(const void* p) {
  int32_t four;
  std::memcpy(&four, p, 4);
  return _mm256_set1_epi32(four);
}
static inline Quads both(Quads v, int32_t mask) { return _mm256_and_si256(v, _mm256_set1_epi8((char)mask)); }
static inline Quads shifted(Quads v, int32_t by) {
  return by < 0 ? _mm256_srli_epi16(v, -by) : _mm256_slli_epi16(v, by);
}
static inline Quads either(Quads a, Quads b) { return _mm256_or_si256(a, b); }
static inline Quads no_sum() { return _mm256_setzero_si256(); }
// Sums of two products, in 16 bits; and sums of two of those.
static inline Quads products(Quads quants, Quads row) { return _mm256_maddubs_epi16(quants, row); }
static inline Quads widened(Quads words) { return _mm256_madd_epi16(words, _mm256_set1_epi16(1)); }
static inline Quads add_words(Quads a, Quads b) { return _mm256_add_epi16(a, b); }
static inline Quads add(Quads a, Quads b) { return _mm256_add_epi32(a, b); }
static inline Quads times_sixteen(Quads v) { return _mm256_slli_epi32(v, 4); }
#if defined(__AVXVNNI__)
template <int32_t BITS>
static inline Quads dots(Quads sum, Quads quants, Quads row) {
  return _mm256_dpbusd_avx_epi32(sum, quants, row);
}
#endif
static inline Floats zeros() { return _mm256_setzero_ps(); }
static inline Floats all_lanes(float x) { return _mm256_set1_ps(x); }
static inline Floats numbers(Quads sum) { return _mm256_cvtepi32_ps(sum); }
static inline Floats times(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
static inline Floats plus(Floats a, Floats b, Floats sum) { return _mm256_fmadd_ps(a, b, sum); }
static inline Floats minus(Floats a, Floats b, Floats sum) { return _mm256_fnmadd_ps(a, b, sum); }
static inline Floats floats(const float* p) { return _mm256_loadu_ps(p); }
static inline void put(float* p, Floats v) { _mm256_storeu_ps(p, v); }
static inline Floats halves_at(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
static inline Floats bytes_at(const void* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)));
}
static inline Floats signed_bytes_at(const void* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)));
}
#endif

// Keeps gcc from summing in another order, for which it needs more registers than there are.
static inline Quads settled(Quads v) {
#if defined(__aarch64__)
  asm("" : "+w"(v));
#else
  asm("" : "+x"(v));
#endif
  return v;
}

// Quad i of a chunk; see quantized.h.
template <int32_t BITS>
static inline Quads read_quad(const uint8_t* chunk, int32_t i) {
  if constexpr (BITS == 8) return quads(chunk + i * 64);
  const Quads low = both(shifted(quads(chunk + i % 4 * 64), i / 4 * -4), 15);
  if constexpr (BITS == 5) return either(low, both(shifted(quads(chunk + 4 * 64), 4 - i), 16));
  if constexpr (BITS == 6) return either(low, both(shifted(quads(chunk + (4 + i % 2) * 64), 4 - i / 2 * 2), 48));
  return low;
}

// Adds to the sums of ROWS rows the products of a chunk's COUNT quads, unsigned, by theirs, from -127 to 127. Rows lie
// `apart`. The loop over rows is inside: their sums are independent, so that none waits for another, and a quad of
// weights is in a register for all of them. Some levels have one instruction for a quad. Without it sums are of 16 bits
// as long as these hold them, which products of 8 bits exceed: those quants are split.
template <int32_t BITS, int32_t FIRST, int32_t COUNT, int32_t ROWS>
static inline void add_quads(Quads sum[ROWS], const uint8_t* chunk, const int8_t* row, int64_t apart) {
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_DOTPROD)
#pragma GCC unroll 8
  for (int32_t i = FIRST; i < FIRST + COUNT; i++) {
    const Quads weight = read_quad<BITS>(chunk, i);
#pragma GCC unroll 8
    for (int32_t r = 0; r < ROWS; r++) sum[r] = dots<BITS>(sum[r], weight, quad(row + r * apart + 4 * i));
  }
#else
  // Quads summed in 16 bits: 127 * 2 * 15 * 8, 127 * 2 * 31 * 4 and 127 * 2 * 63 * 2 are below 2^15.
  constexpr int32_t TOGETHER = BITS == 5 ? 4 : BITS == 6 ? 2 : 8;
#pragma GCC unroll 8
  for (int32_t part = FIRST; part < FIRST + COUNT; part += TOGETHER) {
    Quads low[ROWS], high[ROWS];
#pragma GCC unroll 8
    for (int32_t r = 0; r < ROWS; r++) low[r] = high[r] = no_sum();
#pragma GCC unroll 8
    for (int32_t i = part; i < part + TOGETHER; i++) {
      const Quads weight = read_quad<BITS>(chunk, i);
      const Quads lower = BITS == 8 ? both(weight, 15) : weight, upper = both(shifted(weight, -4), 15);
#pragma GCC unroll 8
      for (int32_t r = 0; r < ROWS; r++) {
        const Quads own = quad(row + r * apart + 4 * i);
        low[r] = settled(add_words(low[r], products(lower, own)));
        if constexpr (BITS == 8) high[r] = settled(add_words(high[r], products(upper, own)));
      }
    }
#pragma GCC unroll 8
    for (int32_t r = 0; r < ROWS; r++) {
      sum[r] = add(sum[r], widened(low[r]));
      if constexpr (BITS == 8) sum[r] = add(sum[r], times_sixteen(widened(high[r])));
    }
  }
#endif
}

// The sum of a multiple of sixteen quants.
static inline int32_t sum_quants(const int8_t* quants, int32_t count) {
  int32_t sum = 0;
  for (int32_t i = 0; i < count; i += 16) {
#if defined(__aarch64__)
    sum += vaddlvq_s8(vld1q_s8(quants + i));
#else
    const __m128i shifted = _mm_xor_si128(_mm_loadu_si128((const __m128i*)(quants + i)), _mm_set1_epi8((char)128));
    const __m128i sums = _mm_sad_epu8(shifted, _mm_setzero_si128());
    sum += _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
#endif
  }
  return sum;
}

// Writes sixteen numbers times `by`, rounded to whole numbers, and returns the sum of these.
static inline int32_t round_sixteen(const float* from, float by, int8_t* to) {
#if defined(__AVX512F__)
  const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(from), _mm512_set1_ps(by)));
  _mm_storeu_si128((__m128i*)to, _mm512_cvtsepi32_epi8(whole));
#elif defined(__aarch64__)
  int16x4_t words[4];
  for (int32_t i = 0; i < 4; i++)
    words[i] = vqmovn_s32(vcvtnq_s32_f32(vmulq_f32(vld1q_f32(from + 4 * i), vdupq_n_f32(by))));
  vst1_s8(to, vqmovn_s16(vcombine_s16(words[0], words[1])));
  vst1_s8(to + 8, vqmovn_s16(vcombine_s16(words[2], words[3])));
#else
  const __m256 all = _mm256_set1_ps(by);
  const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(from), all));
  const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(from + 8), all));
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
  _mm_storeu_si128((__m128i*)to, _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
#endif
  return sum_quants(to, 16);
}

#if defined(__aarch64__)
static inline uint16_t to_half(float x) {
  const __fp16 half = (__fp16)x;
  uint16_t bits;
  std::memcpy(&bits, &half, 2);
  return bits;
}
static inline float from_half(uint16_t bits) {
  __fp16 half;
  std::memcpy(&half, &bits, 2);
  return (float)half;
}
#else
static inline uint16_t to_half(float x) { return (uint16_t)_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
static inline float from_half(uint16_t bits) { return _cvtsh_ss(bits); }
#endif

}  // namespace outrider
