// Which instruction sets this processor runs, and the one in use.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace adasparse {

std::vector<std::string> available_isas();   // best first
const Kernels& kernels_named(const std::string& name);  // throws std::invalid_argument

}  // namespace adasparse
