// A sequence for which a small model guesses, and its part of one run.
#pragma once
#include "guess_tree.h"
#include "race.h"

namespace outrider {

struct DraftSession {
  std::vector<int32_t> tokens, pages;
  GuessTree tree;
  uint64_t seed = 0;
  Shaping shaping{};
  int32_t most = 0;
  int64_t cached = 0;
  bool muted = false, resting = false, improved = false;
  int64_t pending() const { return (int64_t)tokens.size() - cached; }
};

// Some rows of a session in one run: nodes of its tree, or a piece of the sequence itself.
struct DraftWork {
  DraftSession* session;
  std::vector<int32_t> nodes, parents;
  int64_t rows;
  bool draws;

  void grow() {
    for (int32_t node : nodes) session->tree.grow(node);
    parents = session->tree.row_parents();
  }
};

}  // namespace outrider
