// x @ weight.T from a weight quantized to 4 to 8 bits, of which each group of input features has a scale. Rows are
// quantized to 8 bits too, so that dot products are sums of integers, which are exact in any order. Sums of scaled dot
// products run over the input features in their order: a row's bits depend on nothing else.
//
// Packed by strips of 16 output features. A strip holds its chunks of 32 input features, and then its scales. A chunk
// holds `bits` lines of 64 bytes. The quantized values (quants) of four neighbouring input features make a quad, which
// is what one lane of the dot product instructions takes. A line of 8 bits holds a quad of each output feature. In
// fewer bits, four lines hold the low four bits of eight quads, quads i and i + 4 in one line, and the lines behind
// them the bits above: unpacking is then a shift and a mask of whole lines, without a shuffle.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "abi.h"
#include "integers.h"
#include "linear.h"
#include "vector.h"

namespace outrider {

constexpr int64_t OUTPUTS = 16;     // of a strip
constexpr int64_t CHUNK = 32;       // input features of a chunk
constexpr int64_t UNIT = 256;       // input features that share a unit of scales
constexpr int64_t ROW_GROUP = 128;  // input features of a row that share a scale
#if defined(__AVX512F__)
template <int32_t BITS>
constexpr int32_t QUANTIZED_ROWS = 8;  // that are multiplied at once
#else
template <int32_t BITS>
constexpr int32_t QUANTIZED_ROWS = BITS == 8 ? 4 : 8;
#endif
static_assert(UNIT % CHUNK == 0 && ROW_GROUP % CHUNK == 0, "groups are whole chunks");

using Form = outrider_quant_format;
using Quants = outrider_quants;

// How scales lie behind the quants of a strip.
enum class Scales { PLAIN, MINIMA, UNITS, SIXTEENS };

static inline Scales scales_of(const Form& form) {
  if (form.has_units) return form.group == 16 ? Scales::SIXTEENS : Scales::UNITS;
  return form.has_minima ? Scales::MINIMA : Scales::PLAIN;
}

template <int32_t N>
using Bits = std::integral_constant<int32_t, N>;

// work(kind), the kind of scales a constant.
template <class Work>
static inline void with_scales(const Form& form, const Work& work) {
  switch (scales_of(form)) {
    case Scales::PLAIN: return work(std::integral_constant<Scales, Scales::PLAIN>());
    case Scales::MINIMA: return work(std::integral_constant<Scales, Scales::MINIMA>());
    case Scales::UNITS: return work(std::integral_constant<Scales, Scales::UNITS>());
    case Scales::SIXTEENS: return work(std::integral_constant<Scales, Scales::SIXTEENS>());
  }
}

// Whether there is a matmul for weights of such a format.
static inline bool form_known(const Form& form, int64_t k) {
  if (k % CHUNK || (form.has_units && k % UNIT) || form.group <= 0 || k % form.group) return false;
  if (form.group == 16) return form.bits == 6 && form.has_units && !form.has_minima;
  if (form.group % CHUNK || (form.has_minima && form.zero)) return false;
  if (form.has_units) return form.group == CHUNK && form.has_minima && (form.bits == 4 || form.bits == 5);
  return form.bits == 4 || form.bits == 5 || form.bits == 8;
}

// Bytes of the quants and of the scales of a strip.
static inline int64_t strip_quants(const Form& form, int64_t k) { return k / CHUNK * form.bits * 64; }
static inline int64_t strip_scales(const Form& form, int64_t k) {
  const int64_t halves = OUTPUTS * 2;
  switch (scales_of(form)) {
    case Scales::PLAIN: return k / form.group * halves;
    case Scales::MINIMA: return k / form.group * 2 * halves;
    case Scales::UNITS: return k / UNIT * (2 * halves + UNIT / CHUNK * 2 * OUTPUTS);
    default: return k / UNIT * (halves + UNIT / CHUNK * 2 * OUTPUTS);
  }
}
static inline int64_t strip_size(const Form& form, int64_t k) {
  return round_up(strip_quants(form, k) + strip_scales(form, k), 64);
}

// Writes a chunk of all lanes from its eight quads.
static inline void put_chunk(uint8_t* chunk, int32_t bits, const uint32_t quads[8][OUTPUTS]) {
  uint32_t* lines = (uint32_t*)chunk;
  if (bits == 8) {
    std::memcpy(lines, quads, 8 * OUTPUTS * 4);
    return;
  }
  constexpr uint32_t LOW = 0x0f0f0f0f, FIFTH = 0x10101010, BOTH = 0x30303030;
  for (int32_t i = 0; i < 4; i++)
    for (int64_t j = 0; j < OUTPUTS; j++) lines[i * OUTPUTS + j] = (quads[i][j] & LOW) | (quads[i + 4][j] & LOW) << 4;
  lines += 4 * OUTPUTS;
  if (bits == 5)
    for (int32_t i = 0; i < 8; i++)
      for (int64_t j = 0; j < OUTPUTS; j++) lines[j] |= (quads[i][j] & FIFTH) >> 4 << i;
  if (bits == 6)
    for (int32_t i = 0; i < 8; i++)
      for (int64_t j = 0; j < OUTPUTS; j++) lines[i % 2 * OUTPUTS + j] |= (quads[i][j] & BOTH) >> 4 << i / 2 * 2;
}
static inline int32_t get_quant(const uint8_t* chunk, int32_t bits, int32_t quad, int64_t at) {
  if (bits == 8) return chunk[quad * 64 + at];
  const int32_t low = chunk[quad % 4 * 64 + at] >> (quad / 4 * 4) & 15;
  if (bits == 5) return low | (chunk[4 * 64 + at] >> quad & 1) << 4;
  if (bits == 6) return low | (chunk[(4 + quad % 2) * 64 + at] >> quad / 2 * 2 & 3) << 4;
  return low;
}

// Writes the scales of one output feature, the strip's lane, to the strip's scales.
class ScaleWriter {
 public:
  ScaleWriter(const Quants& from, int64_t row) : from_(from), row_(row) {}

