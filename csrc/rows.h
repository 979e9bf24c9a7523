// Rows of any element type as rows of the type computed in, and the choice of a map by alpha.
#pragma once

#include <type_traits>

#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>
#endif

#include "entmax/maps.h"
#include "kernels.h"

namespace adasparse {
namespace ADASPARSE_ISA {

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

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

template <class IO, class T>
void widen_row(const IO* from, int64_t n, T* to) {
  int64_t j = 0;
#if defined(__F16C__) && defined(__AVX2__)
  if constexpr (std::is_same_v<IO, Float16> && std::is_same_v<T, float>)
    for (; j + 8 <= n; j += 8)
      _mm256_storeu_ps(
          to + j, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + j))));
#endif
  for (; j < n; ++j) to[j] = widen(from[j]);
}
template <class IO, class T>
void narrow_row(const T* from, int64_t n, IO* to) {
  int64_t j = 0;
#if defined(__F16C__) && defined(__AVX2__)
  if constexpr (std::is_same_v<IO, Float16> && std::is_same_v<T, float>)
    for (; j + 8 <= n; j += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + j),
                       _mm256_cvtps_ph(_mm256_loadu_ps(from + j), _MM_FROUND_TO_NEAREST_INT));
#endif
  for (; j < n; ++j) narrow(from[j], to + j);
}

// Computing in double costs speed and is reserved for double data and for the exponents at which
// float has too few digits: above 2 the slope at the edge of the support is infinite.
inline bool needs_double(double alpha) { return alpha > 2 || alpha < 1; }

// Calls body(map) with the map for this alpha.
template <class T, class Body>
ADASPARSE_INLINE void with_map(double alpha, const Body& body) {
  const double eps = alpha - 1;
  if constexpr (sizeof(T) == 8)
    if (eps > 1) return body(SteepMap<T>(eps));
  if (eps == 0)
    body(SoftmaxMap<T>());
  else if (eps == 0.5)
    body(Entmax15Map<T>());
  else if (eps == 1)
    body(SparsemaxMap<T>());
  else
    body(GeneralMap<T>(eps));
}

// Calls body(IO{}, T{}) with the element type and the type to compute in.
template <class Body>
void with_types(Type type, bool wide, const Body& body) {
  switch (type) {
    case Type::kFloat32:
      return wide ? body(float{}, double{}) : body(float{}, float{});
    case Type::kFloat64:
      return body(double{}, double{});
    case Type::kBFloat16:
      return wide ? body(BFloat16{}, double{}) : body(BFloat16{}, float{});
    case Type::kFloat16:
      return wide ? body(Float16{}, double{}) : body(Float16{}, float{});
  }
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
