// The library's face for the guesses that a step verifies.
#include "merging.h"

extern "C" {

void* outrider_merging_new(const double* edges) { return new Merging(edges); }

void outrider_merging_free(void* merging) { delete static_cast<Merging*>(merging); }

void outrider_merging_rates(void* merging, int32_t drafter, int32_t greedy, const double* rates) {
  static_cast<Merging*>(merging)->set_rates(drafter, greedy != 0, rates);
}

int64_t outrider_merging_buy(void* merging, const int32_t* words, const double* confidences, const double* seconds,
                             double least, double surcharge, int32_t* told, double* reals) {
  return static_cast<Merging*>(merging)->buy({words, confidences}, seconds, least, surcharge, told, reals);
}
}
