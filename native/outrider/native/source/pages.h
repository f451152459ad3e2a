// The layout of keys and values. Slots are numbered through all pages of a layer.
#pragma once
#include <algorithm>
#include <type_traits>
#include <vector>

#include "abi.h"
#include "vector.h"

namespace outrider {

// Of one layer. T tells the element; `write` and `read` tell how a token's [2, kv_heads, head_dim] are kept. Elements
// of int8 are quantized: each head of a slot's keys and values has a scale, by which its quants are multiplied.
template <class T>
struct Pages {
  using Element = T;
  static constexpr bool QUANTIZED = std::is_same_v<T, int8_t>;

  T* layer;
  float* scales;  // [slots, 2, kv_heads] of quants, else null
  int32_t page_size, kv_heads, head_dim;

  int64_t stride() const { return int64_t{2} * kv_heads * head_dim; }  // elements a token
  int64_t slot(const Sequence& s, int64_t place) const {
    return (int64_t)s.pages[place / page_size] * page_size + place % page_size;
  }
  // The scale of a slot's key; that of its value lies `kv_heads` behind.
  const float* scale(int64_t slot, int32_t head) const { return scales + slot * 2 * kv_heads + head; }
};

// A token's keys and values side by side.
template <class T>
struct PlainPages : Pages<T> {
  static constexpr bool PACKED = false;

  T* key(int64_t slot, int32_t head) const {
    return this->layer + slot * this->stride() + (int64_t)head * this->head_dim;
  }
  void write(int64_t slot, const T* from) const { std::memcpy(key(slot, 0), from, this->stride() * sizeof(T)); }
  void read(int64_t slot, T* to) const { std::memcpy(to, key(slot, 0), this->stride() * sizeof(T)); }
};

// Blocks of up to sixteen positions; of each key head, the keys as pairs of features by position, [head_dim / 2, block,
// 2], then the values as pairs of positions by feature, [block / 2, head_dim, 2]. Dot products of pairs (AVX-512 BF16,
// AMX) read them as they lie.
template <class T>
struct PackedPages : Pages<T> {
  static constexpr bool PACKED = true;

  // Positions of a block: the largest power of two that divides a page.
  int32_t block() const { return std::min(this->page_size & -this->page_size, 16); }

  T* keys(int64_t slot, int32_t head) const {
    return this->layer + slot / block() * block() * this->stride() + head * int64_t{2} * block() * this->head_dim;
  }
  T* values(int64_t slot, int32_t head) const { return keys(slot, head) + (int64_t)block() * this->head_dim; }

  void write(int64_t slot, const T* from) const {
    each(slot, [&](int32_t head, int32_t d, T* key, T* value) {
      std::memcpy(key, from + head * this->head_dim + d, 2 * sizeof(T));
      const T* values = from + (this->kv_heads + head) * this->head_dim + d;
      value[0] = values[0];
      value[apart()] = values[1];
    });
  }
  void read(int64_t slot, T* to) const {
    each(slot, [&](int32_t head, int32_t d, const T* key, const T* value) {
      std::memcpy(to + head * this->head_dim + d, key, 2 * sizeof(T));
      T* values = to + (this->kv_heads + head) * this->head_dim + d;
      values[0] = value[0];
      values[1] = value[apart()];
    });
  }

  // Elements between neighbouring features of a position's values.
  int32_t apart() const { return block() > 1 ? 2 : 1; }
  // Their offset from the block's first element.
  int64_t value(int64_t slot) const { return slot % block() / 2 * int64_t{2} * this->head_dim + slot % block() % 2; }

