// Tree attention over packed pages: the same blocks of positions in the same order as attention.h. Scores run over
// pairs of features, results over pairs of positions. Weights of zero, for what a row does not see, change no sum.
// Quants of int8 become bfloat16, which has all of them, once for all rows; scales multiply scores and weights.
#pragma once
#include "attention.h"
#include "linear.h"
#include "pages.h"

namespace outrider {

#if defined(__AVX512BF16__)

constexpr int32_t HALF = SPAN / 2;  // positions of a block of packed pages, if those are large enough

// Up to sixteen positions in the layout of a packed block of as many.
template <int32_t D>
struct alignas(64) Half {
  bf16 keys[D / 2][HALF][2];
  bf16 values[HALF / 2][D][2];
  int64_t held[HALF];  // the slots whose positions it holds

  void clear() {
    std::memset((void*)this, 0, sizeof *this);
    std::fill_n(held, HALF, -1);
  }

  template <class T>
  void put(const PackedPages<T>& pages, int64_t slot, int32_t head, int32_t at) {
    if (held[at] == slot) return;
    held[at] = slot;
    const int32_t block = pages.block(), apart = pages.apart();
    const T *key = pages.keys(slot, head) + slot % block * 2, *value = pages.values(slot, head) + pages.value(slot);
    for (int32_t pair = 0; pair < D / 2; pair++)
      for (int32_t i = 0; i < 2; i++) keys[pair][at][i] = element(key[int64_t{2} * block * pair + i]);
    for (int32_t d = 0; d < D; d++) values[at / 2][d][at % 2] = element(value[d * apart]);
  }

  // Takes a whole block, also its slots without a token: any int8 is a number.
  void take(const PackedPages<int8_t>& pages, int64_t slot, int32_t head) {
    const int8_t *from = pages.keys(slot, head), *end = from + 2 * HALF * D;
    for (bf16* to = keys[0][0]; from < end; from += LANES, to += LANES) store(to, load(from));
  }

  // Sets everything behind `count` positions to zero.
  void cut(int32_t count) {
    for (int32_t at = count; at < HALF; at++) {
      if (held[at] < 0) continue;
      held[at] = -1;
      for (int32_t d = 0; d < D; d++) values[at / 2][d][at % 2] = 0;
    }
  }

  static bf16 element(bf16 value) { return value; }
  static bf16 element(int8_t quant) {
    const float value = quant;
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return (bf16)(bits >> 16);
  }
};

#if defined(__AMX_BF16__)
// Tiles 0, 1: sums. 2, 3: queries, keys. 4: weights of a half, 5: its values. All of 16 lanes.
struct AttentionTiles {
  AttentionTiles() {
    TileConfig config;
    for (int32_t i = 0; i < 6; i++) config.bytes[i] = 64, config.rows[i] = 16;
    config.bytes[4] = 32;
    config.rows[5] = HALF / 2;
    settle(&config);
    _tile_loadconfig(&config);
  }
  ~AttentionTiles() { _tile_release(); }
  AttentionTiles(const AttentionTiles&) = delete;
  AttentionTiles& operator=(const AttentionTiles&) = delete;
};
#endif

// Queries of some rows, those of a row side by side, and their running softmax.
template <int32_t D, class T>
class PackedAttention {
  static constexpr bool QUANTIZED = PackedPages<T>::QUANTIZED;

