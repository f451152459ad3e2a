// Vectors of 8-bit quants and of their sums: sixteen lanes with AVX-512, else eight. One set of names for both widths,
// so that quantized.h is written once.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

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
template <int32_t BY>
static inline Quads shifted(Quads v) {
  if constexpr (BY > 0) return _mm512_slli_epi16(v, BY);
  else if constexpr (BY < 0) return _mm512_srli_epi16(v, -BY);
  else return v;
}
static inline Quads either(Quads a, Quads b) { return _mm512_or_si512(a, b); }
static inline Quads no_sum() { return _mm512_setzero_si512(); }
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
template <int32_t BY>
static inline Quads shifted(Quads v) {
  if constexpr (BY > 0) return _mm256_slli_epi16(v, BY);
  else if constexpr (BY < 0) return _mm256_srli_epi16(v, -BY);
  else return v;
}
static inline Quads either(Quads a, Quads b) { return _mm256_or_si256(a, b); }
static inline Quads no_sum() { return _mm256_setzero_si256(); }
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

// Adds to each lane's sum the products of its four quants, unsigned, by four of a row, from -127 to 127. VNNI has one
// instruction for it; before, sums of two products must fit into 16 bits, which 8-bit quants do not: these are split.
template <int32_t BITS>
static inline Quads add_quads(Quads sum, Quads quants, Quads row) {
#if defined(__AVX512VNNI__)
  return _mm512_dpbusd_epi32(sum, quants, row);
#elif defined(__AVX512F__)
  const Quads ones = _mm512_set1_epi16(1);
  auto products = [&](Quads some) { return _mm512_madd_epi16(_mm512_maddubs_epi16(some, row), ones); };
  if constexpr (BITS < 8) return _mm512_add_epi32(sum, products(quants));
  const Quads high = products(both(shifted<-4>(quants), 15));  // pairs of products of 8 bits do not fit into 16
  return _mm512_add_epi32(_mm512_add_epi32(sum, products(both(quants, 15))), _mm512_slli_epi32(high, 4));
#else
  const Quads ones = _mm256_set1_epi16(1);
  auto products = [&](Quads some) { return _mm256_madd_epi16(_mm256_maddubs_epi16(some, row), ones); };
  if constexpr (BITS < 8) return _mm256_add_epi32(sum, products(quants));
  const Quads high = products(both(shifted<-4>(quants), 15));  // pairs of products of 8 bits do not fit into 16
  return _mm256_add_epi32(_mm256_add_epi32(sum, products(both(quants, 15))), _mm256_slli_epi32(high, 4));
#endif
}

// The sum of a multiple of sixteen quants.
static inline int32_t sum_quants(const int8_t* quants, int32_t count) {
  int32_t sum = 0;
  for (int32_t i = 0; i < count; i += 16) {
    const __m128i shifted = _mm_xor_si128(_mm_loadu_si128((const __m128i*)(quants + i)), _mm_set1_epi8((char)128));
    const __m128i sums = _mm_sad_epu8(shifted, _mm_setzero_si128());
    sum += _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
  }
  return sum;
}

// Writes sixteen numbers times `by`, rounded to whole numbers, and returns the sum of these.
static inline int32_t round_sixteen(const float* from, float by, int8_t* to) {
#if defined(__AVX512F__)
  const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(from), _mm512_set1_ps(by)));
  _mm_storeu_si128((__m128i*)to, _mm512_cvtsepi32_epi8(whole));
#else
  const __m256 all = _mm256_set1_ps(by);
  const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(from), all));
  const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(from + 8), all));
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
  _mm_storeu_si128((__m128i*)to, _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
#endif
  return sum_quants(to, 16);
}

static inline uint16_t to_half(float x) { return (uint16_t)_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
static inline float from_half(uint16_t bits) { return _cvtsh_ss(bits); }

}  // namespace outrider
