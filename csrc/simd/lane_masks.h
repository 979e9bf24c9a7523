// Comparisons without a register of masks, AVX2, NEON and the baseline: a mask is a vector with all
// bits of its true lanes set.
#pragma once

#include "simd/lanes.h"

namespace adasparse {
namespace ADASPARSE_ISA {

template <class T>
using Mask = IntVec<T>;

ADASPARSE_INLINE Int32Vector greater(FloatVector a, FloatVector b) { return a > b; }
ADASPARSE_INLINE Int64Vector greater(DoubleVector a, DoubleVector b) { return a > b; }
// a > b, or one of them is NaN
ADASPARSE_INLINE Int32Vector greater_or_nan(FloatVector a, FloatVector b) { return ~(a <= b); }
ADASPARSE_INLINE Int64Vector greater_or_nan(DoubleVector a, DoubleVector b) { return ~(a <= b); }
ADASPARSE_INLINE Int32Vector is_nan(FloatVector a) { return a != a; }
ADASPARSE_INLINE Int64Vector is_nan(DoubleVector a) { return a != a; }
ADASPARSE_INLINE FloatVector select(Int32Vector m, FloatVector yes, FloatVector no) {
  return m ? yes : no;
}
ADASPARSE_INLINE DoubleVector select(Int64Vector m, DoubleVector yes, DoubleVector no) {
  return m ? yes : no;
}
template <class T>
ADASPARSE_INLINE Mask<T> first_lanes(int count) {
  IntVec<T> lane{};
  for (int i = 0; i < Lanes<T>::count; ++i) lane[i] = i;
  return lane < static_cast<typename Lanes<T>::Int>(count);
}

// The chosen lanes hold the numbers from `from` on, one after the other; the others are zero.
template <class T>
ADASPARSE_INLINE Vec<T> expand_bits(const T* from, unsigned chosen) {
  Vec<T> v{};
  for (int i = 0; i < Lanes<T>::count; ++i)
    if (chosen >> i & 1) v[i] = *from++;
  return v;
}
// Writes the chosen lanes next to each other, one at a time.
template <class T>
ADASPARSE_INLINE void compress_one_by_one(T* to, unsigned chosen, Vec<T> v) {
  int at = 0;
  for (int i = 0; i < Lanes<T>::count; ++i) {
    to[at] = v[i];
    at += chosen >> i & 1;
  }
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
