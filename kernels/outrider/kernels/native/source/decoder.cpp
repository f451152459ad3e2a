// The library's face: what outrider.models runs on CPUs where this could be compiled.
#include "decoder.h"
#include "drafts.h"
#include "race.h"

namespace {

template <class W, class X, class K>
struct Some : AnyDecoder {
  explicit Some(const Model& model) : decoder(model) {}
  int forward(const Step& step) override { return decoder.forward(step); }
  void logits(const float* hidden, long rows, float* out) override { decoder.logits(hidden, rows, out); }
  Decoder<W, X, K> decoder;
};

}  // namespace

extern "C" {

// Whether this machine lets the library run.
int outrider_usable() {
#if defined(__AMX_BF16__)
  return tiles_allowed();
#else
  return 1;
#endif
}

int64_t outrider_packed_size(int64_t n, int64_t k, int is_bf16) {
  return round_up(n, BLOCK) * round_up(k, 32) * (is_bf16 ? 2 : 4);
}

void outrider_pack(void* to, const void* from, int64_t n, int64_t k, int is_bf16) {
  if (!is_bf16) return pack_blocks<1>((float*)to, (const float*)from, n, k);
#if defined(__AMX_BF16__)
  pack_tiles((bf16*)to, (const bf16*)from, n, k);
#elif defined(__AVX512BF16__)
  pack_blocks<2>((bf16*)to, (const bf16*)from, n, k);
#else
  pack_blocks<1>((bf16*)to, (const bf16*)from, n, k);
#endif
}

// Whether the model's keys and values are kept in bfloat16; else in float32.
int outrider_keeps_bf16(const Model* model) {
#if defined(__AVX512BF16__)
  return model->is_bf16 && model->head_dim % 32 == 0 && model->heads / model->kv_heads <= 16;
#else
  return 0;
#endif
}

void* outrider_new(const Model* model) {
  AnyDecoder* made;
  if (!model->is_bf16) made = new Some<float, float, float>(*model);
#if defined(__AVX512BF16__)
  else if (outrider_keeps_bf16(model)) made = new Some<bf16, bf16, bf16>(*model);
  else made = new Some<bf16, bf16, float>(*model);
#else
  else made = new Some<bf16, float, float>(*model);
#endif
  return made;
}

void outrider_free(void* decoder) { delete static_cast<AnyDecoder*>(decoder); }

int outrider_forward(void* decoder, const Step* step) { return static_cast<AnyDecoder*>(decoder)->forward(*step); }

void outrider_logits(void* decoder, const float* hidden, int64_t rows, float* out) {
  static_cast<AnyDecoder*>(decoder)->logits(hidden, rows, out);
}

// Float32 [n, vocabulary], a row for each seed and position.
void outrider_roll(const uint64_t* seeds, const int64_t* positions, int64_t n, int64_t vocabulary, float* out) {
  for (int64_t i = 0; i < n; i++) roll(seeds[i], (uint32_t)positions[i], vocabulary, out + i * vocabulary);
}

// int64 [n] tokens that rows of float32 [n, vocabulary] logits draw, -1 where nothing can be drawn; greedy where the
// temperature is below `greedy_below`. Whether all logits are numbers below `limit`: nothing is told otherwise.
int outrider_race(const float* logits, int64_t n, int64_t vocabulary, const uint64_t* seeds, const int64_t* positions,
                  const float* temperatures, float greedy_below, float limit, int64_t* tokens) {
  bool broken = false;
  for (int64_t i = 0; i < n && !broken; i++) {
    bool hot = temperatures[i] >= greedy_below;
    const float* variates = hot ? own_rolls().at(seeds[i], (uint32_t)positions[i], vocabulary) : nullptr;
    tokens[i] = race(logits + i * vocabulary, vocabulary, temperatures[i], variates, limit, broken);
  }
  return !broken;
}

// Moves n tokens of a pool of [layers, slots, 2, kv_heads, head_dim] bfloat16, packed, or float32; each slot of `places`
// gets the token that was at its source before.
void outrider_move(void* pool, int64_t layers, int64_t layer_stride, int32_t page_size, int32_t kv_heads, int32_t head_dim,
                   int is_bf16, int64_t n, const int64_t* sources, const int64_t* places) {
  if (is_bf16)
    move_tokens(pool, layers, layer_stride, PackedPages{{nullptr, page_size, kv_heads, head_dim}}, n, sources, places);
  else
    move_tokens(pool, layers, layer_stride, PlainPages{{nullptr, page_size, kv_heads, head_dim}}, n, sources, places);
}

void* outrider_drafts_new(void* decoder, const Model* model, const DraftShape* shape, void* pool,
                          int64_t layer_stride) {
  return new Drafts(*static_cast<AnyDecoder*>(decoder), *model, *shape, pool, layer_stride, outrider_keeps_bf16(model));
}

void outrider_drafts_free(void* drafts) { delete static_cast<Drafts*>(drafts); }

void outrider_drafts_open(void* drafts, const DraftOpening* opening) { static_cast<Drafts*>(drafts)->open(*opening); }

void outrider_drafts_close(void* drafts, int64_t number) { static_cast<Drafts*>(drafts)->close(number); }

void outrider_drafts_rest(void* drafts, int64_t number) { static_cast<Drafts*>(drafts)->rest(number); }

void outrider_drafts_commit(void* drafts, int64_t number, int32_t length, const int32_t* tokens, int32_t count) {
  static_cast<Drafts*>(drafts)->commit(number, length, tokens, count);
}

int32_t outrider_drafts_free_pages(void* drafts) { return static_cast<Drafts*>(drafts)->free_pages(); }

int32_t outrider_drafts_reading(void* drafts) { return static_cast<Drafts*>(drafts)->reading(); }

// How many trees were written; there must be room for one of `most` nodes for each session.
int32_t outrider_drafts_draft(void* drafts, int32_t rounds, int32_t most, const DraftPrice* price, DraftTree* trees,
                              const DraftNodes* nodes) {
  return static_cast<Drafts*>(drafts)->draft(rounds, most, *price, trees, *nodes);
}
}
