// Weights in blocks of quantized types, as GGUF files hold them, packed for quantized.h. The layouts are those of
// ggml's ggml-common.h and ggml-quants.c. Quants and scales are those of blocks.py, to the bit.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "quantized.h"

namespace outrider {

// Elements and bytes of a block.
struct BlockSize {
  int64_t elements, bytes;
};
static inline BlockSize block_size(int32_t kind) {
  switch (kind) {
    case OUTRIDER_Q4_0: return {32, 18};
    case OUTRIDER_Q4_1: return {32, 20};
    case OUTRIDER_Q5_0: return {32, 22};
    case OUTRIDER_Q5_1: return {32, 24};
    case OUTRIDER_Q8_0: return {32, 34};
    case OUTRIDER_Q4_K: return {256, 144};
    case OUTRIDER_Q5_K: return {256, 176};
    default: return {256, 210};  // OUTRIDER_Q6_K
  }
}

// Where the quants and scales of a block go; see Quants in quantized.py.
struct BlockQuants {
  uint8_t* quants;
  float *scales, *minima, *scale_units, *minimum_units;
};

static inline void or_bits(uint8_t& byte, int32_t bits) { byte = (uint8_t)(byte | bits); }

static inline float half_at(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return from_half(bits);
}

// The lower four bits of each byte, and behind them the upper four.
static inline void put_nibbles(const uint8_t* from, int64_t count, uint8_t* to) {
  for (int64_t i = 0; i < count; i++) to[i] = from[i] & 15;
  for (int64_t i = 0; i < count; i++) to[count + i] = from[i] >> 4;
}

// Of each 64 elements, 32 bytes hold the first half below and the second above.
static inline void put_long_nibbles(const uint8_t* from, uint8_t* to) {
  for (int64_t part = 0; part < 4; part++) put_nibbles(from + 32 * part, 32, to + 64 * part);
}

// Element i of 32 has bit i of four bytes.
static inline void put_fifth_bits(const uint8_t* from, uint8_t* to) {
  uint32_t bits;
  std::memcpy(&bits, from, 4);
  for (int32_t i = 0; i < 32; i++) or_bits(to[i], (int32_t)(bits >> i & 1) << 4);
}

// Eight scales and minima of six bits in 12 bytes, and their units: see _six_bits in blocks.py.
static inline void put_six_bits(const uint8_t* block, const BlockQuants& to) {
  const uint8_t* packed = block + 4;
  *to.scale_units = half_at(block);
  *to.minimum_units = half_at(block + 2);
  for (int32_t i = 0; i < 4; i++) {
    to.scales[i] = (float)(packed[i] & 63) * *to.scale_units;
    to.minima[i] = (float)(packed[4 + i] & 63) * *to.minimum_units;
    to.scales[4 + i] = (float)((packed[8 + i] & 15) | packed[i] >> 6 << 4) * *to.scale_units;
    to.minima[4 + i] = (float)(packed[8 + i] >> 4 | packed[4 + i] >> 6 << 4) * *to.minimum_units;
  }
}

static inline void put_q8_0(const uint8_t* block, const BlockQuants& to) {
  *to.scales = half_at(block);
  for (int32_t i = 0; i < 32; i++) to.quants[i] = (uint8_t)(block[2 + i] ^ 128);
}

static inline void put_q5_k(const uint8_t* block, const BlockQuants& to) {
  put_six_bits(block, to);
  put_long_nibbles(block + 48, to.quants);
  for (int32_t part = 0; part < 8; part++)
    for (int32_t i = 0; i < 32; i++) or_bits(to.quants[32 * part + i], (block[16 + i] >> part & 1) << 4);
}

// Of each 128 elements, 64 bytes hold the lower bits, the first half below; 32 bytes hold the upper bits.
static inline void put_q6_k(const uint8_t* block, const BlockQuants& to) {
  for (int32_t half = 0; half < 2; half++) {
    put_nibbles(block + 64 * half, 64, to.quants + 128 * half);
    for (int32_t part = 0; part < 4; part++)
      for (int32_t i = 0; i < 32; i++)
        or_bits(to.quants[128 * half + 32 * part + i], (block[128 + 32 * half + i] >> 2 * part & 3) << 4);
  }
  *to.scale_units = half_at(block + 208);
  for (int32_t i = 0; i < 16; i++) to.scales[i] = (float)(int8_t)block[192 + i] * *to.scale_units;
}

// A block of 32 elements with nibbles from byte `first` on, and before them a minimum or fifth bits.
static inline void put_short(const uint8_t* block, int64_t first, bool minimum, bool fifth, const BlockQuants& to) {
  *to.scales = half_at(block);
  if (minimum) *to.minima = -half_at(block + 2);
  put_nibbles(block + first, 16, to.quants);
  if (fifth) put_fifth_bits(block + first - 4, to.quants);
}

static inline void put_block(int32_t kind, const uint8_t* block, const BlockQuants& to) {
  switch (kind) {
    case OUTRIDER_Q4_0: return put_short(block, 2, false, false, to);
    case OUTRIDER_Q4_1: return put_short(block, 4, true, false, to);
    case OUTRIDER_Q5_0: return put_short(block, 6, false, true, to);
    case OUTRIDER_Q5_1: return put_short(block, 8, true, true, to);
    case OUTRIDER_Q8_0: return put_q8_0(block, to);
    case OUTRIDER_Q4_K: return put_six_bits(block, to), put_long_nibbles(block + 16, to.quants);
    case OUTRIDER_Q5_K: return put_q5_k(block, to);
    default: return put_q6_k(block, to);
  }
}

// The quants of a strip, before they are packed. They stay in the cache; the whole weight unpacked would not.
class StripOfBlocks {
 public:
  explicit StripOfBlocks(const outrider_blocks& from)
      : from_(from),
        size_(block_size(from.kind)),
        blocks_(from.k / size_.elements),
        groups_(from.k / from.format.group),
        quants_(OUTPUTS * from.k),
        scales_(OUTPUTS * groups_),
        minima_(OUTPUTS * groups_),
        scale_units_(OUTPUTS * blocks_),
        minimum_units_(OUTPUTS * blocks_) {}

