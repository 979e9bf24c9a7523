// Screened scores: which keys can be in the support of a row, from int8 codes alone. They are a
// few percent of all; only their scores are then computed in float, in the order in which the
// register tiles add, so that every result is that of the unscreened kernel to the last bit.
#pragma once

#include "attention/quantize.h"
#include "attention/scores.h"
#include "attention/settle.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// ---------------------------------------------------------------- keys

static_assert(kCodeKeys == kCodePanel);

// Codes that came with the keys, of one head of them.
inline CodedKeys codes_at(const CodesOf& codes, int64_t b, int64_t g) {
  const float* bounds = codes.bounds + b * codes.bound_strides[0] + g * codes.bound_strides[1];
  return {.codes = codes.codes + b * codes.strides[0] + g * codes.strides[1],
          .scale = bounds,
          .residual = bounds + codes.bound_strides[2],
          .norm = bounds + 2 * codes.bound_strides[2],
          .query_channel = nullptr};
}

// The codes of all heads of keys of a call, if any of its heads may be screened: those that came
// with the keys, or new ones.
class ScreenedKeys {
 public:
  explicit ScreenedKeys(const AttentionInput& in, bool is_wanted)
      : in_(in),
        panels_(round_up(code_panels(in.k), kChunkPanels) + kChunkPanels),
        head_bytes_(code_panels(in.k) * kCodeKeys * code_size(in.d)),
        codes_(is_wanted && !in.codes.codes ? in.batch * in.groups * head_bytes_ : 1),
        bounds_(is_wanted && !in.codes.codes ? in.batch * in.groups * panels_ * 3 : 1),
        channels_(is_wanted && !in.codes.codes ? in.batch * in.groups * 2 * in.d : 1),
        is_wanted_(is_wanted) {
    if (!is_wanted || in.codes.codes) return;
    parallel_for(in.batch * in.groups, 1, in.threads, [&](int64_t head, int64_t) {
      const Rows<float> keys = rows_at<float>(in, in.key, head / in.groups, head % in.groups);
      WideRows<float> wide(in.type, kCodeKeys, in.d);
      float* channel = channels_.get() + head * 2 * in.d;
      fill(channel, in.d, 0.f);
      for (int64_t j = 0; j < in.k; j += kCodeKeys) {
        const int64_t count = smaller<int64_t>(kCodeKeys, in.k - j);
        raise_channels(wide.read(keys.from(j), count, in.d), wide.stride, count, in.d, channel);
      }
      balance_channels(in.d, channel, channel + in.d);
    });
    const int64_t panels = code_panels(in.k),
                  tasks = (panels + kCodedTogether - 1) / kCodedTogether;
    parallel_for(in.batch * in.groups * tasks, 1, in.threads, [&](int64_t task, int64_t) {
      const int64_t head = task / tasks, first = task % tasks * kCodedTogether;
      const Rows<float> keys = rows_at<float>(in, in.key, head / in.groups, head % in.groups);
      WideRows<float> wide(in.type, kCodeKeys, in.d);
      const float* channel = channels_.get() + head * 2 * in.d;
      float* bounds = bounds_.get() + head * panels_ * 3;
      for (int64_t p = first; p < smaller(panels, first + kCodedTogether); ++p) {
        const int64_t count = smaller<int64_t>(kCodeKeys, in.k - p * kCodeKeys);
        const float* from = wide.read(keys.from(p * kCodeKeys), count, in.d);
        const PanelBounds panel =
            code_panel(from, wide.stride, count, in.d, channel,
                       codes_.get() + head * head_bytes_ + p * kCodeKeys * code_size(in.d));
        bounds[p] = panel.scale;
        bounds[panels_ + p] = panel.residual;
        bounds[2 * panels_ + p] = panel.norm;
      }
      if (first == 0)
        for (int64_t row = 0; row < 3; ++row)
          fill(bounds + row * panels_ + panels, panels_ - panels, 0.f);
    });
  }
  // Null codes where keys are not screened.
  CodedKeys at(int64_t group) const {
    if (!is_wanted_) return {};
    if (in_.codes.codes) return codes_at(in_.codes, group / in_.groups, group % in_.groups);
    const float* bounds = bounds_.get() + group * panels_ * 3;
    return {.codes = codes_.get() + group * head_bytes_,
            .scale = bounds,
            .residual = bounds + panels_,
            .norm = bounds + 2 * panels_,
            .query_channel = channels_.get() + (2 * group + 1) * in_.d};
  }

