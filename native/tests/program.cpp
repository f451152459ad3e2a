// Calls every function of the ABI, built with sanitizers (tests/native/test_program.py). Each scenario runs as it is,
// then again and again with one allocation failing, the first, the second and so on: every call returns a status, and
// nothing leaks. Prints one line for each scenario. With an argument, no allocation fails.
#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "allocator.h"
#include "answers.h"
#include "check.h"
#include "tiny_model.h"

namespace {

using Status = outrider_status;

constexpr int64_t NONE = std::numeric_limits<int64_t>::max();  // more allocations than there are

// What a scenario works on, made while nothing fails.
struct Bench {
  TinyModel model;
  TinyPool pool;
  std::vector<int64_t> ids{5, 6, 7, 8, 9, 10, 11}, positions{0, 1, 2, 3, 4, 5, 6};
  std::vector<int32_t> pages{3, 1};
  std::vector<float> hidden, logits;

  Bench(const WeightKind& kind, TinyPool::Kind pages_kind, int32_t threads)
      : model(kind, threads),
        pool(pages_kind, pages_kind != TinyPool::Kind::FLOAT32 && outrider_packs_pages(&model.get())) {
    hidden.resize(ids.size() * HIDDEN);
    logits.resize(ids.size() * VOCABULARY);
  }

  // A step of `rows` rows from `first` on, a causal chunk or nodes behind the first `context` tokens.
  outrider_step step(int32_t first, int32_t rows, const std::vector<int32_t>* parents, int32_t context) {
    const int32_t nodes = parents ? static_cast<int32_t>(parents->size()) : rows;
    sequence_ = {pages.data(), parents ? parents->data() : nullptr, rows, context, nodes, 0};
    outrider_step made{};
    made.ids = &ids[static_cast<size_t>(first)];
    made.positions = &positions[static_cast<size_t>(first)];
    made.sequences = &sequence_;
    made.pool = pool.get();
    made.hidden = &hidden[static_cast<size_t>(first * HIDDEN)];
    made.count = 1;
    made.rows = rows;
    return made;
  }

