// The layout of keys and values. Slots are numbered through all pages of a layer.
#pragma once
#include <algorithm>
#include <type_traits>
#include <vector>

#include "abi.h"
#include "vector.h"

// Of one layer. T tells the element; `write` and `read` tell how a token's [2, kv_heads, head_dim] are kept. Elements of
// int8 are codes: each head of a slot's keys and values has a scale, by which its codes are multiplied.
template <class T>
struct Pages {
  using Element = T;
  static constexpr bool CODES = std::is_same_v<T, int8_t>;

  T* layer;
  float* scales;  // [slots, 2, kv_heads] of codes, else null
  int32_t page_size, kv_heads, head_dim;

  long stride() const { return 2L * kv_heads * head_dim; }  // elements a token
  long slot(const Sequence& s, long place) const {
    return (long)s.pages[place / page_size] * page_size + place % page_size;
  }
  // The scale of a slot's key; that of its value lies `kv_heads` behind.
  const float* scale(long slot, int head) const { return scales + slot * 2 * kv_heads + head; }
};

// A token's keys and values side by side.
template <class T>
struct PlainPages : Pages<T> {
  static constexpr bool PACKED = false;

  T* key(long slot, int head) const { return this->layer + slot * this->stride() + (long)head * this->head_dim; }
  void write(long slot, const T* from) const { std::memcpy(key(slot, 0), from, this->stride() * sizeof(T)); }
  void read(long slot, T* to) const { std::memcpy(to, key(slot, 0), this->stride() * sizeof(T)); }
};

// Blocks of up to sixteen positions; of each key head, the keys as pairs of features by position, [head_dim / 2, block,
// 2], then the values as pairs of positions by feature, [block / 2, head_dim, 2]. Products read them as they lie.
template <class T>
struct PackedPages : Pages<T> {
  static constexpr bool PACKED = true;

  // Positions of a block: the largest power of two that divides a page.
  int block() const { return std::min(this->page_size & -this->page_size, 16); }

  T* keys(long slot, int head) const {
    return this->layer + slot / block() * block() * this->stride() + head * 2L * block() * this->head_dim;
  }
  T* values(long slot, int head) const { return keys(slot, head) + (long)block() * this->head_dim; }

  void write(long slot, const T* from) const {
    each(slot, [&](int head, int d, T* key, T* value) {
      std::memcpy(key, from + head * this->head_dim + d, 2 * sizeof(T));
      const T* values = from + (this->kv_heads + head) * this->head_dim + d;
      value[0] = values[0];
      value[apart()] = values[1];
    });
  }
  void read(long slot, T* to) const {
    each(slot, [&](int head, int d, const T* key, const T* value) {
      std::memcpy(to + head * this->head_dim + d, key, 2 * sizeof(T));
      T* values = to + (this->kv_heads + head) * this->head_dim + d;
      values[0] = value[0];
      values[1] = value[apart()];
    });
  }

  // Elements between neighbouring features of a position's values.
  int apart() const { return block() > 1 ? 2 : 1; }
  // Their offset from the block's first element.
  long value(long slot) const { return slot % block() / 2 * 2L * this->head_dim + slot % block() % 2; }

 private:
  template <class Do>
  void each(long slot, const Do& run) const {
    const int size = block(), step = apart();
    for (int head = 0; head < this->kv_heads; head++) {
      T *key = keys(slot, head) + slot % size * 2, *value_at = values(slot, head) + value(slot);
      for (int d = 0; d < this->head_dim; d += 2) run(head, d, key + (long)d * size, value_at + (long)d * step);
    }
  }
};

// Writes a head's codes, rounded to nearest, and returns their scale; a head that has no number for a feature has no
// number for a scale. The same as outrider.kernels.kv_codes.
static inline float encode(const float* head, int8_t* codes, long count) {
  f32x16 peaks{}, none{};
  for (long i = 0; i < count; i += LANES) {
    const f32x16 v = load(head + i);
    peaks = max(peaks, (f32x16)((u32x16)v & 0x7fffffff));
    none += v * 0.0f;
  }
  const float scale = std::max(largest(peaks), 1e-30f) / 127.0f + sum(none);
  for (long i = 0; i < count; i += LANES) store(codes + i, load(head + i) / splat(scale));
  return scale;
}

// Keeps a token's keys and values, float32 [2, kv_heads, head_dim].
template <class Kind>
static void keep(const Kind& pages, long slot, const float* token) {
  thread_local std::vector<typename Kind::Element> narrow;
  narrow.resize(pages.stride());
  if constexpr (Kind::CODES)
    for (long head = 0; head < 2 * pages.kv_heads; head++)
      pages.scales[slot * 2 * pages.kv_heads + head] =
          encode(token + head * pages.head_dim, &narrow[head * pages.head_dim], pages.head_dim);
  else
    for (long i = 0; i < pages.stride(); i += LANES) store(&narrow[i], load(token + i));
  pages.write(slot, narrow.data());
}

template <class Kind>
static Kind pages_of(const Pool& pool, long layer) {
  const long first = layer * pool.layer_stride;
  return {{(typename Kind::Element*)pool.data + first, pool.scales ? pool.scales + first / pool.head_dim : nullptr,
           pool.page_size, pool.kv_heads, pool.head_dim}};
}

// Calls with a layer's pages, of the kind that the pool says.
template <class Do>
static void with_pages(const Pool& pool, long layer, const Do& run) {
  if (pool.packed)
    pool.scales ? run(pages_of<PackedPages<int8_t>>(pool, layer)) : run(pages_of<PackedPages<bf16>>(pool, layer));
  else
    pool.scales ? run(pages_of<PlainPages<int8_t>>(pool, layer)) : run(pages_of<PlainPages<float>>(pool, layer));
}

template <class Kind>
static void move_tokens(const Kind& pages, long n, const int64_t* sources, const int64_t* places) {
  const long scales = Kind::CODES ? 2 * pages.kv_heads : 0;
  std::vector<typename Kind::Element> held(n * pages.stride());
  std::vector<float> held_scales(n * scales);
  for (long i = 0; i < n; i++) {
    pages.read(sources[i], &held[i * pages.stride()]);
    for (long j = 0; j < scales; j++) held_scales[i * scales + j] = pages.scales[sources[i] * scales + j];
  }
  for (long i = 0; i < n; i++) {
    pages.write(places[i], &held[i * pages.stride()]);
    for (long j = 0; j < scales; j++) pages.scales[places[i] * scales + j] = held_scales[i * scales + j];
  }
}

// In every layer each place gets the token that was at its source before the call.
static inline void move_tokens(const Pool& pool, long n, const int64_t* sources, const int64_t* places) {
  for (long layer = 0; layer < pool.layers; layer++)
    with_pages(pool, layer, [&](const auto& pages) { move_tokens(pages, n, sources, places); });
}
