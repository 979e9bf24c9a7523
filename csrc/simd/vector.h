// Vectors of float and double as wide as the instruction set of the including file, and what can be
// done with them.
//
// Everything lives in a namespace named after the instruction set (ADASPARSE_ISA), so that the
// same inline function compiled three times stays three functions. Arithmetic uses the vector
// extensions of GCC and Clang; intrinsics appear only in the header of an instruction set, where
// those extensions have no word for an operation.
#pragma once

#if defined(__AVX512F__)
#include "simd/avx512.h"
#elif defined(__AVX2__)
#include "simd/avx2.h"
#elif defined(__aarch64__)
#include "simd/neon.h"
#else
#include "simd/generic.h"
#endif

namespace adasparse {
namespace ADASPARSE_ISA {

template <class M>
ADASPARSE_INLINE bool any(M m) {
  return bits(m) != 0;
}

// ---------------------------------------------------------------- across lanes

template <int Distance, class V, size_t... I>
ADASPARSE_INLINE V rotate_lanes(V v, std::index_sequence<I...>) {
  return __builtin_shufflevector(v, v, static_cast<int>((I + Distance) % sizeof...(I))...);
}
template <class T>
ADASPARSE_INLINE T sum_lanes(Vec<T> v) {
  constexpr int n = Lanes<T>::count;
  using Index = std::make_index_sequence<n>;
  if constexpr (n >= 16) v += rotate_lanes<8>(v, Index{});
  if constexpr (n >= 8) v += rotate_lanes<4>(v, Index{});
  if constexpr (n >= 4) v += rotate_lanes<2>(v, Index{});
  v += rotate_lanes<1>(v, Index{});
  return v[0];
}
template <class T>
ADASPARSE_INLINE T max_lanes(Vec<T> v) {
  constexpr int n = Lanes<T>::count;
  using Index = std::make_index_sequence<n>;
  if constexpr (n >= 16) v = max(v, rotate_lanes<8>(v, Index{}));
  if constexpr (n >= 8) v = max(v, rotate_lanes<4>(v, Index{}));
  if constexpr (n >= 4) v = max(v, rotate_lanes<2>(v, Index{}));
  v = max(v, rotate_lanes<1>(v, Index{}));
  return v[0];
}

// One butterfly of a transpose: lanes whose number has bit H set change places between a and b.
template <int H, class V, size_t... I>
ADASPARSE_INLINE void exchange(V& a, V& b, std::index_sequence<I...>) {
  constexpr int n = static_cast<int>(sizeof...(I));
  V low = __builtin_shufflevector(a, b, static_cast<int>(I & H ? n + I - H : I)...);
  V high = __builtin_shufflevector(a, b, static_cast<int>(I & H ? n + I : I + H)...);
  a = low;
  b = high;
}
template <int H, class T>
ADASPARSE_INLINE void transpose_stage(Vec<T>* rows) {
  constexpr int n = Lanes<T>::count;
  if constexpr (H < n) {
    for (int i = 0; i < n; ++i)
      if (!(i & H)) exchange<H>(rows[i], rows[i + H], std::make_index_sequence<n>{});
    transpose_stage<H * 2, T>(rows);
  }
}
template <class T>
ADASPARSE_INLINE void transpose(Vec<T>* rows) {
  transpose_stage<1, T>(rows);
}
// to[x] = column t + x of as many rows as a vector has lanes, for x < count.
template <class T>
struct ColumnLoader {
  static constexpr int count = Lanes<T>::count;
  static ADASPARSE_INLINE void load(const T* const* rows, int64_t t, Vec<T>* to) {
#pragma GCC unroll 16
    for (int i = 0; i < count; ++i) to[i] = ADASPARSE_ISA::load(rows[i] + t);
    transpose<T>(to);
  }
};

// ---------------------------------------------------------------- two at a time

// Two vectors in step. A chain of dependent operations on one vector leaves the processor idle;
// the same chain written for two fills the gaps. Every operation below maps over both.
template <class V>
struct Two {
  V a, b;
};
template <class V>
struct Element;
template <>
struct Element<FloatVector> {
  using Type = float;
};
template <>
struct Element<DoubleVector> {
  using Type = double;
};
template <class V>
struct Element<Two<V>> : Element<V> {};
template <class X>
using ElementOf = typename Element<X>::Type;

#define ADASPARSE_TWO(op)                                                 \
  template <class V>                                                      \
  ADASPARSE_INLINE Two<V> operator op(const Two<V>& x, const Two<V>& y) { \
    return {x.a op y.a, x.b op y.b};                                      \
  }                                                                       \
  template <class V>                                                      \
  ADASPARSE_INLINE Two<V> operator op(const Two<V>& x, ElementOf<V> y) {  \
    return {x.a op y, x.b op y};                                          \
  }                                                                       \
  template <class V>                                                      \
  ADASPARSE_INLINE Two<V> operator op(ElementOf<V> x, const Two<V>& y) {  \
    return {x op y.a, x op y.b};                                          \
  }
ADASPARSE_TWO(+)
ADASPARSE_TWO(-)
ADASPARSE_TWO(*)
ADASPARSE_TWO(/)
#undef ADASPARSE_TWO
template <class V>
ADASPARSE_INLINE auto greater(const Two<V>& x, const Two<V>& y) {
  return Two<decltype(greater(x.a, y.a))>{greater(x.a, y.a), greater(x.b, y.b)};
}
template <class M, class V>
ADASPARSE_INLINE Two<V> select(const Two<M>& m, const Two<V>& yes, const Two<V>& no) {
  return {select(m.a, yes.a, no.a), select(m.b, yes.b, no.b)};
}
template <class V>
ADASPARSE_INLINE Two<V> max(const Two<V>& x, const Two<V>& y) {
  return {max(x.a, y.a), max(x.b, y.b)};
}
template <class V>
ADASPARSE_INLINE Two<V> min(const Two<V>& x, const Two<V>& y) {
  return {min(x.a, y.a), min(x.b, y.b)};
}
template <class M>
ADASPARSE_INLINE bool any(const Two<M>& m) {
  return (bits(m.a) | bits(m.b)) != 0;
}
template <class M>
ADASPARSE_INLINE bool every(const Two<M>& m) {
  return every(m.a) && every(m.b);
}
// A vector, or two, with the same number in every lane.
template <class X>
ADASPARSE_INLINE void splat(ElementOf<X> x, FloatVector& to) {
  to = FloatVector{} + x;
}
template <class X>
ADASPARSE_INLINE void splat(ElementOf<X> x, DoubleVector& to) {
  to = DoubleVector{} + x;
}
template <class X, class V>
ADASPARSE_INLINE void splat(ElementOf<X> x, Two<V>& to) {
  splat<V>(x, to.a);
  splat<V>(x, to.b);
}
template <class X>
ADASPARSE_INLINE X all(ElementOf<X> x) {
  X to;
  splat<X>(x, to);
  return to;
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
