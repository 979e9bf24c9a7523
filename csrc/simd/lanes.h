// Types of vectors as wide as the instruction set of the including file, their loads and stores.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#define ADASPARSE_INLINE inline __attribute__((always_inline))
#define ADASPARSE_INLINE_BODY __attribute__((always_inline))  // for the body of a hot loop

namespace adasparse {
namespace ADASPARSE_ISA {

// Of our own, since a std:: inline compiled for one instruction set may be linked into another.
template <class N>
ADASPARSE_INLINE N smaller(N a, N b) {
  return a < b ? a : b;
}
template <class N>
ADASPARSE_INLINE N larger(N a, N b) {
  return a > b ? a : b;
}
ADASPARSE_INLINE int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
template <class N>
ADASPARSE_INLINE void fill(N* to, int64_t count, N value) {
  for (int64_t i = 0; i < count; ++i) to[i] = value;
}

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

// Unaligned versions exist for loads and stores through pointers of any alignment.
typedef float FloatVector __attribute__((vector_size(kVectorBytes)));
typedef double DoubleVector __attribute__((vector_size(kVectorBytes)));
typedef int32_t Int32Vector __attribute__((vector_size(kVectorBytes)));
typedef int64_t Int64Vector __attribute__((vector_size(kVectorBytes)));
typedef uint32_t UInt32Vector __attribute__((vector_size(kVectorBytes)));
typedef uint64_t UInt64Vector __attribute__((vector_size(kVectorBytes)));

template <class T>
struct Lanes;
template <>
struct Lanes<float> {
  using Vector = FloatVector;
  using Int = int32_t;
  using IntVector = Int32Vector;
  static constexpr int count = kVectorBytes / 4;
};
template <>
struct Lanes<double> {
  using Vector = DoubleVector;
  using Int = int64_t;
  using IntVector = Int64Vector;
  static constexpr int count = kVectorBytes / 8;
};
template <class T>
using Vec = typename Lanes<T>::Vector;
template <class T>
using IntVec = typename Lanes<T>::IntVector;

template <class T>
ADASPARSE_INLINE Vec<T> load(const T* from) {
  Vec<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <class T, class V>
ADASPARSE_INLINE void store(T* to, V v) {
  static_assert(sizeof v == kVectorBytes, "one whole vector");
  std::memcpy(to, &v, sizeof v);
}
// The first `count` lanes from memory, the others `fill`.
template <class T>
ADASPARSE_INLINE Vec<T> load_part(const T* from, int count, T fill) {
  T buffer[Lanes<T>::count];
  for (int i = 0; i < Lanes<T>::count; ++i) buffer[i] = i < count ? from[i] : fill;
  return load(buffer);
}
template <class T>
ADASPARSE_INLINE void store_part(T* to, Vec<T> v, int count) {
  std::memcpy(to, &v, sizeof(T) * static_cast<size_t>(count));
}
// Some columns of rows anywhere in memory, one row per lane: see vector.h.
template <class T>
struct ColumnLoader;

template <class T>
ADASPARSE_INLINE Vec<T> broadcast(T x) {
  return Vec<T>{} + x;
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