 public:
  template <class Write>
  void run(const PackedPages<T>& pages, const Sequence& s, int32_t window, int32_t kv_head, int32_t group,
           const float* queries, int64_t ldq, int64_t begin, int64_t end, const Write& write) {
#if defined(__AMX_BF16__)
    const AttentionTiles tiles;
#endif
    start((int32_t)(end - begin) * group);
    const int64_t least = first_seen(s, window, begin, end, lows_);
    const int32_t many = (int32_t)(end - begin) * group;
    for (int32_t i = 0; i < many; i++) {
      const float* query = queries + (begin + i / group) * ldq + i % group * D;
      for (int32_t d = 0; d < D; d += LANES) store(queries_[i].of + d, load(query + d));
    }
    const int64_t shared = s.parents ? s.context / SPAN * SPAN : s.context + end;  // with one slot for all rows
    for (int64_t base = least / SPAN * SPAN; base < shared; base += SPAN) {
      find(pages, s, kv_head, base, (int32_t)std::min<int64_t>(SPAN, s.context + (s.parents ? s.nodes : end) - base));
      for (int32_t first = 0; first < many; first += 16) {
        const int32_t count = std::min(16, many - first);
        bool any = false;
        for (int32_t i = 0; i < count; i++) {
          const int64_t row = begin + (first + i) / group;
          seen_[i] = s.parents ? SPAN : (int32_t)std::clamp<int64_t>(s.context + row + 1 - base, 0, SPAN);
          from_[i] = (int32_t)std::clamp<int64_t>(lows_[row - begin] - base, 0, SPAN);
          any |= from_[i] < seen_[i];
        }
        if (any) take(first, count);
      }
    }
    if (s.parents) tails(pages, s, kv_head, group, begin, end, shared);
    for (int32_t i = 0; i < many; i++) {
      const float share = 1.0f / total_[i];
      for (int32_t c = 0; c < D / 16; c++)
        write(begin + i / group, kv_head * group + i % group, c, load(queries_[i].out + c * LANES) * share);
    }
  }

 private:
  struct alignas(64) Query {
    bf16 of[D];
    float out[D];
  };

  void start(int32_t many) {
    queries_.assign(many + 16, Query());
    most_.assign(many + 16, -INFINITY);
    total_.assign(many + 16, 0);
  }

  // The block of `count` positions from `base` on; halves that are already packed so are read in place.
  void find(const PackedPages<T>& pages, const Sequence& s, int32_t kv_head, int64_t base, int32_t count) {
    for (int32_t half = 0; half < 2; half++) {
      const int32_t some = std::clamp(count - half * HALF, 0, HALF);
      const int64_t first = base + half * HALF, slot = some ? pages.slot(s, first) : 0;
      if constexpr (QUANTIZED)
        for (int32_t at = 0; at < some; at++) scale(pages, pages.slot(s, first + at), kv_head, half * HALF + at);
      if (QUANTIZED && some && pages.block() == HALF) {
        if constexpr (QUANTIZED) copied_[half].take(pages, slot, kv_head);
        show(half, copied_[half]);
      } else if (!QUANTIZED && some == HALF && pages.block() == HALF) {
        if constexpr (!QUANTIZED) show(half, pages.keys(slot, kv_head), pages.values(slot, kv_head));
      } else {
        copied_[half].clear();
        for (int32_t at = 0; at < some; at++) copied_[half].put(pages, pages.slot(s, first + at), kv_head, at);
        show(half, copied_[half]);
      }
    }
  }

  void scale(const PackedPages<T>& pages, int64_t slot, int32_t kv_head, int32_t at) {
    const float* of = pages.scale(slot, kv_head);
    key_scales_[at] = of[0], value_scales_[at] = of[pages.kv_heads];
  }

  void show(int32_t half, const bf16* keys, const bf16* values) {
    keys_[half] = keys;
    values_[half] = values;
  }
  void show(int32_t half, const Half<D>& from) { show(half, from.keys[0][0], from.values[0][0]); }

  // The blocks that hold the rows' own paths. Positions that neighbouring rows share are not copied again.
  void tails(const PackedPages<T>& pages, const Sequence& s, int32_t kv_head, int32_t group, int64_t begin, int64_t end,
             int64_t shared) {
    for (auto& half : paths_) half.clear();
    for (int64_t row = begin; row < end; row++) {
      path_.clear();
      for (int32_t node = s.nodes - s.rows + (int32_t)row; node >= 0; node = s.parents[node]) path_.push_back(node);
      const int64_t last = s.context + (int64_t)path_.size();
      const int64_t low = lows_[row - begin];
      for (int64_t base = std::max(shared, low / SPAN * SPAN); base < last; base += SPAN) {
        const int32_t count = (int32_t)std::min<int64_t>(SPAN, last - base);
        Half<D>* halves = base == shared ? paths_ : copied_;
        for (int32_t half = 0; half < 2; half++) {
          if (base != shared) halves[half].clear();
          for (int32_t at = 0; at < std::min(count - half * HALF, HALF); at++) {
            const int64_t place = base + half * HALF + at;
            const int64_t found = place < s.context ? place : s.context + path_[last - 1 - place];
            halves[half].put(pages, pages.slot(s, found), kv_head, at);
            if constexpr (QUANTIZED) scale(pages, pages.slot(s, found), kv_head, half * HALF + at);
          }
          halves[half].cut(std::clamp(count - half * HALF, 0, HALF));
          show(half, halves[half]);
        }
        std::fill_n(seen_, group, count);
        std::fill_n(from_, group, (int32_t)std::max<int64_t>(low - base, 0));
        take((int32_t)(row - begin) * group, group);
      }
    }
  }

