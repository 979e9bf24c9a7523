// Sums of products of int8 codes: signed ones of queries, and those of keys plus 128, a panel of
// keys side by side. By the dot products of VNNI, which only some processors of an instruction set
// have: ask has_code_products() first.
#pragma once

#include "dispatch.h"
#include "simd/vector.h"

namespace adasparse {
namespace ADASPARSE_ISA {

constexpr int kCodeKeys = 16;                         // of a panel of codes
constexpr int kCodeFeatures = 4;                      // that one instruction multiplies and adds
constexpr int kCodeStep = kCodeKeys * kCodeFeatures;  // bytes of a panel for these features
constexpr int kCodeVectors = kCodeKeys / Lanes<float>::count;  // of sums of a panel

// add_codes adds to each of the sums the products of 4 features of its key with those of a query.
#if defined(__AVX512F__)
#define ADASPARSE_VNNI __attribute__((target("avx512vnni")))
constexpr int kCodeTileRows = 6, kCodeTilePanels = 4;  // of a register tile
inline bool has_code_products() { return has_avx512_vnni(); }
ADASPARSE_VNNI inline Int32Vector add_codes(Int32Vector sums, const uint8_t* keys, int32_t query) {
  return reinterpret_cast<Int32Vector>(_mm512_dpbusd_epi32(
      reinterpret_cast<__m512i>(sums), _mm512_loadu_si512(keys), _mm512_set1_epi32(query)));
}
#elif defined(__AVX2__)
#define ADASPARSE_VNNI __attribute__((target("avxvnni")))
constexpr int kCodeTileRows = 6, kCodeTilePanels = 1;
inline bool has_code_products() { return has_avx_vnni(); }
ADASPARSE_VNNI inline Int32Vector add_codes(Int32Vector sums, const uint8_t* keys, int32_t query) {
  __m256i bytes;
  std::memcpy(&bytes, keys, sizeof bytes);
  return reinterpret_cast<Int32Vector>(
      _mm256_dpbusd_avx_epi32(reinterpret_cast<__m256i>(sums), bytes, _mm256_set1_epi32(query)));
}
#else
// Slower than products of floats: only for tests, where screening is forced.
#define ADASPARSE_VNNI
constexpr int kCodeTileRows = 4, kCodeTilePanels = 1;
inline bool has_code_products() { return screening() == Screening::kForced; }
inline Int32Vector add_codes(Int32Vector sums, const uint8_t* keys, int32_t query) {
  int8_t features[kCodeFeatures];
  std::memcpy(features, &query, sizeof features);
  for (int i = 0; i < Lanes<float>::count; ++i)
    for (int t = 0; t < kCodeFeatures; ++t) sums[i] += keys[i * kCodeFeatures + t] * features[t];
  return sums;
}
#endif

// One register tile: low[r, key] = factor[r, panel] * sum of products - bound[r, panel] for R
// queries and P panels, where sums start from start[r].
template <int R, int P>
ADASPARSE_VNNI inline void score_code_tile(const int8_t* queries, int64_t query_row,
                                           const int32_t* start, const uint8_t* panels,
                                           int64_t steps, const float* factor, const float* bound,
                                           int64_t factor_row, float* low, int64_t low_row) {
  constexpr int V = P * kCodeVectors, width = Lanes<float>::count;
  Int32Vector sum[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) sum[r][v] = Int32Vector{} + start[r];
  for (int64_t t = 0; t < steps; ++t) {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      int32_t word;
      std::memcpy(&word, queries + r * query_row + t * kCodeFeatures, sizeof word);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        sum[r][v] = add_codes(
            sum[r][v],
            panels + (v / kCodeVectors * steps + t) * kCodeStep + v % kCodeVectors * kVectorBytes,
            word);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) {
      const int64_t at = r * factor_row + v / kCodeVectors;
      const FloatVector x = __builtin_convertvector(sum[r][v], FloatVector);
      store(low + r * low_row + v * width, x * factor[at] - bound[at]);
    }
}

// The same for any number of queries and panels. Call only if has_code_products().
inline void score_codes(const int8_t* queries, int64_t query_row, const int32_t* start,
                        int64_t rows, const uint8_t* panels, int64_t steps, int64_t count,
                        const float* factor, const float* bound, int64_t factor_row, float* low,
                        int64_t low_row) {
  const auto tiles = [&](auto panels_of_tile, int64_t p) {
    constexpr int P = decltype(panels_of_tile)::value;
    const auto tile = [&](auto rows_of_tile, int64_t r) {
      score_code_tile<decltype(rows_of_tile)::value, P>(
          queries + r * query_row, query_row, start + r, panels + p * steps * kCodeStep, steps,
          factor + r * factor_row + p, bound + r * factor_row + p, factor_row,
          low + r * low_row + p * kCodeKeys, low_row);
    };
    int64_t r = 0;
    for (; r + kCodeTileRows <= rows; r += kCodeTileRows)
      tile(std::integral_constant<int, kCodeTileRows>{}, r);
    for (; r < rows; ++r) tile(std::integral_constant<int, 1>{}, r);
  };
  int64_t p = 0;
  for (; p + kCodeTilePanels <= count; p += kCodeTilePanels)
    tiles(std::integral_constant<int, kCodeTilePanels>{}, p);
  for (; p < count; ++p) tiles(std::integral_constant<int, 1>{}, p);
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
