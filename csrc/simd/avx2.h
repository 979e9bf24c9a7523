// AVX2: intrinsics where the vector extensions have no word for an operation.
#pragma once

#include <immintrin.h>

#include "simd/lane_masks.h"

namespace adasparse {
namespace ADASPARSE_ISA {

ADASPARSE_INLINE unsigned bits(Int32Vector m) {
  return static_cast<unsigned>(_mm256_movemask_ps(reinterpret_cast<__m256>(m)));
}
ADASPARSE_INLINE unsigned bits(Int64Vector m) {
  return static_cast<unsigned>(_mm256_movemask_pd(reinterpret_cast<__m256d>(m)));
}
ADASPARSE_INLINE FloatVector max(FloatVector a, FloatVector b) {
  return reinterpret_cast<FloatVector>(
      _mm256_max_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
}
ADASPARSE_INLINE DoubleVector max(DoubleVector a, DoubleVector b) {
  return reinterpret_cast<DoubleVector>(
      _mm256_max_pd(reinterpret_cast<__m256d>(a), reinterpret_cast<__m256d>(b)));
}
ADASPARSE_INLINE FloatVector min(FloatVector a, FloatVector b) {
  return reinterpret_cast<FloatVector>(
      _mm256_min_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
}
ADASPARSE_INLINE DoubleVector min(DoubleVector a, DoubleVector b) {
  return reinterpret_cast<DoubleVector>(
      _mm256_min_pd(reinterpret_cast<__m256d>(a), reinterpret_cast<__m256d>(b)));
}
ADASPARSE_INLINE FloatVector sqrt(FloatVector a) {
  return reinterpret_cast<FloatVector>(_mm256_sqrt_ps(reinterpret_cast<__m256>(a)));
}
ADASPARSE_INLINE DoubleVector sqrt(DoubleVector a) {
  return reinterpret_cast<DoubleVector>(_mm256_sqrt_pd(reinterpret_cast<__m256d>(a)));
}

// For every mask of eight lanes, a byte each: the numbers of its lanes packed to the front, and the
// place of each of its lanes among them.
struct CompressTable {
  uint64_t order[256], place[256];
};
constexpr CompressTable make_compress_table() {
  CompressTable table{};
  for (int mask = 0; mask < 256; ++mask) {
    uint64_t order = 0, place = 0;
    int at = 0;
    for (int lane = 0; lane < 8; ++lane)
      if (mask >> lane & 1) {
        place |= static_cast<uint64_t>(at) << (8 * lane);
        order |= static_cast<uint64_t>(lane) << (8 * at++);
      }
    table.order[mask] = order;
    table.place[mask] = place;
  }
  return table;
}
ADASPARSE_INLINE __m256i widen_bytes(const uint64_t& bytes) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(&bytes)));
}
inline constexpr CompressTable kCompress = make_compress_table();

// See generic.h.
template <class T>
ADASPARSE_INLINE int compress_store(T* to, Mask<T> mask, Vec<T> v) {
  const unsigned chosen = bits(mask);
  if constexpr (sizeof(T) == 4) {
    store(to, reinterpret_cast<FloatVector>(_mm256_permutevar8x32_ps(
                  reinterpret_cast<__m256>(v), widen_bytes(kCompress.order[chosen]))));
  } else {
    compress_one_by_one(to, chosen, v);
  }
  return __builtin_popcount(chosen);
}
template <class T>
ADASPARSE_INLINE Vec<T> expand_load(const T* from, Mask<T> mask) {
  const unsigned chosen = bits(mask);
  if constexpr (sizeof(T) == 4) {
    const Mask<float> first = first_lanes<float>(__builtin_popcount(chosen));
    const __m256 packed = _mm256_maskload_ps(from, reinterpret_cast<__m256i>(first));
    const __m256 placed = _mm256_permutevar8x32_ps(packed, widen_bytes(kCompress.place[chosen]));
    return reinterpret_cast<FloatVector>(_mm256_and_ps(placed, reinterpret_cast<__m256>(mask)));
  } else {
    return expand_bits(from, chosen);
  }
}
template <class M>
ADASPARSE_INLINE bool every(M m) {
  return bits(m) == (1u << (sizeof m / sizeof m[0])) - 1;
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
