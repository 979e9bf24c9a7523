// Entmax attention, backward of dense heads: weights are recomputed, a strip of queries at a time,
// and multiplied as matrices. Chunks of queries sum keys and values apart; the sums are added in
// order.
#pragma once

#include "attention/backward_row.h"
#include "entmax/solve_row.h"
#include "parallel.h"

namespace adasparse {
namespace ADASPARSE_ISA {

template <class T>
struct DenseBackward {
  const BackwardRows<T>& rows;
  const AttentionBackward& a = rows.a;
  const AttentionInput& in = rows.in;

  struct Work {
    explicit Work(const BackwardRows<T>& of)
        : stride(most_columns(of.in, kStripRows) + (of.in.sinks ? kColumns : 0) + kRowPadding),
          weights(kStripRows * stride),
          gradients(kStripRows * stride),
          row(stride + 4 * Lanes<T>::count),
          sum(kStripRows * of.key.vectors() * Lanes<T>::count),
          grad(of.in.type, kStripRows, of.in.e) {}
    int64_t stride;
    Scratch<T> weights, gradients, row, sum;
    WideRows<T> grad;
  };

  // c (rows, columns) += a (rows, steps) b (steps, columns), in which a zero of a counts for
  // nothing.
  template <class Row, class Step>
  static void add(bool is_finite, const T* a, Row a_row, Step a_step, const Rows<T>& b, T* c,
                  int64_t rows, int64_t columns, int64_t steps) {
    if (is_finite)
      add_product(a, a_row, a_step, b, c, columns, rows, columns, steps);
    else
      add_product_of_support(a, a_row, a_step, b, c, columns, rows, columns, steps);
  }

  // Queries [first, last) of a dense head; sums over them are added to by_key and by_value.
  void run_rows(int64_t number, int64_t first, int64_t last, const T* key_panels,
                const T* value_panels, Work& work, T* by_key, T* by_value) const {
    const Head<T> head = head_at(in, number, key_panels, rows.value);
    const int64_t g = rows.group_of(number) % in.groups, stride = work.stride;
    const int64_t key_size = rows.key.vectors() * Lanes<T>::count;
    const int64_t value_size = rows.value.vectors() * Lanes<T>::count;
    const T* panels = value_panels + rows.group_of(number) * panel_size<T>(in.k, in.e);
    if (first >= last) return;
    const KeyRange seen = visible_keys(in, head.length, first, last);
    T *weights = work.weights.get(), *gradients = work.gradients.get();
    // Keys and values of weight zero never matter, not even NaN.
    const bool are_keys_finite =
        are_finite(rows.key.at(head.b, g).from(seen.first), seen.size(), key_size);
    const bool are_values_finite = are_finite(head.value.from(seen.first), seen.size(), value_size);
    for (int64_t i = first; i < last; i += kStripRows) {
      const int64_t count = smaller(kStripRows, last - i);
      const Columns columns = columns_of(in, head.length, i, count);
      const int64_t n = columns.count;
      const Rows<T> grads = rows.grad.at(head.b, head.h).from(i);
      score_strip(in, head, i, count, columns.first, round_up(n, kColumns), weights, stride);
      const T* out_grad = work.grad.read(grads, count, in.e);
      multiply_panels(out_grad, work.grad.stride, panels + columns.first * in.e, in.e, T(1),
                      gradients, stride, count, round_up(n, kPanel<T>) / kPanel<T>);
      for (int64_t r = 0; r < count; ++r) {
        T *weight = weights + r * stride, *gradient = gradients + r * stride;
        const double* state = a.state + (number * in.q + i + r) * kRowState;
        with_map<T>(alpha_of(in, head.b, head.h, i + r), [&](const auto& map) {
          using Map = std::decay_t<decltype(map)>;
          SolvedRow solved{{state[0], state[1], state[2]}, false};
          // Steep maps have no room for a score that is another one by a rounding.
          if constexpr (std::is_same_v<Map, SteepMap<T>>) {
            if (in.sinks) weight[n] = static_cast<T>(in.sinks[head.h]);
            solved = solve_row(map, weight, n + (in.sinks ? 1 : 0), work.row.get(),
                               static_cast<T*>(nullptr));
          }
          write_weights(map, weight, n, solved, weight, weight, work.row.get());
        });
        for (int64_t j = 0; j < n && !are_values_finite; ++j)
          if (weight[j] == 0) gradient[j] = 0;
        const Dropout dropout(in.seed, in.dropout_p, number * in.q + i + r);
        if (in.dropout_p > 0) drop_range(dropout, columns.first, n, grown<T>(in), gradient);
        rows.template row_gradients<true>(number, i + r, weight, gradient, nullptr, columns.first,
                                          n, work.row.get());
        std::memcpy(gradient, work.row.get(), sizeof(T) * static_cast<size_t>(n));
        if (in.dropout_p > 0) drop_range(dropout, columns.first, n, grown<T>(in), weight);
      }
      T* sum = work.sum.get();
      fill(sum, count * key_size, T(0));
      for (int64_t j = 0; j < n; j += kChunkKeys) {
        const Rows<T> keys = rows.key.at(head.b, g).from(columns.first + j);
        const int64_t size = smaller(kChunkKeys, n - j);
        add(are_keys_finite, gradients + j, stride, One{}, keys, sum, count, key_size, size);
      }
      write_rows(in, sum, key_size, count, in.d, a.grad_query, head.b, head.h, i);
      const Rows<T> queries = rows.query.at(head.b, head.h).from(i);
      add(are_finite(queries, count, key_size), gradients, One{}, stride, queries,
          by_key + columns.first * key_size, n, key_size, count);
      add(are_finite(grads, count, value_size), weights, One{}, stride, grads,
          by_value + columns.first * value_size, n, value_size, count);
    }
  }

