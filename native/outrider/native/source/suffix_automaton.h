// A suffix automaton with counts: every run of tokens that a text holds, in space and time linear in the text.
// Blumer et al. 1985, "The smallest automaton recognizing the subwords of a text".
#pragma once
#include <algorithm>
#include <cstdint>

#include "wiped.h"

namespace outrider {

// An edge: a token and the state to which it leads.
struct Edge {
  int32_t token, state;
};

// Edges by token in open addressing: those of the root, which may have as many as there are tokens.
class RootEdges {
 public:
  // The state, 0 for none.
  int32_t find(int32_t token) const { return slots_.empty() ? 0 : slots_[place(token)].state; }

  void set(Edge edge) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    Edge& slot = slots_[place(edge.token)];
    size_ += slot.state == 0;
    slot = edge;
  }

  size_t bytes() const { return slots_.capacity() * sizeof(Edge); }

 private:
  size_t place(int32_t token) const {
    const size_t mask = slots_.size() - 1;
    size_t at = ((uint32_t)token * 0x9E3779B1u >> 7) & mask;
    while (slots_[at].state && slots_[at].token != token) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    Wiped<Edge> old(slots_.empty() ? 16 : 2 * slots_.size(), Edge{0, 0});
    old.swap(slots_);
    for (const Edge& edge : old)
      if (edge.state) slots_[place(edge.token)] = edge;
  }

  Wiped<Edge> slots_;
  size_t size_ = 0;
};

// Each state stands for runs that occur at the same places; its link leads to the longest shorter run that occurs at
// more. One edge lies in the state itself, more of them in a block of a power of two, sorted by token.
class SuffixAutomaton {
 public:
  static constexpr int32_t ROOT = 0;
  struct Run {
    int32_t state, length;
  };
  struct Follower {
    int32_t count, token, state;
    bool operator<(const Follower& other) const {
      return count != other.count ? count < other.count : token < other.token;
    }
  };

  SuffixAutomaton() : states_(1, State{0, -1, 0, 0, {0, 0}}) {}

  int32_t size() const { return size_; }

  void append(int32_t token) {
    const int32_t fresh = push({states_[last_].length + 1, ROOT, 0, 0, {0, 0}});
    int32_t at = last_, found = 0;
    while (at >= 0 && !(found = next(at, token))) {
      add(at, {token, fresh});
      at = states_[at].link;
    }
    if (at >= 0)
      states_[fresh].link = states_[found].length == states_[at].length + 1 ? found : split(at, token, found);
    last_ = fresh;
    size_++;
    count(fresh);
  }

  // The longest run that ends a reader's text after `token` is appended; the automaton may have grown since `run`.
  Run step(Run run, int32_t token) const {
    int32_t state = run.state, length = run.length, found;
    while (state > 0 && length <= states_[states_[state].link].length) state = states_[state].link;
    while (!(found = next(state, token))) {
      if (state == ROOT) return {ROOT, 0};
      state = states_[state].link;
      length = states_[state].length;
    }
    return {found, length + 1};
  }

  // The longest run that ends the text and occurs earlier in it.
  Run repeated() const {
    const int32_t state = std::max(states_[last_].link, ROOT);
    return {state, states_[state].length};
  }

  // Writes the `most` most frequent followers of a non-empty run to `to`, the greater token first among equals, and
  // returns their number. `total` is the count of all followers.
  int32_t followers(int32_t state, int32_t most, Follower* to, int64_t& total) const {
    const State& s = states_[state];
    const Edge* edges = first(s);
    int32_t kept = 0;
    total = 0;
    for (int32_t i = 0; i < s.size; i++) {
      const Follower found{states_[edges[i].state].count, edges[i].token, edges[i].state};
      total += found.count;
      if (kept == most && !(to[kept - 1] < found)) continue;
      int32_t at = kept < most ? kept++ : kept - 1;
      for (; at > 0 && to[at - 1] < found; at--) to[at] = to[at - 1];
      to[at] = found;
    }
    return kept;
  }

