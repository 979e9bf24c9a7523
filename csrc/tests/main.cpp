// Runs the C++ tests: kernel_tests [--list] [part of a name ...]
#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

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

int64_t passed = 0, failed = 0;

bool runs_here(const Test& test) {
  if (!test.isa) return true;
  for (const auto& name : adasparse::available_isas())
    if ("test_" + name == test.isa) return true;
  return false;
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
  const auto is_chosen = [&](const Test& test) {
    return filters.empty() || std::any_of(filters.begin(), filters.end(), [&](const auto& part) {
             return test.name.find(part) != std::string::npos;
           });
  };
  auto& tests = registry();
  std::sort(tests.begin(), tests.end(),
            [](const Test& a, const Test& b) { return a.name < b.name; });
  int64_t ran = 0;
  for (const Test& test : tests) {
    if (!is_chosen(test)) continue;
    if (lists) {
      std::printf("%s\n", test.name.c_str());
      continue;
    }
    if (!runs_here(test)) {
      std::printf("%-40s skipped: this processor lacks the instruction set\n", test.name.c_str());
      continue;
    }
    const int64_t before = passed + failed, failed_before = failed;
    const auto start = std::chrono::steady_clock::now();
    test.run();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("%-40s %9lld checks %6.1f s%s\n", test.name.c_str(),
                static_cast<long long>(passed + failed - before), seconds.count(),
                failed > failed_before ? "  FAILED" : "");
    std::fflush(stdout);
    ++ran;
  }
  if (lists) return 0;
  std::printf("%lld tests, %lld checks passed, %lld failed\n", static_cast<long long>(ran),
              static_cast<long long>(passed), static_cast<long long>(failed));
  if (ran == 0) std::printf("no test has such a name; --list lists them\n");
  return failed == 0 && ran > 0 ? 0 : 1;
}
