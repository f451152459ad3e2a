// The layout of keys and values. Slots are numbered through all pages of a layer.
#pragma once
#include <algorithm>
#include <vector>

#include "abi.h"
#include "vector.h"

// Of one layer. T tells the element and, by `write` and `read`, how a token's [2, kv_heads, head_dim] are kept.
template <class T>
struct Pages {
  T* layer;
  int32_t page_size, kv_heads, head_dim;

  long stride() const { return 2L * kv_heads * head_dim; }  // elements a token
  long slot(const Sequence& s, long place) const {
    return (long)s.pages[place / page_size] * page_size + place % page_size;
  }
};

// A token's keys and values side by side.
struct PlainPages : Pages<float> {
  using Element = float;

  const float* key(const Sequence& s, long place, int head) const {
    return layer + slot(s, place) * stride() + head * head_dim;
  }
  // Keys of `count` positions from `from` on, a page at a time.
  void keys(const Sequence& s, long from, int count, int head, const float** to) const {
    for (int j = 0; j < count;) {
      const float* at = key(s, from + j, head);
      const int end = std::min<int>(count, j + page_size - (int)((from + j) % page_size));
      for (; j < end; j++, at += stride()) to[j] = at;
    }
  }
  void write(long slot, const float* from) const { std::memcpy(layer + slot * stride(), from, stride() * sizeof(float)); }
  void read(long slot, float* to) const { std::memcpy(to, layer + slot * stride(), stride() * sizeof(float)); }
};

// Blocks of up to sixteen positions; of each key head, the keys as pairs of features by position, [head_dim / 2, block,
// 2], then the values as pairs of positions by feature, [block / 2, head_dim, 2]. Products read them as they lie.
struct PackedPages : Pages<bf16> {
  using Element = bf16;

  // Positions of a block: the largest power of two that divides a page.
  int block() const { return std::min(page_size & -page_size, 16); }

  bf16* keys(long slot, int head) const {
    return layer + slot / block() * block() * stride() + head * 2L * block() * head_dim;
  }
  bf16* values(long slot, int head) const { return keys(slot, head) + (long)block() * head_dim; }

  void write(long slot, const bf16* from) const {
    each(slot, [&](int head, int d, bf16* key, bf16* value) {
      std::memcpy(key, from + head * head_dim + d, 4);
      const bf16* values = from + (kv_heads + head) * head_dim + d;
      value[0] = values[0];
      value[apart()] = values[1];
    });
  }
  void read(long slot, bf16* to) const {
    each(slot, [&](int head, int d, const bf16* key, const bf16* value) {
      std::memcpy(to + head * head_dim + d, key, 4);
      bf16* values = to + (kv_heads + head) * head_dim + d;
      values[0] = value[0];
      values[1] = value[apart()];
    });
  }

  // Elements between neighbouring features of a position's values.
  int apart() const { return block() > 1 ? 2 : 1; }
  // Their offset from the block's first element.
  long value(long slot) const { return slot % block() / 2 * 2L * head_dim + slot % block() % 2; }

 private:
  template <class Do>
  void each(long slot, const Do& run) const {
    const int size = block(), step = apart();
    for (int head = 0; head < kv_heads; head++) {
      bf16 *key = keys(slot, head) + slot % size * 2, *value_at = values(slot, head) + value(slot);
      for (int d = 0; d < head_dim; d += 2) run(head, d, key + (long)d * size, value_at + (long)d * step);
    }
  }
};

template <class T>
struct PagesFor {
  using Type = PlainPages;
};
template <>
struct PagesFor<bf16> {
  using Type = PackedPages;
};

// In every layer each place gets the token that was at its source before the call.
template <class Kind>
static void move_tokens_of(const Pool& pool, long n, const int64_t* sources, const int64_t* places) {
  Kind pages{{nullptr, pool.page_size, pool.kv_heads, pool.head_dim}};
  std::vector<typename Kind::Element> held(n * pages.stride());
  for (long l = 0; l < pool.layers; l++) {
    pages.layer = (typename Kind::Element*)pool.data + l * pool.layer_stride;
    for (long i = 0; i < n; i++) pages.read(sources[i], &held[i * pages.stride()]);
    for (long i = 0; i < n; i++) pages.write(places[i], &held[i * pages.stride()]);
  }
}

static inline void move_tokens(const Pool& pool, long n, const int64_t* sources, const int64_t* places) {
  pool.is_bf16 ? move_tokens_of<PackedPages>(pool, n, sources, places)
               : move_tokens_of<PlainPages>(pool, n, sources, places);
}
