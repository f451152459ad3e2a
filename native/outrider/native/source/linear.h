// x @ weight.T for few rows, from a packed weight. A row's sums run over the input features in their order, whatever
// other rows there are: its bits depend on nothing else. So the input features are never split between threads or
// accumulators, and instruction-level parallelism comes from outputs: a kernel holds rows times outputs sums in
// registers.
#pragma once
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "vector.h"
#if defined(__AMX_BF16__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace outrider {

constexpr int64_t BLOCK = 64;  // output features of a block of the vector kernel
constexpr int32_t MOST_ROWS = 6;
#if defined(__AVX512F__)
constexpr int64_t STRIP = BLOCK;  // output features whose weights lie together
#else
constexpr int64_t STRIP = 16;
#endif

static inline int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

// Where output feature j of a strip lies. `load_strip` splits words of 32 bits into two bfloat16 numbers.
template <class W>
static constexpr int64_t place_in_strip(int64_t j) {
  return STRIP == 16 && std::is_same<W, bf16>::value ? j % 8 * 2 + j / 8 : j;
}

// Packed as [n / STRIP][k / TOGETHER][STRIP][TOGETHER], filled with zeros up to whole blocks; TOGETHER divides k.
template <int32_t TOGETHER, class W>
static void pack_blocks(W* to, const W* from, int64_t n, int64_t k) {
  for (int64_t strip = 0; strip * STRIP < round_up(n, BLOCK); strip++)
    for (int64_t i = 0; i < k; i++)
      for (int64_t j = 0; j < STRIP; j++) {
        int64_t row = strip * STRIP + j,
                at = (strip * k + i / TOGETHER * TOGETHER) * STRIP + place_in_strip<W>(j) * TOGETHER + i % TOGETHER;
        to[at] = row < n ? from[row * k + i] : W{};
      }
}

#if defined(__AVX512F__)
// A block of 64 output features for ROWS rows: 4 * ROWS sums, 4 weights and a broadcast input fill 29 of 32 registers
// with MOST_ROWS rows.
template <int32_t ROWS, class W>
static inline void block_rows(const float* x, int64_t ldx, const W* w, int64_t k, float* out, int64_t ldo) {
  f32x16 sum[ROWS][4] = {};
  for (int64_t i = 0; i < k; i++, w += BLOCK) {
    f32x16 w0 = load(w), w1 = load(w + 16), w2 = load(w + 32), w3 = load(w + 48);
    for (int32_t r = 0; r < ROWS; r++) {
      f32x16 a = splat(x[r * ldx + i]);
      sum[r][0] += a * w0;
      sum[r][1] += a * w1;
      sum[r][2] += a * w2;
      sum[r][3] += a * w3;
    }
  }
  for (int32_t r = 0; r < ROWS; r++)
    for (int32_t i = 0; i < 4; i++) store(out + r * ldo + i * LANES, sum[r][i]);
}
#endif

#if defined(__AVX512BF16__)
constexpr int64_t NEAR = 4096;  // bytes

// Of bfloat16 rows by weights packed in pairs of input features. Each pair of features fetches LINES lines of weights.
// Four lines lie NEAR bytes ahead and go to the first cache: a line that goes to the second takes a fill buffer twice.
// Fewer lines belong to the next block, lie at `ahead`, and go to the second cache, for all groups of rows.
template <int32_t ROWS, int32_t LINES>
static inline void block_rows(const bf16* x, int64_t ldx, const bf16* w, int64_t k, float* out, int64_t ldo,
                              const char* ahead) {
  f32x16 sum[ROWS][4] = {};
  for (int64_t i = 0; i < k; i += 2, w += 2 * BLOCK, ahead += 64 * LINES) {
    for (int32_t line = 0; line < LINES; line++)
      if constexpr (LINES == 4) _mm_prefetch((const char*)w + NEAR + line * 64, _MM_HINT_T0);
      else _mm_prefetch(ahead + line * 64, _MM_HINT_T1);
    u32x16 w0 = pairs(w), w1 = pairs(w + 32), w2 = pairs(w + 64), w3 = pairs(w + 96);
    for (int32_t r = 0; r < ROWS; r++) {
      u32x16 a = splat_pair(x + r * ldx + i);
      sum[r][0] = add_dots(sum[r][0], a, w0);
      sum[r][1] = add_dots(sum[r][1], a, w1);
      sum[r][2] = add_dots(sum[r][2], a, w2);
      sum[r][3] = add_dots(sum[r][3], a, w3);
    }
  }
  for (int32_t r = 0; r < ROWS; r++)
    for (int32_t i = 0; i < 4; i++) store(out + r * ldo + i * LANES, sum[r][i]);
}
#endif