  static constexpr int64_t kChunkPanels = kChunkKeys / kCodeKeys;

 private:
  static constexpr int64_t kCodedTogether = 16;  // panels of a task
  AttentionInput in_;
  int64_t panels_, head_bytes_;
  Scratch<uint8_t> codes_;
  Scratch<float> bounds_;
  Scratch<float> channels_;  // factors of the features of keys, then those of queries
  bool is_wanted_;
};

// Whether keys are worth coding: maps are sparse, rows long, and queries enough to use the codes.
inline bool may_screen(const AttentionInput& in) {
  if (in.is_double() || screening() == Screening::kOff || !has_code_products()) return false;
  if (in.softcap > 0) return false;  // bounds are those of products
  if (screening() == Screening::kForced) return in.k > kLaneKeys && in.d > 0;
  return most_visible_keys(in) >= kScreenedKeys && in.d >= kScreenedSize &&
         (in.codes.codes || in.q * (in.heads / in.groups) >= kScreenedQueries);
}

// ---------------------------------------------------------------- a strip of queries

// Codes and bounds of a strip of queries, and the largest lower bounds of their scores so far.
class ScreenedStrip {
 public:
  static constexpr int64_t kPanels = ScreenedKeys::kChunkPanels;
  static constexpr int kFewCoded = kVectorBytes == 64 ? 2 : 8;  // candidates, taken one by one

  explicit ScreenedStrip(int64_t d) : row_(code_size(d)), queries_(kStripRows * row_) {}

  void start(const float* queries, int64_t stride, int64_t rows, int64_t d, float scale,
             const float* channel) {
    for (int64_t r = 0; r < rows; ++r) {
      const CodedQuery query =
          code_query(queries + r * stride, d, channel, queries_.get() + r * row_);
      bounds_[r] = bounds_of(query, d, scale);
      start_[r] = bounds_[r].start;
    }
    fill(maxima_, rows * kCodeGroups, -std::numeric_limits<float>::infinity());
  }