  void write(uint8_t* to, int64_t lane) const {
    const Form& form = from_.format;
    const int64_t groups = from_.k / form.group, each = form.has_minima ? 2 : 1;
    if (!form.has_units) {
      for (int64_t g = 0; g < groups; g++) {
        half(to, g * each, lane, from_.scales[row_ * groups + g]);
        if (form.has_minima) half(to, g * each + 1, lane, from_.minima[row_ * groups + g]);
      }
      return;
    }
    const int64_t inside = UNIT / form.group, step = each * OUTPUTS * 2 + UNIT / CHUNK * 2 * OUTPUTS;
    for (int64_t u = 0; u < from_.k / UNIT; u++, to += step) {
      const float unit = from_.scale_units[row_ * (from_.k / UNIT) + u];
      half(to, 0, lane, unit);
      if (form.has_minima) half(to, 1, lane, from_.minimum_units[row_ * (from_.k / UNIT) + u]);
      uint8_t* whole = to + each * OUTPUTS * 2;
      for (int64_t g = 0; g < inside; g++) {
        const int64_t group = row_ * groups + u * inside + g;
        whole[g * each * OUTPUTS + lane] = multiple(from_.scales[group], unit);
        if (form.has_minima)
          whole[(g * each + 1) * OUTPUTS + lane] =
              multiple(from_.minima[group], from_.minimum_units[row_ * (from_.k / UNIT) + u]);
      }
    }
  }

 private:
  static void half(uint8_t* to, int64_t line, int64_t lane, float value) {
    const uint16_t bits = to_half(value);
    std::memcpy(to + (line * OUTPUTS + lane) * 2, &bits, 2);
  }
  static uint8_t multiple(float value, float unit) {
    return unit == 0 ? 0 : (uint8_t)(int32_t)std::lrint(value / unit);
  }

