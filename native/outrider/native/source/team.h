// Threads that share the pieces of a step's phases. Each free thread, the caller among them, takes the next piece: a
// thread that the system does not schedule delays nothing.
#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace outrider {

class Team {
 public:
  explicit Team(int32_t size) : size_(size) {
    try {
      for (int32_t i = 1; i < size; i++) threads_.emplace_back([this] { serve(); });
    } catch (...) {  // the threads that were started cannot be left running
      stop();
      throw;
    }
  }
  ~Team() { stop(); }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // While an instance lives, the other threads help, if they are wanted.
  class Help {
   public:
    Help(Team& team, bool wanted) : team_(team) {
      if (wanted && team.size_ > 1) team.call();
    }
    ~Help() { team_.called_.store(false, std::memory_order_relaxed); }

   private:
    Team& team_;
  };

  // A phase: work(i) for every i in [0, n), in no order. Returns when all are done, and then throws the first exception
  // that a piece threw on any thread.
  template <class Work>
  void each(int64_t n, const Work& work) {
    if (n <= 1 || !called_.load(std::memory_order_relaxed)) {
      for (int64_t i = 0; i < n; i++) work(i);
      return;
    }
    context_.store(&work, std::memory_order_relaxed);
    work_.store([](const void* it, int64_t i) { (*static_cast<const Work*>(it))(i); }, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    failed_.store(false, std::memory_order_relaxed);
    ticket_.store(++phase_ << 32 | (uint64_t)n, std::memory_order_release);
    while (take_piece()) {}
    for (int32_t spins = 0; done_.load(std::memory_order_acquire) != n; spins++) idle(spins);
    if (failed_.load(std::memory_order_relaxed)) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  // A phase over [0, n): work(first, last) for ranges that cover it.
  template <class Work>
  void ranges(int64_t n, const Work& work) {
    int64_t pieces = called_.load(std::memory_order_relaxed) ? std::min(n, PIECES * size_) : 1;
    each(pieces, [&](int64_t i) { work(n * i / pieces, n * (i + 1) / pieces); });
  }

 private:
  static constexpr int64_t PIECES = 4;  // for each thread, so that a late thread finds some left

  void stop() {
    {
      std::lock_guard<std::mutex> hold(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  void call() {
    {
      std::lock_guard<std::mutex> hold(mutex_);
      called_.store(true, std::memory_order_relaxed);
    }
    wake_.notify_all();
  }

  void serve() {
    for (;;) {
      {
        std::unique_lock<std::mutex> hold(mutex_);
        wake_.wait(hold, [&] { return stopping_ || called_.load(std::memory_order_relaxed); });
        if (stopping_) return;
      }
      for (int32_t spins = 0; called_.load(std::memory_order_relaxed); spins++)
        if (take_piece()) spins = 0;
        else idle(spins);
    }
  }

  // Does a piece of the present phase, if one is left. The ticket holds the number of the phase and how many pieces are
  // left. A thread that takes a piece has that phase's work, since the next begins only when all pieces are done.
  bool take_piece() {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    while (uint32_t left = (uint32_t)ticket) {
      auto work = work_.load(std::memory_order_relaxed);
      auto context = context_.load(std::memory_order_relaxed);
      if (ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
        try {
          work(context, left - 1);
        } catch (...) {  // would end the process on a thread of the team
          if (!failed_.exchange(true, std::memory_order_relaxed)) failure_ = std::current_exception();
        }
        done_.fetch_add(1, std::memory_order_release);
        return true;
      }
    }
    return false;
  }

  static void idle(int32_t spins) {
    if (spins > 2000) std::this_thread::yield();
#if defined(__aarch64__)
    else asm volatile("yield");
#else
    else __builtin_ia32_pause();
#endif
  }

  const int32_t size_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::atomic<bool> called_{false};
  uint64_t phase_ = 0;
  std::atomic<const void*> context_{nullptr};
  std::atomic<void (*)(const void*, int64_t)> work_{nullptr};
  std::atomic<bool> failed_{false};  // whether a piece of the present phase threw; the first to do so writes `failure_`
  std::exception_ptr failure_;
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int64_t> done_{0};
};

}  // namespace outrider