  // Lower bounds of the scores of up to a chunk of keys, `count` panels from `first` on. They count
  // as the largest so far unless they are to be changed: then call add_maxima.
  void score(const CodedKeys& keys, int64_t first, int64_t count, int64_t rows, float* low,
             int64_t stride, bool are_final) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t p = 0; p < kPanels; p += Lanes<float>::count) {
        const int64_t at = r * kPanels + p;
        store(factor_ + at, load(keys.scale + first + p) * bounds_[r].factor);
        store(bound_ + at, bound_at(keys, r, first + p));
      }
    score_codes({.queries = queries_.get(),
                 .query_row = row_,
                 .start = start_,
                 .steps = row_ / kCodeFeatures,
                 .factor = factor_,
                 .bound = bound_,
                 .factor_row = kPanels,
                 .low = low,
                 .low_row = stride,
                 .maxima = are_final ? maxima_ : nullptr},
                rows, keys.codes + first * kCodeKeys * row_, count);
  }
  void add_maxima(int64_t r, const float* low, int64_t n) {
    constexpr int width = Lanes<float>::count;
    float* maxima = maxima_ + r * kCodeGroups;
    for (int64_t g = 0; g < kCodeGroups; g += width) {
      Vec<float> top = load(maxima + g);
      for (int64_t j = g; j < n; j += kCodeGroups) top = max(load(low + j), top);
      store(maxima + g, top);
    }
  }

  // The number of n scores of row r, for keys from `first` on, that their codes could not show to
  // be below the cut.
  int64_t count_unclear(const CodedKeys& keys, int64_t r, const float* scores, int64_t n,
                        int64_t first, float cut) const {
    alignas(64) float bound[kPanels];
    for (int64_t p = 0; p < kPanels; p += Lanes<float>::count)
      store(bound + p, bound_at(keys, r, first / kCodeKeys + p));
    int64_t count = 0;
    for (int64_t j = 0; j < n; ++j) count += scores[j] > cut - 2 * bound[j / kCodeKeys];
    return count;
  }

  // Raises the bounds of the normalizers of all rows from their largest lower bounds so far.
  // `lanes` holds 2 kCodeGroups vectors.
  void raise(int64_t rows, double eps, float* lanes, Candidates<float>* candidates) const {
    constexpr int width = Lanes<float>::count;
    for (int64_t first = 0; first < rows; first += width)
      raise_in_lanes([&](int64_t r) { return maxima_ + (first + r) * kCodeGroups; }, kCodeGroups,
                     static_cast<int>(smaller<int64_t>(width, rows - first)), eps, lanes,
                     candidates + first);
  }

  // Whether it is certain that no more than `limit` of the n scores of row r, for keys from `first`
  // on, lie above the cut that the largest of them gives.
  bool has_few(const CodedKeys& keys, int64_t r, const float* low, int64_t n, int64_t first,
               double eps, int64_t limit) const {
    for (int64_t p = 0; p < kPanels; p += Lanes<float>::count)
      if (any(is_nan(bound_at(keys, r, first / kCodeKeys + p) * 0.f))) return false;
    const RowMaximum<float> top(low, n);
    if (std::isnan(top.max)) return false;
    Candidates<float> row;
    row.start(nullptr, nullptr);
    row.raise(static_cast<double>(top.max), eps);
    return count_unclear(keys, r, low, n, first, row.cut) <= limit;
  }

  // Appends those of n keys from `first` on whose scores may be above the cut of row r, with their
  // upper bounds if the cut may rise later on.
  template <bool KeepsBounds, class Row>
  void take(const CodedKeys& keys, int64_t r, const float* low, int64_t n, int64_t first,
            Row& row) const {
    constexpr int width = Lanes<float>::count;
    const Vec<float> cut = broadcast(row.cut);
    alignas(64) float twice[kPanels];
    int64_t count = row.count;
    for (int64_t chunk = 0; chunk < n; chunk += kChunkKeys) {
      for (int64_t p = 0; p < kPanels; p += width) {
        const Vec<float> bound = bound_at(keys, r, (first + chunk) / kCodeKeys + p);
        store(twice + p, bound + bound);
      }
      const int64_t end = smaller(kChunkKeys, n - chunk);
      for (int64_t j = 0; j < end; j += kCodeGroups) {
        const float* mine = low + chunk + j;
        const float* added = twice + j / kCodeKeys;
        uint64_t above = 0;
#pragma GCC unroll 16
        for (int64_t x = 0; x < kCodeGroups; x += width)
          above |= static_cast<uint64_t>(
                       bits(greater_or_nan(load(mine + x) + added[x / kCodeKeys], cut)))
                   << x;
        const bool are_all = end - j >= kCodeGroups;
        if (are_all && __builtin_popcountll(above) > kFewCoded) {
          const IntVec<float> lane =
              lane_numbers<float>() + static_cast<int32_t>(first + chunk + j);
#pragma GCC unroll 16
          for (int64_t x = 0; x < kCodeGroups; x += width) {
            const Vec<float> high = load(mine + x) + added[x / kCodeKeys];
            const Mask<float> chosen = greater_or_nan(high, cut);
            if (KeepsBounds) compress_store<float>(row.value + count, chosen, high);
            count += compress_index<float>(row.index + count, chosen, lane + static_cast<int>(x));
          }
          continue;
        }
        // Keys that do not exist share the bounds of their panel, which may be infinite or NaN.
        if (!are_all) above &= (uint64_t{1} << (end - j)) - 1;
        const auto append = [&](int64_t at) ADASPARSE_INLINE_BODY {
          if (KeepsBounds) row.value[count] = mine[at] + added[at / kCodeKeys];
          row.index[count] = static_cast<int32_t>(first + chunk + j + at);
        };
        // Two without a branch: their number is hard to predict.
        for (int i = 0; i < 2; ++i) {
          append(__builtin_ctzll(above | uint64_t{1} << (kCodeGroups - 1)));
          count += above != 0;
          above &= above - 1;
        }
        for (; above; above &= above - 1, ++count) append(__builtin_ctzll(above));
      }
    }
    row.count = count;
  }

 private:
  ADASPARSE_INLINE Vec<float> bound_at(const CodedKeys& keys, int64_t r, int64_t panel) const {
    return bound_of(bounds_[r], load(keys.residual + panel), load(keys.norm + panel));
  }
  int64_t row_;
  Scratch<int8_t> queries_;
  int32_t start_[kStripRows];
  ScoreBounds bounds_[kStripRows];
  alignas(64) float factor_[kStripRows * kPanels];
  alignas(64) float bound_[kStripRows * kPanels];
  alignas(64) float maxima_[kStripRows * kCodeGroups];
};