  const Quants& from_;
  const int64_t row_;
};

// Packs some output features; the first begins a strip, and the strip of the last is filled with zeros.
static void pack_quants(uint8_t* to, const Quants& from) {
  const Form& form = from.format;
  const int64_t size = strip_size(form, from.k);
  for (int64_t first = 0; first < from.n; first += OUTPUTS, to += size) {
    const int64_t lanes = std::min(OUTPUTS, from.n - first);
    std::memset(to, 0, size);
    for (int64_t chunk = 0; chunk < from.k / CHUNK; chunk++) {
      alignas(64) uint32_t quads[8][OUTPUTS] = {};
      for (int64_t lane = 0; lane < lanes; lane++) {
        const uint8_t* quants = from.quants + (first + lane) * from.k + chunk * CHUNK;
        for (int32_t i = 0; i < 8; i++) std::memcpy(&quads[i][lane], quants + 4 * i, 4);
      }
      put_chunk(to + chunk * form.bits * 64, form.bits, quads);
    }
    for (int64_t lane = 0; lane < lanes; lane++)
      ScaleWriter(from, first + lane).write(to + strip_quants(form, from.k), lane);
  }
}

// The scale and the minimum of a lane's group, by the number of a chunk and, where groups have 16 features, its half.
struct LaneScale {
  float scale, minimum;
};
static inline LaneScale lane_scale(const Form& form, const uint8_t* scales, int64_t chunk, int64_t half, int64_t lane) {
  auto number = [&](const uint8_t* at, int64_t line) {
    uint16_t bits;
    std::memcpy(&bits, at + (line * OUTPUTS + lane) * 2, 2);
    return from_half(bits);
  };
  const int64_t each = form.has_minima ? 2 : 1;
  if (!form.has_units) {
    const int64_t group = chunk * CHUNK / form.group;
    return {number(scales, group * each), form.has_minima ? number(scales, group * each + 1) : 0.0f};
  }
  const uint8_t* unit = scales + chunk / (UNIT / CHUNK) * (each * OUTPUTS * 2 + UNIT / CHUNK * 2 * OUTPUTS);
  const uint8_t* whole = unit + each * OUTPUTS * 2 + chunk % (UNIT / CHUNK) * 2 * OUTPUTS;
  if (form.group == 16) return {number(unit, 0) * (int8_t)whole[half * OUTPUTS + lane], 0.0f};
  return {number(unit, 0) * whole[lane], number(unit, 1) * whole[OUTPUTS + lane]};
}

// Writes the numbers that one output feature's quants stand for: a row of an embedding that is also the output's
// weight.
static void dequantize_row(const Linear& linear, int64_t row, float* to) {
  const Form& form = linear.format;
  const uint8_t* strip = (const uint8_t*)linear.weight + row / OUTPUTS * strip_size(form, linear.k);
  const uint8_t* scales = strip + strip_quants(form, linear.k);
  const int64_t lane = row % OUTPUTS;
  for (int64_t i = 0; i < linear.k; i += 16) {
    const LaneScale by = lane_scale(form, scales, i / CHUNK, i % CHUNK / 16, lane);
    const uint8_t* chunk = strip + i / CHUNK * form.bits * 64;
    for (int64_t j = i; j < i + 16; j++) {
      const int32_t quant = get_quant(chunk, form.bits, (int32_t)(j % CHUNK / 4), lane * 4 + j % 4);
      to[j] = (float)(quant - form.zero) * by.scale - by.minimum;
    }
  }
}

// Rows as matmuls with quantized weights read them. Of each row: quants from -127 to 127; of every ROW_GROUP input
// features the scale; of every 32 the sum of the quants, by which minima are multiplied; and of every 16 that sum times
// the zero point of the weight, negated, from which integer sums start: the zero point then costs nothing in the inner
// loop.
struct QuantizedRows {
  int8_t* quants;
  float *scales, *sums;
  int32_t* offsets;  // of the weight at hand
  int64_t k;

