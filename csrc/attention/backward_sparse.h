// Entmax attention, backward of sparse heads, which walk the support that the forward kept: first
// by rows (gradients of scores, queries, alpha, bias), then by keys (gradients of keys and values),
// so that any number of threads adds the same numbers in the same order.
//
// Where there are few entries they are added to the gradients of their keys as they come, some
// features at a time. Where there are many they are brought into the order of the keys first, a
// tile at a time, so that each gradient adds up in registers.
#pragma once

#include "attention/backward_row.h"

namespace adasparse {
namespace ADASPARSE_ISA {

constexpr int64_t kWalkRows = 128;         // queries of a task that walks the support, or of a tile
constexpr int64_t kPartEntries = 1 << 19;  // entries walked and summed up before the next
constexpr int64_t kSumTasks = 16;          // tasks wanted for the sums over queries
constexpr int64_t kSumBytes = 1 << 18;     // memory they add up in, if it can be helped
constexpr int64_t kRowsAhead = 3;          // rows of a tile whose entries are fetched

template <class T>
struct SparseGradients : Gradients<T> {
  using Base = Gradients<T>;
  using Base::Base;
  using Base::a;
  using Base::for_each_head_of;
  using Base::grad;
  using Base::group_of;
  using Base::grown;
  using Base::in;
  using Base::is_one_chunk;
  using Base::key;
  using Base::planes;
  using Base::query;
  using Base::row_gradients;
  using Base::tiles;
  using Base::value;

  // A few groups of heads, walked and summed up before the next so that their entries are still in
  // the cache. Arrays hold the entries from `entry` on.
  struct Part {
    int64_t group, last_group, entry;
    T* by_score;      // gradients by the scores
    const T* weight;  // with which values were added
    T* dropped;       // the same to write to, with dropout, or null
    int64_t* starts;  // see find_tiles
  };

  // Rows of one head: gradients by query, alpha, slope and mask, and what is in the arrays of
  // `part`.
  void walk_rows(int64_t head, int64_t first, int64_t last, const Part& part, T* by_weight,
                 T* sum) const {
    const int64_t b = head / in.heads, h = head % in.heads, g = group_of(head) % in.groups;
    const View<T> by_query = view_of<T>(a.grad_query);
    for (int64_t i = first; i < last; ++i) {
      const int64_t begin = a.offsets[head * in.q + i];
      const int64_t n = a.offsets[head * in.q + i + 1] - begin;
      const int32_t* index = a.index + begin;
      const T* weight = static_cast<const T*>(a.weight) + begin;
      gather_dots(grad.at(b, h) + i * grad.row(), value.at(b, g), value.row(), index, n,
                  value.vectors(), by_weight);
      T* by_score = part.by_score + (begin - part.entry);
      if (part.dropped && n > 0) {
        T* dropped = part.dropped + (begin - part.entry);
        const Dropout dropout(in.seed, in.dropout_p, head * in.q + i);
        drop(dropout, index, n, grown(), by_weight);
        std::memcpy(dropped, weight, sizeof(T) * static_cast<size_t>(n));
        drop(dropout, index, n, grown(), dropped);
      }
      row_gradients(head, i, weight, by_weight, index, n, by_score);
      if (tiles) find_tiles(head * in.q + i, part);
      T* to = by_query.at(b, h) + i * by_query.row;
      const bool in_place = in.d == key.vectors() * Lanes<T>::count;
      gather_rows(key.at(b, g), key.row(), index, by_score, n, key.vectors(),
                  in_place ? to : sum);
      if (!in_place) std::memcpy(to, sum, sizeof(T) * static_cast<size_t>(in.d));
    }
  }

  // ---------------------------------------------------------------- sums as they come

