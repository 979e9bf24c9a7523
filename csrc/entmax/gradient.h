// The gradient of one row of weights with respect to its scores and alpha.
#pragma once

#include "entmax/maps.h"
#include "entmax/walk.h"
#include "tuning.h"

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

// sigma of some weights and, if WithAlpha, dp/dalpha at fixed c; sigma may take their place.
template <bool WithAlpha, class T, class Map>
void find_slopes(const Map& map, const T* weights, int64_t n, T* sigma, T* by_alpha) {
  using V = Vec<T>;
  constexpr int width = Lanes<T>::count;
  for (int64_t j = 0; j < n; j += width) {
    const V p = load_first(weights + j, n - j, T(0));
    V log_p;
    const V slope = map.sigma_of(p, log_p);
    store_first(sigma + j, slope, n - j);
    if constexpr (WithAlpha)
      store_first(by_alpha + j, weight_by_alpha<T>(p, slope, log_p, map.eps()), n - j);
  }
}

// Calls body(j, count) over the vectors from `begin` on; count is known at compile time but for the
// last one.
template <class T, class Body>
ADASPARSE_INLINE void for_each_place(int64_t begin, int64_t size, const Body& body) {
  constexpr int width = Lanes<T>::count;
  int64_t j = begin;
  for (; j + width <= begin + size; j += width) body(j, int64_t{width});
  if (j < begin + size) body(j, begin + size - j);
}

// The mean of a row's gradient over its weights. What gradients have in common must not drown that
// with respect to alpha.
template <class T>
ADASPARSE_INLINE T mean_gradient(const T* weights, const T* grad, int64_t n) {
  using V = Vec<T>;
  V total{};
  for_each_place<T>(0, n, [&](int64_t j, int64_t count) ADASPARSE_INLINE_BODY {
    const V p = load_first(weights + j, count, T(0));
    total += select(greater(p, V{}), p * load_first(grad + j, count, T(0)), V{});
  });
  return sum_lanes<T>(total);
}

// Sums that the gradients of a row follow from.
struct GradientSums {
  double slope = 0, weighted = 0;   // of sigma, and of sigma g
  double by_alpha = 0, by_all = 0;  // of dp/dalpha at fixed c times g - common, and alone
};

// The sums of a row. `grad_scores` holds sigma if HasSigma, and gets it unless that is cheap;
// `by_alpha` holds dp/dalpha at fixed c if HasTerms.
template <bool WithAlpha, bool HasSigma, bool HasTerms, class T, class Map>
ADASPARSE_INLINE GradientSums sum_gradients(const Map& map, const T* weights, const T* grad,
                                            int64_t n, T common, T* grad_scores,
                                            [[maybe_unused]] const T* by_alpha) {
  using V = Vec<T>;
  GradientSums sums;
  for_each_chunk<T>(n, [&](int64_t begin, int64_t size) {
    V slopes{}, products{}, terms{}, others{};
    for_each_place<T>(begin, size, [&](int64_t j, int64_t count) ADASPARSE_INLINE_BODY {
      const V p = load_first(weights + j, count, T(0)), g = load_first(grad + j, count, T(0));
      V log_p = HasSigma ? log_positive(p) : V{};
      const V sigma = HasSigma ? load_first(grad_scores + j, count, T(0)) : map.sigma_of(p, log_p);
      const Mask<T> inside = greater(sigma, V{});
      slopes += sigma;
      // A gradient that is not finite must not leak out of the support.
      products += select(inside, sigma * g, V{});
      if (!Map::kIsSigmaCheap && !HasSigma) store_first(grad_scores + j, sigma, count);
      if constexpr (WithAlpha) {
        const V term = HasTerms ? load_first(by_alpha + j, count, T(0))
                                : weight_by_alpha<T>(p, sigma, log_p, map.eps());
        terms += select(inside, term * (g - common), select(is_nan(p), p, V{}));
        others += term;
      }
    });
    sums.slope += static_cast<double>(sum_lanes<T>(slopes));
    sums.weighted += static_cast<double>(sum_lanes<T>(products));
    sums.by_alpha += static_cast<double>(sum_lanes<T>(terms));
    sums.by_all += static_cast<double>(sum_lanes<T>(others));
  });
  return sums;
}

