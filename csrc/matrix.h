// Small products of matrices, all by one register tile, and the layouts they read.
#pragma once

#include "elements.h"
#include "parallel.h"
#include "rows.h"
#include "tuning.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// Rows of a register tile, which is two vectors wide: as many accumulators as there are registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTileRows = 12;
#elif defined(__AVX2__)
constexpr int kTileRows = 6;
#else
constexpr int kTileRows = 4;
#endif

template <class T>
constexpr int64_t kPanel = 2 * Lanes<T>::count;  // keys side by side in a packed panel

// (batch, head) -> rows at a stride, each contiguous.
template <class T>
struct View {
  T* data;
  int64_t batch, head, row;
  T* at(int64_t b, int64_t h) const { return data + b * batch + h * head; }
};

// Calls body(size) with `count` as a constant, for 1 <= count <= Max.
template <int Max, class Body>
ADASPARSE_INLINE void with_count(int64_t count, const Body& body) {
  if constexpr (Max == 1)
    body(std::integral_constant<int, 1>{});
  else if (count >= Max)
    body(std::integral_constant<int, Max>{});
  else
    with_count<Max - 1>(count, body);
}

// Calls body(size, first) for tiles of Most rows, and for one of those that are left.
template <int Most, class Body>
ADASPARSE_INLINE void for_each_row_tile(int64_t rows, const Body& body) {
  int64_t i = 0;
  for (; i + Most <= rows; i += Most) body(std::integral_constant<int, Most>{}, i);
  if (i < rows) with_count<Most - 1>(rows - i, [&](auto m) { body(m, i); });
}

// Calls body(size, offset) for tiles of 8, 4, 2 or 1 vectors, at most `widest`, that make up
// `count`.
template <class Body>
ADASPARSE_INLINE void for_each_tile(int64_t count, int64_t widest, const Body& body) {
  int64_t at = 0;
  for (; widest >= 8 && count - at >= 8; at += 8) body(std::integral_constant<int, 8>{}, at);
  for (; widest >= 4 && count - at >= 4; at += 4) body(std::integral_constant<int, 4>{}, at);
  for (; widest >= 2 && count - at >= 2; at += 2) body(std::integral_constant<int, 2>{}, at);
  for (; at < count; ++at) body(std::integral_constant<int, 1>{}, at);
}

// A stride of one that the compiler knows, which leaves it more registers for addresses.
using One = std::integral_constant<int64_t, 1>;

// sum[i] += sum_t a[i, t] b[t], for M rows i and rows b[t] of N vectors.
template <int M, int N, class T, class IO, class Row, class Step>
ADASPARSE_INLINE void multiply(const T* a, Row a_row, Step a_step, const IO* b, int64_t b_step,
                               int64_t steps, Vec<T> (&sum)[M][N]) {
  constexpr int width = Lanes<T>::count;
  for (int64_t t = 0; t < steps; ++t) {
    Vec<T> right[N];
#pragma GCC unroll 4
    for (int x = 0; x < N; ++x) right[x] = load_wide(b + t * b_step + x * width);
#pragma GCC unroll 12
    for (int i = 0; i < M; ++i) {
      const Vec<T> left = broadcast(a[i * a_row + t * a_step]);
#pragma GCC unroll 4
      for (int x = 0; x < N; ++x) sum[i][x] += left * right[x];
    }
  }
}

// Calls body(sum, row, vector) for every vector of a tile. Unrolled, so that tiles stay in
// registers.
template <int M, int N, class T, class Body>
ADASPARSE_INLINE void for_each_sum(Vec<T> (&sum)[M][N], const Body& body) {
#pragma GCC unroll 12
  for (int r = 0; r < M; ++r)
#pragma GCC unroll 4
    for (int x = 0; x < N; ++x) body(sum[r][x], r, x);
}