 private:
  template <class Do>
  void each(int64_t slot, const Do& run) const {
    const int32_t size = block(), step = apart();
    for (int32_t head = 0; head < this->kv_heads; head++) {
      T *key = keys(slot, head) + slot % size * 2, *value_at = values(slot, head) + value(slot);
      for (int32_t d = 0; d < this->head_dim; d += 2)
        run(head, d, key + (int64_t)d * size, value_at + (int64_t)d * step);
    }
  }
};

// Writes a head's quants, rounded to nearest, and returns their scale; a head that has no number for a feature has no
// number for a scale. The same as outrider.kernels.kv_quant.
static inline float quantize_head(const float* head, int8_t* quants, int64_t count) {
  f32x16 peaks{}, none{};
  for (int64_t i = 0; i < count; i += LANES) {
    const f32x16 v = load(head + i);
    peaks = max(peaks, (f32x16)((u32x16)v & 0x7fffffff));
    none += v * 0.0f;
  }
  const float scale = std::max(largest(peaks), 1e-30f) / 127.0f + sum(none);
  for (int64_t i = 0; i < count; i += LANES) store(quants + i, load(head + i) / splat(scale));
  return scale;
}

// Keeps a token's keys and values, float32 [2, kv_heads, head_dim].
template <class Kind>
static void keep(const Kind& pages, int64_t slot, const float* token) {
  thread_local std::vector<typename Kind::Element> narrow;
  narrow.resize(pages.stride());
  if constexpr (Kind::QUANTIZED)
    for (int64_t head = 0; head < 2 * pages.kv_heads; head++)
      pages.scales[slot * 2 * pages.kv_heads + head] =
          quantize_head(token + head * pages.head_dim, &narrow[head * pages.head_dim], pages.head_dim);
  else
    for (int64_t i = 0; i < pages.stride(); i += LANES) store(&narrow[i], load(token + i));
  pages.write(slot, narrow.data());
}

template <class Kind>
static Kind pages_of(const Pool& pool, int64_t layer) {
  const int64_t first = layer * pool.layer_stride;
  return {{(typename Kind::Element*)pool.data + first, pool.scales ? pool.scales + first / pool.head_dim : nullptr,
           pool.page_size, pool.kv_heads, pool.head_dim}};
}

// Calls with a layer's pages, of the kind that the pool says.
template <class Do>
static void with_pages(const Pool& pool, int64_t layer, const Do& run) {
  if (pool.packed)
    pool.scales ? run(pages_of<PackedPages<int8_t>>(pool, layer)) : run(pages_of<PackedPages<bf16>>(pool, layer));
  else pool.scales ? run(pages_of<PlainPages<int8_t>>(pool, layer)) : run(pages_of<PlainPages<float>>(pool, layer));
}

template <class Kind>
static void move_tokens(const Kind& pages, int64_t n, const int64_t* sources, const int64_t* places,
                        std::vector<typename Kind::Element>& held, std::vector<float>& held_scales) {
  const int64_t scales = Kind::QUANTIZED ? 2 * pages.kv_heads : 0;
  for (int64_t i = 0; i < n; i++) {
    pages.read(sources[i], &held[i * pages.stride()]);
    for (int64_t j = 0; j < scales; j++) held_scales[i * scales + j] = pages.scales[sources[i] * scales + j];
  }
  for (int64_t i = 0; i < n; i++) {
    pages.write(places[i], &held[i * pages.stride()]);
    for (int64_t j = 0; j < scales; j++) pages.scales[places[i] * scales + j] = held_scales[i * scales + j];
  }
}

// In every layer each place gets the token that was at its source before the call. All memory is there before the first
// token moves, so that a failed call has moved none.
static inline void move_tokens(const Pool& pool, int64_t n, const int64_t* sources, const int64_t* places) {
  with_pages(pool, 0, [&](const auto& first) {
    using Kind = std::decay_t<decltype(first)>;
    std::vector<typename Kind::Element> held(n * first.stride());
    std::vector<float> held_scales(Kind::QUANTIZED ? n * 2 * first.kv_heads : 0);
    for (int64_t layer = 0; layer < pool.layers; layer++)
      move_tokens(pages_of<Kind>(pool, layer), n, sources, places, held, held_scales);
  });
}

}  // namespace outrider
