// The header's types under the names that are used here. Only what the header declares is visible outside the library.
#pragma once
#include <cstdint>

#define OUTRIDER_NOEXCEPT noexcept
#pragma GCC visibility push(default)
extern "C" {
#include "outrider_native.h"
}
#pragma GCC visibility pop

namespace outrider {

using Linear = outrider_linear;
using Projection = outrider_projection;
using Expert = outrider_expert;
using Layer = outrider_layer;
using Model = outrider_model;
using Pool = outrider_pool;
using Sequence = outrider_sequence;
using Step = outrider_step;
using Status = outrider_status;
using Trees = outrider_trees;
using Shaping = outrider_shaping;
using DraftPlan = outrider_draft_plan;
using DraftShape = outrider_draft_shape;
using DraftOpening = outrider_draft_opening;
using SuffixShape = outrider_suffix_shape;
using SuffixOpening = outrider_suffix_opening;
using SuffixCommits = outrider_suffix_commits;

}  // namespace outrider