// Columns [j, j + N vectors) of add_product, in tiles of up to Most rows.
template <int Most, int N, class T, class IO, class Row, class Step>
void add_columns(const T* a, Row a_row, Step a_step, const IO* b, int64_t b_row, T* c,
                 int64_t c_row, int64_t rows, int64_t steps) {
  constexpr int width = Lanes<T>::count;
  for_each_row_tile<Most>(rows, [&](auto m, int64_t i) ADASPARSE_INLINE_BODY {
    constexpr int M = decltype(m)::value;
    Vec<T> sum[M][N];
    T* to = c + i * c_row;
    for_each_sum<M, N, T>(sum, [&](Vec<T>& v, int r, int x)
                                   ADASPARSE_INLINE_BODY { v = load(to + r * c_row + x * width); });
    multiply<M, N>(a + i * a_row, a_row, a_step, b, b_row, steps, sum);
    for_each_sum<M, N, T>(sum, [&](Vec<T> v, int r, int x)
                                   ADASPARSE_INLINE_BODY { store(to + r * c_row + x * width, v); });
  });
}

// c (rows, columns) += a (rows, steps) b (steps, columns); columns is a multiple of a vector. One
// of the strides of a is One: the other way round it is transposed.
template <class T, class IO, class Row, class Step>
void add_product(const T* a, Row a_row, Step a_step, const IO* b, int64_t b_row, T* c,
                 int64_t c_row, int64_t rows, int64_t columns, int64_t steps) {
  constexpr int width = Lanes<T>::count;
  int64_t j = 0;
  // Half as many rows, but rows of b are read once.
  if constexpr (kTileRows == 12)
    for (; j + 4 * width <= columns; j += 4 * width)
      add_columns<kTileRows / 2, 4>(a, a_row, a_step, b + j, b_row, c + j, c_row, rows, steps);
  for (; j + 2 * width <= columns; j += 2 * width)
    add_columns<kTileRows, 2>(a, a_row, a_step, b + j, b_row, c + j, c_row, rows, steps);
  if (j < columns)
    add_columns<kTileRows, 1>(a, a_row, a_step, b + j, b_row, c + j, c_row, rows, steps);
}
template <class T, class Row, class Step>
void add_product(const T* a, Row a_row, Step a_step, const Rows<T>& b, T* c, int64_t c_row,
                 int64_t rows, int64_t columns, int64_t steps) {
  with_elements(b, [&](const auto* from) {
    add_product(a, a_row, a_step, from, b.stride, c, c_row, rows, columns, steps);
  });
}

// The same, but a factor of zero adds nothing, whatever it is multiplied with.
template <class T, class Row, class Step>
void add_product_of_support(const T* a, Row a_row, Step a_step, const Rows<T>& b, T* c,
                            int64_t c_row, int64_t rows, int64_t columns, int64_t steps) {
  with_elements(b, [&](const auto* from) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t t = 0; t < steps; ++t) {
        const T factor = a[i * a_row + t * a_step];
        if (factor == 0) continue;
        for (int64_t x = 0; x < columns; ++x)
          c[i * c_row + x] += factor * widen(from[t * b.stride + x]);
      }
  });
}

// Whether no number of n rows is infinite or NaN; d is a multiple of a vector.
template <class IO>
bool are_finite(const IO* rows, int64_t stride, int64_t n, int64_t d) {
  using V = decltype(load_wide(rows));
  using T = ElementOf<V>;
  V sum{};
  for (int64_t i = 0; i < n; ++i)
    for (int64_t t = 0; t < d; t += Lanes<T>::count) {
      const V x = load_wide(rows + i * stride + t);
      sum += x - x;
    }
  return sum_lanes<T>(sum) == 0;
}
template <class T>
bool are_finite(const Rows<T>& rows, int64_t n, int64_t d) {
  bool found = false;
  with_elements(rows, [&](const auto* from) { found = are_finite(from, rows.stride, n, d); });
  return found;
}