// grad_scores = sigma (g - mean), with the mean of g weighted by sigma, which grad_scores holds
// already unless it is cheap and not HasSigma. Returns the gradient with respect to alpha.
template <bool HasSigma, class T, class Map>
ADASPARSE_INLINE double finish_gradients(const Map& map, const T* weights, const T* grad, int64_t n,
                                         const GradientSums& sums, T common, T* grad_scores) {
  using V = Vec<T>;
  // A row of NaN weights has NaN gradients; a fully masked row has none.
  if (sums.slope == 0) {
    const T value = std::isnan(weights[0]) ? weights[0] : T(0);
    fill(grad_scores, n, value);
    return static_cast<double>(value);
  }
  const double mean = sums.weighted / sums.slope;
  for_each_place<T>(0, n, [&](int64_t j, int64_t count) ADASPARSE_INLINE_BODY {
    const V p = load_first(weights + j, count, T(0));
    V log_p;
    const V sigma = Map::kIsSigmaCheap && !HasSigma ? map.sigma_of(p, log_p)
                                                    : load_first(grad_scores + j, count, T(0));
    const V centered = load_first(grad + j, count, T(0)) - static_cast<T>(mean);
    store_first(grad_scores + j,
                select(greater(sigma, V{}), sigma * centered, select(is_nan(p), p, V{})), count);
  });
  return sums.by_alpha - (mean - static_cast<double>(common)) * sums.by_all;
}

// One more weight of a row, whose gradient is zero since it has no value, and the gradient with
// respect to its score.
template <class T>
struct SinkWeight {
  T weight;
  double by_score;
};

// One row: the gradient with respect to its scores goes to grad_scores, which may hold sigma
// already, that with respect to alpha is returned if WithAlpha. A sink takes part unless it is
// null.
template <bool WithAlpha, bool HasSigma, class T, class Map>
double backward_row(const Map& map, const T* weights, const T* grad, int64_t n, T* grad_scores,
                    SinkWeight<T>* sink = nullptr) {
  using V = Vec<T>;
  const T common = WithAlpha ? mean_gradient(weights, grad, n) : T(0);
  GradientSums sums = sum_gradients<WithAlpha, HasSigma, false>(
      map, weights, grad, n, common, grad_scores, static_cast<const T*>(nullptr));
  double sink_slope = 0;
  if (sink && sink->weight > 0) {
    const V p = broadcast(sink->weight);
    V log_p;
    const V sigma = map.sigma_of(p, log_p);
    sums.slope += sink_slope = static_cast<double>(sigma[0]);
    if constexpr (WithAlpha) {
      const auto term = static_cast<double>(weight_by_alpha<T>(p, sigma, log_p, map.eps())[0]);
      sums.by_alpha -= term * static_cast<double>(common);
      sums.by_all += term;
    }
  }
  const double by_alpha =
      finish_gradients<HasSigma>(map, weights, grad, n, sums, common, grad_scores);
  if (sink)
    sink->by_score = sums.slope == 0 ? by_alpha : -sink_slope * (sums.weighted / sums.slope);
  return by_alpha;
}

// Rows of which few weights are not zero. Their supports are packed, one after the other, so that
// nothing else is computed with, and no vector is partly filled while slopes are found.
template <bool WithAlpha, class T>
class SparseRows {
 public:
  // Rows of n with up to `size` numbers; `work` holds scratch_size(size).
  SparseRows(int64_t n, int64_t size, T* work)
      : n_(n),
        p_(work),
        g_(p_ + room(size)),
        sigma_(g_ + room(size)),
        by_alpha_(sigma_ + room(size)) {}
  static int64_t scratch_size(int64_t size) { return 4 * room(size); }

