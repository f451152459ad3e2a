// Trees of guesses that a small model grows behind many sequences, likeliest node first, keys and values kept in pages
// of its own. When tokens are decided, the accepted part of a tree stays.
#pragma once
#include <map>

#include "decoder.h"
#include "draft_session.h"
#include "pages.h"

namespace outrider {

class Drafts {
 public:
  // `pool` is empty and of the decoder's kind.
  Drafts(Decoder& decoder, const Model& model, const Pool& pool, const DraftShape& shape)
      : decoder_(decoder), model_(model), pool_(pool), shape_(shape) {
    free_.reserve((size_t)pool.pages);
    reset();
  }

  // Ends all sessions. Does not fail: there is room for all pages.
  void reset() noexcept {
    works_.clear();
    sessions_.clear();
    free_.clear();
    for (int32_t page = pool_.pages; page-- > 0;) free_.push_back(page);
  }

  void open(const DraftOpening& opening) {
    close(opening.number);
    Session& s = sessions_[opening.number];
    s.tokens.assign(opening.tokens, opening.tokens + opening.count);
    s.seed = opening.seed;
    s.shaping = opening.shaping;
    s.most = opening.most;
  }

  void close(int64_t number) {
    works_.clear();
    auto found = sessions_.find(number);
    if (found == sessions_.end()) return;
    restart(found->second);
    sessions_.erase(found);
    for (auto& each : sessions_) each.second.muted = false;
  }

  // Nothing is drafted until tokens are decided again.
  void rest(int64_t number) {
    auto found = sessions_.find(number);
    if (found != sessions_.end()) found->second.resting = true;
  }

  // Appends decided tokens to a sequence of `length`.
  void commit(int64_t number, int32_t length, const int32_t* tokens, int32_t count) {
    works_.clear();
    auto found = sessions_.find(number);
    if (found == sessions_.end()) return;
    Session& s = found->second;
    if (length != (int32_t)s.tokens.size()) return close(number);
    s.resting = false;
    if (!s.pending()) {
      std::vector<int32_t> rows;
      bool grown = s.tree.descend(tokens, count, rows);
      move(s, rows);
      s.cached += grown ? count : (int64_t)rows.size();
    }
    s.tokens.insert(s.tokens.end(), tokens, tokens + count);
  }

  int32_t free_pages() const { return (int32_t)free_.size(); }

  // Whether a session has decided tokens that the model has not read.
  bool reading() const {
    return std::any_of(sessions_.begin(), sessions_.end(),
                       [&](const auto& each) { return can_draft(each.second) && each.second.pending(); });
  }

  // Plans the next run, in which no node less likely than `least` grows.
  DraftPlan plan(float least) {
    works_.clear();
    int64_t live = 0, prefill = shape_.prefill_rows, left = shape_.rows;
    for (auto& each : sessions_) live += can_draft(each.second);
    const int64_t most = std::max(int64_t{1}, std::min<int64_t>(shape_.rows_each, left / std::max(live, int64_t{1})));
    for (auto& each : sessions_) {
      Session& s = each.second;
      if (!can_draft(s)) continue;
      if (s.pending()) {
        chunk(s, prefill);
      } else {
        growth(s, std::min(most, left), std::max(least, shape_.least_value));
        left -= works_.empty() || works_.back().session != &s ? 0 : works_.back().rows;
      }
    }
    DraftPlan made{0, (int32_t)works_.size()};
    for (const Work& work : works_) made.rows += (int32_t)work.rows;
    return made;
  }

  // Runs the model as it was planned.
  void run() {
    for (Work& work : works_) work.grow();
    if (!works_.empty()) forward();
    works_.clear();
  }

  // Writes the trees that have improved, each of at most `most` nodes; returns their number.
  int32_t write(int32_t most, const Trees& to) {
    int32_t count = 0, first = 0;
    for (auto& [number, s] : sessions_) {
      if (!s.improved) continue;
      s.improved = false;
      int32_t size = s.tree.write_best(std::min(s.most, most), shape_.least_value, to, first);
      to.trees[count++] = {number, (int32_t)s.tokens.size(), first, size};
      first += size;
    }
    return count;
  }

 private:
  using Session = DraftSession;
  using Work = DraftWork;

  // Forgets the tree and all keys and values.
  void restart(Session& s) {
    free_.insert(free_.end(), s.pages.begin(), s.pages.end());
    s.pages.clear();
    s.tree.clear();
    s.cached = 0;
  }

  void move(const Session& s, const std::vector<int32_t>& rows) const {
    std::vector<int64_t> sources, places;
    for (int64_t to = 0; to < (int64_t)rows.size(); to++) {
      if (rows[to] == to) continue;
      sources.push_back(slot(s, s.cached + rows[to]));
      places.push_back(slot(s, s.cached + to));
    }
    move_tokens(pool_, (int64_t)places.size(), sources.data(), places.data());
  }

  int64_t slot(const Session& s, int64_t place) const {
    return (int64_t)s.pages[place / pool_.page_size] * pool_.page_size + place % pool_.page_size;
  }

