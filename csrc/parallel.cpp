#include "parallel.h"

#include <exception>
#include <mutex>
#include <system_error>

#if defined(_OPENMP)
#include <omp.h>
#else
#include <thread>
#include <vector>
#endif

namespace adasparse {

// The first task that is not taken yet and the end, on a cache line of its own.
struct alignas(64) TaskQueues::Queue {
  std::atomic<int64_t> next;
  int64_t end;
};

TaskQueues::TaskQueues(int64_t total, int threads)
    : queues_(new Queue[threads]), threads_(threads) {
  for (int t = 0; t < threads; ++t) {
    queues_[t].next = total * t / threads;
    queues_[t].end = total * (t + 1) / threads;
  }
}

TaskQueues::~TaskQueues() { delete[] queues_; }

int64_t TaskQueues::next(int thread) {
  for (int t = 0; t < threads_ && !is_stopped_.load(std::memory_order_relaxed); ++t) {
    Queue& queue = queues_[(thread + t) % threads_];
    // A queue that has run dry is left alone: its counter must not run away.
    if (queue.next.load(std::memory_order_relaxed) >= queue.end) continue;
    const int64_t task = queue.next.fetch_add(1);
    if (task < queue.end) return task;
  }
  return -1;
}

void TaskQueues::stop() { is_stopped_ = true; }

bool has_openmp() {
#if defined(_OPENMP)
  return true;
#else
  return false;
#endif
}

void run_in_threads(int threads, TaskQueues& queues, void* context,
                    void (*run)(void* context, TaskQueues& queues, int thread)) {
  std::exception_ptr error;
  std::mutex mutex;
  const auto run_guarded = [&](int thread) {
    try {
      run(context, queues, thread);
    } catch (...) {
      queues.stop();
      const std::lock_guard<std::mutex> lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads)
  run_guarded(omp_get_thread_num());
#else
  // Fewer threads than asked for do all tasks, too.
  std::vector<std::thread> helpers;
  try {
    helpers.reserve(static_cast<size_t>(threads));
    for (int t = 1; t < threads; ++t) helpers.emplace_back(run_guarded, t);
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
  run_guarded(0);
  for (auto& helper : helpers) helper.join();
#endif
  if (error) std::rethrow_exception(error);
}

}  // namespace adasparse
