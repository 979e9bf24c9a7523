// AVX-512: a mask is a bit per lane.
#pragma once

#include <immintrin.h>

#include "simd/lanes.h"

namespace adasparse {
namespace ADASPARSE_ISA {

template <class T>
struct MaskOf;
template <>
struct MaskOf<float> {
  using Type = __mmask16;
};
template <>
struct MaskOf<double> {
  using Type = __mmask8;
};
template <class T>
using Mask = typename MaskOf<T>::Type;

ADASPARSE_INLINE __mmask16 greater(FloatVector a, FloatVector b) {
  return _mm512_cmp_ps_mask(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), _CMP_GT_OQ);
}
ADASPARSE_INLINE __mmask8 greater(DoubleVector a, DoubleVector b) {
  return _mm512_cmp_pd_mask(reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b), _CMP_GT_OQ);
}
// a > b, or one of them is NaN
ADASPARSE_INLINE __mmask16 greater_or_nan(FloatVector a, FloatVector b) {
  return _mm512_cmp_ps_mask(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), _CMP_NLE_UQ);
}
ADASPARSE_INLINE __mmask8 greater_or_nan(DoubleVector a, DoubleVector b) {
  return _mm512_cmp_pd_mask(reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b),
                            _CMP_NLE_UQ);
}
ADASPARSE_INLINE __mmask16 is_nan(FloatVector a) {
  return _mm512_cmp_ps_mask(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(a), _CMP_UNORD_Q);
}
ADASPARSE_INLINE __mmask8 is_nan(DoubleVector a) {
  return _mm512_cmp_pd_mask(reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(a),
                            _CMP_UNORD_Q);
}
ADASPARSE_INLINE FloatVector select(__mmask16 m, FloatVector yes, FloatVector no) {
  return reinterpret_cast<FloatVector>(
      _mm512_mask_blend_ps(m, reinterpret_cast<__m512>(no), reinterpret_cast<__m512>(yes)));
}
ADASPARSE_INLINE DoubleVector select(__mmask8 m, DoubleVector yes, DoubleVector no) {
  return reinterpret_cast<DoubleVector>(
      _mm512_mask_blend_pd(m, reinterpret_cast<__m512d>(no), reinterpret_cast<__m512d>(yes)));
}
template <class M>
ADASPARSE_INLINE unsigned bits(M m) {
  return m;
}
template <class T>
ADASPARSE_INLINE Mask<T> first_lanes(int count) {
  return static_cast<Mask<T>>((1u << count) - 1);
}
ADASPARSE_INLINE FloatVector max(FloatVector a, FloatVector b) {
  return reinterpret_cast<FloatVector>(
      _mm512_max_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
}
ADASPARSE_INLINE DoubleVector max(DoubleVector a, DoubleVector b) {
  return reinterpret_cast<DoubleVector>(
      _mm512_max_pd(reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b)));
}
ADASPARSE_INLINE FloatVector min(FloatVector a, FloatVector b) {
  return reinterpret_cast<FloatVector>(
      _mm512_min_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
}
ADASPARSE_INLINE DoubleVector min(DoubleVector a, DoubleVector b) {
  return reinterpret_cast<DoubleVector>(
      _mm512_min_pd(reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b)));
}
ADASPARSE_INLINE FloatVector sqrt(FloatVector a) {
  return reinterpret_cast<FloatVector>(_mm512_sqrt_ps(reinterpret_cast<__m512>(a)));
}
ADASPARSE_INLINE DoubleVector sqrt(DoubleVector a) {
  return reinterpret_cast<DoubleVector>(_mm512_sqrt_pd(reinterpret_cast<__m512d>(a)));
}
template <class M>
ADASPARSE_INLINE bool every(M m) {
  return m == static_cast<M>(~M{});
}

// a = m * 2^k with m in [3/4, 3/2): k and m. Exact for every a > 0.
ADASPARSE_INLINE void split_exponent(FloatVector a, FloatVector& k, FloatVector& m) {
  const __m512 x = reinterpret_cast<__m512>(a), one = _mm512_set1_ps(1);
  const __m512 mantissa = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src);
  const __m512 exponent = _mm512_getexp_ps(x);  // one too low where the mantissa is below 1
  const __mmask16 is_halved = _mm512_cmp_ps_mask(mantissa, one, _CMP_LT_OQ);
  k = reinterpret_cast<FloatVector>(_mm512_mask_add_ps(exponent, is_halved, exponent, one));
  m = reinterpret_cast<FloatVector>(mantissa);
}
// The nearest whole number, and a * 2^k for a whole k, with gradual underflow.
ADASPARSE_INLINE FloatVector nearest(FloatVector a) {
  return reinterpret_cast<FloatVector>(_mm512_roundscale_ps(
      reinterpret_cast<__m512>(a), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
ADASPARSE_INLINE FloatVector scale_exponent(FloatVector a, FloatVector k) {
  return reinterpret_cast<FloatVector>(
      _mm512_scalef_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(k)));
}

// See generic.h.
template <class T>
ADASPARSE_INLINE int compress_store(T* to, Mask<T> mask, Vec<T> v) {
  const unsigned chosen = bits(mask);
  if constexpr (sizeof(T) == 4)
    store(to, reinterpret_cast<FloatVector>(
                  _mm512_maskz_compress_ps(mask, reinterpret_cast<__m512>(v))));
  else
    store(to, reinterpret_cast<DoubleVector>(
                  _mm512_maskz_compress_pd(mask, reinterpret_cast<__m512d>(v))));
  return __builtin_popcount(chosen);
}
// See vector.h. Quarters of the result come straight from memory, so that only 4 x 4 numbers are
// left to transpose.
template <>
struct ColumnLoader<float> {
  static constexpr int count = 4;
  static ADASPARSE_INLINE void load(const float* const* rows, int64_t t, FloatVector* to) {
    __m512 quads[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      quads[i] = _mm512_castps128_ps512(_mm_loadu_ps(rows[i] + t));
      quads[i] = _mm512_mask_broadcast_f32x4(quads[i], 0x00F0, _mm_loadu_ps(rows[4 + i] + t));
      quads[i] = _mm512_mask_broadcast_f32x4(quads[i], 0x0F00, _mm_loadu_ps(rows[8 + i] + t));
      quads[i] = _mm512_mask_broadcast_f32x4(quads[i], 0xF000, _mm_loadu_ps(rows[12 + i] + t));
    }
    const __m512 low01 = _mm512_unpacklo_ps(quads[0], quads[1]);
    const __m512 low23 = _mm512_unpacklo_ps(quads[2], quads[3]);
    const __m512 high01 = _mm512_unpackhi_ps(quads[0], quads[1]);
    const __m512 high23 = _mm512_unpackhi_ps(quads[2], quads[3]);
    to[0] = reinterpret_cast<FloatVector>(_mm512_shuffle_ps(low01, low23, 0x44));
    to[1] = reinterpret_cast<FloatVector>(_mm512_shuffle_ps(low01, low23, 0xEE));
    to[2] = reinterpret_cast<FloatVector>(_mm512_shuffle_ps(high01, high23, 0x44));
    to[3] = reinterpret_cast<FloatVector>(_mm512_shuffle_ps(high01, high23, 0xEE));
  }
};
template <class T>
ADASPARSE_INLINE Vec<T> expand_load(const T* from, Mask<T> mask) {
  if constexpr (sizeof(T) == 4)
    return reinterpret_cast<FloatVector>(_mm512_maskz_expandloadu_ps(mask, from));
  else
    return reinterpret_cast<DoubleVector>(_mm512_maskz_expandloadu_pd(mask, from));
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