  // Takes one more row, at most kGradientRows; returns false, with nothing done, if it is not
  // sparse: rows of NaN, which is all a row with NaN has, are not.
  bool add(const T* weights, const T* grad, T* grad_scores, double* grad_alpha) {
    int64_t count = 0;
    for_each_vector(weights, n_, [&](V p, int, int64_t) ADASPARSE_INLINE_BODY {
      count += __builtin_popcount(bits(greater_or_nan(p, V{})));
    });
    if (static_cast<double>(count) > kPackedShare * static_cast<double>(n_)) return false;
    rows_[used_++] = {weights, grad_scores, grad_alpha, size_, count};
    for_each_place<T>(0, n_, [&](int64_t j, int64_t part) ADASPARSE_INLINE_BODY {
      const V p = load_first(weights + j, part, T(0));
      const Mask<T> inside = greater(p, V{});
      compress_store<T>(g_ + size_, inside, load_first(grad + j, part, T(0)));
      size_ += compress_store<T>(p_ + size_, inside, p);
    });
    return true;
  }

  // Writes the gradients of all rows taken.
  template <class Map>
  void finish(const Map& map) {
    find_slopes<WithAlpha>(map, p_, size_, sigma_, by_alpha_);
    GradientSums sums[kGradientRows];
    T common[kGradientRows] = {};
    for (int r = 0; r < used_; ++r) sums[r] = sum(rows_[r], common[r]);
    for (int r = 0; r < used_; ++r) {
      const Row& row = rows_[r];
      const double mean = row.count ? sums[r].weighted / sums[r].slope : 0;
      if constexpr (WithAlpha)
        *row.grad_alpha =
            sums[r].by_alpha - (mean - static_cast<double>(common[r])) * sums[r].by_all;
      // Numbers of the next row that this touches are written again with it.
      for (int64_t j = row.first; j < row.first + row.count; j += width)
        store(p_ + j, load(sigma_ + j) * (load(g_ + j) - static_cast<T>(mean)));
    }
    for (int r = 0; r < used_; ++r) {
      const T* from = p_ + rows_[r].first;
      for_each_vector(rows_[r].weights, n_, [&](V p, int part, int64_t j) ADASPARSE_INLINE_BODY {
        const Mask<T> inside = greater(p, V{});
        store_first(rows_[r].grad_scores + j, expand_load<T>(from, inside), part);
        from += __builtin_popcount(bits(inside));
      });
    }
  }

 private:
  using V = Vec<T>;
  static constexpr int width = Lanes<T>::count;
  static int64_t room(int64_t size) { return size + width; }
  struct Row {
    const T* weights;
    T* grad_scores;
    double* grad_alpha;
    int64_t first, count;  // of its support
  };

  // Calls body(at, mask) over the vectors of a part of a row, with a mask of what belongs to it.
  template <class Body>
  static ADASPARSE_INLINE void walk(int64_t at, int64_t size, const Body& body) {
    for (int64_t end = at + size; at < end; at += width)
      body(at, first_lanes<T>(static_cast<int>(smaller<int64_t>(width, end - at))));
  }

  // As mean_gradient and sum_gradients.
  GradientSums sum(const Row& row, T& common) const {
    GradientSums sums;
    if constexpr (WithAlpha) {
      V total{};
      walk(row.first, row.count, [&](int64_t j, Mask<T> mine) ADASPARSE_INLINE_BODY {
        total += select(mine, load(p_ + j) * load(g_ + j), V{});
      });
      common = sum_lanes<T>(total);
    }
    for_each_chunk<T>(row.count, [&](int64_t begin, int64_t size) {
      V slopes{}, products{}, terms{}, others{};
      walk(row.first + begin, size, [&](int64_t j, Mask<T> mine) ADASPARSE_INLINE_BODY {
        const V sigma = select(mine, load(sigma_ + j), V{}), g = load(g_ + j);
        slopes += sigma;
        products += select(mine, sigma * g, V{});
        if constexpr (WithAlpha) {
          const V term = select(mine, load(by_alpha_ + j), V{});
          terms += select(mine, term * (g - common), V{});
          others += term;
        }
      });
      sums.slope += static_cast<double>(sum_lanes<T>(slopes));
      sums.weighted += static_cast<double>(sum_lanes<T>(products));
      sums.by_alpha += static_cast<double>(sum_lanes<T>(terms));
      sums.by_all += static_cast<double>(sum_lanes<T>(others));
    });
    return sums;
  }

