// Which guesses a step verifies: the trees of all its sequences, merged, ranked and bought. What it says, and in which
// order it adds and multiplies, is what `merge` and `buy` of the verifier say in Python.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

constexpr int MERGE_EDGES = 15;

struct MergeTerms {
  int32_t sequences, limit, tenants, tenant_cap;
};

// What is read, one after another: the terms; for each sequence a head and its trees, for each tree a head, then tokens, parents and
// what was decided since; of a sequence that is ready, whose trees are -1, a head and the parents alone. Its confidences
// are values of whole paths.
struct MergeReader {
  struct Sequence {
    int32_t trees, depth, cap, tenant, greedy;
  };
  struct Tree {
    int32_t nodes, decided, drafter;
  };
  const int32_t* words;
  const double* confidences;

  template <class Head>
  const Head& head() {
    const int32_t* at = words;
    words += sizeof(Head) / sizeof(int32_t);
    return *reinterpret_cast<const Head*>(at);
  }
};

// What is written: how many guesses were bought, trees died and cells are told; the number of each sequence's guesses;
// columns of its guesses for each sequence; trees that died; threes of drafter, depth and number. Then, apart, values and
// confidences for each sequence.
struct MergeWriter {
  int32_t* words;
  double* reals;

  void put(int32_t word) { *words++ = word; }
};

class Merging {
 public:
  explicit Merging(const double* edges) { std::copy_n(edges, MERGE_EDGES, bounds); }

  // What a drafter's confidences are worth, by bin, for sequences that are greedy or not.
  void set_rates(int32_t drafter, bool greedy, const double* worth) {
    if ((size_t)drafter >= rates.size()) rates.resize(drafter + 1);
    rates[drafter][greedy] = worth;
  }

  // Buys by the seconds of a step with each number of guesses, those with guesses times a surcharge, and looks at no guess
  // of less than the least value. How many words were written.
  int64_t buy(MergeReader from, const double* seconds, double least, double surcharge, int32_t* words, double* reals) {
    const auto& terms = from.head<MergeTerms>();
    merge(terms, least, from);
    rank();
    MergeWriter to{words + 3, reals};
    words[0] = choose(terms, seconds, surcharge);
    tell(to);
    words[1] = (int32_t)died.size();
    to.words = std::copy(died.begin(), died.end(), to.words);
    words[2] = count(to);
    return to.words - words;
  }

 private:
  static constexpr int32_t TOP = -1, OUT = -2;

  struct Candidate {
    int32_t token, parent, depth, drafter, first, child, sibling;
    double value, confidence;
    bool taken, chosen;
  };
  struct Place {
    double value;
    int32_t owner, node;
  };
  struct Rates {
    const double* of[2];
    const double*& operator[](bool greedy) { return of[greedy]; }
  };

  void merge(const MergeTerms& terms, double least, MergeReader& from) {
    candidates.clear();
    starts.clear();
    owners.clear();
    died.clear();
    int32_t tree = 0;
    for (int32_t i = 0; i < terms.sequences; i++) {
      starts.push_back((int32_t)candidates.size());
      const auto& owner = from.head<MergeReader::Sequence>();
      owners.push_back(owner);
      top = TOP;
      if (owner.trees < 0) take(from);
      for (int32_t t = 0; t < owner.trees; t++, tree++)
        if (!add(owner, least, from)) died.push_back(tree);
    }
    starts.push_back((int32_t)candidates.size());
  }

  void take(MergeReader& from) {
    int32_t nodes = from.head<MergeReader::Tree>().nodes;
    for (int32_t n = 0; n < nodes; n++)
      candidates.push_back({0, from.words[n], 0, -1, -1, TOP, TOP, from.confidences[n], 0, false, false});
    from.words += nodes, from.confidences += nodes;
  }

  // Whether something of the tree hangs from the sequence's end.
  bool add(const MergeReader::Sequence& owner, double least, MergeReader& from) {
    const auto& tree = from.head<MergeReader::Tree>();
    const int32_t *tokens = from.words, *parents = tokens + tree.nodes, *decided = parents + tree.nodes;
    const double *confidences = from.confidences, *worth = rates[tree.drafter][owner.greedy != 0];
    from.words += 2 * tree.nodes + tree.decided, from.confidences += tree.nodes;
    int32_t root = descend(tree, tokens, parents, decided);
    bool lives = tree.decided == 0;
    places.assign(tree.nodes, OUT);
    for (int32_t n = root + 1; root != OUT && n < tree.nodes; n++) {
      int32_t parent = parents[n], above = parent == root ? TOP : parent < root ? OUT : places[parent];
      lives |= parent == root;
      if (above == OUT) continue;
      const Candidate* up = above < 0 ? nullptr : &mine(above);
      int32_t depth = up ? up->depth + 1 : 1;
      double value = worth[bin(confidences[n])] * (up ? up->value : 1.0);
      if (depth > owner.depth || value < least) continue;
      places[n] = place(above, tokens[n], depth, value, confidences[n], tree.drafter);
    }
    return lives;
  }