// Calls work(count), the count a compile-time constant of 1 to MOST.
template <int32_t MOST, class Work>
static inline void with_count(int64_t count, const Work& work) {
  if constexpr (MOST > 0) {
    if (count == MOST) return work(std::integral_constant<int32_t, MOST>());
    with_count<MOST - 1>(count, work);
  }
}

// work(first row, count, groups left) for groups of at most MOST rows, as few and as equal as can be: each group reads
// the weights of a block anew, which a group of one or two rows waits for.
template <int32_t MOST, class Work>
static inline void in_groups(int64_t rows, const Work& work) {
  int64_t groups = (rows + MOST - 1) / MOST;
  for (int64_t r = 0; r < rows; groups--) {
    const int64_t count = (rows - r + groups - 1) / groups;
    work(r, count, groups);
    r += count;
  }
}

// Blocks [first, last) of the output for all rows: x [rows, ldx], out float32 [rows, ldo]. Blocks or strips are
// outside, rows inside: weights come from memory for the first group and from the cache for the others.
#if defined(__AVX512F__)
template <class X, class W>
static void linear_blocks(const X* x, int64_t ldx, int64_t rows, const W* weight, int64_t k, float* out, int64_t ldo,
                          int64_t first, int64_t last) {
  for (int64_t block = first; block < last; block++)
    in_groups<MOST_ROWS>(rows, [&](int64_t r, int64_t number, int64_t) {
      with_count<MOST_ROWS>(number, [&](auto count) {
        block_rows<count>(x + r * ldx, ldx, weight + block * k * BLOCK, k, out + r * ldo + block * BLOCK, ldo);
      });
    });
}
#else
// The weights of a strip by one input feature.
template <class W>
static inline Halves load_strip(const W* p) {
  return {load_eight(p), load_eight(p + 8)};
}
static inline Halves load_strip(const bf16* p) {
  const u32x8 words = *(const u32x8u*)p;
  return {(f32x8)(words << 16), (f32x8)(words & 0xffff0000)};
}

// STRIPS side by side for ROWS rows: as many sums as sixteen registers of eight floats hold beside a weight and a row.
// One or two rows wait for memory alone, which the CPU reads ahead by itself. Behind the multiplications of more rows
// it reads too little: these fetch `pace` bytes of later weights for each input feature into the second cache.
template <int32_t ROWS, int32_t STRIPS, class W>
static inline void strip_rows(const float* x, int64_t ldx, const W* w, int64_t k, float* out, int64_t ldo,
                              const char* ahead, int64_t pace) {
  f32x8 sum[ROWS][2 * STRIPS] = {};
  auto add = [&](int64_t i) {
    for (int32_t s = 0; s < STRIPS; s++) {
      const Halves weight = load_strip(w + (s * k + i) * STRIP);
      for (int32_t r = 0; r < ROWS; r++) {
        const f32x8 a = eight_of(x[r * ldx + i]);
        sum[r][2 * s] += a * weight.low;
        sum[r][2 * s + 1] += a * weight.high;
      }
    }
  };
  // Two features at a time want two weights in registers, for which MOST_ROWS rows leave no room.
  constexpr int64_t STEP = ROWS > 2 && ROWS < MOST_ROWS ? 2 : 1;
  int64_t i = 0;
  for (; i + STEP <= k; i += STEP, ahead += STEP * pace) {
    if constexpr (ROWS > 2) __builtin_prefetch(ahead, 0, 2);
    for (int64_t j = 0; j < STEP; j++) add(i + j);
  }
  if (i < k) add(i);
  for (int32_t r = 0; r < ROWS; r++)
    for (int32_t j = 0; j < 2 * STRIPS; j++) store(out + r * ldo + j * 8, sum[r][j]);
}

