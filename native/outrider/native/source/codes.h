// x @ weight.T from a weight in codes of 4 to 8 bits, of which each group of input features has a scale. Rows are codes of
// 8 bits too, so that products are sums of integers, which are exact in any order. Sums of scaled products run over the
// input features in their order: a row's bits depend on nothing else.
//
// Packed by strips of 16 output features. A strip holds its chunks of 32 input features, and then its scales. A chunk holds
// `bits` lines of 64 bytes. The codes of four neighbouring input features make a quad. A line of 8 bits holds a quad of each
// output feature. In fewer bits, four lines hold the low four bits of eight quads, quads i and i + 4 in one line, and the
// lines behind them the bits above.
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

constexpr long OUTPUTS = 16;  // of a strip
constexpr long CHUNK = 32;    // input features of a chunk
constexpr long UNIT = 256;    // input features that share a unit of scales
constexpr long ROW_GROUP = 128;  // input features of a row that share a scale
#if defined(__AVX512F__)
constexpr int CODED_ROWS = 8;  // that are multiplied at once
#else
constexpr int CODED_ROWS = 4;
#endif
static_assert(UNIT % CHUNK == 0 && ROW_GROUP % CHUNK == 0, "groups are whole chunks");

using Form = outrider_code_format;
using Codes = outrider_codes;

// How scales lie behind the codes of a strip.
enum class Scales { PLAIN, MINIMA, UNITS, SIXTEENS };

static inline Scales scales_of(const Form& form) {
  if (form.has_units) return form.group == 16 ? Scales::SIXTEENS : Scales::UNITS;
  return form.has_minima ? Scales::MINIMA : Scales::PLAIN;
}

template <int N>
using Bits = std::integral_constant<int, N>;

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

// Whether there is a product for such codes.
static inline bool form_known(const Form& form, long k) {
  if (k % CHUNK || (form.has_units && k % UNIT) || form.group <= 0 || k % form.group) return false;
  if (form.group == 16) return form.bits == 6 && form.has_units && !form.has_minima;
  if (form.group % CHUNK || (form.has_minima && form.zero)) return false;
  if (form.has_units) return form.group == CHUNK && form.has_minima && (form.bits == 4 || form.bits == 5);
  return form.bits == 4 || form.bits == 5 || form.bits == 8;
}

// Bytes of the codes and of the scales of a strip.
static inline long strip_codes(const Form& form, long k) { return k / CHUNK * form.bits * 64; }
static inline long strip_scales(const Form& form, long k) {
  const long halves = OUTPUTS * 2;
  switch (scales_of(form)) {
    case Scales::PLAIN: return k / form.group * halves;
    case Scales::MINIMA: return k / form.group * 2 * halves;
    case Scales::UNITS: return k / UNIT * (2 * halves + UNIT / CHUNK * 2 * OUTPUTS);
    default: return k / UNIT * (halves + UNIT / CHUNK * 2 * OUTPUTS);
  }
}
static inline long strip_size(const Form& form, long k) { return round_up(strip_codes(form, k) + strip_scales(form, k), 64); }

// Writes a chunk of all lanes from its eight quads.
static inline void put_chunk(uint8_t* chunk, int bits, const uint32_t quads[8][OUTPUTS]) {
  uint32_t* lines = (uint32_t*)chunk;
  if (bits == 8) {
    std::memcpy(lines, quads, 8 * OUTPUTS * 4);
    return;
  }
  constexpr uint32_t LOW = 0x0f0f0f0f, FIFTH = 0x10101010, BOTH = 0x30303030;
  for (int i = 0; i < 4; i++)
    for (long j = 0; j < OUTPUTS; j++) lines[i * OUTPUTS + j] = (quads[i][j] & LOW) | (quads[i + 4][j] & LOW) << 4;
  lines += 4 * OUTPUTS;
  if (bits == 5)
    for (int i = 0; i < 8; i++)
      for (long j = 0; j < OUTPUTS; j++) lines[j] |= (quads[i][j] & FIFTH) >> 4 << i;
  if (bits == 6)
    for (int i = 0; i < 8; i++)
      for (long j = 0; j < OUTPUTS; j++) lines[i % 2 * OUTPUTS + j] |= (quads[i][j] & BOTH) >> 4 << i / 2 * 2;
}
static inline int get_code(const uint8_t* chunk, int bits, int quad, long at) {
  if (bits == 8) return chunk[quad * 64 + at];
  const int low = chunk[quad % 4 * 64 + at] >> (quad / 4 * 4) & 15;
  if (bits == 5) return low | (chunk[4 * 64 + at] >> quad & 1) << 4;
  if (bits == 6) return low | (chunk[(4 + quad % 2) * 64 + at] >> quad / 2 * 2 & 3) << 4;
  return low;
}

