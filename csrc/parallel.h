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

// Calls body(begin, end) for consecutive pieces of [0, total) of `piece` items each.
template <class Body>
void parallel_for(int64_t total, int64_t piece, int threads, const Body& body) {
  const int64_t pieces = (total + piece - 1) / piece;
  const auto run = [&](int64_t i) {
    const int64_t begin = i * piece;
    body(begin, begin + piece < total ? begin + piece : total);
  };
  if (threads <= 1 || pieces <= 1) {
    for (int64_t i = 0; i < pieces; ++i) run(i);
    return;
  }
#if defined(_OPENMP)
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64_t i = 0; i < pieces; ++i) run(i);
#else
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t i; (i = next.fetch_add(1)) < pieces;) run(i);
  };
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads; ++t) helpers.emplace_back(work);
  work();
  for (auto& helper : helpers) helper.join();
#endif
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
