// Keys and queries as int8, with a proven bound of what that does to scores. See "Screened scores"
// in csrc/README.md for the mathematics.
//
// Keys form panels of 16 with one scale each, in the order in which one VNNI instruction reads
// them: 4 features of every key, then the next 4. They are stored plus 128, as unsigned bytes. A
// panel depends on its own keys alone, so that keys can be appended a panel at a time.
#pragma once

#include "attention/products.h"
#include "matrix.h"
#include "scratch.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// Bytes of one key or query.
inline int64_t code_size(int64_t d) { return round_up(d, kCodeFeatures); }
inline int64_t code_panels(int64_t keys) { return (keys + kCodeKeys - 1) / kCodeKeys; }

// The panels of one head of keys: arrays with an element per panel, filled up to whole vectors so
// that bounds can be computed a vector at a time.
struct CodedKeys {
  const uint8_t* codes;        // (panels, code_size / 4, 16, 4)
  const float* scale;          // key = scale * code + residual
  const float* residual;       // at least the norm of the residual of any key of the panel
  const float* norm;           // at least the norm of any key
  const float* query_channel;  // what features of queries are multiplied with, or null
};
struct PanelBounds {
  float scale, residual, norm;
};

// Numbers beyond this range are not coded: below it residuals are the numbers themselves, above it
// (and for NaN) they are infinite, so that every key of the panel is looked at.
constexpr float kSmallestCoded = 1e-30f, kLargestCoded = 1e30f;
// By how much a number in units of the scale may be off, as it was multiplied with 1 / scale: 127
// times three roundings, and some more.
constexpr float kCodeRounding = 4e-5f;

// A bound of the sum of n rounded terms, or of its root, from the sum itself.
ADASPARSE_INLINE float rounded_up(float sum, int64_t n) {
  return sum * (1 + static_cast<float>(n + 16) * 0x1p-23f);
}

// A vector of features, each times a power of two of its channel unless `channel` is null.
ADASPARSE_INLINE Vec<float> load_features(const float* row, const float* channel, int64_t t,
                                          int64_t d) {
  const int64_t left = d - t;
  const Vec<float> x =
      left >= Lanes<float>::count ? load(row + t) : load_part(row + t, static_cast<int>(left), 0.f);
  if (!channel) return x;
  return x * (left >= Lanes<float>::count ? load(channel + t)
                                          : load_part(channel + t, static_cast<int>(left), 0.f));
}

// The largest of the absolute values of some rows; NaN if they hold NaN.
inline float largest_feature(const float* rows, int64_t stride, int64_t count, int64_t d,
                             const float* channel) {
  using V = Vec<float>;
  V top{};
  Mask<float> nan{};
  for (int64_t j = 0; j < count; ++j)
    for (int64_t t = 0; t < d; t += Lanes<float>::count) {
      const V x = load_features(rows + j * stride, channel, t, d);
      nan |= is_nan(x);
      top = max(max(x, -x), top);
    }
  return any(nan) ? std::numeric_limits<float>::quiet_NaN() : max_lanes<float>(top);
}

// Raises the largest number of each channel so far by those of more keys.
inline void raise_channels(const float* keys, int64_t stride, int64_t count, int64_t d,
                           float* largest) {
  constexpr int width = Lanes<float>::count;
  for (int64_t t = 0; t < d; t += width) {
    Vec<float> top = load_features(largest, nullptr, t, d);
    for (int64_t j = 0; j < count; ++j) {
      const Vec<float> x = load_features(keys + j * stride, nullptr, t, d);
      top = max(max(x, -x), top);  // never NaN
    }
    store_part(largest + t, top, static_cast<int>(smaller<int64_t>(width, d - t)));
  }
}
// Factors for the features of keys, in place of the largest numbers of their channels, and the
// inverses for those of queries: powers of two, which leave products as they are. A channel that is
// much larger than the others would leave them few of the 256 codes; half of the excess, in
// logarithms, moves over to the queries.
inline void balance_channels(int64_t d, float* by_key, float* by_query) {
  double total = 0;
  for (int64_t t = 0; t < d; ++t) total += static_cast<double>(by_key[t]);
  const float mean = static_cast<float>(total / static_cast<double>(d));
  for (int64_t t = 0; t < d; ++t) {
    const float excess = by_key[t] / mean;
    const bool is_moved = excess > kBalancedExcess && excess <= 1e6f;
    const int power = is_moved ? std::ilogb(excess) / 2 : 0;
    by_key[t] = std::ldexp(1.f, -power);
    by_query[t] = std::ldexp(1.f, power);
  }
}

typedef int8_t CodeVector __attribute__((vector_size(kVectorBytes / 4)));

// A row in units of its scale, feature by feature: calls body(codes, offset) for vectors of int32
// and returns the sums of squares of the numbers and of their residuals, both at most rounded.
struct SquaredNorms {
  float number, residual;
};
template <class Body>
ADASPARSE_INLINE SquaredNorms code_row(const float* row, int64_t d, const float* channel,
                                       float inverse, const Body& body) {
  using V = Vec<float>;
  V number{}, residual{};
  for (int64_t t = 0; t < d; t += Lanes<float>::count) {
    const V y = load_features(row, channel, t, d) * inverse;
    const V shifted = y + kRound;
    const V rest = y - (shifted - kRound);
    number += y * y;
    residual += rest * rest;
    const UInt32Vector code = reinterpret_cast<UInt32Vector>(shifted) - kRoundBits;
    body(reinterpret_cast<Int32Vector>(code), t);
  }
  return {sum_lanes<float>(number), sum_lanes<float>(residual)};
}

