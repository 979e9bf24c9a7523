#include "parallel.h"

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <dlfcn.h>
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

namespace {

// PyTorch's OpenMP runtime, by the two functions that compiled parallel regions call. Those of GNU,
// LLVM and Intel all offer them.
//
// It is looked up at run time instead of linked: a wheel that links libgomp loads the system's, or
// a copy of its own, beside the one that PyTorch brings along under a name that differs by version.
// Two runtimes mean twice the threads for the same cores.
struct OpenMP {
  void (*parallel)(void (*run)(void*), void* context, unsigned threads, unsigned flags) = nullptr;
  int (*thread_number)() = nullptr;
  explicit operator bool() const { return parallel && thread_number; }
};

OpenMP find_openmp() {
  OpenMP found;
#if defined(__linux__)
  // Loaded already, or not at all. The lookup includes the libraries that it depends on.
  if (void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD)) {
    found.parallel = reinterpret_cast<decltype(found.parallel)>(dlsym(torch, "GOMP_parallel"));
    found.thread_number =
        reinterpret_cast<decltype(found.thread_number)>(dlsym(torch, "omp_get_thread_num"));
    dlclose(torch);
  }
#endif
  return found;
}

const OpenMP& openmp() {
  static const OpenMP found = find_openmp();
  return found;
}

// What all threads of one loop share.
struct Region {
  TaskQueues& queues;
  void* context;
  void (*run)(void* context, TaskQueues& queues, int thread);
  std::exception_ptr error{};
  std::mutex mutex{};

  void run_guarded(int thread) {
    try {
      run(context, queues, thread);
    } catch (...) {
      queues.stop();
      const std::lock_guard<std::mutex> lock(mutex);
      if (!error) error = std::current_exception();
    }
  }
};

// Fewer threads than asked for do all tasks, too.
void run_in_own_threads(int threads, Region& region) {
  std::vector<std::thread> helpers;
  try {
    helpers.reserve(static_cast<size_t>(threads));
    for (int t = 1; t < threads; ++t) helpers.emplace_back([&region, t] { region.run_guarded(t); });
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
  region.run_guarded(0);
  for (auto& helper : helpers) helper.join();
}

}  // namespace

bool has_openmp() { return static_cast<bool>(openmp()); }

void run_in_threads(int threads, TaskQueues& queues, void* context,
                    void (*run)(void* context, TaskQueues& queues, int thread)) {
  Region region{.queues = queues, .context = context, .run = run};
  if (has_openmp()) {
    const auto run_region = [](void* shared) {
      static_cast<Region*>(shared)->run_guarded(openmp().thread_number());
    };
    openmp().parallel(run_region, &region, static_cast<unsigned>(threads), 0);
  } else {
    run_in_own_threads(threads, region);
  }
  if (region.error) std::rethrow_exception(region.error);
}

}  // namespace adasparse
