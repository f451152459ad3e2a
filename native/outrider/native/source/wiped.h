// Vectors whose memory is overwritten with zeros when they give it up, also when they grow: they hold users' tokens.
#pragma once
#include <cstring>
#include <memory>
#include <vector>

namespace outrider {

template <class T>
struct WipingAllocator : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = WipingAllocator<U>;
  };
  WipingAllocator() = default;
  template <class U>
  WipingAllocator(const WipingAllocator<U>&) {}

  void deallocate(T* memory, size_t count) {
    std::memset((void*)memory, 0, count * sizeof(T));
    asm volatile("" : : "r"(memory) : "memory");  // the compiler may not leave the zeros out
    std::allocator<T>::deallocate(memory, count);
  }
};

template <class T>
using Wiped = std::vector<T, WipingAllocator<T>>;

}  // namespace outrider
