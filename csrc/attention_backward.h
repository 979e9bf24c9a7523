// Entmax attention, backward.
//
// Sparse heads walk the support that the forward kept: first by rows (gradients of scores, queries,
// alpha, bias), then by heads and stretches of features (keys, values), so that any number of
// threads adds the same numbers in the same order. Dense heads compute their weights again, a strip
// of queries at a time, and multiply; chunks of their queries add up keys and values apart, to be
// joined in order.
#pragma once

#include "attention.h"

namespace adasparse {
namespace ADASPARSE_ISA {

constexpr int64_t kWalkRows = 128;       // queries of a task that walks the support
constexpr int64_t kChunkRows = 240;      // at least this many queries make a chunk of a dense head
constexpr int64_t kDenseTasks = 64;      // chunks wanted over all dense heads
constexpr int64_t kChunkBytes = 1 << 27; // their sums take no more than this, if it can be helped
constexpr int64_t kSumTasks = 16;        // tasks wanted for the sums over queries
constexpr int64_t kSumBytes = 1 << 18;   // memory they add up in, if it can be helped

template <class T>
struct Backward {
  const AttentionBackward& a;
  const AttentionInput& in;
  WholeRows<T> query, key, value, grad;

  explicit Backward(const AttentionBackward& arguments)
      : a(arguments),
        in(arguments.in),
        query(in, in.query, in.heads, in.q, in.d),
        key(in, in.key, in.groups, in.k, in.d),
        value(in, in.value, in.groups, in.k, in.e),
        grad(in, arguments.grad, in.heads, in.q, in.e) {}

  int64_t heads() const { return in.batch * in.heads; }
  int64_t group_of(int64_t head) const {
    return head / in.heads * in.groups + head % in.heads / (in.heads / in.groups);
  }
  T grown() const { return in.dropout_p < 1 ? static_cast<T>(1 / (1 - in.dropout_p)) : T(0); }

  // Heads whose gradients of the mask fall on the same numbers must not run at the same time: they
  // make one plane. Without such gradients every head is a plane.
  int64_t plane_batch() const { return !a.grad_mask || a.grad_mask_strides[0] ? in.batch : 1; }
  int64_t plane_heads() const { return !a.grad_mask || a.grad_mask_strides[1] ? in.heads : 1; }
  int64_t planes() const { return plane_batch() * plane_heads(); }
  bool is_one_chunk() const { return a.grad_mask && a.grad_mask_strides[2] == 0; }
  template <class Body>
  void for_each_head_of(int64_t plane, const Body& body) const {
    const int64_t pb = plane / plane_heads(), ph = plane % plane_heads();
    for (int64_t b = pb; b < in.batch; b += plane_batch())
      for (int64_t h = ph; h < in.heads; h += plane_heads()) body(b * in.heads + h);
  }
  T* mask_gradient(int64_t head, int64_t i) const {
    return static_cast<T*>(a.grad_mask) + head / in.heads * a.grad_mask_strides[0] +
           head % in.heads * a.grad_mask_strides[1] + i * a.grad_mask_strides[2];
  }

  // Gradient by the scores of one row from that by its weights, with all that follows from it but
  // for queries and keys. `index` may be null for columns 0 to n. Leaves scale * gradient.
  void row_gradients(int64_t head, int64_t i, const T* weight, const T* by_weight,
                     const int32_t* index, int64_t n, T* by_score) const {
    const int64_t number = head * in.q + i;
    const double alpha = alpha_of(in, head / in.heads, head % in.heads, i);
    double by_alpha = 0;
    if (n)
      with_map<T>(alpha, [&](const auto& map) {
        by_alpha = a.grad_alpha ? backward_row<true>(map, weight, by_weight, n, by_score)
                                : backward_row<false>(map, weight, by_weight, n, by_score);
      });
    if (a.grad_alpha) a.grad_alpha[number] = by_alpha;
    if (a.grad_slopes) {
      const Distance distance(in, visible_keys(in, length_of(in, head / in.heads), i), i);
      double total = 0;
      for (int64_t e = 0; e < n; ++e)
        total -= static_cast<double>(by_score[e]) *
                 static_cast<double>(distance.to(index ? index[e] : e));
      a.grad_slopes[number] = total;
    }
    if (a.grad_mask) {
      T* to = mask_gradient(head, i);
      for (int64_t e = 0; e < n; ++e)
        to[(index ? index[e] : e) * a.grad_mask_strides[3]] += by_score[e];
    }
    const T scale = static_cast<T>(in.scale);
    for (int64_t e = 0; e < n; ++e) by_score[e] *= scale;
  }

  // ---------------------------------------------------------------- sparse heads

