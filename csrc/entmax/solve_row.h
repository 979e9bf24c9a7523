// The normalizer c of a row of scores: sum over j of p(s_j - max - c) = 1.
#pragma once

#include <type_traits>

#include "entmax/maps.h"

namespace adasparse {
namespace ADASPARSE_ISA {

constexpr int kMaxSteps = 200;  // Newton needs 2 to 8; only a bisected alpha > 2 comes near
constexpr int kBlock = 32;      // pairs of vectors summed in T before the sum goes on in double

template <class T>
constexpr double tolerance() {
  return sizeof(T) == 4 ? 3e-7 : 4e-15;
}

// What is known of a solved row: p_j = scale * p(s_j - max - c).
struct Normalizer {
  double max;    // -inf: every score is masked; NaN: the row holds NaN or +inf
  double c;
  double scale;  // 1 / sum p at c, within rounding of 1
  bool is_regular() const { return std::isfinite(max); }
};

struct Sums {
  double mass = 0;   // F = sum p
  double slope = 0;  // S = sum sigma
};

// ---------------------------------------------------------------- walking a row

template <class T>
ADASPARSE_INLINE Vec<T> load_first(const T* from, int64_t count, T fill) {
  return count >= Lanes<T>::count ? load(from) : load_part(from, static_cast<int>(count), fill);
}
template <class T>
ADASPARSE_INLINE void store_first(T* to, Vec<T> v, int64_t count) {
  if (count >= Lanes<T>::count)
    store(to, v);
  else if (count > 0)
    store_part(to, v, static_cast<int>(count));
}

// Calls body(vector, lanes_used, offset) over a row; the last, partial vector is filled with -inf.
template <class T, class Body>
ADASPARSE_INLINE void for_each_vector(const T* row, int64_t n, const Body& body) {
  constexpr int width = Lanes<T>::count;
  int64_t j = 0;
  for (; j + width <= n; j += width) body(load(row + j), width, j);
  if (j < n)
    body(load_part(row + j, static_cast<int>(n - j), -std::numeric_limits<T>::infinity()),
         static_cast<int>(n - j), j);
}

// Calls body(two, lanes_left, offset) over a row two vectors at a time, filled up with -inf.
template <class T, class Body>
ADASPARSE_INLINE void for_each_two(const T* row, int64_t n, const Body& body) {
  constexpr int width = Lanes<T>::count;
  constexpr T fill = -std::numeric_limits<T>::infinity();
  int64_t j = 0;
  for (; j + 2 * width <= n; j += 2 * width)
    body(Two<Vec<T>>{load(row + j), load(row + j + width)}, int64_t{2 * width}, j);
  if (j < n)
    body(Two<Vec<T>>{load_first(row + j, n - j, fill),
                     n - j > width ? load_first(row + j + width, n - j - width, fill)
                                   : broadcast<T>(fill)},
         n - j, j);
}
template <class T>
ADASPARSE_INLINE void store_two(T* to, const Two<Vec<T>>& x, int64_t count) {
  store_first(to, x.a, count);
  store_first(to + Lanes<T>::count, x.b, count - Lanes<T>::count);
}
template <class T>
ADASPARSE_INLINE double sum_two(const Two<Vec<T>>& x) {
  return static_cast<double>(sum_lanes<T>(x.a + x.b));
}

// Calls body(begin, size) for stretches of a row short enough to be summed in T.
template <class T, class Body>
ADASPARSE_INLINE void for_each_block(int64_t n, const Body& body) {
  constexpr int64_t block = int64_t{2 * kBlock} * Lanes<T>::count;
  for (int64_t begin = 0; begin < n; begin += block) body(begin, smaller(block, n - begin));
}

// ---------------------------------------------------------------- one row

// F and S at c over scores `row` less `shift`; p goes to `weights` unless that is null.
template <class T, class Map>
Sums sum_row(const Map& map, const T* row, int64_t n, T shift, double c, T* weights) {
  using X = Two<Vec<T>>;
  const X offset = all<X>(shift), at = all<X>(static_cast<T>(map.at(c)));
  Sums sums;
  for_each_block<T>(n, [&](int64_t begin, int64_t size) {
    X mass = all<X>(0), slope = all<X>(0);
    const auto add = [&](auto is_stored) {
      for_each_two(row + begin, size, [&](X s, int64_t count, int64_t j) ADASPARSE_INLINE_BODY {
        X p, sigma;
        map.eval(s - offset, at, p, sigma);
        mass = mass + p;
        slope = slope + sigma;
        if constexpr (is_stored) store_two(weights + begin + j, p, count);
      });
    };
    if (weights)
      add(std::true_type{});
    else
      add(std::false_type{});
    sums.mass += sum_two<T>(mass);
    sums.slope += sum_two<T>(slope);
  });
  return sums;
}

// The maximum of a row (NaN if it holds NaN or +inf), and four vectors of lane maxima: real scores
// of the row, mostly its largest.
template <class T>
struct RowMaximum {
  Vec<T> best[4];
  T max;

