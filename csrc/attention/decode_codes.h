// Decoding against keys that come with codes: bounds of all scores in int8, exact scores of the few
// keys that can be in the support.
//
// Candidates are settled (support.h), so that a row has the weights that all of its scores would
// give it. A head whose codes leave too many keys is scored again as it is.
#pragma once

#include "attention/decode_parts.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// Codes the keys of every head, a task for some panels.
inline void code_keys(const KeyCoding& a) {
  constexpr int64_t kTaskPanels = 64;
  const int64_t begin = a.first / kCodeKeys, panels = code_panels(a.n) - begin;
  const int64_t tasks = (panels + kTaskPanels - 1) / kTaskPanels;
  const int64_t size = kCodeKeys * code_size(a.d);
  parallel_for(a.batch * a.groups * tasks, 1, a.threads, [&](int64_t task, int64_t) {
    const int64_t b = task / tasks / a.groups, g = task / tasks % a.groups;
    float* bounds = a.bounds + b * a.to.bound_strides[0] + g * a.to.bound_strides[1];
    uint8_t* codes = a.codes + b * a.to.strides[0] + g * a.to.strides[1];
    const int64_t first = begin + task % tasks * kTaskPanels;
    const Rows<float> keys = rows_at<float>(a.type, a.key, b, g);
    WideRows<float> wide(a.type, kCodeKeys, a.d);
    for (int64_t p = first; p < smaller(begin + panels, first + kTaskPanels); ++p) {
      const int64_t count = smaller<int64_t>(kCodeKeys, a.n - p * kCodeKeys);
      const float* from = wide.read(keys.from(p * kCodeKeys), count, a.d);
      const PanelBounds panel =
          code_panel(from, wide.stride, count, a.d, nullptr, codes + p * size);
      bounds[p] = panel.scale;
      bounds[p + a.to.bound_strides[2]] = panel.residual;
      bounds[p + 2 * a.to.bound_strides[2]] = panel.norm;
    }
  });
}

// Whether the queries of a group are screened: by what is known before.
inline bool screens_group(const AttentionInput& in, int64_t group) {
  if (in.softcap > 0) return false;  // bounds are those of products
  const int64_t b = group / in.groups, shared = in.heads / in.groups;
  if (columns_of(in, length_of(in, b), 0, in.q).count < kDecodedCodes) return false;
  for (int64_t h = group % in.groups * shared; h < (group % in.groups + 1) * shared; ++h)
    for (int64_t i = 0; i < in.q; ++i)
      if (!(alpha_of(in, b, h, i) > kDecodedAlpha)) return false;
  return true;
}

// Lower bounds of the scores of some groups, and of each row and part the largest distance of a
// score from its bound, and the largest bounds.
struct GroupBounds {
  explicit GroupBounds(const GroupScores<float>& low)
      : low(low),
        distances(low.groups * low.rows * low.parts),
        largest(low.groups * low.rows * low.parts * kLargest) {}
  float* distance(int64_t place, int64_t r) const {
    return distances.get() + (place * low.rows + r) * low.parts;
  }
  float* best(int64_t place, int64_t r) const {
    return largest.get() + (place * low.rows + r) * low.parts * kLargest;
  }
  static constexpr int64_t kLargest = 4 * Lanes<float>::count;  // of a part: see RowMaximum
  const GroupScores<float>& low;
  Scratch<float> distances, largest;
};

// Fetches `count` bytes into the cache.
inline void fetch_bytes(const void* from, int64_t count) {
  for (int64_t x = 0; x < count; x += 64) __builtin_prefetch(static_cast<const char*>(from) + x);
}

// At least the norm of any key that the queries of a group see.
inline float largest_norm(const CodedKeys& keys, const Columns& columns) {
  float norm = 0;
  for (int64_t p = columns.first / kCodeKeys; p < code_panels(columns.last()); ++p)
    norm = larger(norm, keys.norm[p]);
  return norm;
}

// Whether ALiBi keeps a part of the keys out of all supports of a group, whatever its keys are: the
// score of a key is at most |query| |key| minus the slope times its distance, that of the nearest
// key at least the negative of the first, and these are farther apart than a weight reaches.
inline bool is_part_too_far(const DecodePart<float>& part, const WholeRows<float>& value,
                            const CodedKeys& keys, int64_t rows) {
  const AttentionInput& in = part.in;
  if (!in.slopes || in.mask_kind != MaskKind::kNone) return false;
  const int64_t last = part.first + part.n - 1;
  const double norm =
      static_cast<double>(largest_norm(keys, columns_of(in, part.head.length, 0, in.q)));
  for (int64_t r = 0; r < rows; ++r) {
    const Head<float> head = head_at<float>(in, part.head.number + r / in.q, nullptr, value);
    const int64_t i = r % in.q;
    const KeyRange visible = visible_keys(in, head.length, i);
    if (visible.size() == 0) continue;
    const int64_t near = larger(smaller(i + in.k - in.q, visible.last - 1), visible.first);
    if (!(head.slope > 0) || last >= near) return false;
    const float* query = part.query(r);
    double squares = 0;
    for (int64_t t = 0; t < in.d; ++t) squares += static_cast<double>(query[t]) * query[t];
    const double most = std::fabs(in.scale) * std::sqrt(squares) * norm;
    const double reach = 2 * most + 1 / (alpha_of(in, head.b, head.h, i) - 1);
    const Distance distance(in, visible, i);
    const auto apart = static_cast<double>(distance.to(last) - distance.to(near));
    if (!(head.slope * apart > reach * 1.0001)) return false;  // or NaN
  }
  return true;
}

