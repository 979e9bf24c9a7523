// Entmax attention, backward: few keys as in attention_short.h, sparse heads as in
// attention_sparse.h. Dense heads compute their weights again, a strip of queries at a time, and
// multiply; chunks of their queries add up keys and values apart, to be joined in order.
#pragma once

#include "attention/backward_short.h"
#include "attention/backward_sparse.h"

namespace adasparse {
namespace ADASPARSE_ISA {

constexpr int64_t kChunkRows = 240;      // at least this many queries make a chunk of a dense head
constexpr int64_t kDenseTasks = 64;      // chunks wanted over all dense heads
constexpr int64_t kChunkBytes = 1 << 27; // their sums take no more than this, if it can be helped

template <class T>
struct Backward : SparseGradients<T> {
  using Base = SparseGradients<T>;
  using Base::Base;
  using Base::a;
  using Base::for_each_head_of;
  using Base::grad;
  using Base::group_of;
  using Base::grown;
  using Base::heads;
  using Base::in;
  using Base::is_one_chunk;
  using Base::key;
  using Base::planes;
  using Base::query;
  using Base::run_sparse;
  using Base::value;

  struct DenseWork {
    explicit DenseWork(const Backward& of)
        : columns(round_up(of.in.k, kColumns)),
          weights(kStripRows * columns),
          gradients(kStripRows * columns),
          row(columns + 4 * Lanes<T>::count),
          sum(kStripRows * of.key.vectors() * Lanes<T>::count) {}
    int64_t columns;
    Scratch<T> weights, gradients, row, sum;
  };

  // Queries [first, last) of a dense head; sums over them are added to by_key and by_value.
  void dense_rows(int64_t number, int64_t first, int64_t last, const T* key_panels,
                  const T* value_panels, DenseWork& work, T* by_key, T* by_value) const {
    const Head<T> head = head_at(in, number, key_panels, value);
    const int64_t g = group_of(number) % in.groups, stride = work.columns;
    const int64_t key_size = key.vectors() * Lanes<T>::count;
    const int64_t value_size = value.vectors() * Lanes<T>::count;
    const T* out_grad = grad.at(head.b, head.h);
    const View<T> by_query = view_of<T>(a.grad_query);
    const T* panels = value_panels + group_of(number) * panel_size<T>(in.k, in.e);
    T *weights = work.weights.get(), *gradients = work.gradients.get();
    // What is left out never matters, nor what a value of weight zero holds.
    const bool are_keys_finite = are_finite(key.at(head.b, g), key.row(), head.length, key_size);
    const bool are_values_finite =
        are_finite(head.value, head.value_row, head.length, value_size);
    const auto add_keys = are_keys_finite ? add_product<T> : add_product_of_support<T>;
    for (int64_t i = first; i < last; i += kStripRows) {
      const int64_t rows = smaller(kStripRows, last - i);
      const int64_t n = visible_keys(in, head.length, i + rows - 1);
      score_strip(in, head, i, rows, 0, round_up(n, kColumns), weights, stride);
      multiply_panels(out_grad + i * grad.row(), grad.row(), panels, in.e, T(1), gradients, stride,
                      rows, round_up(n, kPanel<T>) / kPanel<T>);
      for (int64_t r = 0; r < rows; ++r) {
        T *weight = weights + r * stride, *gradient = gradients + r * stride;
        const double* state = a.state + (number * in.q + i + r) * kRowState;
        with_map<T>(alpha_of(in, head.b, head.h, i + r), [&](const auto& map) {
          write_weights(map, weight, n, {state[0], state[1], state[2]}, false, weight,
                        work.row.get());
        });
        for (int64_t j = 0; j < n && !are_values_finite; ++j)
          if (weight[j] == 0) gradient[j] = 0;
        const Dropout dropout(in.seed, in.dropout_p, number * in.q + i + r);
        if (in.dropout_p > 0) drop(dropout, n, grown(), gradient);
        this->template row_gradients<true>(number, i + r, weight, gradient, nullptr, n,
                                           work.row.get());
        std::memcpy(gradient, work.row.get(), sizeof(T) * static_cast<size_t>(n));
        if (in.dropout_p > 0) drop(dropout, n, grown(), weight);
      }
      T* sum = work.sum.get();
      fill(sum, rows * key_size, T(0));
      for (int64_t j = 0; j < n; j += kKeyBlock)
        add_keys(gradients + j, stride, int64_t{1}, key.at(head.b, g) + j * key.row(), key.row(),
                 sum, key_size, rows, key_size, smaller(kKeyBlock, n - j));
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(by_query.at(head.b, head.h) + (i + r) * by_query.row, sum + r * key_size,
                    sizeof(T) * static_cast<size_t>(in.d));
      add_product(gradients, int64_t{1}, stride, query.at(head.b, head.h) + i * query.row(),
                  query.row(), by_key, key_size, n, key_size, rows);
      add_product(weights, int64_t{1}, stride, out_grad + i * grad.row(), grad.row(), by_value,
                  value_size, n, value_size, rows);
    }
  }