  static int64_t groups(int64_t k) { return (k + ROW_GROUP - 1) / ROW_GROUP; }
  QuantizedRows from(int64_t row) const {
    return {quants + row * k, scales + row * groups(k), sums + row * (k / 32), offsets + row * (k / 16), k};
  }
};

// Quantizes a row of k numbers, a multiple of CHUNK. Where a number is infinite or none, the scale is none.
static inline void quantize_row(const float* from, const QuantizedRows& to) {
  float* scale = to.scales;
  for (int64_t first = 0; first < to.k; first += ROW_GROUP, scale++) {
    const int64_t last = std::min(first + ROW_GROUP, to.k);
    f32x8 most{}, strange{};
    for (int64_t i = first; i < last; i += 8) {
      const f32x8 v = load_eight(from + i);
      most = max(most, max(v, -v));
      strange += v - v;
    }
    const float peak = largest(most), by = peak > 1e-30f ? 127.0f / peak : 0.0f;
    *scale = peak / 127.0f + sum(strange);
    for (int64_t i = first; i < last; i += 32)
      to.sums[i / 32] =
          (float)(round_sixteen(from + i, by, to.quants + i) + round_sixteen(from + i + 16, by, to.quants + i + 16));
  }
}

// Where a weight has a zero point, the products of a row's sums by it, by 16 input features if scales are, else by 32.
static inline void offset_row(const Form& form, const QuantizedRows& to) {
  const int32_t each = form.group == 16 ? 16 : 32;
  for (int64_t i = 0; form.zero && i < to.k; i += each)
    to.offsets[i / each] = -form.zero * sum_quants(to.quants + i, each);
}

// The scales of a strip, chunk after chunk.
template <Scales KIND>
struct ScaleReader {
  const uint8_t* at;
  int64_t lane;            // the first of WIDE
  int64_t span, left = 0;  // chunks of a group or unit, and how many are left
  Floats unit{}, minimum_unit{}, scale{}, minimum{};

  void next() {
    constexpr int64_t HALVES = OUTPUTS * 2;
    constexpr bool WHOLE = KIND == Scales::UNITS || KIND == Scales::SIXTEENS;
    if (left-- == 0) {
      left = span - 1;
      unit = scale = halves_at(at + lane * 2);
      at += HALVES;
      if constexpr (KIND == Scales::MINIMA || KIND == Scales::UNITS) {
        minimum_unit = minimum = halves_at(at + lane * 2);
        at += HALVES;
      }
    }
    if constexpr (KIND == Scales::UNITS) {
      scale = times(unit, bytes_at(at + lane));
      minimum = times(minimum_unit, bytes_at(at + OUTPUTS + lane));
    }
    if constexpr (KIND == Scales::SIXTEENS) {
      scale = times(unit, signed_bytes_at(at + lane));
      minimum = times(unit, signed_bytes_at(at + OUTPUTS + lane));  // the scale of the second half
    }
    if constexpr (WHOLE) at += 2 * OUTPUTS;
  }
};

// Adds the dot products of a chunk for ROWS rows.
template <int32_t BITS, Scales KIND, int32_t ROWS>
static inline void add_chunk(const QuantizedRows& rows, int64_t c, const uint8_t* chunk, const ScaleReader<KIND>& scale,
                             Floats part[ROWS]) {
  constexpr bool SIXTEENS = KIND == Scales::SIXTEENS, ZERO = SIXTEENS || KIND == Scales::PLAIN;
  constexpr int32_t SUMS = SIXTEENS ? 2 : 1;
  Quads sum[SUMS][ROWS];
#pragma GCC unroll 8
  for (int32_t s = 0; s < SUMS; s++)
    for (int32_t r = 0; r < ROWS; r++)
      sum[s][r] = ZERO ? quad(rows.offsets + r * (rows.k / 16) + SUMS * c + s) : no_sum();
  add_quads<BITS, 0, 8 / SUMS, ROWS>(sum[0], chunk, rows.quants + c * CHUNK, rows.k);
  if constexpr (SIXTEENS) add_quads<BITS, 4, 4, ROWS>(sum[1], chunk, rows.quants + c * CHUNK, rows.k);
#pragma GCC unroll 8
  for (int32_t r = 0; r < ROWS; r++) {
    part[r] = plus(numbers(sum[0][r]), scale.scale, part[r]);
    if constexpr (SIXTEENS) part[r] = plus(numbers(sum[1][r]), scale.minimum, part[r]);
    else if constexpr (!ZERO) part[r] = minus(scale.minimum, all_lanes(rows.sums[r * (rows.k / 32) + c]), part[r]);
  }
}

// Fetches lines of the next strip into the second cache. A strip is a stream of memory of its own: the first cache has
// too few buffers to keep memory busy.
struct Ahead {
  const uint8_t* at;
  int32_t lines;  // for each chunk