// Bounds the scores of a part of the keys of a group.
inline void bound_part(const AttentionInput& in, const WholeRows<float>& value, int64_t group,
                       int64_t number, const GroupBounds& to, int64_t place) {
  constexpr int64_t most = kDecodeKeys / kCodeKeys, width = Lanes<float>::count;
  const DecodePart<float> part(in, value, group, number);
  const int64_t rows = to.low.rows, size = code_size(in.d);
  for (int64_t r = 0; r < rows; ++r) {
    to.distance(place, r)[number] = 0;
    fill(to.best(place, r) + number * to.kLargest, to.kLargest,
         -std::numeric_limits<float>::infinity());
  }
  if (part.is_empty()) return;
  const CodedKeys keys = codes_at(in.codes, group / in.groups, group % in.groups);
  if (is_part_too_far(part, value, keys, rows)) {
    for (int64_t r = 0; r < rows; ++r)
      fill(to.low.row(place, r) + part.begin, round_up(part.n, kColumns),
           -std::numeric_limits<float>::infinity());
    return;
  }
  const int64_t first = part.first / kCodeKeys, panels = code_panels(part.n);
  const int64_t bytes = kCodeKeys * size;
  const uint8_t* panel = keys.codes + first * bytes;
  const int64_t numbers = panels * static_cast<int64_t>(sizeof(float));
  fetch_bytes(keys.scale + first, numbers);
  fetch_bytes(keys.residual + first, numbers);
  fetch_bytes(keys.norm + first, numbers);
  fetch_bytes(panel, smaller(kFetchedPanels, panels) * bytes);
  Scratch<int8_t> codes(rows * size);
  Scratch<float> factor(rows * most), bound(rows * most);
  Scratch<int32_t> start(rows);
  for (int64_t r = 0; r < rows; ++r) {
    const CodedQuery query = code_query(part.query(r), in.d, nullptr, codes.get() + r * size);
    const ScoreBounds bounds = bounds_of(query, in.d, static_cast<float>(in.scale));
    start.get()[r] = bounds.start;
    float* mine = bound.get() + r * most;
    for (int64_t p = 0; p < panels; p += width) {
      store(factor.get() + r * most + p, load(keys.scale + first + p) * bounds.factor);
      store(mine + p,
            bound_of(bounds, load(keys.residual + first + p), load(keys.norm + first + p)));
    }
    float largest = 0;
    for (int64_t p = 0; p < panels; ++p) largest = larger(largest, mine[p]);
    to.distance(place, r)[number] = 2 * largest;
  }
  for (int64_t p = 0; p < panels; p += kFetchedPanels) {
    const int64_t count = smaller(kFetchedPanels, panels - p);
    // Codes are read once: processors fetch ahead within a page of memory, and pages are short.
    fetch_bytes(panel + (p + count) * bytes, smaller(kFetchedPanels, panels - p - count) * bytes);
    score_codes({.queries = codes.get(),
                 .query_row = size,
                 .start = start.get(),
                 .steps = size / kCodeFeatures,
                 .factor = factor.get() + p,
                 .bound = bound.get() + p,
                 .factor_row = most,
                 .low = to.low.row(place, 0) + part.begin + p * kCodeKeys,
                 .low_row = to.low.stride,
                 .maxima = nullptr},
                rows, panel + p * bytes, count);
  }
  for (int64_t r = 0; r < rows; ++r) {
    float* low = to.low.row(place, r) + part.begin;
    part.finish(value, r, low);
    const RowMaximum<float> top(low, part.n);
    float* best = to.best(place, r) + number * to.kLargest;
    for (int x = 0; x < 4; ++x) store(best + x * width, top.best[x]);
    if (std::isnan(top.max)) best[0] = top.max;
  }
}

// One head whose scores are bounded.
struct ScreenedHead {
  const AttentionForward& a;
  const Head<float>& head;
  ForwardBlock<float> block;
  const GroupBounds& bounds;
  int64_t place;
  Columns columns;

  int64_t row_of(int64_t i) const { return head.h % (a.in.heads / a.in.groups) * a.in.q + i; }
  const float* low(int64_t i) const { return bounds.low.row(place, row_of(i)); }
  // The most that a score of row i is above its bound.
  float distance(int64_t i) const {
    float most = 0;
    for (int64_t p = 0; p < bounds.low.parts; ++p)
      most = larger(most, bounds.distance(place, row_of(i))[p]);
    return most;
  }
  // By how much a comparison of bounds of this size is loosened, more than by all roundings.
  static double slack(double bound, double far, double eps) {
    return 4e-6 * (std::fabs(bound) + far + 1 / eps);
  }

