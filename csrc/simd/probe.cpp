// Compiled by CMake to find out whether a compiler has the vector extensions that kernels use.
#define ADASPARSE_ISA probe
#include "simd/math.h"

int main() {
  using namespace adasparse::probe;
  const FloatVector x = exp(broadcast(1.f));
  return sum_lanes<float>(select(greater(x, FloatVector{}), x, FloatVector{})) > 1 ? 0 : 1;
}
