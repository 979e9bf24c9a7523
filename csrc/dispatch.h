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

}  // namespace adasparse