  size_t bytes() const {
    return states_.capacity() * sizeof(State) + blocks_.capacity() * sizeof(Edge) + roots_.bytes();
  }

 private:
  // Counted are the longest runs that end at a token, which bounds the work where a text repeats one token for ever.
  static constexpr int32_t COUNTED = 16;
  struct State {
    int32_t length, link, count, size;
    Edge edge;  // the only one; `state` is where the block begins where there are more
  };

  const Edge* first(const State& s) const { return s.size > 1 ? &blocks_[s.edge.state] : &s.edge; }
  Edge* first(State& s) { return s.size > 1 ? &blocks_[s.edge.state] : &s.edge; }

  static const Edge* find(const Edge* edges, int32_t size, int32_t token) {
    return std::lower_bound(edges, edges + size, token, [](const Edge& e, int32_t t) { return e.token < t; });
  }

  // 0 for none: nothing leads to the root.
  int32_t next(int32_t state, int32_t token) const {
    if (state == ROOT) return roots_.find(token);
    const State& s = states_[state];
    const Edge *edges = first(s), *found = find(edges, s.size, token);
    return found < edges + s.size && found->token == token ? found->state : 0;
  }

  // `token` led nowhere before.
  void add(int32_t state, Edge edge) {
    if (state == ROOT) return roots_.set(edge);
    State& s = states_[state];
    if (s.size && !(s.size & (s.size - 1))) widen(s);
    Edge* edges = s.size ? &blocks_[s.edge.state] : &s.edge;
    Edge* place = edges + (find(edges, s.size, edge.token) - edges);
    std::move_backward(place, edges + s.size, edges + s.size + 1);
    *place = edge;
    s.size++;
  }

  void replace(int32_t state, Edge edge) {
    if (state == ROOT) return roots_.set(edge);
    State& s = states_[state];
    Edge* edges = first(s);
    edges[find(edges, s.size, edge.token) - edges] = edge;
  }

  // Doubles the room of a state whose block is full.
  void widen(State& s) {
    const int32_t wide = take(rank(s.size) + 1);
    std::copy_n(first(s), s.size, &blocks_[wide]);
    if (s.size > 1) give(s.edge.state, rank(s.size));
    s.edge.state = wide;
  }

  // Splits the short runs of `found`, which now occur at more places, from the long ones.
  int32_t split(int32_t at, int32_t token, int32_t found) {
    State copy = states_[found];
    copy.length = states_[at].length + 1;
    if (copy.size > 1) {
      copy.edge.state = take(rank(copy.size));
      std::copy_n(first(states_[found]), copy.size, &blocks_[copy.edge.state]);
    }
    const int32_t clone = push(copy);
    for (; at >= 0 && next(at, token) == found; at = states_[at].link) replace(at, {token, clone});
    states_[found].link = clone;
    return clone;
  }

  void count(int32_t state) {
    for (int32_t i = 0; i < COUNTED && state > 0; i++) {
      states_[state].count++;
      state = states_[state].link;
    }
  }

  int32_t push(const State& state) {
    states_.push_back(state);
    return (int32_t)states_.size() - 1;
  }

  // A block of 2^rank has room for so many edges.
  static int32_t rank(int32_t size) { return size <= 1 ? 0 : 32 - __builtin_clz((uint32_t)size - 1); }

  int32_t take(int32_t rank) {
    int32_t block = free_[rank] - 1;
    if (block >= 0) {
      free_[rank] = blocks_[block].state;
      return block;
    }
    block = (int32_t)blocks_.size();
    blocks_.resize(blocks_.size() + (size_t{1} << rank));
    return block;
  }

  void give(int32_t block, int32_t rank) {
    blocks_[block].state = free_[rank];
    free_[rank] = block + 1;
  }

  Wiped<State> states_;
  Wiped<Edge> blocks_;
  RootEdges roots_;
  int32_t free_[32] = {};  // by rank the latest block that is free, plus one; it names the one before
  int32_t last_ = ROOT, size_ = 0;
};

}  // namespace outrider