  static int32_t descend(const MergeReader::Tree& tree, const int32_t* tokens, const int32_t* parents,
                         const int32_t* decided) {
    int32_t root = -1;
    for (int32_t i = 0; i < tree.decided; i++) {
      int32_t next = root + 1;
      while (next < tree.nodes && (parents[next] != root || tokens[next] != decided[i])) next++;
      if (next == tree.nodes) return OUT;
      root = next;
    }
    return root;
  }

  int64_t bin(double confidence) const { return std::lower_bound(bounds, bounds + MERGE_EDGES, confidence) - bounds; }

  Candidate& mine(int32_t node) { return candidates[starts.back() + node]; }

  int32_t place(int32_t above, int32_t token, int32_t depth, double value, double confidence, int32_t drafter) {
    int32_t eldest = above < 0 ? top : mine(above).child, known = eldest;
    while (known >= 0 && mine(known).token != token) known = mine(known).sibling;
    if (known < 0) {
      known = (int32_t)candidates.size() - starts.back();
      candidates.push_back({token, above, depth, drafter, drafter, TOP, eldest, value, confidence, false, false});
      (above < 0 ? top : mine(above).child) = known;
    } else if (Candidate& node = mine(known); value > node.value) {
      node.value = value, node.confidence = confidence, node.drafter = drafter;
    }
    return known;
  }

  // Writes how many candidates there were, of each drafter and depth; in how many cells.
  int32_t count(MergeWriter& to) {
    int32_t width = 1, cells = 0;
    for (const Candidate& each : candidates) width = std::max(width, each.depth + 1);
    places.assign(rates.size() * width, 0);
    for (const Candidate& each : candidates)
      if (each.drafter >= 0) places[each.drafter * width + each.depth]++;
    for (int32_t cell = 0; cell < (int32_t)places.size(); cell++)
      if (places[cell]) {
        to.put(cell / width), to.put(cell % width), to.put(places[cell]);
        cells++;
      }
    return cells;
  }

  void rank() {
    ranked.clear();
    for (int32_t owner = 0; owner + 1 < (int32_t)starts.size(); owner++)
      for (int32_t node = starts[owner]; node < starts[owner + 1]; node++)
        ranked.push_back({candidates[node].value, owner, node});
    std::sort(ranked.begin(), ranked.end(), [](const Place& a, const Place& b) {
      return a.value != b.value ? a.value > b.value : a.node < b.node;
    });
  }

  // Marks what is worth most for its time; how many guesses that is.
  int32_t choose(const MergeTerms& terms, const double* seconds, double surcharge) {
    spent.assign(terms.tenants, 0);
    held.assign(terms.sequences, 0);
    order.clear();
    size_t bought = 0;
    double expected = terms.sequences, best = expected / seconds[0];
    for (const Place& each : ranked) {
      const auto& owner = owners[each.owner];
      Candidate& node = candidates[each.node];
      if ((int32_t)order.size() >= terms.limit) break;
      if (held[each.owner] >= owner.cap) continue;
      if (node.parent >= 0 && !candidates[starts[each.owner] + node.parent].taken) continue;
      if (terms.tenant_cap && spent[owner.tenant]++ >= terms.tenant_cap) continue;
      node.taken = true;
      held[each.owner]++;
      order.push_back(each.node);
      expected += each.value;
      double rate = expected / (seconds[order.size()] * surcharge);
      if (rate > best) best = rate, bought = order.size();
    }
    for (size_t i = 0; i < bought; i++) candidates[order[i]].chosen = true;
    return (int32_t)bought;
  }

  void tell(MergeWriter& to) {
    int32_t* sizes = to.words;
    to.words += owners.size();
    for (size_t owner = 0; owner < owners.size(); owner++) {
      order.clear();
      places.assign(starts[owner + 1] - starts[owner], TOP);
      for (int32_t node = starts[owner]; node < starts[owner + 1]; node++)
        if (candidates[node].chosen) {
          places[node - starts[owner]] = (int32_t)order.size();
          order.push_back(node);
        }
      sizes[owner] = (int32_t)order.size();
      tell(starts[owner], to);
    }
  }

  // Those of one sequence that are in order, whose first candidate is given.
  void tell(int32_t start, MergeWriter& to) {
    const int32_t size = (int32_t)order.size();
    for (int32_t at = 0; at < size; at++) {
      const Candidate& each = candidates[order[at]];
      const int32_t parent = each.parent < 0 ? TOP : places[each.parent];
      const int32_t row[] = {each.token, parent, each.depth, each.drafter, each.first, order[at] - start};
      for (int32_t i = 0; i < 6; i++) to.words[i * size + at] = row[i];
      to.reals[at] = each.value, to.reals[size + at] = each.confidence;
    }
    to.words += 6 * size, to.reals += 2 * size;
  }

  double bounds[MERGE_EDGES];
  std::vector<Rates> rates;
  std::vector<MergeReader::Sequence> owners;
  std::vector<Candidate> candidates;
  std::vector<int32_t> starts, places, order, spent, held, died;
  std::vector<Place> ranked;
  int32_t top = TOP;
};
