// Entmax attention, forward of few queries: decoding, where text is generated a token at a time.
//
// Few keys: one sequence per lane. More keys: decode_parts.h, or decode_codes.h where keys come
// with codes.
#pragma once

#include "attention/decode_codes.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// Whether there is one query in each sequence, to be solved next to those of other sequences.
inline bool is_decoding(const AttentionForward& a) {
  const AttentionInput& in = a.in;
  return in.q == 1 && in.k <= kLaneKeys && !in.sinks && !a.is_scores_only && !needs_double(in);
}

// Heads [h_begin, h_end) of sequences [b_begin, b_end), a lane for each sequence. Keys and values
// are read in the order of memory; `scores` holds kLaneKeys of each row.
template <class T>
void decode_lanes(const AttentionForward& a, const WholeRows<T>& value, AttentionWork<T>& work,
                  T* scores, int64_t h_begin, int64_t h_end, int64_t b_begin, int64_t b_end) {
  const AttentionInput& in = a.in;
  const auto row_of = [&](int64_t b, int64_t h) {
    return scores + ((h - h_begin) * Lanes<T>::count + b - b_begin) * kLaneKeys;
  };
  const auto for_each = [&](const auto& body) {
    for (int64_t b = b_begin; b < b_end; ++b)
      for (int64_t h = h_begin; h < h_end; ++h) {
        const Head<T> head = head_at<T>(in, b * in.heads + h, nullptr, value);
        SupportBlock* saved = a.blocks ? a.blocks + head.number : nullptr;
        body(ForwardBlock<T>{a, head, work, value.vectors(), saved, a.row_limit, false},
             row_of(b, h));
      }
  };
  for_each([&](ForwardBlock<T> block, T* row) {
    score_strip(in, block.head, 0, 1, 0, round_up(in.k, kColumns), row, kLaneKeys);
  });
  for (int64_t h = h_begin; h < h_end; ++h)
    for (int64_t b = b_begin, end; b < b_end; b = end) {
      const double alpha = alpha_of(in, b, h, 0);
      for (end = b + 1; end < b_end && alpha_of(in, end, h, 0) == alpha; ++end) {
      }
      with_map<T>(alpha, [&](const auto& map) {
        const auto row = [&](int64_t r) { return row_of(b + r, h); };
        const int used = static_cast<int>(end - b);
        const LaneNormalizers<T> solved =
            forward_in_lanes(map, row, in.k, used, work.solver.get(), row);
        for (int r = 0; r < used; ++r) save_state_of(a, (b + r) * in.heads + h, solved.row(r));
      });
    }
  for_each([&](ForwardBlock<T> block, T* row) {
    const Columns columns{0, visible_keys(in, block.head.length, 0).last};
    block.finish_strip(0, 1, columns, row, kLaneKeys);
  });
}

template <class T>
void attention_decode(const AttentionForward& a) {
  constexpr int64_t width = Lanes<T>::count;
  struct Work {
    Work(const AttentionInput& in, int64_t rows) : work(in), scores(rows * kLaneKeys) {}
    AttentionWork<T> work;
    Scratch<T> scores;
  };
  const AttentionInput& in = a.in;
  const WholeRows<T> value(in, in.value, in.groups, in.k, in.e);
  const int64_t blocks = (in.batch + width - 1) / width;
  // Heads of a sequence, which are close in memory, go together if all threads still get some.
  const int64_t together = blocks < 2 * in.threads ? 1 : smaller(in.heads, kDecodeHeads);
  const int64_t groups = (in.heads + together - 1) / together;
  parallel_with(
      blocks * groups, in.threads, [&] { return Work(in, together * width); },
      [&](Work& work, int64_t task) {
        const int64_t b = task / groups * width, h = task % groups * together;
        decode_lanes(a, value, work.work, work.scores.get(), h, smaller(in.heads, h + together), b,
                     smaller(in.batch, b + width));
      });
}

// Whether there are few queries for many keys.
inline bool is_long_decoding(const AttentionForward& a) {
  return a.in.q <= kDecodeQueries && a.in.k > kLaneKeys && !a.is_scores_only;
}

// As many groups of heads at a time as their scores have room for.
template <class T>
struct LongDecoding {
  explicit LongDecoding(const AttentionForward& a)
      : a(a),
        in(a.in),
        value(in, in.value, in.groups, in.k, in.e),
        scores(in),
        shared(in.heads / in.groups),
        is_open(scores.groups * shared) {}

  void run() {
    for (int64_t group = 0; group < in.batch * in.groups; group += scores.groups) {
      const int64_t groups = smaller(scores.groups, in.batch * in.groups - group);
      fill(is_open.get(), groups * shared, true);
      if constexpr (sizeof(T) == 4)
        if (in.codes.codes && in.softcap == 0 && has_code_products() &&
            screening() != Screening::kOff)
          run_codes(group, groups);
      run_scores(group, groups);
    }
  }

  // Whether any head of the groups at these places is to be solved.
  bool is_any_open(int64_t place, int64_t places) const {
    for (int64_t h = place * shared; h < (place + places) * shared; ++h)
      if (is_open.get()[h]) return true;
    return false;
  }

  void run_scores(int64_t group, int64_t groups) {
    if (!is_any_open(0, groups)) return;
    parallel_for(groups * scores.parts, 1, in.threads, [&](int64_t task, int64_t) {
      const int64_t place = task / scores.parts;
      if (is_any_open(place, 1))
        score_part(in, value, group + place, task % scores.parts, scores, place);
    });
    parallel_with(
        groups * shared, in.threads, [&] { return AttentionWork<T>(in); },
        [&](AttentionWork<T>& work, int64_t task) {
          if (is_open.get()[task])
            finish_head(a, value, work, scores, group * shared + task, task / shared);
        });
  }

  void run_codes(int64_t group, int64_t groups) {
    const GroupBounds bounds(scores);
    parallel_for(groups * scores.parts, 1, in.threads, [&](int64_t task, int64_t) {
      const int64_t place = task / scores.parts;
      if (screens_group(in, group + place))
        bound_part(in, value, group + place, task % scores.parts, bounds, place);
    });
    parallel_with(
        groups * shared, in.threads, [&] { return AttentionWork<T>(in); },
        [&](AttentionWork<T>& work, int64_t task) {
          const int64_t place = task / shared;
          if (!screens_group(in, group + place)) return;
          const Head<T> head = head_at<T>(in, group * shared + task, nullptr, value);
          const Columns columns = columns_of(in, head.length, 0, in.q);
          ScreenedHead screened{a,      head,  decode_block(a, head, value, work),
                                bounds, place, columns};
          is_open.get()[task] = !screened.run();
        });
  }

  const AttentionForward& a;
  const AttentionInput& in;
  WholeRows<T> value;
  GroupScores<T> scores;
  int64_t shared;
  Scratch<bool> is_open;  // heads that are not solved yet
};

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