  // Whether run_candidates, from all scores, would find that rows are broad and not select
  // candidates: the first chunk of keys of row i decides. Bounds of scores tell mostly.
  bool is_broad(int64_t i, double eps) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const RowMaximum<float> top(low(i), kChunkKeys);
    const double far = static_cast<double>(distance(i)), max = static_cast<double>(top.max);
    if (!(far < static_cast<double>(infinity)) || std::isnan(max)) return true;
    const double edge = max - 1 / eps - kSettledStep - far - slack(max, far, eps);
    // Keys that are too far have no bounds.
    if (top.max > -infinity &&
        static_cast<double>(count_above(i, kChunkKeys, static_cast<float>(edge))) <=
            kBroadSample * kChunkKeys)
      return false;
    WideRows<float> wide(a.in.type, 1, a.in.d);
    const float* query = wide.read(head.query.from(i), 1, a.in.d);
    float* scores = block.work.scores.get();
    with_elements(head.key.from(columns.first), [&](const auto* keys) {
      multiply_unpacked<1>(&query, a.in.d, static_cast<float>(a.in.scale), &scores, kChunkKeys,
                           [&](int64_t j) { return keys + j * head.key.stride; });
    });
    finish_scores(a.in, head, i, columns.first, visible_keys(a.in, head.length, i), kChunkKeys,
                  scores);
    block.start_candidates(0);
    Candidates<float>& sample = block.work.candidates[0];
    sample.take(scores, kChunkKeys, columns.first, eps);
    return static_cast<double>(sample.count) > kBroadSample * kChunkKeys;
  }
  int64_t count_above(int64_t i, int64_t n, float cut) const {
    int64_t count = 0;
    for_each_vector(low(i), n, [&](Vec<float> s, int, int64_t) ADASPARSE_INLINE_BODY {
      count += __builtin_popcount(bits(greater(s, broadcast(cut))));
    });
    return count;
  }

  // Selects the keys whose scores can be in the support of row i. Returns false if they are many.
  bool select(int64_t i, double eps, Candidates<float>& to) const {
    const RowMaximum<float> top(bounds.best(place, row_of(i)),
                                bounds.low.parts * GroupBounds::kLargest);
    if (top.max == -std::numeric_limits<float>::infinity()) return true;  // all keys are masked
    if (std::isnan(top.max)) return false;
    double known = static_cast<double>(top.max);
    with_lower_map<float>(eps, [&](const auto& map) { known += bound_from_best(map, top); });
    to.raise(known, eps);
    const double far = static_cast<double>(distance(i));
    const auto cut = static_cast<float>(static_cast<double>(to.cut) - far - slack(known, far, eps));
    const Vec<float> below = broadcast(cut);
    const IntVec<float> lane = lane_numbers<float>() + static_cast<int32_t>(columns.first);
    int64_t count = 0;
    for_each_vector(low(i), columns.count, [&](Vec<float> s, int, int64_t j) ADASPARSE_INLINE_BODY {
      const Mask<float> chosen = greater(s, below);
      if (any(chosen))
        count += compress_index<float>(to.index + count, chosen, lane + static_cast<int32_t>(j));
    });
    to.count = count;
    return count <= columns.count / kDecodedShare || screening() == Screening::kForced;
  }

  // Returns false if rows [i, end) of one alpha must be solved from all of their scores.
  bool run_rows(int64_t i, int64_t end, double alpha) {
    if (is_broad(i + (end - i) / 2, alpha - 1)) return false;
    for (; i < end; ++i) {
      if (!(distance(i) < std::numeric_limits<float>::infinity())) return false;
      block.start_candidates(0);
      Candidates<float>& mine = block.work.candidates[0];
      if (!select(i, alpha - 1, mine)) return false;
      WideRows<float> wide(a.in.type, 1, a.in.d);
      const float* query = wide.read(head.query.from(i), 1, a.in.d);
      with_elements(head.key, [&](const auto* keys) {
        score_some(query, keys, head.key.stride, mine.index, mine.count, a.in.d,
                   static_cast<float>(a.in.scale), mine.value);
      });
      finish_some(a.in, head, i, visible_keys(a.in, head.length, i), mine.index, mine.count,
                  mine.value);
      block.save_rescored(i, mine.count);
      with_map<float>(alpha, [&](const auto& map) {
        if constexpr (std::decay_t<decltype(map)>::kIsSparse) block.solve_candidates(map, i, 1);
      });
    }
    return true;
  }

  bool run() {
    for (int64_t i = 0, end; i < a.in.q; i = end) {
      const double alpha = alpha_of(a.in, head.b, head.h, i);
      for (end = i + 1; end < a.in.q && alpha_of(a.in, head.b, head.h, end) == alpha; ++end) {
      }
      // A window may show some queries less than others see.
      const Columns mine = columns_of(a.in, head.length, i, end - i);
      if (mine.first == columns.first && mine.count > kChunkKeys && run_rows(i, end, alpha))
        continue;
      if (block.saved) {
        block.saved->size = 0;
        block.saved->is_dropped = false;
      }
      return false;
    }
    return true;
  }
};

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
