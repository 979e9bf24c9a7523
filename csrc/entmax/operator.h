// entmax over the last dimension, forward and backward.
#pragma once

#include <type_traits>

#include "parallel.h"
#include "rows.h"

namespace adasparse {
namespace ADASPARSE_ISA {

constexpr int64_t kShortRow = 64;   // up to here one row per lane beats one row at a time
constexpr int64_t kRowMultiple = 16;  // pieces hold whole groups of lanes, whatever their width

inline int64_t rows_per_piece(int64_t n) {
  const int64_t rows = 32768 / (n > 0 ? n : 1);
  return larger(kRowMultiple, rows / kRowMultiple * kRowMultiple);
}

// Calls body(first, last, alpha) for runs of rows that share their alpha.
template <class Body>
void for_each_alpha(const double* alpha, int64_t stride, int64_t begin, int64_t end,
                    const Body& body) {
  while (begin < end) {
    const double value = alpha[begin * stride];
    int64_t last = stride ? begin + 1 : end;
    while (last < end && alpha[last * stride] == value) ++last;
    body(begin, last, value);
    begin = last;
  }
}

// Shares the rows of a kernel's arguments out among threads and calls
// body(IO{}, T{}, first, last, alpha) for runs of rows with one alpha, the element type and the
// type to compute in.
template <class Arguments, class Body>
void for_each_run(const Arguments& a, const Body& body) {
  parallel_for(a.rows, rows_per_piece(a.n), a.threads, [&](int64_t begin, int64_t end) {
    for_each_alpha(a.alpha, a.alpha_stride, begin, end,
                   [&](int64_t first, int64_t last, double alpha) {
                     with_types(a.type, needs_double(alpha), [&](auto io, auto compute) {
                       body(io, compute, first, last, alpha);
                     });
                   });
  });
}

// ---------------------------------------------------------------- forward

// Writes p of a solved row, and sigma to `slopes` unless that is null or p is there already.
template <class T, class Map>
void write_weights(const Map& map, const T* row, int64_t n, const Normalizer& solved, bool filled,
                   T* weights, T* slopes = nullptr) {
  using V = Vec<T>;
  if (!solved.is_regular()) {
    const T value = std::isnan(solved.max) ? std::numeric_limits<T>::quiet_NaN() : T(0);
    fill(weights, n, value);
    if (slopes) fill(slopes, n, T(0));
    return;
  }
  const T scale = static_cast<T>(solved.scale);
  if (filled) {
    if (scale != 1)
      for_each_vector(weights, n, [&](V p, int count, int64_t j) ADASPARSE_INLINE_BODY {
        store_first(weights + j, p * scale, count);
      });
    return;
  }
  using X = Two<V>;
  const X shift = all<X>(static_cast<T>(solved.max));
  const X at = all<X>(static_cast<T>(map.at(solved.c)));
  const X edge = all<X>(static_cast<T>(solved.c - 1 / map.eps()));
  for_each_two(row, n, [&](X s, int64_t count, int64_t j) ADASPARSE_INLINE_BODY {
    const X z = s - shift;
    X p = all<X>(0), sigma = p;
    if (Map::kIsCheap || map.eps() < 0 || any(greater(z, edge))) map.eval(z, at, p, sigma);
    store_two(weights + j, p * scale, count);
    if (slopes) store_two(slopes + j, sigma * scale, count);
  });
}

// `used` rows of n scores as n vectors with a row per lane, other lanes -inf; and the maximum of
// every `width` scores of a row, one vector each: real scores of the row, mostly its largest.
template <class T>
void rows_to_lanes(const T* rows, int64_t stride, int64_t n, int used, T* lanes, T* best) {
  using V = Vec<T>;
  constexpr int width = Lanes<T>::count;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  V tile[width];
  for (int64_t j = 0; j < n; j += width, best += width) {
    V top = broadcast<T>(-infinity);
    if (used == width && j + width <= n) {
#pragma GCC unroll 16
      for (int i = 0; i < width; ++i) tile[i] = load(rows + i * stride + j);
      transpose<T>(tile);
#pragma GCC unroll 16
      for (int i = 0; i < width; ++i) {
        top = max(top, tile[i]);
        store(lanes + (j + i) * width, tile[i]);
      }
    } else {
      for (int64_t k = j; k < smaller(n, j + width); ++k) {
        for (int i = 0; i < width; ++i)
          lanes[k * width + i] = i < used ? rows[i * stride + k] : -infinity;
        top = max(top, load(lanes + k * width));
      }
    }
    store(best, top);
  }
}

// The way back, each lane multiplied by its factor.
template <class T>
void lanes_to_rows(const T* lanes, int64_t stride, int64_t n, int used, Vec<T> factor, T* rows) {
  constexpr int width = Lanes<T>::count;
  Vec<T> tile[width];
  int64_t j = 0;
  if (used == width)
    for (; j + width <= n; j += width) {
#pragma GCC unroll 16
      for (int i = 0; i < width; ++i) tile[i] = load(lanes + (j + i) * width) * factor;
      transpose<T>(tile);
#pragma GCC unroll 16
      for (int i = 0; i < width; ++i) store(rows + i * stride + j, tile[i]);
    }
  for (; j < n; ++j)
    for (int i = 0; i < used; ++i) rows[i * stride + j] = lanes[j * width + i] * factor[i];
}

// What is known of solved rows, one per lane: see Normalizer.
template <class T>
struct LaneNormalizers {
  Vec<T> max, c, scale;
};

// One row per lane; `lanes` holds 3 n vectors. `used` of the lanes have a row. Rows and weights,
// which may be the same, are `stride` apart.
template <class T, class Map>
LaneNormalizers<T> forward_short(const Map& map, const T* rows, int64_t stride, int64_t n, int used,
                                 T* lanes, T* weights) {
  using V = Vec<T>;
  constexpr int width = Lanes<T>::count;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  T *solved = lanes + n * width, *best = solved + n * width;
  const int64_t count = (n + width - 1) / width;
  rows_to_lanes(rows, stride, n, used, lanes, best);
  V top = broadcast<T>(-infinity);
  for (int64_t j = 0; j < count; ++j) top = max(top, load(best + j * width));
  const V shift = select(greater(top, broadcast<T>(-infinity)), top, V{});
  for (int64_t j = 0; j < count; ++j) store(best + j * width, load(best + j * width) - shift);
  // NaN and +inf turn up as NaN here, which nothing else can.
  Mask<T> nan{};
  for (int64_t j = 0; j < n; ++j) {
    const V z = load(lanes + j * width) - shift;
    nan |= is_nan(z);
    store(lanes + j * width, z);
  }
  V c, scale;
  solve_lanes(map, lanes, n, best, count, solved, c, scale);
  const V not_a_number = broadcast<T>(std::numeric_limits<T>::quiet_NaN());
  scale = select(nan, not_a_number, scale);
  lanes_to_rows(solved, stride, n, used, scale, weights);
  return {select(nan, not_a_number, top), c, scale};
}

template <class IO, class T>
void forward_rows(const IO* scores, IO* weights, int64_t rows, int64_t n, double alpha) {
  constexpr int width = Lanes<T>::count;
  constexpr bool direct = std::is_same_v<IO, T>;
  const bool is_short = n <= kShortRow && !needs_double(alpha);
  const int64_t group = is_short ? width : 1;
  Scratch<T> work(is_short ? 3 * n * width : n + 2 * width);
  Scratch<T> in(direct ? 1 : group * n), out(direct ? 1 : group * n);
  with_map<T>(alpha, [&](const auto& map) {
    for (int64_t i = 0; i < rows; i += group) {
      const int used = static_cast<int>(smaller(group, rows - i));
      const T* source;
      T* target;
      if constexpr (direct) {
        source = scores + i * n;
        target = weights + i * n;
      } else {
        widen_row(scores + i * n, used * n, in.get());
        source = in.get();
        target = out.get();
      }
      if (is_short) {
        forward_short(map, source, n, n, used, work.get(), target);
      } else {
        bool filled;
        const Normalizer solved = solve_row(map, source, n, work.get(), target, &filled);
        write_weights(map, source, n, solved, filled, target);
      }
      if constexpr (!direct) narrow_row(out.get(), used * n, weights + i * n);
    }
  });
}

inline void entmax_forward(const EntmaxForward& a) {
  if (a.n == 0) return;
  for_each_run(a, [&](auto io, auto compute, int64_t first, int64_t last, double alpha) {
    using IO = decltype(io);
    forward_rows<IO, decltype(compute)>(static_cast<const IO*>(a.scores) + first * a.n,
                                        static_cast<IO*>(a.weights) + first * a.n, last - first,
                                        a.n, alpha);
  });
}

// ---------------------------------------------------------------- backward

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
// may hold already. Returns the gradient by alpha if it is wanted.
template <bool WithAlpha, bool HasSigma, class T, class Map>
double backward_row(const Map& map, const T* weights, const T* grad, int64_t n, T* grad_scores) {
  using V = Vec<T>;
  constexpr int width = Lanes<T>::count;
  // Calls body(j, count) over a stretch; count is known at compile time but for the last vector.
  const auto walk = [](int64_t begin, int64_t size, const auto& body) ADASPARSE_INLINE_BODY {
    int64_t j = begin;
    for (; j + width <= begin + size; j += width) body(j, int64_t{width});
    if (j < begin + size) body(j, begin + size - j);
  };
  // What gradients have in common must not drown the gradient by alpha.
  V common{};
  if constexpr (WithAlpha) {
    walk(0, n, [&](int64_t j, int64_t count) ADASPARSE_INLINE_BODY {
      const V p = load_first(weights + j, count, T(0));
      common += select(greater(p, V{}), p * load_first(grad + j, count, T(0)), V{});
    });
    common = broadcast<T>(sum_lanes<T>(common));
  }
  double slope = 0, weighted = 0, by_alpha = 0, by_all = 0;
  for_each_block<T>(n, [&](int64_t begin, int64_t size) {
    V slopes{}, products{}, terms{}, others{};
    walk(begin, size, [&](int64_t j, int64_t count) ADASPARSE_INLINE_BODY {
      const V p = load_first(weights + j, count, T(0)), g = load_first(grad + j, count, T(0));
      const V log_p = log_positive(p);
      const V sigma =
          HasSigma ? load_first(grad_scores + j, count, T(0)) : map.sigma_of(p, log_p);
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

template <class IO, class T>
void backward_rows(const EntmaxBackward& a, int64_t first, int64_t last, double alpha) {
  constexpr bool direct = std::is_same_v<IO, T>;
  const int64_t n = a.n;
  Scratch<T> p(direct ? 1 : n), g(direct ? 1 : n), out(direct ? 1 : n);
  with_map<T>(alpha, [&](const auto& map) {
    for (int64_t i = first; i < last; ++i) {
      const IO* weights = static_cast<const IO*>(a.weights) + i * n;
      const IO* grad = static_cast<const IO*>(a.grad) + i * n;
      IO* grad_scores = static_cast<IO*>(a.grad_scores) + i * n;
      const auto run = [&](const T* w, const T* d, T* to) {
        if (a.grad_alpha)
          a.grad_alpha[i] = backward_row<true, false>(map, w, d, n, to);
        else
          backward_row<false, false>(map, w, d, n, to);
      };
      if constexpr (direct) {
        run(weights, grad, grad_scores);
      } else {
        widen_row(weights, n, p.get());
        widen_row(grad, n, g.get());
        run(p.get(), g.get(), out.get());
        narrow_row(out.get(), n, grad_scores);
      }
    }
  });
}

inline void entmax_backward(const EntmaxBackward& a) {
  if (a.n == 0) {
    if (a.grad_alpha) fill(a.grad_alpha, a.rows, 0.);
    return;
  }
  for_each_run(a, [&](auto io, auto compute, int64_t first, int64_t last, double alpha) {
    backward_rows<decltype(io), decltype(compute)>(a, first, last, alpha);
  });
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