  // sums[j] (N vectors from `offset`) of one (batch, group): coefficient * rows[i] for every entry
  // (i, j) of its sparse heads. They add up in `compact`, a (k, N vectors) that fits the cache.
  template <int N>
  void sum_over_queries(int64_t group, const WholeRows<T>& rows, const T* coefficient,
                        int64_t entry, int64_t offset, T* compact, T* sums, int64_t stride) const {
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
          const Vec<T> w = broadcast(coefficient[e - entry]);
#pragma GCC unroll 8
          for (int x = 0; x < N; ++x)
            store(to + x * width, load(to + x * width) + w * row[x]);
        }
      }
    }
    for (int64_t j = 0; j < in.k; ++j)
      std::memcpy(sums + j * stride + offset * width, compact + j * (N * width), N * kVectorBytes);
  }

  // sum_over_queries for every group, in stretches that fit the cache and give every thread work.
  void sum_all(const Part& part, const WholeRows<T>& rows, const T* coefficient,
               const View<T>& sums) const {
    const int64_t groups = part.last_group - part.group, vectors = rows.vectors();
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
    parallel_with(groups * count, in.threads,
                  [&] { return Scratch<T>(in.k * widest * Lanes<T>::count + 1); },
                  [&](Scratch<T>& compact, int64_t task) {
                    const int64_t group = part.group + task / count, at = task % count;
                    for_each_stretch(sizes.get()[at], 8, [&](auto n, int64_t) {
                      sum_over_queries<decltype(n)::value>(
                          group, rows, coefficient, part.entry, offsets.get()[at], compact.get(),
                          sums.at(group / in.groups, group % in.groups), sums.row);
                    });
                  });
  }

  // ---------------------------------------------------------------- sums by tiles

  // Where the entries of a row begin for each tile, and where the last ones end.
  void find_tiles(int64_t number, const Part& part) const {
    const int64_t begin = a.offsets[number], end = a.offsets[number + 1];
    int64_t* starts = starts_of(number, part);
    fill(starts, tiles + 1, begin);
    for (int64_t e = begin; e < end; ++e) starts[a.index[e] / kTileKeys + 1] = e + 1;
    for (int64_t x = 1; x <= tiles; ++x) starts[x] = larger(starts[x], starts[x - 1]);
  }
  int64_t* starts_of(int64_t number, const Part& part) const {
    return part.starts + (number - part.group * (in.heads / in.groups) * in.q) * (tiles + 1);
  }

  // Entries of a tile in the order of their keys.
  struct TileEntry {
    int32_t row;
    T weight, by_score;
  };
  struct Tile {
    explicit Tile(const SparseGradients& of)
        : ends(kTileKeys + 1),
          entries(kWalkRows * kTileKeys),
          keys(kTileKeys * of.key.vectors() * Lanes<T>::count),
          values(kTileKeys * of.value.vectors() * Lanes<T>::count) {}
    Scratch<int32_t> ends;  // of the entries of each key
    Scratch<TileEntry> entries;
    Scratch<T> keys, values;  // what they add up to
  };
  void transpose_tile(const Part& part, const int64_t* starts, int64_t rows, int64_t first,
                      Tile& tile) const {
    int32_t* ends = tile.ends.get();
    fill(ends, kTileKeys + 1, 0);
    const int64_t step = tiles + 1;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t* start = starts + r * step;
      if (r + kRowsAhead < rows)
        fetch_range(a.index, start[kRowsAhead * step], start[kRowsAhead * step + 1]);
      for (int64_t e = start[0]; e < start[1]; ++e) ++ends[a.index[e] - first + 1];
    }
    for (int64_t j = 0; j < kTileKeys; ++j) ends[j + 1] += ends[j];
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t* start = starts + r * step;
      if (r + kRowsAhead < rows) {
        const int64_t begin = start[kRowsAhead * step] - part.entry;
        const int64_t end = start[kRowsAhead * step + 1] - part.entry;
        fetch_range(part.weight, begin, end);
        fetch_range(part.by_score, begin, end);
      }
      for (int64_t e = start[0]; e < start[1]; ++e) {
        const int32_t at = ends[a.index[e] - first]++;
        tile.entries.get()[at] = {static_cast<int32_t>(r), part.weight[e - part.entry],
                                  part.by_score[e - part.entry]};
      }
    }
  }
  template <class N>
  static void fetch_range(const N* from, int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; e += 64 / int64_t{sizeof(N)}) __builtin_prefetch(from + e);
  }

  // Gradients by the keys and values of one tile of one (batch, group).
  void sum_tile(int64_t group, int64_t number, const Part& part, Tile& tile,
                const View<T>& by_key, const View<T>& by_value) const {
    const int64_t first = number * kTileKeys, keys = smaller(kTileKeys, in.k - first);
    const int64_t key_size = key.vectors() * Lanes<T>::count;
    const int64_t value_size = value.vectors() * Lanes<T>::count;
    T *keys_at = tile.keys.get(), *values_at = tile.values.get();
    fill(keys_at, keys * key_size, T(0));
    fill(values_at, keys * value_size, T(0));
    const int64_t size = in.heads / in.groups;
    for (int64_t head = group * size; head < (group + 1) * size; ++head) {
      if (a.is_dense[head]) continue;
      for (int64_t i = in.is_causal ? first : 0; i < in.q; i += kWalkRows) {
        transpose_tile(part, starts_of(head * in.q + i, part) + number,
                       smaller(kWalkRows, in.q - i), first, tile);
        const T* queries = query.at(head / in.heads, head % in.heads) + i * query.row();
        const T* grads = grad.at(head / in.heads, head % in.heads) + i * grad.row();
        int64_t begin = 0;
        for (int64_t j = 0; j < keys; ++j) {
          const int64_t end = tile.ends.get()[j];
          if (end == begin) continue;
          const TileEntry* entries = tile.entries.get() + begin;
          add_rows(grads, grad.row(), entries, end - begin, &TileEntry::weight, value.vectors(),
                   values_at + j * value_size);
          add_rows(queries, query.row(), entries, end - begin, &TileEntry::by_score, key.vectors(),
                   keys_at + j * key_size);
          begin = end;
        }
      }
    }
    copy_rows(keys_at, key_size, keys, by_key, group, first);
    copy_rows(values_at, value_size, keys, by_value, group, first);
  }
  void copy_rows(const T* from, int64_t size, int64_t rows, const View<T>& sums, int64_t group,
                 int64_t first) const {
    T* to = sums.at(group / in.groups, group % in.groups) + first * sums.row;
    for (int64_t j = 0; j < rows; ++j)
      std::memcpy(to + j * sums.row, from + j * size, sizeof(T) * static_cast<size_t>(size));
  }

  void sum_tiles(const Part& part, const View<T>& by_key, const View<T>& by_value) const {
    parallel_with((part.last_group - part.group) * tiles, in.threads, [&] { return Tile(*this); },
                  [&](Tile& tile, int64_t task) {
                    sum_tile(part.group + task / tiles, task % tiles, part, tile, by_key, by_value);
                  });
  }

  // ---------------------------------------------------------------- all of it

  void run_sparse(const View<T>& by_key, const View<T>& by_value) const {
    const int64_t groups = in.batch * in.groups, rows = in.heads / in.groups * in.q;
    // Gradients of a mask may be shared by heads of any groups.
    const int64_t enough = a.grad_mask ? std::numeric_limits<int64_t>::max() : kPartEntries;
    const auto entries = [&](int64_t first, int64_t last) {
      return a.offsets[last * rows] - a.offsets[first * rows];
    };
    int64_t largest = 0, longest = 0;
    const auto for_each_part = [&](const auto& body) {
      for (int64_t first = 0, last; first < groups; first = last) {
        for (last = first + 1; last < groups && entries(first, last + 1) <= enough; ++last) {}
        body(first, last);
      }
    };
    for_each_part([&](int64_t first, int64_t last) {
      largest = larger(largest, entries(first, last));
      longest = larger(longest, last - first);
    });
    Scratch<T> by_score(largest + 1), dropped(in.dropout_p > 0 ? largest + 1 : 1);
    Scratch<int64_t> starts(tiles ? longest * rows * (tiles + 1) : 1);
    for_each_part([&](int64_t first, int64_t last) {
      const int64_t entry = a.offsets[first * rows];
      T* used = in.dropout_p > 0 ? dropped.get() : nullptr;
      const T* weight = used ? used : static_cast<const T*>(a.weight) + entry;
      const Part part{first, last, entry, by_score.get(), weight, used, starts.get()};
      walk_part(part);
      if (tiles) {
        sum_tiles(part, by_key, by_value);
      } else {
        sum_all(part, query, part.by_score, by_key);
        sum_all(part, grad, part.weight, by_value);
      }
    });
  }
  void walk_part(const Part& part) const {
    const int64_t rows = is_one_chunk() ? larger<int64_t>(in.q, 1) : kWalkRows;
    const int64_t tasks = (in.q + rows - 1) / rows, size = in.heads / in.groups;
    const int64_t first_plane = a.grad_mask ? 0 : part.group * size;
    const int64_t last_plane = a.grad_mask ? planes() : part.last_group * size;
    struct Work {
      explicit Work(const SparseGradients& of)
          : by_weight(of.in.k + 1), sum(of.key.vectors() * Lanes<T>::count) {}
      Scratch<T> by_weight, sum;
    };
    parallel_with((last_plane - first_plane) * tasks, in.threads, [&] { return Work(*this); },
                  [&](Work& work, int64_t task) {
                    const int64_t first = task % tasks * rows;
                    for_each_head_of(first_plane + task / tasks, [&](int64_t head) {
                      if (!a.is_dense[head])
                        walk_rows(head, first, smaller(in.q, first + rows), part,
                                  work.by_weight.get(), work.sum.get());
                    });
                  });
  }
};

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
