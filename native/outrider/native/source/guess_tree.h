// The tree that a small model grows for one sequence, and its rest when tokens are decided.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "abi.h"

namespace outrider {

struct GuessTree {
  struct Node {
    int32_t token, parent;  // -1 at the top
    float confidence, value;
    int32_t depth, row;  // 1 at the top; place behind the sequence's keys and values in the order of growth, or -1
  };
  std::vector<Node> nodes;
  std::vector<int32_t> grown;  // nodes that the model ran on, in that order

  void clear() {
    nodes.clear();
    grown.clear();
  }

  int32_t depth(int32_t node) const { return node < 0 ? 0 : nodes[node].depth; }

  void add(int32_t parent, int32_t token, float confidence) {
    float value = parent < 0 ? 1.0f : nodes[parent].value;
    nodes.push_back({token, parent, confidence, value * confidence, depth(parent) + 1, -1});
  }

  void grow(int32_t node) {
    nodes[node].row = (int32_t)grown.size();
    grown.push_back(node);
  }

  // The most valuable nodes that are not grown yet, best first.
  std::vector<int32_t> frontier(int64_t most, float least_value, int64_t max_depth) const {
    std::vector<int32_t> open;
    for (int32_t n = 0; n < (int32_t)nodes.size(); n++)
      if (nodes[n].row < 0 && nodes[n].value >= least_value && nodes[n].depth < max_depth) open.push_back(n);
    keep_best(open, most);
    return open;
  }

  // How many of `some`, likeliest first, give a run the most value per time: each adds more per row's time than the run
  // before it has.
  size_t worth_growing(const std::vector<int32_t>& some, float row_cost) const {
    float sum = 0, time = 0;
    for (size_t count = 0; count < some.size(); count++) {
      const float value = nodes[some[count]].value;
      if (count && value * time < row_cost * sum) return count;
      sum += value;
      time += count ? row_cost : 1;
    }
    return some.size();
  }

  // The row of each grown node's parent, -1 at the top.
  std::vector<int32_t> row_parents() const {
    std::vector<int32_t> rows;
    for (int32_t n : grown) rows.push_back(nodes[n].parent < 0 ? -1 : nodes[nodes[n].parent].row);
    return rows;
  }

  // Descends along decided tokens. `rows` gets the rows that stay, in their new order: the path's, then those below it.
  // Returns whether the path was grown to its end; if not, the tree is cleared.
  bool descend(const int32_t* tokens, int32_t count, std::vector<int32_t>& rows) {
    int32_t at = -1;
    for (int32_t i = 0; i < count; i++) {
      int32_t next = at + 1;
      while (next < (int32_t)nodes.size() && (nodes[next].parent != at || nodes[next].token != tokens[i])) next++;
      if (next == (int32_t)nodes.size() || nodes[next].row < 0) {
        clear();
        return false;
      }
      rows.push_back(nodes[at = next].row);
    }
    keep_below(at, rows);
    return true;
  }

  // Writes the `most` most valuable nodes from `first` on, in the order of growth; returns their number.
  int32_t write_best(int64_t most, float least_value, const Trees& to, int32_t first) const {
    std::vector<int32_t> kept, renamed(nodes.size(), -1);
    for (int32_t n = 0; n < (int32_t)nodes.size(); n++)
      if (nodes[n].value >= least_value) kept.push_back(n);
    keep_best(kept, most);
    std::sort(kept.begin(), kept.end());
    for (int32_t i = 0; i < (int32_t)kept.size(); i++) {
      const Node& node = nodes[kept[i]];
      renamed[kept[i]] = i;
      to.tokens[first + i] = node.token;
      to.parents[first + i] = node.parent < 0 ? -1 : renamed[node.parent];
      to.confidences[first + i] = node.confidence;
    }
    return (int32_t)kept.size();
  }

 private:
  void keep_best(std::vector<int32_t>& some, int64_t most) const {
    std::stable_sort(some.begin(), some.end(), [&](int32_t a, int32_t b) { return nodes[a].value > nodes[b].value; });
    if ((int64_t)some.size() > most) some.resize(std::max<int64_t>(most, 0));
  }

  void keep_below(int32_t root, std::vector<int32_t>& rows) {
    const Node top = nodes[root];
    GuessTree rest;
    std::vector<int32_t> renamed(nodes.size(), -2);
    renamed[root] = -1;
    for (int32_t n = root + 1; n < (int32_t)nodes.size(); n++) {
      const Node& node = nodes[n];
      if (node.parent < 0 || renamed[node.parent] == -2) continue;
      renamed[n] = (int32_t)rest.nodes.size();
      float value = top.value > 0 ? node.value / top.value : 0.0f;
      rest.nodes.push_back({node.token, renamed[node.parent], node.confidence, value, node.depth - top.depth, -1});
    }
    for (int32_t n : grown)
      if (renamed[n] >= 0) {
        rows.push_back(nodes[n].row);
        rest.grow(renamed[n]);
      }
    *this = std::move(rest);
  }
};

}  // namespace outrider