// Writes the scales of one output feature, the strip's lane, to the strip's scales.
class ScaleWriter {
 public:
  ScaleWriter(const Codes& from, long row) : from_(from), row_(row) {}

  void write(uint8_t* to, long lane) const {
    const Form& form = from_.format;
    const long groups = from_.k / form.group, each = form.has_minima ? 2 : 1;
    if (!form.has_units) {
      for (long g = 0; g < groups; g++) {
        half(to, g * each, lane, from_.scales[row_ * groups + g]);
        if (form.has_minima) half(to, g * each + 1, lane, from_.minima[row_ * groups + g]);
      }
      return;
    }
    const long inside = UNIT / form.group, step = each * OUTPUTS * 2 + UNIT / CHUNK * 2 * OUTPUTS;
    for (long u = 0; u < from_.k / UNIT; u++, to += step) {
      const float unit = from_.scale_units[row_ * (from_.k / UNIT) + u];
      half(to, 0, lane, unit);
      if (form.has_minima) half(to, 1, lane, from_.minimum_units[row_ * (from_.k / UNIT) + u]);
      uint8_t* whole = to + each * OUTPUTS * 2;
      for (long g = 0; g < inside; g++) {
        const long group = row_ * groups + u * inside + g;
        whole[g * each * OUTPUTS + lane] = multiple(from_.scales[group], unit);
        if (form.has_minima)
          whole[(g * each + 1) * OUTPUTS + lane] =
              multiple(from_.minima[group], from_.minimum_units[row_ * (from_.k / UNIT) + u]);
      }
    }
  }

 private:
  static void half(uint8_t* to, long line, long lane, float value) {
    const uint16_t bits = to_half(value);
    std::memcpy(to + (line * OUTPUTS + lane) * 2, &bits, 2);
  }
  static uint8_t multiple(float value, float unit) { return unit == 0 ? 0 : (uint8_t)(int)std::lrint(value / unit); }

  const Codes& from_;
  const long row_;
};

// Packs some output features; the first begins a strip, and the strip of the last is filled with zeros.
static void pack_codes(uint8_t* to, const Codes& from) {
  const Form& form = from.format;
  const long size = strip_size(form, from.k);
  for (long first = 0; first < from.n; first += OUTPUTS, to += size) {
    const long lanes = std::min(OUTPUTS, from.n - first);
    std::memset(to, 0, size);
    for (long chunk = 0; chunk < from.k / CHUNK; chunk++) {
      alignas(64) uint32_t quads[8][OUTPUTS] = {};
      for (long lane = 0; lane < lanes; lane++) {
        const uint8_t* codes = from.codes + (first + lane) * from.k + chunk * CHUNK;
        for (int i = 0; i < 8; i++) std::memcpy(&quads[i][lane], codes + 4 * i, 4);
      }
      put_chunk(to + chunk * form.bits * 64, form.bits, quads);
    }
    for (long lane = 0; lane < lanes; lane++) ScaleWriter(from, first + lane).write(to + strip_codes(form, from.k), lane);
  }
}

// The scale and the minimum of a lane's group, by the number of a chunk and, where groups have 16 features, its half.
struct LaneScale {
  float scale, minimum;
};
static inline LaneScale lane_scale(const Form& form, const uint8_t* scales, long chunk, long half, long lane) {
  auto number = [&](const uint8_t* at, long line) {
    uint16_t bits;
    std::memcpy(&bits, at + (line * OUTPUTS + lane) * 2, 2);
    return from_half(bits);
  };
  const long each = form.has_minima ? 2 : 1;
  if (!form.has_units) {
    const long group = chunk * CHUNK / form.group;
    return {number(scales, group * each), form.has_minima ? number(scales, group * each + 1) : 0.0f};
  }
  const uint8_t* unit = scales + chunk / (UNIT / CHUNK) * (each * OUTPUTS * 2 + UNIT / CHUNK * 2 * OUTPUTS);
  const uint8_t* whole = unit + each * OUTPUTS * 2 + chunk % (UNIT / CHUNK) * 2 * OUTPUTS;
  if (form.group == 16) return {number(unit, 0) * (int8_t)whole[half * OUTPUTS + lane], 0.0f};
  return {number(unit, 0) * whole[lane], number(unit, 1) * whole[OUTPUTS + lane]};
}

