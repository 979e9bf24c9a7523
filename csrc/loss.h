// The Fenchel-Young loss of entmax: sum_k a_k (conjugate(s) - s_k) for a target mass a.
//
//     conjugate(s) = max_p <p, s> - Omega(p) = max + c + eps / alpha * sum p u
//
// since p^eps = 1 + eps u turns the Tsallis entropy of p into -sum p u / alpha: no cancellation
// near alpha = 1, where this is logsumexp. Neither pass writes anything of the size of the scores
// but the gradient.
#pragma once

#include "entmax/operator.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// sum_k x^k (k + 1) / (k + 2)!, which is (1 + (x - 1) e^x) / x^2
template <class V>
ADASPARSE_INLINE V first_tail(V x) {
  if constexpr (sizeof(x[0]) == 4)
    return horner(x, 1.f / 2.f, 2.f / 6.f, 3.f / 24.f, 4.f / 120.f, 5.f / 720.f, 6.f / 5040.f,
                  7.f / 40320.f, 8.f / 362880.f, 9.f / 3628800.f);
  else
    return horner(x, 1. / 2., 2. / 6., 3. / 24., 4. / 120., 5. / 720., 6. / 5040., 7. / 40320.,
                  8. / 362880., 9. / 3628800., 10. / 39916800., 11. / 479001600., 12. / 6227020800.,
                  13. / 87178291200., 14. / 1307674368000., 15. / 20922789888000.,
                  16. / 355687428096000.);
}

// Calls body(z, u, p) over the vectors of a solved row that touch its support; p is normalized.
template <class T, class Map, class Body>
ADASPARSE_INLINE void for_each_support(const Map& map, const T* row, int64_t n,
                                       const Normalizer& solved, const Body& body) {
  using V = Vec<T>;
  const V shift = broadcast<T>(static_cast<T>(solved.max));
  const V c = broadcast<T>(static_cast<T>(map.shift(solved.c)));
  const Origin<T> origin = origin_of<T>(map, solved.max, solved.c);
  const V start = broadcast<T>(origin.shift), at = broadcast<T>(origin.at);
  const V edge = broadcast<T>(origin.edge);
  const V scale = broadcast<T>(static_cast<T>(solved.scale));
  for_each_vector(row, n, [&](V s, int count, int64_t j) ADASPARSE_INLINE_BODY {
    const V z = s - start;
    V p{}, sigma;
    if (!Map::kIsSparse || map.eps() < 0 || any(greater(z, edge))) map.eval(z, at, p, sigma);
    body((s - shift) - c, p * scale, count, j);
  });
}

// The conjugate minus the maximum.
template <class T, class Map>
double conjugate(const Map& map, const T* row, int64_t n, const Normalizer& solved) {
  const double eps = map.eps();
  if (eps == 0) return solved.c;
  using V = Vec<T>;
  double total = 0;
  V partial{};
  int64_t pending = 0;
  for_each_support(map, row, n, solved, [&](V u, V p, int, int64_t) ADASPARSE_INLINE_BODY {
    partial += select(greater(p, V{}), p * u, V{});
    if (++pending % kChunkPairs == 0) {
      total += sum_lanes<T>(partial);
      partial = V{};
    }
  });
  total += sum_lanes<T>(partial);
  // The last term is what normalizing by `scale` changed, to first order.
  return map.shift(solved.c) + eps / (1 + eps) * total -
         (solved.scale - 1) * (1 + eps * total) / (1 + eps);
}

// The derivative of the conjugate with respect to alpha, -dOmega(p)/dalpha at fixed p.
template <class T>
ADASPARSE_INLINE Vec<T> conjugate_by_alpha(Vec<T> u, Vec<T> p, double eps) {
  using V = Vec<T>;
  const V x = static_cast<T>(eps) * u;
  const V log_t = log1p_positive(x);
  const V log_p = eps == 0 ? u : log_t * static_cast<T>(1 / eps);
  const V y = static_cast<T>(eps) * log_p;
  const V near = log_p * log_p * first_tail(y);
  const V far = (1 + (y - 1) * (1 + x)) * static_cast<T>(1 / (eps * eps));
  const V u_by_alpha = select(greater(broadcast<T>(1), max(y, -y)), near, far);
  const T alpha = static_cast<T>(1 + eps);
  return select(greater(p, V{}), p * (u / alpha - u_by_alpha) / alpha, V{});
}

// The target of a row, read through the element type of the scores.
template <class IO>
class RowTarget {
 public:
  RowTarget(const Target& target, int64_t row, int64_t n)
      : target_(target),
        n_(n),
        probability_(target.probability ? static_cast<const IO*>(target.probability) + row * n
                                        : nullptr),
        weight_(static_cast<const IO*>(target.weight)),
        index_(target.index ? target.index[row] : -1) {}

  bool is_ignored() const { return target_.index && index_ == target_.ignore_index; }
  // Whether every class may carry mass, rather than one alone.
  bool is_dense() const { return probability_ || target_.smoothing > 0; }
  int64_t index() const { return index_; }
  double weight(int64_t k) const { return weight_ ? static_cast<double>(widen(weight_[k])) : 1; }

  // a_k; without a distribution, minus the mass of the chosen class.
  double spread(int64_t k) const {
    const double target = probability_ ? static_cast<double>(widen(probability_[k])) : 0;
    return weight(k) *
           ((1 - target_.smoothing) * target + target_.smoothing / static_cast<double>(n_));
  }
  double chosen() const { return probability_ ? 0 : (1 - target_.smoothing) * weight(index_); }