  // Packs the strip that begins with an output feature.
  void pack(uint8_t* to, int64_t first) {
    const int64_t lanes = std::min(OUTPUTS, (int64_t)from_.n - first);
    for (int64_t lane = 0; lane < lanes; lane++)
      read(from_.blocks + from_.rows[first + lane] * blocks_ * size_.bytes, lane);
    pack_quants(to, {quants_.data(), scales_.data(), minima_.data(), scale_units_.data(), minimum_units_.data(), lanes,
                     from_.k, from_.format});
  }

 private:
  void read(const uint8_t* row, int64_t lane) {
    const int64_t each = groups_ / blocks_;
    for (int64_t i = 0; i < blocks_; i++) {
      const int64_t block = lane * blocks_ + i, group = block * each;
      put_block(from_.kind, row + i * size_.bytes,
                {&quants_[block * size_.elements], &scales_[group], &minima_[group], &scale_units_[block],
                 &minimum_units_[block]});
    }
  }

  const outrider_blocks& from_;
  const BlockSize size_;
  const int64_t blocks_, groups_;  // of an output feature
  std::vector<uint8_t> quants_;
  std::vector<float> scales_, minima_, scale_units_, minimum_units_;
};

// Packs some output features, as pack_quants does.
static void pack_ggml_blocks(uint8_t* to, const outrider_blocks& from) {
  StripOfBlocks strip(from);
  const int64_t size = strip_size(from.format, from.k);
  for (int64_t first = 0; first < from.n; first += OUTPUTS, to += size) strip.pack(to, first);
}

}  // namespace outrider
