// Shared by the three routes of backward: rows as vectors, and the gradient of one row of scores.
#pragma once

#include "attention/dropout.h"
#include "attention/scores.h"
#include "entmax/gradient.h"

namespace adasparse {
namespace ADASPARSE_ISA {

template <class T>
struct BackwardRows {
  const AttentionBackward& a;
  const AttentionInput& in;
  int64_t tiles;  // of a row, if it has entries enough to sum them by tiles; else 0
  WholeRows<T> query, key, value, grad;

  explicit BackwardRows(const AttentionBackward& arguments)
      : a(arguments),
        in(arguments.in),
        tiles(tile_count()),
        query(in, in.query, in.heads, in.q, in.d, tiles > 0),
        key(in, in.key, in.groups, in.k, in.d, tiles > 0),
        value(in, in.value, in.groups, in.k, in.e, tiles > 0),
        grad(in, arguments.grad, in.heads, in.q, in.e, tiles > 0) {}

  int64_t tile_count() const {
    const int64_t count = (in.k + kTileKeys - 1) / kTileKeys;
    if (a.weights || count <= 1) return 0;
    const int64_t used = (most_visible_keys(in) + kTileKeys - 1) / kTileKeys;
    const bool are_many = a.offsets[heads() * in.q] >= kTileEntries * used * heads() * in.q;
    return are_many ? count : 0;
  }

  int64_t heads() const { return in.batch * in.heads; }
  int64_t group_of(int64_t head) const {
    return head / in.heads * in.groups + head % in.heads / (in.heads / in.groups);
  }

  // Heads whose gradients of the mask fall on the same numbers must not run at the same time: they
  // take turns. Without such gradients every head has a turn of its own.
  int64_t turns_of_batch() const { return !a.grad_mask || a.grad_mask_strides[0] ? in.batch : 1; }
  int64_t turns_of_heads() const { return !a.grad_mask || a.grad_mask_strides[1] ? in.heads : 1; }
  int64_t turns() const { return turns_of_batch() * turns_of_heads(); }
  bool is_one_chunk() const { return a.grad_mask && a.grad_mask_strides[2] == 0; }
  template <class Body>
  void for_each_head_of(int64_t turn, const Body& body) const {
    const int64_t first_b = turn / turns_of_heads(), first_h = turn % turns_of_heads();
    for (int64_t b = first_b; b < in.batch; b += turns_of_batch())
      for (int64_t h = first_h; h < in.heads; h += turns_of_heads()) body(b * in.heads + h);
  }
  T* mask_gradient(int64_t head, int64_t i) const {
    return static_cast<T*>(a.grad_mask) + head / in.heads * a.grad_mask_strides[0] +
           head % in.heads * a.grad_mask_strides[1] + i * a.grad_mask_strides[2];
  }

  // Gradient with respect to the scores of one row from that with respect to its weights, and those
  // of alpha, slope and mask that follow from it. `index` may be null for columns from `first` on.
  // `by_score` may hold sigma, and is left with scale * gradient of the products; `by_weight` is
  // left with anything.
  template <bool HasSigma = false>
  void row_gradients(int64_t head, int64_t i, const T* weight, T* by_weight, const int32_t* index,
                     int64_t first, int64_t n, T* by_score) const {
    const int64_t number = head * in.q + i;
    const double alpha = alpha_of(in, head / in.heads, head % in.heads, i);
    double by_alpha = 0;
    SinkWeight<T> sink{a.sink_weights ? static_cast<const T*>(a.sink_weights)[number] : T(0), 0};
    SinkWeight<T>* const has_sink = a.sink_weights ? &sink : nullptr;
    if (n)
      with_map<T>(alpha, [&](const auto& map) {
        by_alpha =
            a.grad_alpha
                ? backward_row<true, HasSigma>(map, weight, by_weight, n, by_score, has_sink)
                : backward_row<false, HasSigma>(map, weight, by_weight, n, by_score, has_sink);
      });
    if (a.grad_alpha) a.grad_alpha[number] = by_alpha;
    if (a.grad_sinks) a.grad_sinks[number] = sink.by_score;
    const int64_t skipped = index ? 0 : first;  // columns before the first entry
    if (a.grad_slopes) {
      const KeyRange visible = visible_keys(in, length_of(in, head / in.heads), i);
      const Distance distance(in, visible, i, skipped);
      double total = 0;
      for (int64_t e = 0; e < n; ++e)
        total -= static_cast<double>(by_score[e]) *
                 static_cast<double>(distance.to(index ? index[e] : e));
      a.grad_slopes[number] = total;
    }
    if (a.grad_mask) {
      T* to = mask_gradient(head, i) + skipped * a.grad_mask_strides[3];
      for (int64_t e = 0; e < n; ++e)
        to[(index ? index[e] : e) * a.grad_mask_strides[3]] += by_score[e];
    }
    if (in.softcap > 0) {
      recompute_products(head, i, index, first, n, by_weight);
      multiply_by_cap_slope(by_weight, static_cast<T>(in.scale / in.softcap), n, by_score);
    }
    const T scale = static_cast<T>(in.scale);
    for (int64_t e = 0; e < n; ++e) by_score[e] *= scale;
  }

  // <q_i, k_j> of some columns, as row_gradients takes them.
  void recompute_products(int64_t head, int64_t i, const int32_t* index, int64_t first, int64_t n,
                          T* products) const {
    const int64_t b = head / in.heads, g = group_of(head) % in.groups;
    const Rows<T> mine = query.at(b, head % in.heads).from(i), keys = key.at(b, g);
    if (index) return gather_dots(mine, keys, index, n, key.vectors(), products);
    WideRows<T> wide(in.type, 1, in.d);
    const T* row = wide.read(mine, 1, in.d);
    with_elements(keys.from(first), [&](const auto* from) {
      multiply_rows(row, from, keys.stride, in.d, T(1), products, n);
    });
  }
};

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
