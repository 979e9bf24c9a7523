// Entmax attention, backward where the forward has kept the weights of all rows whole: keys are so
// few that all there is of a head fits the cache, and its rows are done with one after another.
#pragma once

#include "attention_gradients.h"

namespace adasparse {
namespace ADASPARSE_ISA {

template <class T>
struct ShortGradients : Gradients<T> {
  using Base = Gradients<T>;
  using Base::Base;
  using Base::a;
  using Base::grad;
  using Base::grown;
  using Base::in;
  using Base::key;
  using Base::plane_batch;
  using Base::query;
  using Base::row_gradients;
  using Base::value;

  // Some rows of a head, whose entries lie one after another.
  struct Work {
    explicit Work(const ShortGradients& of)
        : index(kBlockRows * of.in.k + Lanes<T>::count),
          weight(kBlockRows * of.in.k + Lanes<T>::count),
          by_weight(of.in.k + 1),
          by_score(kBlockRows * of.in.k + 1),
          by_query(of.key.vectors() * Lanes<T>::count),
          by_key(of.in.k * of.key.vectors() * Lanes<T>::count + 1),
          by_value(of.in.k * of.value.vectors() * Lanes<T>::count + 1) {}
    int64_t ends[kBlockRows];
    Scratch<int32_t> index;
    Scratch<T> weight, by_weight, by_score, by_query;
    Scratch<T> by_key, by_value;  // sums over the queries of a group of heads
  };

  // Collects what of the rows is not zero.
  void take_support(int64_t number, int64_t first, int64_t rows, Work& work) const {
    const IntVec<T> lane = lane_numbers<T>();
    int64_t size = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const T* row = static_cast<const T*>(a.weights) + (number * in.q + first + r) * in.k;
      for_each_vector(row, in.k, [&](Vec<T> p, int, int64_t j) ADASPARSE_INLINE_BODY {
        const Mask<T> inside = greater(p, Vec<T>{}) | is_nan(p);
        compress_index<T>(work.index.get() + size, inside,
                          lane + static_cast<typename Lanes<T>::Int>(j));
        size += compress_store<T>(work.weight.get() + size, inside, p);
      });
      work.ends[r] = size;
    }
  }

  void run_rows(int64_t b, int64_t h, int64_t first, int64_t rows, Work& work) const {
    const int64_t number = b * in.heads + h, g = h / (in.heads / in.groups);
    const View<T> by_query = view_of<T>(a.grad_query);
    const int32_t* index = work.index.get();
    T *weight = work.weight.get(), *by_weight = work.by_weight.get();
    T* by_score = work.by_score.get();
    take_support(number, first, rows, work);
    for_each_row(work, rows, [&](int64_t r, int64_t at, int64_t n) {
      const int64_t i = first + r;
      gather_dots(grad.at(b, h) + i * grad.row(), value.at(b, g), value.row(), index + at, n,
                  value.vectors(), by_weight);
      const Dropout dropout(in.seed, in.dropout_p, number * in.q + i);
      if (in.dropout_p > 0) drop(dropout, index + at, n, grown(), by_weight);
      row_gradients(number, i, weight + at, by_weight, index + at, n, by_score + at);
      if (in.dropout_p > 0) drop(dropout, index + at, n, grown(), weight + at);
      gather_rows(key.at(b, g), key.row(), index + at, by_score + at, n, key.vectors(),
                  work.by_query.get());
      std::memcpy(by_query.at(b, h) + i * by_query.row, work.by_query.get(),
                  sizeof(T) * static_cast<size_t>(in.d));
    });
    for_each_row(work, rows, [&](int64_t r, int64_t at, int64_t n) {
      scatter_row(query.at(b, h) + (first + r) * query.row(), index + at, by_score + at, n,
                  key.vectors(), work.by_key.get());
    });
    for_each_row(work, rows, [&](int64_t r, int64_t at, int64_t n) {
      scatter_row(grad.at(b, h) + (first + r) * grad.row(), index + at, weight + at, n,
                  value.vectors(), work.by_value.get());
    });
  }
  template <class Body>
  static void for_each_row(const Work& work, int64_t rows, const Body& body) {
    for (int64_t r = 0, at = 0; r < rows; at = work.ends[r++]) body(r, at, work.ends[r] - at);
  }

  void run_group(int64_t b, int64_t g, Work& work) const {
    const int64_t key_size = key.vectors() * Lanes<T>::count;
    const int64_t value_size = value.vectors() * Lanes<T>::count;
    fill(work.by_key.get(), in.k * key_size, T(0));
    fill(work.by_value.get(), in.k * value_size, T(0));
    const int64_t size = in.heads / in.groups;
    for (int64_t h = g * size; h < (g + 1) * size; ++h)
      for (int64_t i = 0; i < in.q; i += kBlockRows)
        run_rows(b, h, i, smaller(kBlockRows, in.q - i), work);
    write(work.by_key.get(), key_size, in.d, view_of<T>(a.grad_key), b, g);
    write(work.by_value.get(), value_size, in.e, view_of<T>(a.grad_value), b, g);
  }
  void write(const T* from, int64_t size, int64_t d, const View<T>& to, int64_t b,
             int64_t g) const {
    for (int64_t j = 0; j < in.k; ++j)
      std::memcpy(to.at(b, g) + j * to.row, from + j * size, sizeof(T) * static_cast<size_t>(d));
  }

  // One group of heads after another, and one after another all that add to the same gradients of
  // the mask.
  void run() const {
    const bool is_shared = a.grad_mask && a.grad_mask_strides[1] == 0;
    const int64_t batches = plane_batch();
    const int64_t together = batches < in.batch ? 1 : heads_together(in, in.groups);
    const int64_t groups = is_shared ? 1 : in.groups / together;
    parallel_with(batches * groups, in.threads, [&] { return Work(*this); },
                  [&](Work& work, int64_t task) {
                    for (int64_t b = task / groups; b < in.batch; b += batches)
                      for (int64_t g = task % groups; g < in.groups; g += groups)
                        run_group(b, g, work);
                  });
  }
};

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
