// Entmax attention, backward of sparse heads, which walk the saved support: first by rows
// (gradients of scores, queries, alpha, mask, slopes), then by keys (gradients of keys and values),
// so that any number of threads adds the same numbers in the same order.
//
// Few entries are added to the gradients of their keys in the order of rows, some features at a
// time. Many entries are first sorted by key, a tile at a time, so that each gradient adds up in
// registers.
#pragma once

#include "attention/backward_row.h"

namespace adasparse {
namespace ADASPARSE_ISA {

template <class T>
struct SparseBackward {
  const BackwardRows<T>& rows;
  const AttentionBackward& a = rows.a;
  const AttentionInput& in = rows.in;

  // A few groups of heads, walked and summed before the next so that their entries are still in the
  // cache. Arrays hold the entries from `entry` on.
  struct Chunk {
    int64_t group, last_group, entry;
    T* by_score;      // gradients with respect to the scores
    const T* weight;  // with which values were added
    T* dropped;       // the same to write to, with dropout, or null
    int64_t* starts;  // see find_tiles
  };

  // Rows of one head: gradients with respect to query, alpha, slope and mask, and the arrays of
  // `chunk`.
  void walk_rows(int64_t head, int64_t first, int64_t last, const Chunk& chunk, T* by_weight,
                 T* sum) const {
    const int64_t b = head / in.heads, h = head % in.heads, g = rows.group_of(head) % in.groups;
    const View<T> by_query = view_of<T>(a.grad_query);
    const bool in_place = in.d == rows.key.size() && is_of<T>(in.type);
    for (int64_t i = first; i < last; ++i) {
      const int64_t begin = a.offsets[head * in.q + i];
      const int64_t n = a.offsets[head * in.q + i + 1] - begin;
      const int32_t* index = a.index + begin;
      const T* weight = static_cast<const T*>(a.weight) + begin;
      gather_dots(rows.grad.at(b, h).from(i), rows.value.at(b, g), index, n, rows.value.vectors(),
                  by_weight);
      T* by_score = chunk.by_score + (begin - chunk.entry);
      if (chunk.dropped && n > 0) {
        T* dropped = chunk.dropped + (begin - chunk.entry);
        const Dropout dropout(in.seed, in.dropout_p, head * in.q + i);
        drop(dropout, index, n, grown<T>(in), by_weight);
        std::memcpy(dropped, weight, sizeof(T) * static_cast<size_t>(n));
        drop(dropout, index, n, grown<T>(in), dropped);
      }
      rows.row_gradients(head, i, weight, by_weight, index, 0, n, by_score);
      if (rows.tiles) find_tiles(head * in.q + i, chunk);
      gather_rows(rows.key.at(b, g), index, by_score, n, rows.key.vectors(),
                  in_place ? by_query.at(b, h) + i * by_query.row : sum);
      if (!in_place) write_rows(in, sum, 0, 1, in.d, a.grad_query, b, h, i);
    }
  }

  // ---------------------------------------------------------------- sums in the order of rows

  // sums[j] (N vectors from `offset`) of one (batch, group): coefficient * factors[i] for every
  // entry (i, j) of its sparse heads. They add up in `compact`, a (k, N vectors) that fits the
  // cache.
  template <int N>
  void sum_over_queries(int64_t group, const WholeRows<T>& factors, const T* coefficient,
                        int64_t entry, int64_t offset, T* compact, T* sums, int64_t stride) const {
    constexpr int width = Lanes<T>::count;
    fill(compact, in.k * N * width, T(0));
    const int64_t size = in.heads / in.groups;
    for (int64_t head = group * size; head < (group + 1) * size; ++head) {
      if (a.is_dense[head]) continue;
      const Rows<T> mine = factors.at(head / in.heads, head % in.heads);
      with_elements(mine.moved(offset * width), [&](const auto* from) {
        for (int64_t i = 0; i < in.q; ++i) {
          Vec<T> row[N];
          for (int x = 0; x < N; ++x) row[x] = load_wide(from + i * mine.stride + x * width);
          for (int64_t e = a.offsets[head * in.q + i]; e < a.offsets[head * in.q + i + 1]; ++e) {
            T* to = compact + int64_t{a.index[e]} * (N * width);
            const Vec<T> w = broadcast(coefficient[e - entry]);
#pragma GCC unroll 8
            for (int x = 0; x < N; ++x) store(to + x * width, load(to + x * width) + w * row[x]);
          }
        }
      });
    }
    for (int64_t j = 0; j < in.k; ++j)
      std::memcpy(sums + j * stride + offset * width, compact + j * (N * width), N * kVectorBytes);
  }