// c (rows, panels of keys) = factor a (rows, d) times packed keys.
template <class T>
void multiply_panels(const T* a, int64_t a_row, const T* panels, int64_t d, T factor, T* c,
                     int64_t c_row, int64_t rows, int64_t count) {
  constexpr int width = Lanes<T>::count;
  const Vec<T> factors = broadcast(factor);
  for (int64_t p = 0; p < count; ++p)
    for_each_row_tile<kTileRows>(rows, [&](auto m, int64_t i) ADASPARSE_INLINE_BODY {
      constexpr int M = decltype(m)::value;
      Vec<T> sum[M][2];
      for_each_sum<M, 2, T>(sum, [](Vec<T>& v, int, int) ADASPARSE_INLINE_BODY { v = Vec<T>{}; });
      multiply<M, 2>(a + i * a_row, a_row, One{}, panels + p * d * kPanel<T>, kPanel<T>, d, sum);
      T* to = c + i * c_row + p * kPanel<T>;
      for_each_sum<M, 2, T>(sum, [&](Vec<T> v, int r, int x) ADASPARSE_INLINE_BODY {
        store(to + r * c_row + x * width, v * factors);
      });
    });
}

// c (n) = factor times the dot products of a (d) with rows (n, d): where packing would not pay.
template <class T, class IO>
void multiply_rows(const T* a, const IO* rows, int64_t stride, int64_t d, T factor, T* c,
                   int64_t n) {
  constexpr int width = Lanes<T>::count;
  const int64_t whole = d / width * width;
  const auto rest = [&](int64_t j) {
    T sum = 0;
    for (int64_t t = whole; t < d; ++t) sum += a[t] * widen(rows[j * stride + t]);
    return sum;
  };
  int64_t j = 0;
  for (; j + width <= n; j += width) {
    Vec<T> sum[width] = {};
    for (int64_t t = 0; t < whole; t += width) {
      const Vec<T> left = load(a + t);
#pragma GCC unroll 16
      for (int i = 0; i < width; ++i) sum[i] += left * load_wide(rows + (j + i) * stride + t);
    }
    transpose<T>(sum);
    Vec<T> total{};
    for (int i = 0; i < width; ++i) total += sum[i];
    if (whole < d)
      for (int i = 0; i < width; ++i) total[i] += rest(j + i);
    store(c + j, total * broadcast(factor));
  }
  for (; j < n; ++j) {
    Vec<T> sum{};
    for (int64_t t = 0; t < whole; t += width)
      sum += load(a + t) * load_wide(rows + j * stride + t);
    c[j] = (sum_lanes<T>(sum) + rest(j)) * factor;
  }
}

// c[r] (n) = factor times the dot products of a[r] (d) with the n rows at row_of(j), for M rows r:
// the sums of multiply_panels, in its order, without packing. A tile of rows is transposed in
// registers.
template <int M, class T, class RowOf>
ADASPARSE_INLINE void multiply_unpacked(const T* const* a, int64_t d, T factor, T* const* c,
                                        int64_t n, const RowOf& row_of) {
  constexpr int width = Lanes<T>::count;
  for (int64_t j = 0; j < n; j += width) {
    const int64_t used = smaller<int64_t>(width, n - j);
    decltype(row_of(j)) from[width], next[width];  // the latter fetched early
    for (int i = 0; i < width; ++i) {
      from[i] = row_of(smaller(j + i, n - 1));
      next[i] = row_of(smaller(j + i + 2 * width, n - 1));
    }
    Vec<T> sum[M] = {};
    const auto add_tile = [&](int64_t t, int64_t size, Vec<T>* tile) ADASPARSE_INLINE_BODY {
      transpose<T>(tile);
#pragma GCC unroll 16
      for (int x = 0; x < width; ++x) {
        if (x == size) break;
#pragma GCC unroll 8
        for (int r = 0; r < M; ++r) sum[r] += broadcast(a[r][t + x]) * tile[x];
      }
    };
    int64_t t = 0;
    for (; t + width <= d; t += width) {
      Vec<T> tile[width];
#pragma GCC unroll 16
      for (int i = 0; i < width; ++i) {
        tile[i] = load_wide(from[i] + t);
        __builtin_prefetch(next[i] + t);
      }
      add_tile(t, width, tile);
    }
    if (t < d) {
      Vec<T> tile[width];
      for (int i = 0; i < width; ++i)
        tile[i] = load_wide_part(from[i] + t, static_cast<int>(d - t));
      add_tile(t, d - t, tile);
    }
    for (int r = 0; r < M; ++r) {
      const Vec<T> scores = sum[r] * broadcast(factor);
      if (used == width)
        store(c[r] + j, scores);
      else
        store_part(c[r] + j, scores, static_cast<int>(used));
    }
  }
}

