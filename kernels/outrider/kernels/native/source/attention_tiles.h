// Tree attention over bfloat16 pages by the tile unit, sixteen queries at a time: the same blocks of positions in the
// same order as attention.h, so a row's bits depend on what it sees alone here too. Products of zero, which queries of
// other rows add, change no sum.
#pragma once
#include "attention.h"
#include "linear.h"

#if defined(__AMX_BF16__)

// Tiles 0 to 3: sums. 4, 5: rows. 6, 7: columns. All of 16 rows.
static inline void configure_square_tiles() {
  TileConfig config;
  for (int i = 0; i < 8; i++) config.bytes[i] = 64, config.rows[i] = 16;
  settle(&config);
  _tile_loadconfig(&config);
}

// A block's keys as rows and its values as columns of tiles.
template <int D>
struct alignas(64) TileSpan {
  bf16 keys[SPAN][D];
  bf16 values[D / 16][SPAN / 2][16][2];

  // Places of positions `from` on, by `place(j)`; nothing is read from `count` on.
  template <class Place>
  void gather(const Cache<bf16>& cache, const Sequence& s, int head, int count, const Place& place) {
    const long behind = (long)cache.kv_heads * D;
    for (int j = 0; j < SPAN; j += 2) {
      const bf16* even = j < count ? cache.key(s, place(j), head) : nullptr;
      const bf16* odd = j + 1 < count ? cache.key(s, place(j + 1), head) : nullptr;
      for (int d = 0; d < D; d += 32) {
        u16x32 none{};
        *(u16x32u*)(keys[j] + d) = even ? *(const u16x32u*)(even + d) : none;
        *(u16x32u*)(keys[j + 1] + d) = odd ? *(const u16x32u*)(odd + d) : none;
        u16x32 a = even ? *(const u16x32u*)(even + behind + d) : none;
        u16x32 b = odd ? *(const u16x32u*)(odd + behind + d) : none;
        *(u16x32u*)values[d / 16][j / 2] = __builtin_shufflevector(
            a, b, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45,
            14, 46, 15, 47);
        *(u16x32u*)values[d / 16 + 1][j / 2] = __builtin_shufflevector(
            a, b, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28,
            60, 29, 61, 30, 62, 31, 63);
      }
    }
  }
};

// Up to sixteen queries, those of a row side by side, and their running softmax.
template <int D>
struct alignas(64) Lanes {
  bf16 queries[D / 32][16][16][2];  // pairs of features by lane
  bf16 weights[16][SPAN];           // of a block, by lane
  float scores[SPAN][16];
  float out[16][D];
  f32x16 most, total;

  void start() {
    std::memset((void*)this, 0, sizeof *this);
    most = splat(-INFINITY);
  }
  void set(int lane, const float* query) {
    alignas(64) bf16 narrow[D];
    for (int d = 0; d < D; d += 16) store(narrow + d, load(query + d));
    for (int pair = 0; pair < D / 2; pair++) std::memcpy(queries[pair / 16][pair % 16][lane], narrow + 2 * pair, 4);
  }

  // Scores into weights; a lane sees `counts` positions of the block.
  void weigh(i32x16 counts) {
    f32x16 highest = most;
    for (int j = 0; j < SPAN; j++) {
      f32x16 score = j < counts ? load(scores[j]) : splat(-INFINITY);
      store(scores[j], score);
      highest = max(highest, score);
    }
    f32x16 peak = highest == -INFINITY ? f32x16{} : highest;
    f32x16 fade = exp2(most - peak), sum{};
    u32x16 pairs[16];
    for (int j = 0; j < SPAN; j += 2) {
      f32x16 even = exp2(load(scores[j]) - peak), odd = exp2(load(scores[j + 1]) - peak);
      sum = sum + even + odd;
      pairs[j / 2] = __builtin_convertvector(to_bf16(even), u32x16) | __builtin_convertvector(to_bf16(odd), u32x16) << 16;
    }
    transpose(pairs);
    for (int lane = 0; lane < 16; lane++) std::memcpy(weights[lane], &pairs[lane], 64);
    total = total * fade + sum;
    most = highest;
    for (int lane = 0; lane < 16; lane++) {
      if (fade[lane] == 1.0f) continue;
      for (int d = 0; d < D; d += 16) store(out[lane] + d, load(out[lane] + d) * fade[lane]);
    }
  }
};

// Adds keys by queries to a block's scores.
template <int D>
static inline void score_tiles(const bf16 (*keys)[D], const bf16 (*queries)[16][16][2]) {
  settle(keys);
  for (int step = 0; step < D / 32; step++) {
    _tile_loadd(6, queries[step], 64);
    _tile_loadd(4, keys[0] + step * 32, D * 2);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, keys[16] + step * 32, D * 2);
    _tile_dpbf16ps(1, 5, 6);
  }
}