// ---------------------------------------------------------------- scores of some keys

// to[e] = factor * <query, keys[index[e]]>, added as multiply_panels adds: feature after feature.
// `index` and `to` have room for whole vectors.
template <class T, class IO>
void score_some(const T* query, const IO* keys, int64_t stride, const int32_t* index, int64_t count,
                int64_t d, T factor, T* to) {
  using Loader = WideColumnLoader<T, IO>;
  constexpr int width = Lanes<T>::count, columns = Loader::count;
  for (int64_t e = 0; e < count; e += width) {
    const IO* row[width];
    for (int l = 0; l < width; ++l)
      row[l] = keys + int64_t{index[smaller(e + l, count - 1)]} * stride;
    Vec<T> sum{};
    int64_t t = 0;
    for (; t + columns <= d; t += columns) {
      Vec<T> column[columns];
      Loader::load(row, t, column);
#pragma GCC unroll 16
      for (int x = 0; x < columns; ++x) sum += broadcast(query[t + x]) * column[x];
    }
    for (; t < d; ++t) {
      Vec<T> column;
      for (int l = 0; l < width; ++l) column[l] = widen(row[l][t]);
      sum += broadcast(query[t]) * column;
    }
    store(to + e, sum * broadcast(factor));
  }
}

// Biases and masks scores of query i for the keys `index`, as finish_scores does.
template <class T>
void finish_some(const AttentionInput& in, const Head<T>& head, int64_t i, const KeyRange& visible,
                 const int32_t* index, int64_t count, T* scores) {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  if (head.slope != 0) {
    const T slope = static_cast<T>(head.slope);
    const Distance distance(in, visible, i);
    for (int64_t e = 0; e < count; ++e)
      scores[e] -= slope * static_cast<T>(static_cast<int32_t>(distance.to(index[e])));
  }
  const int64_t step = in.mask_strides[3], from = i * in.mask_strides[2];
  if (in.mask_kind == MaskKind::kBool) {
    const uint8_t* mask = static_cast<const uint8_t*>(head.mask) + from;
    for (int64_t e = 0; e < count; ++e) scores[e] = mask[index[e] * step] ? scores[e] : -infinity;
  } else if (in.mask_kind == MaskKind::kAdded) {
    with_elements(Rows<T>{head.mask, 0, in.mask_type}.moved(from), [&](const auto* mask) {
      for (int64_t e = 0; e < count; ++e) scores[e] += widen(mask[index[e] * step]);
    });
  }
  for (int64_t e = 0; e < count; ++e)
    if (index[e] < visible.first || index[e] >= visible.last) scores[e] = -infinity;
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
