// Threads that share the pieces of a step's phases. Each free thread, the caller among them, takes the next piece: a
// thread that the system does not schedule delays nothing.
#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

class Team {
 public:
  explicit Team(int size) : size_(size) {
    for (int i = 1; i < size; i++) threads_.emplace_back([this] { serve(); });
  }
  ~Team() {
    {
      std::lock_guard<std::mutex> hold(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

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

  // A phase: work(i) for every i in [0, n), in no order. Returns when all are done.
  template <class Work>
  void each(long n, const Work& work) {
    if (n <= 1 || !called_.load(std::memory_order_relaxed)) {
      for (long i = 0; i < n; i++) work(i);
      return;
    }
    context_.store(&work, std::memory_order_relaxed);
    work_.store([](const void* it, long i) { (*static_cast<const Work*>(it))(i); }, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    ticket_.store(++phase_ << 32 | (uint64_t)n, std::memory_order_release);
    while (take_piece()) {
    }
    for (int spins = 0; done_.load(std::memory_order_acquire) != n; spins++) idle(spins);
  }

  // A phase over [0, n): work(first, last) for ranges that cover it.
  template <class Work>
  void ranges(long n, const Work& work) {
    long pieces = called_.load(std::memory_order_relaxed) ? std::min(n, PIECES * size_) : 1;
    each(pieces, [&](long i) { work(n * i / pieces, n * (i + 1) / pieces); });
  }

 private:
  static constexpr long PIECES = 4;  // for each thread, so that a late thread finds some left

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
      for (int spins = 0; called_.load(std::memory_order_relaxed); spins++)
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
        work(context, left - 1);
        done_.fetch_add(1, std::memory_order_release);
        return true;
      }
    }
    return false;
  }

  static void idle(int spins) {
    if (spins > 2000) std::this_thread::yield();
    else __builtin_ia32_pause();
  }

  const int size_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::atomic<bool> called_{false};
  uint64_t phase_ = 0;
  std::atomic<const void*> context_{nullptr};
  std::atomic<void (*)(const void*, long)> work_{nullptr};
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<long> done_{0};
};
