// The choice of types to read and to compute in, and of a map by alpha.
#pragma once

#include "entmax/maps.h"
#include "kernels.h"
#include "simd/half.h"

namespace adasparse {
namespace ADASPARSE_ISA {

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
