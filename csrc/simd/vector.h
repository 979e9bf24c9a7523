// Vectors of float and double as wide as the instruction set of the including file.
//
// Everything lives in a namespace named after the instruction set (ADASPARSE_ISA), so that the
// same inline function compiled three times stays three functions. Arithmetic uses the vector
// extensions of GCC and Clang; intrinsics appear only where those have no word for the operation.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

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
template <class T>
ADASPARSE_INLINE Vec<T> broadcast(T x) {
  return Vec<T>{} + x;
}

// A mask is a bit per lane on AVX-512 and a whole lane of ones elsewhere. max and min return their
// second argument if either is NaN.
#if defined(__AVX512F__)
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
  return _mm512_cmp_pd_mask(reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b),
                            _CMP_GT_OQ);
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
  return _mm512_cmp_ps_mask(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(a),
                            _CMP_UNORD_Q);
}
ADASPARSE_INLINE __mmask8 is_nan(DoubleVector a) {
  return _mm512_cmp_pd_mask(reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(a),
                            _CMP_UNORD_Q);
}
ADASPARSE_INLINE FloatVector select(__mmask16 m, FloatVector yes, FloatVector no) {
  return reinterpret_cast<FloatVector>(_mm512_mask_blend_ps(m, reinterpret_cast<__m512>(no),
                                                            reinterpret_cast<__m512>(yes)));
}
ADASPARSE_INLINE DoubleVector select(__mmask8 m, DoubleVector yes, DoubleVector no) {
  return reinterpret_cast<DoubleVector>(_mm512_mask_blend_pd(
      m, reinterpret_cast<__m512d>(no), reinterpret_cast<__m512d>(yes)));
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
#else
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
#if defined(__AVX2__)
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
#else
template <class M>
ADASPARSE_INLINE unsigned bits(M m) {
  unsigned out = 0;
  for (size_t i = 0; i < sizeof m / sizeof m[0]; ++i) out |= (m[i] ? 1u : 0u) << i;
  return out;
}
ADASPARSE_INLINE FloatVector max(FloatVector a, FloatVector b) { return a > b ? a : b; }
ADASPARSE_INLINE DoubleVector max(DoubleVector a, DoubleVector b) { return a > b ? a : b; }
ADASPARSE_INLINE FloatVector min(FloatVector a, FloatVector b) { return a < b ? a : b; }
ADASPARSE_INLINE DoubleVector min(DoubleVector a, DoubleVector b) { return a < b ? a : b; }
template <class V>
ADASPARSE_INLINE V sqrt(V a) {
  for (size_t i = 0; i < sizeof a / sizeof a[0]; ++i) a[i] = std::sqrt(a[i]);
  return a;
}
#endif
template <class T>
ADASPARSE_INLINE Mask<T> first_lanes(int count) {
  IntVec<T> lane{};
  for (int i = 0; i < Lanes<T>::count; ++i) lane[i] = i;
  return lane < static_cast<typename Lanes<T>::Int>(count);
}
#endif

template <class M>
ADASPARSE_INLINE bool any(M m) {
  return bits(m) != 0;
}
#if defined(__AVX512F__)
template <class M>
ADASPARSE_INLINE bool every(M m) {
  return m == static_cast<M>(~M{});
}
#else
template <class M>
ADASPARSE_INLINE bool every(M m) {
  return bits(m) == (1u << (sizeof m / sizeof m[0])) - 1;
}
#endif

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

// ---------------------------------------------------------------- compress

#if defined(__AVX2__) && !defined(__AVX512F__)
// For every mask of eight lanes, the numbers of its lanes packed to the front, a byte each.
struct CompressTable {
  uint64_t order[256];
};
constexpr CompressTable make_compress_table() {
  CompressTable table{};
  for (int mask = 0; mask < 256; ++mask) {
    uint64_t order = 0;
    int at = 0;
    for (int lane = 0; lane < 8; ++lane)
      if (mask >> lane & 1) order |= static_cast<uint64_t>(lane) << (8 * at++);
    table.order[mask] = order;
  }
  return table;
}
inline constexpr CompressTable kCompress = make_compress_table();
#endif

// Writes the chosen lanes next to each other and returns how many; a whole vector is written.
template <class T>
ADASPARSE_INLINE int compress_store(T* to, Mask<T> mask, Vec<T> v) {
  const unsigned chosen = bits(mask);
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    store(to, reinterpret_cast<FloatVector>(
                  _mm512_maskz_compress_ps(mask, reinterpret_cast<__m512>(v))));
  else
    store(to, reinterpret_cast<DoubleVector>(
                  _mm512_maskz_compress_pd(mask, reinterpret_cast<__m512d>(v))));
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) {
    const __m256i order = _mm256_cvtepu8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(&kCompress.order[chosen])));
    store(to, reinterpret_cast<FloatVector>(
                  _mm256_permutevar8x32_ps(reinterpret_cast<__m256>(v), order)));
  } else {
    int at = 0;
    for (int i = 0; i < Lanes<T>::count; ++i) {
      to[at] = v[i];
      at += chosen >> i & 1;
    }
  }
