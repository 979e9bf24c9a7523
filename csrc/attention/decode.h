// Entmax attention, forward of single queries: decoding, where text is generated a token at a time.
#pragma once

#include "attention/forward_block.h"

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
        T* rows = row_of(b, h);
        const int used = static_cast<int>(end - b);
        const LaneNormalizers<T> solved =
            forward_in_lanes(map, rows, kLaneKeys, in.k, used, work.solver.get(), rows);
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

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
