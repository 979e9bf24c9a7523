// What the backward of attention needs for sparse and dense heads alike: rows as vectors, and the
// gradient of one row of scores.
#pragma once

#include "attention/forward.h"

namespace adasparse {
namespace ADASPARSE_ISA {

constexpr int64_t kTileKeys = 256;   // keys of a tile of entries that is transposed
constexpr int64_t kTileEntries = 8;  // per row of a tile; with fewer it does not pay

template <class T>
struct Gradients {
  const AttentionBackward& a;
  const AttentionInput& in;
  int64_t tiles;  // of a row, if its entries are many enough to sum them up by tiles; else 0
  WholeRows<T> query, key, value, grad;

  explicit Gradients(const AttentionBackward& arguments)
      : a(arguments),
        in(arguments.in),
        tiles(tile_count()),
        query(in, in.query, in.heads, in.q, in.d, tiles > 0),
        key(in, in.key, in.groups, in.k, in.d, tiles > 0),
        value(in, in.value, in.groups, in.k, in.e, tiles > 0),
        grad(in, arguments.grad, in.heads, in.q, in.e, tiles > 0) {}

  int64_t tile_count() const {
    const int64_t count = (in.k + kTileKeys - 1) / kTileKeys;
    if (count == 1) return 0;
    const bool are_many = a.offsets[heads() * in.q] >= kTileEntries * count * heads() * in.q;
    return are_many ? count : 0;
  }

  int64_t heads() const { return in.batch * in.heads; }
  int64_t group_of(int64_t head) const {
    return head / in.heads * in.groups + head % in.heads / (in.heads / in.groups);
  }
  T grown() const { return in.dropout_p < 1 ? static_cast<T>(1 / (1 - in.dropout_p)) : T(0); }

  // Heads whose gradients of the mask fall on the same numbers must not run at the same time: they
  // make one plane. Without such gradients every head is a plane.
  int64_t plane_batch() const { return !a.grad_mask || a.grad_mask_strides[0] ? in.batch : 1; }
  int64_t plane_heads() const { return !a.grad_mask || a.grad_mask_strides[1] ? in.heads : 1; }
  int64_t planes() const { return plane_batch() * plane_heads(); }
  bool is_one_chunk() const { return a.grad_mask && a.grad_mask_strides[2] == 0; }
  template <class Body>
  void for_each_head_of(int64_t plane, const Body& body) const {
    const int64_t pb = plane / plane_heads(), ph = plane % plane_heads();
    for (int64_t b = pb; b < in.batch; b += plane_batch())
      for (int64_t h = ph; h < in.heads; h += plane_heads()) body(b * in.heads + h);
  }
  T* mask_gradient(int64_t head, int64_t i) const {
    return static_cast<T*>(a.grad_mask) + head / in.heads * a.grad_mask_strides[0] +
           head % in.heads * a.grad_mask_strides[1] + i * a.grad_mask_strides[2];
  }

  // Gradient by the scores of one row from that by its weights, with all that follows from it but
  // for queries and keys. `index` may be null for columns 0 to n. `by_score` may hold sigma, and
  // is left with scale * gradient.
  template <bool HasSigma = false>
  void row_gradients(int64_t head, int64_t i, const T* weight, const T* by_weight,
                     const int32_t* index, int64_t n, T* by_score) const {
    const int64_t number = head * in.q + i;
    const double alpha = alpha_of(in, head / in.heads, head % in.heads, i);
    double by_alpha = 0;
    if (n)
      with_map<T>(alpha, [&](const auto& map) {
        by_alpha = a.grad_alpha
                       ? backward_row<true, HasSigma>(map, weight, by_weight, n, by_score)
                       : backward_row<false, HasSigma>(map, weight, by_weight, n, by_score);
      });
    if (a.grad_alpha) a.grad_alpha[number] = by_alpha;
    if (a.grad_slopes) {
      const Distance distance(in, visible_keys(in, length_of(in, head / in.heads), i), i);
      double total = 0;
      for (int64_t e = 0; e < n; ++e)
        total -= static_cast<double>(by_score[e]) *
                 static_cast<double>(distance.to(index ? index[e] : e));
      a.grad_slopes[number] = total;
    }
    if (a.grad_mask) {
      T* to = mask_gradient(head, i);
      for (int64_t e = 0; e < n; ++e)
        to[(index ? index[e] : e) * a.grad_mask_strides[3]] += by_score[e];
    }
    const T scale = static_cast<T>(in.scale);
    for (int64_t e = 0; e < n; ++e) by_score[e] *= scale;
  }
};

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
