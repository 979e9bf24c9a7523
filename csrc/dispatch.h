// The instruction sets that this processor runs, and the one in use.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace adasparse {

std::vector<std::string> available_isas();              // best first
const Kernels& kernels_named(const std::string& name);  // throws std::invalid_argument

// The kernels in use: the best at first. Any thread may switch at any time; a call that is running
// finishes with the kernels it started with.
const Kernels& current_kernels();
void use_kernels(const Kernels& kernels);

// Whether this processor multiplies int8 numbers four at a time, in vectors of 64 and 32 bytes.
bool has_avx512_vnni();
bool has_avx_vnni();

// Whether attention screens scores in int8 before it computes them: where that pays, never, or
// wherever it can. Results are the same; tests and benchmarks switch.
enum class Screening : int { kAuto = 0, kOff = 1, kForced = 2 };
Screening screening();
void use_screening(Screening choice);
const char* name_of(Screening choice);
Screening screening_named(const std::string& name);  // throws std::invalid_argument

}  // namespace adasparse
