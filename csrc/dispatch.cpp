#include "dispatch.h"

#include <atomic>
#include <stdexcept>

namespace adasparse {
namespace {

std::vector<const Kernels*> available() {
  std::vector<const Kernels*> isas;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
  if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    isas.push_back(&kAvx512Kernels);
  if (has_avx2) isas.push_back(&kAvx2Kernels);
#endif
#if defined(__aarch64__)
  isas.push_back(&kNeonKernels);
#else
  isas.push_back(&kBaselineKernels);
#endif
  return isas;
}

std::atomic<const Kernels*>& current() {
  static std::atomic<const Kernels*> kernels{available().front()};
  return kernels;
}

}  // namespace

const Kernels& current_kernels() { return *current().load(); }
void use_kernels(const Kernels& kernels) { current() = &kernels; }

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const Kernels* kernels : available()) names.emplace_back(kernels->name);
  return names;
}

const Kernels& kernels_named(const std::string& name) {
  std::string known;
  for (const Kernels* kernels : available()) {
    if (name == kernels->name) return *kernels;
    known += (known.empty() ? "" : ", ") + std::string(kernels->name);
  }
  throw std::invalid_argument("the instruction set must be one of " + known + " here; got '" +
                              name + "'.");
}

}  // namespace adasparse
