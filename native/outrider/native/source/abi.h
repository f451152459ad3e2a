// The header's types under the names that are used here.
#pragma once
#include <cstdint>

extern "C" {
#include "outrider_native.h"
}

using Linear = outrider_linear;
using Product = outrider_product;
using Expert = outrider_expert;
using Layer = outrider_layer;
using Model = outrider_model;
using Pool = outrider_pool;
using Sequence = outrider_sequence;
using Step = outrider_step;
using Fault = outrider_fault;
using Trees = outrider_trees;
using Shaping = outrider_shaping;
using DraftShape = outrider_draft_shape;
using DraftOpening = outrider_draft_opening;
using DraftRun = outrider_draft_run;
using SuffixShape = outrider_suffix_shape;
using SuffixOpening = outrider_suffix_opening;
using SuffixCommits = outrider_suffix_commits;

// The common interface of all decoders.
struct outrider_decoder {
  virtual ~outrider_decoder() = default;
  virtual Fault forward(const Step& step) = 0;
  virtual void logits(const float* hidden, long rows, float* out) = 0;
  virtual void embeddings(const int64_t* ids, long rows, float* out) const = 0;
};