// Writes the numbers that one output feature's codes stand for.
static void expand_codes(const Linear& linear, long row, float* to) {
  const Form& form = linear.format;
  const uint8_t* strip = (const uint8_t*)linear.weight + row / OUTPUTS * strip_size(form, linear.k);
  const uint8_t* scales = strip + strip_codes(form, linear.k);
  const long lane = row % OUTPUTS;
  for (long i = 0; i < linear.k; i += 16) {
    const LaneScale by = lane_scale(form, scales, i / CHUNK, i % CHUNK / 16, lane);
    const uint8_t* chunk = strip + i / CHUNK * form.bits * 64;
    for (long j = i; j < i + 16; j++) {
      const int code = get_code(chunk, form.bits, (int)(j % CHUNK / 4), lane * 4 + j % 4);
      to[j] = (float)(code - form.zero) * by.scale - by.minimum;
    }
  }
}

// Rows as products with codes read them. Of each row: codes from -127 to 127; of every ROW_GROUP input features the scale;
// of every 32 the sum of the codes; and of every 16 that sum times the zero of each weight, negated.
struct CodedRows {
  int8_t* codes;
  float *scales, *sums;
  int32_t* offsets;  // of the weight at hand
  long k;

  static long groups(long k) { return (k + ROW_GROUP - 1) / ROW_GROUP; }
  CodedRows from(long row) const {
    return {codes + row * k, scales + row * groups(k), sums + row * (k / 32), offsets + row * (k / 16), k};
  }
};

// Codes a row of k numbers, a multiple of CHUNK. Where a number is infinite or none, the scale is none.
static inline void code_row(const float* from, const CodedRows& to) {
  float* scale = to.scales;
  for (long first = 0; first < to.k; first += ROW_GROUP, scale++) {
    const long last = std::min(first + ROW_GROUP, to.k);
    f32x16 most{}, strange{};
    for (long i = first; i < last; i += LANES) {
      const f32x16 v = load(from + i);
      most = max(most, max(v, -v));
      strange += v - v;
    }
    const float peak = largest(most), by = peak > 1e-30f ? 127.0f / peak : 0.0f;
    *scale = peak / 127.0f + sum(strange);
    for (long i = first; i < last; i += 32)
      to.sums[i / 32] = (float)(round_sixteen(from + i, by, to.codes + i) + round_sixteen(from + i + 16, by, to.codes + i + 16));
  }
}

// Where a weight has a zero, the products of a row's codes by it, by 16 input features if scales are, else by 32.
static inline void offset_row(const Form& form, const CodedRows& to) {
  const int each = form.group == 16 ? 16 : 32;
  for (long i = 0; form.zero && i < to.k; i += each) to.offsets[i / each] = -form.zero * sum_codes(to.codes + i, each);
}

// work(i) for i below N, each a constant.
template <int N, class Work>
static inline void unrolled(const Work& work) {
  if constexpr (N > 0) {
    unrolled<N - 1>(work);
    work(std::integral_constant<int, N - 1>());
  }
}

// The eight quads of a chunk.
template <int BITS>
static inline void read_chunk(const uint8_t* chunk, Quads to[8]) {
  if constexpr (BITS == 8) {
    for (int i = 0; i < 8; i++) to[i] = quads(chunk + i * 64);
    return;
  }
  for (int i = 0; i < 4; i++) {
    const Quads line = quads(chunk + i * 64);
    to[i] = both(line, 15);
    to[i + 4] = both(shifted<-4>(line), 15);
  }
  if constexpr (BITS == 5) {
    const Quads high = quads(chunk + 4 * 64);
    unrolled<8>([&](auto i) { to[i] = either(to[i], both(shifted<4 - i>(high), 16)); });
  }
  if constexpr (BITS == 6) {
    const Quads high[2] = {quads(chunk + 4 * 64), quads(chunk + 5 * 64)};
    unrolled<8>([&](auto i) { to[i] = either(to[i], both(shifted<4 - i / 2 * 2>(high[i % 2]), 48)); });
  }
}

// The scales of a strip, chunk after chunk.
template <Scales KIND>
struct ScaleReader {
  const uint8_t* at;
  long lane;            // the first of WIDE
  long span, left = 0;  // chunks of a group or unit, and how many are left
  Floats unit, minimum_unit, scale, minimum;

