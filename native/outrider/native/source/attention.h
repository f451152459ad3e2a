// Tree attention over paged keys and values: softmax without storing scores (Milakov and Gimelshein 2018, "Online
// normalizer calculation for softmax"), over blocks of fixed absolute positions in their order. A row's bits depend
// only on the tokens that it sees, whether they are a chunk of a prompt, single rows, or the path of a tree.
#pragma once
#include <algorithm>
#include <vector>

#include "pages.h"
#include "vector.h"

namespace outrider {

constexpr int32_t SPAN = 32;  // positions of a block

// The first position that a row at `position` sees through a window of so many positions; 0 is no window.
static inline int64_t first_seen(int64_t position, int32_t window) {
  return window ? std::max<int64_t>(position - window + 1, 0) : 0;
}

// Of each of a sequence's rows [begin, end), the first position that it sees; and the least of them.
static inline int64_t first_seen(const Sequence& s, int32_t window, int64_t begin, int64_t end,
                                 std::vector<int64_t>& each) {
  each.assign(end - begin, 0);
  if (!window) return 0;
  for (int64_t row = begin; row < end; row++) {
    int64_t position = s.context + row;
    if (s.parents) {
      position = s.context - 1;
      for (int32_t node = s.nodes - s.rows + (int32_t)row; node >= 0; node = s.parents[node]) position++;
    }
    each[row - begin] = first_seen(position, window);
  }
  return *std::min_element(each.begin(), each.end());
}

struct Span {  // keys of up to 32 positions; values lie `values` floats behind
  const float* keys[SPAN];
  int64_t values;
};

// Finds keys and values of a key head. Floats stay where they are, quants become floats here.
template <int32_t C, class T>
class Positions : public Span {
 public:
  void start(const PlainPages<T>& pages, int32_t head) {
    pages_ = pages, head_ = head;
    values = PlainPages<T>::QUANTIZED ? C * LANES : pages.kv_heads * C * LANES;
    std::fill_n(held_, SPAN, -1);
  }

  void put(int32_t at, int64_t slot) {
    const T* key = pages_.key(slot, head_);
    if constexpr (PlainPages<T>::QUANTIZED) {
      keys[at] = room_[at][0];
      if (held_[at] == slot) return;
      held_[at] = slot;
      const float *scale = pages_.scale(slot, head_), kind[] = {scale[0], scale[pages_.kv_heads]};
      for (int32_t i = 0; i < 2; i++)
        for (int32_t c = 0; c < C; c++)
          store(room_[at][i] + c * LANES, load(key + i * pages_.stride() / 2 + c * LANES) * kind[i]);
    } else {
      keys[at] = key;
    }
  }

  // The positions from `count` on are the last again.
  void fill(int32_t count) { std::fill(keys + count, keys + SPAN, keys[count - 1]); }

