// Tree attention over bfloat16 pages by products of pairs, for CPUs that have those but no tile unit: the same blocks of
// positions in the same order as attention.h. Scores run over the features, results over a block's positions, a pair at
// a time; pairs of zeros, which queries of other rows bring along, change no sum.
#pragma once
#include "attention.h"
#include "linear.h"

#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)

// A block's keys as pairs of features by position, and its values as pairs of positions by feature.
template <int D>
struct alignas(64) PairSpan {
  bf16 keys[D / 2][SPAN][2];
  bf16 values[SPAN / 2][D][2];

  // Values lie `behind` their keys. What follows `count` positions, up to the next sixteen, counts as zeros.
  void gather(const bf16** key, int count, long behind) {
    static const bf16 none[D] = {};
    std::fill(key + count, key + SPAN, none);
    for (int half = 0; half < count; half += 16)
      for (int d = 0; d < D; d += 32) {
        u32x16 rows[16];
        for (int j = 0; j < 16; j++) rows[j] = pairs(key[half + j] + d);
        transpose(rows);
        for (int i = 0; i < 16; i++) std::memcpy(keys[d / 2 + i][half], &rows[i], 64);
      }
    for (int j = 0; j < count; j += 2) {
      const bf16 *even = key[j] + behind, *odd = j + 1 < count ? key[j + 1] + behind : none;
      for (int d = 0; d < D; d += 32) interleave(values[j / 2][d], even + d, odd + d);
    }
  }
};

// Queries of some rows, those of a row side by side, and their running softmax.
template <int D>
class PairAttention {
 public:
  template <class Write>
  void run(const Cache<bf16>& cache, const Sequence& s, int kv_head, int group, const float* queries, long ldq,
           long begin, long end, const Write& write) {
    const int many = (end - begin) * group;
    start(many);
    for (int i = 0; i < many; i++) {
      const float* query = queries + (begin + i / group) * ldq + i % group * D;
      for (int d = 0; d < D; d += LANES) store(queries_[i].of + d, load(query + d));
    }
    const long shared = s.parents ? s.context / SPAN * SPAN : s.context + end;  // all rows find them at one place
    for (long base = 0; base < shared; base += SPAN) {
      const long known = std::min<long>(SPAN, s.context + (s.parents ? s.nodes : end) - base);
      cache.keys(s, base, known, kv_head, keys_);
      span_.gather(keys_, known, (long)cache.kv_heads * D);
      for (int first = 0; first < many; first += 16) {
        const int count = std::min(16, many - first);
        for (int i = 0; i < count; i++) {
          const long row = begin + (first + i) / group;
          seen_[i] = s.parents ? SPAN : std::clamp<long>(s.context + row + 1 - base, 0, SPAN);
        }
        if (seen_[count - 1]) take(first, count);
      }
    }
    for (long row = begin; s.parents && row < end; row++)
      tail(cache, s, kv_head, group, row, (row - begin) * group, shared);
    for (int i = 0; i < many; i++) {
      const float share = 1.0f / total_[i];
      for (int c = 0; c < D / 16; c++)
        write(begin + i / group, kv_head * group + i % group, c, load(queries_[i].out + c * LANES) * share);
    }
  }

 private:
  struct alignas(64) Query {
    bf16 of[D];
    float out[D];
  };

  void start(int many) {
    queries_.assign(many, Query());
    most_.assign(many + 16, -INFINITY);
    total_.assign(many + 16, 0);
  }

  // The blocks that hold a row's own path.
  void tail(const Cache<bf16>& cache, const Sequence& s, int kv_head, int group, long row, int first, long shared) {
    path_.clear();
    for (int32_t node = s.nodes - s.rows + row; node >= 0; node = s.parents[node]) path_.push_back(node);
    const long end = s.context + (long)path_.size();
    for (long base = shared; base < end; base += SPAN) {
      const int count = std::min<long>(SPAN, end - base);
      for (int j = 0; j < count; j++) {
        const long place = base + j;
        keys_[j] = cache.key(s, place < s.context ? place : s.context + path_[end - 1 - place], kv_head);
      }
      span_.gather(keys_, count, (long)cache.kv_heads * D);
      std::fill_n(seen_, group, count);
      take(first, group);
    }
  }

