// What vpdpbusd does in vectors of 256 bits (AVX-VNNI), for CPUs without it: four products of an unsigned and a signed
// byte are added to each lane of 32 bits.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

static inline __m256i emulated_dots(__m256i sum, __m256i quants, __m256i row) {
  int32_t lanes[8];
  uint8_t a[32];
  int8_t b[32];
  std::memcpy(lanes, &sum, 32);
  std::memcpy(a, &quants, 32);
  std::memcpy(b, &row, 32);
  for (int i = 0; i < 32; i++) lanes[i / 4] += a[i] * b[i];
  std::memcpy(&sum, lanes, 32);
  return sum;
}
#undef _mm256_dpbusd_avx_epi32
#define _mm256_dpbusd_avx_epi32 emulated_dots
