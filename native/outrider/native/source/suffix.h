// Guesses what follows a sequence's latest tokens from what followed them before, in the sequence or in the tenant's
// recent answers.
#pragma once
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "abi.h"
#include "suffix_automaton.h"

namespace outrider {

// A tenant's recent answers in two automata: when the young one is full, it replaces the old one.
struct TenantMemory {
  struct AnswerAutomaton {
    int64_t id = 0;
    SuffixAutomaton text;
  };
  std::unique_ptr<AnswerAutomaton> old, young;

  void append(int32_t token, int32_t each, int64_t& ids) {
    if (young->text.size() >= each) rotate(ids);
    young->text.append(token);
  }

  void rotate(int64_t& ids) {
    old = std::move(young);
    young = std::make_unique<AnswerAutomaton>();
    young->id = ids++;
  }
};

// As outrider.engine.speculation.drafters.matches defines it.
static inline double match_confidence(int64_t length) { return length > 1 ? 1 - 1.0 / (double)length : 0.3; }

// A tree under construction, grown from the likeliest followers in all automata.
class SuffixGrowth {
 public:
  static constexpr int32_t END = -1;  // of an answer

  void clear() noexcept {
    open_.clear();
    order_ = 0;
  }

  // Adds the followers of a run that ends at `parent`, whose value is `value`, to the candidates.
  void look(const SuffixAutomaton& text, SuffixAutomaton::Run run, int32_t parent, double value) {
    SuffixAutomaton::Follower found[CHILDREN];
    int64_t total;
    const int32_t count = text.followers(run.state, CHILDREN, found, total);
    for (int32_t i = 0; i < count; i++) {
      if (found[i].token == END || !found[i].count) continue;
      const double sure = (double)found[i].count / (double)total * match_confidence(run.length);
      open_.push_back({value * sure, sure, &text, order_++, parent, found[i].token, {found[i].state, run.length + 1}});
      std::push_heap(open_.begin(), open_.end());
    }
  }

  // Writes the `most` most valuable guesses from `first` on, without duplicates; returns their number.
  int32_t grow(int32_t most, const Trees& to, int32_t first) {
    int32_t *tokens = to.tokens + first, *parents = to.parents + first, size = 0;
    while (!open_.empty() && size < most) {
      std::pop_heap(open_.begin(), open_.end());
      const Entry best = open_.back();
      open_.pop_back();
      int32_t node = 0;
      while (node < size && (tokens[node] != best.token || parents[node] != best.parent)) node++;
      if (node == size) {
        tokens[node] = best.token;
        parents[node] = best.parent;
        to.confidences[first + size++] = best.sure;
      }
      look(*best.text, best.run, node, best.value);
    }
    return size;
  }

 private:
  static constexpr int32_t CHILDREN = 4;
  struct Entry {
    double value, sure;
    const SuffixAutomaton* text;
    int32_t order, parent, token;
    SuffixAutomaton::Run run;
    bool operator<(const Entry& other) const {
      return value != other.value ? value < other.value : order > other.order;
    }
  };
  std::vector<Entry> open_;
  int32_t order_ = 0;
};

class Suffixes {
 public:
  explicit Suffixes(const SuffixShape& shape) : shape_(shape), each_(std::max(shape.tokens / 2, 1)) {}

  // Ends all sessions, and forgets all answers.
  void reset() noexcept {
    growth_.clear();
    stale_.clear();
    sessions_.clear();
    answers_.clear();
    by_tenant_.clear();
    memories_.clear();
  }

  void open(const SuffixOpening& opening) {
    Session& s = sessions_[opening.number];
    const bool stale = s.stale;
    s = Session{};
    s.tokens.assign(opening.tokens, opening.tokens + opening.count);
    s.tenant.assign(opening.tenant, opening.tenant_size);
    s.prompt = std::min(opening.prompt, opening.count);
    s.most = opening.most;
    s.stale = stale;
    mark(opening.number, s);
  }

  void commit(const SuffixCommits& commits) {
    const int32_t* tokens = commits.tokens;
    for (int64_t i = 0; i < commits.size; tokens += commits.counts[i++]) {
      auto found = sessions_.find(commits.numbers[i]);
      if (found == sessions_.end()) continue;
      Session& s = found->second;
      s.tokens.insert(s.tokens.end(), tokens, tokens + commits.counts[i]);
      mark(commits.numbers[i], s);
    }
  }

  // Forgets the session, and keeps its answer for the tenant's later ones.
  void close(int64_t number) {
    auto found = sessions_.find(number);
    if (found == sessions_.end()) return;
    Session& s = found->second;
    if (s.stale) stale_.erase(std::find(stale_.begin(), stale_.end(), number));
    Wiped<int32_t> answer(s.tokens.begin() + s.prompt, s.tokens.end());
    answer.push_back(SuffixGrowth::END);
    answers_.push_back({std::move(s.tenant), std::move(answer), 0});
    sessions_.erase(found);
  }