  bool room(Session& s, int64_t tokens) {
    while ((int64_t)s.pages.size() * pool_.page_size < tokens) {
      if (free_.empty()) {
        restart(s);
        s.muted = true;
        return false;
      }
      s.pages.push_back(free_.back());
      free_.pop_back();
    }
    return true;
  }

  bool can_draft(const Session& s) const {
    return !s.muted && !s.resting && (int64_t)s.tokens.size() < shape_.context_length;
  }

  void chunk(Session& s, int64_t& left) {
    int64_t rows = std::min(s.pending(), left);
    if (rows <= 0 || !room(s, s.cached + rows)) return;
    left -= rows;
    works_.push_back({&s, {}, {}, rows, rows == s.pending()});
  }

  // Adds the nodes to grow to the run. A node's value bounds the sum of its children's.
  void growth(Session& s, int64_t most, float least) {
    most = std::min(most, shape_.ahead - (int64_t)s.tree.grown.size());
    auto nodes = s.tree.frontier(most, least, shape_.context_length - (int64_t)s.tokens.size());
    nodes.resize(s.tree.worth_growing(nodes, shape_.row_cost));
    if (nodes.empty() || !room(s, s.cached + (int64_t)(s.tree.grown.size() + nodes.size()))) return;
    int64_t rows = (int64_t)nodes.size();
    works_.push_back({&s, std::move(nodes), {}, rows, true});
  }

  void forward() {
    ids_.clear();
    positions_.clear();
    sequences_.clear();
    for (const Work& work : works_) lay_out(work);
    hidden_.resize(ids_.size() * model_.hidden);
    Step step{ids_.data(),
              positions_.data(),
              sequences_.data(),
              pool_,
              hidden_.data(),
              (int32_t)sequences_.size(),
              (int32_t)ids_.size(),
              0,
              nullptr,
              nullptr,
              nullptr};
    if (decoder_.forward(step) == OUTRIDER_OK) return attach_guesses();
    for (Work& work : works_) {  // an id or a position that the model does not have
      restart(*work.session);
      work.session->muted = true;
    }
  }

  void lay_out(const Work& work) {
    const Session& s = *work.session;
    const bool chunk = work.nodes.empty();
    const int64_t nodes = chunk ? work.rows : (int64_t)s.tree.grown.size();
    sequences_.push_back({s.pages.data(), chunk ? nullptr : work.parents.data(), (int32_t)work.rows, (int32_t)s.cached,
                          (int32_t)nodes, (int32_t)ids_.size()});
    for (int64_t row = 0; row < work.rows; row++) {
      ids_.push_back(chunk ? s.tokens[s.cached + row] : s.tree.nodes[work.nodes[row]].token);
      positions_.push_back(s.cached + (chunk ? row : s.tree.nodes[work.nodes[row]].depth - 1));
    }
  }

  // Attaches the model's guesses below the rows that it ran on.
  void attach_guesses() {
    int64_t rows = 0, place = 0;
    for (const Work& work : works_) {
      int64_t drawing = !work.draws ? 0 : work.nodes.empty() ? 1 : work.rows;
      std::memmove(&hidden_[rows * model_.hidden], &hidden_[(place + work.rows - drawing) * model_.hidden],
                   drawing * model_.hidden * sizeof(float));
      rows += drawing;
      place += work.rows;
    }
    logits_.resize(rows * model_.vocabulary);
    if (rows) decoder_.logits(hidden_.data(), rows, logits_.data());
    float* logits = logits_.data();
    for (Work& work : works_) {
      if (work.nodes.empty()) work.session->cached += work.rows;
      if (!work.draws) continue;
      if (work.nodes.empty()) work.nodes.push_back(-1);
      for (int32_t node : work.nodes) {
        attach_guesses(*work.session, node, logits);
        logits += model_.vocabulary;
      }
      work.session->improved = true;
    }
  }

  void attach_guesses(Session& s, int32_t node, float* logits) {
    int32_t tokens[OUTRIDER_MOST_CHILDREN];
    float shares[OUTRIDER_MOST_CHILDREN];
    const uint32_t position = (uint32_t)(s.tokens.size() + s.tree.depth(node));
    const float* variates =
        s.shaping.temperature > 0 ? variate_cache().at(s.seed, position, model_.vocabulary) : nullptr;
    int32_t found = guesses(logits, model_.vocabulary, s.shaping, variates, shape_.children, tokens, shares, space_);
    for (int32_t i = 0; i < found; i++) s.tree.add(node, tokens[i], shares[i]);
  }

  Decoder& decoder_;
  const Model model_;
  const Pool pool_;
  const DraftShape shape_;
  std::map<int64_t, Session> sessions_;
  std::vector<int32_t> free_;
  std::vector<Work> works_;
  std::vector<int64_t> ids_, positions_;
  std::vector<Sequence> sequences_;
  std::vector<float> hidden_, logits_, space_;
};

}  // namespace outrider