template <int D>
class TileAttention {
 public:
  template <class Write>
  void run(const Cache<bf16>& cache, const Sequence& s, int kv_head, int group, const float* queries, long ldq,
           long begin, long end, const Write& write) {
    configure_square_tiles();
    const int per = 16 / group;  // rows of sixteen lanes
    const long many = (end - begin + per - 1) / per;
    lanes_.resize(many);
    for (auto& each : lanes_) each.start();
    for (long row = begin; row < end; row++)
      for (int g = 0; g < group; g++)
        lanes_[(row - begin) / per].set((row - begin) % per * group + g, queries + row * ldq + g * D);
    long shared = s.parents ? s.context / SPAN * SPAN : s.context + end;
    for (long base = 0; base < shared; base += SPAN) {
      long known = std::min<long>(SPAN, s.context + s.nodes - base);
      span_.gather(cache, s, kv_head, known, [&](int j) { return base + j; });
      for (long i = 0; i < many; i++) {
        i32x16 counts{};
        long first = begin + i * per;
        for (int lane = 0; lane < per * group; lane++) {
          long row = first + lane / group;
          long seen = s.parents ? SPAN : std::clamp<long>(s.context + row + 1 - base, 0, SPAN);
          counts[lane] = row < end ? seen : 0;
        }
        if (s.parents || s.context + std::min(first + per, end) > base) together(lanes_[i], counts);
      }
    }
    for (long i = 0; s.parents && i < many; i++) {
      long first = begin + i * per, last = std::min(first + per, end);
      tails(cache, s, kv_head, group, lanes_[i], first, last, shared);
    }
    _tile_release();
    settle(lanes_.data());
    for (long row = begin; row < end; row++)
      for (int g = 0; g < group; g++) {
        const Lanes<D>& from = lanes_[(row - begin) / per];
        int lane = (row - begin) % per * group + g;
        float share = 1.0f / from.total[lane];
        for (int c = 0; c < D / 16; c++) write(row, kv_head * group + g, c, load(from.out[lane] + c * 16) * share);
      }
  }

 private:
  // A block that all lanes find at the same places.
  void together(Lanes<D>& lanes, i32x16 counts) {
    _tile_zero(0);
    _tile_zero(1);
    score_tiles<D>(span_.keys, lanes.queries);
    _tile_stored(0, lanes.scores[0], 64);
    _tile_stored(1, lanes.scores[16], 64);
    settle(&lanes);
    lanes.weigh(counts);
    settle(&lanes);
    for (int d = 0; d < D / 16; d += 2) {
      load_sums(lanes, d);
      add_values(lanes.weights, span_, d);
      store_sums(lanes, d);
    }
  }

  // The blocks that hold the rows' own paths: each row has keys and values of its own.
  void tails(const Cache<bf16>& cache, const Sequence& s, int kv_head, int group, Lanes<D>& lanes, long first, long last,
             long shared) {
    paths_.resize(last - first);
    long longest = 0;
    for (long row = first; row < last; row++) {
      auto& path = paths_[row - first];
      path.clear();
      for (int32_t node = s.nodes - s.rows + row; node >= 0; node = s.parents[node]) path.push_back(node);
      longest = std::max<long>(longest, path.size());
    }
    tail_.resize(last - first);
    for (long base = shared; base < s.context + longest; base += SPAN) {
      i32x16 counts{};
      _tile_zero(0);
      _tile_zero(1);
      for (long row = first; row < last; row++) {
        const auto& path = paths_[row - first];
        long count = std::clamp<long>(s.context + (long)path.size() - base, 0, SPAN);
        tail_[row - first].gather(cache, s, kv_head, count, [&](int j) {
          long place = base + j;
          return place < s.context ? place : s.context + path[path.size() - 1 - (place - s.context)];
        });
        int lane = (row - first) * group;
        for (int g = 0; g < group; g++) counts[lane + g] = count;
        alone(lanes, lane, group);
        score_tiles<D>(tail_[row - first].keys, alone_);
      }
      _tile_stored(0, lanes.scores[0], 64);
      _tile_stored(1, lanes.scores[16], 64);
      settle(&lanes);
      lanes.weigh(counts);
      settle(&lanes);
      alignas(64) bf16 own[16][SPAN] = {};
      for (int d = 0; d < D / 16; d += 2) {
        load_sums(lanes, d);
        for (long row = 0; row < last - first; row++) {
          std::memcpy(own[row * group], lanes.weights[row * group], group * 64);
          settle(own);
          add_values(own, tail_[row], d);
          std::memset(own[row * group], 0, group * 64);
        }
        store_sums(lanes, d);
      }
    }
  }

  // Thirty-two features of the results, from `d` * 16 on.
  static void load_sums(const Lanes<D>& lanes, int d) {
    settle(&lanes);
    _tile_loadd(2, lanes.out[0] + d * 16, D * 4);
    _tile_loadd(3, lanes.out[0] + d * 16 + 16, D * 4);
  }
  static void store_sums(Lanes<D>& lanes, int d) {
    _tile_stored(2, lanes.out[0] + d * 16, D * 4);
    _tile_stored(3, lanes.out[0] + d * 16 + 16, D * 4);
    settle(&lanes);
  }
  static void add_values(const bf16 (*weights)[SPAN], const TileSpan<D>& span, int d) {
    _tile_loadd(4, weights, 64);
    _tile_loadd(6, span.values[d], 64);
    _tile_dpbf16ps(2, 4, 6);
    _tile_loadd(7, span.values[d + 1], 64);
    _tile_dpbf16ps(3, 4, 7);
  }

  // The queries of some lanes; zero elsewhere.
  void alone(const Lanes<D>& lanes, int lane, int count) {
    std::memset(alone_, 0, sizeof alone_);
    for (int step = 0; step < D / 32; step++)
      for (int pair = 0; pair < 16; pair++)
        std::memcpy(alone_[step][pair][lane], lanes.queries[step][pair][lane], count * 4);
  }

  alignas(64) bf16 alone_[D / 32][16][16][2];
  TileSpan<D> span_;
  std::vector<Lanes<D>> lanes_;
  std::vector<TileSpan<D>> tail_;
  std::vector<std::vector<int32_t>> paths_;
};
#endif