// Rows (n, d) as panels (n / kPanel, d, kPanel), filled up with zeros.
template <class T, class IO>
void pack_panels(const IO* rows, int64_t stride, int64_t n, int64_t d, T* panels) {
  constexpr int width = Lanes<T>::count;
  for (int64_t j = 0; j < n; j += width) {
    T* to = panels + j / kPanel<T> * d * kPanel<T> + j % kPanel<T>;
    const int64_t used = smaller<int64_t>(width, n - j);
    int64_t t = 0;
    for (; t + width <= d; t += width) {
      Vec<T> tile[width];
#pragma GCC unroll 16
      for (int i = 0; i < width; ++i)
        tile[i] = i < used ? load_wide(rows + (j + i) * stride + t) : Vec<T>{};
      transpose<T>(tile);
#pragma GCC unroll 16
      for (int i = 0; i < width; ++i) store(to + (t + i) * kPanel<T>, tile[i]);
    }
    for (; t < d; ++t)
      for (int i = 0; i < width; ++i)
        to[t * kPanel<T> + i] = i < used ? widen(rows[(j + i) * stride + t]) : T(0);
  }
  // The other half of the last panel, if the rows end in the first.
  for (int64_t j = round_up(n, width); j < round_up(n, kPanel<T>); j += width)
    for (int64_t t = 0; t < d; ++t)
      store(panels + j / kPanel<T> * d * kPanel<T> + j % kPanel<T> + t * kPanel<T>, Vec<T>{});
}

template <class T>
void pack_panels(const Rows<T>& rows, int64_t n, int64_t d, T* panels) {
  with_elements(rows, [&](const auto* from) { pack_panels(from, rows.stride, n, d, panels); });
}

// Rows are read in no order, mostly from beyond the cache: those of later entries are fetched
// early.
template <int N, class T, class IO>
ADASPARSE_INLINE void fetch(const IO* row) {
  constexpr int bytes = N * Lanes<T>::count * static_cast<int>(sizeof(IO));
  for (int x = 0; x < bytes; x += 64) __builtin_prefetch(reinterpret_cast<const char*>(row) + x);
}

// to (d) = sum_e weight[e] rows[index[e]] (d), d in vectors.
template <class T, class IO>
void gather_rows(const IO* rows, int64_t stride, const int32_t* index, const T* weight,
                 int64_t count, int64_t vectors, T* to) {
  constexpr int width = Lanes<T>::count;
  for_each_tile(vectors, 8, [&](auto n, int64_t offset) {
    constexpr int N = decltype(n)::value;
    const IO* from = rows + offset * width;
    Vec<T> sum[N] = {};
    for (int64_t e = 0; e < count; ++e) {
      const IO* row = from + index[e] * stride;
      fetch<N, T>(from + index[smaller(e + kEntriesAhead, count - 1)] * stride);
      const Vec<T> w = broadcast(weight[e]);
#pragma GCC unroll 8
      for (int x = 0; x < N; ++x) sum[x] += w * load_wide(row + x * width);
    }
    for (int x = 0; x < N; ++x) store(to + (offset + x) * width, sum[x]);
  });
}
template <class T>
void gather_rows(const Rows<T>& rows, const int32_t* index, const T* weight, int64_t count,
                 int64_t vectors, T* to) {
  with_elements(rows, [&](const auto* from) {
    gather_rows(from, rows.stride, index, weight, count, vectors, to);
  });
}

