// The normalizer of one row, and its weights.
#pragma once

#include <algorithm>
#include <functional>
#include <type_traits>

#include "entmax/guess.h"
#include "entmax/move.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// Moves a row of weights from c to c + delta and returns their new sum.
template <class T, class Map>
double move_row(const Map& map, const T* row, int64_t n, T max, double c, double delta,
                T* weights) {
  using X = Two<Vec<T>>;
  constexpr int width = Lanes<T>::count;
  const Origin<T> origin = origin_of<T>(map, static_cast<double>(max), c);
  const X shift = all<X>(origin.shift), at = all<X>(origin.at);
  const X move = all<X>(static_cast<T>(delta));
  double total = 0;
  for_each_chunk<T>(n, [&](int64_t begin, int64_t size) {
    X mass = all<X>(0);
    T* out = weights + begin;
    for_each_two(row + begin, size, [&](X s, int64_t count, int64_t j) ADASPARSE_INLINE_BODY {
      const X t = map.base(s - shift, at);
      const X p{load_first(out + j, count, T(0)),
                count > width ? load_first(out + j + width, count - width, T(0)) : Vec<T>{}};
      const X moved = moved_weight(p, t, move, map.eps());
      mass = mass + moved;
      store_two(out + j, moved, count);
    });
    total += sum_two<T>(mass);
  });
  return total;
}

// An excess of the sum over one that Newton's step takes off but for a square of it.
constexpr double kPredictable = 1e-4;

// Whether a step from c to `next` changes anything.
template <class T, class Map>
bool moves_origin(const Map& map, T shift, double c, double next) {
  const double max = static_cast<double>(shift);
  const Origin<T> from = origin_of<T>(map, max, c), to = origin_of<T>(map, max, next);
  return from.shift != to.shift || from.at != to.at;
}

struct SolvedRow {
  Normalizer normalizer;
  bool has_weights;  // whether p at c is where the caller asked for it
};

// Solves one row. `scratch` holds n + two vectors. For maps that are expensive to evaluate, p at c
// goes to `weights` unless that is null. `known` is a lower bound of max + c, if there is one.
template <class T, class Map>
SolvedRow solve_row(const Map& map, const T* row, int64_t n, T* scratch, T* weights,
                    double known = -std::numeric_limits<double>::infinity()) {
  const RowMaximum<T> top(row, n);
  Normalizer out{static_cast<double>(top.max), 0, 1};
  if (!out.is_regular()) return {out, false};

  const double eps = map.eps();
  if constexpr (!Map::kIsSparse) {
    const Sums sums = sum_row(map, row, n, top.max, 0., weights);
    if (weights)
      out.scale = 1 / sums.mass;
    else
      out.c = std::log(sums.mass);
    return {out, weights != nullptr};
  } else {
    const bool is_convex = eps > 0 && eps <= 1, is_cheap = map.is_cheap();
    Guess guess;
    if (is_convex) {
      if (is_cheap)
        guess.bound = guess.c = known > out.max ? known - out.max : bound_from_best(map, top);
      else
        guess = guess_row(row, n, eps, top, scratch);
    }
    const T* values = row;
    T shift = top.max;
    int64_t count = n;
    if (is_cheap) weights = nullptr;  // evaluating once more costs as little as storing them
    int64_t packed = -1;
    if (guess.packed >= 0)
      packed = pack_candidates(scratch, guess.packed, T(0), eps, guess.bound, scratch);
    else if (Map::kIsCheap)
      packed = pack_candidates(row, n, top.max, eps, guess.bound, scratch);
    else if (eps > 0)
      packed = pack_few_candidates(row, n, top.max, eps, guess.bound, scratch);
    if (is_cheap && packed >= 0) packed = pad_scores(scratch, packed);
    if (packed >= 0) {
      values = scratch;
      count = packed;
      shift = 0;
    }
    double low = 0, high = 1 / eps;
    if (!Map::kIsCheap) high = normalizer_of(std::log(static_cast<double>(n)), eps);
    double c = guess.c > guess.bound && guess.c < high ? guess.c : guess.bound;
    double width = high;
    int last_digits = 0;  // steps that moved nothing but the last digits of c
    Sums sums;
    for (int step = 0; step < kMaxSteps; ++step) {
      sums = sum_row(map, values, count, shift, c, weights);
      const double excess = sums.mass - 1;
      if (std::fabs(excess) <= tolerance<T>()) break;
      (excess > 0 ? low : high) = c;
      double delta = map.step(sums.mass, sums.slope);
      if constexpr (!Map::kIsCheap) {
        if (is_convex && weights && sizeof(T) == 4 && excess > 0 && excess < kMovable) {
          // Move p itself: by Newton's step, then by what is left.
          for (int i = 0; i < kMoves && sums.mass - 1 > kMoved; ++i) {
            sums.mass = move_row(map, values, count, shift, c, delta, weights);
            c += delta;
            delta = (sums.mass - 1) / sums.slope;
          }
          break;
        }
      }
      double next = c + delta;
      // From alpha = 1 to 2 Newton's steps never fail but for leaving the bracket, when they come
      // from above the root; elsewhere the bracket must halve at least.
      const bool is_slow = !is_convex && high - low > 0.5 * width;
      width = high - low;
      if (is_slow || !(next > low && next < high)) {
        next = 0.5 * (low + high);
        if (!(next > low && next < high)) break;  // neighbors: nothing lies between
      }
      if (static_cast<T>(map.at(next)) == static_cast<T>(map.at(c))) {
        // Only the last digits of c are left, and sums of T may never be closer to 1.
        if (!moves_origin<T>(map, shift, c, next)) break;
        if (!weights && std::fabs(excess) < kPredictable) {
          c = next;
          sums.mass = 1;
          break;
        }
        if (++last_digits > 2) break;
      }
      c = next;
    }
    if (weights && values == scratch)
      unpack_weights(row, n, top.max, eps, guess.bound, weights, count, weights);
    out.c = c;
    out.scale = 1 / sums.mass;
    return {out, weights != nullptr};
  }
}

