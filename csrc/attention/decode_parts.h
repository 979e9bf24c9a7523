// Decoding against many keys: all query heads of a group are scored in one pass over their keys, in
// parts that threads share. Scores wait until their rows are solved.
#pragma once

#include "attention/forward_block.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// Scores of all queries of some groups of heads, a row of `stride` for each query.
template <class T>
struct GroupScores {
  explicit GroupScores(const AttentionInput& in)
      : rows(in.heads / in.groups * in.q),
        stride(most_columns(in, in.q)),
        parts((stride + kDecodeKeys - 1) / kDecodeKeys),
        groups(larger<int64_t>(
            1, smaller(in.batch * in.groups,
                       kDecodeBytes / (rows * stride * static_cast<int64_t>(sizeof(T)))))),
        data(groups * rows * stride) {}
  // The scores of row r of the group at this place.
  T* row(int64_t place, int64_t r) const { return data.get() + (place * rows + r) * stride; }

  int64_t rows, stride, parts, groups;
  Scratch<T> data;
};

// A part of the keys that the queries of a group see.
template <class T>
struct DecodePart {
  DecodePart(const AttentionInput& in, const WholeRows<T>& value, int64_t group, int64_t part)
      : in(in),
        shared(in.heads / in.groups),
        head(head_at<T>(in, group * shared, nullptr, value)),
        begin(part * kDecodeKeys),
        wide(head.query.is_wide() ? 1 : shared * in.q * in.d + 1) {
    const Columns columns = columns_of(in, head.length, 0, in.q);
    first = columns.first + begin;
    n = smaller(kDecodeKeys, columns.count - begin);
    for (int64_t r = 0; !head.query.is_wide() && !is_empty() && r < shared * in.q; ++r)
      read_rows(query_row(r), 1, in.d, wide.get() + r * in.d, 0);
  }
  bool is_empty() const { return n <= 0; }
  const T* query(int64_t r) const {
    return head.query.is_wide() ? query_row(r).wide() : wide.get() + r * in.d;
  }
  // Biases and masks the scores of row r.
  void finish(const WholeRows<T>& value, int64_t r, T* scores) const {
    const Head<T> mine = head_at<T>(in, head.number + r / in.q, nullptr, value);
    const int64_t i = r % in.q;
    finish_scores(in, mine, i, first, visible_keys(in, mine.length, i), round_up(n, kColumns),
                  scores);
  }

  const AttentionInput& in;
  int64_t shared;
  Head<T> head;   // the first of the group
  int64_t begin;  // column
  int64_t first;  // key
  int64_t n;

 private:
  Rows<T> query_row(int64_t r) const {
    return rows_at<T>(in, in.query, head.b, head.h + r / in.q).from(r % in.q);
  }
  Scratch<T> wide;  // queries, where they are in half precision
};

// Calls body(size, r) for up to 8 of `rows` at a time.
template <class Body>
ADASPARSE_INLINE void for_few_rows(int64_t rows, const Body& body) {
  for (int64_t r = 0; r < rows; r += 8) with_count<8>(rows - r, [&](auto m) { body(m, r); });
}

// Scores a part of the keys of a group.
template <class T>
void score_part(const AttentionInput& in, const WholeRows<T>& value, int64_t group, int64_t number,
                const GroupScores<T>& to, int64_t place) {
  const DecodePart<T> part(in, value, group, number);
  if (part.is_empty()) return;
  with_elements(part.head.key.from(part.first), [&](const auto* keys) {
    for_few_rows(to.rows, [&](auto m, int64_t r) {
      constexpr int M = decltype(m)::value;
      const T* queries[M];
      T* scores[M];
      for (int x = 0; x < M; ++x) {
        queries[x] = part.query(r + x);
        scores[x] = to.row(place, r + x) + part.begin;
      }
      multiply_unpacked<M>(queries, in.d, static_cast<T>(in.scale), scores, part.n,
                           [&](int64_t j) { return keys + j * part.head.key.stride; });
    });
  });
  for (int64_t r = 0; r < to.rows; ++r) part.finish(value, r, to.row(place, r) + part.begin);
}

// The block of all queries of one head.
template <class T>
ForwardBlock<T> decode_block(const AttentionForward& a, const Head<T>& head,
                             const WholeRows<T>& value, AttentionWork<T>& work) {
  SupportBlock* saved = a.blocks ? a.blocks + head.number : nullptr;
  return {.a = a,
          .head = head,
          .work = work,
          .vectors = value.vectors(),
          .saved = saved,
          .limit = a.row_limit * a.in.q,
          .is_whole = false};
}

// Solves the queries of one head from their scores.
template <class T>
void finish_head(const AttentionForward& a, const WholeRows<T>& value, AttentionWork<T>& work,
                 const GroupScores<T>& scores, int64_t number, int64_t place) {
  const AttentionInput& in = a.in;
  const Head<T> head = head_at<T>(in, number, nullptr, value);
  ForwardBlock<T> block = decode_block(a, head, value, work);
  block.known = {.data = scores.row(place, head.h % (in.heads / in.groups) * in.q),
                 .first = columns_of(in, head.length, 0, in.q).first,
                 .stride = scores.stride};
  for (int64_t i = 0, end; i < in.q; i = end) {
    const double alpha = alpha_of(in, head.b, head.h, i);
    for (end = i + 1; end < in.q && alpha_of(in, head.b, head.h, end) == alpha; ++end) {
    }
    block.run_strip(i, end - i, alpha);
    for (int64_t j = i; j < end; ++j)
      block.save_rescored(j, visible_keys(in, head.length, j).size());
  }
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