#else
  int at = 0;
  for (int i = 0; i < Lanes<T>::count; ++i) {
    to[at] = v[i];
    at += chosen >> i & 1;
  }
#endif
  return __builtin_popcount(chosen);
}

// The chosen lanes hold the numbers from `from` on, one after the other, the others zero.
template <class T>
ADASPARSE_INLINE Vec<T> expand_load(const T* from, Mask<T> mask) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    return reinterpret_cast<FloatVector>(_mm512_maskz_expandloadu_ps(mask, from));
  else
    return reinterpret_cast<DoubleVector>(_mm512_maskz_expandloadu_pd(mask, from));
#else
  const unsigned chosen = bits(mask);
  Vec<T> v{};
  for (int i = 0; i < Lanes<T>::count; ++i)
    if (chosen >> i & 1) v[i] = *from++;
  return v;
#endif
}

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

#define ADASPARSE_TWO(op)                                                  \
  template <class V>                                                       \
  ADASPARSE_INLINE Two<V> operator op(const Two<V>& x, const Two<V>& y) {  \
    return {x.a op y.a, x.b op y.b};                                       \
  }                                                                        \
  template <class V>                                                       \
  ADASPARSE_INLINE Two<V> operator op(const Two<V>& x, ElementOf<V> y) {   \
    return {x.a op y, x.b op y};                                           \
  }                                                                        \
  template <class V>                                                       \
  ADASPARSE_INLINE Two<V> operator op(ElementOf<V> x, const Two<V>& y) {   \
    return {x op y.a, x op y.b};                                           \
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

// ---------------------------------------------------------------- exp, log

template <class X, class C>
ADASPARSE_INLINE X horner(X, C last) {
  return all<X>(last);
}
// first + x * (second + x * (...))
template <class X, class C, class... Rest>
ADASPARSE_INLINE X horner(X x, C first, Rest... rest) {
  return x * horner(x, rest...) + first;
}

constexpr float kRound = 12582912.f;           // 1.5 * 2^23: adding it rounds to an integer
constexpr double kRoundDouble = 6755399441055744.;  // 1.5 * 2^52

// Bit patterns are added and shifted as unsigned numbers, which may wrap around.
constexpr uint32_t kRoundBits = 0x4B400000;
constexpr uint64_t kRoundDoubleBits = 0x4338000000000000;

// y * 2^k for k = shifted - kRound, with gradual underflow: two factors, since 2^k itself may be
// subnormal or just above the range.
ADASPARSE_INLINE FloatVector scale_by_power(FloatVector y, FloatVector shifted) {
  const UInt32Vector k = reinterpret_cast<UInt32Vector>(shifted) - kRoundBits;
  const UInt32Vector half =
      reinterpret_cast<UInt32Vector>(reinterpret_cast<Int32Vector>(k) >> 1);
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
// The same for a result known to be a normal number.
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

// e^x to about one unit in the last place for x up to 88 (709 in double), with gradual underflow;
// -inf gives 0, NaN stays NaN.
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
    const X tail = horner(r, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040, 1. / 40320,
                          1. / 362880, 1. / 3628800, 1. / 39916800, 1. / 479001600,
                          1. / 6227020800.);
    y = r * r * tail + (r + 1.);
  }
  if (__builtin_expect(has_low, 0)) return select(vanishes, all<X>(0), scale_by_power(y, shifted));
  return scale_normal(y, shifted);
}

// t = m * 2^k with m in [sqrt(1/2), sqrt(2)): k, and m - 1. `rest` must be t - 1, known to more
// digits than t where t is near 1.
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

// log(t) for t > 0; other lanes hold garbage. `rest` as for split.
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
// log(1 + x) for 1 + x > 0 with relative accuracy near x = 0.
template <class X>
ADASPARSE_INLINE X log1p_positive(X x) {
  return log_with_rest<X>(x + ElementOf<X>(1), x);
}
// log(x) for x > 0 and normal.
template <class X>
ADASPARSE_INLINE X log_positive(X x) {
  return log_with_rest<X>(x, x - ElementOf<X>(1));
}

// (1 + x)^power for 1 + x > 0, at least as accurate as exp(power * log1p(x)).
template <class X>
ADASPARSE_INLINE X power_of_1p(X x, ElementOf<X> power) {
  using T = ElementOf<X>;
  if constexpr (sizeof(T) == 8) {
    return exp<X>(log1p_positive<X>(x) * power);
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

// e^x within 3%, for x from -80 to 0; less gives about 0. Good for a first guess.
ADASPARSE_INLINE FloatVector rough_exp(FloatVector x) {
  const FloatVector scaled = max(x * 12102203.f + 1064866816.f, FloatVector{});
  return reinterpret_cast<FloatVector>(__builtin_convertvector(scaled, Int32Vector));
}
ADASPARSE_INLINE DoubleVector rough_exp(DoubleVector x) { return exp(x); }

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
