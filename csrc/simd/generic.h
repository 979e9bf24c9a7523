// Any processor, by the vector extensions of GCC and Clang alone. Comments here hold for avx512.h,
// avx2.h and neon.h, too, which offer the same functions.
#pragma once

#include "simd/lane_masks.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// A bit per lane, the first lane lowest.
template <class M>
ADASPARSE_INLINE unsigned bits(M m) {
  unsigned out = 0;
  for (size_t i = 0; i < sizeof m / sizeof m[0]; ++i) out |= (m[i] ? 1u : 0u) << i;
  return out;
}
// max and min return their second argument if either is NaN.
ADASPARSE_INLINE FloatVector max(FloatVector a, FloatVector b) { return a > b ? a : b; }
ADASPARSE_INLINE DoubleVector max(DoubleVector a, DoubleVector b) { return a > b ? a : b; }
ADASPARSE_INLINE FloatVector min(FloatVector a, FloatVector b) { return a < b ? a : b; }
ADASPARSE_INLINE DoubleVector min(DoubleVector a, DoubleVector b) { return a < b ? a : b; }
template <class V>
ADASPARSE_INLINE V sqrt(V a) {
  for (size_t i = 0; i < sizeof a / sizeof a[0]; ++i) a[i] = std::sqrt(a[i]);
  return a;
}

// Writes the chosen lanes next to each other and returns how many; a whole vector is written.
template <class T>
ADASPARSE_INLINE int compress_store(T* to, Mask<T> mask, Vec<T> v) {
  const unsigned chosen = bits(mask);
  compress_one_by_one(to, chosen, v);
  return __builtin_popcount(chosen);
}
// The way back: the chosen lanes hold the numbers from `from` on, the others zero.
template <class T>
ADASPARSE_INLINE Vec<T> expand_load(const T* from, Mask<T> mask) {
  return expand_bits(from, bits(mask));
}
// Whether every lane is chosen.
template <class M>
ADASPARSE_INLINE bool every(M m) {
  return bits(m) == (1u << (sizeof m / sizeof m[0])) - 1;
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
