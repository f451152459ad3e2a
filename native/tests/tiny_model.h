// A model with random weights of one kind, of two layers where no shape is named, and pages for it.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "abi.h"
#include "check.h"

constexpr int32_t HIDDEN = 256, HEADS = 8, KV_HEADS = 2, HEAD_DIM = 32, VOCABULARY = 200, LAYERS = 2, EXPERTS = 3;
struct Shape {
  int32_t hidden, heads, kv_heads, head_dim, intermediate, vocabulary, layers;
};
constexpr Shape TINY{HIDDEN, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, VOCABULARY, LAYERS};
constexpr Shape POCKET_DRAFT{128, 2, 1, 64, 352, 4096, 2}, POCKET_TARGET{256, 4, 2, 64, 704, 4096, 8};
constexpr int32_t POSITIONS = 256, PAGES = 24, PAGE_SIZE = 16;

// How the weights of a model are kept: an outrider_weight_kind, and for quantized ones an outrider_block_kind.
struct WeightKind {
  const char* name;
  int32_t kind, block;
  bool experts;
};

class TinyModel {
 public:
  TinyModel(const WeightKind& kind, int32_t threads, const Shape& shape = TINY)
      : kind_(kind), shape_(shape), layers_(static_cast<size_t>(shape.layers)) {
    for (outrider_layer& layer : layers_) fill(layer);
    rope_.resize(static_cast<size_t>(POSITIONS * shape.head_dim));
    for (size_t i = 0; i < rope_.size(); i += 2) {
      rope_[i] = std::cos(0.1f * static_cast<float>(i));
      rope_[i + 1] = std::sin(0.1f * static_cast<float>(i));
    }
    for (outrider_layer& layer : layers_) layer.rope = rope_.data();
    ones_.assign(static_cast<size_t>(shape.hidden), 1.0f);
    model_.hidden = shape.hidden;
    model_.heads = shape.heads;
    model_.kv_heads = shape.kv_heads;
    model_.head_dim = shape.head_dim;
    model_.intermediate = shape.intermediate;
    model_.layers = shape.layers;
    model_.is_bf16 = kind.kind == OUTRIDER_BFLOAT16;
    model_.threads = threads;
    model_.experts = kind.experts ? EXPERTS : 0;
    model_.active = kind.experts ? 2 : 0;
    model_.expert_intermediate = kind.experts ? HIDDEN : 0;
    model_.eps = 1e-5f;
    model_.query_scale = 0.25f;
    model_.embedding_scale = 1.0f;
    model_.vocabulary = shape.vocabulary;
    model_.positions = POSITIONS;
    model_.norm = ones_.data();
    model_.layer = layers_.data();
    model_.logits = projection({shape.vocabulary}, shape.hidden);
    model_.embedding = model_.logits.parts[0];
    if (kind.kind != OUTRIDER_QUANTIZED)
      model_.embedding.weight = keep(numbers(shape.vocabulary * shape.hidden));  // not packed
  }

  const outrider_model& get() const { return model_; }

 private:
  void fill(outrider_layer& layer) {
    const int32_t queries = shape_.heads * shape_.head_dim, keys = shape_.kv_heads * shape_.head_dim;
    const int32_t hidden = shape_.hidden, width = shape_.intermediate;
    layer.qkv = projection({queries, keys, keys}, hidden);
    layer.output = projection({hidden}, queries);
    if (kind_.experts) {
      layer.router = projection({EXPERTS}, hidden);
      experts_.emplace_back(new outrider_expert[EXPERTS]);
      for (int32_t i = 0; i < EXPERTS; i++)
        experts_.back()[i] = {projection({hidden, hidden}, hidden), projection({hidden}, hidden)};
      layer.experts = experts_.back().get();
    } else {
      layer.gate_up = projection({2 * width}, hidden);
      layer.down = projection({hidden}, width);
    }
  }

  outrider_projection projection(const std::vector<int32_t>& widths, int32_t inputs) {
    outrider_projection all{};
    for (int32_t n : widths)
      all.parts[all.count++] = kind_.kind == OUTRIDER_QUANTIZED ? quantized(n) : dense(n, inputs);
    return all;
  }

  outrider_linear dense(int32_t n, int32_t inputs) {
    const std::vector<uint8_t> weight = numbers(n * inputs);
    std::vector<uint8_t> packed(static_cast<size_t>(outrider_packed_size(n, inputs, kind_.kind)));
    outrider_pack(packed.data(), weight.data(), n, inputs, kind_.kind);
    biases_.emplace_back(static_cast<size_t>(n), 0.01f);
    return {keep(packed), biases_.back().data(), n, inputs, kind_.kind, {}};
  }