  // Takes the block into `count` queries from `first` on, up to sixteen, of which the last sees most.
  void take(int32_t first, int32_t count) {
    const int32_t halves = seen_[count - 1] > HALF ? 2 : 1;
#if defined(__AMX_BF16__)
    score(first, halves);
    weigh(first, count);
    add_values(first, count, halves);
#else
    by_four(count, [&](auto many, int32_t i) { score<many>(first + i, i, halves); });
    weigh(first, count);
    by_four(count, [&](auto many, int32_t i) {
      for (int32_t d = 0; d < D; d += FEATURES) add_values<many>(first + i, i, halves, d);
    });
#endif
  }

#if defined(__AMX_BF16__)
  void score(int32_t first, int32_t halves) {
    settle(queries_.data());
    for (int32_t half = 0; half < halves; half++) {
      _tile_zero(0);
      for (int32_t step = 0; step < D / 32; step++) {
        _tile_loadd(2, queries_[first].of + 32 * step, sizeof(Query));
        _tile_loadd(3, keys_[half] + int64_t{16} * 2 * HALF * step, 4 * HALF);
        _tile_dpbf16ps(0, 2, 3);
      }
      _tile_stored(0, scores_[0] + half * HALF, sizeof scores_[0]);
    }
    settle(scores_);
  }

  void add_values(int32_t first, int32_t count, int32_t halves) {
    for (int32_t i = 0; i < count; i++)
      for (int32_t d = 0; d < D; d += LANES)
        store(queries_[first + i].out + d, load(queries_[first + i].out + d) * fades_[i]);
    settle(queries_.data());
    for (int32_t d = 0; d < D; d += 2 * LANES) {
      _tile_loadd(0, queries_[first].out + d, sizeof(Query));
      _tile_loadd(1, queries_[first].out + d + LANES, sizeof(Query));
      for (int32_t half = 0; half < halves; half++) {
        _tile_loadd(4, weights_[0] + half * HALF, sizeof weights_[0]);
        _tile_loadd(5, values_[half] + 2 * d, 4 * D);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(5, values_[half] + 2 * (d + LANES), 4 * D);
        _tile_dpbf16ps(1, 4, 5);
      }
      _tile_stored(0, sums_[0], sizeof sums_[0]);
      _tile_stored(1, sums_[0] + LANES, sizeof sums_[0]);
      settle(sums_);
      for (int32_t i = 0; i < count; i++) std::memcpy(queries_[first + i].out + d, sums_[i], sizeof sums_[i]);
    }
  }
#else
  template <class Do>
  static void by_four(int32_t count, const Do& run) {
    int32_t i = 0;
    for (; i + 4 <= count; i += 4) run(std::integral_constant<int32_t, 4>(), i);
    for (; i + 2 <= count; i += 2) run(std::integral_constant<int32_t, 2>(), i);
    for (; i < count; i++) run(std::integral_constant<int32_t, 1>(), i);
  }

  template <int32_t MANY>
  void score(int32_t query, int32_t lane, int32_t halves) {
    f32x16 sum[MANY][2] = {};
    const bf16 *low = keys_[0], *high = keys_[halves - 1];
    for (int32_t pair = 0; pair < D / 2; pair++, low += 2 * HALF, high += 2 * HALF) {
      const u32x16 left = pairs(low), right = pairs(high);
      for (int32_t i = 0; i < MANY; i++) {
        const u32x16 a = splat_pair(queries_[query + i].of + 2 * pair);
        sum[i][0] = add_dots(sum[i][0], a, left);
        sum[i][1] = add_dots(sum[i][1], a, right);
      }
    }
    for (int32_t i = 0; i < MANY; i++)
      for (int32_t half = 0; half < 2; half++) store(scores_[lane + i] + half * LANES, sum[i][half]);
  }

