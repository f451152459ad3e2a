// The library's interface for the decoder, the draw and the trees of a draft model.
#include <memory>

#include "decoder.h"
#include "drafts.h"
#include "ggml_blocks.h"
#include "guard.h"
#include "race.h"

using namespace outrider;

struct outrider_decoder final : Decoder {
  using Decoder::Decoder;
};

struct outrider_drafts final : Drafts {
  using Drafts::Drafts;
};

const char* outrider_abi() noexcept { return OUTRIDER_ABI; }

int32_t outrider_usable() noexcept {
#if defined(__AMX_BF16__)
  return tiles_allowed();
#else
  return 1;
#endif
}

int64_t outrider_packed_size(int64_t n, int64_t k, int32_t kind) noexcept {
  return round_up(n, BLOCK) * round_up(k, 32) * (kind == OUTRIDER_FLOAT32 ? 4 : 2);
}

void outrider_pack(void* to, const void* from, int64_t n, int64_t k, int32_t kind) noexcept {
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

int64_t outrider_strip_size(int64_t k, const outrider_quant_format* format) noexcept {
  return form_known(*format, k) ? strip_size(*format, k) : 0;
}

void outrider_pack_quants(void* to, const outrider_quants* quants) noexcept { pack_quants((uint8_t*)to, *quants); }

outrider_status outrider_pack_blocks(void* to, const outrider_blocks* blocks) noexcept {
  return guarded([&] {
    pack_ggml_blocks((uint8_t*)to, *blocks);
    return OUTRIDER_OK;
  });
}

outrider_status outrider_move(const outrider_pool* pool, int64_t n, const int64_t* sources,
                              const int64_t* places) noexcept {
  return guarded([&] {
    move_tokens(*pool, n, sources, places);
    return OUTRIDER_OK;
  });
}

int32_t outrider_packs_pages([[maybe_unused]] const outrider_model* model) noexcept {
#if defined(__AVX512BF16__)
  return model->is_bf16 && model->head_dim % 32 == 0 && model->heads / model->kv_heads <= 16;
#else
  return 0;
#endif
}

outrider_status outrider_decoder_new(const outrider_model* model, outrider_decoder** decoder) noexcept {
  return guarded([&] {
    *decoder = new outrider_decoder(*model);
    return OUTRIDER_OK;
  });
}

void outrider_decoder_free(outrider_decoder* decoder) noexcept { delete decoder; }

outrider_status outrider_decoder_forward(outrider_decoder* decoder, const outrider_step* step) noexcept {
  return guarded([&] { return decoder->forward(*step); });
}

outrider_status outrider_decoder_logits(outrider_decoder* decoder, const float* hidden, int64_t rows,
                                        float* out) noexcept {
  return guarded([&] {
    decoder->logits(hidden, rows, out);
    return OUTRIDER_OK;
  });
}

outrider_status outrider_decoder_project(outrider_decoder* decoder, const outrider_projection* projection,
                                         const float* from, int64_t k, int64_t rows, float* out, int64_t n) noexcept {
  return guarded([&] {
    decoder->project(*projection, from, k, rows, out, n);
    return OUTRIDER_OK;
  });
}

void outrider_decoder_embed(const outrider_decoder* decoder, const int64_t* ids, int64_t rows, float* out) noexcept {
  decoder->embeddings(ids, rows, out);
}

void outrider_variates(const uint64_t* seeds, const int64_t* positions, int64_t n, int64_t vocabulary,
                       float* out) noexcept {
  for (int64_t i = 0; i < n; i++) log_exponentials(seeds[i], (uint32_t)positions[i], vocabulary, out + i * vocabulary);
}

outrider_status outrider_race(const outrider_race_rows* rows, float greedy_below, float limit,
                              int64_t* tokens) noexcept {
  return guarded([&] {
    bool broken = false;
    for (int64_t i = 0; i < rows->n && !broken; i++) {
      const float temperature = rows->temperatures[i];
      const float* variates = nullptr;
      if (temperature >= greedy_below)
        variates = variate_cache().at(rows->seeds[i], (uint32_t)rows->positions[i], rows->vocabulary);
      tokens[i] = race(rows->logits + i * rows->vocabulary, rows->vocabulary, temperature, variates, limit, broken);
    }
    return broken ? OUTRIDER_BAD_LOGIT : OUTRIDER_OK;
  });
}

outrider_status outrider_rank(const outrider_rank_rows* rows, int32_t most, int32_t* tokens, float* shares,
                              int32_t* found) noexcept {
  return guarded([&] {
    std::vector<float> own, space;
    for (int64_t i = 0; i < rows->n; i++, tokens += most, shares += most) {
      const float* variates = nullptr;
      if (rows->shapings[i].temperature > 0)
        variates = variate_cache().at(rows->seeds[i], (uint32_t)rows->positions[i], rows->vocabulary);
      if (variates && rows->targets) {
        own.resize(rows->ids);
        for (int64_t id = 0; id < rows->ids; id++) own[id] = variates[rows->targets[id]];
        variates = own.data();
      }
      found[i] =
          guesses(rows->logits + i * rows->ids, rows->ids, rows->shapings[i], variates, most, tokens, shares, space);
      for (int32_t k = 0; rows->targets && k < found[i]; k++) tokens[k] = (int32_t)rows->targets[tokens[k]];
    }
    return OUTRIDER_OK;
  });
}

outrider_status outrider_drafts_new(outrider_decoder* decoder, const outrider_model* model, const outrider_pool* pool,
                                    const outrider_draft_shape* shape, outrider_drafts** drafts) noexcept {
  return guarded([&] {
    *drafts = new outrider_drafts(*decoder, *model, *pool, *shape);
    return OUTRIDER_OK;
  });
}

void outrider_drafts_free(outrider_drafts* drafts) noexcept { delete drafts; }

outrider_status outrider_drafts_open(outrider_drafts* drafts, const outrider_draft_opening* opening) noexcept {
  return guarded_change(*drafts, [&] { drafts->open(*opening); });
}

outrider_status outrider_drafts_commit(outrider_drafts* drafts, int64_t number, int32_t length, const int32_t* tokens,
                                       int32_t count) noexcept {
  return guarded_change(*drafts, [&] { drafts->commit(number, length, tokens, count); });
}

void outrider_drafts_rest(outrider_drafts* drafts, int64_t number) noexcept { drafts->rest(number); }

void outrider_drafts_close(outrider_drafts* drafts, int64_t number) noexcept { drafts->close(number); }

int32_t outrider_drafts_free_pages(const outrider_drafts* drafts) noexcept { return drafts->free_pages(); }

int32_t outrider_drafts_reading(const outrider_drafts* drafts) noexcept { return drafts->reading(); }

outrider_status outrider_drafts_plan(outrider_drafts* drafts, float least, outrider_draft_plan* plan) noexcept {
  return guarded_change(*drafts, [&] { *plan = drafts->plan(least); });
}

outrider_status outrider_drafts_run(outrider_drafts* drafts) noexcept {
  return guarded_change(*drafts, [&] { drafts->run(); });
}

outrider_status outrider_drafts_write(outrider_drafts* drafts, int32_t most, outrider_trees* to) noexcept {
  return guarded_change(*drafts, [&] { to->count = drafts->write(most, *to); });
}
