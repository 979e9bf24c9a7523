// Entmax attention, backward: whole weights, or the support of sparse heads and the state of dense
// ones.
#pragma once

#include "attention/backward_dense.h"
#include "attention/backward_sparse.h"
#include "attention/backward_weights.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// A gradient with respect to keys or values while it adds up: in its place where its rows are whole
// vectors, else apart.
template <class T>
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
  a.in.is_double ? attention_backward_in<double>(a) : attention_backward_in<float>(a);
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
