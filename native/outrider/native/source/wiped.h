// Vectors whose memory is overwritten with zeros when they give it up, also when they grow: they hold users' tokens.
#pragma once
#include <string.h>
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
    explicit_bzero((void*)memory, count * sizeof(T));
    std::allocator<T>::deallocate(memory, count);
  }
};

template <class T>
using Wiped = std::vector<T, WipingAllocator<T>>;

}  // namespace outrider
