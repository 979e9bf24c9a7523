// Weights moved from one normalizer to a nearby one, which spares the exponential and the
// logarithm.
#pragma once

#include "simd/math.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// p y^4 / t, below, from which a weight is computed as a power.
constexpr double kFar = 5e-5;

// p at c + move for p at c: t = 1 + eps u becomes t - eps move, so that p is multiplied by
// (1 - eps y)^(1/eps) = 1 - y + (1-eps)/2 y^2 - ... with y = move / t. The exponential and the
// logarithm are spared wherever the terms left out, at most 0.03 p y^4, do not matter, neither to p
// nor to sigma = p / t, which gradients depend on. Scores outside the support stay outside, so move
// must not be negative beyond rounding.
template <bool kMayBeFar = true, class X>
ADASPARSE_INLINE X moved_weight(X p, X t, X move, double eps) {
  using T = ElementOf<X>;
  const T e = static_cast<T>(eps);
  const T second = static_cast<T>((1 - eps) / 2), third = static_cast<T>((1 - 2 * eps) / 3);
  const X y = move / t, y2 = y * y;
  X moved = p * max(T(1) - y * (T(1) - y * second * (T(1) - y * third)), all<X>(T(1e-3)));
  if constexpr (kMayBeFar) {
    const auto is_far = greater(p * y2 * y2, max(t, all<X>(0)) * T(kFar));
    if (__builtin_expect(any(is_far), 0))
      moved = select(is_far, p * power_of_1p<X>(y * -e, 1 / e), moved);
  }
  return select(greater(t, max(move * e, all<X>(0))), moved, all<X>(0));
}
// Whether there may be such weights: t is at most 1, and p y^4 / t = move^4 t^(1/eps - 5).
inline bool may_be_far(double move, double eps) {
  const double least = eps > 0.2 ? std::pow(move * eps, 1 / eps - 5) : 1;
  return !(move * move * move * move * least < kFar / 2);
}
// How far the sum may be above one for moved_weight to finish the solution, and where it may stop:
// what is left is normalized away.
constexpr double kMovable = 1e-2;
constexpr double kMoved = 8e-7;
constexpr int kMoves = 6;  // 1 or 2 are the rule

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