  // Of HIDDEN inputs.
  outrider_linear quantized(int32_t n) {
    const bool is_q6 = kind_.block == OUTRIDER_Q6_K;
    const outrider_quant_format format = is_q6                          ? outrider_quant_format{6, 16, 32, 0, 1}
                                         : kind_.block == OUTRIDER_Q4_K ? outrider_quant_format{4, 32, 0, 1, 1}
                                                                        : outrider_quant_format{8, 32, 128, 0, 0};
    const int64_t bytes = is_q6 ? 210 : kind_.block == OUTRIDER_Q4_K ? 144 : HIDDEN / 32 * 34;
    std::vector<uint8_t> blocks(static_cast<size_t>(n * bytes));
    for (uint8_t& byte : blocks) byte = static_cast<uint8_t>(random_());
    for (int64_t row = 0; row < n; row++) scale_block(&blocks[static_cast<size_t>(row * bytes)], is_q6);
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < n; row++) rows.push_back(row);
    const int64_t strip = outrider_strip_size(HIDDEN, &format);
    CHECK(strip > 0);
    std::vector<uint8_t> packed(static_cast<size_t>((n + OUTRIDER_STRIP - 1) / OUTRIDER_STRIP * strip));
    const outrider_blocks from{blocks.data(), rows.data(), n, HIDDEN, kind_.block, format};
    CHECK(outrider_pack_blocks(packed.data(), &from) == OUTRIDER_OK);
    return {keep(packed), nullptr, n, HIDDEN, OUTRIDER_QUANTIZED, format};
  }

  // Sets the scales in float16 of a row's blocks, whose other bytes are random.
  void scale_block(uint8_t* row, bool is_q6) const {
    const uint16_t scale = is_q6 ? 0x0400 : 0x1000;  // 2^-14, 2^-11
    if (is_q6) std::memcpy(row + 208, &scale, 2);
    for (int32_t at = 0; kind_.block == OUTRIDER_Q8_0 && at < HIDDEN / 32; at++) std::memcpy(row + at * 34, &scale, 2);
    for (int32_t at = 0; kind_.block == OUTRIDER_Q4_K && at < 2; at++) std::memcpy(row + at * 2, &scale, 2);
  }

  // Random numbers in the kind of the weights.
  std::vector<uint8_t> numbers(int32_t count) {
    const size_t size = kind_.kind == OUTRIDER_FLOAT32 ? 4 : 2;
    std::vector<uint8_t> bytes(static_cast<size_t>(count) * size);
    for (size_t i = 0; i < static_cast<size_t>(count); i++) {
      const float value = static_cast<float>(random_() >> 8) * 0x1p-24f * 0.2f - 0.1f;
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      if (kind_.kind == OUTRIDER_BFLOAT16) bits >>= 16;
      if (kind_.kind == OUTRIDER_FLOAT16) bits = (bits >> 16 & 0x8000) | 0x2C00 | (bits >> 13 & 0x3FF);  // 1/16 to 1/8
      std::memcpy(&bytes[i * size], &bits, size);
    }
    return bytes;
  }

  // A copy that lives as long as the model, with room behind it for what kernels prefetch or read beyond the last row.
  const void* keep(const std::vector<uint8_t>& bytes) {
    kept_.push_back(bytes);
    return kept_.back().data();
  }

  const WeightKind kind_;
  const Shape shape_;
  std::mt19937 random_{7};
  outrider_model model_{};
  std::vector<outrider_layer> layers_;
  std::vector<std::unique_ptr<outrider_expert[]>> experts_;
  std::vector<std::vector<uint8_t>> kept_;
  std::vector<std::vector<float>> biases_;
  std::vector<float> rope_, ones_;
};

// Pages in float32, int8 or, packed, bfloat16.
class TinyPool {
 public:
  enum class Kind { FLOAT32, INT8, BFLOAT16 };
  TinyPool(Kind kind, bool packed, const Shape& shape = TINY) {
    const int32_t heads = PAGES * PAGE_SIZE * 2 * shape.kv_heads;  // of a layer's rows of keys and values
    scales_.resize(static_cast<size_t>(shape.layers * heads));
    data_.resize(scales_.size() * static_cast<size_t>(shape.head_dim) * 4);
    pool_ = {data_.data(),
             int64_t{heads} * shape.head_dim,
             kind == Kind::INT8 ? scales_.data() : nullptr,
             shape.layers,
             PAGES,
             PAGE_SIZE,
             shape.kv_heads,
             shape.head_dim,
             packed};
  }
  const outrider_pool& get() const { return pool_; }

 private:
  std::vector<uint8_t> data_;
  std::vector<float> scales_;
  outrider_pool pool_;
};
