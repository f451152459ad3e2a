// The exponential race (see outrider.kernels.race_sample): the token with the highest logit / T - log E. Its roundings
// are those of single operations, and the lowest id wins a tie, as everywhere else.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "abi.h"
#include "philox.h"
#include "vector.h"

namespace outrider {

// A cache of recent positions' variates, over one vocabulary.
class VariateCache {
 public:
  const float* at(uint64_t seed, uint32_t position, int64_t vocabulary) {
    if (vocabulary != vocabulary_) {
      vocabulary_ = 0;  // until there are entries
      entries_.clear();
      entries_.resize(std::clamp<int64_t>((int64_t{1} << 20) / vocabulary, 16, 256));
      vocabulary_ = vocabulary;
    }
    Entry& entry = entries_[(position + (seed * 0x9E3779B97F4A7C15ull >> 32)) % entries_.size()];
    if (entry.variates.empty() || entry.seed != seed || entry.position != position) {
      entry.variates.resize(vocabulary);
      entry.seed = seed;
      entry.position = position;
      log_exponentials(seed, position, vocabulary, entry.variates.data());
    }
    return entry.variates.data();
  }

 private:
  struct Entry {
    uint64_t seed = 0;
    uint32_t position = 0;
    std::vector<float> variates;
  };
  std::vector<Entry> entries_;
  int64_t vocabulary_ = 0;
};

static inline VariateCache& variate_cache() {
  static thread_local VariateCache cache;
  return cache;
}

static inline f32x16 load_some(const float* p, int64_t count, float rest) {
  if (count >= LANES) return load(p);
  f32x16 v = splat(rest);
  std::memcpy((void*)&v, p, count * sizeof(float));
  return v;
}

struct Best {
  float value = -INFINITY;
  int64_t token = -1;
};

// The highest of n scores, of which `score(i, count)` returns sixteen from i on; none where all are minus infinity.
template <class Score>
static inline Best best_of(int64_t n, const Score& score) {
  f32x16 highest = splat(-INFINITY);
  i32x16 tokens = i32x16{} - 1, here = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (int64_t i = 0; i < n; i += LANES, here += 16) {
    keep_higher(score(i, n - i), here, highest, tokens);
  }
  Best best;
  for (int32_t lane = 0; lane < LANES; lane++)
    if (tokens[lane] >= 0 && (highest[lane] > best.value || (highest[lane] == best.value && tokens[lane] < best.token)))
      best = {highest[lane], tokens[lane]};
  return best;
}

// One row's token, -1 where all are impossible; `broken` is set where a logit is not a number, or `limit` or more.
static int64_t race(const float* logits, int64_t vocabulary, float temperature, const float* variates, float limit,
                    bool& broken) {
  i32x16 fine = i32x16{} - 1;
  Best best = best_of(vocabulary, [&](int64_t i, int64_t count) {
    f32x16 v = load_some(logits + i, count, -INFINITY);
    fine &= below(v, limit);
    if (!variates) return v;
    if (temperature != 1.0f) v = v / temperature;
    return v - load_some(variates + i, count, 0.0f);
  });
  for (int32_t lane = 0; lane < LANES; lane++) broken |= !fine[lane];
  return best.token;
}

// The least logit that is kept, approximately: ties are ignored, and the nucleus is found by bisection.
static float least_kept(const float* logits, int64_t n, const Shaping& shaping, std::vector<float>& space) {
  float least = -INFINITY;
  if (shaping.top_k > 0 && shaping.top_k < n) {
    space.assign(logits, logits + n);
    std::nth_element(space.begin(), space.begin() + shaping.top_k - 1, space.end(), std::greater<float>());
    least = space[shaping.top_k - 1];
  }
  const float most = *std::max_element(logits, logits + n);
  if (shaping.min_p > 0) least = std::max(least, most + std::log(shaping.min_p));
  if (shaping.top_p >= 1) return least;
  auto mass = [&](float from) {
    f32x16 sums{};
    for (int64_t i = 0; i < n; i += LANES) {
      f32x16 v = load_some(logits + i, n - i, -INFINITY);
      sums += v >= from ? exp2((v - most) * 1.44269504f) : f32x16{};
    }
    return sum(sums);
  };
  float low = most - 40.0f, high = most, wanted = shaping.top_p * mass(std::max(least, low));
  for (int32_t halving = 0; halving < 24; halving++) {
    float middle = 0.5f * (low + high);
    (mass(middle) >= wanted ? low : high) = middle;
  }
  return std::max(least, low);
}

// The scores of a row in blocks, each with its highest score, to find the best ones one after another.
class Ranking {
 public:
  // `score(i, count)` returns the sixteen scores from i on, or the last `count`; if they are `changed`, they are
  // written to `scores`.
  template <class Score>
  Ranking(float* scores, int64_t n, bool changed, std::vector<float>& space, const Score& score)
      : scores_(scores), n_(n), tops_(space) {
    tops_.clear();
    for (int64_t block = 0; block < n; block += SIZE) {
      f32x16 top = splat(-INFINITY);
      for (int64_t i = block; i < std::min(block + SIZE, n); i += LANES) {
        const f32x16 v = score(i, n - i);
        if (changed) std::memcpy(scores + i, &v, std::min(n - i, LANES) * sizeof(float));
        top = max(v, top);
      }
      tops_.push_back(largest(top));
    }
  }