  // Rows of one head: gradients by query, alpha, slope and mask; `by_score` (and with dropout the
  // weights that were used, `used`) gets an entry for each of the support.
  void walk_rows(int64_t head, int64_t first, int64_t last, T* by_score, T* used, T* by_weight,
                 T* sum) const {
    const int64_t b = head / in.heads, h = head % in.heads, g = group_of(head) % in.groups;
    for (int64_t i = first; i < last; ++i) {
      const int64_t begin = a.offsets[head * in.q + i];
      const int64_t n = a.offsets[head * in.q + i + 1] - begin;
      const int32_t* index = a.index + begin;
      const T* weight = static_cast<const T*>(a.weight) + begin;
      gather_dots(grad.at(b, h) + i * grad.row(), value.at(b, g), value.row(), index, n,
                  value.vectors(), by_weight);
      if (used && n > 0) {
        const Dropout dropout(in.seed, in.dropout_p, head * in.q + i);
        drop(dropout, index, n, grown(), by_weight);
        std::memcpy(used + begin, weight, sizeof(T) * static_cast<size_t>(n));
        drop(dropout, index, n, grown(), used + begin);
      }
      row_gradients(head, i, weight, by_weight, index, n, by_score + begin);
      T* to = static_cast<T*>(a.grad_query) + (head * in.q + i) * in.d;
      const bool in_place = in.d == key.vectors() * Lanes<T>::count;
      gather_rows(key.at(b, g), key.row(), index, by_score + begin, n, key.vectors(),
                  in_place ? to : sum);
      if (!in_place) std::memcpy(to, sum, sizeof(T) * static_cast<size_t>(in.d));
    }
  }

  // sums[j] (N vectors from `offset`) of one (batch, group): coefficient * rows[i] for every entry
  // (i, j) of its sparse heads. They add up in `compact`, a (k, N vectors) that fits the cache.
  template <int N>
  void sum_over_queries(int64_t group, const WholeRows<T>& rows, const T* coefficient,
                        int64_t offset, T* compact, T* sums, int64_t stride) const {
    constexpr int width = Lanes<T>::count;
    fill(compact, in.k * N * width, T(0));
    const int64_t size = in.heads / in.groups;
    for (int64_t head = group * size; head < (group + 1) * size; ++head) {
      if (a.is_dense[head]) continue;
      const T* from = rows.at(head / in.heads, head % in.heads) + offset * width;
      for (int64_t i = 0; i < in.q; ++i) {
        Vec<T> row[N];
        for (int x = 0; x < N; ++x) row[x] = load(from + i * rows.row() + x * width);
        for (int64_t e = a.offsets[head * in.q + i]; e < a.offsets[head * in.q + i + 1]; ++e) {
          T* to = compact + int64_t{a.index[e]} * (N * width);
          const Vec<T> w = broadcast(coefficient[e]);
#pragma GCC unroll 8
          for (int x = 0; x < N; ++x)
            store(to + x * width, load(to + x * width) + w * row[x]);
        }
      }
    }
    for (int64_t j = 0; j < in.k; ++j)
      std::memcpy(sums + j * stride + offset * width, compact + j * (N * width), N * kVectorBytes);
  }

  // ---------------------------------------------------------------- dense heads

  struct DenseWork {
    explicit DenseWork(const Backward& of)
        : columns(round_up(of.in.k, kColumns)),
          weights(kStripRows * columns),
          gradients(kStripRows * columns),
          row(columns + 4 * Lanes<T>::count),
          sum(kStripRows * of.key.vectors() * Lanes<T>::count) {}
    int64_t columns;
    Scratch<T> weights, gradients, row, sum;
  };

