// A feed-forward block of experts (Shazeer et al. 2017), each of which multiplies all rows routed to it at once. A
// row's results are added in the order of the experts, so its bits do not depend on which rows share them.
#pragma once
#include <vector>

#include "buffer.h"
#include "gate.h"
#include "matmul.h"
#include "team.h"

namespace outrider {

class ExpertBlock {
 public:
  // out float32 [rows, ldo] becomes the block's result for x [rows, ldx].
  void run(Team& team, Matmul& matmul, const Model& m, const Layer& layer, const float* x, int64_t ldx, int64_t rows,
           float* out, int64_t ldo) {
    route(team, matmul, m, layer, x, ldx, rows);
    for (int64_t r = 0; r < rows; r++) std::memset(out + r * ldo, 0, m.hidden * sizeof(float));
    for (int32_t expert = 0; expert < m.experts; expert++)
      for (int64_t first = starts_[expert]; first < starts_[expert + 1]; first += PANEL)
        add(team, matmul, m, layer.experts[expert], x, ldx, first,
            std::min<int64_t>(starts_[expert + 1], first + PANEL), out, ldo);
  }

 private:
  struct Choice {
    int32_t expert;
    float share;
  };
  static constexpr int64_t PANEL = 64;

  // Chooses each row's experts, and sorts the choices by expert, then by row.
  void route(Team& team, Matmul& matmul, const Model& m, const Layer& layer, const float* x, int64_t ldx,
             int64_t rows) {
    const int64_t width = round_up(m.experts, BLOCK);
    float* scores = scores_.need(rows * width);
    matmul.run(team, layer.router, x, ldx, rows, scores, width);
    Choice* chosen = chosen_.need(rows * m.active);
    team.ranges(rows, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; r++) choose(m, scores + r * width, chosen + r * m.active);
    });
    starts_.assign(m.experts + 1, 0);
    for (int64_t i = 0; i < rows * m.active; i++) starts_[chosen[i].expert + 1]++;
    for (int32_t expert = 0; expert < m.experts; expert++) starts_[expert + 1] += starts_[expert];
    std::vector<int64_t> next(starts_.begin(), starts_.end() - 1);
    places_.resize(rows * m.active);
    for (int64_t i = 0; i < rows * m.active; i++) places_[next[chosen[i].expert]++] = i;
  }

  // The most likely experts of a row, the first of equal ones before the others, with their shares.
  static void choose(const Model& m, float* scores, Choice* chosen) {
    const int64_t width = round_up(m.experts, LANES);
    std::fill(scores + m.experts, scores + width, -INFINITY);
    f32x16 most = load(scores), total{};
    for (int64_t i = LANES; i < width; i += LANES) most = max(most, load(scores + i));
    const float peak = largest(most);
    for (int64_t i = 0; i < width; i += LANES) {
      const f32x16 likely = exp2((load(scores + i) - peak) * 1.44269504f);
      store(scores + i, likely);
      total += likely;
    }
    float own = 0;
    for (int32_t k = 0; k < m.active; k++) {
      int32_t best = 0;
      for (int32_t expert = 1; expert < m.experts; expert++)
        if (scores[expert] > scores[best]) best = expert;
      chosen[k] = {best, scores[best]};
      own += scores[best];
      scores[best] = -1;
    }
    const float whole = m.normed ? own : sum(total);
    for (int32_t k = 0; k < m.active; k++) chosen[k].share /= whole;
  }

  // Adds an expert's results for the choices [first, last).
  void add(Team& team, Matmul& matmul, const Model& m, const Expert& expert, const float* x, int64_t ldx, int64_t first,
           int64_t last, float* out, int64_t ldo) {
    const int64_t rows = last - first, width = m.expert_intermediate, gate_width = round_up(2 * width, BLOCK);
    const int64_t hidden = round_up(m.hidden, BLOCK);
    float *in = in_.need(PANEL * m.hidden), *gate = gate_.need(PANEL * gate_width),
          *result = result_.need(PANEL * hidden);
    for (int64_t r = 0; r < rows; r++)
      std::memcpy(in + r * m.hidden, x + places_[first + r] / m.active * ldx, m.hidden * sizeof(float));
    matmul.run(team, expert.gate_up, in, m.hidden, rows, gate, gate_width);
    team.ranges(rows, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; r++) gate_row(gate + r * gate_width, width, m.gelu, gate + r * gate_width);
    });
    matmul.run(team, expert.down, gate, gate_width, rows, result, hidden);
    const Choice* chosen = chosen_.need(0);
    for (int64_t r = 0; r < rows; r++) {
      const int64_t place = places_[first + r];
      float* to = out + place / m.active * ldo;
      const float share = chosen[place].share;
      for (int64_t i = 0; i < m.hidden; i += LANES) store(to + i, load(to + i) + share * load(result + r * hidden + i));
    }
  }

  Buffer<float> scores_, in_, gate_, result_;
  Buffer<Choice> chosen_;
  std::vector<int64_t> starts_, places_;
};

}  // namespace outrider
