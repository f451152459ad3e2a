// x @ weight.T for few rows, from a packed weight. A row's sums run over the input features in their order, whatever
// other rows there are: its bits depend on nothing else.
#pragma once
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "vector.h"
#if defined(__AMX_BF16__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

constexpr long BLOCK = 64;  // output features of a block of the vector kernel
constexpr int MOST_ROWS = 6;
#if defined(__AVX512F__)
constexpr long STRIP = BLOCK;  // output features whose weights lie together
#else
constexpr long STRIP = 16;
#endif

static inline long round_up(long x, long to) { return (x + to - 1) / to * to; }

// Packed as [n / STRIP][k / TOGETHER][STRIP][TOGETHER], filled with zeros up to whole blocks; TOGETHER divides k.
template <int TOGETHER, class W>
static void pack_blocks(W* to, const W* from, long n, long k) {
  for (long strip = 0; strip * STRIP < round_up(n, BLOCK); strip++)
    for (long i = 0; i < k; i++)
      for (long j = 0; j < STRIP; j++) {
        long row = strip * STRIP + j, at = (strip * k + i / TOGETHER * TOGETHER) * STRIP + j * TOGETHER + i % TOGETHER;
        to[at] = row < n ? from[row * k + i] : W{};
      }
}

#if defined(__AVX512F__)
template <int ROWS, class W>
static inline void block_rows(const float* x, long ldx, const W* w, long k, float* out, long ldo) {
  f32x16 sum[ROWS][4] = {};
  for (long i = 0; i < k; i++, w += BLOCK) {
    f32x16 w0 = load(w), w1 = load(w + 16), w2 = load(w + 32), w3 = load(w + 48);
    for (int r = 0; r < ROWS; r++) {
      f32x16 a = splat(x[r * ldx + i]);
      sum[r][0] += a * w0;
      sum[r][1] += a * w1;
      sum[r][2] += a * w2;
      sum[r][3] += a * w3;
    }
  }
  for (int r = 0; r < ROWS; r++)
    for (int i = 0; i < 4; i++) store(out + r * ldo + i * LANES, sum[r][i]);
}
#else
// STRIPS of a block for all ROWS: as many sums as sixteen registers of eight floats hold beside a weight and a row.
template <int ROWS, int STRIPS, class W>
static inline void strip_rows(const float* x, long ldx, const W* w, long k, float* out, long ldo) {
  f32x8 sum[ROWS][2 * STRIPS] = {};
  for (long i = 0; i < k; i++)
    for (int s = 0; s < STRIPS; s++) {
      const W* from = w + (s * k + i) * STRIP;
      f32x8 low = load_eight(from), high = load_eight(from + 8);
      for (int r = 0; r < ROWS; r++) {
        f32x8 a = f32x8{} + x[r * ldx + i];
        sum[r][2 * s] += a * low;
        sum[r][2 * s + 1] += a * high;
      }
    }
  for (int r = 0; r < ROWS; r++)
    for (int i = 0; i < 2 * STRIPS; i++) store(out + r * ldo + i * 8, sum[r][i]);
}

template <int ROWS, class W>
static inline void block_rows(const float* x, long ldx, const W* w, long k, float* out, long ldo) {
  constexpr int STRIPS = ROWS > 2 ? 1 : ROWS > 1 ? 2 : 4;
  for (long at = 0; at < BLOCK; at += STRIPS * STRIP)
    strip_rows<ROWS, STRIPS>(x, ldx, w + at * k, k, out + at, ldo);
}
#endif

#if defined(__AVX512BF16__)
constexpr long NEAR = 4096;  // bytes

// Of bfloat16 rows by weights packed in pairs of input features. Each pair of features fetches LINES lines of weights. Four
// lines lie NEAR bytes ahead and go to the first cache: a line that goes to the second takes a fill buffer twice. Fewer
// lines belong to the next block, lie at `ahead`, and go to the second cache, for all groups of rows.
template <int ROWS, int LINES>
static inline void block_rows(const bf16* x, long ldx, const bf16* w, long k, float* out, long ldo, const char* ahead) {
  f32x16 sum[ROWS][4] = {};
  for (long i = 0; i < k; i += 2, w += 2 * BLOCK, ahead += 64 * LINES) {
    for (int line = 0; line < LINES; line++)
      if constexpr (LINES == 4) _mm_prefetch((const char*)w + NEAR + line * 64, _MM_HINT_T0);
      else _mm_prefetch(ahead + line * 64, _MM_HINT_T1);
    u32x16 w0 = pairs(w), w1 = pairs(w + 32), w2 = pairs(w + 64), w3 = pairs(w + 96);
    for (int r = 0; r < ROWS; r++) {
      u32x16 a = splat_pair(x + r * ldx + i);
      sum[r][0] = add_products(sum[r][0], a, w0);
      sum[r][1] = add_products(sum[r][1], a, w1);
      sum[r][2] = add_products(sum[r][2], a, w2);
      sum[r][3] = add_products(sum[r][3], a, w3);
    }
  }
  for (int r = 0; r < ROWS; r++)
    for (int i = 0; i < 4; i++) store(out + r * ldo + i * LANES, sum[r][i]);
}
#endif

// Calls work(count), the count a compile-time constant of 1 to MOST.
template <int MOST, class Work>
static inline void with_count(long count, const Work& work) {
  if constexpr (MOST > 0) {
    if (count == MOST) return work(std::integral_constant<int, MOST>());
    with_count<MOST - 1>(count, work);
  }
}