  int64_t n_, size_ = 0;
  int used_ = 0;
  T *p_, *g_, *sigma_, *by_alpha_;
  Row rows_[kGradientRows];
};

// The same for alpha > 2, where sigma = p^(1 - eps) overflows. With w the smallest weight, ratios
// r = sigma / sigma_w = (w / p)^(eps - 1) do not, and gradients are counted from that of w:
//
//     grad_scores = sigma d - r (sum sigma d) / (sum r),   d = g - g_w
//     by alpha    = sum f (d - (sum r d) / (sum r)),       f = dp/dalpha at fixed w
//     f = p / eps ((1 - q) (1 / eps - log p) + q log(w / p)),   q = (w / p)^eps
//
// A gradient beyond the range of doubles is infinite.
template <bool WithAlpha, bool HasSigma, class T>
double backward_row(const SteepMap<T>& map, const T* weights, const T* grad, int64_t n,
                    T* grad_scores, SinkWeight<T>* sink = nullptr) {
  const double eps = map.eps();
  const int64_t count = n + (sink ? 1 : 0);
  const auto weight_at = [&](int64_t j) {
    return static_cast<double>(j < n ? weights[j] : sink->weight);
  };
  const auto grad_at = [&](int64_t j) { return j < n ? static_cast<double>(grad[j]) : 0; };
  if (sink) sink->by_score = 0;
  int64_t least = -1;
  for (int64_t j = 0; j < count; ++j) {
    if (std::isnan(weight_at(j))) {
      for (int64_t i = 0; i < n; ++i) grad_scores[i] = std::isnan(weights[i]) ? weights[i] : T(0);
      if (sink) sink->by_score = weight_at(j);
      return weight_at(j);
    }
    if (weight_at(j) > 0 && (least < 0 || weight_at(j) < weight_at(least))) least = j;
  }
  fill(grad_scores, n, T(0));
  if (least < 0) return 0;
  const double log_w = std::log(weight_at(least)), origin = grad_at(least);
  double ratios = 0, shifted = 0, steep = 0, by_alpha = 0, by_all = 0;
  const auto walk = [&](const auto& body) {
    for (int64_t j = 0; j < count; ++j)
      if (weight_at(j) > 0) {
        const double log_p = std::log(weight_at(j));
        body(j, log_p, std::exp((eps - 1) * (log_w - log_p)), grad_at(j) - origin);
      }
  };
  const auto steepened = [&](double log_p, double d) {
    return d == 0 ? 0 : std::exp((1 - eps) * log_p) * d;
  };
  walk([&](int64_t j, double log_p, double ratio, double d) {
    ratios += ratio;
    shifted += ratio * d;
    steep += steepened(log_p, d);
    if constexpr (WithAlpha) {
      const double x = log_w - log_p, rest = -std::expm1(eps * x);
      const double f = weight_at(j) / eps * (rest * (1 / eps - log_p) + (1 - rest) * x);
      by_alpha += f * d;
      by_all += f;
    }
  });
  walk([&](int64_t j, double log_p, double ratio, double d) {
    const double mine = steepened(log_p, d);
    const double by_score = std::isfinite(mine) && std::isfinite(steep)
                                ? mine - ratio * (steep / ratios)
                                : steepened(log_p, d - shifted / ratios);
    if (j < n)
      grad_scores[j] = static_cast<T>(by_score);
    else
      sink->by_score = by_score;
  });
  return by_alpha - shifted / ratios * by_all;
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
