// Exceptions end at the ABI, where they become statuses.
#pragma once
#include <new>
#include <system_error>

#include "abi.h"

namespace outrider {

// Calls `run`, which returns a status.
template <class Run>
Status guarded(const Run& run) noexcept {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return OUTRIDER_OUT_OF_MEMORY;
  } catch (const std::system_error&) {
    return OUTRIDER_NO_THREAD;
  } catch (...) {
    return OUTRIDER_FAILED;
  }
}

// The same for a call that may leave `holder` half changed: it is emptied where the call fails.
template <class Holder, class Run>
Status guarded_change(Holder& holder, const Run& run) noexcept {
  const Status status = guarded([&] {
    run();
    return OUTRIDER_OK;
  });
  if (status != OUTRIDER_OK) holder.reset();
  return status;
}

}  // namespace outrider
