// Memory that grows and is never cleared.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace outrider {

template <class T>
class Buffer {
 public:
  // Room for `count` elements, of which those of a smaller buffer are lost.
  T* need(int64_t count) {
    if (count > size_) {
      const size_t bytes = (static_cast<size_t>(count) * sizeof(T) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
      memory_.reset(static_cast<T*>(::operator new(bytes, std::align_val_t{ALIGNMENT})));
      std::memset(static_cast<void*>(memory_.get()), 0, bytes);
      size_ = count;
    }
    return memory_.get();
  }

 private:
  static constexpr size_t ALIGNMENT = 64;
  struct Free {
    void operator()(T* memory) const { ::operator delete(memory, std::align_val_t{ALIGNMENT}); }
  };
  std::unique_ptr<T, Free> memory_;
  int64_t size_ = 0;
};

}  // namespace outrider