  void fetch() {
    for (int32_t line = 0; line < lines; line++, at += 64) __builtin_prefetch(at, 0, 2);
  }
};

// WIDE output features of a strip for ROWS rows. Sums of ROW_GROUP input features stay in registers, since these share
// the row's scale; the totals are in `out`, because registers for both do not suffice.
template <int32_t BITS, Scales KIND, int32_t ROWS>
static inline void strip_rows(const QuantizedRows& rows, const uint8_t* chunk, ScaleReader<KIND> scale, Ahead ahead,
                              float* out, int64_t ldo) {
  for (int32_t r = 0; r < ROWS; r++) put(out + r * ldo, zeros());
  const int64_t k = rows.k, chunks = k / CHUNK, groups = QuantizedRows::groups(k);
  for (int64_t c = 0, group = 0; c < chunks; group++) {
    Floats part[ROWS];
    for (int32_t r = 0; r < ROWS; r++) part[r] = zeros();
    for (const int64_t end = std::min(c + ROW_GROUP / CHUNK, chunks); c < end; c++, chunk += BITS * 64) {
      ahead.fetch();
      scale.next();
      add_chunk<BITS, KIND, ROWS>(rows, c, chunk, scale, part);
    }
    for (int32_t r = 0; r < ROWS; r++)
      put(out + r * ldo, plus(part[r], all_lanes(rows.scales[r * groups + group]), floats(out + r * ldo)));
  }
}

// Strips [first, last) of the output for all rows, out float32 [rows, ldo]. Groups of rows share the fetching of the
// next strip, so that memory is read during all matmuls.
template <int32_t BITS, Scales KIND>
static void linear_quantized_of(const QuantizedRows& x, int64_t rows, const Linear& linear, float* out, int64_t ldo,
                                int64_t first, int64_t last) {
  constexpr int32_t LINES = BITS + 1;  // of a chunk and its scales
  const Form& form = linear.format;
  const int64_t size = strip_size(form, linear.k), quants = strip_quants(form, linear.k);
  const int64_t span = form.has_units ? UNIT / CHUNK : form.group / CHUNK;
  for (int64_t strip = first; strip < last; strip++) {
    const uint8_t* w = (const uint8_t*)linear.weight + strip * size;
    int32_t left = LINES;
    in_groups<QUANTIZED_ROWS<BITS>>(rows, [&](int64_t r, int64_t number, int64_t groups) {
      const int32_t some = (int32_t)((left + groups - 1) / groups);
      const uint8_t* next = w + size + (LINES - left) * (linear.k / CHUNK) * 64;
      with_count<QUANTIZED_ROWS<BITS>>(number, [&](auto count) {
        for (int32_t lane = 0; lane < OUTPUTS; lane += WIDE)
          strip_rows<BITS, KIND, count>(x.from(r), w + lane * 4, ScaleReader<KIND>{w + quants, lane, span},
                                        Ahead{next, lane ? 0 : some}, out + r * ldo + strip * OUTPUTS + lane, ldo);
      });
      left -= some;
    });
  }
}

// The same for a weight of any form; see `form_known`.
static void linear_quantized(const QuantizedRows& x, int64_t rows, const Linear& linear, float* out, int64_t ldo,
                             int64_t first, int64_t last) {
  const Form& form = linear.format;
  auto run = [&](auto bits, auto kind) { linear_quantized_of<bits, kind>(x, rows, linear, out, ldo, first, last); };
  with_scales(form, [&](auto kind) {
    if constexpr (kind == Scales::SIXTEENS) return run(Bits<6>(), kind);
    else if constexpr (kind == Scales::PLAIN || kind == Scales::MINIMA)
      if (form.bits == 8) return run(Bits<8>(), kind);
    if constexpr (kind != Scales::SIXTEENS) return form.bits == 5 ? run(Bits<5>(), kind) : run(Bits<4>(), kind);
  });
}

}  // namespace outrider