  void run_dense(int64_t dense, const View<T>& by_key, const View<T>& by_value) const {
    Scratch<int64_t> place(heads());  // of a dense head among them
    for (int64_t head = 0, at = 0; head < heads(); ++head) place.get()[head] = at += a.is_dense[head];
    const int64_t key_size = in.k * key.vectors() * Lanes<T>::count;
    const int64_t value_size = in.k * value.vectors() * Lanes<T>::count;
    const int64_t bytes = dense * (key_size + value_size) * static_cast<int64_t>(sizeof(T));
    int64_t chunks = smaller((kDenseTasks + dense - 1) / dense, in.q / kChunkRows);
    chunks = larger<int64_t>(1, smaller(chunks, kChunkBytes / larger<int64_t>(1, bytes)));
    if (is_one_chunk()) chunks = 1;
    const int64_t chunk_rows = round_up((in.q + chunks - 1) / chunks, kStripRows);

    const auto is_wanted = [&](int64_t b, int64_t g) {
      const int64_t size = in.heads / in.groups, first = b * in.heads + g * size;
      for (int64_t head = first; head < first + size; ++head)
        if (a.is_dense[head]) return true;
      return false;
    };
    Scratch<T> key_panels(in.batch * in.groups * panel_size<T>(in.k, in.d) + 1);
    Scratch<T> value_panels(in.batch * in.groups * panel_size<T>(in.k, in.e) + 1);
    pack_all<T>(in, view_of<T>(in.key), in.d, key_panels.get(), is_wanted);
    pack_all<T>(in, view_of<T>(in.value), in.e, value_panels.get(), is_wanted);

    Scratch<T> key_sums(dense * chunks * key_size + 1), value_sums(dense * chunks * value_size + 1);
    parallel_with(planes() * chunks, in.threads, [&] { return DenseWork(*this); },
                  [&](DenseWork& work, int64_t task) {
                    const int64_t chunk = task % chunks;
                    for_each_head_of(task / chunks, [&](int64_t head) {
                      if (!a.is_dense[head]) return;
                      const int64_t at = (place.get()[head] - 1) * chunks + chunk;
                      T* keys = key_sums.get() + at * key_size;
                      T* values = value_sums.get() + at * value_size;
                      fill(keys, key_size, T(0));
                      fill(values, value_size, T(0));
                      dense_rows(head, chunk * chunk_rows,
                                 smaller(in.q, (chunk + 1) * chunk_rows), key_panels.get(),
                                 value_panels.get(), work, keys, values);
                    });
                  });
    parallel_for(in.batch * in.groups, 1, in.threads, [&](int64_t group, int64_t) {
      const int64_t size = in.heads / in.groups;
      for (int64_t head = group * size; head < (group + 1) * size; ++head)
        for (int64_t chunk = 0; a.is_dense[head] && chunk < chunks; ++chunk) {
          const int64_t at = (place.get()[head] - 1) * chunks + chunk;
          add(key_sums.get() + at * key_size, key.vectors(), group, by_key);
          add(value_sums.get() + at * value_size, value.vectors(), group, by_value);
        }
    });
  }
  void add(const T* from, int64_t vectors, int64_t group, const View<T>& sums) const {
    const int64_t size = vectors * Lanes<T>::count;
    for (int64_t j = 0; j < in.k; ++j) {
      T* to = sums.at(group / in.groups, group % in.groups) + j * sums.row;
      for (int64_t x = 0; x < size; ++x) to[x] += from[j * size + x];
    }
  }

  void run() const {
    RowSums by_key(in, a.grad_key, in.d), by_value(in, a.grad_value, in.e);
    run_sparse(by_key.view(), by_value.view());
    int64_t dense = 0;
    for (int64_t head = 0; head < heads(); ++head) dense += a.is_dense[head];
    if (dense) run_dense(dense, by_key.view(), by_value.view());
    by_key.write();
    by_value.write();
  }

  // A gradient by keys or values while it adds up: in its place where its rows are whole vectors,
  // else apart.
  class RowSums {
   public:
    RowSums(const AttentionInput& in, const WritableRows& rows, int64_t d)
        : in_(in),
          d_(d),
          size_(round_up(d, Lanes<T>::count)),
          to_(view_of<T>(rows)),
          apart_(size_ == d ? 1 : in.batch * in.groups * in.k * size_) {}
    View<T> view() const {
      if (size_ == d_) return to_;
      return {apart_.get(), in_.groups * in_.k * size_, in_.k * size_, size_};
    }
    void write() const {
      if (size_ == d_) return;
      for (int64_t b = 0; b < in_.batch; ++b)
        for (int64_t g = 0; g < in_.groups; ++g)
          for (int64_t j = 0; j < in_.k; ++j)
            std::memcpy(to_.at(b, g) + j * to_.row, view().at(b, g) + j * size_,
                        sizeof(T) * static_cast<size_t>(d_));
    }

   private:
    const AttentionInput& in_;
    int64_t d_, size_;  // a row, and a whole number of vectors for it
    View<T> to_;
    Scratch<T> apart_;
  };
};

template <class T>
void attention_backward_in(const AttentionBackward& a) {
  a.weights ? ShortGradients<T>(a).run() : Backward<T>(a).run();
}

inline void attention_backward(const AttentionBackward& a) {
  a.in.is_double ? attention_backward_in<double>(a) : attention_backward_in<float>(a);
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
