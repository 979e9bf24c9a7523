// Work shared out among threads in pieces that do not depend on how many there are.
#pragma once

#include <cstdint>

#if defined(_OPENMP)
#include <omp.h>
#else
#include <atomic>
#include <thread>
#include <vector>
#endif

namespace adasparse {
namespace ADASPARSE_ISA {

// Calls body(work, i) for i in [0, total). Every thread has a `work` of its own, made by make().
template <class Make, class Body>
void parallel_with(int64_t total, int threads, const Make& make, const Body& body) {
  if (threads <= 1 || total <= 1) {
    if (total <= 0) return;
    auto&& work = make();
    for (int64_t i = 0; i < total; ++i) body(work, i);
    return;
  }
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads)
  {
    auto&& work = make();
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < total; ++i) body(work, i);
  }
#else
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    auto&& mine = make();
    for (int64_t i; (i = next.fetch_add(1)) < total;) body(mine, i);
  };
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads; ++t) helpers.emplace_back(work);
  work();
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