  void run(int64_t dense, const View<T>& by_key, const View<T>& by_value) const {
    Scratch<int64_t> place(rows.heads());  // of a dense head among them
    for (int64_t head = 0, at = 0; head < rows.heads(); ++head)
      place.get()[head] = at += a.is_dense[head];
    const int64_t key_size = in.k * rows.key.vectors() * Lanes<T>::count;
    const int64_t value_size = in.k * rows.value.vectors() * Lanes<T>::count;
    const int64_t bytes = dense * (key_size + value_size) * static_cast<int64_t>(sizeof(T));
    int64_t chunks =
        smaller((kDenseTasks + dense - 1) / dense, (in.q + kChunkRows - 1) / kChunkRows);
    chunks = larger<int64_t>(1, smaller(chunks, kChunkBytes / larger<int64_t>(1, bytes)));
    if (rows.is_one_chunk()) chunks = 1;
    const int64_t chunk_rows = round_up((in.q + chunks - 1) / chunks, kStripRows);

    const auto is_wanted = [&](int64_t b, int64_t g) {
      const int64_t size = in.heads / in.groups, first = b * in.heads + g * size;
      for (int64_t head = first; head < first + size; ++head)
        if (a.is_dense[head]) return true;
      return false;
    };
    Scratch<T> key_panels(in.batch * in.groups * panel_size<T>(in.k, in.d) + 1);
    Scratch<T> value_panels(in.batch * in.groups * panel_size<T>(in.k, in.e) + 1);
    pack_all<T>(in, in.key, in.d, key_panels.get(), is_wanted);
    pack_all<T>(in, in.value, in.e, value_panels.get(), is_wanted);

    Scratch<T> key_sums(dense * chunks * key_size + 1), value_sums(dense * chunks * value_size + 1);
    parallel_with(
        rows.turns() * chunks, in.threads, [&] { return Work(rows); },
        [&](Work& work, int64_t task) {
          const int64_t chunk = task % chunks;
          rows.for_each_head_of(task / chunks, [&](int64_t head) {
            if (!a.is_dense[head]) return;
            const int64_t at = (place.get()[head] - 1) * chunks + chunk;
            T* keys = key_sums.get() + at * key_size;
            T* values = value_sums.get() + at * value_size;
            clear(keys, rows.key.vectors(), keys_of(head, chunk, chunk_rows));
            clear(values, rows.value.vectors(), keys_of(head, chunk, chunk_rows));
            run_rows(head, chunk * chunk_rows, smaller(in.q, (chunk + 1) * chunk_rows),
                     key_panels.get(), value_panels.get(), work, keys, values);
          });
        });
    parallel_for(in.batch * in.groups, 1, in.threads, [&](int64_t group, int64_t) {
      const int64_t size = in.heads / in.groups;
      for (int64_t head = group * size; head < (group + 1) * size; ++head)
        for (int64_t chunk = 0; a.is_dense[head] && chunk < chunks; ++chunk) {
          const int64_t at = (place.get()[head] - 1) * chunks + chunk;
          const KeyRange keys = keys_of(head, chunk, chunk_rows);
          add(key_sums.get() + at * key_size, rows.key.vectors(), keys, group, by_key);
          add(value_sums.get() + at * value_size, rows.value.vectors(), keys, group, by_value);
        }
    });
  }
  void add(const T* from, int64_t vectors, const KeyRange& keys, int64_t group,
           const View<T>& sums) const {
    const int64_t size = vectors * Lanes<T>::count;
    for (int64_t j = keys.first; j < keys.last; ++j) {
      T* to = sums.at(group / in.groups, group % in.groups) + j * sums.row;
      for (int64_t x = 0; x < size; ++x) to[x] += from[j * size + x];
    }
  }

  // The keys of the sums of a chunk, from a whole panel on.
  KeyRange keys_of(int64_t head, int64_t chunk, int64_t chunk_rows) const {
    const int64_t first = chunk * chunk_rows, last = smaller(in.q, first + chunk_rows);
    if (first >= last) return {0, 0};
    const Columns columns = columns_of(in, length_of(in, head / in.heads), first, last - first);
    return {columns.first, columns.last()};
  }
  static void clear(T* sums, int64_t vectors, const KeyRange& keys) {
    const int64_t size = vectors * Lanes<T>::count;
    fill(sums + keys.first * size, keys.size() * size, T(0));
  }
};

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