template <class W>
static void linear_blocks(const float* x, int64_t ldx, int64_t rows, const W* weight, int64_t k, float* out,
                          int64_t ldo, int64_t first, int64_t last) {
  // Few rows leave registers for more strips, which one pass over the input then serves.
  const int64_t strips = rows > 2 ? 1 : rows > 1 ? 2 : 4, groups = (rows + MOST_ROWS - 1) / MOST_ROWS;
  // Groups share the fetching of the next strip, so that memory is read during all multiplications.
  const int64_t pace = std::max<int64_t>(STRIP * (int64_t)sizeof(W) / groups, 1);
  for (int64_t at = first * BLOCK; at < last * BLOCK; at += strips * STRIP) {
    const W* w = weight + at * k;
    const char* next = (const char*)(w + strips * STRIP * k);
    in_groups<MOST_ROWS>(rows, [&](int64_t r, int64_t number, int64_t) {
      with_count<MOST_ROWS>(number, [&](auto count) {
        constexpr int32_t STRIPS = count > 2 ? 1 : count > 1 ? 2 : 4;
        strip_rows<count, STRIPS>(x + r * ldx, ldx, w, k, out + r * ldo + at, ldo, next, pace);
      });
      next += pace * k;
    });
  }
}
#endif

#if defined(__AVX512BF16__)
// work(lines), the lines a constant: as many as the first of so many groups fetches where `left` are left for all.
template <class Work>
static inline void with_lines(int32_t left, int64_t groups, const Work& work) {
  switch ((left + groups - 1) / groups) {
    case 4: return work(std::integral_constant<int32_t, 4>());
    case 2: return work(std::integral_constant<int32_t, 2>());
    case 1: return work(std::integral_constant<int32_t, 1>());
    case 0: return work(std::integral_constant<int32_t, 0>());
  }
}

// The same for bfloat16. Each pair of features has four lines of weights. A single group of rows fetches its own.
// Several groups share the fetching of the next block's lines, so that memory is read during all matmuls.
static void linear_blocks(const bf16* x, int64_t ldx, int64_t rows, const bf16* weight, int64_t k, float* out,
                          int64_t ldo, int64_t first, int64_t last) {
  for (int64_t block = first; block < last; block++) {
    const bf16* w = weight + block * k * BLOCK;
    const char* next = (const char*)(w + k * BLOCK);
    int32_t left = 4;
    in_groups<MOST_ROWS>(rows, [&](int64_t r, int64_t number, int64_t groups) {
      with_lines(left, groups, [&](auto lines) {
        with_count<MOST_ROWS>(number, [&](auto count) {
          block_rows<count, lines>(x + r * ldx, ldx, w, k, out + r * ldo + block * BLOCK, ldo, next);
        });
        left -= lines;
        next += lines * k * 32;
      });
    });
  }
}
#endif

#if defined(__AMX_BF16__)
constexpr int64_t TILE = 512;  // elements of a tile of weights: 16 output by 32 input features
constexpr int64_t WIDTH = 32;  // output features of a block of the tile kernel

// Packed as [n / 32][k / 32][2] tiles of [16 pairs of input features][16 output features][2].
static inline void pack_tiles(bf16* to, const bf16* from, int64_t n, int64_t k) {
  int64_t steps = round_up(k, 32) / 32;
  for (int64_t block = 0; block * WIDTH < n; block++)
    for (int64_t step = 0; step < steps; step++)
      for (int64_t half = 0; half < 2; half++)
        for (int64_t pair = 0; pair < 16; pair++)
          for (int64_t j = 0; j < 16; j++)
            for (int64_t e = 0; e < 2; e++) {
              int64_t row = block * WIDTH + half * 16 + j, column = step * 32 + pair * 2 + e;
              to[((block * steps + step) * 2 + half) * TILE + pair * 32 + j * 2 + e] =
                  row < n && column < k ? from[row * k + column] : 0;
            }
}

