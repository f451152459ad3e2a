// The program's operator new: counts what is allocated, and fails when it is told to.
#pragma once
#include <cstdint>

namespace allocator {

// Allocations that were not freed.
int64_t live();
// Lets the allocation after `count` others fail, on whichever thread it happens; -1 lets none fail.
void fail_after(int64_t count);
// Whether an allocation has failed since one was last told to.
bool failed();

}  // namespace allocator
