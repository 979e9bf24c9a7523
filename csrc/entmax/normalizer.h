// The normalizer of a row of scores, sums at a normalizer, and cheap lower bounds of it.
//
// c is what makes the weights of a row sum to one: sum over j of p(s_j - max - c) = 1. See
// csrc/README.md for its relation to the tau of the papers.
#pragma once

#include "entmax/maps.h"
#include "entmax/walk.h"
#include "tuning.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// Bounds the solvers: Newton's method takes 2 to 8 steps, only the bisection for alpha > 2 more.
constexpr int kMaxSteps = 200;

// A sum of weights this close to one is solved: what is left is normalized away.
template <class T>
constexpr double tolerance() {
  return sizeof(T) == 4 ? 3e-7 : 4e-15;
}

// A solved row: p_j = scale * p(s_j - max - c).
struct Normalizer {
  double max;  // -inf: every score is masked; NaN: the row holds NaN or +inf
  double c;
  double scale;  // 1 / sum p at c, within rounding of 1
  bool is_regular() const { return std::isfinite(max); }
};

// Where scores of a row are counted from, what `eval` needs of its normalizer then, and the edge of
// the support.
template <class T>
struct Origin {
  T shift, at, edge;
};
template <class T, class Map>
Origin<T> origin_of(const Map& map, double max, double c) {
  const T shift = static_cast<T>(max + map.origin(c));
  // That sum is rounded, to the maximum itself if it is huge; this difference is not.
  const double origin = static_cast<double>(shift) - max;
  return {shift, static_cast<T>(map.at(c, origin)), static_cast<T>(map.edge(c) - origin)};
}

struct Sums {
  double mass = 0;   // F = sum p
  double slope = 0;  // S = sum sigma
};
// F and S at c over scores `row` minus `shift`; p goes to `weights` unless that is null.
template <class T, class Map>
Sums sum_row(const Map& map, const T* row, int64_t n, T shift, double c, T* weights) {
  using X = Two<Vec<T>>;
  const Origin<T> origin = origin_of<T>(map, static_cast<double>(shift), c);
  const X offset = all<X>(origin.shift), at = all<X>(origin.at);
  Sums sums;
  for_each_chunk<T>(n, [&](int64_t begin, int64_t size) {
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

// Newton's steps of a lower bound that need not be close.
constexpr int kBoundSteps = 3;

// A lower bound for c from a few scores of the row alone: fewer terms, smaller sum, smaller root.
template <class T, class Map>
double bound_from_best(const Map& map, const RowMaximum<T>& row) {
  using V = Vec<T>;
  const V shift = broadcast<T>(row.max);
  double c = 0;
  for (int step = 0; step < kBoundSteps; ++step) {
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

// Scores minus the maximum that are not above this are not in the support when the normalizer is at
// least c. Rounded down a little: an extra candidate costs nothing, a lost one would be wrong.
template <class T>
T candidate_cut(double eps, double c) {
  const double edge = c - 1 / eps;
  return static_cast<T>(edge - 1e-6 * std::fabs(edge));
}
// Packs the scores above the cut, minus the maximum.
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

// Fills packed scores up to whole pairs of vectors with some that have no weight, so that sums need
// no partial vector; returns how many there are then.
template <class T>
int64_t pad_scores(T* scores, int64_t count) {
  constexpr int64_t pair = 2 * Lanes<T>::count;
  const int64_t padded = (count + pair - 1) / pair * pair;
  for (; count < padded; ++count) scores[count] = -std::numeric_limits<T>::infinity();
  return padded;
}

// pack_candidates, unless a sample of the first scores shows that hardly any would be left out:
// then -1.
template <class T>
int64_t pack_few_candidates(const T* row, int64_t n, T max, double eps, double c, T* to) {
  const int64_t sample = smaller(n, kSampledVectors * Lanes<T>::count);
  if (pack_candidates(row, sample, max, eps, c, to) > sample * 3 / 4) return -1;
  return pack_candidates(row, n, max, eps, c, to);
}

// Puts the weights of packed candidates, `count` from `packed` on, where their scores are; `packed`
// may be `weights`.
template <class T>
void unpack_weights(const T* row, int64_t n, T max, double eps, double c, const T* packed,
                    int64_t count, T* weights) {
  using V = Vec<T>;
  constexpr int width = Lanes<T>::count;
  const V shift = broadcast<T>(max), cut = broadcast<T>(candidate_cut<T>(eps, c));
  // From the end on, so that nothing is overwritten before it is read.
  for (int64_t j = (n - 1) / width * width; j >= 0; j -= width) {
    const Mask<T> chosen =
        greater(load_first(row + j, n - j, -std::numeric_limits<T>::infinity()) - shift, cut);
    count -= __builtin_popcount(bits(chosen));
    store_first(weights + j, expand_load<T>(packed + count, chosen), n - j);
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

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
