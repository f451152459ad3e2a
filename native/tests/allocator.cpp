#include "allocator.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> living{0}, left{-1};
std::atomic<bool> has_failed{false};

// Memory, or null where the system has none.
void* take(size_t size, size_t alignment) {
  const size_t whole = (size + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, whole ? whole : alignment);
  if (memory) living++;
  return memory;
}

void* allocate(size_t size, size_t alignment) {
  int64_t before = left.load();
  while (before >= 0 && !left.compare_exchange_weak(before, before - 1)) {}
  if (before == 0) {
    has_failed = true;
    throw std::bad_alloc();
  }
  void* memory = take(size, alignment);
  if (!memory) throw std::bad_alloc();
  return memory;
}

void release(void* memory) {
  if (!memory) return;
  living--;
  std::free(memory);
}

}  // namespace

namespace allocator {

int64_t live() { return living; }

void fail_after(int64_t count) {
  if (count >= 0) has_failed = false;
  left = count;
}

bool failed() { return has_failed; }

}  // namespace allocator

void* operator new(size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new[](size_t size) { return allocate(size, alignof(std::max_align_t)); }
// Without exceptions the standard library asks for memory that it can do without: std::stable_sort. It is not refused.
void* operator new(size_t size, const std::nothrow_t&) noexcept { return take(size, alignof(std::max_align_t)); }
void* operator new(size_t size, std::align_val_t alignment) { return allocate(size, static_cast<size_t>(alignment)); }
void* operator new[](size_t size, std::align_val_t alignment) { return allocate(size, static_cast<size_t>(alignment)); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, size_t) noexcept { release(memory); }
void operator delete[](void* memory, size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { release(memory); }
