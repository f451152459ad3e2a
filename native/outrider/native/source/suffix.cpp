// The library's interface for guesses from suffix automata.
#include "suffix.h"

struct outrider_suffixes final : Suffixes {
  using Suffixes::Suffixes;
};

outrider_suffixes* outrider_suffixes_new(const outrider_suffix_shape* shape) { return new outrider_suffixes(*shape); }

void outrider_suffixes_free(outrider_suffixes* suffixes) { delete suffixes; }

void outrider_suffixes_open(outrider_suffixes* suffixes, const outrider_suffix_opening* opening) {
  suffixes->open(*opening);
}

void outrider_suffixes_commit(outrider_suffixes* suffixes, const outrider_suffix_commits* commits) {
  suffixes->commit(*commits);
}

void outrider_suffixes_close(outrider_suffixes* suffixes, int64_t number) { suffixes->close(number); }

void outrider_suffixes_forget(outrider_suffixes* suffixes, const char* tenant, int32_t tenant_size) {
  suffixes->forget({tenant, (size_t)tenant_size});
}

int32_t outrider_suffixes_write(outrider_suffixes* suffixes, const outrider_trees* to) { return suffixes->write(*to); }

int64_t outrider_suffixes_bytes(const outrider_suffixes* suffixes) { return suffixes->bytes(); }
