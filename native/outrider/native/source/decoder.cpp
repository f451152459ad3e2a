// The library's interface for the decoder, the draw and the trees of a draft model.
#include "blocks.h"
#include "decoder.h"
#include "drafts.h"
#include "race.h"

struct outrider_drafts final : Drafts {
  using Drafts::Drafts;
};

const char* outrider_abi() { return OUTRIDER_ABI; }

int32_t outrider_usable() {
#if defined(__AMX_BF16__)
  return tiles_allowed();
#else
  return 1;
#endif
}

int64_t outrider_packed_size(int64_t n, int64_t k, int32_t kind) {
  return round_up(n, BLOCK) * round_up(k, 32) * (kind == OUTRIDER_FLOAT32 ? 4 : 2);
}

void outrider_pack(void* to, const void* from, int64_t n, int64_t k, int32_t kind) {
  if (kind == OUTRIDER_FLOAT32) return pack_blocks<1>((float*)to, (const float*)from, n, k);
  if (kind == OUTRIDER_FLOAT16) return pack_blocks<1>((f16*)to, (const f16*)from, n, k);
#if defined(__AMX_BF16__)
  pack_tiles((bf16*)to, (const bf16*)from, n, k);
#elif defined(__AVX512BF16__)
  pack_blocks<2>((bf16*)to, (const bf16*)from, n, k);
#else
  pack_blocks<1>((bf16*)to, (const bf16*)from, n, k);
#endif
}

int64_t outrider_strip_size(int64_t k, const outrider_code_format* format) {
  return form_known(*format, k) ? strip_size(*format, k) : 0;
}

void outrider_pack_codes(void* to, const outrider_codes* codes) { pack_codes((uint8_t*)to, *codes); }

void outrider_pack_blocks(void* to, const outrider_blocks* blocks) { pack_blocks_as_codes((uint8_t*)to, *blocks); }

void outrider_move(const outrider_pool* pool, int64_t n, const int64_t* sources, const int64_t* places) {
  move_tokens(*pool, n, sources, places);
}

int32_t outrider_packs_pages(const outrider_model* model) {
#if defined(__AVX512BF16__)
  return model->is_bf16 && model->head_dim % 32 == 0 && model->heads / model->kv_heads <= 16;
#else
  return 0;
#endif
}

outrider_decoder* outrider_decoder_new(const outrider_model* model) { return new Decoder(*model); }

void outrider_decoder_free(outrider_decoder* decoder) { delete decoder; }

outrider_fault outrider_decoder_forward(outrider_decoder* decoder, const outrider_step* step) {
  return decoder->forward(*step);
}

void outrider_decoder_logits(outrider_decoder* decoder, const float* hidden, int64_t rows, float* out) {
  decoder->logits(hidden, rows, out);
}

void outrider_decoder_embed(const outrider_decoder* decoder, const int64_t* ids, int64_t rows, float* out) {
  decoder->embeddings(ids, rows, out);
}

void outrider_roll(const uint64_t* seeds, const int64_t* positions, int64_t n, int64_t vocabulary, float* out) {
  for (int64_t i = 0; i < n; i++) roll(seeds[i], (uint32_t)positions[i], vocabulary, out + i * vocabulary);
}

int32_t outrider_race(const outrider_race_rows* rows, float greedy_below, float limit, int64_t* tokens) {
  bool broken = false;
  for (int64_t i = 0; i < rows->n && !broken; i++) {
    const float temperature = rows->temperatures[i];
    const float* variates = nullptr;
    if (temperature >= greedy_below)
      variates = own_rolls().at(rows->seeds[i], (uint32_t)rows->positions[i], rows->vocabulary);
    tokens[i] = race(rows->logits + i * rows->vocabulary, rows->vocabulary, temperature, variates, limit, broken);
  }
  return !broken;
}

outrider_drafts* outrider_drafts_new(outrider_decoder* decoder, const outrider_model* model, const outrider_pool* pool,
                                     const outrider_draft_shape* shape) {
  return new outrider_drafts(*decoder, *model, *pool, *shape);
}

void outrider_drafts_free(outrider_drafts* drafts) { delete drafts; }

void outrider_drafts_open(outrider_drafts* drafts, const outrider_draft_opening* opening) { drafts->open(*opening); }

void outrider_drafts_commit(outrider_drafts* drafts, int64_t number, int32_t length, const int32_t* tokens,
                            int32_t count) {
  drafts->commit(number, length, tokens, count);
}

void outrider_drafts_rest(outrider_drafts* drafts, int64_t number) { drafts->rest(number); }

void outrider_drafts_close(outrider_drafts* drafts, int64_t number) { drafts->close(number); }

int32_t outrider_drafts_free_pages(const outrider_drafts* drafts) { return drafts->free_pages(); }

int32_t outrider_drafts_reading(const outrider_drafts* drafts) { return drafts->reading(); }

void outrider_drafts_plan(outrider_drafts* drafts, float least, outrider_draft_run* run) { *run = drafts->plan(least); }

void outrider_drafts_run(outrider_drafts* drafts) { drafts->run(); }

int32_t outrider_drafts_write(outrider_drafts* drafts, int32_t most, const outrider_trees* to) {
  return drafts->write(most, *to);
}
