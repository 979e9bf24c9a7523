// entmax over the last dimension, forward and backward.
#pragma once

#include "entmax/gradient.h"
#include "entmax/solve_lanes.h"
#include "entmax/solve_row.h"
#include "parallel.h"
#include "rows.h"
#include "scratch.h"

namespace adasparse {
namespace ADASPARSE_ISA {

inline int64_t rows_per_block(int64_t n) {
  const int64_t rows = kBlockNumbers / (n > 0 ? n : 1);
  return larger(kRowMultiple, rows / kRowMultiple * kRowMultiple);
}

// Calls body(first, last, alpha) for neighboring rows that share their alpha.
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

// Divides the rows of a kernel's arguments among threads and calls
// body(IO{}, T{}, first, last, alpha) for neighboring rows with one alpha, the element type and the
// type to compute in.
template <class Arguments, class Body>
void for_each_block(const Arguments& a, const Body& body) {
  parallel_for(a.rows, rows_per_block(a.n), a.threads, [&](int64_t begin, int64_t end) {
    for_each_alpha(
        a.alpha, a.alpha_stride, begin, end, [&](int64_t first, int64_t last, double alpha) {
          with_types(a.type, needs_double(alpha),
                     [&](auto io, auto compute) { body(io, compute, first, last, alpha); });
        });
  });
}

// One row per lane; for alpha large enough, candidates alone. `work` holds candidate_scratch(n).
template <class T, class Map, class Row, class Weights>
void solve_in_lanes(const Map& map, const Row& row, int64_t n, int used, T* work,
                    const Weights& weights) {
  if constexpr (std::is_same_v<Map, GeneralMap<T>>)
    if (map.eps() > kPackedEpsilon) return candidates_in_lanes(map, row, n, used, work, weights);
  forward_in_lanes(map, row, n, used, work, weights);
}

template <class IO, class T>
void forward_rows(const IO* scores, IO* weights, int64_t rows, int64_t n, double alpha) {
  constexpr int width = Lanes<T>::count;
  constexpr bool direct = std::is_same_v<IO, T>;
  const bool fits_lanes = n <= kOperatorLaneRow && !needs_double(alpha);
  const int64_t together = fits_lanes ? width : 1;
  Scratch<T> work(fits_lanes ? candidate_scratch<T>(n) : n + 2 * width);
  Scratch<T> in(direct ? 1 : together * n), out(direct ? 1 : together * n);
  with_map<T>(alpha, [&](const auto& map) {
    for (int64_t i = 0; i < rows; i += together) {
      const int used = static_cast<int>(smaller(together, rows - i));
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
      if (fits_lanes) {
        solve_in_lanes(
            map, [&](int64_t r) { return source + r * n; }, n, used, work.get(),
            [&](int64_t r) { return target + r * n; });
      } else {
        const SolvedRow solved = solve_row(map, source, n, work.get(), target);
        write_weights(map, source, n, solved, target, target);
      }
      if constexpr (!direct) narrow_row(out.get(), used * n, weights + i * n);
    }
  });
}

inline void entmax_forward(const EntmaxForward& a) {
  if (a.n == 0) return;
  for_each_block(a, [&](auto io, auto compute, int64_t first, int64_t last, double alpha) {
    using IO = decltype(io);
    forward_rows<IO, decltype(compute)>(static_cast<const IO*>(a.scores) + first * a.n,
                                        static_cast<IO*>(a.weights) + first * a.n, last - first,
                                        a.n, alpha);
  });
}

// Rows of n numbers whose gradients are computed together.
inline int64_t gradient_rows(int64_t n) {
  return larger<int64_t>(1, smaller(kGradientRows, kSlopeNumbers / n));
}

// Some rows, up to gradient_rows(n), step by step: rows overlap better in the processor then than
// one after the other. `work` holds gradient_scratch(rows * n).
template <bool WithAlpha, class T, class Map>
void backward_some(const Map& map, const T* weights, const T* grad, int64_t rows, int64_t n,
                   T* grad_scores, double* grad_alpha, T* work) {
  constexpr bool has_slopes = WithAlpha || !(Map::kIsCheap || Map::kIsSigmaCheap);
  if (!WithAlpha && n > kSeparateSlopes) {
    for (int64_t r = 0; r < rows; ++r)
      backward_row<false, false>(map, weights + r * n, grad + r * n, n, grad_scores + r * n);
    return;
  }
  T* terms = work;
  int64_t dense[kGradientRows], count = 0;
  if constexpr (has_slopes) {
    SparseRows<WithAlpha, T> sparse(n, rows * n, work + rows * n);
    for (int64_t r = 0; r < rows; ++r)
      if (!sparse.add(weights + r * n, grad + r * n, grad_scores + r * n,
                      WithAlpha ? grad_alpha + r : nullptr))
        dense[count++] = r * n;
    sparse.finish(map);
    for (int64_t i = 0, next; i < count; i = next) {
      for (next = i + 1; next < count && dense[next] == dense[next - 1] + n;) ++next;
      find_slopes<WithAlpha>(map, weights + dense[i], (next - i) * n, grad_scores + dense[i],
                             terms + dense[i]);
    }
  } else {
    for (int64_t r = 0; r < rows; ++r) dense[count++] = r * n;
  }
  T common[kGradientRows] = {};
  GradientSums sums[kGradientRows];
  for (int64_t i = 0; i < count && WithAlpha; ++i)
    common[i] = mean_gradient(weights + dense[i], grad + dense[i], n);
  for (int64_t i = 0; i < count; ++i)
    sums[i] = sum_gradients<WithAlpha, has_slopes, WithAlpha>(
        map, weights + dense[i], grad + dense[i], n, common[i], grad_scores + dense[i],
        terms + dense[i]);
  for (int64_t i = 0; i < count; ++i) {
    const double by_alpha = finish_gradients<has_slopes>(
        map, weights + dense[i], grad + dense[i], n, sums[i], common[i], grad_scores + dense[i]);
    if constexpr (WithAlpha) grad_alpha[dense[i] / n] = by_alpha;
  }
}
template <bool WithAlpha, class T>
void backward_some(const SteepMap<T>& map, const T* weights, const T* grad, int64_t rows, int64_t n,
                   T* grad_scores, double* grad_alpha, T*) {
  for (int64_t r = 0; r < rows; ++r) {
    const double by_alpha =
        backward_row<WithAlpha, false>(map, weights + r * n, grad + r * n, n, grad_scores + r * n);
    if constexpr (WithAlpha) grad_alpha[r] = by_alpha;
  }
}
template <class T>
int64_t gradient_scratch(int64_t size) {
  return size + SparseRows<true, T>::scratch_size(size);
}

template <class IO, class T>
void backward_rows(const EntmaxBackward& a, int64_t first, int64_t last, double alpha) {
  constexpr bool direct = std::is_same_v<IO, T>;
  const int64_t n = a.n, together = gradient_rows(n), size = together * n;
  Scratch<T> work(gradient_scratch<T>(size));
  Scratch<T> p(direct ? 1 : size), g(direct ? 1 : size), out(direct ? 1 : size);
  with_map<T>(alpha, [&](const auto& map) {
    for (int64_t i = first; i < last; i += together) {
      const int64_t rows = smaller(together, last - i);
      const IO* weights = static_cast<const IO*>(a.weights) + i * n;
      const IO* grad = static_cast<const IO*>(a.grad) + i * n;
      IO* grad_scores = static_cast<IO*>(a.grad_scores) + i * n;
      const auto run = [&](const T* w, const T* d, T* to) {
        if (a.grad_alpha)
          backward_some<true>(map, w, d, rows, n, to, a.grad_alpha + i, work.get());
        else
          backward_some<false>(map, w, d, rows, n, to, a.grad_alpha, work.get());
      };
      if constexpr (direct) {
        run(weights, grad, grad_scores);
      } else {
        widen_row(weights, rows * n, p.get());
        widen_row(grad, rows * n, g.get());
        run(p.get(), g.get(), out.get());
        narrow_row(out.get(), rows * n, grad_scores);
      }
    }
  });
}

inline void entmax_backward(const EntmaxBackward& a) {
  if (a.n == 0) {
    if (a.grad_alpha) fill(a.grad_alpha, a.rows, 0.);
    return;
  }
  for_each_block(a, [&](auto io, auto compute, int64_t first, int64_t last, double alpha) {
    backward_rows<decltype(io), decltype(compute)>(a, first, last, alpha);
  });
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