// work(first row, count, groups left) for groups of at most MOST rows, as few and as equal as can be: each group reads the
// weights of a block anew, which a group of one or two rows waits for.
template <int MOST, class Work>
static inline void in_groups(long rows, const Work& work) {
  long groups = (rows + MOST - 1) / MOST;
  for (long r = 0; r < rows; groups--) {
    const long count = (rows - r + groups - 1) / groups;
    work(r, count, groups);
    r += count;
  }
}

// Blocks [first, last) of the output for all rows: x [rows, ldx], out float32 [rows, ldo].
template <class X, class W>
static void linear_blocks(const X* x, long ldx, long rows, const W* weight, long k, float* out, long ldo,
                          long first, long last) {
  for (long block = first; block < last; block++)
    in_groups<MOST_ROWS>(rows, [&](long r, long number, long) {
      with_count<MOST_ROWS>(number, [&](auto count) {
        block_rows<count>(x + r * ldx, ldx, weight + block * k * BLOCK, k, out + r * ldo + block * BLOCK, ldo);
      });
    });
}

#if defined(__AVX512BF16__)
// work(lines), the lines a constant: as many as the first of so many groups fetches where `left` are left for all.
template <class Work>
static inline void with_lines(int left, long groups, const Work& work) {
  switch ((left + groups - 1) / groups) {
    case 4: return work(std::integral_constant<int, 4>());
    case 2: return work(std::integral_constant<int, 2>());
    case 1: return work(std::integral_constant<int, 1>());
    case 0: return work(std::integral_constant<int, 0>());
  }
}

// The same for bfloat16. Each pair of features has four lines of weights. A single group of rows fetches its own. Several
// groups share the fetching of the next block's lines, so that memory is read during all products.
static void linear_blocks(const bf16* x, long ldx, long rows, const bf16* weight, long k, float* out, long ldo,
                          long first, long last) {
  for (long block = first; block < last; block++) {
    const bf16* w = weight + block * k * BLOCK;
    const char* next = (const char*)(w + k * BLOCK);
    int left = 4;
    in_groups<MOST_ROWS>(rows, [&](long r, long number, long groups) {
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
constexpr long TILE = 512;  // elements of a tile of weights: 16 output by 32 input features
constexpr long WIDTH = 32;  // output features of a block of the tile kernel

// Packed as [n / 32][k / 32][2] tiles of [16 pairs of input features][16 output features][2].
static void pack_tiles(bf16* to, const bf16* from, long n, long k) {
  long steps = round_up(k, 32) / 32;
  for (long block = 0; block * WIDTH < n; block++)
    for (long step = 0; step < steps; step++)
      for (long half = 0; half < 2; half++)
        for (long pair = 0; pair < 16; pair++)
          for (long j = 0; j < 16; j++)
            for (long e = 0; e < 2; e++) {
              long row = block * WIDTH + half * 16 + j, column = step * 32 + pair * 2 + e;
              to[((block * steps + step) * 2 + half) * TILE + pair * 32 + j * 2 + e] =
                  row < n && column < k ? from[row * k + column] : 0;
            }
}

static bool tiles_allowed() {  // Linux gives a process the tile registers when it asks: ARCH_REQ_XCOMP_PERM, XTILEDATA
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
static void configure_tiles(int upper, int lower) {
  TileConfig config;
  for (int i = 0; i < 8; i++) config.bytes[i] = 64;
  config.rows[0] = config.rows[1] = config.rows[4] = upper;
  config.rows[2] = config.rows[3] = config.rows[5] = lower ? lower : 1;
  config.rows[6] = config.rows[7] = 16;
  settle(&config);
  _tile_loadconfig(&config);
}

// One block of the output for up to 32 rows, the upper 16 and the lower.
template <bool LOWER, bool FETCH>
static inline void tile_block(const bf16* x, long ldx, const bf16* w, long steps, float* out, long ldo) {
  const bf16* below = x + 16 * ldx;
  _tile_zero(0);
  _tile_zero(1);
  if (LOWER) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (long step = 0; step < steps; step++, w += 2 * TILE) {
    if (FETCH)
#pragma GCC unroll 32
      for (int line = 0; line < 32; line++) _mm_prefetch((const char*)(w + 8 * TILE) + line * 64, _MM_HINT_T0);
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
static void linear_tiles(const bf16* x, long ldx, long rows, const bf16* weight, long k, float* out, long ldo,
                         long first, long last) {
  const long steps = round_up(k, 32) / 32, whole = rows / 32 * 32, rest = rows - whole;
  settle(x);
  if (whole) configure_tiles(16, 16);
  for (long block = first; whole && block < last; block++) {
    const bf16* w = weight + block * steps * 2 * TILE;
    float* to = out + block * WIDTH;
    tile_block<true, true>(x, ldx, w, steps, to, ldo);
    for (long r = 32; r < whole; r += 32) tile_block<true, false>(x + r * ldx, ldx, w, steps, to + r * ldo, ldo);
  }
  if (rest) configure_tiles(std::min(rest, 16L), std::max(rest - 16, 0L));
  for (long block = first; rest && block < last; block++) {
    const bf16* w = weight + block * steps * 2 * TILE;
    float* to = out + whole * ldo + block * WIDTH;
    if (rest > 16) tile_block<true, true>(x + whole * ldx, ldx, w, steps, to, ldo);
    else tile_block<false, true>(x + whole * ldx, ldx, w, steps, to, ldo);
  }
  _tile_release();
  settle(out);
}
#endif
