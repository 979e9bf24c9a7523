// Work shared out among threads in pieces that do not depend on how many there are.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#else
#include <thread>
#endif

namespace adasparse {
namespace ADASPARSE_ISA {

// A thread's share of the items, the first that is not taken yet and the end, on a line of its own.
struct alignas(64) Share {
  std::atomic<int64_t> next;
  int64_t end;
};

// Calls body(work, i) for i in [0, total). Every thread has a `work` of its own, made by make().
// It begins with a share of neighbours, which lie in its cache since PyTorch divides the rows of a
// tensor in the same way, and then takes from those who are slower.
template <class Make, class Body>
void parallel_with(int64_t total, int threads, const Make& make, const Body& body) {
  if (threads <= 1 || total <= 1) {
    if (total <= 0) return;
    auto&& work = make();
    for (int64_t i = 0; i < total; ++i) body(work, i);
    return;
  }
  std::vector<Share> shares(threads);
  for (int t = 0; t < threads; ++t) {
    shares[t].next = total * t / threads;
    shares[t].end = total * (t + 1) / threads;
  }
  const auto run = [&](int thread) {
    auto&& work = make();
    for (int t = 0; t < threads; ++t) {
      Share& share = shares[(thread + t) % threads];
      for (int64_t i; (i = share.next.fetch_add(1)) < share.end;) body(work, i);
    }
  };
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads)
  run(omp_get_thread_num());
#else
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads; ++t) helpers.emplace_back(run, t);
  run(0);
  for (auto& helper : helpers) helper.join();
#endif
}

// Calls body(begin, end) for consecutive pieces of [0, total) of `piece` items each.
template <class Body>
void parallel_for(int64_t total, int64_t piece, int threads, const Body& body) {
  struct Nothing {};
  parallel_with((total + piece - 1) / piece, threads, [] { return Nothing{}; },
                [&](Nothing&, int64_t i) {
                  const int64_t begin = i * piece;
                  body(begin, begin + piece < total ? begin + piece : total);
                });
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
