// Tests of int8 codes: their sums of products against exact integers, and the bound of scores
// against long double and against the float kernels. Compiled once per instruction set.
#include "isa_tests.h"

#include "attention/quantize.h"

namespace adasparse {
namespace ADASPARSE_ISA {
namespace {

using kernel_tests::Random;

// Codes are multiplied in every instruction set, even where that is slow.
struct ForcedScreening {
  ForcedScreening() { use_screening(Screening::kForced); }
  ~ForcedScreening() { use_screening(Screening::kAuto); }
};

// Rows of one kind of trouble each.
enum Kind { kNormal, kOutlier, kHugeChannel, kEqual, kTies, kTiny, kHuge, kSparse, kMixed, kKinds };

void make_rows(Random& random, Kind kind, int64_t rows, int64_t d, float* to) {
  const double spread = std::pow(10., 4 * random.uniform() - 2);
  const int64_t odd = random.below(d), chosen = random.below(rows);
  const float same = static_cast<float>(random.normal());
  for (int64_t j = 0; j < rows; ++j)
    for (int64_t t = 0; t < d; ++t) {
      double x = spread * random.normal();
      if (kind == kOutlier && j == chosen) x *= 1e4;
      if (kind == kHugeChannel && t == odd) x *= 1e3;
      if (kind == kEqual) x = same;
      if (kind == kTies) x = static_cast<double>(random.below(255) - 127) + 0.5;  // half a code
      if (kind == kTiny) x *= random.below(2) ? 1e-39 : 1e-29;
      if (kind == kHuge) x = random.below(2) ? 1e30 : -3e29;
      if (kind == kSparse && random.below(4)) x = 0;
      if (kind == kMixed) x *= std::pow(10., static_cast<double>(random.below(40) - 20));
      to[j * d + t] = static_cast<float>(x);
    }
}

struct Problem {
  static constexpr int64_t kQueries = 7, kKeys = 48;
  explicit Problem(int64_t size)
      : d(size),
        queries(kQueries * d),
        keys(kKeys * d),
        panels(panel_size()),
        by_key(d),
        by_query(d),
        query_codes(kQueries * code_size(d)),
        codes(code_panels(kKeys) * kCodeKeys * code_size(d)) {}
  int64_t panel_size() const { return round_up(kKeys, kPanel<float>) * d; }

  void code(float score_scale, bool is_balanced) {
    fill(by_key.get(), d, 0.f);
    raise_channels(keys.get(), d, kKeys, d, by_key.get());
    balance_channels(d, by_key.get(), by_query.get());
    const float* key_channel = is_balanced ? by_key.get() : nullptr;
    const float* query_channel = is_balanced ? by_query.get() : nullptr;
    for (int64_t p = 0; p < code_panels(kKeys); ++p)
      panel[p] = code_panel(keys.get() + p * kCodeKeys * d, d, kCodeKeys, d, key_channel,
                            codes.get() + p * kCodeKeys * code_size(d));
    for (int64_t i = 0; i < kQueries; ++i) {
      query[i] =
          code_query(queries.get() + i * d, d, query_channel, query_codes.get() + i * code_size(d));
      bounds[i] = bounds_of(query[i], d, score_scale);
      start[i] = bounds[i].start;
      for (int64_t p = 0; p < code_panels(kKeys); ++p) {
        factor[i][p] = bounds[i].factor * panel[p].scale;
        bound[i][p] =
            bound_of(bounds[i], broadcast(panel[p].residual), broadcast(panel[p].norm))[0];
      }
    }
    score_codes({.queries = query_codes.get(),
                 .query_row = code_size(d),
                 .start = start,
                 .steps = code_size(d) / kCodeFeatures,
                 .factor = factor[0],
                 .bound = bound[0],
                 .factor_row = kKeys / kCodeKeys,
                 .low = low[0],
                 .low_row = kKeys,
                 .maxima = nullptr},
                kQueries, codes.get(), code_panels(kKeys));
    pack_panels(keys.get(), d, kKeys, d, panels.get());
    multiply_panels(queries.get(), d, panels.get(), d, score_scale, scores[0], kFloatRow, kQueries,
                    round_up(kKeys, kPanel<float>) / kPanel<float>);
  }

