// The scores of attention: a strip of queries against some keys, masked and biased.
#pragma once

#include "attention/quantize.h"
#include "attention/softcap.h"
#include "attention/visible.h"
#include "matrix.h"
#include "scratch.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// Strips begin at a multiple of this many keys and are filled up with -inf to another: a multiple
// of every panel.
constexpr int64_t kColumns = 64;
// Added to the stride of rows of scores: at a power of two they would fall on the same few lines of
// the cache.
constexpr int64_t kRowPadding = 16;
static_assert(kColumns % kPanel<float> == 0 && kStripRows % kTileRows == 0);

// One (batch, head), as the kernels read it.
template <class T>
struct Head {
  int64_t b, h, number;  // number = b * heads + h
  Rows<T> query, key;
  const T* panels;  // packed keys, or null where queries are too few for packing to pay
  CodedKeys coded;  // int8 keys; null codes where scores are not screened
  Rows<T> value;    // whole vectors
  const void* mask;
  double slope;
  int64_t length;  // see length_of
};

template <class T>
Rows<T> rows_at(Type type, const RowsOf& rows, int64_t b, int64_t h) {
  return Rows<T>{rows.data, rows.strides[2], type}.moved(b * rows.strides[0] + h * rows.strides[1]);
}
template <class T>
Rows<T> rows_at(const AttentionInput& in, const RowsOf& rows, int64_t b, int64_t h) {
  return rows_at<T>(in.type, rows, b, h);
}
template <class T>
View<T> view_of(const WritableRows& rows) {
  return {static_cast<T*>(rows.data), rows.strides[0], rows.strides[1], rows.strides[2]};
}

// Writes `count` rows of d numbers, `stride` apart, as rows of (b, h) from `first` on, in the type
// of the input.
template <class T>
void write_rows(const AttentionInput& in, const T* from, int64_t stride, int64_t count, int64_t d,
                const WritableRows& to, int64_t b, int64_t h, int64_t first) {
  const Rows<T> place =
      rows_at<T>(in, {to.data, {to.strides[0], to.strides[1], to.strides[2]}}, b, h);
  with_elements(place.from(first), [&](const auto* at) {
    using IO = std::remove_const_t<std::remove_pointer_t<decltype(at)>>;
    IO* data = const_cast<IO*>(at);
    for (int64_t r = 0; r < count; ++r) narrow_row(from + r * stride, d, data + r * place.stride);
  });
}

template <class T>
int64_t panel_size(int64_t keys, int64_t d) {
  return round_up(keys, kPanel<T>) * d;
}

// Number of heads of a sequence in one task: all, since they are close in memory, if that leaves
// enough tasks for every thread.
inline int64_t heads_together(const AttentionInput& in, int64_t heads) {
  return in.batch < kSequencesPerThread * in.threads ? 1 : heads;
}

// Packs the rows of every (batch, group) for which `wanted` is true.
template <class T, class Wanted>
void pack_all(const AttentionInput& in, const RowsOf& rows, int64_t d, T* panels,
              const Wanted& wanted) {
  const int64_t together = heads_together(in, in.groups);
  parallel_for(in.batch * in.groups, together, in.threads, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t b = i / in.groups, g = i % in.groups;
      if (wanted(b, g))
        pack_panels(rows_at<T>(in, rows, b, g), in.k, d, panels + i * panel_size<T>(in.k, d));
    }
  });
}

// Rows of whole vectors: the ones given if they are, else copies filled up with zeros, in the type
// of the input. Rows far
// from each other share few lines of the cache; to be `close`, such rows are copied, too.
template <class T>
class WholeRows {
 public:
  WholeRows(const AttentionInput& in, const RowsOf& rows, int64_t heads, int64_t n, int64_t d,
            bool close = false)
      : in_(in),
        rows_(rows),
        vectors_(round_up(d, Lanes<T>::count) / Lanes<T>::count),
        is_copied_(d % Lanes<T>::count != 0 || (close && rows.strides[2] != d)),
        copy_(is_copied_ ? in.batch * heads * n * size() * element_size() : 1) {
    if (!is_copied_) return;
    const auto used = static_cast<size_t>(d * element_size());
    const int64_t bytes = size() * element_size();
    parallel_for(in.batch * heads, 1, in.threads, [&](int64_t i, int64_t) {
      const Rows<T> from = rows_at<T>(in, rows, i / heads, i % heads);
      for (int64_t r = 0; r < n; ++r) {
        char* to = copy_.get() + (i * n + r) * bytes;
        std::memcpy(to, from.from(r).data, used);
        std::memset(to + used, 0, static_cast<size_t>(bytes) - used);
      }
    });
    rows_ = {copy_.get(), {heads * n * size(), n * size(), size()}};
  }
  int64_t vectors() const { return vectors_; }
  int64_t size() const { return vectors_ * Lanes<T>::count; }
  Rows<T> at(int64_t b, int64_t h) const { return rows_at<T>(in_, rows_, b, h); }

 private:
  int64_t element_size() const { return Rows<T>{nullptr, 0, in_.type}.element_size(); }

  const AttentionInput& in_;
  RowsOf rows_;
  int64_t vectors_;
  bool is_copied_;
  Scratch<char> copy_;
};

