// Soft-capping of scores: c tanh(s / c), and its derivative.
#pragma once

#include "entmax/walk.h"
#include "simd/math.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// tanh(x), any x; NaN stays NaN. Error: a few units in the last place. Near zero by Taylor's
// series, whose ratio of terms is at most (2 * 0.25 / pi)^2 there, else from e^(-2|x|), where
// nothing cancels.
template <class T>
ADASPARSE_INLINE Vec<T> tanh_of(Vec<T> x) {
  using V = Vec<T>;
  const V size = max(x, -x), e = exp(size * T(-2)), square = x * x;
  V series;
  if constexpr (sizeof(T) == 4)
    series = horner(square, 1.f, -1.f / 3, 2.f / 15, -17.f / 315, 62.f / 2835, -1382.f / 155925);
  else
    series = horner(square, 1., -1. / 3, 2. / 15, -17. / 315, 62. / 2835, -1382. / 155925,
                    21844. / 6081075, -929569. / 638512875, 6404582. / 10854718875.,
                    -443861162. / 1856156927625., 18888466084. / 194896477400625.,
                    -113927491862. / 2900518163668125.);
  const V far = (1 - e) / (1 + e);
  const V value =
      select(greater(broadcast<T>(T(0.25)), size), x * series, select(greater(V{}, x), -far, far));
  return select(is_nan(x), x, value);
}

template <class T>
void cap_scores(T* scores, int64_t n, T softcap) {
  const T inverse = 1 / softcap;
  for_each_vector(scores, n, [&](Vec<T> s, int count, int64_t j) ADASPARSE_INLINE_BODY {
    store_first(scores + j, tanh_of<T>(s * inverse) * softcap, count);
  });
}

// Multiplies gradients with respect to capped scores by the derivative 1 - tanh^2, which is
// 4 e / (1 + e)^2 with e = e^(-2|x|). Products of keys that get no gradient never matter, be they
// NaN.
template <class T>
void multiply_by_cap_slope(const T* products, T factor, int64_t n, T* gradients) {
  using V = Vec<T>;
  for_each_vector(products, n, [&](V s, int count, int64_t j) ADASPARSE_INLINE_BODY {
    const V x = s * factor, e = exp(max(x, -x) * T(-2));
    const V slope = e / ((1 + e) * (1 + e)) * T(4);
    const V g = load_first(gradients + j, count, T(0));
    const V zero{};
    store_first(gradients + j,
                select(greater(g, zero) | greater(zero, g) | is_nan(g), g * slope, zero), count);
  });
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
