// Decoding against keys that come with codes: bounds of all scores in int8, exact scores of the few
// keys that can be in the support.
//
// A row whose support is settled (settle.h) has the weights that all of its scores would give it. A
// head with any other row is scored again as it is, and solved as if there were no codes.
#pragma once

#include "attention/decode_parts.h"
#include "attention/quantize.h"

namespace adasparse {
namespace ADASPARSE_ISA {

static_assert(kCodeKeys == kCodePanel);

inline CodedKeys codes_at(const CodesOf& codes, int64_t b, int64_t g) {
  const float* bounds = codes.bounds + b * codes.bound_strides[0] + g * codes.bound_strides[1];
  return {.codes = codes.codes + b * codes.strides[0] + g * codes.strides[1],
          .scale = bounds,
          .residual = bounds + codes.bound_strides[2],
          .norm = bounds + 2 * codes.bound_strides[2]};
}

// Codes the keys of every head, a task for some panels.
inline void code_keys(const KeyCoding& a) {
  constexpr int64_t kTaskPanels = 64;
  const View<const float> key = view_of<float>(a.key);
  const int64_t begin = a.first / kCodeKeys, panels = code_panels(a.n) - begin;
  const int64_t tasks = (panels + kTaskPanels - 1) / kTaskPanels;
  const int64_t size = kCodeKeys * code_size(a.d);
  parallel_for(a.batch * a.groups * tasks, 1, a.threads, [&](int64_t task, int64_t) {
    const int64_t b = task / tasks / a.groups, g = task / tasks % a.groups;
    float* bounds = a.bounds + b * a.to.bound_strides[0] + g * a.to.bound_strides[1];
    uint8_t* codes = a.codes + b * a.to.strides[0] + g * a.to.strides[1];
    const int64_t first = begin + task % tasks * kTaskPanels;
    for (int64_t p = first; p < smaller(begin + panels, first + kTaskPanels); ++p) {
      const PanelBounds panel = code_panel(key.at(b, g) + p * kCodeKeys * key.row, key.row,
                                           smaller<int64_t>(kCodeKeys, a.n - p * kCodeKeys), a.d,
                                           nullptr, codes + p * size);
      bounds[p] = panel.scale;
      bounds[p + a.to.bound_strides[2]] = panel.residual;
      bounds[p + 2 * a.to.bound_strides[2]] = panel.norm;
    }
  });
}

// Whether the queries of a group are screened: by what is known before.
inline bool screens_group(const AttentionInput& in, int64_t group) {
  const int64_t b = group / in.groups, shared = in.heads / in.groups;
  if (columns_of(in, length_of(in, b), 0, in.q).count < kScreenedKeys) return false;
  for (int64_t h = group % in.groups * shared; h < (group % in.groups + 1) * shared; ++h)
    for (int64_t i = 0; i < in.q; ++i)
      if (!(alpha_of(in, b, h, i) > kScreenedAlpha)) return false;
  return true;
}

// Lower bounds of the scores of some groups, and of each row and part the largest distance of a
// score from its bound.
struct GroupBounds {
  explicit GroupBounds(const GroupScores<float>& low)
      : low(low), distances(low.groups * low.rows * low.parts) {}
  float* distance(int64_t place, int64_t r) const {
    return distances.get() + (place * low.rows + r) * low.parts;
  }
  const GroupScores<float>& low;
  Scratch<float> distances;
};

// Bounds the scores of a part of the keys of a group.
inline void bound_part(const AttentionInput& in, const WholeRows<float>& value, int64_t group,
                       int64_t number, const GroupBounds& to, int64_t place) {
  constexpr int64_t most = kDecodeKeys / kCodeKeys, width = Lanes<float>::count;
  const DecodePart<float> part(in, value, group, number);
  const int64_t rows = to.low.rows, size = code_size(in.d);
  for (int64_t r = 0; r < rows; ++r) to.distance(place, r)[number] = 0;
  if (part.is_empty()) return;
  const CodedKeys keys = codes_at(in.codes, group / in.groups, group % in.groups);
  const int64_t first = part.first / kCodeKeys, panels = code_panels(part.n);
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
  const int64_t bytes = kCodeKeys * size;
  const uint8_t* panel = keys.codes + first * bytes;
  for (int64_t p = 0; p < panels; p += kFetchedPanels) {
    const int64_t count = smaller(kFetchedPanels, panels - p);
    // Codes are read once: processors fetch ahead within a page of memory, and pages are short.
    const int64_t left = smaller(kFetchedPanels, panels - p - count);
    for (int64_t x = 0; x < left * bytes; x += 64)
      __builtin_prefetch(panel + (p + count) * bytes + x);
    score_codes(codes.get(), size, start.get(), rows, panel + p * bytes, size / kCodeFeatures,
                count, factor.get() + p, bound.get() + p, most,
                to.low.row(place, 0) + part.begin + p * kCodeKeys, to.low.stride);
  }
  for (int64_t r = 0; r < rows; ++r) part.finish(value, r, to.low.row(place, r) + part.begin);
}

// One head whose scores are bounded.
struct ScreenedHead {
  const AttentionForward& a;
  const Head<float>& head;
  ForwardBlock<float> block;
  const GroupBounds& bounds;
  int64_t place;

