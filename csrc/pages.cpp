#include "pages.h"

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "parallel.h"
#include "tuning.h"

namespace adasparse {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;  // of x86-64, and of Arm with pages of 4 KB

// The whole pages within some memory.
struct Pages {
  uintptr_t first, last;
};
Pages pages_of(void* data, size_t bytes) {
#if defined(__linux__)
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data);
  return {(begin + page - 1) / page * page, (begin + bytes) / page * page};
#else
  static_cast<void>(data), static_cast<void>(bytes);
  return {0, 0};
#endif
}

}  // namespace

bool ask_for_large_pages(void* data, size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (bytes < kLargeResult) return false;
  const Pages pages = pages_of(data, bytes);
  // Systems without large pages refuse, and nothing is lost.
  return madvise(reinterpret_cast<void*>(pages.first), pages.last - pages.first, MADV_HUGEPAGE) ==
         0;
#else
  static_cast<void>(data), static_cast<void>(bytes);
  return false;
#endif
}

void use_large_pages(void* data, size_t bytes, int threads) {
  if (!ask_for_large_pages(data, bytes)) return;
  const Pages pages = pages_of(data, bytes);
  const auto count = static_cast<int64_t>((pages.last - pages.first) / kLargePage);
  parallel_for(count, 1, threads, [&](int64_t i, int64_t) {
    auto* at =
        reinterpret_cast<volatile char*>(pages.first + static_cast<uintptr_t>(i) * kLargePage);
    *at = *at;
  });
}

}  // namespace adasparse
