// A Llama-family decoder (Touvron et al. 2023, "Llama 2") over paged keys and values, a step a call. Each phase of a
// layer (norm, matmul, RoPE, attention, gate) is shared by the team of threads, which meets after each.
#pragma once
#include <vector>

#include "attention.h"
#include "attention_packed.h"
#include "buffer.h"
#include "experts.h"
#include "gate.h"
#include "matmul.h"
#include "team.h"
#include "vector.h"

namespace outrider {

class Decoder {
 public:
  explicit Decoder(const Model& model) : m_(model), team_(model.threads) {
    for (const Layer* layer = m_.layer; layer < m_.layer + m_.layers; layer++) {
      macs_per_row_ += macs_of(layer->qkv) + macs_of(layer->output) + macs_of(layer->gate_up);
      macs_per_row_ += macs_of(layer->down) + macs_of(layer->router);
      for (int32_t i = 0; layer->experts && i < m_.active; i++)
        macs_per_row_ += macs_of(layer->experts[i].gate_up) + macs_of(layer->experts[i].down);
    }
  }

  Status forward(const Step& step) {
    if (const Status status = check(step); status != OUTRIDER_OK) return status;
    prepare(step.rows);
    Team::Help help(team_, step.rows * macs_per_row_ >= m_.shared);
    run(step);
    return OUTRIDER_OK;
  }

  void logits(const float* hidden, int64_t rows, float* out) {
    project(m_.logits, hidden, m_.hidden, rows, out, m_.vocabulary);
  }

  // [rows, n] of rows [rows, k].
  void project(const Projection& projection, const float* from, int64_t k, int64_t rows, float* out, int64_t n) {
    const int64_t width = round_up(n, BLOCK);
    Team::Help help(team_, rows * macs_of(projection) >= m_.shared);
    if (n == width) return matmul(projection, from, k, rows, out, width);
    float* padded = wide_.need(rows * width);
    matmul(projection, from, k, rows, padded, width);
    for (int64_t r = 0; r < rows; r++) std::memcpy(out + r * n, padded + r * width, n * sizeof(float));
  }

  void embeddings(const int64_t* ids, int64_t rows, float* out) const {
    for (int64_t r = 0; r < rows; r++) scaled_embedding(ids[r], out + r * m_.hidden);
  }

 private:
  Status check(const Step& step) const {
    for (int64_t r = 0; r < step.rows; r++) {
      if (step.ids[r] < 0 || step.ids[r] >= m_.vocabulary) return OUTRIDER_BAD_ID;
      if (step.positions[r] < 0 || step.positions[r] >= m_.positions) return OUTRIDER_BAD_POSITION;
    }
    for (int64_t i = 0; i < step.count; i++) {
      const Sequence& s = step.sequences[i];
      if (s.parents && s.nodes > OUTRIDER_MOST_NODES) return OUTRIDER_BAD_TREE;
      for (int64_t p = 0; p * step.pool.page_size < s.context + s.nodes; p++)
        if (s.pages[p] < 0 || s.pages[p] >= step.pool.pages) return OUTRIDER_BAD_PAGE;
    }
    return OUTRIDER_OK;
  }

  void prepare(int64_t rows) {
    qkv_width_ = round_up((m_.heads + 2 * m_.kv_heads) * m_.head_dim, BLOCK);
    hidden_width_ = round_up(m_.hidden, BLOCK);
    gate_width_ = round_up(2 * m_.intermediate, BLOCK);
    inner_ = std::max<int64_t>({(m_.feature_norm ? 2 : 1) * m_.hidden, m_.heads * m_.head_dim, m_.intermediate});
    x_ = stream_.need(rows * m_.hidden);
    qkv_ = qkv_buffer_.need(rows * qkv_width_);
    delta_ = delta_buffer_.need(rows * hidden_width_);
    gate_ = gate_buffer_.need(std::min(rows, PANEL) * gate_width_);
    a_ = input_.need(rows * inner_);
  }