  // Columns whose scores can be in the support of row i, ascending; -1 if there are too many.
  int64_t select(int64_t i, const Columns& columns, double eps, double& known) const {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const int64_t r = head.h % (a.in.heads / a.in.groups) * a.in.q + i;
    const float* low = bounds.low.row(place, r);
    const int64_t n = columns.count;
    float distance = 0;
    for (int64_t p = 0; p < bounds.low.parts; ++p)
      distance = larger(distance, bounds.distance(place, r)[p]);
    const RowMaximum<float> top(low, n);
    if (top.max == -infinity && distance < infinity) return 0;
    if (!std::isfinite(top.max) || !(distance < infinity)) return -1;
    known = static_cast<double>(top.max);
    with_lower_map<float>(eps, [&](const auto& map) { known += bound_from_best(map, top); });
    // Rounded down a little, by more than the roundings of biased scores.
    const double edge = known - 1 / eps - static_cast<double>(distance);
    const float cut = static_cast<float>(
        edge - 4e-6 * (std::fabs(known) + 1 / eps + static_cast<double>(distance)));
    int32_t* index = block.work.indices.get();
    int64_t count = 0;
    const Vec<float> below = broadcast(cut);
    const IntVec<float> lane = lane_numbers<float>() + static_cast<int32_t>(columns.first);
    for_each_vector(low, n, [&](Vec<float> s, int, int64_t j) ADASPARSE_INLINE_BODY {
      const Mask<float> chosen = greater(s, below);
      if (any(chosen))
        count += compress_index<float>(index + count, chosen, lane + static_cast<int32_t>(j));
    });
    return count > n / kScreenedShare ? -1 : count;
  }

  // Scores of row i for the selected keys, as score_part computes them.
  void rescore(int64_t i, int64_t count) {
    const float* query = head.query + i * head.query_row;
    float* scores = block.work.values.get();
    const int32_t* index = block.work.indices.get();
    multiply_unpacked<1>(&query, a.in.d, static_cast<float>(a.in.scale), &scores, count,
                         [&](int64_t j) { return head.key + index[j] * head.key_row; });
    const KeyRange visible = visible_keys(a.in, head.length, i);
    for (int64_t j = 0; j < count; ++j)
      finish_scores(a.in, head, i, index[j], visible, 1, scores + j);
  }

  // Returns false if row i must be solved from all of its scores.
  bool run_row(int64_t i, const Columns& columns) {
    const double alpha = alpha_of(a.in, head.b, head.h, i);
    double known = -std::numeric_limits<double>::infinity();
    const int64_t count = select(i, columns, alpha - 1, known);
    if (count < 0) return false;
    block.save_rescored(i, count);
    Entries<float> list(block.entries());
    const int64_t begin = list.size();
    if (count == 0) {
      block.save_state(i, {-std::numeric_limits<double>::infinity(), 0, 1});
      block.finish_row(i, begin);
      return true;
    }
    rescore(i, count);
    bool is_settled = false;
    with_map<float>(alpha, [&](const auto& map) {
      if constexpr (std::decay_t<decltype(map)>::kIsSparse) {
        const SolvedRow solved = block.solve(map, block.work.values.get(), count, known);
        is_settled = solved.is_settled;
        if (is_settled) block.save_state(i, solved.normalizer);
      }
    });
    if (!is_settled) return false;
    append_support(block.work.row.get(), block.work.indices.get(), 0, count, list);
    block.finish_row(i, begin);
    return true;
  }

  bool run() {
    const Columns columns = columns_of(a.in, head.length, 0, a.in.q);
    for (int64_t i = 0; i < a.in.q; ++i)
      if (!run_row(i, columns)) {
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
