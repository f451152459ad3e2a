// What the tile instructions of AMX do, for CPUs without them: Intel's "Architecture Instruction Set Extensions", chapter 3.
// It stands in front of every source file that is compiled as if there were a tile unit.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

struct EmulatedTiles {
  int rows[8] = {}, bytes[8] = {};
  alignas(64) unsigned char tile[8][16][64];
};
static thread_local EmulatedTiles emulated;

static inline void emulated_config(const void* config) {
  const unsigned char* at = (const unsigned char*)config;
  for (int i = 0; i < 8; i++) {
    uint16_t bytes;
    std::memcpy(&bytes, at + 16 + 2 * i, 2);
    emulated.bytes[i] = bytes;
    emulated.rows[i] = at[48 + i];
  }
  std::memset(emulated.tile, 0, sizeof emulated.tile);
}
static inline void emulated_release() {
  EmulatedTiles none{};
  std::memcpy(emulated.rows, none.rows, sizeof none.rows);
  std::memcpy(emulated.bytes, none.bytes, sizeof none.bytes);
}
static inline void emulated_zero(int t) { std::memset(emulated.tile[t], 0, sizeof emulated.tile[t]); }
static inline void emulated_load(int t, const void* from, long stride) {
  emulated_zero(t);
  for (int r = 0; r < emulated.rows[t]; r++) std::memcpy(emulated.tile[t][r], (const char*)from + r * stride, emulated.bytes[t]);
}
static inline void emulated_store(int t, void* to, long stride) {
  for (int r = 0; r < emulated.rows[t]; r++) std::memcpy((char*)to + r * stride, emulated.tile[t][r], emulated.bytes[t]);
}
static inline float emulated_wide(const unsigned char* from) {
  uint32_t bits = (uint32_t)from[1] << 24 | (uint32_t)from[0] << 16;
  float wide;
  std::memcpy(&wide, &bits, 4);
  return wide;
}
static inline void emulated_products(int c, int a, int b) {
  for (int m = 0; m < emulated.rows[c]; m++)
    for (int k = 0; k < emulated.bytes[a] / 4 && k < emulated.rows[b]; k++)
      for (int n = 0; n < emulated.bytes[c] / 4; n++) {
        float sum;
        std::memcpy(&sum, &emulated.tile[c][m][4 * n], 4);
        for (int e = 0; e < 2; e++)
          sum = __builtin_fmaf(emulated_wide(&emulated.tile[a][m][4 * k + 2 * e]),
                               emulated_wide(&emulated.tile[b][k][4 * n + 2 * e]), sum);
        std::memcpy(&emulated.tile[c][m][4 * n], &sum, 4);
      }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated_config
#define _tile_release emulated_release
#define _tile_zero emulated_zero
#define _tile_loadd emulated_load
#define _tile_stored emulated_store
#define _tile_dpbf16ps emulated_products