  // Queries [first, last) of a dense head; sums over them are added to by_key and by_value.
  void dense_rows(int64_t number, int64_t first, int64_t last, const T* key_panels,
                  const T* value_panels, DenseWork& work, T* by_key, T* by_value) const {
    const Head<T> head = head_at(in, number, key_panels, value);
    const int64_t g = group_of(number) % in.groups, stride = work.columns;
    const int64_t key_size = key.vectors() * Lanes<T>::count;
    const int64_t value_size = value.vectors() * Lanes<T>::count;
    const T* out_grad = grad.at(head.b, head.h);
    const T* panels = value_panels + group_of(number) * panel_size<T>(in.k, in.e);
    T *weights = work.weights.get(), *gradients = work.gradients.get();
    for (int64_t i = first; i < last; i += kStripRows) {
      const int64_t rows = smaller(kStripRows, last - i);
      const int64_t n = visible_keys(in, head.length, i + rows - 1);
      score_strip(in, head, i, rows, 0, round_up(n, kColumns), weights, stride);
      multiply_panels(out_grad + i * grad.row(), grad.row(), panels, in.e, T(1), gradients, stride,
                      rows, round_up(n, kPanel<T>) / kPanel<T>);
      for (int64_t r = 0; r < rows; ++r) {
        T *weight = weights + r * stride, *gradient = gradients + r * stride;
        const double* state = a.state + (number * in.q + i + r) * kRowState;
        with_map<T>(alpha_of(in, head.b, head.h, i + r), [&](const auto& map) {
          write_weights(map, weight, n, {state[0], state[1], state[2]}, false, weight);
        });
        const Dropout dropout(in.seed, in.dropout_p, number * in.q + i + r);
        if (in.dropout_p > 0) drop(dropout, n, grown(), gradient);
        row_gradients(number, i + r, weight, gradient, nullptr, n, work.row.get());
        std::memcpy(gradient, work.row.get(), sizeof(T) * static_cast<size_t>(n));
        if (in.dropout_p > 0) drop(dropout, n, grown(), weight);
      }
      T* sum = work.sum.get();
      fill(sum, rows * key_size, T(0));
      for (int64_t j = 0; j < n; j += kKeyBlock)
        add_product(gradients + j, stride, int64_t{1}, key.at(head.b, g) + j * key.row(),
                    key.row(), sum, key_size, rows, key_size, smaller(kKeyBlock, n - j));
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(static_cast<T*>(a.grad_query) + (number * in.q + i + r) * in.d,
                    sum + r * key_size, sizeof(T) * static_cast<size_t>(in.d));
      add_product(gradients, int64_t{1}, stride, query.at(head.b, head.h) + i * query.row(),
                  query.row(), by_key, key_size, n, key_size, rows);
      add_product(weights, int64_t{1}, stride, out_grad + i * grad.row(), grad.row(), by_value,
                  value_size, n, value_size, rows);
    }
  }

  // ---------------------------------------------------------------- all of it

  void run_sparse(T* by_key, T* by_value) const {
    const int64_t entries = a.offsets[heads() * in.q];
    Scratch<T> by_score(entries + 1), used(in.dropout_p > 0 ? entries + 1 : 1);
    T* kept = in.dropout_p > 0 ? used.get() : nullptr;
    const int64_t rows = is_one_chunk() ? larger<int64_t>(in.q, 1) : kWalkRows;
    const int64_t tasks = (in.q + rows - 1) / rows;
    struct Work {
      explicit Work(const Backward& of)
          : by_weight(of.in.k + 1), sum(of.key.vectors() * Lanes<T>::count) {}
      Scratch<T> by_weight, sum;
    };
    parallel_with(planes() * tasks, in.threads, [&] { return Work(*this); },
                  [&](Work& work, int64_t task) {
                    for_each_head_of(task / tasks, [&](int64_t head) {
                      if (!a.is_dense[head])
                        walk_rows(head, task % tasks * rows,
                                  smaller(in.q, task % tasks * rows + rows), by_score.get(), kept,
                                  work.by_weight.get(), work.sum.get());
                    });
                  });
    sum_all(query, by_score.get(), by_key);
    sum_all(grad, kept ? kept : static_cast<const T*>(a.weight), by_value);
  }
  // sum_over_queries for every group, in stretches that fit the cache and give every thread work.
  void sum_all(const WholeRows<T>& rows, const T* coefficient, T* sums) const {
    const int64_t groups = in.batch * in.groups, vectors = rows.vectors();
    int64_t widest = 8;
    while (widest * kVectorBytes > 64 &&
           (widest * kVectorBytes * in.k > kSumBytes || groups * vectors / widest < kSumTasks))
      widest /= 2;
    Scratch<int64_t> offsets(vectors), sizes(vectors);
    int64_t count = 0;
    for_each_stretch(vectors, widest, [&](auto n, int64_t at) {
      offsets.get()[count] = at;
      sizes.get()[count++] = decltype(n)::value;
    });
    const int64_t stride = vectors * Lanes<T>::count;
    parallel_with(groups * count, in.threads,
                  [&] { return Scratch<T>(in.k * widest * Lanes<T>::count + 1); },
                  [&](Scratch<T>& compact, int64_t task) {
                    const int64_t group = task / count, part = task % count;
                    for_each_stretch(sizes.get()[part], 8, [&](auto n, int64_t) {
                      sum_over_queries<decltype(n)::value>(
                          group, rows, coefficient, offsets.get()[part], compact.get(),
                          sums + group * in.k * stride, stride);
                    });
                  });
  }

