// What a caller hands over: a model, and a step.
#pragma once
#include "attention.h"
#include "linear.h"

struct Layer {
  const float* attention_norm;  // [hidden] or null
  Linear qkv;
  const float* head_norm;  // [heads + kv_heads, head_dim] or null
  Linear output;
  const float* feed_forward_norm;  // [hidden] or null
  Linear gate_up, down;
};

struct Model {
  int32_t hidden, heads, kv_heads, head_dim, intermediate, layers, is_bf16, threads;
  float eps, query_scale;
  int64_t vocabulary, positions;
  int64_t shared;  // a run of so many products or more is shared among the threads
  const void* embedding;  // [vocabulary, hidden]
  const float* turns;     // [positions, head_dim / 2, 2]: cosine and sine
  const float* norm;      // [hidden]
  const Layer* layer;     // [layers]
  Linear logits;
};

struct Step {
  const int64_t *ids, *positions;  // [rows]
  const Sequence* sequences;
  void* pool;            // [layers, slots, 2, kv_heads, head_dim]
  float* hidden;         // [rows, hidden], the result
  int64_t layer_stride;  // elements
  int32_t count, rows, page_size, pages;
};

enum Fault { NONE = 0, BAD_ID = 1, BAD_POSITION = 2, BAD_PAGE = 3 };

// Any of the decoders, behind one face.
struct AnyDecoder {
  virtual ~AnyDecoder() = default;
  virtual int forward(const Step& step) = 0;
  virtual void logits(const float* hidden, long rows, float* out) = 0;
};
