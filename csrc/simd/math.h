// exp, log and powers of vectors, or of two vectors in step: X is Vec<T> or Two<Vec<T>>.
//
// Every function states its range, its error in units in the last place (ULP) of the exact result,
// and its source. Errors are those that the C++ tests measure against long double
// (tests/primitive_tests.cpp). Polynomials of double are Taylor series; those of float were fitted
// to the smallest largest error on the reduced argument, by a script that was not kept: the tests
// are the proof of them.
#pragma once

#include "simd/vector.h"

namespace adasparse {
namespace ADASPARSE_ISA {

template <class X, class C>
ADASPARSE_INLINE X horner(X, C last) {
  return all<X>(last);
}
// first + x * (second + x * (...)), by Horner's rule.
template <class X, class C, class... Rest>
ADASPARSE_INLINE X horner(X x, C first, Rest... rest) {
  return x * horner(x, rest...) + first;
}

constexpr float kRound = 12582912.f;                // 1.5 * 2^23: adding it rounds to an integer
constexpr double kRoundDouble = 6755399441055744.;  // 1.5 * 2^52

// Bit patterns are added and shifted as unsigned numbers, which may wrap around.
constexpr uint32_t kRoundBits = 0x4B400000;
constexpr uint64_t kRoundDoubleBits = 0x4338000000000000;

// y * 2^k for k = shifted - kRound, with gradual underflow: two factors, since 2^k itself may be
// subnormal or just above the range. Exact where the result is a normal number.
ADASPARSE_INLINE FloatVector scale_by_power(FloatVector y, FloatVector shifted) {
  const UInt32Vector k = reinterpret_cast<UInt32Vector>(shifted) - kRoundBits;
  const UInt32Vector half = reinterpret_cast<UInt32Vector>(reinterpret_cast<Int32Vector>(k) >> 1);
  return y * reinterpret_cast<FloatVector>((half + 127) << 23) *
         reinterpret_cast<FloatVector>((k - half + 127) << 23);
}
ADASPARSE_INLINE DoubleVector scale_by_power(DoubleVector y, DoubleVector shifted) {
  const UInt64Vector k = reinterpret_cast<UInt64Vector>(shifted) - kRoundDoubleBits;
  // AVX2 has no 64-bit arithmetic shift: halve before rounding instead.
  const DoubleVector halved = (shifted - kRoundDouble) * 0.5 + kRoundDouble;
  const UInt64Vector half = reinterpret_cast<UInt64Vector>(halved) - kRoundDoubleBits;
  return y * reinterpret_cast<DoubleVector>((half + 1023) << 52) *
         reinterpret_cast<DoubleVector>((k - half + 1023) << 52);
}
// The same for a result known to be a normal number: exact.
ADASPARSE_INLINE FloatVector scale_normal(FloatVector y, FloatVector shifted) {
  return reinterpret_cast<FloatVector>(reinterpret_cast<UInt32Vector>(y) +
                                       (reinterpret_cast<UInt32Vector>(shifted) << 23));
}
ADASPARSE_INLINE DoubleVector scale_normal(DoubleVector y, DoubleVector shifted) {
  return reinterpret_cast<DoubleVector>(reinterpret_cast<UInt64Vector>(y) +
                                        (reinterpret_cast<UInt64Vector>(shifted) << 52));
}
template <class V>
ADASPARSE_INLINE Two<V> scale_by_power(const Two<V>& y, const Two<V>& shifted) {
  return {scale_by_power(y.a, shifted.a), scale_by_power(y.b, shifted.b)};
}
template <class V>
ADASPARSE_INLINE Two<V> scale_normal(const Two<V>& y, const Two<V>& shifted) {
  return {scale_normal(y.a, shifted.a), scale_normal(y.b, shifted.b)};
}

// e^x. Range: x <= 88 (709 in double); -inf gives 0, NaN stays NaN, underflow is gradual, larger x
// are garbage. Error: at most 1.5 ULP. Source: x = k log(2) + r with |r| <= log(2) / 2 and log(2)
// in two parts, as in Cephes (expf) and fdlibm (exp); e^r by a polynomial, Taylor's to r^14 in
// double, a fitted one of degree 6 in float.
template <class X>
ADASPARSE_INLINE X exp(X x) {
  using T = ElementOf<X>;
  constexpr bool is_float = sizeof(T) == 4;
  constexpr T magic = is_float ? T(kRound) : T(kRoundDouble);
  const auto is_normal = greater(x, all<X>(is_float ? T(-87) : T(-708)));
  const bool has_low = !every(is_normal);  // or NaN
  auto vanishes = is_normal;
  if (__builtin_expect(has_low, 0)) {
    // Lanes that vanish are kept out of the arithmetic, which is slow on subnormal numbers.
    vanishes = greater(all<X>(is_float ? T(-104) : T(-745.2)), x);
    x = select(vanishes, all<X>(0), x);
  }
  const X shifted = x * T(1.4426950408889634074) + magic;
  const X k = shifted - magic;
  X y;
  if constexpr (is_float) {
    X r = x - k * 0.693359375f;
    r = r + k * 2.12194440e-4f;
    const X r2 = r * r;
    const X tail = (r * 0.16666515f + 0.49999994f) +
                   r2 * ((r * 0.0083694188f + 0.041668456f) + r2 * 0.0013813142f);
    y = r2 * tail + (r + 1.f);
  } else {
    X r = x - k * 0.693147180369123816490;
    r = r - k * 1.90821492927058770002e-10;
    const X tail =
        horner(r, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040, 1. / 40320, 1. / 362880,
               1. / 3628800, 1. / 39916800, 1. / 479001600, 1. / 6227020800.);
    y = r * r * tail + (r + 1.);
  }
  if (__builtin_expect(has_low, 0)) return select(vanishes, all<X>(0), scale_by_power(y, shifted));
  return scale_normal(y, shifted);
}

// t = m * 2^k with m in [sqrt(1/2), sqrt(2)): k, and f = m - 1. `rest` must be t - 1, known to more
// digits than t where t is near 1. Range: t > 0 and normal. Exact.
ADASPARSE_INLINE void split(FloatVector t, FloatVector rest, FloatVector& k, FloatVector& f) {
  const UInt32Vector raw = reinterpret_cast<UInt32Vector>(t);
  const Int32Vector exponent = reinterpret_cast<Int32Vector>(raw - 0x3F3504F3u) >> 23;
  const UInt32Vector moved = raw - (reinterpret_cast<UInt32Vector>(exponent) << 23);
  k = __builtin_convertvector(exponent, FloatVector);
  f = exponent == 0 ? rest : reinterpret_cast<FloatVector>(moved) - 1.f;
}
ADASPARSE_INLINE void split(DoubleVector t, DoubleVector rest, DoubleVector& k, DoubleVector& f) {
  const UInt64Vector raw = reinterpret_cast<UInt64Vector>(t);
  // AVX2 has no 64-bit arithmetic shift: 0x400 is added to the exponent first and taken off after.
  const UInt64Vector biased = (raw - 0x3FE6A09E667F3BCDu + 0x4000000000000000u) >> 52;
  const UInt64Vector exponent = biased - 0x400u;
  k = reinterpret_cast<DoubleVector>(exponent + kRoundDoubleBits) - kRoundDouble;
  const UInt64Vector moved = raw - (exponent << 52);
  f = exponent == 0 ? rest : reinterpret_cast<DoubleVector>(moved) - 1.;
}
template <class V>
ADASPARSE_INLINE void split(const Two<V>& t, const Two<V>& rest, Two<V>& k, Two<V>& f) {
  split(t.a, rest.a, k.a, f.a);
  split(t.b, rest.b, k.b, f.b);
}

// log(t); `rest` as for split. Range: t > 0 and normal; other lanes hold garbage. Error: at most 3
// ULP. Source: log(t) = k log(2) + log(1 + f) with log(2) in two parts, as in Cephes (logf) and
// fdlibm (log); log(1 + f) by a fitted polynomial of degree 10 in float, by the series of 2
// atanh(s), s = f / (2 + f), to s^21 in double.
template <class X>
ADASPARSE_INLINE X log_with_rest(X t, X rest) {
  X k, f;
  split(t, rest, k, f);
  if constexpr (sizeof(ElementOf<X>) == 4) {
    const X f2 = f * f;
    const X low = (f * -0.25000823f + 0.33333331f) + f2 * (f * -0.16623357f + 0.20001227f);
    const X high = (f * -0.13160194f + 0.14201762f) + f2 * (f * -0.0763443f + 0.1276155f);
    const X tail = low + f2 * f2 * high;
    return (k * 0.693359375f + f) + (k * -2.12194440e-4f + f2 * (f * tail - 0.5f));
  } else {
    // log(1 + f) = 2 atanh(s) with s = f / (2 + f); 2s = f - s f keeps the leading term exact.
    const X s = f / (2. + f);
    const X z = s * s;
    const X tail = horner(z, 1. / 3, 1. / 5, 1. / 7, 1. / 9, 1. / 11, 1. / 13, 1. / 15, 1. / 17,
                          1. / 19, 1. / 21);
    return k * 0.693147180369123816490 +
           (f + (k * 1.90821492927058770002e-10 + s * (2. * z * tail - f)));
  }
}
// log(1 + x). Range: 1 + x > 0. Error: at most 3 ULP, near x = 0, too. Source: log_with_rest.
template <class X>
ADASPARSE_INLINE X log1p_positive(X x) {
  return log_with_rest<X>(x + ElementOf<X>(1), x);
}
// log(x). Range: x > 0 and normal. Error: at most 3 ULP. Source: log_with_rest.
template <class X>
ADASPARSE_INLINE X log_positive(X x) {
  return log_with_rest<X>(x, x - ElementOf<X>(1));
}

#if defined(__AVX512F__)
// t^power for t > 0 and rest = t - 1, as for split, and log(t). The exponent has instructions of
// its own here, which take less time than the arithmetic in power_of_1p. Source: fitted
// polynomials, of degree 10 for log(1 + f) with -1/4 <= f < 1/2, and of degree 6 for 2^r with |r|
// <= 1/2.
ADASPARSE_INLINE FloatVector power_by_exponent(FloatVector t, FloatVector rest, float power,
                                               FloatVector& log_t) {
  FloatVector k, m;
  split_exponent(t, k, m);
  const FloatVector f = k == 0 ? rest : m - 1.f;
  const FloatVector f2 = f * f;
  const FloatVector low =
      (f * -0.250001949f + 0.33333442f) + f2 * (f * -0.166439388f + 0.199913499f);
  const FloatVector high =
      (f * -0.131824514f + 0.144645971f) + f2 * (f * -0.046309364f + 0.105912526f);
  const FloatVector log = f + f2 * (f * (low + f2 * f2 * high) - 0.5f);
  const FloatVector binary = log * 1.44269504f + k, y = binary * power;
  log_t = binary * 0.693147181f;
  const FloatVector whole = nearest(y), r = y - whole, r2 = r * r;
  const FloatVector tail = (r * 0.0555036036f + 0.240226478f) +
                           r2 * ((r * 0.00133912959f + 0.00961854215f) + r2 * 0.00015319523f);
  return scale_exponent(r2 * tail + (r * 0.693147181f + 1.f), whole);
}
ADASPARSE_INLINE Two<FloatVector> power_by_exponent(const Two<FloatVector>& t,
                                                    const Two<FloatVector>& rest, float power,
                                                    Two<FloatVector>& log_t) {
  return {power_by_exponent(t.a, rest.a, power, log_t.a),
          power_by_exponent(t.b, rest.b, power, log_t.b)};
}
constexpr bool kSplitsExponents = true;
#else
constexpr bool kSplitsExponents = false;
template <class X>
X power_by_exponent(X t, X, float, X&);  // not there
#endif

// (1 + x)^power. Range: 1 + x > 0, power > 0 and a result up to 2^127; underflow is gradual. Error:
// at most 2 + 4 |log of the result| ULP, where the result is normal: that of exp(power * log1p(x)).
// Source: the polynomials of log_with_rest and, in float, a fitted one of degree 6 for 2^r.
template <class X>
ADASPARSE_INLINE X power_of_1p(X x, ElementOf<X> power) {
  using T = ElementOf<X>;
  if constexpr (sizeof(T) == 8) {
    return exp<X>(log1p_positive<X>(x) * power);
  } else if constexpr (kSplitsExponents) {
    X log;
    return power_by_exponent(x + 1.f, x, power, log);
  } else {
    // In base two no multiple of log(2) has to be added and taken off again.
    X k, f;
    split(x + 1.f, x, k, f);
    const X f2 = f * f;
    const X low = (f * -0.25000823f + 0.33333331f) + f2 * (f * -0.16623357f + 0.20001227f);
    const X high = (f * -0.13160194f + 0.14201762f) + f2 * (f * -0.0763443f + 0.1276155f);
    const X log = f + f2 * (f * (low + f2 * f2 * high) - 0.5f);
    X y = (log * 1.44269504f + k) * power;
    const auto is_normal = greater(y, all<X>(-125.f));
    const bool has_low = !every(is_normal);  // or NaN
    auto vanishes = is_normal;
    if (__builtin_expect(has_low, 0)) {
      vanishes = greater(all<X>(-150.f), y);
      y = select(vanishes, all<X>(0), y);
    }
    const X shifted = y + kRound;
    const X r = y - (shifted - kRound);
    const X r2 = r * r;
    const X tail = (r * 0.0555036036f + 0.240226478f) +
                   r2 * ((r * 0.00133912959f + 0.00961854215f) + r2 * 0.00015319523f);
    const X result = r2 * tail + (r * 0.693147181f + 1.f);
    if (__builtin_expect(has_low, 0))
      return select(vanishes, all<X>(0), scale_by_power(result, shifted));
    return scale_normal(result, shifted);
  }
}

// x^power, and log(x) on the way to it. Range: x > 0 and normal, 0 < power < 1. Error: at most
// 2 + 4 |log of the result| ULP, and 3 ULP.
template <class X>
ADASPARSE_INLINE X power_of(X x, ElementOf<X> power, X& log_x) {
  if constexpr (kSplitsExponents && sizeof(ElementOf<X>) == 4) {
    return power_by_exponent(x, x - 1.f, power, log_x);
  } else {
    log_x = log_positive(x);
    return exp<X>(log_x * power);
  }
}

// e^x, roughly: for a first guess. Range: -80 <= x <= 0; smaller x give about 0. Error: at most 4%
// in float; exp in double. Source: Schraudolph, "A fast, compact approximation of the exponential
// function" (1999): x log2(e) in the bits of the exponent, shifted for the smallest relative error.
ADASPARSE_INLINE FloatVector rough_exp(FloatVector x) {
  const FloatVector scaled = max(x * 12102203.f + 1064866816.f, FloatVector{});
  return reinterpret_cast<FloatVector>(__builtin_convertvector(scaled, Int32Vector));
}
ADASPARSE_INLINE DoubleVector rough_exp(DoubleVector x) { return exp(x); }

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