// The columns of a strip: the keys that its queries see, from a whole panel on.
struct Columns {
  int64_t first, count;
  int64_t last() const { return first + count; }
};
inline Columns columns_of(const AttentionInput& in, int64_t length, int64_t row, int64_t rows) {
  const KeyRange keys = visible_keys(in, length, row, row + rows);
  const int64_t first = keys.first / kColumns * kColumns;
  return {first, keys.last - first};
}
// The most columns that a strip of up to this many queries has.
inline int64_t most_columns(const AttentionInput& in, int64_t queries) {
  return smaller(round_up(in.k, kColumns),
                 round_up(most_visible_keys(in, queries) + kColumns, kColumns));
}

inline double alpha_of(const AttentionInput& in, int64_t b, int64_t h, int64_t i) {
  return in.alpha[b * in.alpha_strides[0] + h * in.alpha_strides[1] + i * in.alpha_strides[2]];
}

// The distance of a key from query i, minus that of the nearest key the query sees: subtracting the
// same number from every score of a row changes no weight, and preserves the digits of far queries.
// A sink has no distance, so that nothing is subtracted where there are any.
class Distance {
 public:
  // Keys are counted from `first` on.
  Distance(const AttentionInput& in, const KeyRange& visible, int64_t i, int64_t first = 0)
      : here_(i + in.k - in.q - first),
        nearest_(in.sinks ? 0
                          : between(here_, larger(smaller(here_, visible.last - 1 - first),
                                                  visible.first - first))) {}
  int64_t to(int64_t j) const { return between(here_, j) - nearest_; }

 private:
  static int64_t between(int64_t a, int64_t b) { return a > b ? a - b : b - a; }
  int64_t here_, nearest_;
};

template <class T>
int64_t mask_size(const AttentionInput& in) {
  return in.mask_kind == MaskKind::kBool ? 1 : Rows<T>{nullptr, 0, in.mask_type}.element_size();
}

// Biases and masks the scores of query i for keys [first, first + n), of which some are visible.
template <class T>
void finish_scores(const AttentionInput& in, const Head<T>& head, int64_t i, int64_t first,
                   const KeyRange& visible, int64_t n, T* scores) {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const int64_t end = smaller(n, larger<int64_t>(0, visible.last - first));
  const int64_t hidden = smaller(end, larger<int64_t>(0, visible.first - first));
  if (in.softcap > 0) cap_scores(scores + hidden, end - hidden, static_cast<T>(in.softcap));
  if (head.slope != 0) {
    const T slope = static_cast<T>(head.slope);
    const Distance distance(in, visible, i);
    for (int64_t j = hidden; j < end; ++j)
      scores[j] -= slope * static_cast<T>(static_cast<int32_t>(distance.to(first + j)));
  }
  const int64_t step = in.mask_strides[3], from = i * in.mask_strides[2] + first * step;
  if (in.mask_kind == MaskKind::kBool) {
    const uint8_t* mask = static_cast<const uint8_t*>(head.mask) + from;
    if (step == 1)
      for (int64_t j = hidden; j < end; ++j) scores[j] = mask[j] ? scores[j] : -infinity;
    else
      for (int64_t j = hidden; j < end; ++j) scores[j] = mask[j * step] ? scores[j] : -infinity;
  } else if (in.mask_kind == MaskKind::kAdded) {
    with_elements(Rows<T>{head.mask, 0, in.mask_type}.moved(from), [&](const auto* mask) {
      if (step == 1)
        for (int64_t j = hidden; j < end; ++j) scores[j] += widen(mask[j]);
      else
        for (int64_t j = hidden; j < end; ++j) scores[j] += widen(mask[j * step]);
    });
  }
  fill(scores, hidden, -infinity);
  fill(scores + end, n - end, -infinity);
}

// Scores of queries [row, row + rows) for keys [first, first + n), n and first multiples of
// kColumns; those of keys that a query does not see are -inf.
template <class T>
void score_strip(const AttentionInput& in, const Head<T>& head, int64_t row, int64_t rows,
                 int64_t first, int64_t n, T* scores, int64_t stride) {
  const int64_t last = visible_keys(in, head.length, row + rows - 1).last;
  WideRows<T> wide(in.type, rows, in.d);
  const T* query = wide.read(head.query.from(row), rows, in.d);
  const T scale = static_cast<T>(in.scale);
  if (head.panels)
    multiply_panels(query, wide.stride, head.panels + first * in.d, in.d, scale, scores, stride,
                    rows, (smaller(round_up(last, kPanel<T>), first + n) - first) / kPanel<T>);
  else
    with_elements(head.key.from(first), [&](const auto* keys) {
      for (int64_t r = 0; r < rows; ++r)
        multiply_rows(query + r * wide.stride, keys, head.key.stride, in.d, scale,
                      scores + r * stride, smaller(last - first, n));
    });
  for (int64_t r = 0; r < rows; ++r)
    finish_scores(in, head, row + r, first, visible_keys(in, head.length, row + r), n,
                  scores + r * stride);
}

template <class T>
Head<T> head_at(const AttentionInput& in, int64_t number, const T* panels,
                const WholeRows<T>& value) {
  const int64_t b = number / in.heads, h = number % in.heads, g = h / (in.heads / in.groups);
  const int64_t at = b * in.mask_strides[0] + h * in.mask_strides[1];
  return {
      .b = b,
      .h = h,
      .number = number,
      .query = rows_at<T>(in, in.query, b, h),
      .key = rows_at<T>(in, in.key, b, g),
      .panels = panels ? panels + (b * in.groups + g) * panel_size<T>(in.k, in.d) : nullptr,
      .coded = {},
      .value = value.at(b, g),
      .mask = static_cast<const char*>(in.mask) + at * mask_size<T>(in),
      .slope = in.slopes ? in.slopes[h] : 0,
      .length = length_of(in, b),
  };
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