  // Drops the tenant's sessions and answers.
  void forget(const std::string& tenant) {
    for (auto each = sessions_.begin(); each != sessions_.end();) {
      const auto session = each++;
      if (session->second.tenant != tenant) continue;
      stale_.erase(std::remove(stale_.begin(), stale_.end(), session->first), stale_.end());
      sessions_.erase(session);
    }
    answers_.erase(
        std::remove_if(answers_.begin(), answers_.end(), [&](const Answer& answer) { return answer.tenant == tenant; }),
        answers_.end());
    const auto found = by_tenant_.find(tenant);
    if (found == by_tenant_.end()) return;
    memories_.erase(found->second);
    by_tenant_.erase(found);
  }

  // Reads a bounded number of new tokens, and writes a tree for each session whose tokens have changed; returns their
  // number. There must be room for each session's largest tree.
  int32_t write(const Trees& to) {
    int64_t left = A_ROUND;
    int32_t trees = 0, first = 0;
    size_t kept = 0;
    for (int64_t number : stale_) {
      Session& s = sessions_.find(number)->second;
      for (; left > 0 && s.behind(); left--) s.own.append(s.tokens[s.own.size()]);
      if (s.behind()) {
        stale_[kept++] = number;
        continue;
      }
      s.stale = false;
      const int32_t size = tree(s, to, first);
      if (!size) continue;
      to.trees[trees++] = {number, (int32_t)s.tokens.size(), first, size};
      first += size;
    }
    stale_.resize(kept);
    remember(left);
    return trees;
  }

  // Memory held for sequences and answers.
  int64_t bytes() const {
    size_t sum = 0;
    for (const auto& each : sessions_) sum += each.second.tokens.capacity() * sizeof(int32_t) + each.second.own.bytes();
    for (const auto& [tenant, memory] : memories_)
      sum += memory.young->text.bytes() + (memory.old ? memory.old->text.bytes() : 0);
    for (const Answer& answer : answers_) sum += answer.tokens.capacity() * sizeof(int32_t);
    return (int64_t)sum;
  }

 private:
  static constexpr int64_t A_ROUND = 1024;
  static constexpr int32_t TAIL = 32;
  // The state of an automaton after the first `read` tokens of a sequence.
  struct Place {
    int64_t id = -1;
    SuffixAutomaton::Run run{SuffixAutomaton::ROOT, 0};
    size_t read = 0;
  };
  struct Session {
    Wiped<int32_t> tokens;
    std::string tenant;
    SuffixAutomaton own;
    Place places[2];
    int32_t prompt = 0, most = 0;
    bool stale = false;
    bool behind() const { return own.size() < (int32_t)tokens.size(); }
  };
  struct Answer {
    std::string tenant;
    Wiped<int32_t> tokens;
    size_t taken;
  };
  using Memories = std::list<std::pair<std::string, TenantMemory>>;  // the least recently used first

  void mark(int64_t number, Session& s) {
    if (!s.stale) stale_.push_back(number);
    s.stale = true;
  }

  int32_t tree(Session& s, const Trees& to, int32_t first) {
    growth_.clear();
    look(s.own, s.own.repeated());
    const auto found = by_tenant_.find(s.tenant);
    Place places[2];
    if (found != by_tenant_.end()) {
      const TenantMemory& memory = found->second->second;
      if (memory.old) places[0] = place(s, *memory.old);
      places[1] = place(s, *memory.young);
      if (memory.old) look(memory.old->text, places[0].run);
      look(memory.young->text, places[1].run);
    }
    std::copy_n(places, 2, s.places);
    return growth_.grow(s.most, to, first);
  }

  void look(const SuffixAutomaton& text, SuffixAutomaton::Run run) {
    if (run.length >= shape_.least_match) growth_.look(text, run, -1, 1.0);
  }

  static Place place(const Session& s, const TenantMemory::AnswerAutomaton& known) {
    const size_t size = s.tokens.size();
    Place at{known.id, {SuffixAutomaton::ROOT, 0}, size - std::min<size_t>(size, TAIL)};
    for (const Place& before : s.places)
      if (before.id == known.id) at = before;
    for (; at.read < size; at.read++) at.run = known.text.step(at.run, s.tokens[at.read]);
    return at;
  }

  void remember(int64_t left) {
    while (left > 0 && !answers_.empty()) {
      Answer& answer = answers_.front();
      TenantMemory& known = memory(answer.tenant);
      for (; left > 0 && answer.taken < answer.tokens.size(); left--)
        known.append(answer.tokens[answer.taken++], each_, ids_);
      if (answer.taken == answer.tokens.size()) answers_.pop_front();
    }
  }

  TenantMemory& memory(const std::string& tenant) {
    const auto found = by_tenant_.find(tenant);
    if (found != by_tenant_.end()) {
      memories_.splice(memories_.end(), memories_, found->second);
      return found->second->second;
    }
    memories_.emplace_back(tenant, TenantMemory{});
    memories_.back().second.rotate(ids_);
    by_tenant_[tenant] = std::prev(memories_.end());
    if ((int64_t)memories_.size() > shape_.tenants) {
      by_tenant_.erase(memories_.front().first);
      memories_.pop_front();
    }
    return memories_.back().second;
  }

  const SuffixShape shape_;
  const int32_t each_;
  std::unordered_map<int64_t, Session> sessions_;
  std::vector<int64_t> stale_;  // in the order of their changes
  Memories memories_;
  std::unordered_map<std::string, Memories::iterator> by_tenant_;
  std::deque<Answer> answers_;
  SuffixGrowth growth_;
  int64_t ids_ = 0;
};

}  // namespace outrider
