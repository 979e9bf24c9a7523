// The map s -> p for each range of alpha, in the one form of every alpha:
//
//     p = exp(log1p(eps * u) / eps) where 1 + eps * u > 0, else 0;   u = z - c,  eps = alpha - 1
//
// z is the score minus the maximum of its row and c the normalizer that makes p sum to one.
// sigma = dp/du = p^(2 - alpha) comes for free with p and drives Newton's method and gradients.
//
// A map states whether it is sparse, cheap (no logarithm), and whether sigma follows cheaply from
// p; it has, for X a vector or two of them:
//   at(c)                what `eval` needs of a normalizer when z is counted from the maximum
//   origin(c)            where z is better counted from, relative to the maximum
//   at(c, origin)        what `eval` needs then
//   eval(z, at, p, sigma) both, exactly zero outside the support
//   sigma_of(p, log_p)   sigma from p, and the logarithm of p (backward)
//   step(F, S)           Newton's step for c from F = sum p and S = sum sigma, taken on
//                        (F^eps - 1) / eps, which is convex and decreasing for alpha <= 2, so that
//                        steps from below never overshoot
//   edge(c)              z at and below which p is zero
//   shift(c)             z - u
//
// Near the edge of the support a weight is a power of the distance to it. Counted from the maximum,
// that is a small difference of rounded numbers, and the rounding of c moves every weight the same
// way, which adds up over a long row. So the origin is the edge, as nearly as T has it, and `at`
// what is left; but not for small eps, where the logarithm of 1 + eps u needs the digits of u.
#pragma once

#include "simd/math.h"

namespace adasparse {
namespace ADASPARSE_ISA {

template <class T>
struct SoftmaxMap {
  static constexpr bool kIsSparse = false;
  static constexpr bool kIsCheap = false;
  static constexpr bool kIsSigmaCheap = true;
  bool is_cheap() const { return kIsCheap; }
  double eps() const { return 0; }
  double edge(double) const { return -std::numeric_limits<double>::infinity(); }
  double shift(double c) const { return c; }
  double origin(double) const { return 0; }
  double at(double c, double) const { return c; }
  template <class N>
  N at(N c) const {
    return c;
  }
  template <class X>
  ADASPARSE_INLINE void eval(X z, X c, X& p, X& sigma) const {
    p = sigma = exp(z - c);
  }
  ADASPARSE_INLINE Vec<T> sigma_of(Vec<T> p, Vec<T>& log_p) const {
    log_p = log_positive(p);
    return p;
  }
  double step(double f, double) const { return std::log(f); }
  Vec<T> step(Vec<T> f, Vec<T>) const { return log_positive(f); }
};

template <class T>
struct Entmax15Map {
  static constexpr bool kIsSparse = true;
  static constexpr bool kIsCheap = true;
  static constexpr bool kIsSigmaCheap = false;
  bool is_cheap() const { return kIsCheap; }
  double eps() const { return 0.5; }
  double edge(double c) const { return c - 2; }
  double shift(double c) const { return c; }
  double origin(double c) const { return edge(c); }
  double at(double c, double origin) const { return 0.5 * (origin - edge(c)); }
  double at(double c) const { return 1 - 0.5 * c; }
  Vec<T> at(Vec<T> c) const { return 1 - T(0.5) * c; }
  template <class X>
  ADASPARSE_INLINE void eval(X z, X base, X& p, X& sigma) const {
    sigma = max(base + z * T(0.5), all<X>(0));
    p = sigma * sigma;
  }
  ADASPARSE_INLINE Vec<T> sigma_of(Vec<T> p, Vec<T>& log_p) const {
    log_p = log_positive(p);
    return sqrt(p);
  }
  double step(double f, double s) const { return 2 * (f - std::sqrt(f)) / s; }
  Vec<T> step(Vec<T> f, Vec<T> s) const { return 2 * (f - sqrt(f)) / s; }
};

template <class T>
struct SparsemaxMap {
  static constexpr bool kIsSparse = true;
  static constexpr bool kIsCheap = true;
  static constexpr bool kIsSigmaCheap = true;
  bool is_cheap() const { return kIsCheap; }
  double eps() const { return 1; }
  double edge(double c) const { return c - 1; }
  double shift(double c) const { return c; }
  double origin(double c) const { return edge(c); }
  double at(double c, double origin) const { return origin - edge(c); }
  double at(double c) const { return 1 - c; }
  Vec<T> at(Vec<T> c) const { return 1 - c; }
  template <class X>
  ADASPARSE_INLINE void eval(X z, X base, X& p, X& sigma) const {
    p = max(base + z, all<X>(0));
    sigma = select(greater(p, all<X>(0)), all<X>(1), all<X>(0));
  }
  ADASPARSE_INLINE Vec<T> sigma_of(Vec<T> p, Vec<T>& log_p) const {
    log_p = log_positive(p);
    return select(greater(p, Vec<T>{}), broadcast<T>(1), Vec<T>{});
  }
  double step(double f, double s) const { return (f - 1) / s; }
  Vec<T> step(Vec<T> f, Vec<T> s) const { return (f - 1) / s; }
};

// Any other alpha up to 2. In float only 1 < alpha < 2 is accurate; below 1 the caller computes in
// double.
template <class T>
struct GeneralMap {
  static constexpr bool kIsSparse = true;
  static constexpr bool kIsCheap = false;
  static constexpr bool kIsSigmaCheap = false;

  explicit GeneralMap(double eps)
      : eps_(eps),
        epsilon_(T(eps)),
        power_(T((1 - eps) / eps)),
        slope_(T(1 - eps)),
        whole_(whole_power(eps)),
        is_steep_(eps > 0.5) {
    while (2 << squarings_ <= whole_ - 2) ++squarings_;
  }

