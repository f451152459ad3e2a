// The library's face for guesses from suffix automata.
#include "suffix.h"

extern "C" {

void* outrider_suffixes_new(const SuffixShape* shape) { return new Suffixes(*shape); }

void outrider_suffixes_free(void* suffixes) { delete static_cast<Suffixes*>(suffixes); }

void outrider_suffixes_open(void* suffixes, const SuffixOpening* opening) {
  static_cast<Suffixes*>(suffixes)->open(*opening);
}

void outrider_suffixes_commit(void* suffixes, const SuffixCommits* commits) {
  static_cast<Suffixes*>(suffixes)->commit(*commits);
}

void outrider_suffixes_close(void* suffixes, int64_t number) { static_cast<Suffixes*>(suffixes)->close(number); }

int64_t outrider_suffixes_draft(void* suffixes, const SuffixCommits* commits, const SuffixTrees* trees) {
  static_cast<Suffixes*>(suffixes)->commit(*commits);
  return static_cast<Suffixes*>(suffixes)->draft(*trees);
}

int64_t outrider_suffixes_bytes(void* suffixes) { return static_cast<Suffixes*>(suffixes)->bytes(); }
}