  // The highest score, with the lowest token that has it.
  Best best() const {
    const float* tops = tops_.data();
    Best found =
        best_of((int64_t)tops_.size(), [&](int64_t i, int64_t count) { return load_some(tops + i, count, -INFINITY); });
    if (found.token < 0) return found;
    found.token *= SIZE;
    while (scores_[found.token] != found.value) found.token++;
    return found;
  }

  void take_out(int64_t token) {
    scores_[token] = -INFINITY;
    const int64_t block = token / SIZE * SIZE;
    f32x16 top = splat(-INFINITY);
    for (int64_t i = block; i < std::min(block + SIZE, n_); i += LANES)
      top = max(load_some(scores_ + i, n_ - i, -INFINITY), top);
    tops_[block / SIZE] = largest(top);
  }

 private:
  static constexpr int64_t SIZE = 64;
  float* const scores_;
  const int64_t n_;
  std::vector<float>& tops_;
};

// Replaces a row's logits by their scores in the race.
static Ranking ranked(float* logits, int64_t n, const Shaping& shaping, const float* variates,
                      std::vector<float>& space) {
  if (!variates)
    return {logits, n, false, space, [&](int64_t i, int64_t count) { return load_some(logits + i, count, -INFINITY); }};
  float least = -INFINITY, temperature = shaping.temperature;
  if (shaping.top_k > 0 || shaping.top_p < 1 || shaping.min_p > 0) {
    for (int64_t i = 0; i < n; i++) logits[i] /= temperature;
    least = least_kept(logits, n, shaping, space);
    temperature = 1;
  }
  return {logits, n, true, space, [&](int64_t i, int64_t count) {
            f32x16 v = load_some(logits + i, count, -INFINITY);
            if (temperature != 1) v /= temperature;
            return (v < least ? splat(-INFINITY) : v) - load_some(variates + i, count, 0.0f);
          }};
}

// Writes a drafter's best guesses at one row's draw, best first, with their shares of the race; returns their number.
static int32_t guesses(float* logits, int64_t n, const Shaping& shaping, const float* variates, int32_t most,
                       int32_t* tokens, float* shares, std::vector<float>& space) {
  Ranking ranking = ranked(logits, n, shaping, variates, space);
  const Best first = ranking.best();
  if (first.token < 0 || !std::isfinite(first.value)) return 0;
  f32x16 sums{};
  for (int64_t i = 0; i < n; i += LANES)
    sums += exp2((load_some(logits + i, n - i, -INFINITY) - first.value) * 1.44269504f);
  const float total = sum(sums);
  int32_t found = 0;
  for (Best best = first; found < most && best.token >= 0 && std::isfinite(best.value); best = ranking.best()) {
    tokens[found] = (int32_t)best.token;
    shares[found++] = std::min(std::exp(best.value - first.value) / total, 1.0f);
    ranking.take_out(best.token);
  }
  return found;
}

}  // namespace outrider