 private:
  PlainPages<T> pages_;
  int32_t head_;
  int64_t held_[SPAN];  // the slots whose quants are in the room
  alignas(64) float room_[PlainPages<T>::QUANTIZED ? SPAN : 1][2][C * LANES];
};

// Running softmax of one query.
template <int32_t C>
struct Running {
  f32x16 out[C] = {};
  float most = -INFINITY, total = 0;
};

// Dot products of a query with all keys of a span; -infinity from `count` on. Sixteen (or eight) positions at a time,
// whose sums are then folded together: that is one shuffle tree for all instead of one for each.
template <int32_t C>
static inline void scores(const float* query, const Span& span, int32_t count, float* to) {
#if defined(__AVX512F__)
  const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (int32_t half = 0; half < SPAN; half += 16) {
    f32x16 score = splat(-INFINITY);
    if (half < count) {
      f32x16 dot[16];
      for (int32_t j = 0; j < 16; j++) {
        const float* key = span.keys[half + j];
        dot[j] = load(query) * load(key);
        for (int32_t c = 1; c < C; c++) dot[j] += load(query + c * LANES) * load(key + c * LANES);
      }
      const f32x16 dots = sums(dot);
      score = lane < count - half ? dots : score;
    }
    store(to + half, score);
  }
#else
  const i32x8 lane = {0, 1, 2, 3, 4, 5, 6, 7};
  for (int32_t part = 0; part < SPAN; part += 8) {
    f32x8 score = f32x8{} - INFINITY;
    if (part < count) {
      f32x8 dot[8] = {};
      for (int32_t c = 0; c < 2 * C; c++) {
        const f32x8 own = load_eight(query + c * 8);
        for (int32_t j = 0; j < 8; j++) dot[j] += own * load_eight(span.keys[part + j] + c * 8);
      }
      const f32x8 dots = sums_of_eight(dot);
      score = lane < count - part ? dots : score;
    }
    store(to + part, score);
  }
#endif
}

// Takes the positions [from, count) of a span into the running softmax of a query.
template <int32_t C>
static inline void attend(Running<C>& run, const float* query, const Span& span, int32_t from, int32_t count) {
  alignas(64) float weight[SPAN];
  scores<C>(query, span, count, weight);
  if (from) std::fill_n(weight, from, -INFINITY);
  const f32x16 most = max(load(weight), load(weight + 16));
  float peak = largest(most);
  peak = peak > run.most ? peak : run.most;
  float fade = exp2(splat(run.most - peak))[0];
  f32x16 low = exp2(load(weight) - peak), high = exp2(load(weight + 16) - peak);
  store(weight, low);
  store(weight + 16, high);
  run.total = run.total * fade + (sum(low) + sum(high));
  run.most = peak;
#if defined(__AVX512F__)
  for (int32_t c = 0; c < C; c++) run.out[c] *= fade;
  for (int32_t j = from; j < count; j++) {
    const float* value = span.keys[j] + span.values;
    f32x16 w = splat(weight[j]);
    for (int32_t c = 0; c < C; c++) run.out[c] += w * load(value + c * LANES);
  }
#else
  constexpr int32_t MOST = 8;  // registers for sums
  for (int32_t first = 0; first < 2 * C; first += MOST) {
    f32x8 out[MOST];
    const int32_t some = 2 * C - first < MOST ? 2 * C - first : MOST;
    std::memcpy(out, &run.out[first / 2], some * sizeof(f32x8));
    for (int32_t c = 0; c < some; c++) out[c] *= fade;
    for (int32_t j = from; j < count; j++) {
      const float* value = span.keys[j] + span.values + first * 8;
      const f32x8 w = eight_of(weight[j]);
      for (int32_t c = 0; c < some; c++) out[c] += w * load_eight(value + c * 8);
    }
    std::memcpy(&run.out[first / 2], out, some * sizeof(f32x8));
  }
#endif
}

// One key head of rows [begin, end) of a sequence. Two loops: over the context, whose positions have one slot for all
// rows, so that a span is found once for all of them; then over the rows, each with the slots of its own path through
// the tree. For a causal chunk the first loop takes everything. queries float32 [rows, ldq], scaled; `write` gets each
// head's result.
template <int32_t C, class T, class Write>
static void attend_rows(const PlainPages<T>& cache, const Sequence& s, int32_t window, int32_t kv_head, int32_t group,
                        const float* queries, int64_t ldq, int64_t begin, int64_t end, const Write& write) {
  thread_local std::vector<Running<C>> running;
  thread_local std::vector<int64_t> lows;
  thread_local Positions<C, T> span;
  const int64_t least = first_seen(s, window, begin, end, lows);
  running.assign((end - begin) * group, Running<C>());
  span.start(cache, kv_head);
  int64_t shared = s.parents ? s.context / SPAN * SPAN : s.context + end;  // positions with one slot for all rows
  for (int64_t base = least / SPAN * SPAN; base < shared; base += SPAN) {
    const int32_t known = (int32_t)std::min<int64_t>(SPAN, s.context + (s.parents ? s.nodes : end) - base);
    for (int32_t j = 0; j < known; j++) span.put(j, cache.slot(s, base + j));
    span.fill(known);
    for (int64_t row = begin; row < end; row++) {
      const int32_t seen = s.parents ? SPAN : (int32_t)std::min<int64_t>(SPAN, s.context + row + 1 - base);
      const int64_t from = std::max<int64_t>(lows[row - begin] - base, 0);
      for (int32_t g = 0; g < group && seen > from; g++)
        attend<C>(running[(row - begin) * group + g], queries + row * ldq + g * cache.head_dim, span, (int32_t)from,
                  seen);
    }
  }
  for (int64_t row = begin; s.parents && row < end; row++) {
    int32_t path[OUTRIDER_MOST_NODES], depth = 0;
    for (int32_t node = s.nodes - s.rows + (int32_t)row; node >= 0; node = s.parents[node]) path[depth++] = node;
    const int64_t low = lows[row - begin];
    for (int64_t base = std::max(shared, low / SPAN * SPAN); base < s.context + depth; base += SPAN) {
      const int32_t seen = (int32_t)std::min<int64_t>(SPAN, s.context + depth - base);
      const int32_t from = (int32_t)std::max<int64_t>(low - base, 0);
      for (int32_t j = 0; j < seen; j++) {
        int64_t place = base + j;
        if (place >= s.context) place = s.context + path[depth - 1 - (place - s.context)];
        span.put(j, cache.slot(s, place));
      }
      span.fill(seen);
      for (int32_t g = 0; g < group; g++)
        attend<C>(running[(row - begin) * group + g], queries + row * ldq + g * cache.head_dim, span, from, seen);
    }
  }
  for (int64_t row = begin; row < end; row++)
    for (int32_t g = 0; g < group; g++) {
      const Running<C>& run = running[(row - begin) * group + g];
      float share = 1.0f / run.total;
      for (int32_t c = 0; c < C; c++) write(row, kv_head * group + g, c, run.out[c] * share);
    }
}

}  // namespace outrider