  double mass() const {
    double total = chosen();
    if (is_dense())
      for (int64_t k = 0; k < n_; ++k) total += spread(k);
    return total;
  }

 private:
  const Target& target_;
  int64_t n_;
  const IO* probability_;
  const IO* weight_;
  int64_t index_;
};

template <class IO, class T>
void loss_forward_rows(const LossForward& a, int64_t first, int64_t last, double alpha) {
  constexpr bool direct = std::is_same_v<IO, T>;
  const int64_t n = a.n;
  Scratch<T> work(n + 2 * Lanes<T>::count), in(direct ? 1 : n);
  with_map<T>(alpha, [&](const auto& map) {
    for (int64_t i = first; i < last; ++i) {
      const IO* scores = static_cast<const IO*>(a.scores) + i * n;
      const RowTarget<IO> target(a.target, i, n);
      double* state = a.state + i * kRowState;
      if (target.is_ignored()) {
        a.loss[i] = state[0] = state[1] = state[2] = 0;
        continue;
      }
      const T* row;
      if constexpr (direct) {
        row = scores;
      } else {
        widen_row(scores, n, in.get());
        row = in.get();
      }
      const Normalizer solved = solve_row<T>(map, row, n, work.get(), nullptr).normalizer;
      state[0] = solved.max;
      state[1] = solved.c;
      state[2] = solved.scale;
      if (!solved.is_regular()) {
        // Every class masked: the target is out of reach, as any masked target is.
        a.loss[i] = std::isnan(solved.max) ? solved.max : std::numeric_limits<double>::infinity();
        continue;
      }
      double mass = target.chosen();
      double taken = mass == 0 ? 0 : mass * (static_cast<double>(row[target.index()]) - solved.max);
      if (target.is_dense())
        for (int64_t k = 0; k < n; ++k) {
          const double share = target.spread(k);
          mass += share;
          if (share != 0) taken += share * (static_cast<double>(row[k]) - solved.max);
        }
      a.loss[i] = mass * conjugate(map, row, n, solved) - taken;
    }
  });
}

// Writes the weights of a row times `factor`; returns the derivative of its conjugate with respect
// to alpha if wanted. A function of its own, so that it is compiled once for all types of elements.
template <class T, class Map>
double weights_of_loss(const Map& map, const T* row, int64_t n, const Normalizer& solved, T factor,
                       bool with_alpha, T* to) {
  using V = Vec<T>;
  V by_alpha{};
  double total = 0;
  int64_t pending = 0;
  for_each_support(map, row, n, solved, [&](V u, V p, int count, int64_t j) ADASPARSE_INLINE_BODY {
    store_first(to + j, p * broadcast<T>(factor), count);
    if (!with_alpha) return;
    by_alpha += conjugate_by_alpha<T>(u, p, map.eps());
    if (++pending % kChunkPairs == 0) {
      total += sum_lanes<T>(by_alpha);
      by_alpha = V{};
    }
  });
  return total + sum_lanes<T>(by_alpha);
}

template <class IO, class T>
void loss_backward_rows(const LossBackward& a, int64_t first, int64_t last, double alpha) {
  constexpr bool direct = std::is_same_v<IO, T>;
  const int64_t n = a.n;
  Scratch<T> in(direct ? 1 : n), out(direct ? 1 : n);
  with_map<T>(alpha, [&](const auto& map) {
    for (int64_t i = first; i < last; ++i) {
      const IO* scores = static_cast<const IO*>(a.scores) + i * n;
      IO* grad_scores = static_cast<IO*>(a.grad_scores) + i * n;
      const RowTarget<IO> target(a.target, i, n);
      if (a.grad_alpha) a.grad_alpha[i] = 0;
      if (target.is_ignored()) {
        fill(grad_scores, n, IO{});
        continue;
      }
      const T* row;
      T* grad;
      if constexpr (direct) {
        row = scores;
        grad = grad_scores;
      } else {
        widen_row(scores, n, in.get());
        row = in.get();
        grad = out.get();
      }
      const double* state = a.state + i * kRowState;
      const Normalizer solved{state[0], state[1], state[2]};
      const double mass = a.grad[i] * target.mass();
      if (solved.is_regular()) {
        const double by_alpha = weights_of_loss(map, row, n, solved, static_cast<T>(mass),
                                                a.grad_alpha != nullptr, grad);
        if (a.grad_alpha) a.grad_alpha[i] = mass * by_alpha;
      } else {
        const bool is_nan = std::isnan(solved.max);
        if (a.grad_alpha && is_nan) a.grad_alpha[i] = solved.max;
        fill(grad, n, is_nan ? static_cast<T>(solved.max) : T(0));
      }
      if (target.is_dense())
        for (int64_t k = 0; k < n; ++k) grad[k] -= static_cast<T>(a.grad[i] * target.spread(k));
      if (target.index() >= 0) grad[target.index()] -= static_cast<T>(a.grad[i] * target.chosen());
      if constexpr (!direct) narrow_row(out.get(), n, grad_scores);
    }
  });
}

inline void loss_forward(const LossForward& a) {
  for_each_block(a, [&](auto io, auto compute, int64_t first, int64_t last, double alpha) {
    loss_forward_rows<decltype(io), decltype(compute)>(a, first, last, alpha);
  });
}

inline void loss_backward(const LossBackward& a) {
  for_each_block(a, [&](auto io, auto compute, int64_t first, int64_t last, double alpha) {
    loss_backward_rows<decltype(io), decltype(compute)>(a, first, last, alpha);
  });
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