  // sum_over_queries for every group, in tiles of features that fit the cache and give every thread
  // work.
  void sum_all(const Chunk& chunk, const WholeRows<T>& factors, const T* coefficient,
               const View<T>& sums) const {
    const int64_t groups = chunk.last_group - chunk.group, vectors = factors.vectors();
    int64_t widest = 8;
    while (widest * kVectorBytes > 64 &&
           (widest * kVectorBytes * in.k > kSumBytes || groups * vectors / widest < kSumTasks))
      widest /= 2;
    Scratch<int64_t> offsets(vectors), sizes(vectors);
    int64_t count = 0;
    for_each_tile(vectors, widest, [&](auto n, int64_t at) {
      offsets.get()[count] = at;
      sizes.get()[count++] = decltype(n)::value;
    });
    parallel_with(
        groups * count, in.threads, [&] { return Scratch<T>(in.k * widest * Lanes<T>::count + 1); },
        [&](Scratch<T>& compact, int64_t task) {
          const int64_t group = chunk.group + task / count, at = task % count;
          for_each_tile(sizes.get()[at], 8, [&](auto n, int64_t) {
            sum_over_queries<decltype(n)::value>(
                group, factors, coefficient, chunk.entry, offsets.get()[at], compact.get(),
                sums.at(group / in.groups, group % in.groups), sums.row);
          });
        });
  }

  // ---------------------------------------------------------------- sums by tiles

  // The first entry of a row in each tile, and the end of the last.
  void find_tiles(int64_t number, const Chunk& chunk) const {
    const int64_t begin = a.offsets[number], end = a.offsets[number + 1];
    int64_t* starts = starts_of(number, chunk);
    fill(starts, rows.tiles + 1, begin);
    for (int64_t e = begin; e < end; ++e) starts[a.index[e] / kTileKeys + 1] = e + 1;
    for (int64_t x = 1; x <= rows.tiles; ++x) starts[x] = larger(starts[x], starts[x - 1]);
  }
  int64_t* starts_of(int64_t number, const Chunk& chunk) const {
    return chunk.starts + (number - chunk.group * (in.heads / in.groups) * in.q) * (rows.tiles + 1);
  }

  // Entries of a tile in the order of their keys.
  struct TileEntry {
    int32_t row;
    T weight, by_score;
  };
  struct Tile {
    explicit Tile(const BackwardRows<T>& of)
        : ends(kTileKeys + 1),
          entries(kWalkRows * kTileKeys),
          keys(kTileKeys * of.key.vectors() * Lanes<T>::count),
          values(kTileKeys * of.value.vectors() * Lanes<T>::count) {}
    Scratch<int32_t> ends;  // of the entries of each key
    Scratch<TileEntry> entries;
    Scratch<T> keys, values;  // their sums
  };
  void transpose_tile(const Chunk& chunk, const int64_t* starts, int64_t count, int64_t first,
                      Tile& tile) const {
    int32_t* ends = tile.ends.get();
    fill(ends, kTileKeys + 1, 0);
    const int64_t step = rows.tiles + 1;
    for (int64_t r = 0; r < count; ++r) {
      const int64_t* start = starts + r * step;
      if (r + kRowsAhead < count)
        fetch_range(a.index, start[kRowsAhead * step], start[kRowsAhead * step + 1]);
      for (int64_t e = start[0]; e < start[1]; ++e) ++ends[a.index[e] - first + 1];
    }
    for (int64_t j = 0; j < kTileKeys; ++j) ends[j + 1] += ends[j];
    for (int64_t r = 0; r < count; ++r) {
      const int64_t* start = starts + r * step;
      if (r + kRowsAhead < count) {
        const int64_t begin = start[kRowsAhead * step] - chunk.entry;
        const int64_t end = start[kRowsAhead * step + 1] - chunk.entry;
        fetch_range(chunk.weight, begin, end);
        fetch_range(chunk.by_score, begin, end);
      }
      for (int64_t e = start[0]; e < start[1]; ++e) {
        const int32_t at = ends[a.index[e] - first]++;
        tile.entries.get()[at] = {static_cast<int32_t>(r), chunk.weight[e - chunk.entry],
                                  chunk.by_score[e - chunk.entry]};
      }
    }
  }
  template <class N>
  static void fetch_range(const N* from, int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; e += 64 / int64_t{sizeof(N)}) __builtin_prefetch(from + e);
  }