  // Some features of the results, from `d` on.
  template <int32_t MANY>
  void add_values(int32_t query, int32_t lane, int32_t halves, int32_t d) {
    constexpr int32_t C = FEATURES / LANES;
    f32x16 sum[MANY][C];
    for (int32_t i = 0; i < MANY; i++)
      for (int32_t c = 0; c < C; c++) sum[i][c] = load(queries_[query + i].out + d + c * LANES) * fades_[lane + i];
    for (int32_t half = 0; half < halves; half++) {
      const bf16* from = values_[half] + 2 * d;
      for (int32_t pair = 0; pair < HALF / 2; pair++, from += 2 * D) {
        u32x16 value[C];
        for (int32_t c = 0; c < C; c++) value[c] = pairs(from + 2 * c * LANES);
        for (int32_t i = 0; i < MANY; i++) {
          const u32x16 a = splat_pair(weights_[lane + i] + half * HALF + 2 * pair);
          for (int32_t c = 0; c < C; c++) sum[i][c] = add_dots(sum[i][c], a, value[c]);
        }
      }
    }
    for (int32_t i = 0; i < MANY; i++)
      for (int32_t c = 0; c < C; c++) store(queries_[query + i].out + d + c * LANES, sum[i][c]);
  }

  static constexpr int32_t FEATURES = D % 64 ? 32 : 64;  // whose results stay in registers
#endif

  static f32x16 scaled(const float* scores, const float* scales) {
    return QUANTIZED ? load(scores) * load(scales) : load(scores);
  }

  // Scores into weights.
  void weigh(int32_t first, int32_t count) {
    const i32x16 place = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    f32x16 each[16] = {};
    for (int32_t i = 0; i < count; i++) {
      const auto low_seen = (place >= from_[i]) & (place < seen_[i]);
      const auto high_seen = (place + 16 >= from_[i]) & (place + 16 < seen_[i]);
      f32x16 low = low_seen ? scaled(scores_[i], key_scales_) : splat(-INFINITY);
      f32x16 high = high_seen ? scaled(scores_[i] + LANES, key_scales_ + LANES) : splat(-INFINITY);
      store(scores_[i], low);
      store(scores_[i] + LANES, high);
      each[i] = max(low, high);
    }
    const f32x16 before = load(&most_[first]), total = load(&total_[first]);
    const f32x16 highest = max(before, each_folded(each, [](f32x16 a, f32x16 b) { return max(a, b); }));
    const f32x16 peak = highest == -INFINITY ? f32x16{} : highest, fade = exp2(before - peak);
    for (int32_t i = 0; i < count; i++) {
      const f32x16 low = exp2(load(scores_[i]) - peak[i]), high = exp2(load(scores_[i] + LANES) - peak[i]);
      each[i] = low + high;
      if constexpr (QUANTIZED) {
        const auto low_seen = (place >= from_[i]) & (place < seen_[i]);
        const auto high_seen = (place + 16 >= from_[i]) & (place + 16 < seen_[i]);
        store(weights_[i], low_seen ? low * load(value_scales_) : f32x16{});
        store(weights_[i] + LANES, high_seen ? high * load(value_scales_ + LANES) : f32x16{});
      } else {
        store(weights_[i], low);
        store(weights_[i] + LANES, high);
      }
    }
    const i32x16 mine = place < count;
    store(&most_[first], mine ? highest : before);
    store(&total_[first], mine ? total * fade + sums(each) : total);
    store(fades_, fade);
  }

  const bf16 *keys_[2], *values_[2];  // of the block's halves
  Half<D> copied_[2], paths_[2];
  std::vector<Query> queries_;
  std::vector<float> most_, total_;
  std::vector<int32_t> path_;
  std::vector<int64_t> lows_;    // the first position that each row sees
  int32_t from_[16], seen_[16];  // of the block, what each query sees
  alignas(64) float scores_[16][SPAN] = {}, fades_[16], sums_[16][2 * LANES];
  float key_scales_[SPAN] = {}, value_scales_[SPAN] = {};  // of pages in int8
  alignas(64) bf16 weights_[16][SPAN] = {};
};
#endif

}  // namespace outrider
