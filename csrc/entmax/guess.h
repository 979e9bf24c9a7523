// Guesses of the normalizer for maps that are expensive to evaluate, from cheaper sums.
#pragma once

#include "entmax/normalizer.h"

namespace adasparse {
namespace ADASPARSE_ISA {

struct Guess {
  double bound = 0;  // c is at least this
  double c = 0;
  int64_t packed = -1;  // candidates that are packed already, if they are
};
// Sums of t^x, t = 1 + eps u, for the four whole x around 1/eps. Together they cost a fraction of
// one sum of p = t^(1/eps), and the logarithm of such a sum is a smooth and convex function of x:
// interpolated, it gives F and S within half a percent as a rule; a line through two of its points
// is a lower bound of log F. The derivation is in csrc/README.md.
class WholePowers {
 public:
  static constexpr double kLeast = 1. / 64;  // below this eps, c of softmax is close enough

  explicit WholePowers(double eps)
      : eps_(eps), first_(static_cast<int>(1 / eps) - 1), part_(float(1 / eps - first_ - 1)) {
    for (int i = 0; i < 4; ++i) {
      mass_[i] = slope_[i] = 1;  // Lagrange's weights
      for (int j = 0; j < 4; ++j) {
        if (j == i) continue;
        mass_[i] *= (part_ + 1 - float(j)) / float(i - j);
        slope_[i] *= (part_ - float(j)) / float(i - j);
      }
    }
    while (2 << squarings_ <= first_) ++squarings_;
  }

  // Newton's method from below.
  template <class T>
  Guess rise(const T* row, int64_t n, T top, Guess guess) const {
    const float eps = static_cast<float>(eps_);
    for (int step = 0; step < kSteps; ++step) {
      const FloatVector log = logs_of_sums(row, n, top, guess.c);
      const float left = log[1] + part_ * (log[1] - log[0]);
      const float right = log[2] - (1 - part_) * (log[3] - log[2]);
      if (larger(left, right) > kSure) guess.bound = guess.c;
      float mass = 0, slope = 0;
      for (int i = 0; i < 4; ++i) {
        mass += mass_[i] * log[i];
        slope += slope_[i] * log[i];
      }
      mass -= kAbove;
      const FloatVector power = exp(FloatVector{mass - slope, -eps * mass});
      guess.c += static_cast<double>(power[0] * (1 - power[1]) / eps);
      if (!(mass > kEnough)) break;
    }
    return guess;
  }

  // The same with a row in every lane, whose scores minus the maximum are z[j]. A lane that has got
  // there keeps its c, so that a row's result does not depend on its neighbors.
  template <class T>
  Vec<T> rise_lanes(const T* z, int64_t n, Vec<T> c) const {
    using V = Vec<T>;
    const T eps = static_cast<T>(eps_);
    Mask<T> is_left = greater(broadcast<T>(1), V{});
    for (int step = 0; step < kSteps && any(is_left); ++step) {
      V sums[4];
      sum_powers(z, n, c, sums);
      V mass = broadcast<T>(-T(kLanesAbove)), slope{};
      for (int i = 0; i < 4; ++i) {
        const V log = log_positive(sums[i]);
        mass += static_cast<T>(mass_[i]) * log;
        slope += static_cast<T>(slope_[i]) * log;
      }
      const V next = c + exp(mass - slope) * (1 - exp(-eps * mass)) / eps;
      c = select(is_left, max(next, V{}), c);
      is_left = is_left & greater(mass, broadcast<T>(T(kEnough)));
    }
    return c;
  }

 private:
  static constexpr int kSteps = 8;        // 2 or 3 are the rule
  static constexpr float kEnough = 0.2f;  // of log F: one more step leaves a hundredth of it
  static constexpr float kAbove = 5e-4f;  // moves of p lower the sum to one, they cannot raise it
  static constexpr float kLanesAbove = 1e-3f;  // all lanes have to end up above one
  static constexpr float kSure = 1e-3f;        // above the rounding errors of log F

