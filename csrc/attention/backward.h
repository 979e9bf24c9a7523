// Entmax attention, backward: whole weights, or the support of sparse heads and the state of dense
// ones.
#pragma once

#include "attention/backward_dense.h"
#include "attention/backward_sparse.h"
#include "attention/backward_weights.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// A gradient with respect to keys or values while it adds up: in its place where its rows are whole
// vectors of T, else apart.
template <class T>
class RowSums {
 public:
  RowSums(const AttentionInput& in, const WritableRows& rows, int64_t d)
      : in_(in),
        rows_(rows),
        d_(d),
        size_(round_up(d, Lanes<T>::count)),
        in_place_(size_ == d && is_of<T>(in.type)),
        apart_(in_place_ ? 1 : in.batch * in.groups * in.k * size_) {}
  View<T> view() const {
    if (in_place_) return view_of<T>(rows_);
    return {apart_.get(), in_.groups * in_.k * size_, in_.k * size_, size_};
  }
  void write() const {
    if (in_place_) return;
    parallel_for(in_.batch * in_.groups, 1, in_.threads, [&](int64_t i, int64_t) {
      const int64_t b = i / in_.groups, g = i % in_.groups;
      write_rows(in_, view().at(b, g), size_, in_.k, d_, rows_, b, g, 0);
    });
  }

 private:
  const AttentionInput& in_;
  WritableRows rows_;
  int64_t d_, size_;  // a row, and a whole number of vectors for it
  bool in_place_;
  Scratch<T> apart_;
};

template <class T>
void attention_backward_in(const AttentionBackward& a) {
  const AttentionInput& in = a.in;
  const BackwardRows<T> rows(a);
  if (a.weights) return WeightsBackward<T>{rows}.run();
  RowSums<T> by_key(in, a.grad_key, in.d), by_value(in, a.grad_value, in.e);
  SparseBackward<T>{rows}.run(by_key.view(), by_value.view());
  int64_t dense = 0;
  for (int64_t head = 0; head < rows.heads(); ++head) dense += a.is_dense[head];
  if (dense) DenseBackward<T>{rows}.run(dense, by_key.view(), by_value.view());
  by_key.write();
  by_value.write();
}

inline void attention_backward(const AttentionBackward& a) {
  a.in.is_double() ? attention_backward_in<double>(a) : attention_backward_in<float>(a);
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