  RowMaximum(const T* row, int64_t n) {
    using adasparse::ADASPARSE_ISA::max;
    constexpr int width = Lanes<T>::count;
    for (auto& b : best) b = broadcast<T>(-std::numeric_limits<T>::infinity());
    Mask<T> nan{};
    int64_t j = 0;
    for (; j + 4 * width <= n; j += 4 * width)
      for (int i = 0; i < 4; ++i) {
        const Vec<T> s = load(row + j + i * width);
        nan |= is_nan(s);
        best[i] = max(best[i], s);
      }
    for_each_vector(row + j, n - j, [&](Vec<T> s, int, int64_t at) ADASPARSE_INLINE_BODY {
      nan |= is_nan(s);
      Vec<T>& mine = best[at / width];
      mine = max(mine, s);
    });
    this->max = max_lanes<T>(max(max(best[0], best[1]), max(best[2], best[3])));
    if (any(nan) || this->max == std::numeric_limits<T>::infinity())
      this->max = std::numeric_limits<T>::quiet_NaN();
  }
};

// A lower bound for c from a few scores of the row alone: fewer terms, smaller sum, smaller root.
template <class T, class Map>
double bound_from_best(const Map& map, const RowMaximum<T>& row) {
  using V = Vec<T>;
  const V shift = broadcast<T>(row.max);
  double c = 0;
  for (int step = 0; step < 3; ++step) {
    const V at = broadcast<T>(static_cast<T>(map.at(c)));
    V mass{}, slope{};
    for (const V& best : row.best) {
      V p, sigma;
      map.eval(best - shift, at, p, sigma);
      mass += p;
      slope += sigma;
    }
    const double f = static_cast<double>(sum_lanes<T>(mass));
    if (!(f > 1 + 1e-3)) break;
    c += map.step(f, static_cast<double>(sum_lanes<T>(slope)));
  }
  return c * (1 - 1e-6);  // rounding must not carry it over the root
}

// Scores less the maximum that are not above this are not in the support when the normalizer is at
// least c. Rounded down a little: an extra candidate costs nothing, a lost one would be wrong.
template <class T>
T candidate_cut(double eps, double c) {
  const double edge = c - 1 / eps;
  return static_cast<T>(edge - 1e-6 * std::fabs(edge));
}
// Packs the scores above the cut, less the maximum.
template <class T>
int64_t pack_candidates(const T* row, int64_t n, T max, double eps, double c, T* to) {
  using V = Vec<T>;
  const V shift = broadcast<T>(max), cut = broadcast<T>(candidate_cut<T>(eps, c));
  int64_t packed = 0;
  for_each_vector(row, n, [&](V s, int, int64_t) ADASPARSE_INLINE_BODY {
    const V z = s - shift;
    packed += compress_store<T>(to + packed, greater(z, cut), z);
  });
  return packed;
}

// The same, unless a look at the first scores tells that hardly any would be left out: then -1.
template <class T>
int64_t pack_few_candidates(const T* row, int64_t n, T max, double eps, double c, T* to) {
  const int64_t sample = smaller(n, int64_t{8} * Lanes<T>::count);
  if (pack_candidates(row, sample, max, eps, c, to) > sample * 3 / 4) return -1;
  return pack_candidates(row, n, max, eps, c, to);
}

// Puts the weights of packed candidates, `count` at the front of `weights`, where their scores are.
template <class T>
void unpack_weights(const T* row, int64_t n, T max, double eps, double c, int64_t count,
                    T* weights) {
  using V = Vec<T>;
  constexpr int width = Lanes<T>::count;
  const V shift = broadcast<T>(max), cut = broadcast<T>(candidate_cut<T>(eps, c));
  // From the end on, so that nothing is overwritten before it is read.
  for (int64_t j = (n - 1) / width * width; j >= 0; j -= width) {
    const Mask<T> chosen = greater(
        load_first(row + j, n - j, -std::numeric_limits<T>::infinity()) - shift, cut);
    count -= __builtin_popcount(bits(chosen));
    store_first(weights + j, expand_load<T>(weights + count, chosen), n - j);
  }
}

// Newton's method from a lower bound c on packed candidates, until F is below 1 + enough.
template <class T, class Map>
double rise(const Map& map, const T* values, int64_t count, double c, double enough) {
  for (int step = 0; step < kMaxSteps; ++step) {
    const Sums sums = sum_row(map, values, count, T(0), c, static_cast<T*>(nullptr));
    if (sums.mass <= 1 + enough) break;
    c += map.step(sums.mass, sums.slope);
  }
  return c;
}

// (1 - N^-eps) / eps, the normalizer of N equal scores, and its inverse log N.
inline double normalizer_of(double log_count, double eps) {
  return eps == 0 ? log_count : -std::expm1(-eps * log_count) / eps;
}
inline double log_count_of(double c, double eps) {
  return eps == 0 ? c : -std::log1p(-eps * c) / eps;
}

struct Guess {
  double bound = 0;  // c is at least this
  double c = 0;
  int64_t packed = -1;  // candidates that are packed already, if they are
};

// Sums of t^x, t = 1 + eps u, for the four whole x around 1/eps. Together they cost a fraction of
// one of p = t^(1/eps), and the logarithm of such a sum is a smooth and convex function of x:
// interpolated, it gives F and S within half a percent as a rule; a line through two of its points
// is a lower bound of F.
class WholePowers {
 public:
  static constexpr double kLeast = 1. / 64;  // below this eps, softmax tells c well enough

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