  // Small enough not to count, large enough for all powers to be normal numbers. Powers up to the
  // fourth are by themselves, so that scores of weight zero, which pad rows in lanes, add nothing.
  template <class X>
  X least_of() const {
    return all<X>(first_ > 1 ? static_cast<ElementOf<X>>(std::exp(-80. / (first_ + 3))) : 0);
  }
  // Adds the four powers of t to `sums`; first(t) is the lowest.
  template <class X, class First>
  ADASPARSE_INLINE static void add_powers(const X& t, const First& first, X (&sums)[4]) {
    X power = first(t);
    sums[0] = sums[0] + power;
    for (int i = 1; i < 4; ++i) {
      power = power * t;
      sums[i] = sums[i] + power;
    }
  }
  // Calls body(first) with the function that raises t to the lowest x.
  template <class X, class Body>
  ADASPARSE_INLINE void with_first(const X& least, const Body& body) const {
    if (first_ == 0)
      body([&](X t) ADASPARSE_INLINE_BODY { return select(greater(t, least), all<X>(1), least); });
    else if (first_ == 1)
      body([](X t) ADASPARSE_INLINE_BODY { return t; });
    else if (first_ == 2)
      body([](X t) ADASPARSE_INLINE_BODY { return t * t; });
    else if (first_ == 3)
      body([](X t) ADASPARSE_INLINE_BODY { return t * t * t; });
    else
      body([&](X t) ADASPARSE_INLINE_BODY {
        X power = t;
        for (int bit = squarings_ - 1; bit >= 0; --bit) {
          power = power * power;
          if (first_ >> bit & 1) power = power * t;
        }
        return power;
      });
  }

  // The sums of a row in every lane, no less than a normal number.
  template <class T>
  void sum_powers(const T* z, int64_t n, Vec<T> c, Vec<T> (&total)[4]) const {
    using X = Two<Vec<T>>;
    constexpr int width = Lanes<T>::count;
    const T eps = static_cast<T>(eps_);
    const X least = least_of<X>(), base{1 - eps * c, 1 - eps * c};
    X sums[4] = {all<X>(0), all<X>(0), all<X>(0), all<X>(0)};
    with_first(least, [&](const auto& first) {
      int64_t j = 0;
      for (; j + 2 <= n; j += 2) {
        const X two{load(z + j * width), load(z + (j + 1) * width)};
        add_powers(max(two * eps + base, least), first, sums);
      }
      const X last{j < n ? load(z + j * width) : Vec<T>{},
                   broadcast<T>(-std::numeric_limits<T>::infinity())};
      if (j < n) add_powers(max(last * eps + base, least), first, sums);
    });
    for (int i = 0; i < 4; ++i)
      total[i] = max(sums[i].a + sums[i].b, broadcast<T>(std::numeric_limits<T>::min()));
  }

  template <class T>
  FloatVector logs_of_sums(const T* row, int64_t n, T top, double c) const {
    using X = Two<Vec<T>>;
    const T eps = static_cast<T>(eps_);
    const X least = least_of<X>();
    const X shift = all<X>(top), base = all<X>(static_cast<T>(1 - eps_ * c));
    double total[4] = {};
    with_first(least, [&](const auto& first) {
      for_each_chunk<T>(n, [&](int64_t begin, int64_t size) {
        X sums[4] = {all<X>(0), all<X>(0), all<X>(0), all<X>(0)};
        for_each_two(row + begin, size, [&](X s, int64_t, int64_t) ADASPARSE_INLINE_BODY {
          add_powers(max((s - shift) * eps + base, least), first, sums);
        });
        for (int i = 0; i < 4; ++i) total[i] += sum_two<T>(sums[i]);
      });
    });
    FloatVector found = FloatVector{} + 1.f;
    for (int i = 0; i < 4; ++i) found[i] = static_cast<float>(total[i]);
    return log_positive(found);
  }

  double eps_;
  int first_, squarings_ = 0;  // the lowest x, and how often t is squared on the way to it
  float part_;                 // of the way from the second x to the third that 1/eps is at
  float mass_[4], slope_[4];
};

// c falls as alpha grows: the cheap maps of 1.5 and 2 give lower bounds of it.
template <class T>
Guess guess_row(const T* row, int64_t n, double eps, const RowMaximum<T>& top, T* scratch) {
  constexpr double enough = kGuessSlack;
  if (eps < WholePowers::kLeast) {
    using X = Two<Vec<T>>;
    X total = all<X>(0);
    const X shift = all<X>(top.max);
    for_each_two(row, n, [&](X s, int64_t, int64_t) ADASPARSE_INLINE_BODY {
      const X z = s - shift;
      total = total + X{rough_exp(z.a), rough_exp(z.b)};
    });
    return {0, normalizer_of(std::log(sum_two<T>(total)), eps)};
  }
  const auto bound = [&](const auto& map) {
    const double c = bound_from_best(map, top);
    return rise(map, scratch, pack_candidates(row, n, top.max, map.eps(), c, scratch), c, enough);
  };
  const double c = eps < 0.5 ? bound(Entmax15Map<T>()) : bound(SparsemaxMap<T>());
  const double log_count = log_count_of(c, eps < 0.5 ? 0.5 : 1);
  const Guess start{c, normalizer_of(log_count, eps),
                    pack_few_candidates(row, n, top.max, eps, c, scratch)};
  const WholePowers powers(eps);
  return start.packed < 0 ? powers.rise(row, n, top.max, start)
                          : powers.rise(scratch, start.packed, T(0), start);
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
