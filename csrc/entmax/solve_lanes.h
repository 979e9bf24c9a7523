// The normalizers of several rows at once, one row per lane.
#pragma once

#include "entmax/guess.h"
#include "entmax/move.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// F and S at c of every lane's row; z[j] holds score j of every row minus its maximum. p goes to
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
// goes to `weights` unless that is null. Returns F, and S in `slope`.
template <class T, class Map>
ADASPARSE_INLINE Vec<T> rise_lanes(const Map& map, const T* z, int64_t n, T enough, Vec<T>& c,
                                   T* weights, Vec<T>& slope) {
  using V = Vec<T>;
  V mass;
  for (int step = 0; step < kMaxSteps; ++step) {
    sum_lanes_at(map, z, n, c, weights, mass, slope);
    const Mask<T> above = greater(mass, broadcast<T>(1 + enough));
    const V next = select(above, c + map.step(mass, slope), c);
    if (!any(greater(next, c))) break;
    c = next;
  }
  return mass;
}

// (1 - N^-eps) / eps, the normalizer of N equal scores, from log N.
template <class T>
Vec<T> normalizer_of_lanes(Vec<T> log_count, double eps) {
  const T e = static_cast<T>(eps);
  const Vec<T> w = -e * log_count;
  const Vec<T> small = w * (1 + w * (T(0.5) + w * T(1.0 / 6)));
  return -select(greater(w, broadcast<T>(T(-0.01))), small, exp(w) - 1) / e;
}

// A lower bound of c, a row per lane, from a few scores of every row: c of a larger, cheap alpha.
// And the logarithm of the number of equal scores that have this c at that alpha.
template <class T>
struct LaneBounds {
  Vec<T> c{}, log_count;

  LaneBounds(const T* best, int64_t count, double eps) {
    const auto rise = [&](const auto& map) {
      Vec<T> slope;
      rise_lanes(map, best, count, T(kGuessSlack), c, static_cast<T*>(nullptr), slope);
      const T cheap = static_cast<T>(map.eps());
      log_count = log_positive(max(1 - cheap * c, broadcast<T>(T(1e-6)))) * (-1 / cheap);
    };
    if (eps < 0.5)
      rise(Entmax15Map<T>());
    else
      rise(SparsemaxMap<T>());
  }
};