 private:
  static constexpr int kSteps = 8;  // 2 or 3 are the rule
  static constexpr float kEnough = 0.2f;  // one step more leaves a hundredth of it
  static constexpr float kAbove = 5e-4f;  // moves of p lead down to a sum of one, not up
  static constexpr float kSure = 1e-3f;  // more than rounding makes of nothing

  template <class T>
  FloatVector logs_of_sums(const T* row, int64_t n, T top, double c) const {
    using X = Two<Vec<T>>;
    const T eps = static_cast<T>(eps_);
    // Small enough not to count, large enough for all powers to be normal numbers.
    const X least = all<X>(first_ ? static_cast<T>(std::exp(-80. / (first_ + 3))) : T(0));
    const X shift = all<X>(top), base = all<X>(static_cast<T>(1 - eps_ * c));
    double total[4] = {};
    const auto add = [&](auto first) {
      for_each_block<T>(n, [&](int64_t begin, int64_t size) {
        X sums[4] = {all<X>(0), all<X>(0), all<X>(0), all<X>(0)};
        for_each_two(row + begin, size, [&](X s, int64_t, int64_t) ADASPARSE_INLINE_BODY {
          const X t = max((s - shift) * eps + base, least);
          X power = first(t);
          sums[0] = sums[0] + power;
          for (int i = 1; i < 4; ++i) {
            power = power * t;
            sums[i] = sums[i] + power;
          }
        });
        for (int i = 0; i < 4; ++i) total[i] += sum_two<T>(sums[i]);
      });
    };
    if (first_ == 0)
      add([&](X t) ADASPARSE_INLINE_BODY { return select(greater(t, least), all<X>(1), least); });
    else if (first_ == 1)
      add([](X t) ADASPARSE_INLINE_BODY { return t; });
    else if (first_ == 2)
      add([](X t) ADASPARSE_INLINE_BODY { return t * t; });
    else if (first_ == 3)
      add([](X t) ADASPARSE_INLINE_BODY { return t * t * t; });
    else
      add([&](X t) ADASPARSE_INLINE_BODY {
        X power = t;
        for (int bit = squarings_ - 1; bit >= 0; --bit) {
          power = power * power;
          if (first_ >> bit & 1) power = power * t;
        }
        return power;
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
  constexpr double enough = 0.03;
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

// p at c + move for p at c: t = 1 + eps u becomes t - eps move, so that p is multiplied by
// (1 - eps y)^(1/eps) = 1 - y + (1-eps)/2 y^2 - ... with y = move / t. The exponential and the
// logarithm are spared wherever the terms left out, at most 0.03 p y^4, do not matter, neither to p
// nor to sigma = p / t, which gradients go by. Scores outside the support stay outside, so move must
// not be negative beyond rounding.
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
// How far the sum may be above one for moved_weight to finish the work, and where it may stop:
// what is left is normalized away.
constexpr double kMovable = 1e-2;
constexpr double kMoved = 8e-7;
constexpr int kMoves = 6;  // 1 or 2 are the rule

// Moves a row of weights from c to c + delta and returns their new sum.
template <class T>
double move_row(const T* row, int64_t n, T max, double eps, double c, double delta, T* weights) {
  using X = Two<Vec<T>>;
  constexpr int width = Lanes<T>::count;
  const X shift = all<X>(max), at = all<X>(static_cast<T>(c));
  const X move = all<X>(static_cast<T>(delta));
  double total = 0;
  for_each_block<T>(n, [&](int64_t begin, int64_t size) {
    X mass = all<X>(0);
    T* out = weights + begin;
    for_each_two(row + begin, size, [&](X s, int64_t count, int64_t j) ADASPARSE_INLINE_BODY {
      const X t = ((s - shift) - at) * static_cast<T>(eps) + T(1);
      const X p{load_first(out + j, count, T(0)),
                count > width ? load_first(out + j + width, count - width, T(0)) : Vec<T>{}};
      const X moved = moved_weight(p, t, move, eps);
      mass = mass + moved;
      store_two(out + j, moved, count);
    });
    total += sum_two<T>(mass);
  });
  return total;
}

// Solves one row. `scratch` holds n + two vectors. For maps that are dear to evaluate, `weights` (if
// not null) ends up holding p and `*filled` is set. `known` is a lower bound of max + c, if there
// is one.
template <class T, class Map>
Normalizer solve_row(const Map& map, const T* row, int64_t n, T* scratch, T* weights, bool* filled,
                     double known = -std::numeric_limits<double>::infinity()) {
  *filled = false;
  const RowMaximum<T> top(row, n);
  Normalizer out{static_cast<double>(top.max), 0, 1};
  if (!out.is_regular()) return out;

  const double eps = map.eps();
  if constexpr (!Map::kIsSparse) {
    const Sums sums = sum_row(map, row, n, top.max, 0., weights);
    *filled = weights != nullptr;
    if (weights)
      out.scale = 1 / sums.mass;
    else
      out.c = std::log(sums.mass);
    return out;
  } else {
    const bool is_convex = eps > 0 && eps <= 1;
    Guess guess;
    if (is_convex) {
      if constexpr (Map::kIsCheap)
        guess.bound = guess.c = known > out.max ? known - out.max : bound_from_best(map, top);
      else
        guess = guess_row(row, n, eps, top, scratch);
    }
    const T* values = row;
    T shift = top.max;
    int64_t count = n;
    if (Map::kIsCheap) weights = nullptr;  // evaluating once more is as cheap as keeping them
    int64_t packed = -1;
    if (guess.packed >= 0)
      packed = pack_candidates(scratch, guess.packed, T(0), eps, guess.bound, scratch);
    else if (Map::kIsCheap)
      packed = pack_candidates(row, n, top.max, eps, guess.bound, scratch);
    else if (eps > 0)
      packed = pack_few_candidates(row, n, top.max, eps, guess.bound, scratch);
    if (packed >= 0) {
      values = scratch;
      count = packed;
      shift = 0;
    }
    double low = 0, high = normalizer_of(std::log(static_cast<double>(n)), eps);
    double c = guess.c > guess.bound && guess.c < high ? guess.c : guess.bound;
    double width = high;
    Sums sums;
    for (int step = 0; step < kMaxSteps; ++step) {
      sums = sum_row(map, values, count, shift, c, weights);
      const double excess = sums.mass - 1;
      if (std::fabs(excess) <= tolerance<T>()) break;
      (excess > 0 ? low : high) = c;
      double delta = map.step(sums.mass, sums.slope);
      if (is_convex && weights && sizeof(T) == 4 && excess > 0 && excess < kMovable) {
        // Move p itself: by Newton's step, then by what is left.
        for (int i = 0; i < kMoves && sums.mass - 1 > kMoved; ++i) {
          sums.mass = move_row(values, count, shift, eps, c, delta, weights);
          c += delta;
          delta = (sums.mass - 1) / sums.slope;
        }
        break;
      }
      double next = c + delta;
      // Up to alpha = 2 Newton's steps never fail but for leaving the bracket, when they come from
      // above the root; beyond, the bracket must halve at least.
      const bool is_slow = !is_convex && high - low > 0.5 * width;
      width = high - low;
      if (is_slow || !(next > low && next < high)) {
        next = 0.5 * (low + high);
        if (!(next > low && next < high)) break;  // neighbors: nothing lies between
      }
      if (static_cast<T>(map.at(next)) == static_cast<T>(map.at(c))) break;
      c = next;
    }
    if (weights && values == scratch)
      unpack_weights(row, n, top.max, eps, guess.bound, count, weights);
    out.c = c;
    out.scale = 1 / sums.mass;
    *filled = weights != nullptr;
    return out;
  }
}

// ---------------------------------------------------------------- one row per lane

// F and S at c of every lane's row; z[j] holds score j of every row less its maximum. p goes to
// `weights` unless that is null.
template <class T, class Map>
ADASPARSE_INLINE void sum_lanes_at(const Map& map, const T* z, int64_t n, Vec<T> c, T* weights,
                                   Vec<T>& mass, Vec<T>& slope) {
  using V = Vec<T>;
  using X = Two<V>;
  constexpr int width = Lanes<T>::count;
  const X at{map.at(c), map.at(c)};
  X masses = all<X>(0), slopes = all<X>(0), p, sigma;
  int64_t j = 0;
  for (; j + 2 <= n; j += 2) {
    map.eval(X{load(z + j * width), load(z + (j + 1) * width)}, at, p, sigma);
    masses = masses + p;
    slopes = slopes + sigma;
    if (weights) store_two(weights + j * width, p, 2 * width);
  }
  if (j < n) {
    V last, last_sigma;
    map.eval(load(z + j * width), at.a, last, last_sigma);
    masses.a += last;
    slopes.a += last_sigma;
    if (weights) store(weights + j * width, last);
  }
  mass = masses.a + masses.b;
  slope = slopes.a + slopes.b;
}

// Newton's method in every lane from lower bounds c until F is below 1 + enough. A lane that has
// got there keeps its c, so that a row's result does not depend on its neighbors. p at the final c
// goes to `weights` unless that is null. Returns F.
template <class T, class Map>
ADASPARSE_INLINE Vec<T> rise_lanes(const Map& map, const T* z, int64_t n, T enough, Vec<T>& c,
                                   T* weights) {
  using V = Vec<T>;
  V mass, slope;
  for (int step = 0; step < kMaxSteps; ++step) {
    sum_lanes_at(map, z, n, c, weights, mass, slope);
    const Mask<T> above = greater(mass, broadcast<T>(1 + enough));
    const V next = select(above, c + map.step(mass, slope), c);
    if (!any(greater(next, c))) break;
    c = next;
  }
  return mass;
}

// How far log N has moved at eps from `upper`, that of the cheap alpha below (1 or 1.5), towards
// `lower`, that of the one above (1.5 or 2), is 1 - base^power. Fitted to Gaussian scores of
// several spreads and lengths: a guess that Newton's method then corrects.
inline double guess_base(double eps) { return eps < 0.5 ? 1 - 2 * eps : 2 - 2 * eps; }
constexpr double kGuessPower = 1.4;  // for alpha > 1.5, where the shape varies little

// A guess of c, a row per lane; `best` are a few scores of every row.
template <class T>
Vec<T> guess_lanes(const T* z, int64_t n, const T* best, int64_t best_count, double eps) {
  using V = Vec<T>;
  constexpr int width = Lanes<T>::count;
  constexpr T enough = T(0.03);
  T* const nowhere = nullptr;
  const V one = broadcast<T>(1);
  const auto log_count = [&](V c, T e) {
    return log_positive(max(one - e * c, broadcast<T>(T(1e-6)))) * (-1 / e);
  };
  V lower{}, upper{}, c{};
  if (eps < 0.5) {
    V total{};
    for (int64_t j = 0; j < n; ++j) total += rough_exp(load(z + j * width));
    upper = log_positive(max(total, one));
  } else {
    rise_lanes(SparsemaxMap<T>(), best, best_count, enough, c, nowhere);
    rise_lanes(SparsemaxMap<T>(), z, n, enough, c, nowhere);
    lower = log_count(c, T(1));
  }
  rise_lanes(Entmax15Map<T>(), best, best_count, enough, c, nowhere);
  rise_lanes(Entmax15Map<T>(), z, n, enough, c, nowhere);
  (eps < 0.5 ? lower : upper) = log_count(c, T(0.5));
  const T e = static_cast<T>(eps), log_base = static_cast<T>(std::log(guess_base(eps)));
  V power = broadcast<T>(static_cast<T>(kGuessPower));
  if (eps < 0.5) {
    power = T(1.86) + T(0.39) * (upper - lower) - T(0.78) * lower;
    power = min(max(power, broadcast<T>(T(0.8))), broadcast<T>(3));
  }
  const V w = (lower + (upper - lower) * exp(power * log_base)) * -e;  // c = -expm1(w) / eps
  const V small = w * (1 + w * (T(0.5) + w * T(1.0 / 6)));
  return -select(greater(w, broadcast<T>(T(-0.01))), small, exp(w) - 1) / e;
}

// Moves every lane's weights from c to c + step and returns their new sums.
template <class T>
ADASPARSE_INLINE Vec<T> move_lanes(const T* z, int64_t n, double eps, Vec<T> c, Vec<T> step,
                                   T* weights) {
  using V = Vec<T>;
  using X = Two<V>;
  constexpr int width = Lanes<T>::count;
  const T e = static_cast<T>(eps);
  const X at{c, c}, move{step, step};
  X mass = all<X>(0);
  int64_t j = 0;
  for (; j + 2 <= n; j += 2) {
    const X t = (X{load(z + j * width), load(z + (j + 1) * width)} - at) * e + T(1);
    const X p{load(weights + j * width), load(weights + (j + 1) * width)};
    const X moved = moved_weight(p, t, move, eps);
    mass = mass + moved;
    store_two(weights + j * width, moved, 2 * width);
  }
  if (j < n) {
    const V t = (load(z + j * width) - c) * e + 1;
    const V moved = moved_weight(load(weights + j * width), t, step, eps);
    mass.a += moved;
    store(weights + j * width, moved);
  }
  return mass.a + mass.b;
}

// Solves one row per lane, for alpha from 1 to 2; lanes without a row hold -inf. `weights` gets p
// at c, which `scale` normalizes.
template <class T, class Map>
void solve_lanes(const Map& map, const T* z, int64_t n, const T* best, int64_t best_count,
                 T* weights, Vec<T>& c, Vec<T>& scale) {
  using V = Vec<T>;
  V mass, slope;
  c = V{};
  if constexpr (!Map::kIsSparse) {
    sum_lanes_at(map, z, n, c, weights, mass, slope);
  } else if constexpr (Map::kIsCheap) {
    rise_lanes(map, best, best_count, T(0.03), c, static_cast<T*>(nullptr));
    mass = rise_lanes(map, z, n, static_cast<T>(tolerance<T>()), c, weights);
  } else {
    // From just above one, moves of p finish the work: Newton's step, then what is left.
    constexpr bool is_float = sizeof(T) == 4;
    const V rest = broadcast<T>(static_cast<T>(is_float ? kMoved : tolerance<T>()));
    const V close = is_float ? broadcast<T>(static_cast<T>(kMovable)) : rest;
    c = guess_lanes(z, n, best, best_count, map.eps());
    V step{};
    for (int pass = 0; pass < kMaxSteps; ++pass) {
      sum_lanes_at(map, z, n, c, weights, mass, slope);
      const V excess = mass - 1;
      step = select(greater(mass, V{}), map.step(mass, slope), V{});
      const V bound = select(greater(excess, V{}), close, rest);
      const V next = select(greater(max(excess, -excess), bound), max(c + step, V{}), c);
      if (!any(greater(max(next - c, c - next), V{}))) break;
      c = next;
    }
    const V enough = 1 + rest;
    for (int i = 0; i < kMoves && any(greater(mass, enough)); ++i) {
      const Mask<T> moves = greater(mass, enough);  // the others stay as they would alone
      step = select(moves, step, V{});
      mass = select(moves, move_lanes(z, n, map.eps(), c, step, weights), mass);
      c += step;
      step = (mass - 1) / max(slope, broadcast<T>(1));
    }
  }
  scale = select(greater(mass, V{}), 1 / mass, V{});
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
