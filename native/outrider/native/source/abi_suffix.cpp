// The library's interface for guesses from suffix automata.
#include "guard.h"
#include "suffix.h"

using namespace outrider;

struct outrider_suffixes final : Suffixes {
  using Suffixes::Suffixes;
};

outrider_status outrider_suffixes_new(const outrider_suffix_shape* shape, outrider_suffixes** suffixes) noexcept {
  return guarded([&] {
    *suffixes = new outrider_suffixes(*shape);
    return OUTRIDER_OK;
  });
}

void outrider_suffixes_free(outrider_suffixes* suffixes) noexcept { delete suffixes; }

outrider_status outrider_suffixes_open(outrider_suffixes* suffixes, const outrider_suffix_opening* opening) noexcept {
  return guarded_change(*suffixes, [&] { suffixes->open(*opening); });
}

outrider_status outrider_suffixes_commit(outrider_suffixes* suffixes, const outrider_suffix_commits* commits) noexcept {
  return guarded_change(*suffixes, [&] { suffixes->commit(*commits); });
}

outrider_status outrider_suffixes_close(outrider_suffixes* suffixes, int64_t number) noexcept {
  return guarded_change(*suffixes, [&] { suffixes->close(number); });
}

outrider_status outrider_suffixes_forget(outrider_suffixes* suffixes, const char* tenant,
                                         int32_t tenant_size) noexcept {
  return guarded_change(*suffixes, [&] { suffixes->forget({tenant, (size_t)tenant_size}); });
}

outrider_status outrider_suffixes_write(outrider_suffixes* suffixes, outrider_trees* to) noexcept {
  return guarded_change(*suffixes, [&] { to->count = suffixes->write(*to); });
}

int64_t outrider_suffixes_bytes(const outrider_suffixes* suffixes) noexcept { return suffixes->bytes(); }
