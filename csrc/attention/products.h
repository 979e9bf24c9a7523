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

// Interleaved groups of keys whose largest scores are kept; a multiple of a panel.
constexpr int kCodeGroups = 64;

// The scores of some queries by their codes.
struct CodeProducts {
  const int8_t* queries;  // (rows, query_row)
  int64_t query_row;
  const int32_t* start;  // what the sums of each query start from
  int64_t steps;         // query_row / kCodeFeatures
  const float* factor;   // (rows, factor_row), for each panel
  const float* bound;    // the same
  int64_t factor_row;
  float* low;  // (rows, low_row) = factor * sum - bound, for each key
  int64_t low_row;
  float* maxima;  // (rows, kCodeGroups): grow with `low`, unless null
};

// One register tile of R queries and P panels, from panel p on. Loops are unrolled, so that sums
// never leave their registers.
template <int R, int P, bool HasMaxima>
ADASPARSE_VNNI inline void score_code_tile(const CodeProducts& to, const uint8_t* panels, int64_t r,
                                           int64_t p) {
  constexpr int V = P * kCodeVectors, width = Lanes<float>::count;
  const int64_t steps = to.steps, query_row = to.query_row;
  const uint8_t* keys = panels + p * steps * kCodeStep;
  const int8_t* queries = to.queries + r * query_row;
  Int32Vector sum[R][V];
#pragma GCC unroll 6
  for (int x = 0; x < R; ++x)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[x][v] = Int32Vector{} + to.start[r + x];
  for (int64_t t = 0; t < steps; ++t) {
#pragma GCC unroll 6
    for (int x = 0; x < R; ++x) {
      int32_t word;
      std::memcpy(&word, queries + x * query_row + t * kCodeFeatures, sizeof word);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        sum[x][v] = add_codes(
            sum[x][v],
            keys + (v / kCodeVectors * steps + t) * kCodeStep + v % kCodeVectors * kVectorBytes,
            word);
    }
  }
  const float* factor = to.factor + r * to.factor_row + p;
  const float* bound = to.bound + r * to.factor_row + p;
  float* low = to.low + r * to.low_row + p * kCodeKeys;
  float* maxima = to.maxima + r * kCodeGroups + p * kCodeKeys % kCodeGroups;
  const int64_t factor_row = to.factor_row, low_row = to.low_row;
#pragma GCC unroll 6
  for (int x = 0; x < R; ++x)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const int64_t at = x * factor_row + v / kCodeVectors;
      const FloatVector mine =
          __builtin_convertvector(sum[x][v], FloatVector) * factor[at] - bound[at];
      store(low + x * low_row + v * width, mine);
      if constexpr (HasMaxima) {
        float* top = maxima + x * kCodeGroups + v * width;
        store(top, max(mine, load(top)));  // never NaN, which only the second argument passes on
      }
    }
}

// All queries and panels. Call only if has_code_products().
template <bool HasMaxima>
void score_code_tiles(const CodeProducts& to, int64_t rows, const uint8_t* panels, int64_t count) {
  const auto tiles = [&](auto panels_of_tile, int64_t p) {
    constexpr int P = decltype(panels_of_tile)::value;
    int64_t r = 0;
    for (; r + kCodeTileRows <= rows; r += kCodeTileRows)
      score_code_tile<kCodeTileRows, P, HasMaxima>(to, panels, r, p);
    for (; r < rows; ++r) score_code_tile<1, P, HasMaxima>(to, panels, r, p);
  };
  int64_t p = 0;
  for (; p + kCodeTilePanels <= count; p += kCodeTilePanels)
    tiles(std::integral_constant<int, kCodeTilePanels>{}, p);
  for (; p < count; ++p) tiles(std::integral_constant<int, 1>{}, p);
}
inline void score_codes(const CodeProducts& to, int64_t rows, const uint8_t* panels,
                        int64_t count) {
  to.maxima ? score_code_tiles<true>(to, rows, panels, count)
            : score_code_tiles<false>(to, rows, panels, count);
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
