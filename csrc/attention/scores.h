// The scores of attention: a strip of queries against a stretch of keys, masked and biased.
#pragma once

#include "matrix.h"

namespace adasparse {
namespace ADASPARSE_ISA {

constexpr int64_t kStripRows = 24;  // queries scored together; a multiple of every kTileRows
constexpr int64_t kColumns = 64;    // strips are filled up with -inf to a multiple of this

// One (batch, head), with what the kernels read of it.
template <class T>
struct Head {
  int64_t b, h, number;  // number = b * heads + h
  const T* query;
  int64_t query_row;
  const T* key;
  int64_t key_row;
  const T* panels;  // packed keys, or null where there are too few queries to pack them for
  const T* value;
  int64_t value_row;
  const void* mask;
  double slope;
  int64_t length;  // keys from here on are left out
};

template <class T>
View<const T> view_of(const RowsOf& rows) {
  return {static_cast<const T*>(rows.data), rows.strides[0], rows.strides[1], rows.strides[2]};
}
template <class T>
View<T> view_of(const WritableRows& rows) {
  return {static_cast<T*>(rows.data), rows.strides[0], rows.strides[1], rows.strides[2]};
}

template <class T>
int64_t panel_size(int64_t keys, int64_t d) {
  return round_up(keys, kPanel<T>) * d;
}

// How many of the heads of a sequence go together: all, since they are close in memory, if that
// leaves something for every thread.
inline int64_t heads_together(const AttentionInput& in, int64_t heads) {
  return in.batch < 4 * in.threads ? 1 : heads;
}

// Packs the rows of every (batch, group) that is `wanted`.
template <class T, class Wanted>
void pack_all(const AttentionInput& in, const View<const T>& rows, int64_t d, T* panels,
              const Wanted& wanted) {
  const int64_t together = heads_together(in, in.groups);
  parallel_for(in.batch * in.groups, together, in.threads, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t b = i / in.groups, g = i % in.groups;
      if (wanted(b, g))
        pack_panels(rows.at(b, g), rows.row, in.k, d, panels + i * panel_size<T>(in.k, d));
    }
  });
}

// Rows of whole vectors: the ones given if they are, else copies filled up with zeros. Rows far
// from each other share few lines of the cache; to be `close`, such rows are copied, too.
template <class T>
class WholeRows {
 public:
  WholeRows(const AttentionInput& in, const RowsOf& rows, int64_t heads, int64_t n, int64_t d,
            bool close = false)
      : vectors_(round_up(d, Lanes<T>::count) / Lanes<T>::count),
        is_copied_(d % Lanes<T>::count != 0 || (close && rows.strides[2] != d)),
        copy_(is_copied_ ? in.batch * heads * n * vectors_ * Lanes<T>::count : 1),
        view_(view_of<T>(rows)) {
    if (!is_copied_) return;
    const int64_t size = vectors_ * Lanes<T>::count;
    parallel_for(in.batch * heads, 1, in.threads, [&](int64_t i, int64_t) {
      const T* from = view_.at(i / heads, i % heads);
      for (int64_t r = 0; r < n; ++r) {
        T* to = copy_.get() + (i * n + r) * size;
        std::memcpy(to, from + r * view_.row, sizeof(T) * static_cast<size_t>(d));
        fill(to + d, size - d, T(0));
      }
    });
    view_ = {copy_.get(), heads * n * size, n * size, size};
  }
  int64_t vectors() const { return vectors_; }
  const T* at(int64_t b, int64_t h) const { return view_.at(b, h); }
  int64_t row() const { return view_.row; }

 private:
  int64_t vectors_;
  bool is_copied_;
  Scratch<T> copy_;
  View<const T> view_;
};

// Number of keys that query i may see.
inline int64_t visible_keys(const AttentionInput& in, int64_t length, int64_t i) {
  return in.is_causal ? smaller(length, i + 1) : length;
}
inline int64_t length_of(const AttentionInput& in, int64_t b) {
  return in.key_lengths ? smaller(in.k, larger<int64_t>(0, in.key_lengths[b])) : in.k;
}
inline double alpha_of(const AttentionInput& in, int64_t b, int64_t h, int64_t i) {
  return in.alpha[b * in.alpha_strides[0] + h * in.alpha_strides[1] + i * in.alpha_strides[2]];
}

// How much farther than the nearest key it sees a key is from query i. The same number less for
// every key of a row changes no weight, and keeps the digits of far queries.
class Distance {
 public:
  Distance(const AttentionInput& in, int64_t visible, int64_t i)
      : here_(i + in.k - in.q),
        nearest_(between(here_, larger(smaller(here_, visible - 1), int64_t{0}))) {}
  int64_t to(int64_t j) const { return between(here_, j) - nearest_; }