  void next() {
    constexpr long HALVES = OUTPUTS * 2;
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

// Adds the products of a chunk for ROWS rows, whose sums are independent, so that none waits for another.
template <int BITS, Scales KIND, int ROWS>
static inline void add_chunk(const CodedRows& rows, long c, const Quads weight[8], const ScaleReader<KIND>& scale,
                             Floats part[ROWS]) {
  constexpr bool SIXTEENS = KIND == Scales::SIXTEENS, ZERO = SIXTEENS || KIND == Scales::PLAIN;
  constexpr int SUMS = SIXTEENS ? 2 : 1;
  Quads sum[ROWS][2];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
    for (int s = 0; s < SUMS; s++)
      sum[r][s] = ZERO ? quad(rows.offsets + r * (rows.k / 16) + SUMS * c + s) : no_sum();
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++)
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      Quads& to = sum[r][SIXTEENS ? i / 4 : 0];
      to = add_quads<BITS>(to, weight[i], quad(rows.codes + r * rows.k + c * CHUNK + 4 * i));
    }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) {
    part[r] = plus(numbers(sum[r][0]), scale.scale, part[r]);
    if constexpr (SIXTEENS) part[r] = plus(numbers(sum[r][1]), scale.minimum, part[r]);
    else if constexpr (!ZERO) part[r] = minus(scale.minimum, all_lanes(rows.sums[r * (rows.k / 32) + c]), part[r]);
  }
}

// Fetches lines of the next strip into the second cache. A strip is a stream of memory of its own: the first cache has too
// few buffers to keep memory busy.
struct Ahead {
  const uint8_t* at;
  int lines;  // for each chunk

  void fetch() {
    for (int line = 0; line < lines; line++, at += 64) _mm_prefetch((const char*)at, _MM_HINT_T1);
  }
};

// WIDE output features of a strip for ROWS rows.
template <int BITS, Scales KIND, int ROWS>
static inline void strip_rows(const CodedRows& rows, const uint8_t* chunk, ScaleReader<KIND> scale, Ahead ahead, float* out,
                              long ldo) {
  for (int r = 0; r < ROWS; r++) put(out + r * ldo, zeros());
  const long k = rows.k, chunks = k / CHUNK, groups = CodedRows::groups(k);
  for (long c = 0, group = 0; c < chunks; group++) {
    Floats part[ROWS];
    for (int r = 0; r < ROWS; r++) part[r] = zeros();
    for (const long end = std::min(c + ROW_GROUP / CHUNK, chunks); c < end; c++, chunk += BITS * 64) {
      ahead.fetch();
      Quads weight[8];
      read_chunk<BITS>(chunk, weight);
      scale.next();
      add_chunk<BITS, KIND, ROWS>(rows, c, weight, scale, part);
    }
    for (int r = 0; r < ROWS; r++)
      put(out + r * ldo, plus(part[r], all_lanes(rows.scales[r * groups + group]), floats(out + r * ldo)));
  }
}

// Strips [first, last) of the output for all rows, out float32 [rows, ldo]. Groups of rows share the fetching of the next
// strip, so that memory is read during all products.
template <int BITS, Scales KIND>
static void linear_codes_of(const CodedRows& x, long rows, const Linear& linear, float* out, long ldo, long first, long last) {
  constexpr int LINES = BITS + 1;  // of a chunk and its scales
  const Form& form = linear.format;
  const long size = strip_size(form, linear.k), codes = strip_codes(form, linear.k);
  const long span = form.has_units ? UNIT / CHUNK : form.group / CHUNK;
  for (long strip = first; strip < last; strip++) {
    const uint8_t* w = (const uint8_t*)linear.weight + strip * size;
    int left = LINES;
    in_groups<CODED_ROWS>(rows, [&](long r, long number, long groups) {
      const int some = (int)((left + groups - 1) / groups);
      const uint8_t* next = w + size + (LINES - left) * (linear.k / CHUNK) * 64;
      with_count<CODED_ROWS>(number, [&](auto count) {
        for (int lane = 0; lane < OUTPUTS; lane += WIDE)
          strip_rows<BITS, KIND, count>(x.from(r), w + lane * 4, ScaleReader<KIND>{w + codes, lane, span},
                                        Ahead{next, lane ? 0 : some}, out + r * ldo + strip * OUTPUTS + lane, ldo);
      });
      left -= some;
    });
  }
}

// The same for a weight of any form; see `form_known`.
static void linear_codes(const CodedRows& x, long rows, const Linear& linear, float* out, long ldo, long first, long last) {
  const Form& form = linear.format;
  auto run = [&](auto bits, auto kind) { linear_codes_of<bits, kind>(x, rows, linear, out, ldo, first, last); };
  with_scales(form, [&](auto kind) {
    if constexpr (kind == Scales::SIXTEENS) return run(Bits<6>(), kind);
    else if constexpr (kind == Scales::PLAIN || kind == Scales::MINIMA)
      if (form.bits == 8) return run(Bits<8>(), kind);
    if constexpr (kind != Scales::SIXTEENS) return form.bits == 5 ? run(Bits<5>(), kind) : run(Bits<4>(), kind);
  });
}