// Norms of a row from those in units of its scale, rounded up.
inline float norm_in(float scale, float squares, int64_t d) {
  const float root = static_cast<float>(d) * kCodeRounding;  // at least sqrt(d) times it
  return rounded_up(scale * (rounded_up(std::sqrt(squares), d) + root), 0);
}

// Codes up to 16 keys as one panel of 16 * code_size(d) bytes. Missing keys are zeros.
inline PanelBounds code_panel(const float* keys, int64_t stride, int64_t count, int64_t d,
                              const float* channel, uint8_t* codes) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr int64_t step = kCodeKeys * kCodeFeatures;
  const float top = largest_feature(keys, stride, count, d, channel);
  const bool is_coded = top >= kSmallestCoded && top <= kLargestCoded;
  if (!is_coded || count < kCodeKeys) fill(codes, kCodeKeys * code_size(d), uint8_t{128});
  if (!is_coded) {
    const float norm = top < kSmallestCoded ? static_cast<float>(d + 1) * kSmallestCoded : infinity;
    return {0, norm, norm};
  }
  const float scale = top / 127, inverse = 1 / scale;
  SquaredNorms largest{};
  for (int64_t j = 0; j < count; ++j) {
    uint8_t* to = codes + j * kCodeFeatures;
    const SquaredNorms norms = code_row(
        keys + j * stride, d, channel, inverse,
        [&](Int32Vector code, int64_t t) ADASPARSE_INLINE_BODY {
          // The sum of a signed byte and 128 is the byte with its first bit flipped.
          const CodeVector bytes = __builtin_convertvector(code, CodeVector) ^ int8_t { -128 };
          char buffer[sizeof bytes];
          std::memcpy(buffer, &bytes, sizeof bytes);
          const int64_t words = smaller<int64_t>(sizeof bytes, code_size(d) - t) / kCodeFeatures;
#pragma GCC unroll 4
          for (int64_t w = 0; w < words; ++w)
            std::memcpy(to + (t / kCodeFeatures + w) * step, buffer + w * kCodeFeatures,
                        kCodeFeatures);
        });
    largest = {larger(largest.number, norms.number), larger(largest.residual, norms.residual)};
  }
  return {scale, norm_in(scale, largest.residual, d), norm_in(scale, largest.number, d)};
}

// One query: query = scale * code + residual.
struct CodedQuery {
  float scale;
  float norm;      // at least the norm of scale * code
  float residual;  // at least that of the residual
  int32_t sum;     // of the codes
};
inline CodedQuery code_query(const float* query, int64_t d, const float* channel, int8_t* codes) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float top = largest_feature(query, 0, 1, d, channel);
  if (!(top >= kSmallestCoded && top <= kLargestCoded)) {
    fill(codes, code_size(d), int8_t{0});
    const float rest = top < kSmallestCoded ? static_cast<float>(d + 1) * kSmallestCoded : infinity;
    return {0, 0, rest, 0};
  }
  const float scale = top / 127;
  Int32Vector sum{};
  const SquaredNorms norms = code_row(
      query, d, channel, 1 / scale, [&](Int32Vector code, int64_t t) ADASPARSE_INLINE_BODY {
        const CodeVector bytes = __builtin_convertvector(code, CodeVector);
        std::memcpy(codes + t, &bytes,
                    static_cast<size_t>(smaller<int64_t>(sizeof bytes, code_size(d) - t)));
        sum += code;
      });
  int32_t total = 0;
  for (int i = 0; i < Lanes<float>::count; ++i) total += sum[i];
  const float residual = norm_in(scale, norms.residual, d);
  return {scale, rounded_up(norm_in(scale, norms.number, d) + residual, 0), residual, total};
}

// The scores of one query by its codes: low = factor * panel.scale * <codes> - bound is at most,
// and low + 2 bound at least, the score that the float kernels compute, before and after a bias is
// added to both (but for 1e-6 of the biased score itself, which the caller allows for).
struct ScoreBounds {
  float factor;
  float by_residual, by_norm;  // bound = by_residual * residual + by_norm * norm + kLeastBound
  float largest_norm;          // keys beyond this may overflow: their bound is infinite
  int32_t start;  // what the sums of products start from, since keys are stored plus 128
};
// Covers all underflow.
constexpr float kLeastBound = 1e-28f;

inline ScoreBounds bounds_of(const CodedQuery& query, int64_t d, float score_scale) {
  const float scale = std::fabs(score_scale);
  // Roundings of sums of d products, here and in float, of the bias, and of these very bounds.
  const float rounding = static_cast<float>(d + 32) * 0x1p-22f;
  const float norm = query.norm + query.residual;
  return {
      .factor = query.scale * score_scale,
      .by_residual = scale * (query.norm + rounding * norm),
      .by_norm = scale * (query.residual + rounding * norm),
      .largest_norm = 1e36f / (norm * larger(scale, 1.f)),
      .start = -128 * query.sum,
  };
}
ADASPARSE_INLINE Vec<float> bound_of(const ScoreBounds& query, Vec<float> residual,
                                     Vec<float> norm) {
  const Vec<float> bound = residual * query.by_residual + norm * query.by_norm + kLeastBound;
  // Not "norm > largest": NaN on either side counts as beyond.
  const auto is_beyond = greater_or_nan(norm, broadcast(query.largest_norm));
  return select(is_beyond, broadcast(std::numeric_limits<float>::infinity()), bound);
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
