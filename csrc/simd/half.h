// Half precision: the element types, and vectors of them as vectors of float.
#pragma once

#include <type_traits>

#include "simd/vector.h"

namespace adasparse {
namespace ADASPARSE_ISA {

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

// ---------------------------------------------------------------- one number

inline float widen(float x) { return x; }
inline double widen(double x) { return x; }
inline float widen(BFloat16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}
inline float widen(Float16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  uint32_t bits = x.bits & 0x7FFFu;
  float out;
  if (bits >= 0x7C00u) {
    bits = (bits << 13) | 0x7F800000u;  // inf or NaN
    bits |= sign;
    std::memcpy(&out, &bits, 4);
    return out;
  }
  // Subnormals come out right because the multiplication normalizes them.
  bits <<= 13;
  std::memcpy(&out, &bits, 4);
  out *= 0x1p112f;
  return sign ? -out : out;
}

inline void narrow(float from, float* to) { *to = from; }
inline void narrow(double from, double* to) { *to = from; }
inline void narrow(double from, float* to) { *to = static_cast<float>(from); }
inline void narrow(float from, BFloat16* to) {
  uint32_t bits;
  std::memcpy(&bits, &from, 4);
  const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  to->bits = nan ? 0x7FC0u : static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}
inline void narrow(float from, Float16* to) {
  uint32_t bits;
  std::memcpy(&bits, &from, 4);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  bits &= 0x7FFFFFFFu;
  uint32_t out;
  if (bits > 0x7F800000u) {
    out = 0x7E00u;
  } else if (bits >= 0x477FF000u) {  // rounds to 65536 or more
    out = 0x7C00u;
  } else if (bits < 0x38800000u) {  // subnormal: let an addition do the rounding
    float magnitude;
    std::memcpy(&magnitude, &bits, 4);
    magnitude += 0.5f;
    std::memcpy(&out, &magnitude, 4);
    out -= 0x3F000000u;
  } else {
    out = (bits - 0x38000000u + 0xFFFu + (bits >> 13 & 1u)) >> 13;
  }
  to->bits = static_cast<uint16_t>(sign | out);
}
template <class IO>
inline void narrow(double from, IO* to) {
  narrow(static_cast<float>(from), to);
}

// ---------------------------------------------------------------- a vector

typedef uint16_t HalfVector __attribute__((vector_size(kVectorBytes / 2)));

// A vector of T from elements of any type that T holds exactly.
ADASPARSE_INLINE FloatVector load_wide(const float* from) { return load(from); }
ADASPARSE_INLINE DoubleVector load_wide(const double* from) { return load(from); }
ADASPARSE_INLINE FloatVector load_wide(const BFloat16* from) {
  HalfVector raw;
  std::memcpy(&raw, from, sizeof raw);
  return reinterpret_cast<FloatVector>(__builtin_convertvector(raw, UInt32Vector) << 16);
}
#if defined(__AVX512F__)
ADASPARSE_INLINE FloatVector load_wide(const Float16* from) {
  __m256i raw;
  std::memcpy(&raw, from, sizeof raw);
  return reinterpret_cast<FloatVector>(_mm512_cvtph_ps(raw));
}
#elif defined(__F16C__) && defined(__AVX2__)
ADASPARSE_INLINE FloatVector load_wide(const Float16* from) {
  __m128i raw;
  std::memcpy(&raw, from, sizeof raw);
  return reinterpret_cast<FloatVector>(_mm256_cvtph_ps(raw));
}
#elif defined(__aarch64__)
ADASPARSE_INLINE FloatVector load_wide(const Float16* from) {
  float16x4_t raw;
  std::memcpy(&raw, from, sizeof raw);
  return reinterpret_cast<FloatVector>(vcvt_f32_f16(raw));
}
#else
ADASPARSE_INLINE FloatVector load_wide(const Float16* from) {
  HalfVector raw;
  std::memcpy(&raw, from, sizeof raw);
  const UInt32Vector bits = __builtin_convertvector(raw, UInt32Vector);
  const UInt32Vector moved = (bits & 0x7FFFu) << 13;
  const UInt32Vector number =
      reinterpret_cast<UInt32Vector>(reinterpret_cast<FloatVector>(moved) * 0x1p112f);
  const UInt32Vector magnitude = moved >= 0x0F800000u ? moved | 0x7F800000u : number;
  return reinterpret_cast<FloatVector>(magnitude | (bits & 0x8000u) << 16);
}
#endif

// The first `count` lanes from memory, the others zero.
template <class IO>
ADASPARSE_INLINE auto load_wide_part(const IO* from, int count) {
  IO buffer[sizeof(load_wide(from)) / sizeof(widen(*from))] = {};
  std::memcpy(buffer, from, sizeof(IO) * static_cast<size_t>(count));
  return load_wide(buffer);
}

// ColumnLoader for rows of any element type.
template <class T, class IO>
struct WideColumnLoader {
  static constexpr int count = Lanes<T>::count;
  static ADASPARSE_INLINE void load(const IO* const* rows, int64_t t, Vec<T>* to) {
#pragma GCC unroll 16
    for (int i = 0; i < count; ++i) to[i] = load_wide(rows[i] + t);
    transpose<T>(to);
  }
};
template <class T>
struct WideColumnLoader<T, T> : ColumnLoader<T> {};

// The way back, rounded to the nearest, ties to even.
ADASPARSE_INLINE void store_narrow(float* to, FloatVector v) { store(to, v); }
ADASPARSE_INLINE void store_narrow(double* to, DoubleVector v) { store(to, v); }
ADASPARSE_INLINE void store_narrow(BFloat16* to, FloatVector v) {
  const UInt32Vector raw = reinterpret_cast<UInt32Vector>(v);
  const UInt32Vector rounded = (raw + 0x7FFFu + (raw >> 16 & 1u)) >> 16;
  const UInt32Vector nan = UInt32Vector{} + 0x7FC0u;
  const UInt32Vector bits = (raw & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded;
  const HalfVector narrowed = __builtin_convertvector(bits, HalfVector);
  std::memcpy(to, &narrowed, sizeof narrowed);
}
ADASPARSE_INLINE void store_narrow(Float16* to, FloatVector v) {
#if defined(__AVX512F__) || (defined(__F16C__) && defined(__AVX2__)) || defined(__aarch64__)
  // One NaN of each sign, as narrow() has it, so that results do not depend on how rows are
  // divided.
  const UInt32Vector nan = (reinterpret_cast<UInt32Vector>(v) & 0x80000000u) | 0x7FC00000u;
  const FloatVector number = select(is_nan(v), reinterpret_cast<FloatVector>(nan), v);
#if defined(__AVX512F__)
  const __m256i narrowed = _mm512_cvtps_ph(reinterpret_cast<__m512>(number),
                                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__aarch64__)
  const float16x4_t narrowed = vcvt_f16_f32(reinterpret_cast<float32x4_t>(number));
#else
  const __m128i narrowed =
      _mm256_cvtps_ph(reinterpret_cast<__m256>(number), _MM_FROUND_TO_NEAREST_INT);
#endif
  std::memcpy(to, &narrowed, sizeof narrowed);
#else
  for (int i = 0; i < Lanes<float>::count; ++i) narrow(v[i], to + i);
#endif
}

// ---------------------------------------------------------------- a row

template <class IO, class T>
void widen_row(const IO* from, int64_t n, T* to) {
  int64_t j = 0;
  if constexpr (std::is_same_v<T, float> || std::is_same_v<IO, T>)
    for (; j + Lanes<T>::count <= n; j += Lanes<T>::count) store(to + j, load_wide(from + j));
  for (; j < n; ++j) to[j] = widen(from[j]);
}
template <class IO, class T>
void narrow_row(const T* from, int64_t n, IO* to) {
  int64_t j = 0;
  if constexpr (std::is_same_v<T, float> || std::is_same_v<IO, T>)
    for (; j + Lanes<T>::count <= n; j += Lanes<T>::count) store_narrow(to + j, load(from + j));
  for (; j < n; ++j) narrow(from[j], to + j);
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
