// Threads that run one function together, each with its number, and wait for each other in between.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

class Team {
 public:
  explicit Team(int size) : size_(size) {
    for (int i = 1; i < size; i++) threads_.emplace_back([this, i] { serve(i); });
  }
  ~Team() {
    {
      std::lock_guard<std::mutex> hold(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
  }
  int size() const { return size_; }

  // Runs work(member) on every member; the caller is member 0.
  void run(const std::function<void(int)>& work) {
    if (size_ > 1) {
      {
        std::lock_guard<std::mutex> hold(mutex_);
        work_ = &work;
        round_++;
      }
      wake_.notify_all();
    }
    work(0);
    meet();
  }

  // Returns once every member has come here.
  void meet() {
    if (size_ == 1) return;
    unsigned turn = turn_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      turn_.store(turn + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; turn_.load(std::memory_order_acquire) == turn; spins++)
      if (spins > 4000) std::this_thread::yield();
  }

  // The members' share of n pieces: [first, last).
  static void share(long n, int member, int size, long& first, long& last) {
    first = n * member / size;
    last = n * (member + 1) / size;
  }

 private:
  void serve(int member) {
    unsigned seen = 0;
    for (;;) {
      const std::function<void(int)>* work;
      {
        std::unique_lock<std::mutex> hold(mutex_);
        wake_.wait(hold, [&] { return stopping_ || round_ != seen; });
        if (stopping_) return;
        seen = round_;
        work = work_;
      }
      (*work)(member);
      meet();
    }
  }

  const int size_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  const std::function<void(int)>* work_ = nullptr;
  unsigned round_ = 0;
  bool stopping_ = false;
  std::atomic<int> arrived_{0};
  std::atomic<unsigned> turn_{0};
};