  // Gradients with respect to the keys and values of one tile of one (batch, group).
  void sum_tile(int64_t group, int64_t number, const Chunk& chunk, Tile& tile,
                const View<T>& by_key, const View<T>& by_value) const {
    const int64_t first = number * kTileKeys, keys = smaller(kTileKeys, in.k - first);
    const int64_t key_size = rows.key.vectors() * Lanes<T>::count;
    const int64_t value_size = rows.value.vectors() * Lanes<T>::count;
    T *keys_at = tile.keys.get(), *values_at = tile.values.get();
    fill(keys_at, keys * key_size, T(0));
    fill(values_at, keys * value_size, T(0));
    const int64_t size = in.heads / in.groups;
    const KeyRange queries_seeing = seeing_queries(in, first, first + keys);
    for (int64_t head = group * size; head < (group + 1) * size; ++head) {
      if (a.is_dense[head]) continue;
      for (int64_t i = queries_seeing.first; i < queries_seeing.last; i += kWalkRows) {
        transpose_tile(chunk, starts_of(head * in.q + i, chunk) + number,
                       smaller(kWalkRows, queries_seeing.last - i), first, tile);
        const Rows<T> queries = rows.query.at(head / in.heads, head % in.heads).from(i);
        const Rows<T> grads = rows.grad.at(head / in.heads, head % in.heads).from(i);
        with_elements(queries, [&](const auto* query) {
          const auto* grad = static_cast<decltype(query)>(grads.data);
          int64_t begin = 0;
          for (int64_t j = 0; j < keys; ++j) {
            const int64_t end = tile.ends.get()[j];
            if (end == begin) continue;
            const TileEntry* entries = tile.entries.get() + begin;
            add_rows(grad, grads.stride, entries, end - begin, &TileEntry::weight,
                     rows.value.vectors(), values_at + j * value_size);
            add_rows(query, queries.stride, entries, end - begin, &TileEntry::by_score,
                     rows.key.vectors(), keys_at + j * key_size);
            begin = end;
          }
        });
      }
    }
    copy_rows(keys_at, key_size, keys, by_key, group, first);
    copy_rows(values_at, value_size, keys, by_value, group, first);
  }
  void copy_rows(const T* from, int64_t size, int64_t count, const View<T>& sums, int64_t group,
                 int64_t first) const {
    T* to = sums.at(group / in.groups, group % in.groups) + first * sums.row;
    for (int64_t j = 0; j < count; ++j)
      std::memcpy(to + j * sums.row, from + j * size, sizeof(T) * static_cast<size_t>(size));
  }

  void sum_tiles(const Chunk& chunk, const View<T>& by_key, const View<T>& by_value) const {
    parallel_with((chunk.last_group - chunk.group) * rows.tiles, in.threads,
                  [&] { return Tile(rows); },
                  [&](Tile& tile, int64_t task) {
                    sum_tile(chunk.group + task / rows.tiles, task % rows.tiles, chunk, tile,
                             by_key, by_value);
                  });
  }

  // ---------------------------------------------------------------- all of it

  void run(const View<T>& by_key, const View<T>& by_value) const {
    const int64_t groups = in.batch * in.groups, group_rows = in.heads / in.groups * in.q;
    // Gradients of a mask may be shared by heads of any groups.
    const int64_t enough = a.grad_mask ? std::numeric_limits<int64_t>::max() : kChunkEntries;
    const auto entries = [&](int64_t first, int64_t last) {
      return a.offsets[last * group_rows] - a.offsets[first * group_rows];
    };
    int64_t largest = 0, longest = 0;
    const auto for_each_chunk_of_groups = [&](const auto& body) {
      for (int64_t first = 0, last; first < groups; first = last) {
        for (last = first + 1; last < groups && entries(first, last + 1) <= enough; ++last) {
        }
        body(first, last);
      }
    };
    for_each_chunk_of_groups([&](int64_t first, int64_t last) {
      largest = larger(largest, entries(first, last));
      longest = larger(longest, last - first);
    });
    Scratch<T> by_score(largest + 1), dropped(in.dropout_p > 0 ? largest + 1 : 1);
    Scratch<int64_t> starts(rows.tiles ? longest * group_rows * (rows.tiles + 1) : 1);
    for_each_chunk_of_groups([&](int64_t first, int64_t last) {
      const int64_t entry = a.offsets[first * group_rows];
      T* used = in.dropout_p > 0 ? dropped.get() : nullptr;
      const T* weight = used ? used : static_cast<const T*>(a.weight) + entry;
      const Chunk chunk{first, last, entry, by_score.get(), weight, used, starts.get()};
      walk_chunk(chunk);
      if (rows.tiles) {
        sum_tiles(chunk, by_key, by_value);
      } else {
        sum_all(chunk, rows.query, chunk.by_score, by_key);
        sum_all(chunk, rows.grad, chunk.weight, by_value);
      }
    });
  }
  void walk_chunk(const Chunk& chunk) const {
    const int64_t task_rows = rows.is_one_chunk() ? larger<int64_t>(in.q, 1) : kWalkRows;
    const int64_t tasks = (in.q + task_rows - 1) / task_rows, size = in.heads / in.groups;
    const int64_t first_turn = a.grad_mask ? 0 : chunk.group * size;
    const int64_t last_turn = a.grad_mask ? rows.turns() : chunk.last_group * size;
    struct Work {
      explicit Work(const BackwardRows<T>& of)
          : by_weight(of.in.k + 1), sum(of.key.vectors() * Lanes<T>::count) {}
      Scratch<T> by_weight, sum;
    };
    parallel_with((last_turn - first_turn) * tasks, in.threads, [&] { return Work(rows); },
                  [&](Work& work, int64_t task) {
                    const int64_t first = task % tasks * task_rows;
                    rows.for_each_head_of(first_turn + task / tasks, [&](int64_t head) {
                      if (!a.is_dense[head])
                        walk_rows(head, first, smaller(in.q, first + task_rows), chunk,
                                  work.by_weight.get(), work.sum.get());
                    });
                  });
  }
};

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