 private:
  static int64_t between(int64_t a, int64_t b) { return a > b ? a - b : b - a; }
  int64_t here_, nearest_;
};

template <class T>
size_t mask_size(const AttentionInput& in) {
  return in.mask_kind == MaskKind::kBool ? 1 : sizeof(T);
}

// Biases and masks the scores of query i for keys [first, first + n), of which `visible` are seen.
template <class T>
void finish_scores(const AttentionInput& in, const Head<T>& head, int64_t i, int64_t first,
                   int64_t visible, int64_t n, T* scores) {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const int64_t seen = smaller(n, larger<int64_t>(0, visible - first));
  if (head.slope != 0) {
    const T slope = static_cast<T>(head.slope);
    const Distance distance(in, visible, i);
    for (int64_t j = 0; j < seen; ++j)
      scores[j] -= slope * static_cast<T>(static_cast<int32_t>(distance.to(first + j)));
  }
  const int64_t step = in.mask_strides[3], from = i * in.mask_strides[2] + first * step;
  if (in.mask_kind == MaskKind::kBool) {
    const uint8_t* mask = static_cast<const uint8_t*>(head.mask) + from;
    if (step == 1)
      for (int64_t j = 0; j < seen; ++j) scores[j] = mask[j] ? scores[j] : -infinity;
    else
      for (int64_t j = 0; j < seen; ++j) scores[j] = mask[j * step] ? scores[j] : -infinity;
  } else if (in.mask_kind == MaskKind::kAdded) {
    const T* mask = static_cast<const T*>(head.mask) + from;
    if (step == 1)
      for (int64_t j = 0; j < seen; ++j) scores[j] += mask[j];
    else
      for (int64_t j = 0; j < seen; ++j) scores[j] += mask[j * step];
  }
  fill(scores + seen, n - seen, -infinity);
}

// Scores of queries [row, row + rows) for keys [first, first + n), n and first multiples of
// kColumns; what lies outside of a query's keys is -inf.
template <class T>
void score_strip(const AttentionInput& in, const Head<T>& head, int64_t row, int64_t rows,
                 int64_t first, int64_t n, T* scores, int64_t stride) {
  const int64_t last = visible_keys(in, head.length, row + rows - 1);
  const T* query = head.query + row * head.query_row;
  const T scale = static_cast<T>(in.scale);
  if (head.panels)
    multiply_panels(query, head.query_row, head.panels + first * in.d, in.d, scale, scores, stride,
                    rows, (smaller(round_up(last, kPanel<T>), first + n) - first) / kPanel<T>);
  else
    for (int64_t r = 0; r < rows; ++r)
      multiply_rows(query + r * head.query_row, head.key + first * head.key_row, head.key_row, in.d,
                    scale, scores + r * stride, smaller(last - first, n));
  for (int64_t r = 0; r < rows; ++r)
    finish_scores(in, head, row + r, first, visible_keys(in, head.length, row + r), n,
                  scores + r * stride);
}

// ---------------------------------------------------------------- dropout

// Which weights of a row are dropped: a hash of seed, row and column, so that the backward finds
// the same ones.
struct Dropout {
  uint32_t key0, key1, threshold;
  bool drops_all;

  Dropout(uint64_t seed, double p, int64_t row) {
    uint64_t x = seed + (static_cast<uint64_t>(row) + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    key0 = static_cast<uint32_t>(x);
    key1 = static_cast<uint32_t>(x >> 32);
    threshold = static_cast<uint32_t>(smaller(p * 4294967296., 4294967295.));
    drops_all = p >= 1;
  }
  ADASPARSE_INLINE bool keeps(uint32_t column) const {
    uint32_t y = column * 0x9E3779B1u + key0;
    y = (y ^ (y >> 16)) * 0x85EBCA6Bu;
    y ^= key1;
    y = (y ^ (y >> 13)) * 0xC2B2AE35u;
    y ^= y >> 16;
    return (y >= threshold) & !drops_all;
  }
};
// Multiplies the values of the given columns, or of columns 0 to count, by 0 or `grown`.
template <class T>
void drop(const Dropout& dropout, const int32_t* index, int64_t count, T grown, T* values) {
  for (int64_t e = 0; e < count; ++e)
    values[e] *= dropout.keeps(static_cast<uint32_t>(index[e])) ? grown : T(0);
}
template <class T>
void drop(const Dropout& dropout, int64_t count, T grown, T* values) {
  for (int64_t j = 0; j < count; ++j)
    values[j] *= dropout.keeps(static_cast<uint32_t>(j)) ? grown : T(0);
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
