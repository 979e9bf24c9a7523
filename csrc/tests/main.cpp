// Runs the C++ tests: kernel_tests [--list] [--jobs=N] [part of a name ...]
//
// With jobs, as many processes take one test after the other; what they count is in shared memory.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define KERNEL_TESTS_FORK
#endif

#include "dispatch.h"
#include "tests.h"

namespace kernel_tests {
namespace {

struct Test {
  std::string name;
  const char* isa;
  void (*run)();
};
std::vector<Test>& registry() {
  static std::vector<Test> tests;
  return tests;
}

// Of this process, and of all of them.
int64_t passed = 0, failed = 0;
struct Totals {
  std::atomic<size_t> next{0};  // the first test that no process has taken yet
  std::atomic<int64_t> ran{0}, passed{0}, failed{0};
};

bool runs_here(const Test& test) {
  if (!test.isa) return true;
  for (const auto& name : adasparse::available_isas())
    if ("test_" + name == test.isa) return true;
  return false;
}

void run(const Test& test, Totals& totals) {
  if (!runs_here(test)) {
    std::printf("%-40s skipped: this processor lacks the instruction set\n", test.name.c_str());
    return;
  }
  passed = failed = 0;
  const auto start = std::chrono::steady_clock::now();
  test.run();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%-40s %9lld checks %6.1f s%s\n", test.name.c_str(),
              static_cast<long long>(passed + failed), seconds.count(), failed ? "  FAILED" : "");
  totals.passed += passed;
  totals.failed += failed;
  ++totals.ran;
}

// Output is written in whole tests, so that those of two processes do not mix.
void run_until_none_is_left(const std::vector<Test>& tests, Totals& totals) {
  for (size_t i; (i = totals.next++) < tests.size();) {
    run(tests[i], totals);
    std::fflush(stdout);
  }
}

#if defined(KERNEL_TESTS_FORK)
void run_in_processes(const std::vector<Test>& tests, int jobs, Totals& totals) {
  for (int job = 0; job < jobs; ++job)
    if (fork() == 0) {
      run_until_none_is_left(tests, totals);
      _exit(0);
    }
  int status;
  while (wait(&status) > 0)
    if (status != 0) {
      std::printf("FAILED: a process of the tests ended with status %d\n", status);
      ++totals.failed;
    }
}

Totals* shared_totals() {
  void* memory =
      mmap(nullptr, sizeof(Totals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : new (memory) Totals;
}
#endif

void run_all(const std::vector<Test>& tests, int jobs, Totals& totals) {
#if defined(KERNEL_TESTS_FORK)
  if (jobs > 1)
    if (Totals* shared = shared_totals()) {
      std::setvbuf(stdout, nullptr, _IOFBF, 1 << 20);
      run_in_processes(tests, jobs, *shared);
      totals.ran += shared->ran;
      totals.passed += shared->passed;
      totals.failed += shared->failed;
      return;
    }
#endif
  static_cast<void>(jobs);
  run_until_none_is_left(tests, totals);
}

}  // namespace

Registration::Registration(const char* name, const char* isa, void (*run)()) {
  registry().push_back({name, isa, run});
}

const std::vector<const adasparse::Kernels*>& sets() {
  static const auto all = [] {
    std::vector<const adasparse::Kernels*> kernels;
    for (const auto& name : adasparse::available_isas())
      kernels.push_back(&adasparse::kernels_named(name));
    return kernels;
  }();
  return all;
}

bool count(bool is_good) {
  ++(is_good ? passed : failed);
  return is_good;
}

void print_failure(const char* file, int line, const char* format, ...) {
  if (failed > 100) return;
  std::printf("FAILED %s:%d: ", file, line);
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::printf("\n");
  if (failed == 100) std::printf("(further failures are counted, not printed)\n");
}

}  // namespace kernel_tests

int main(int argc, char** argv) {
  using namespace kernel_tests;
  std::vector<std::string> filters(argv + 1, argv + argc);
  const bool lists = std::erase(filters, "--list") > 0;
  int jobs = 1;
  std::erase_if(filters, [&](const std::string& argument) {
    const bool is_jobs = argument.starts_with("--jobs=");
    if (is_jobs) jobs = std::atoi(argument.c_str() + std::strlen("--jobs="));
    return is_jobs;
  });
  const auto is_left_out = [&](const Test& test) {
    return !filters.empty() && std::none_of(filters.begin(), filters.end(), [&](const auto& part) {
      return test.name.find(part) != std::string::npos;
    });
  };
  auto tests = registry();
  std::erase_if(tests, is_left_out);
  std::sort(tests.begin(), tests.end(),
            [](const Test& a, const Test& b) { return a.name < b.name; });
  if (lists) {
    for (const Test& test : tests) std::printf("%s\n", test.name.c_str());
    return 0;
  }
  Totals totals;
  run_all(tests, jobs, totals);
  const int64_t ran = totals.ran, all_failed = totals.failed;
  std::printf("%lld tests, %lld checks passed, %lld failed\n", static_cast<long long>(ran),
              static_cast<long long>(totals.passed), static_cast<long long>(all_failed));
  if (ran == 0) std::printf("no test has such a name; --list lists them\n");
  return all_failed == 0 && ran > 0 ? 0 : 1;
}