// rows[index[e]] (d) += factor[e] from (d) for every entry e, d in vectors.
template <class T, class IO>
void scatter_row(const IO* from, const int32_t* index, const T* factor, int64_t count,
                 int64_t vectors, T* rows) {
  constexpr int width = Lanes<T>::count;
  for_each_tile(vectors, 8, [&](auto n, int64_t offset) {
    constexpr int N = decltype(n)::value;
    Vec<T> row[N];
    for (int x = 0; x < N; ++x) row[x] = load_wide(from + (offset + x) * width);
    for (int64_t e = 0; e < count; ++e) {
      T* to = rows + (index[e] * vectors + offset) * width;
      const Vec<T> w = broadcast(factor[e]);
#pragma GCC unroll 8
      for (int x = 0; x < N; ++x) store(to + x * width, load(to + x * width) + w * row[x]);
    }
  });
}

template <class T>
void scatter_row(const Rows<T>& row, const int32_t* index, const T* factor, int64_t count,
                 int64_t vectors, T* rows) {
  with_elements(row,
                [&](const auto* from) { scatter_row(from, index, factor, count, vectors, rows); });
}

// to (d) += sum_e e.*factor rows[e.row] (d) over entries e, d in vectors, for rows in the cache.
template <class T, class IO, class Entry>
ADASPARSE_INLINE void add_rows(const IO* rows, int64_t stride, const Entry* entries, int64_t count,
                               T Entry::* factor, int64_t vectors, T* to) {
  constexpr int width = Lanes<T>::count;
  for_each_tile(vectors, 8, [&](auto n, int64_t offset) {
    constexpr int N = decltype(n)::value;
    const IO* from = rows + offset * width;
    Vec<T> sum[N];
    for (int x = 0; x < N; ++x) sum[x] = load(to + (offset + x) * width);
    for (int64_t e = 0; e < count; ++e) {
      const IO* row = from + entries[e].row * stride;
      const Vec<T> w = broadcast(entries[e].*factor);
#pragma GCC unroll 8
      for (int x = 0; x < N; ++x) sum[x] += w * load_wide(row + x * width);
    }
    for (int x = 0; x < N; ++x) store(to + (offset + x) * width, sum[x]);
  });
}

// to[e] = <left, rows[index[e]]>, d in vectors.
template <class T, class IO>
void gather_dots(const IO* left, const IO* rows, int64_t stride, const int32_t* index,
                 int64_t count, int64_t vectors, T* to) {
  constexpr int width = Lanes<T>::count;
  if (vectors == 0) fill(to, count, T(0));
  for_each_tile(vectors, 8, [&](auto n, int64_t offset) {
    constexpr int N = decltype(n)::value;
    const IO* from = rows + offset * width;
    Vec<T> mine[N];
    for (int x = 0; x < N; ++x) mine[x] = load_wide(left + (offset + x) * width);
    for (int64_t e = 0; e < count; ++e) {
      const IO* row = from + index[e] * stride;
      fetch<N, T>(from + index[smaller(e + kEntriesAhead, count - 1)] * stride);
      Vec<T> sum = mine[0] * load_wide(row);
#pragma GCC unroll 8
      for (int x = 1; x < N; ++x) sum += mine[x] * load_wide(row + x * width);
      const T dot = sum_lanes<T>(sum);
      to[e] = offset ? to[e] + dot : dot;
    }
  });
}

// The same; `left` is of the type of the rows.
template <class T>
void gather_dots(const Rows<T>& left, const Rows<T>& rows, const int32_t* index, int64_t count,
                 int64_t vectors, T* to) {
  with_elements(rows, [&](const auto* from) {
    gather_dots(static_cast<decltype(from)>(left.data), from, rows.stride, index, count, vectors,
                to);
  });
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
