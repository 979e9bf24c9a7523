// Walks over a row of numbers, a vector or two at a time.
#pragma once

#include "simd/vector.h"

namespace adasparse {
namespace ADASPARSE_ISA {

template <class T>
ADASPARSE_INLINE Vec<T> load_first(const T* from, int64_t count, T fill) {
  return count >= Lanes<T>::count ? load(from) : load_part(from, static_cast<int>(count), fill);
}
template <class T>
ADASPARSE_INLINE void store_first(T* to, Vec<T> v, int64_t count) {
  if (count >= Lanes<T>::count)
    store(to, v);
  else if (count > 0)
    store_part(to, v, static_cast<int>(count));
}

// Calls body(vector, lanes_used, offset) over a row; the last, partial vector is filled with -inf.
template <class T, class Body>
ADASPARSE_INLINE void for_each_vector(const T* row, int64_t n, const Body& body) {
  constexpr int width = Lanes<T>::count;
  int64_t j = 0;
  for (; j + width <= n; j += width) body(load(row + j), width, j);
  if (j < n)
    body(load_part(row + j, static_cast<int>(n - j), -std::numeric_limits<T>::infinity()),
         static_cast<int>(n - j), j);
}

template <class T>
int64_t count_positive(const T* row, int64_t n) {
  int64_t count = 0;
  for_each_vector(row, n, [&](Vec<T> x, int, int64_t) ADASPARSE_INLINE_BODY {
    count += __builtin_popcount(bits(greater(x, Vec<T>{})));
  });
  return count;
}

// Calls body(two, lanes_left, offset) over a row two vectors at a time, filled up with -inf.
template <class T, class Body>
ADASPARSE_INLINE void for_each_two(const T* row, int64_t n, const Body& body) {
  constexpr int width = Lanes<T>::count;
  constexpr T fill = -std::numeric_limits<T>::infinity();
  int64_t j = 0;
  for (; j + 2 * width <= n; j += 2 * width)
    body(Two<Vec<T>>{load(row + j), load(row + j + width)}, int64_t{2 * width}, j);
  if (j < n)
    body(Two<Vec<T>>{load_first(row + j, n - j, fill),
                     n - j > width ? load_first(row + j + width, n - j - width, fill)
                                   : broadcast<T>(fill)},
         n - j, j);
}
template <class T>
ADASPARSE_INLINE void store_two(T* to, const Two<Vec<T>>& x, int64_t count) {
  store_first(to, x.a, count);
  store_first(to + Lanes<T>::count, x.b, count - Lanes<T>::count);
}
template <class T>
ADASPARSE_INLINE double sum_two(const Two<Vec<T>>& x) {
  return static_cast<double>(sum_lanes<T>(x.a + x.b));
}

// Pairs of vectors that are summed in T before the sum continues in double.
constexpr int kChunkPairs = 32;

// Calls body(begin, size) for chunks of a row short enough to be summed in T.
template <class T, class Body>
ADASPARSE_INLINE void for_each_chunk(int64_t n, const Body& body) {
  constexpr int64_t chunk = int64_t{2 * kChunkPairs} * Lanes<T>::count;
  for (int64_t begin = 0; begin < n; begin += chunk) body(begin, smaller(chunk, n - begin));
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
