// What a small model's guessing is asked for, what it knows of a sequence, and what a run costs.
#pragma once
#include <algorithm>
#include <chrono>

#include "guess_tree.h"
#include "race.h"

struct DraftShape {
  int32_t children;      // guesses below each node
  int32_t rows;          // nodes grown in one run of the model, over all sequences
  int32_t rows_each;     // ... for a sequence
  int32_t ahead;         // most grown nodes of a sequence
  int32_t prefill_rows;  // tokens of prompts in one run
  int32_t pages, page_size, context_length;
  float least_value;  // a node less likely than this is neither grown nor told
  float row_cost;     // what a row adds to a run, of what the first row takes
};

struct DraftOpening {
  int64_t number;
  uint64_t seed;
  const int32_t* tokens;
  int32_t count, most;
  Shaping shaping;  // temperature 0 where the target is greedy
};

// What guesses have to bring so that they pay, in tokens of the target; zeros where drafting costs nothing.
struct DraftPrice {
  float guess, second;  // of a guess that is verified, of a second that is spent on drafting
};

// A tree behind the first `length` tokens of a sequence; its nodes lie at `first` in the caller's arrays.
struct DraftTree {
  int64_t number;
  int32_t length, first, count;
};

struct DraftSession {
  std::vector<int32_t> tokens, pages;
  GuessTree tree;
  uint64_t seed = 0;
  Shaping shaping{};
  int32_t most = 0;
  long cached = 0;
  bool muted = false, resting = false, improved = false;
  long pending() const { return (long)tokens.size() - cached; }
};

// Some rows of a session in one run: nodes of its tree, or a piece of the sequence itself.
struct DraftWork {
  DraftSession* session;
  std::vector<int32_t> nodes, parents;
  long rows;
  bool draws;

  void grow() {
    for (int32_t node : nodes) session->tree.grow(node);
    parents = session->tree.row_parents();
  }
};

// Seconds of some work, lately; one that something held up counts for little.
class Stopwatch {
 public:
  template <class Work>
  void time(const Work& work) {
    const auto began = std::chrono::steady_clock::now();
    work();
    const float took = std::chrono::duration<float>(std::chrono::steady_clock::now() - began).count();
    seconds_ = seconds_ > 0 ? seconds_ + (std::min(took, 2 * seconds_) - seconds_) / 16 : took;
  }
  float seconds() const { return seconds_; }

 private:
  float seconds_ = 0;
};
