// The gate of a feed-forward block: gate * logistic(slope) * up, where the slope is the gate itself for silu, and a
// cubic of it for gelu with tanh (Hendrycks and Gimpel 2016), since (1 + tanh(z)) / 2 is the logistic function of 2 z.
#pragma once
#include "vector.h"

namespace outrider {

static inline f32x16 gelu_slope(f32x16 gate) { return 1.59576912f * (gate + 0.044715f * (gate * gate * gate)); }

// Writes [width] from the gate and, behind it, the other factor. `to` may be `gate_up`.
static inline void gate_row(const float* gate_up, int64_t width, bool gelu, float* to) {
  for (int64_t i = 0; i < width; i += LANES) {
    f32x16 gate = load(gate_up + i), slope = gelu ? gelu_slope(gate) : gate;
    f32x16 bounded = max(slope, splat(-87.0f));
    store(to + i, gate / (1.0f + exp2(bounded * -1.44269504f)) * load(gate_up + width + i));
  }
}

}  // namespace outrider