// A guess of c, a row per lane, for maps that are expensive to evaluate: as guess_row, sums of
// whole powers rise from a lower bound, that of a few scores of every row.
template <class T>
Vec<T> guess_lanes(const T* z, int64_t n, const LaneBounds<T>& bounds, double eps) {
  return WholePowers(eps).rise_lanes(z, n, normalizer_of_lanes<T>(bounds.log_count, eps));
}
template <class T>
Vec<T> guess_lanes(const T* z, int64_t n, const T* best, int64_t best_count, double eps) {
  if (eps >= WholePowers::kLeast)
    return guess_lanes(z, n, LaneBounds<T>(best, best_count, eps), eps);
  Vec<T> total{};
  for (int64_t j = 0; j < n; ++j) total += rough_exp(load(z + j * Lanes<T>::count));
  return normalizer_of_lanes<T>(log_positive(max(total, broadcast<T>(1))), eps);
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

// Solved rows, one per lane: p = scale * (p at c, less `rest`). The rest is what c has no digits
// for, where many small weights would add it up; else 0.
template <class T>
struct LaneSolution {
  Vec<T> c{}, rest{}, scale{};
};

// Solves one row per lane from a guess of c, for maps that are expensive to evaluate. `weights`
// gets p at c.
template <class T, class Map>
LaneSolution<T> solve_lanes_from(const Map& map, const T* z, int64_t n, Vec<T> c, T* weights) {
  using V = Vec<T>;
  // From just above one, moves of p finish the work: Newton's step, then what is left.
  constexpr bool is_float = sizeof(T) == 4;
  const V rest = broadcast<T>(static_cast<T>(is_float ? kMoved : tolerance<T>()));
  const V close = is_float ? broadcast<T>(static_cast<T>(kMovable)) : rest;
  V mass, slope, step{};
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
  return {c, V{}, select(greater(mass, V{}), 1 / mass, V{})};
}

// Solves one row per lane, for alpha from 1 to 2; lanes without a row hold -inf. `weights` gets p
// at c.
template <class T, class Map>
LaneSolution<T> solve_lanes(const Map& map, const T* z, int64_t n, const T* best,
                            int64_t best_count, T* weights) {
  using V = Vec<T>;
  LaneSolution<T> found;
  V mass, slope;
  V& c = found.c;
  if constexpr (!Map::kIsSparse) {
    sum_lanes_at(map, z, n, c, weights, mass, slope);
  } else if constexpr (Map::kIsCheap) {
    rise_lanes(map, best, best_count, T(kGuessSlack), c, static_cast<T*>(nullptr), slope);
    mass = rise_lanes(map, z, n, static_cast<T>(tolerance<T>()), c, weights, slope);
    if constexpr (std::is_same_v<Map, SparsemaxMap<T>>) {
      const Mask<T> has_weight = greater(slope, V{});
      found.rest = select(has_weight, (mass - 1) / slope, V{});
      mass = select(has_weight, broadcast<T>(1), mass);
    }
  } else {
    return solve_lanes_from(map, z, n, guess_lanes(z, n, best, best_count, map.eps()), weights);
  }
  found.scale = select(greater(mass, V{}), 1 / mass, V{});
  return found;
}

// `used` rows of n scores, the first at row(0), as n vectors with a row per lane; other lanes
// repeat the last row. And the maximum of every `width` scores of a row, one vector each: real
// scores of the row, mostly its largest.
template <class T, class Row>
void rows_to_lanes(const Row& row, int64_t n, int used, T* lanes, T* best) {
  using V = Vec<T>;
  constexpr int width = Lanes<T>::count;
  const T* rows[width];
  for (int i = 0; i < width; ++i) rows[i] = row(smaller(i, used - 1));
  V tile[width];
  for (int64_t j = 0; j < n; j += width, best += width) {
    V top = broadcast<T>(-std::numeric_limits<T>::infinity());
    if (j + width <= n) {
#pragma GCC unroll 16
      for (int i = 0; i < width; ++i) tile[i] = load(rows[i] + j);
      transpose<T>(tile);
#pragma GCC unroll 16
      for (int i = 0; i < width; ++i) {
        top = max(top, tile[i]);
        store(lanes + (j + i) * width, tile[i]);
      }
    } else {
      for (int64_t k = j; k < n; ++k) {
        for (int i = 0; i < width; ++i) lanes[k * width + i] = rows[i][k];
        top = max(top, load(lanes + k * width));
      }
    }
    store(best, top);
  }
}

// The way back: the weights of a solution.
template <class T, bool HasRest, class Row>
void lanes_to_rows(const T* lanes, int64_t n, int used, const LaneSolution<T>& solved,
                   const Row& row) {
  constexpr int width = Lanes<T>::count;
  const Vec<T> factor = solved.scale, rest = solved.rest;
  const auto weight = [&](int64_t j) ADASPARSE_INLINE_BODY {
    const Vec<T> p = load(lanes + j * width);
    if constexpr (HasRest)
      return select(greater(p, Vec<T>{}), max(p - rest, Vec<T>{}), Vec<T>{}) * factor;
    return p * factor;
  };
  Vec<T> tile[width];
  int64_t j = 0;
  for (; j + width <= n; j += width) {
#pragma GCC unroll 16
    for (int i = 0; i < width; ++i) tile[i] = weight(j + i);
    transpose<T>(tile);
    for (int i = 0; i < used; ++i) store(row(i) + j, tile[i]);
  }
  for (; j < n; ++j) {
    const Vec<T> p = weight(j);
    for (int i = 0; i < used; ++i) row(i)[j] = p[i];
  }
}

// Solved rows, one per lane: see Normalizer.
template <class T>
struct LaneNormalizers {
  Vec<T> max;
  LaneSolution<T> solved;
  Normalizer row(int lane) const {
    return {static_cast<double>(max[lane]),
            static_cast<double>(solved.c[lane]) + static_cast<double>(solved.rest[lane]),
            static_cast<double>(solved.scale[lane])};
  }
};

// Rows in lanes minus their maxima.
template <class T>
struct CenteredLanes {
  Vec<T> top;
  Mask<T> is_bad{};  // rows with NaN or +inf

  // `lanes` gets n vectors, and `best` one for every `width` of them: see rows_to_lanes.
  template <class Row>
  CenteredLanes(const Row& row, int64_t n, int used, T* lanes, T* best) {
    using V = Vec<T>;
    constexpr int width = Lanes<T>::count;
    const int64_t count = (n + width - 1) / width;
    rows_to_lanes(row, n, used, lanes, best);
    const V lowest = broadcast<T>(-std::numeric_limits<T>::infinity());
    top = lowest;
    for (int64_t j = 0; j < count; ++j) top = max(top, load(best + j * width));
    const V shift = select(greater(top, lowest), top, V{});
    for (int64_t j = 0; j < count; ++j) store(best + j * width, load(best + j * width) - shift);
    // NaN and +inf turn up as NaN here, which nothing else can.
    for (int64_t j = 0; j < n; ++j) {
      const V z = load(lanes + j * width) - shift;
      is_bad |= is_nan(z);
      store(lanes + j * width, z);
    }
  }
};

// One row per lane; `lanes` holds 3 n vectors. `used` of the lanes have a row: row(i), whose
// weights go to weights(i), which may be the same.
template <class T, class Map, class Row, class Weights>
LaneNormalizers<T> forward_in_lanes(const Map& map, const Row& row, int64_t n, int used, T* lanes,
                                    const Weights& weights) {
  constexpr int width = Lanes<T>::count;
  T *solved = lanes + n * width, *best = solved + n * width;
  const CenteredLanes<T> rows(row, n, used, lanes, best);
  LaneSolution<T> found = solve_lanes(map, lanes, n, best, (n + width - 1) / width, solved);
  const Vec<T> not_a_number = broadcast<T>(std::numeric_limits<T>::quiet_NaN());
  found.scale = select(rows.is_bad, not_a_number, found.scale);
  constexpr bool has_rest = std::is_same_v<Map, SparsemaxMap<T>>;
  lanes_to_rows<T, has_rest>(solved, n, used, found, weights);
  return {select(rows.is_bad, not_a_number, rows.top), found};
}

// Numbers of scratch memory of candidates_in_lanes for rows of n, enough for forward_in_lanes, too.
template <class T>
int64_t candidate_scratch(int64_t n) {
  constexpr int64_t width = Lanes<T>::count;
  return width * (3 * round_up(n, width) + 3 * width);
}

// As forward_in_lanes, for maps that are expensive to evaluate and leave most scores out: only
// candidates are solved, packed to the front of their rows. Rows must not be where weights go.
// `work` holds candidate_scratch(n).
template <class T, class Map, class Row, class Weights>
void candidates_in_lanes(const Map& map, const Row& row, int64_t n, int used, T* work,
                         const Weights& weights) {
  using V = Vec<T>;
  constexpr int64_t width = Lanes<T>::count;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const double eps = map.eps();
  const int64_t stride = round_up(n, width) + 2 * width;
  T *packed = work, *best = packed + width * stride, *lanes = best + width * width;
  T* solved = lanes + width * round_up(n, width);
  // The maxima of every width-th score: real scores of a row, mostly its largest.
  V tile[width];
  unsigned is_bad = 0;  // rows with NaN or +inf
  for (int r = 0; r < width; ++r) {
    V highest = broadcast<T>(-infinity);
    Mask<T> nan{};
    for_each_vector(row(r), r < used ? n : 0, [&](V s, int, int64_t) ADASPARSE_INLINE_BODY {
      nan |= is_nan(s);
      highest = max(highest, s);
    });
    is_bad |= static_cast<unsigned>(any(nan)) << r;
    tile[r] = highest;
  }
  transpose<T>(tile);
  V top = tile[0];
  for (int j = 1; j < width; ++j) top = max(top, tile[j]);
  is_bad |= bits(greater(top, broadcast<T>(std::numeric_limits<T>::max())));
  top = select(greater(top, broadcast<T>(-infinity)), top, V{});
  for (int j = 0; j < width; ++j) store(best + j * width, tile[j] - top);
  const LaneBounds<T> bounds(best, width, eps);

  int64_t counts[width], most = 0;
  double bound[width];
  for (int r = 0; r < used; ++r) {
    bound[r] = static_cast<double>(bounds.c[r]) * (1 - 1e-5);  // not over the root by rounding
    counts[r] = pack_candidates(row(r), n, top[r], eps, bound[r], packed + r * stride);
    most = larger(most, counts[r]);
  }
  const int64_t padded = round_up(most, width);
  for (int r = 0; r < used; ++r)
    for (int64_t j = counts[r]; j < padded; j += width)
      store(packed + r * stride + j, broadcast<T>(-infinity));
  const auto packed_row = [&](int64_t r) { return packed + r * stride; };
  rows_to_lanes(packed_row, padded, used, lanes, solved);  // maxima, which are known already
  const LaneSolution<T> found =
      solve_lanes_from(map, lanes, most, guess_lanes(lanes, most, bounds, eps), solved);
  lanes_to_rows<T, false>(solved, padded, used, found, packed_row);
  for (int r = 0; r < used; ++r)
    if (is_bad >> r & 1)
      fill(weights(r), n, std::numeric_limits<T>::quiet_NaN());
    else
      unpack_weights(row(r), n, top[r], eps, bound[r], packed + r * stride, counts[r], weights(r));
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