 private:
  outrider_sequence sequence_{};
};

constexpr WeightKind FLOAT32{"float32", OUTRIDER_FLOAT32, 0, false};
constexpr WeightKind BFLOAT16{"bfloat16", OUTRIDER_BFLOAT16, 0, false};

// Makes calls in their order until one fails; returns its status.
template <class... Calls>
Status first_failure(const Calls&... calls) {
  Status status = OUTRIDER_OK;
  static_cast<void>((((status = calls()) == OUTRIDER_OK) && ...));
  return status;
}

// Scenarios let the allocation after `count` others fail, and return the first status that is not OK.
Status decode(Bench& bench, int64_t count) {
  outrider_decoder* decoder = nullptr;
  allocator::fail_after(count);
  if (const Status status = outrider_decoder_new(&bench.model.get(), &decoder); status != OUTRIDER_OK) return status;
  const int32_t rows = static_cast<int32_t>(bench.ids.size());
  const outrider_step chunk = bench.step(0, rows, nullptr, 0);
  const Status status =
      first_failure([&] { return outrider_decoder_forward(decoder, &chunk); },
                    [&] { return outrider_decoder_logits(decoder, bench.hidden.data(), rows, bench.logits.data()); });
  if (status == OUTRIDER_OK) {  // the projection to the vocabulary, as one beside the decoder
    allocator::fail_after(-1);
    const outrider_model& model = bench.model.get();
    std::vector<float> again(bench.logits.size());
    CHECK(outrider_decoder_project(decoder, &model.logits, bench.hidden.data(), model.hidden, rows, again.data(),
                                   model.vocabulary) == OUTRIDER_OK);
    CHECK(again == bench.logits);
  }
  if (status != OUTRIDER_OK) {  // the decoder stays usable
    allocator::fail_after(-1);
    CHECK(outrider_decoder_forward(decoder, &chunk) == OUTRIDER_OK);
  }
  outrider_decoder_free(decoder);
  return status;
}

// A row has the same bits in a chunk, alone, and as a node of a tree; threads change none.
void check_bits(const WeightKind& kind, TinyPool::Kind pages) {
  Bench bench(kind, pages, 3), other(kind, pages, 1);
  CHECK(decode(bench, NONE) == OUTRIDER_OK);
  for (float logit : bench.logits) CHECK(std::isfinite(logit));
  outrider_decoder* decoder = nullptr;
  CHECK(outrider_decoder_new(&other.model.get(), &decoder) == OUTRIDER_OK);
  for (int32_t row = 0; row < 4; row++) {
    const outrider_step single = other.step(row, 1, nullptr, row);
    CHECK(outrider_decoder_forward(decoder, &single) == OUTRIDER_OK);
  }
  const std::vector<int32_t> chain{-1, 0, 1};
  const outrider_step tree = other.step(4, 3, &chain, 4);
  CHECK(outrider_decoder_forward(decoder, &tree) == OUTRIDER_OK);
  CHECK(std::memcmp(bench.hidden.data(), other.hidden.data(), bench.hidden.size() * sizeof(float)) == 0);
  std::vector<float> embedded(2 * HIDDEN);
  outrider_decoder_embed(decoder, other.ids.data(), 2, embedded.data());
  CHECK(std::any_of(embedded.begin(), embedded.end(), [](float x) { return x != 0; }));
  outrider_decoder_free(decoder);
}

void check_bad_steps() {
  Bench bench(FLOAT32, TinyPool::Kind::FLOAT32, 1);
  outrider_decoder* decoder = nullptr;
  CHECK(outrider_decoder_new(&bench.model.get(), &decoder) == OUTRIDER_OK);
  const auto status = [&](const outrider_step& step) { return outrider_decoder_forward(decoder, &step); };
  bench.ids[0] = VOCABULARY;
  CHECK(status(bench.step(0, 1, nullptr, 0)) == OUTRIDER_BAD_ID);
  bench.ids[0] = 0, bench.positions[0] = POSITIONS;
  CHECK(status(bench.step(0, 1, nullptr, 0)) == OUTRIDER_BAD_POSITION);
  bench.positions[0] = 0, bench.pages[0] = PAGES;
  CHECK(status(bench.step(0, 1, nullptr, 0)) == OUTRIDER_BAD_PAGE);
  bench.pages.assign(OUTRIDER_MOST_NODES / PAGE_SIZE + 1, 0);
  const std::vector<int32_t> wide(OUTRIDER_MOST_NODES + 1, -1);
  CHECK(status(bench.step(0, 1, &wide, 0)) == OUTRIDER_BAD_TREE);
  outrider_decoder_free(decoder);
}

Status draw(Bench& bench, int64_t count) {
  const size_t rows = 3;
  std::vector<float> logits(rows * VOCABULARY, 0.0f), temperatures{0.0f, 0.7f, 1.0f}, variates(VOCABULARY);
  std::vector<uint64_t> seeds{1, 2, 3};
  std::vector<int64_t> tokens(rows), again(rows);
  logits[17] = 9.0f;
  outrider_variates(seeds.data(), bench.positions.data(), 1, VOCABULARY, variates.data());
  const outrider_race_rows race{logits.data(),       seeds.data(), bench.positions.data(),
                                temperatures.data(), rows,         VOCABULARY};
  allocator::fail_after(count);
  const Status status = outrider_race(&race, 0.01f, 1e30f, tokens.data());
  allocator::fail_after(-1);
  CHECK(outrider_race(&race, 0.01f, 1e30f, again.data()) == OUTRIDER_OK);
  CHECK(again[0] == 17 && (status != OUTRIDER_OK || tokens == again));
  logits[0] = std::numeric_limits<float>::quiet_NaN();
  CHECK(outrider_race(&race, 0.01f, 1e30f, again.data()) == OUTRIDER_BAD_LOGIT);
  return status;
}

Status rank(Bench& bench, int64_t count) {
  const int32_t most = 2;
  const std::vector<uint64_t> seeds{1, 2};
  const std::vector<int64_t> targets{0, 5, 17};
  const outrider_shaping shapings[] = {{0.0f, 1.0f, 0.0f, 0}, {0.7f, 0.9f, 0.0f, 2}};
  std::vector<float> logits{0.0f, 9.0f, 1.0f, 0.0f, 9.0f, 1.0f}, shares(4);
  std::vector<int32_t> tokens(4), found(2);
  const outrider_rank_rows rows{logits.data(), seeds.data(), bench.positions.data(), shapings, targets.data(), 2, 3,
                                VOCABULARY};
  allocator::fail_after(count);
  const Status status = outrider_rank(&rows, most, tokens.data(), shares.data(), found.data());
  allocator::fail_after(-1);
  CHECK(status != OUTRIDER_OK || (found[0] == most && tokens[0] == 5 && tokens[1] == 17 && shares[0] > 0.9f));
  return status;
}

Status move(Bench& bench, int64_t count) {
  const int64_t sources[] = {0, 1}, places[] = {1, 0};
  auto* first = static_cast<uint32_t*>(bench.pool.get().data);
  auto* second = first + 2 * KV_HEADS * HEAD_DIM;
  *first = 1, *second = 2;
  allocator::fail_after(count);
  const Status status = outrider_move(&bench.pool.get(), 2, sources, places);
  const bool moved = status == OUTRIDER_OK;
  CHECK(*first == (moved ? 2u : 1u) && *second == (moved ? 1u : 2u));
  return status;
}

Status draft(Bench& bench, int64_t count) {
  outrider_decoder* decoder = nullptr;
  const std::vector<int32_t> prompt{4, 5, 6, 7}, more{8, 9};
  std::vector<outrider_tree> trees(2);
  std::vector<int32_t> tokens(64), parents(64);
  std::vector<double> confidences(64);
  allocator::fail_after(count);
  if (const Status status = outrider_decoder_new(&bench.model.get(), &decoder); status != OUTRIDER_OK) return status;
  const outrider_draft_shape shape{3, 8, 4, 12, 16, POSITIONS, 1e-6f, 0.0f};
  outrider_drafts* drafts = nullptr;
  Status status = outrider_drafts_new(decoder, &bench.model.get(), &bench.pool.get(), &shape, &drafts);
  if (status == OUTRIDER_OK) {
    outrider_trees to{trees.data(), tokens.data(), parents.data(), confidences.data(), 0};
    outrider_draft_plan plan{};
    const auto opened = [&](int64_t number, float temperature) {
      const outrider_draft_opening opening{number, 3, {temperature, 0.9f, 0.01f, 20}, prompt.data(), 4, 16};
      return outrider_drafts_open(drafts, &opening);
    };
    const auto grow = [&] {
      const Status planned = outrider_drafts_plan(drafts, 0.0f, &plan);
      return planned == OUTRIDER_OK ? outrider_drafts_run(drafts) : planned;
    };
    const auto write = [&] { return outrider_drafts_write(drafts, 16, &to); };
    const auto calls = [&] {
      return first_failure([&] { return opened(1, 0.0f); }, [&] { return opened(2, 0.8f); }, grow, grow, write,
                           [&] { return outrider_drafts_commit(drafts, 1, 4, tokens.data(), 1); },
                           [&] { return outrider_drafts_commit(drafts, 2, 4, more.data(), 2); }, grow, grow, write);
    };
    status = calls();
    if (status == OUTRIDER_OK) CHECK(to.count > 0 && trees[0].nodes > 0);
    if (status != OUTRIDER_OK) {  // all sessions have ended, and new ones can begin
      CHECK(outrider_drafts_free_pages(drafts) == PAGES && !outrider_drafts_reading(drafts));
      allocator::fail_after(-1);
      CHECK(calls() == OUTRIDER_OK);
    }
    outrider_drafts_rest(drafts, 1);
    outrider_drafts_close(drafts, 1);
    outrider_drafts_close(drafts, 2);
    CHECK(outrider_drafts_free_pages(drafts) == PAGES);
  }
  outrider_drafts_free(drafts);
  outrider_decoder_free(decoder);
  return status;
}

Status suffix(Bench&, int64_t count) {
  std::vector<int32_t> text;
  for (int32_t i = 0; i < 60; i++) text.push_back(i % 7 + i % 3);
  const int32_t size = static_cast<int32_t>(text.size());
  std::vector<outrider_tree> trees(4);
  std::vector<int32_t> tokens(64), parents(64);
  std::vector<double> confidences(64);
  outrider_trees to{trees.data(), tokens.data(), parents.data(), confidences.data(), 0};
  const outrider_suffix_shape shape{1, 64, 2};
  outrider_suffixes* suffixes = nullptr;
  allocator::fail_after(count);
  if (const Status status = outrider_suffixes_new(&shape, &suffixes); status != OUTRIDER_OK) return status;
  const auto open = [&](int64_t number, const char* tenant) {
    const outrider_suffix_opening opening{number, text.data(), tenant, size, 5, 8, 40};
    return outrider_suffixes_open(suffixes, &opening);
  };
  const char* tenants[] = {"the first tenant, whose name is quite long", "the second tenant, whose name is also long",
                           "the third tenant, which displaces another one"};
  const auto close = [&](int64_t number) { return outrider_suffixes_close(suffixes, number); };
  const auto write = [&] { return outrider_suffixes_write(suffixes, &to); };
  const auto commit = [&] {
    const int64_t numbers[] = {1, 2};
    const int32_t counts[] = {2, 1}, decided[] = {3, 4, 5};
    const outrider_suffix_commits commits{numbers, counts, decided, 2};
    return outrider_suffixes_commit(suffixes, &commits);
  };
  const auto calls = [&] {
    return first_failure([&] { return open(1, tenants[0]); }, [&] { return open(2, tenants[1]); }, write, commit, write,
                         [&] { return close(1); }, write, [&] { return close(2); }, [&] { return open(3, tenants[2]); },
                         write, [&] { return close(3); }, write, [&] { return open(4, tenants[0]); }, write,
                         [&] { return outrider_suffixes_forget(suffixes, tenants[0], 40); });
  };
  const Status status = calls();
  if (status != OUTRIDER_OK) {  // everything is forgotten, and sessions can begin anew
    CHECK(outrider_suffixes_bytes(suffixes) == 0);
    allocator::fail_after(-1);
    CHECK(calls() == OUTRIDER_OK);
  }
  CHECK(outrider_suffixes_bytes(suffixes) > 0);
  outrider_suffixes_free(suffixes);
  return status;
}

// Runs a scenario on a thread of its own, whose caches end with it; returns whether the allocation after `count` others
// was reached, and so failed.
bool run_with_failure(Bench& bench, Status (*scenario)(Bench&, int64_t), int64_t count) {
  Status status = OUTRIDER_OK;
  const int64_t before = allocator::live();
  std::thread([&] { status = scenario(bench, count); }).join();
  const bool failed = allocator::failed();
  allocator::fail_after(-1);
  CHECK(status == (failed ? OUTRIDER_OUT_OF_MEMORY : OUTRIDER_OK));
  CHECK(allocator::live() == before);
  return failed;
}

void fail_each_allocation(const char* name, Bench& bench, Status (*scenario)(Bench&, int64_t)) {
  run_with_failure(bench, scenario, NONE);
  int64_t count = 0;
  while (run_with_failure(bench, scenario, count)) count++;
  std::printf("%s: %lld allocations, each failed once, no leak\n", name, static_cast<long long>(count));
}

}  // namespace

