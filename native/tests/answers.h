// Answers of small models, token by token, and bits of the draw: what every level and machine must give alike.
#pragma once
#include <cstdio>

#include "tiny_model.h"

// Prints the tokens of an answer, drawn at a temperature from single rows in pages of float32.
static inline void print_answer(const WeightKind& kind, const Shape& shape = TINY) {
  TinyModel model(kind, 1, shape);
  TinyPool pool(TinyPool::Kind::FLOAT32, false, shape);
  outrider_decoder* decoder = nullptr;
  CHECK(outrider_decoder_new(&model.get(), &decoder) == OUTRIDER_OK);
  std::vector<float> hidden(static_cast<size_t>(shape.hidden)), logits(static_cast<size_t>(shape.vocabulary));
  const std::vector<int32_t> pages{0, 1, 2, 3};
  int64_t token = 5;
  std::printf("answer in %s:", kind.name);
  for (int64_t place = 0; place < 48; place++) {
    const outrider_sequence sequence{pages.data(), nullptr, 1, static_cast<int32_t>(place), 1, 0};
    outrider_step step{};
    step.ids = &token, step.positions = &place, step.sequences = &sequence, step.pool = pool.get();
    step.hidden = hidden.data(), step.count = 1, step.rows = 1;
    CHECK(outrider_decoder_forward(decoder, &step) == OUTRIDER_OK);
    CHECK(outrider_decoder_logits(decoder, hidden.data(), 1, logits.data()) == OUTRIDER_OK);
    const uint64_t seed = 7;
    const float temperature = 0.8f;
    const outrider_race_rows race{logits.data(), &seed, &place, &temperature, 1, shape.vocabulary};
    CHECK(outrider_race(&race, 0.01f, 1e30f, &token) == OUTRIDER_OK);
    std::printf(" %d", static_cast<int>(token));
  }
  std::printf("\n");
  outrider_decoder_free(decoder);
}

// Prints a digest (FNV-1a) of the bits of many variates.
static inline void print_variates() {
  std::vector<float> variates(50000);
  uint64_t digest = 0xcbf29ce484222325;
  for (uint64_t seed = 0; seed < 8; seed++) {
    const int64_t position = static_cast<int64_t>(seed * 1000);
    outrider_variates(&seed, &position, 1, static_cast<int64_t>(variates.size()), variates.data());
    const auto* bytes = reinterpret_cast<const unsigned char*>(variates.data());
    for (size_t i = 0; i < variates.size() * sizeof(float); i++) digest = (digest ^ bytes[i]) * 0x100000001b3;
  }
  std::printf("answer of the draw: %016llx\n", static_cast<unsigned long long>(digest));
}
