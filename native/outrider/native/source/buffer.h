// Memory that grows and is never cleared.
#pragma once
#include <cstdlib>
#include <cstring>
#include <memory>

template <class T>
class Buffer {
 public:
  T* need(size_t count) {
    if (count > size_) {
      const size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
      memory_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
      std::memset((void*)memory_.get(), 0, bytes);
      size_ = count;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> memory_;
  size_t size_ = 0;
};
