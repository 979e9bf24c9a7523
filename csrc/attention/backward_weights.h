// Entmax attention, backward where the weights were saved whole: keys are so few that a head fits
// the cache. Rows with few weights are walked one after another, the others multiplied as matrices.
#pragma once

#include "attention/backward_row.h"
#include "attention/support.h"
#include "parallel.h"

namespace adasparse {
namespace ADASPARSE_ISA {

template <class T>
struct WeightsBackward {
  const BackwardRows<T>& rows;
  const AttentionBackward& a = rows.a;
  const AttentionInput& in = rows.in;

  // Some rows of a head. If sparse, their entries lie one after another, else rows at a stride.
  struct Work {
    explicit Work(const BackwardRows<T>& of)
        : stride(round_up(of.in.k, kPanel<T>)),
          index(kBlockRows * of.in.k + Lanes<T>::count),
          weight(kBlockRows * of.in.k + Lanes<T>::count),
          by_weight(kBlockRows * stride),
          by_score(kBlockRows * stride),
          by_query(kBlockRows * of.key.vectors() * Lanes<T>::count + 1),
          panels(panel_size<T>(of.in.k, of.in.e) + 1),
          grad(of.in.type, kBlockRows, of.in.e),
          by_key(of.in.k * of.key.vectors() * Lanes<T>::count + 1),
          by_value(of.in.k * of.value.vectors() * Lanes<T>::count + 1) {}
    int64_t stride, ends[kBlockRows];
    bool are_packed = false;  // the values of the group, as panels
    Scratch<int32_t> index;
    Scratch<T> weight, by_weight, by_score, by_query, panels;
    WideRows<T> grad;
    Scratch<T> by_key, by_value;  // sums over the queries of a group of heads
  };

  // Collects the weights that are not zero.
  void take_support(int64_t number, int64_t first, int64_t count, Work& work) const {
    const IntVec<T> lane = lane_numbers<T>();
    int64_t size = 0;
    for (int64_t r = 0; r < count; ++r) {
      const T* row = weights_of(number, first + r);
      for_each_vector(row, in.k, [&](Vec<T> p, int, int64_t j) ADASPARSE_INLINE_BODY {
        const Mask<T> inside = greater(p, Vec<T>{}) | is_nan(p);
        compress_index<T>(work.index.get() + size, inside,
                          lane + static_cast<typename Lanes<T>::Int>(j));
        size += compress_store<T>(work.weight.get() + size, inside, p);
      });
      work.ends[r] = size;
    }
  }

  const T* weights_of(int64_t number, int64_t i) const {
    return static_cast<const T*>(a.weights) + (number * in.q + i) * in.k;
  }

  // Keys of weight zero never matter: numbers that are not finite are not multiplied with zeros.
  bool are_dense(int64_t b, int64_t h, int64_t first, int64_t count, int64_t n) const {
    const int64_t g = h / (in.heads / in.groups);
    const int64_t key_size = rows.key.vectors() * Lanes<T>::count;
    int64_t total = 0;
    for (int64_t r = 0; r < count; ++r)
      total += count_positive(weights_of(b * in.heads + h, first + r), n);
    return static_cast<double>(total) > kWholeDenseShare * static_cast<double>(count * n) &&
           are_finite(rows.key.at(b, g), n, key_size) &&
           are_finite(rows.query.at(b, h).from(first), count, key_size) &&
           are_finite(rows.grad.at(b, h).from(first), count, rows.value.size());
  }

  // Rows of which the first n keys may have weight.
  void dense_rows(int64_t b, int64_t h, int64_t first, int64_t count, int64_t n, Work& work) const {
    const int64_t number = b * in.heads + h, g = h / (in.heads / in.groups);
    const int64_t key_size = rows.key.vectors() * Lanes<T>::count;
    const int64_t value_size = rows.value.vectors() * Lanes<T>::count;
    const Rows<T> grads = rows.grad.at(b, h).from(first);
    const T* weights = weights_of(number, first);
    T *by_weight = work.by_weight.get(), *by_score = work.by_score.get();
    if (!work.are_packed) pack_panels(rows.value.at(b, g), in.k, in.e, work.panels.get());
    work.are_packed = true;
    const T* out_grad = work.grad.read(grads, count, in.e);
    multiply_panels(out_grad, work.grad.stride, work.panels.get(), in.e, T(1), by_weight,
                    work.stride, count, round_up(n, kPanel<T>) / kPanel<T>);
    if (in.dropout_p > 0) {
      std::memcpy(work.weight.get(), weights, sizeof(T) * static_cast<size_t>(count * in.k));
      weights = work.weight.get();
    }
    for (int64_t r = 0; r < count; ++r) {
      const int64_t i = first + r;
      const Dropout dropout(in.seed, in.dropout_p, number * in.q + i);
      T* gradient = by_weight + r * work.stride;
      if (in.dropout_p > 0) drop_range(dropout, 0, n, grown<T>(in), gradient);
      rows.row_gradients(number, i, weights + r * in.k, gradient, nullptr, 0, n,
                         by_score + r * work.stride);
      if (in.dropout_p > 0) drop_range(dropout, 0, n, grown<T>(in), work.weight.get() + r * in.k);
    }
    T* sum = work.by_query.get();
    fill(sum, count * key_size, T(0));
    add_product(by_score, work.stride, One{}, rows.key.at(b, g), sum, key_size, count, key_size, n);
    write_rows(in, sum, key_size, count, in.d, a.grad_query, b, h, first);
    add_product(by_score, One{}, work.stride, rows.query.at(b, h).from(first), work.by_key.get(),
                key_size, n, key_size, count);
    add_product(weights, One{}, in.k, grads, work.by_value.get(), value_size, n, value_size, count);
  }

