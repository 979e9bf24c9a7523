// Weights moved from one normalizer to a nearby one, which spares the exponential and the
// logarithm.
#pragma once

#include "simd/math.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// p at c + move for p at c: t = 1 + eps u becomes t - eps move, so that p is multiplied by
// (1 - eps y)^(1/eps) = 1 - y + (1-eps)/2 y^2 - ... with y = move / t. The exponential and the
// logarithm are spared wherever the terms left out, at most 0.03 p y^4, do not matter, neither to p
// nor to sigma = p / t, which gradients depend on. Scores outside the support stay outside, so move
// must not be negative beyond rounding.
template <class X>
ADASPARSE_INLINE X moved_weight(X p, X t, X move, double eps) {
  using T = ElementOf<X>;
  const T e = static_cast<T>(eps);
  const T second = static_cast<T>((1 - eps) / 2), third = static_cast<T>((1 - 2 * eps) / 3);
  const X y = move / t, y2 = y * y;
  X moved = max(p * (T(1) - y * (T(1) - y * second * (T(1) - y * third))), p * T(1e-3));
  const auto is_far = greater(p * y2 * y2, max(t, all<X>(0)) * T(5e-5));
  if (__builtin_expect(any(is_far), 0))
    moved = select(is_far, p * power_of_1p<X>(y * -e, 1 / e), moved);
  return select(greater(t, max(move * e, all<X>(0))), moved, all<X>(0));
}
// How far the sum may be above one for moved_weight to finish the solution, and where it may stop:
// what is left is normalized away.
constexpr double kMovable = 1e-2;
constexpr double kMoved = 8e-7;
constexpr int kMoves = 6;  // 1 or 2 are the rule

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
