// Entmax attention, forward of few queries: decoding, where text is generated a token at a time.
//
// Few keys: one sequence per lane. More keys: all query heads of a group are scored in one pass over
// their keys, in parts that threads share; scores wait until their rows are solved.
#pragma once

#include "attention/forward_block.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// Whether there is one query in each sequence, to be solved next to those of other sequences.
inline bool is_decoding(const AttentionForward& a) {
  const AttentionInput& in = a.in;
  return in.q == 1 && in.k <= kLaneKeys && !a.is_scores_only && !needs_double(in);
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

// Whether there are few queries for many keys.
inline bool is_long_decoding(const AttentionForward& a) {
  return a.in.q <= kDecodeQueries && a.in.k > kLaneKeys && !a.is_scores_only;
}

// Scores of all queries of some groups of heads, a row of `stride` for each query.
template <class T>
struct GroupScores {
  explicit GroupScores(const AttentionInput& in)
      : rows(in.heads / in.groups * in.q),
        stride(most_columns(in, in.q)),
        groups(larger<int64_t>(
            1, smaller(in.batch * in.groups,
                       kDecodeBytes / (rows * stride * static_cast<int64_t>(sizeof(T)))))),
        data(groups * rows * stride) {}
  // The scores of row r of the group at this place.
  T* row(int64_t group, int64_t r) const { return data.get() + (group * rows + r) * stride; }

  int64_t rows, stride, groups;
  Scratch<T> data;
};

// Calls body(size, r) for up to 8 of `rows` at a time.
template <class Body>
ADASPARSE_INLINE void for_few_rows(int64_t rows, const Body& body) {
  for (int64_t r = 0; r < rows; r += 8)
    with_count<8>(rows - r, [&](auto m) { body(m, r); });
}

// Scores the queries of group `number` for a part of the keys they see.
template <class T>
void score_part(const AttentionInput& in, const WholeRows<T>& value, int64_t number, int64_t part,
                const GroupScores<T>& to, int64_t place) {
  const int64_t shared = in.heads / in.groups;
  const Head<T> first = head_at<T>(in, number * shared, nullptr, value);
  const Columns columns = columns_of(in, first.length, 0, in.q);
  const int64_t begin = part * kDecodeKeys;
  if (begin >= columns.count) return;
  const int64_t from = columns.first + begin, n = smaller(kDecodeKeys, columns.count - begin);
  const View<const T> query = view_of<T>(in.query);
  for_few_rows(to.rows, [&](auto m, int64_t r) {
    constexpr int M = decltype(m)::value;
    const T* queries[M];
    T* scores[M];
    for (int x = 0; x < M; ++x) {
      const int64_t h = first.h + (r + x) / in.q;
      queries[x] = query.at(first.b, h) + (r + x) % in.q * query.row;
      scores[x] = to.row(place, r + x) + begin;
    }
    multiply_unpacked<M>(queries, first.key + from * first.key_row, first.key_row, in.d,
                         static_cast<T>(in.scale), scores, n);
  });
  for (int64_t r = 0; r < to.rows; ++r) {
    const Head<T> head = head_at<T>(in, number * shared + r / in.q, nullptr, value);
    const int64_t i = r % in.q;
    finish_scores(in, head, i, from, visible_keys(in, head.length, i), round_up(n, kColumns),
                  to.row(place, r) + begin);
  }
}

// Solves the queries of one head from their scores.
template <class T>
void finish_head(const AttentionForward& a, const WholeRows<T>& value, AttentionWork<T>& work,
                 const GroupScores<T>& scores, int64_t number, int64_t place) {
  const AttentionInput& in = a.in;
  const Head<T> head = head_at<T>(in, number, nullptr, value);
  const int64_t r = number % (in.heads / in.groups) * in.q;
  ForwardBlock<T> block{.a = a,
                        .head = head,
                        .work = work,
                        .vectors = value.vectors(),
                        .saved = a.blocks ? a.blocks + number : nullptr,
                        .limit = a.row_limit * in.q,
                        .is_whole = false,
                        .known = {.data = scores.row(place, r),
                                  .first = columns_of(in, head.length, 0, in.q).first,
                                  .stride = scores.stride}};
  for (int64_t i = 0, end; i < in.q; i = end) {
    const double alpha = alpha_of(in, head.b, head.h, i);
    for (end = i + 1; end < in.q && alpha_of(in, head.b, head.h, end) == alpha; ++end) {
    }
    block.run_strip(i, end - i, alpha);
  }
}

template <class T>
void attention_decode_long(const AttentionForward& a) {
  const AttentionInput& in = a.in;
  const WholeRows<T> value(in, in.value, in.groups, in.k, in.e);
  const GroupScores<T> scores(in);
  const int64_t all = in.batch * in.groups, shared = in.heads / in.groups;
  const int64_t parts = (scores.stride + kDecodeKeys - 1) / kDecodeKeys;
  for (int64_t group = 0; group < all; group += scores.groups) {
    const int64_t groups = smaller(scores.groups, all - group);
    parallel_for(groups * parts, 1, in.threads, [&](int64_t task, int64_t) {
      const int64_t place = task / parts;
      score_part(in, value, group + place, task % parts, scores, place);
    });
    parallel_with(
        groups * shared, in.threads, [&] { return AttentionWork<T>(in); },
        [&](AttentionWork<T>& work, int64_t task) {
          finish_head(a, value, work, scores, group * shared + task, task / shared);
        });
  }
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