  void sparse_rows(int64_t b, int64_t h, int64_t first, int64_t count, Work& work) const {
    const int64_t number = b * in.heads + h, g = h / (in.heads / in.groups);
    const int32_t* index = work.index.get();
    T *weight = work.weight.get(), *by_weight = work.by_weight.get();
    T* by_score = work.by_score.get();
    take_support(number, first, count, work);
    for_each_row(work, count, [&](int64_t r, int64_t at, int64_t n) {
      const int64_t i = first + r;
      gather_dots(rows.grad.at(b, h).from(i), rows.value.at(b, g), index + at, n,
                  rows.value.vectors(), by_weight);
      const Dropout dropout(in.seed, in.dropout_p, number * in.q + i);
      if (in.dropout_p > 0) drop(dropout, index + at, n, grown<T>(in), by_weight);
      rows.row_gradients(number, i, weight + at, by_weight, index + at, 0, n, by_score + at);
      if (in.dropout_p > 0) drop(dropout, index + at, n, grown<T>(in), weight + at);
      gather_rows(rows.key.at(b, g), index + at, by_score + at, n, rows.key.vectors(),
                  work.by_query.get());
      write_rows(in, work.by_query.get(), 0, 1, in.d, a.grad_query, b, h, i);
    });
    for_each_row(work, count, [&](int64_t r, int64_t at, int64_t n) {
      scatter_row(rows.query.at(b, h).from(first + r), index + at, by_score + at, n,
                  rows.key.vectors(), work.by_key.get());
    });
    for_each_row(work, count, [&](int64_t r, int64_t at, int64_t n) {
      scatter_row(rows.grad.at(b, h).from(first + r), index + at, weight + at, n,
                  rows.value.vectors(), work.by_value.get());
    });
  }
  template <class Body>
  static void for_each_row(const Work& work, int64_t count, const Body& body) {
    for (int64_t r = 0, at = 0; r < count; at = work.ends[r++]) body(r, at, work.ends[r] - at);
  }

  void run_group(int64_t b, int64_t g, Work& work) const {
    const int64_t key_size = rows.key.vectors() * Lanes<T>::count;
    const int64_t value_size = rows.value.vectors() * Lanes<T>::count;
    fill(work.by_key.get(), in.k * key_size, T(0));
    fill(work.by_value.get(), in.k * value_size, T(0));
    work.are_packed = false;
    const int64_t size = in.heads / in.groups, length = length_of(in, b);
    for (int64_t h = g * size; h < (g + 1) * size; ++h)
      for (int64_t i = 0; i < in.q; i += kBlockRows) {
        const int64_t count = smaller(kBlockRows, in.q - i);
        const int64_t n = visible_keys(in, length, i + count - 1).last;
        are_dense(b, h, i, count, n) ? dense_rows(b, h, i, count, n, work)
                                     : sparse_rows(b, h, i, count, work);
      }
    write_rows(in, work.by_key.get(), key_size, in.k, in.d, a.grad_key, b, g, 0);
    write_rows(in, work.by_value.get(), value_size, in.k, in.e, a.grad_value, b, g, 0);
  }

  // One group of heads after another, and one after another all that add to the same gradients of
  // the mask.
  void run() const {
    const bool is_shared = a.grad_mask && a.grad_mask_strides[1] == 0;
    const int64_t batches = rows.turns_of_batch();
    const int64_t together = batches < in.batch ? 1 : heads_together(in, in.groups);
    const int64_t groups = is_shared ? 1 : in.groups / together;
    parallel_with(
        batches * groups, in.threads, [&] { return Work(rows); },
        [&](Work& work, int64_t task) {
          for (int64_t b = task / groups; b < in.batch; b += batches)
            for (int64_t g = task % groups; g < in.groups; g += groups) run_group(b, g, work);
        });
  }
};

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