  void run(const Step& step) {
    team_.ranges(step.rows, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; r++) scaled_embedding(step.ids[r], x_ + r * m_.hidden);
    });
    if (m_.feature_norm) norm(step.rows, nullptr, nullptr, m_.layer->attention_norm);
    if (m_.feature_norm) read_features(step);
    const float *delta = nullptr, *after = nullptr;  // what is to be added to the stream, and its norm
    for (int32_t i = 0; i < m_.layers; i++) {
      const Layer& layer = m_.layer[i];
      if (i > 0 || !m_.feature_norm) norm(step.rows, delta, after, layer.attention_norm);
      tap(step, i, x_);
      matmul(layer.qkv, a_, inner_, step.rows, qkv_, qkv_width_);
      with_pages(step.pool, i, [&](const auto& pages) {
        team_.ranges(step.rows, [&](int64_t first, int64_t last) { rope_and_store(step, layer, pages, first, last); });
        attend(step, layer, pages);
      });
      matmul(layer.output, a_, inner_, step.rows, delta_, hidden_width_);
      norm(step.rows, delta_, layer.after_attention, layer.feed_forward_norm);
      if (layer.experts) experts_.run(team_, matmul_, m_, layer, a_, inner_, step.rows, delta_, hidden_width_);
      for (int64_t panel = 0; !layer.experts && panel < step.rows; panel += PANEL)
        feed_forward(layer, panel, std::min<int64_t>(PANEL, step.rows - panel));
      delta = delta_;
      after = layer.after_feed_forward;
    }
    team_.ranges(step.rows, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; r++) normed(r, delta, after, m_.norm, step.hidden + r * m_.hidden);
    });
    tap(step, m_.layers, x_);
    tap(step, m_.layers + 1, step.hidden);
  }

  // Puts the normed features behind the normed embeddings, and the features in the stream (Li et al. 2025, EAGLE-3).
  void read_features(const Step& step) {
    const size_t size = m_.hidden * sizeof(float);
    team_.ranges(step.rows, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; r++) {
        float *x = x_ + r * m_.hidden, *a = a_ + r * inner_ + m_.hidden;
        std::memcpy(x, step.features + r * m_.hidden, size);
        normed(r, nullptr, nullptr, m_.feature_norm, a);
        if (m_.normed_residual) std::memcpy(x, a, size);
      }
    });
  }

  // Copies the rows [rows, hidden] that enter `layer`, if the step asks for them.
  void tap(const Step& step, int32_t layer, const float* rows) {
    const size_t size = m_.hidden * sizeof(float);
    for (int32_t t = 0; t < step.taps; t++)
      if (step.layers[t] == layer)
        for (int64_t r = 0; r < step.rows; r++)
          std::memcpy(step.states + (r * step.taps + t) * m_.hidden, rows + r * m_.hidden, size);
  }

  void norm(int64_t rows, const float* delta, const float* after, const float* weight) {
    team_.ranges(rows, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; r++) normed(r, delta, after, weight, a_ + r * inner_);
    });
  }

  // The feed-forward block of some rows, so few that its intermediate results stay in the cache.
  void feed_forward(const Layer& layer, int64_t panel, int64_t rows) {
    float* a = a_ + panel * inner_;
    matmul(layer.gate_up, a, inner_, rows, gate_, gate_width_);
    team_.ranges(rows, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; r++)
        gate_row(gate_ + r * gate_width_, m_.intermediate, m_.gelu, a + r * inner_);
    });
    matmul(layer.down, a, inner_, rows, delta_ + panel * hidden_width_, hidden_width_);
  }

  void scaled_embedding(int64_t id, float* to) const {
    embed(id, to);
    if (m_.embedding_scale == 1) return;
    for (int64_t i = 0; i < m_.hidden; i += LANES) store(to + i, load(to + i) * m_.embedding_scale);
  }

  void embed(int64_t id, float* to) const {
    const Linear& table = m_.embedding;
    switch (table.kind) {
      case OUTRIDER_FLOAT32: return copy((const float*)table.weight + id * m_.hidden, to);
      case OUTRIDER_BFLOAT16: return copy((const bf16*)table.weight + id * m_.hidden, to);
      case OUTRIDER_FLOAT16: return copy((const f16*)table.weight + id * m_.hidden, to);
      case OUTRIDER_QUANTIZED: return dequantize_row(table, id, to);
    }
  }

  template <class T>
  void copy(const T* from, float* to) const {
    for (int64_t i = 0; i < m_.hidden; i += LANES) store(to + i, load(from + i));
  }

  // The factor of a vector's norm.
  f32x16 scale_of(f32x16 squares, int64_t count) const {
    return splat(1.0f / std::sqrt(sum(squares) / (float)count + m_.eps));
  }

  // Adds delta, normed by `after` if that is given, to the stream's row, and writes the norm of the sum.
  void normed(int64_t row, const float* delta, const float* after, const float* weight, float* to) const {
    float* x = x_ + row * m_.hidden;
    if (delta) add(delta + row * hidden_width_, after, x);
    f32x16 squares{};
    for (int64_t i = 0; i < m_.hidden; i += LANES) squares += load(x + i) * load(x + i);
    const f32x16 scale = scale_of(squares, m_.hidden);
    for (int64_t i = 0; i < m_.hidden; i += LANES)
      store(to + i, weight ? load(x + i) * scale * load(weight + i) : load(x + i) * scale);
  }

  void add(const float* delta, const float* after, float* x) const {
    f32x16 squares{};
    for (int64_t i = 0; after && i < m_.hidden; i += LANES) squares += load(delta + i) * load(delta + i);
    const f32x16 scale = scale_of(squares, m_.hidden);
    for (int64_t i = 0; i < m_.hidden; i += LANES)
      store(x + i, load(x + i) + (after ? load(delta + i) * scale * load(after + i) : load(delta + i)));
  }

  static int64_t macs_of(const Projection& projection) {
    int64_t sum = 0;
    for (int32_t p = 0; p < projection.count; p++) sum += projection.parts[p].n * projection.parts[p].k;
    return sum;
  }

  void matmul(const Projection& projection, const float* x, int64_t ldx, int64_t rows, float* out, int64_t ldo) {
    matmul_.run(team_, projection, x, ldx, rows, out, ldo);
  }

  // Norms the rows' queries and keys, applies RoPE, and writes keys and values to their slots.
  template <class Kind>
  void rope_and_store(const Step& step, const Layer& layer, const Kind& cache, int64_t first, int64_t last) {
    for (int64_t i = 0; i < step.count; i++) {
      const Sequence& s = step.sequences[i];
      int64_t begin = std::max<int64_t>(first, s.first_row), end = std::min<int64_t>(last, s.first_row + s.rows);
      for (int64_t r = begin; r < end; r++) {
        float* row = qkv_ + r * qkv_width_;
        const float* angle = layer.rope + step.positions[r] * m_.head_dim;
        for (int32_t h = 0; h < m_.heads + m_.kv_heads; h++) {
          float* head = row + h * m_.head_dim;
          if (layer.head_norm) norm_head(head, layer.head_norm + h * m_.head_dim);
          for (int64_t j = 0; layer.key_balance && j < m_.head_dim; j += LANES)
            store(head + j, load(head + j) * load(layer.key_balance + h * m_.head_dim + j));
          rope_head(head, angle, h < m_.heads ? m_.query_scale : 1.0f);
        }
        keep(cache, cache.slot(s, s.context + s.nodes - s.rows + r - s.first_row), row + m_.heads * m_.head_dim);
      }
    }
  }

  void norm_head(float* head, const float* weight) const {
    f32x16 squares{};
    for (int64_t i = 0; i < m_.head_dim; i += LANES) squares += load(head + i) * load(head + i);
    const f32x16 by = scale_of(squares, m_.head_dim);
    for (int64_t i = 0; i < m_.head_dim; i += LANES) store(head + i, load(head + i) * by * load(weight + i));
  }

  void rope_head(float* head, const float* angle, float scale) const {
    const f32x16 signs = {-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1};
    for (int64_t i = 0; i < m_.head_dim; i += LANES) {
      f32x16 v = load(head + i), a = load(angle + i);
      f32x16 other = __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
      f32x16 cosine = __builtin_shufflevector(a, a, 0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14);
      f32x16 sine = __builtin_shufflevector(a, a, 1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11, 13, 13, 15, 15);
      store(head + i, (v * cosine + other * (sine * signs)) * scale);
    }
  }

  // A piece is a key head of some rows of a sequence: the work that threads share. A long prompt has many pieces of
  // PIECE rows; a step of single rows has one for each key head of each sequence.
  template <class Kind>
  void attend(const Step& step, const Layer& layer, const Kind& cache) {
    int64_t items = 0;
    for (int64_t i = 0; i < step.count; i++) items += pieces(step.sequences[i]) * m_.kv_heads;
    team_.each(items, [&](int64_t item) {
      int64_t i = 0;
      for (; item >= pieces(step.sequences[i]) * m_.kv_heads; i++) item -= pieces(step.sequences[i]) * m_.kv_heads;
      const Sequence& s = step.sequences[i];
      int64_t begin = item / m_.kv_heads * PIECE;
      attend_piece(cache, s, layer.window, (int32_t)(item % m_.kv_heads), begin,
                   std::min<int64_t>(begin + PIECE, s.rows));
    });
  }

  static constexpr int64_t PIECE = 64,
                           PANEL = 64;  // rows of a piece; rows whose feed-forward results stay in the cache
  static int64_t pieces(const Sequence& s) { return (s.rows + PIECE - 1) / PIECE; }

  template <class Kind>
  void attend_piece(const Kind& cache, const Sequence& s, int32_t window, int32_t kv_head, int64_t begin, int64_t end) {
    switch (m_.head_dim / LANES) {
      case 1: return attend_piece<1>(cache, s, window, kv_head, begin, end);
      case 2: return attend_piece<2>(cache, s, window, kv_head, begin, end);
      case 4: return attend_piece<4>(cache, s, window, kv_head, begin, end);
      case 5: return attend_piece<5>(cache, s, window, kv_head, begin, end);
      case 6: return attend_piece<6>(cache, s, window, kv_head, begin, end);
      case 8: return attend_piece<8>(cache, s, window, kv_head, begin, end);
      case 16: return attend_piece<16>(cache, s, window, kv_head, begin, end);
    }
  }

  template <int32_t C, class Kind>
  void attend_piece(const Kind& cache, const Sequence& s, int32_t window, int32_t kv_head, int64_t begin, int64_t end) {
    int32_t group = m_.heads / m_.kv_heads;
    const float* queries = qkv_ + s.first_row * qkv_width_ + kv_head * group * m_.head_dim;
    auto write = [&](int64_t row, int32_t head, int32_t c, f32x16 v) {
      store(a_ + (s.first_row + row) * inner_ + head * m_.head_dim + c * LANES, v);
    };
    if constexpr (!Kind::PACKED)
      attend_rows<C>(cache, s, window, kv_head, group, queries, qkv_width_, begin, end, write);
#if defined(__AVX512BF16__)
    if constexpr (Kind::PACKED && C % 2 == 0) {
      thread_local PackedAttention<C * 16, typename Kind::Element> attention;
      attention.run(cache, s, window, kv_head, group, queries, qkv_width_, begin, end, write);
    }
#endif
  }

  const Model m_;
  Team team_;
  int64_t macs_per_row_ = 0;  // multiply-adds of a row of a step
  int64_t qkv_width_ = 0, hidden_width_ = 0, gate_width_ = 0, inner_ = 0;
  float *x_ = nullptr, *qkv_ = nullptr, *delta_ = nullptr, *gate_ = nullptr, *a_ = nullptr;
  Buffer<float> stream_, qkv_buffer_, delta_buffer_, gate_buffer_, wide_, input_;
  Matmul matmul_;
  ExpertBlock experts_;
};

}  // namespace outrider
