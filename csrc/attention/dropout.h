// Dropout of attention weights by a counter-based generator.
#pragma once

#include "kernels.h"
#include "simd/vector.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// The weights of a row that are dropped: a hash of seed, row and column, so that backward drops the
// same ones.
struct Dropout {
  uint32_t key0, key1, threshold;
  bool drops_all;

  Dropout(uint64_t seed, double p, int64_t row) {
    uint64_t x = seed + (static_cast<uint64_t>(row) + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    key0 = static_cast<uint32_t>(x);
    key1 = static_cast<uint32_t>(x >> 32);
    threshold = static_cast<uint32_t>(smaller(p * 4294967296., 4294967295.));
    drops_all = p >= 1;
  }
  ADASPARSE_INLINE bool keeps(uint32_t column) const {
    uint32_t y = column * 0x9E3779B1u + key0;
    y = (y ^ (y >> 16)) * 0x85EBCA6Bu;
    y ^= key1;
    y = (y ^ (y >> 13)) * 0xC2B2AE35u;
    y ^= y >> 16;
    return (y >= threshold) & !drops_all;
  }
};
// Multiplies the values of the given columns, or of `count` columns from `first` on, by 0 or
// `grown`.
template <class T>
void drop(const Dropout& dropout, const int32_t* index, int64_t count, T grown, T* values) {
  for (int64_t e = 0; e < count; ++e)
    values[e] *= dropout.keeps(static_cast<uint32_t>(index[e])) ? grown : T(0);
}
template <class T>
void drop_range(const Dropout& dropout, int64_t first, int64_t count, T grown, T* values) {
  for (int64_t j = 0; j < count; ++j)
    values[j] *= dropout.keeps(static_cast<uint32_t>(first + j)) ? grown : T(0);
}
// The factor of weights that are not dropped.
template <class T>
T grown(const AttentionInput& in) {
  return in.dropout_p < 1 ? static_cast<T>(1 / (1 - in.dropout_p)) : T(0);
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