  bool is_cheap() const { return whole_ != 0; }
  double eps() const { return eps_; }
  double edge(double c) const { return c - 1 / eps_; }
  double shift(double c) const { return c; }
  double origin(double c) const { return is_steep_ ? edge(c) : 0; }
  double at(double c, double origin) const { return is_steep_ ? eps_ * (origin - edge(c)) : c; }
  double at(double c) const { return is_steep_ ? 1 - eps_ * c : c; }
  Vec<T> at(Vec<T> c) const { return is_steep_ ? 1 - epsilon_ * c : c; }
  // t = 1 + eps u, of which p is a power.
  template <class X>
  ADASPARSE_INLINE X base(X z, X at) const {
    return is_steep_ ? z * epsilon_ + at : (z - at) * epsilon_ + T(1);
  }
  template <class X>
  ADASPARSE_INLINE void eval(X z, X at, X& p, X& sigma) const {
    if (whole_) return eval_whole(z, at, p, sigma);
    const X t = base(z, at);
    X x = is_steep_ ? t - T(1) : (z - at) * epsilon_;
    auto inside = greater(t, all<X>(0));
    // Below alpha = 1 every score is inside but a masked one.
    if (sizeof(T) == 8 && eps_ < 0) inside = greater(z, all<X>(std::numeric_limits<T>::lowest()));
    x = select(inside, x, all<X>(0));
    sigma = select(inside, power_of_1p<X>(x, power_), all<X>(0));
    p = select(inside, sigma * t, all<X>(0));
  }
  ADASPARSE_INLINE Vec<T> sigma_of(Vec<T> p, Vec<T>& log_p) const {
    return select(greater(p, Vec<T>{}), power_of<Vec<T>>(p, slope_, log_p), Vec<T>{});
  }
  double step(double f, double s) const {
    return f * -std::expm1(-eps_ * std::log(f)) / (eps_ * s);
  }
  Vec<T> step(Vec<T> f, Vec<T> s) const {
    const Vec<T> w = -epsilon_ * log_positive(f);
    const Vec<T> small = w * (1 + w * (T(0.5) + w * T(1.0 / 6)));
    const Vec<T> expm1 = select(greater(broadcast<T>(T(0.01)), max(w, -w)), small, exp(w) - 1);
    return -f * expm1 / (epsilon_ * s);
  }

 private:
  // Up to here a power is a product: the roundings of its factors add up to a little more than
  // half of it in ULP.
  static constexpr int kLargestWhole = 20;
  // 1 / eps if that is such a whole number, as for alpha = 4/3 or 1.05, else 0.
  static int whole_power(double eps) {
    const double power = std::nearbyint(1 / eps);
    return power > 2 && power <= kLargestWhole && std::fabs(power * eps - 1) < 3e-15
               ? static_cast<int>(power)
               : 0;
  }
  // p = t^m and sigma = t^(m-1) as products, m > 2.
  template <class X>
  ADASPARSE_INLINE void eval_whole(X z, X at, X& p, X& sigma) const {
    const X x = (z - at) * epsilon_, t = x + T(1);
    const X rest = x - (t - T(1));  // what t has no digits for
    const int lower = whole_ - 2;
    X low = t;
    for (int bit = squarings_ - 1; bit >= 0; --bit) {
      low = low * low;
      if (lower >> bit & 1) low = low * t;
    }
    const auto inside = greater(t, all<X>(0));
    sigma = select(inside, low * (rest * T(whole_ - 1) + t), all<X>(0));
    p = select(inside, low * t * (rest * T(whole_) + t), all<X>(0));
  }

  double eps_;
  T epsilon_, power_, slope_;
  int whole_, squarings_ = 0;
  bool is_steep_;  // whether scores are counted from the edge
};

// alpha > 2. The slope of the map is infinite at the edge of the support, and for large eps the
// whole of a weight is decided by less than the rounding of c. Nothing is lost if scores are
// counted from the smallest one in the support, whose weight w takes the place of c:
//
//     p = (eps z + w^eps)^(1/eps) where z >= 0, else 0;   z = score - smallest score in the support
//
// Differences of scores are known to the last digit, and sum p rises in w with a slope of at least
// one. "c" is log w here, and "sigma" dp/dw = (w / p)^(eps - 1), which is sigma up to a factor.
template <class T>
struct SteepMap : GeneralMap<T> {
  explicit SteepMap(double eps) : GeneralMap<T>(eps) {}

  double edge(double) const { return -std::numeric_limits<double>::min(); }
  double origin(double) const { return 0; }
  double at(double log_w, double) const { return log_w; }
  template <class N>
  N at(N log_w) const {
    return log_w;
  }
  double shift(double log_w) const { return -std::expm1(this->eps() * log_w) / this->eps(); }
  template <class X>
  ADASPARSE_INLINE void eval(X z, X log_w, X& p, X& sigma) const {
    const X zero = all<X>(0);
    const X w = exp<X>(log_w), base = exp<X>(log_w * T(this->eps()));
    const auto is_above = greater(z, zero);
    const X t = max(select(is_above, z, zero) * T(this->eps()) + base,
                    all<X>(std::numeric_limits<T>::min()));
    const X power = exp<X>(log_positive<X>(t) * T(1 / this->eps()));
    p = select(is_above, power, select(greater(zero, z), zero, w));
    sigma = select(is_above, base / t * (power / w), select(greater(zero, z), zero, all<X>(1)));
  }
};

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
