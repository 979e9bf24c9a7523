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

constexpr const char* kScreenings[] = {"auto", "off", "forced"};

std::atomic<Screening>& current_screening() {
  static std::atomic<Screening> choice{Screening::kAuto};
  return choice;
}

}  // namespace

Screening screening() { return current_screening().load(); }
void use_screening(Screening choice) { current_screening() = choice; }

const char* name_of(Screening choice) { return kScreenings[static_cast<int>(choice)]; }
Screening screening_named(const std::string& name) {
  for (const auto choice : {Screening::kAuto, Screening::kOff, Screening::kForced})
    if (name == name_of(choice)) return choice;
  throw std::invalid_argument("screening must be one of auto, off, forced; got '" + name + "'.");
}

#if defined(__x86_64__)
bool has_avx512_vnni() {
  static const bool has = __builtin_cpu_supports("avx512vnni");
  return has;
}
bool has_avx_vnni() {
  static const bool has = __builtin_cpu_supports("avxvnni");
  return has;
}
#else
bool has_avx512_vnni() { return false; }
bool has_avx_vnni() { return false; }
#endif

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
