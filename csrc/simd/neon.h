// NEON, which every 64-bit Arm processor has: intrinsics where the vector extensions have no word
// for an operation, or compilers translate it lane by lane.
#pragma once

#include <arm_neon.h>

#include "simd/lane_masks.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// Each true lane contributes its bit to a sum across lanes.
ADASPARSE_INLINE unsigned bits(Int32Vector m) {
  constexpr UInt32Vector bit = {1, 2, 4, 8};
  const UInt32Vector chosen = reinterpret_cast<UInt32Vector>(m) & bit;
  return vaddvq_u32(reinterpret_cast<uint32x4_t>(chosen));
}
ADASPARSE_INLINE unsigned bits(Int64Vector m) {
  constexpr UInt64Vector bit = {1, 2};
  const UInt64Vector chosen = reinterpret_cast<UInt64Vector>(m) & bit;
  return static_cast<unsigned>(vaddvq_u64(reinterpret_cast<uint64x2_t>(chosen)));
}
// Not vmaxq and vminq, which return NaN if either argument is NaN: see generic.h.
ADASPARSE_INLINE FloatVector max(FloatVector a, FloatVector b) { return a > b ? a : b; }
ADASPARSE_INLINE DoubleVector max(DoubleVector a, DoubleVector b) { return a > b ? a : b; }
ADASPARSE_INLINE FloatVector min(FloatVector a, FloatVector b) { return a < b ? a : b; }
ADASPARSE_INLINE DoubleVector min(DoubleVector a, DoubleVector b) { return a < b ? a : b; }
ADASPARSE_INLINE FloatVector sqrt(FloatVector a) {
  return reinterpret_cast<FloatVector>(vsqrtq_f32(reinterpret_cast<float32x4_t>(a)));
}
ADASPARSE_INLINE DoubleVector sqrt(DoubleVector a) {
  return reinterpret_cast<DoubleVector>(vsqrtq_f64(reinterpret_cast<float64x2_t>(a)));
}

// For every mask of four lanes, the bytes of its lanes packed to the front.
struct CompressTable {
  alignas(16) uint8_t order[16][16];
};
constexpr CompressTable make_compress_table() {
  CompressTable table{};
  for (int mask = 0; mask < 16; ++mask) {
    int at = 0;
    for (int lane = 0; lane < 4; ++lane)
      if (mask >> lane & 1)
        for (int byte = 0; byte < 4; ++byte)
          table.order[mask][at++] = static_cast<uint8_t>(4 * lane + byte);
  }
  return table;
}
inline constexpr CompressTable kCompress = make_compress_table();

// See generic.h.
template <class T>
ADASPARSE_INLINE int compress_store(T* to, Mask<T> mask, Vec<T> v) {
  const unsigned chosen = bits(mask);
  if constexpr (sizeof(T) == 4) {
    const uint8x16_t order = vld1q_u8(kCompress.order[chosen]);
    store(to, reinterpret_cast<FloatVector>(vqtbl1q_u8(reinterpret_cast<uint8x16_t>(v), order)));
  } else {
    compress_one_by_one(to, chosen, v);
  }
  return __builtin_popcount(chosen);
}
template <class T>
ADASPARSE_INLINE Vec<T> expand_load(const T* from, Mask<T> mask) {
  return expand_bits(from, bits(mask));
}
template <class M>
ADASPARSE_INLINE bool every(M m) {
  return bits(m) == (1u << (sizeof m / sizeof m[0])) - 1;
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