  static constexpr int64_t kFloatRow = 64;
  int64_t d;
  Scratch<float> queries, keys, panels, by_key, by_query;
  Scratch<int8_t> query_codes;
  Scratch<uint8_t> codes;
  PanelBounds panel[kKeys / kCodeKeys];
  CodedQuery query[kQueries];
  ScoreBounds bounds[kQueries];
  int32_t start[kQueries];
  float factor[kQueries][kKeys / kCodeKeys], bound[kQueries][kKeys / kCodeKeys];
  float low[kQueries][kKeys];
  float scores[kQueries][kFloatRow];
};

// A pair of a query and a key: its integer sum, and whether its score lies within the bounds.
void check_pair(const Problem& x, int64_t i, int64_t j, float score_scale) {
  const int64_t p = j / kCodeKeys, d = x.d;
  const uint8_t* codes = x.codes.get() + p * kCodeKeys * code_size(d) + j % kCodeKeys * 4;
  int64_t sum = 0;
  long double exact = 0;
  for (int64_t t = 0; t < d; ++t) {
    const int64_t a = x.query_codes.get()[i * code_size(d) + t];
    const int64_t b = codes[t / 4 * kCodeStep + t % 4] - 128;
    sum += a * b;
    const auto q = static_cast<long double>(x.queries.get()[i * d + t]);
    const auto k = static_cast<long double>(x.keys.get()[j * d + t]);
    exact += q * k;
  }
  const auto coded = static_cast<long double>(x.query[i].scale) *
                     static_cast<long double>(x.panel[p].scale) * static_cast<long double>(sum);
  const auto scale = static_cast<long double>(score_scale);
  const auto bound = static_cast<long double>(x.bound[i][p]);
  const auto low = static_cast<long double>(x.low[i][j]);
  if (!std::isfinite(x.bound[i][p])) return;  // nothing is claimed
  CHECK(std::fabs(coded - exact) * std::fabs(scale) <= bound,
        "%s codes of d = %lld are off by %Lg, more than %Lg", kIsa, static_cast<long long>(d),
        (coded - exact) * scale, bound);
  CHECK(low <= exact * scale && exact * scale <= low + 2 * bound,
        "%s d = %lld: %Lg is not within %Lg and twice %Lg", kIsa, static_cast<long long>(d),
        exact * scale, low, bound);
  const auto rounded = static_cast<long double>(x.scores[i][j]);
  CHECK(low <= rounded && rounded <= low + 2 * bound,
        "%s d = %lld: the float score %Lg is not within %Lg and twice %Lg", kIsa,
        static_cast<long long>(d), rounded, low, bound);
}

// A million pairs, with and without balanced channels; they take about a second.
ISA_TEST(code_bounds) {
  const ForcedScreening forced;
  if (!has_code_products()) return;
  Random random(11);
  constexpr int64_t sizes[] = {1, 3, 4, 5, 16, 31, 32, 33, 64, 65, 80, 128};
  for (int round = 0; round < 28; ++round)
    for (const int64_t d : sizes)
      for (int kind = 0; kind < kKinds; ++kind) {
        Problem x(d);
        make_rows(random, static_cast<Kind>(kind), x.kKeys, d, x.keys.get());
        make_rows(random, random.below(3) ? kNormal : static_cast<Kind>(kind), x.kQueries, d,
                  x.queries.get());
        const float scale = round % 3 ? static_cast<float>(1 / std::sqrt(d)) : -2.5f;
        x.code(scale, round % 2);
        for (int64_t i = 0; i < x.kQueries; ++i)
          for (int64_t j = 0; j < x.kKeys; ++j) check_pair(x, i, j, scale);
      }
}

// Sums of products are exact at the ends of their range, for any number of queries and panels.
ISA_TEST(code_products) {
  const ForcedScreening forced;
  if (!has_code_products()) return;
  Random random(12);
  constexpr int64_t d = 52, most = 14;
  for (int64_t rows = 1; rows <= most; ++rows)
    for (int64_t panels = 1; panels <= 9; ++panels) {
      int8_t queries[most * d];
      uint8_t keys[9 * kCodeKeys * d];
      int32_t start[most];
      float factor[most * 9], bound[most * 9], low[most * 9 * kCodeKeys];
      for (auto& x : queries) x = static_cast<int8_t>(random.below(2) ? 127 : -127);
      for (auto& x : keys) x = static_cast<uint8_t>(random.below(2) ? 255 : random.below(256));
      for (auto& x : factor) x = 1;
      for (auto& x : bound) x = static_cast<float>(random.below(100));
      for (auto& x : start) x = static_cast<int32_t>(random.below(1000));
      float maxima[most * kCodeGroups];
      fill(maxima, most * kCodeGroups, -1e30f);
      score_codes({.queries = queries,
                   .query_row = d,
                   .start = start,
                   .steps = d / kCodeFeatures,
                   .factor = factor,
                   .bound = bound,
                   .factor_row = panels,
                   .low = low,
                   .low_row = panels * kCodeKeys,
                   .maxima = maxima},
                  rows, keys, panels);
      int64_t wrong = 0;
      float largest[most * kCodeGroups];
      fill(largest, most * kCodeGroups, -1e30f);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < panels * kCodeKeys; ++j) {
          int64_t sum = start[r];
          for (int64_t t = 0; t < d; ++t)
            sum +=
                queries[r * d + t] *
                keys[j / kCodeKeys * kCodeKeys * d + t / 4 * kCodeStep + j % kCodeKeys * 4 + t % 4];
          const float want = static_cast<float>(sum) - bound[r * panels + j / kCodeKeys];
          wrong += low[r * panels * kCodeKeys + j] != want;
          largest[r * kCodeGroups + j % kCodeGroups] =
              larger(largest[r * kCodeGroups + j % kCodeGroups], want);
        }
      wrong += std::memcmp(maxima, largest, sizeof largest) != 0;
      CHECK(wrong == 0, "%s %lld sums of %lld rows and %lld panels", kIsa,
            static_cast<long long>(wrong), static_cast<long long>(rows),
            static_cast<long long>(panels));
    }
}

// What cannot be coded makes no claim, and harms no other panel.
ISA_TEST(codes_of_bad_numbers) {
  constexpr int64_t d = 20;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  float keys[kCodeKeys * d];
  uint8_t codes[kCodeKeys * d];
  int8_t query[d];
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 1e31f}) {
    for (auto& x : keys) x = 1;
    keys[7 * d + 3] = bad;
    const PanelBounds panel = code_panel(keys, d, kCodeKeys, d, nullptr, codes);
    CHECK(panel.scale == 0 && panel.residual == infinity && panel.norm == infinity,
          "%s a panel with %g", kIsa, static_cast<double>(bad));
    const CodedQuery coded = code_query(keys + 7 * d, d, nullptr, query);
    CHECK(coded.residual == infinity, "%s a query with %g", kIsa, static_cast<double>(bad));
    const ScoreBounds bounds = bounds_of(coded, d, 1);
    const float bound = bound_of(bounds, broadcast(1.f), broadcast(1.f))[0];
    CHECK(!(bound < infinity), "%s a bound of %g", kIsa, static_cast<double>(bound));
  }
}

// A panel is the same whatever was in its memory, and whatever lies around its keys.
ISA_TEST(codes_of_part_of_a_panel) {
  Random random(13);
  constexpr int64_t d = 21, stride = 30;
  float keys[kCodeKeys * stride];
  for (auto& x : keys) x = static_cast<float>(random.normal());
  for (int64_t count = 1; count <= kCodeKeys; ++count) {
    uint8_t first[kCodeKeys * 24], second[kCodeKeys * 24];
    fill(first, sizeof first, uint8_t{0});
    fill(second, sizeof second, uint8_t{77});
    const PanelBounds a = code_panel(keys, stride, count, d, nullptr, first);
    const PanelBounds b = code_panel(keys, stride, count, d, nullptr, second);
    CHECK(std::memcmp(first, second, sizeof first) == 0 && std::memcmp(&a, &b, sizeof a) == 0,
          "%s a panel of %lld keys", kIsa, static_cast<long long>(count));
  }
}

}  // namespace
}  // namespace ADASPARSE_ISA
}  // namespace adasparse
