// The keys that a query sees, and the queries that see a key. Every kernel asks here and nowhere
// else: another way to limit what is visible is added in this header, as fields of AttentionInput
// and in the bindings.
//
// Both ends of the keys of a query never fall from one query to the next, so that neighboring
// queries see the keys from the first of the first to the last of the last.
#pragma once

#include "kernels.h"

namespace adasparse {
namespace {  // not shared by the objects of different instruction sets

struct KeyRange {
  int64_t first, last;  // last is one past the end
  int64_t size() const { return last - first; }
};

// Keys of sequence b from here on are left out.
inline int64_t length_of(const AttentionInput& in, int64_t b) {
  if (!in.key_lengths) return in.k;
  const int64_t length = in.key_lengths[b] > 0 ? in.key_lengths[b] : 0;
  return length < in.k ? length : in.k;
}

// The keys that query i of a sequence of this length sees.
inline KeyRange visible_keys(const AttentionInput& in, int64_t length, int64_t i) {
  KeyRange keys{0, length};
  if (in.is_causal && i + 1 < keys.last) keys.last = i + 1;
  const int64_t here = in.window_position + i;
  // Differences instead of sums: a window may be as large as the type allows.
  if (in.window_right >= 0 && keys.last - 1 - here > in.window_right)
    keys.last = here + in.window_right + 1;
  if (keys.last < 0) keys.last = 0;
  if (in.window_left >= 0 && here > in.window_left) keys.first = here - in.window_left;
  if (keys.first > keys.last) keys.first = keys.last;
  return keys;
}

// The keys that any of the queries [first, last) sees.
inline KeyRange visible_keys(const AttentionInput& in, int64_t length, int64_t first,
                             int64_t last) {
  return {visible_keys(in, length, first).first, visible_keys(in, length, last - 1).last};
}

// Bounds of the queries that see any of the keys [first, last): no other query does.
inline KeyRange seeing_queries(const AttentionInput& in, int64_t first, int64_t last) {
  KeyRange queries{in.is_causal ? first : 0, in.q};
  const int64_t from = first - in.window_position, to = last - 1 - in.window_position;
  if (in.window_right >= 0 && from - queries.first > in.window_right)
    queries.first = from - in.window_right;
  if (in.window_left >= 0 && queries.last - 1 - to > in.window_left)
    queries.last = to + in.window_left + 1;
  if (queries.last < queries.first) queries.last = queries.first;
  return queries;
}

// The most keys that this many neighboring queries see together.
inline int64_t most_visible_keys(const AttentionInput& in, int64_t queries = 1) {
  const int64_t position = in.window_position;
  const int64_t beyond = in.k + in.q + (position < 0 ? -position : position);  // never reached
  const bool is_limited = in.window_right >= 0 && in.window_right < beyond;
  if (in.window_left < 0 || in.window_left >= beyond || !(is_limited || in.is_causal)) return in.k;
  // Keys of query i lie between these distances from i.
  const int64_t lowest = position - in.window_left;
  int64_t highest = is_limited ? position + in.window_right : 0;
  if (in.is_causal && highest > 0) highest = 0;
  const int64_t most = highest - lowest + queries;
  return most < 0 ? 0 : most < in.k ? most : in.k;
}

}  // namespace
}  // namespace adasparse
