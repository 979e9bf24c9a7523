// Tasks divided among threads so that results do not depend on how many there are.
//
// An exception thrown in any thread, such as std::bad_alloc, ends the loop and reaches the caller.
#pragma once

#include <atomic>
#include <cstdint>

namespace adasparse {

// The tasks [0, total), a run of neighbors for each of several threads.
class TaskQueues {
 public:
  TaskQueues(int64_t total, int threads);
  ~TaskQueues();
  TaskQueues(const TaskQueues&) = delete;
  TaskQueues& operator=(const TaskQueues&) = delete;

  // The next task for a thread, or -1 if none is left. It begins with its own run, which lies
  // in its cache since PyTorch divides the rows of a tensor in the same way, and then takes from
  // threads that are slower.
  int64_t next(int thread);
  void stop();

 private:
  struct Queue;
  Queue* queues_;
  int threads_;
  std::atomic<bool> is_stopped_{false};
};

// Calls run(context, queues, thread) in each of `threads` threads. Rethrows the first exception
// after all of them have ended. Compiled once, in parallel.cpp, and not per instruction set.
void run_in_threads(int threads, TaskQueues& queues, void* context,
                    void (*run)(void* context, TaskQueues& queues, int thread));

// Whether threads are those of PyTorch's OpenMP runtime. It must be loaded before the first call.
bool has_openmp();

// Calls body(work, i) for i in [0, total). Every thread has a `work` of its own, made by make().
// Make and Body are lambdas of the caller, so that each instruction set has an instance of its own.
template <class Make, class Body>
void parallel_with(int64_t total, int threads, const Make& make, const Body& body) {
  if (total <= 0) return;
  if (threads <= 1 || total == 1) {
    auto&& work = make();
    for (int64_t i = 0; i < total; ++i) body(work, i);
    return;
  }
  struct Call {
    const Make& make;
    const Body& body;
  } call{make, body};
  TaskQueues queues(total, threads);
  run_in_threads(threads, queues, &call, [](void* context, TaskQueues& from, int thread) {
    const Call& mine = *static_cast<const Call*>(context);
    auto&& work = mine.make();
    for (int64_t i; (i = from.next(thread)) >= 0;) mine.body(work, i);
  });
}

// Calls body(begin, end) for consecutive blocks of [0, total) of `block` items each.
template <class Body>
void parallel_for(int64_t total, int64_t block, int threads, const Body& body) {
  struct Nothing {};
  parallel_with((total + block - 1) / block, threads, [] { return Nothing{}; },
                [&](Nothing&, int64_t i) {
                  const int64_t begin = i * block;
                  body(begin, begin + block < total ? begin + block : total);
                });
}

}  // namespace adasparse