int main(int count, char**) {
  CHECK(outrider_usable());
  CHECK(std::strlen(outrider_abi()) > 0);
  const WeightKind kinds[] = {FLOAT32,
                              BFLOAT16,
                              {"float16", OUTRIDER_FLOAT16, 0, false},
                              {"Q8_0", OUTRIDER_QUANTIZED, OUTRIDER_Q8_0, false},
                              {"Q4_K", OUTRIDER_QUANTIZED, OUTRIDER_Q4_K, false},
                              {"Q6_K", OUTRIDER_QUANTIZED, OUTRIDER_Q6_K, false},
                              {"experts in float32", OUTRIDER_FLOAT32, 0, true}};
  for (const WeightKind& kind : kinds) print_answer(kind);
  print_answer({"bfloat16, of the pocket draft's shape", OUTRIDER_BFLOAT16, 0, false}, POCKET_DRAFT);
  print_answer({"bfloat16, of the pocket target's shape", OUTRIDER_BFLOAT16, 0, false}, POCKET_TARGET);
  print_variates();
  for (const WeightKind& kind : kinds) {
    check_bits(kind, TinyPool::Kind::FLOAT32);
    check_bits(kind, TinyPool::Kind::INT8);
    std::printf("%s: a row has the same bits in a chunk, alone and in a tree\n", kind.name);
  }
  check_bad_steps();
  std::printf("bad steps are refused\n");
  if (count > 1) return 0;
  Bench plain(FLOAT32, TinyPool::Kind::FLOAT32, 2), experts(kinds[6], TinyPool::Kind::INT8, 2);
  Bench narrow(BFLOAT16, TinyPool::Kind::INT8, 2);
  fail_each_allocation("decoder", plain, decode);
  fail_each_allocation("decoder with experts", experts, decode);
  fail_each_allocation("decoder in bfloat16", narrow, decode);
  fail_each_allocation("draw", plain, draw);
  fail_each_allocation("move", plain, move);
  fail_each_allocation("rank", plain, rank);
  fail_each_allocation("drafts", plain, draft);
  fail_each_allocation("suffixes", plain, suffix);
  return 0;
}