  // Takes the block into `count` queries from `first` on, up to sixteen, of which the last sees most.
  void take(int first, int count) {
    const int last = (seen_[count - 1] + 1) / 2;
    by_four(count, [&](auto many, int i) { score<many>(first + i, i); });
    weigh(first, count);
    by_four(count, [&](auto many, int i) {
      for (int d = 0; d < D; d += FEATURES) add_values<many>(first + i, i, last, d);
    });
  }

  template <class Do>
  static void by_four(int count, const Do& run) {
    int i = 0;
    for (; i + 4 <= count; i += 4) run(std::integral_constant<int, 4>(), i);
    for (; i + 2 <= count; i += 2) run(std::integral_constant<int, 2>(), i);
    for (; i < count; i++) run(std::integral_constant<int, 1>(), i);
  }

  template <int MANY>
  void score(int query, int lane) {
    f32x16 sum[MANY][2] = {};
    for (int pair = 0; pair < D / 2; pair++) {
      const u32x16 low = pairs(span_.keys[pair][0]), high = pairs(span_.keys[pair][16]);
      for (int i = 0; i < MANY; i++) {
        const u32x16 a = splat_pair(queries_[query + i].of + 2 * pair);
        sum[i][0] = add_products(sum[i][0], a, low);
        sum[i][1] = add_products(sum[i][1], a, high);
      }
    }
    for (int i = 0; i < MANY; i++)
      for (int half = 0; half < 2; half++) store(scores_[lane + i] + half * LANES, sum[i][half]);
  }

  // Scores into weights.
  void weigh(int first, int count) {
    const i32x16 place = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    f32x16 each[16] = {};
    for (int i = 0; i < count; i++) {
      f32x16 low = place < seen_[i] ? load(scores_[i]) : splat(-INFINITY);
      f32x16 high = place + 16 < seen_[i] ? load(scores_[i] + LANES) : splat(-INFINITY);
      store(scores_[i], low);
      store(scores_[i] + LANES, high);
      each[i] = max(low, high);
    }
    const f32x16 before = load(&most_[first]), total = load(&total_[first]);
    const f32x16 highest = max(before, each_folded(each, max));
    const f32x16 peak = highest == -INFINITY ? f32x16{} : highest, fade = exp2(before - peak);
    for (int i = 0; i < count; i++) {
      const f32x16 low = exp2(load(scores_[i]) - peak[i]), high = exp2(load(scores_[i] + LANES) - peak[i]);
      store(weights_[i], low);
      store(weights_[i] + LANES, high);
      each[i] = low + high;
    }
    const i32x16 mine = place < count;
    store(&most_[first], mine ? highest : before);
    store(&total_[first], mine ? total * fade + sums(each) : total);
    store(fades_, fade);
  }

  // Some features of the results, from `d` on.
  template <int MANY>
  void add_values(int query, int lane, int last, int d) {
    constexpr int C = FEATURES / LANES;
    f32x16 sum[MANY][C];
    for (int i = 0; i < MANY; i++)
      for (int c = 0; c < C; c++) sum[i][c] = load(queries_[query + i].out + d + c * LANES) * fades_[lane + i];
    for (int pair = 0; pair < last; pair++) {
      u32x16 value[C];
      for (int c = 0; c < C; c++) value[c] = pairs(span_.values[pair][d + c * LANES]);
      for (int i = 0; i < MANY; i++) {
        const u32x16 a = splat_pair(weights_[lane + i] + 2 * pair);
        for (int c = 0; c < C; c++) sum[i][c] = add_products(sum[i][c], a, value[c]);
      }
    }
    for (int i = 0; i < MANY; i++)
      for (int c = 0; c < C; c++) store(queries_[query + i].out + d + c * LANES, sum[i][c]);
  }

  static constexpr int FEATURES = D % 64 ? 32 : 64;  // whose results stay in registers

  PairSpan<D> span_{};
  const bf16* keys_[SPAN];
  std::vector<Query> queries_;
  std::vector<float> most_, total_;
  std::vector<int32_t> path_;
  int32_t seen_[16];
  alignas(64) float scores_[16][SPAN], fades_[16];
  alignas(64) bf16 weights_[16][SPAN];
};
#endif
