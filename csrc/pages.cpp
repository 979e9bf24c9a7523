#include "pages.h"

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "parallel.h"

namespace adasparse {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;  // of x86-64, and of Arm with pages of 4 KB

}  // namespace

void use_large_pages(void* data, size_t bytes, int threads) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (bytes < kLargeResult) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (begin + page - 1) / page * page, last = (begin + bytes) / page * page;
  // Systems without large pages refuse, and nothing is lost.
  if (madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE) != 0) return;
  const auto count = static_cast<int64_t>((last - first) / kLargePage);
  parallel_for(count, 1, threads, [&](int64_t i, int64_t) {
    auto* at = reinterpret_cast<volatile char*>(first + static_cast<uintptr_t>(i) * kLargePage);
    *at = *at;
  });
#else
  static_cast<void>(data), static_cast<void>(bytes), static_cast<void>(threads);
#endif
}

}  // namespace adasparse