  void run_dense(int64_t dense, T* by_key, T* by_value) const {
    Scratch<int64_t> place(heads());  // of a dense head among them
    for (int64_t head = 0, at = 0; head < heads(); ++head) place.get()[head] = at += a.is_dense[head];
    const int64_t key_size = in.k * key.vectors() * Lanes<T>::count;
    const int64_t value_size = in.k * value.vectors() * Lanes<T>::count;
    const int64_t bytes = dense * (key_size + value_size) * static_cast<int64_t>(sizeof(T));
    int64_t chunks = smaller((kDenseTasks + dense - 1) / dense, in.q / kChunkRows);
    chunks = larger<int64_t>(1, smaller(chunks, kChunkBytes / larger<int64_t>(1, bytes)));
    if (is_one_chunk()) chunks = 1;
    const int64_t chunk_rows = round_up((in.q + chunks - 1) / chunks, kStripRows);

    const auto is_wanted = [&](int64_t b, int64_t g) {
      const int64_t size = in.heads / in.groups, first = b * in.heads + g * size;
      for (int64_t head = first; head < first + size; ++head)
        if (a.is_dense[head]) return true;
      return false;
    };
    Scratch<T> key_panels(in.batch * in.groups * panel_size<T>(in.k, in.d) + 1);
    Scratch<T> value_panels(in.batch * in.groups * panel_size<T>(in.k, in.e) + 1);
    pack_all<T>(in, view_of<T>(in.key), in.d, key_panels.get(), is_wanted);
    pack_all<T>(in, view_of<T>(in.value), in.e, value_panels.get(), is_wanted);

    Scratch<T> key_sums(dense * chunks * key_size + 1), value_sums(dense * chunks * value_size + 1);
    parallel_with(planes() * chunks, in.threads, [&] { return DenseWork(*this); },
                  [&](DenseWork& work, int64_t task) {
                    const int64_t chunk = task % chunks;
                    for_each_head_of(task / chunks, [&](int64_t head) {
                      if (!a.is_dense[head]) return;
                      const int64_t at = (place.get()[head] - 1) * chunks + chunk;
                      T* keys = key_sums.get() + at * key_size;
                      T* values = value_sums.get() + at * value_size;
                      fill(keys, key_size, T(0));
                      fill(values, value_size, T(0));
                      dense_rows(head, chunk * chunk_rows,
                                 smaller(in.q, (chunk + 1) * chunk_rows), key_panels.get(),
                                 value_panels.get(), work, keys, values);
                    });
                  });
    parallel_for(in.batch * in.groups, 1, in.threads, [&](int64_t group, int64_t) {
      const int64_t size = in.heads / in.groups;
      for (int64_t head = group * size; head < (group + 1) * size; ++head)
        for (int64_t chunk = 0; a.is_dense[head] && chunk < chunks; ++chunk) {
          const int64_t at = (place.get()[head] - 1) * chunks + chunk;
          add(key_sums.get() + at * key_size, key_size, by_key + group * key_size);
          add(value_sums.get() + at * value_size, value_size, by_value + group * value_size);
        }
    });
  }
  static void add(const T* from, int64_t n, T* to) {
    for (int64_t j = 0; j < n; ++j) to[j] += from[j];
  }

  void run() const {
    // Sums go straight to the gradients where rows are whole vectors.
    const int64_t groups = in.batch * in.groups;
    const int64_t key_size = key.vectors() * Lanes<T>::count;
    const int64_t value_size = value.vectors() * Lanes<T>::count;
    const bool is_key_whole = key_size == in.d, is_value_whole = value_size == in.e;
    Scratch<T> keys(is_key_whole ? 1 : groups * in.k * key_size);
    Scratch<T> values(is_value_whole ? 1 : groups * in.k * value_size);
    T* by_key = is_key_whole ? static_cast<T*>(a.grad_key) : keys.get();
    T* by_value = is_value_whole ? static_cast<T*>(a.grad_value) : values.get();
    run_sparse(by_key, by_value);
    int64_t dense = 0;
    for (int64_t head = 0; head < heads(); ++head) dense += a.is_dense[head];
    if (dense) run_dense(dense, by_key, by_value);
    const auto copy = [&](const T* from, int64_t size, void* to, int64_t d) {
      for (int64_t j = 0; j < groups * in.k; ++j)
        std::memcpy(static_cast<T*>(to) + j * d, from + j * size,
                    sizeof(T) * static_cast<size_t>(d));
    };
    if (!is_key_whole) copy(by_key, key_size, a.grad_key, in.d);
    if (!is_value_whole) copy(by_value, value_size, a.grad_value, in.e);
  }
};

inline void attention_backward(const AttentionBackward& a) {
  a.in.is_double ? Backward<double>(a).run() : Backward<float>(a).run();
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