static inline bool
tiles_allowed() {  // Linux gives a process the tile registers when it asks: ARCH_REQ_XCOMP_PERM, XTILEDATA
  static const bool allowed = syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  return allowed;
}

// Compilers do not know that tile instructions read and write memory.
static inline void settle(const void* memory = nullptr) { asm volatile("" ::"r"(memory) : "memory"); }

struct alignas(64) TileConfig {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0 to 3: sums of the first and second 16 rows by the two halves of a block. 4, 5: rows. 6, 7: weights.
static inline void configure_tiles(uint8_t upper, uint8_t lower) {
  TileConfig config;
  for (int32_t i = 0; i < 8; i++) config.bytes[i] = 64;
  config.rows[0] = config.rows[1] = config.rows[4] = upper;
  config.rows[2] = config.rows[3] = config.rows[5] = lower ? lower : 1;
  config.rows[6] = config.rows[7] = 16;
  settle(&config);
  _tile_loadconfig(&config);
}

// One block of the output for up to 32 rows, the upper 16 and the lower. The four sums are four chains of dependent
// instructions: with two, the tile unit would wait for each result. FETCH: the first rows of a block read its weights
// from memory, so they prefetch four steps ahead; further rows find them in the cache.
template <bool LOWER, bool FETCH>
static inline void tile_block(const bf16* x, int64_t ldx, const bf16* w, int64_t steps, float* out, int64_t ldo) {
  const bf16* below = x + 16 * ldx;
  _tile_zero(0);
  _tile_zero(1);
  if (LOWER) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t step = 0; step < steps; step++, w += 2 * TILE) {
    if (FETCH)
#pragma GCC unroll 32
      for (int32_t line = 0; line < 32; line++) _mm_prefetch((const char*)(w + 8 * TILE) + line * 64, _MM_HINT_T0);
    _tile_loadd(4, x + step * 32, ldx * 2);
    _tile_loadd(6, w, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, w + TILE, 64);
    _tile_dpbf16ps(1, 4, 7);
    if (LOWER) {
      _tile_loadd(5, below + step * 32, ldx * 2);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, out, ldo * 4);
  _tile_stored(1, out + 16, ldo * 4);
  if (LOWER) {
    _tile_stored(2, out + 16 * ldo, ldo * 4);
    _tile_stored(3, out + 16 * ldo + 16, ldo * 4);
  }
}

// Blocks [first, last) of the output for all rows: x bfloat16 [rows, ldx], filled up to whole steps with zeros.
static inline void linear_tiles(const bf16* x, int64_t ldx, int64_t rows, const bf16* weight, int64_t k, float* out,
                                int64_t ldo, int64_t first, int64_t last) {
  const int64_t steps = round_up(k, 32) / 32, whole = rows / 32 * 32, rest = rows - whole;
  settle(x);
  if (whole) configure_tiles(16, 16);
  for (int64_t block = first; whole && block < last; block++) {
    const bf16* w = weight + block * steps * 2 * TILE;
    float* to = out + block * WIDTH;
    tile_block<true, true>(x, ldx, w, steps, to, ldo);
    for (int64_t r = 32; r < whole; r += 32) tile_block<true, false>(x + r * ldx, ldx, w, steps, to + r * ldo, ldo);
  }
  if (rest) configure_tiles((uint8_t)std::min<int64_t>(rest, 16), (uint8_t)std::max<int64_t>(rest - 16, 0));
  for (int64_t block = first; rest && block < last; block++) {
    const bf16* w = weight + block * steps * 2 * TILE;
    float* to = out + whole * ldo + block * WIDTH;
    if (rest > 16) tile_block<true, true>(x + whole * ldx, ldx, w, steps, to, ldo);
    else tile_block<false, true>(x + whole * ldx, ldx, w, steps, to, ldo);
  }
  _tile_release();
  settle(out);
}
#endif

}  // namespace outrider