// The smallest of the scores, in falling order, that is in the support: the scores above it have
// less than all the mass when the edge lies on it. Returns its place and sets `mass` to theirs.
template <class T>
int64_t last_in_support(const T* scores, int64_t count, double eps, double& mass) {
  int64_t inside = 0, outside = count;
  mass = 0;
  while (outside - inside > 1) {
    const int64_t middle = inside + (outside - inside) / 2;
    double above = 0;
    for (int64_t j = 0; j < middle && scores[j] > scores[middle]; ++j)
      above += std::pow(eps * static_cast<double>(scores[j] - scores[middle]), 1 / eps);
    if (above < 1) mass = above;
    (above < 1 ? inside : outside) = middle;
  }
  return inside;
}

// Solves one row of alpha > 2, see SteepMap: `max` of the result is the smallest score in the
// support and `c` the logarithm of its weight w. The sum of weights is convex in w, so that
// Newton's steps from above, where the scores above are taken at the edge, never pass the root.
template <class T>
SolvedRow solve_row(const SteepMap<T>& map, const T* row, int64_t n, T* scratch, T*,
                    double = -std::numeric_limits<double>::infinity()) {
  const RowMaximum<T> top(row, n);
  Normalizer out{static_cast<double>(top.max), 0, 1};
  if (!out.is_regular()) return {out, false};
  const double eps = map.eps();
  int64_t count = 0;
  for (int64_t j = 0; j < n; ++j)
    if (eps * static_cast<double>(top.max - row[j]) < 1) scratch[count++] = row[j];
  std::sort(scratch, scratch + count, std::greater<T>());
  double mass;
  const int64_t last = last_in_support(scratch, count, eps, mass);
  const T smallest = scratch[last];
  count = last + 1;
  const auto ties = static_cast<double>(
      count - (std::lower_bound(scratch, scratch + count, smallest, std::greater<T>()) - scratch));
  double w = (1 - mass) / ties;
  Sums sums;
  for (int step = 0; step < kMaxSteps; ++step) {
    sums = sum_row(map, scratch, count, smallest, std::log(w), static_cast<T*>(nullptr));
    const double next = w - (sums.mass - 1) / sums.slope;
    if (std::fabs(sums.mass - 1) <= tolerance<T>() || !(next > 0 && next < w)) break;
    w = next;
  }
  out.max = static_cast<double>(smallest);
  out.c = std::log(w);
  out.scale = 1 / sums.mass;
  return {out, false};
}

// Writes p of a solved row to `weights`, which may be `row`, from `found`, where solve_row has put
// p at c if it has; and sigma to `slopes` unless that is null or p was found.
template <class T, class Map>
void write_weights(const Map& map, const T* row, int64_t n, const SolvedRow& row_solved,
                   const T* found, T* weights, T* slopes = nullptr) {
  using V = Vec<T>;
  const Normalizer& solved = row_solved.normalizer;
  if (!solved.is_regular()) {
    const T value = std::isnan(solved.max) ? std::numeric_limits<T>::quiet_NaN() : T(0);
    fill(weights, n, value);
    if (slopes) fill(slopes, n, T(0));
    return;
  }
  const T scale = static_cast<T>(solved.scale);
  if (row_solved.has_weights) {
    if (scale != 1 || found != weights)
      for_each_vector(found, n, [&](V p, int count, int64_t j) ADASPARSE_INLINE_BODY {
        store_first(weights + j, p * scale, count);
      });
    return;
  }
  using X = Two<V>;
  const Origin<T> origin = origin_of<T>(map, solved.max, solved.c);
  const X shift = all<X>(origin.shift), at = all<X>(origin.at), edge = all<X>(origin.edge);
  for_each_two(row, n, [&](X s, int64_t count, int64_t j) ADASPARSE_INLINE_BODY {
    const X z = s - shift;
    X p = all<X>(0), sigma = p;
    if (map.is_cheap() || map.eps() < 0 || any(greater(z, edge))) map.eval(z, at, p, sigma);
    store_two(weights + j, p * scale, count);
    if (slopes) store_two(slopes + j, sigma * scale, count);
  });
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
