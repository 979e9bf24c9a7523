// The gradient of one row of weights with respect to its scores and alpha.
#pragma once

#include "entmax/maps.h"
#include "entmax/walk.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// sum_k x^k / (k + 2)!, which is (e^x - 1 - x) / x^2
template <class V>
ADASPARSE_INLINE V second_tail(V x) {
  if constexpr (sizeof(x[0]) == 4)
    return horner(x, 1.f / 2, 1.f / 6, 1.f / 24, 1.f / 120, 1.f / 720, 1.f / 5040, 1.f / 40320,
                  1.f / 362880, 1.f / 3628800);
  else
    return horner(x, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040, 1. / 40320,
                  1. / 362880, 1. / 3628800, 1. / 39916800, 1. / 479001600, 1. / 6227020800.,
                  1. / 87178291200., 1. / 1307674368000., 1. / 20922789888000.,
                  1. / 355687428096000.);
}

// dp/dalpha at fixed c: with L = log p and y = -eps L it is -p L^2 (e^y - 1 - y) / y^2.
template <class T>
ADASPARSE_INLINE Vec<T> weight_by_alpha(Vec<T> p, Vec<T> sigma, Vec<T> log_p, double eps) {
  using V = Vec<T>;
  const V y = static_cast<T>(-eps) * log_p;
  const V near = p * log_p * log_p * second_tail(y);
  const V far = (sigma - p - p * y) * static_cast<T>(1 / (eps * eps));
  const V value = select(greater(broadcast<T>(1), max(y, -y)), near, far);
  return select(greater(p, V{}), -value, V{});
}

// One row: grad_scores = sigma (g - mean), with the mean of g weighted by sigma, which grad_scores
// may hold already. Returns the gradient with respect to alpha if WithAlpha.
template <bool WithAlpha, bool HasSigma, class T, class Map>
double backward_row(const Map& map, const T* weights, const T* grad, int64_t n, T* grad_scores) {
  using V = Vec<T>;
  constexpr int width = Lanes<T>::count;
  // Calls body(j, count) over a chunk; count is known at compile time but for the last vector.
  const auto walk = [](int64_t begin, int64_t size, const auto& body) ADASPARSE_INLINE_BODY {
    int64_t j = begin;
    for (; j + width <= begin + size; j += width) body(j, int64_t{width});
    if (j < begin + size) body(j, begin + size - j);
  };
  // What gradients have in common must not drown that with respect to alpha.
  V common{};
  if constexpr (WithAlpha) {
    walk(0, n, [&](int64_t j, int64_t count) ADASPARSE_INLINE_BODY {
      const V p = load_first(weights + j, count, T(0));
      common += select(greater(p, V{}), p * load_first(grad + j, count, T(0)), V{});
    });
    common = broadcast<T>(sum_lanes<T>(common));
  }
  double slope = 0, weighted = 0, by_alpha = 0, by_all = 0;
  for_each_chunk<T>(n, [&](int64_t begin, int64_t size) {
    V slopes{}, products{}, terms{}, others{};
    walk(begin, size, [&](int64_t j, int64_t count) ADASPARSE_INLINE_BODY {
      const V p = load_first(weights + j, count, T(0)), g = load_first(grad + j, count, T(0));
      const V log_p = log_positive(p);
      const V sigma = HasSigma ? load_first(grad_scores + j, count, T(0)) : map.sigma_of(p, log_p);
      const Mask<T> inside = greater(sigma, V{});
      slopes += sigma;
      // A gradient that is not finite must not leak out of the support.
      products += select(inside, sigma * g, V{});
      if (!Map::kIsSigmaCheap && !HasSigma) store_first(grad_scores + j, sigma, count);
      if constexpr (WithAlpha) {
        const V term = weight_by_alpha<T>(p, sigma, log_p, map.eps());
        terms += select(inside, term * (g - common), select(is_nan(p), p, V{}));
        others += term;
      }
    });
    slope += static_cast<double>(sum_lanes<T>(slopes));
    weighted += static_cast<double>(sum_lanes<T>(products));
    by_alpha += static_cast<double>(sum_lanes<T>(terms));
    by_all += static_cast<double>(sum_lanes<T>(others));
  });
  // A row of NaN weights has NaN gradients; a fully masked row has none.
  if (slope == 0) {
    const T value = std::isnan(weights[0]) ? weights[0] : T(0);
    fill(grad_scores, n, value);
    return static_cast<double>(value);
  }
  const V mean = broadcast<T>(static_cast<T>(weighted / slope));
  walk(0, n, [&](int64_t j, int64_t count) ADASPARSE_INLINE_BODY {
    const V p = load_first(weights + j, count, T(0));
    const V sigma = Map::kIsSigmaCheap && !HasSigma ? map.sigma_of(p, p)
                                                    : load_first(grad_scores + j, count, T(0));
    const V centered = load_first(grad + j, count, T(0)) - mean;
    store_first(grad_scores + j,
                select(greater(sigma, V{}), sigma * centered, select(is_nan(p), p, V{})), count);
  });
  return by_alpha - (weighted / slope - static_cast<double>(common[0])) * by_all;
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
