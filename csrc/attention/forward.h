// Entmax attention, forward: scores of a strip of queries at a time, their support, and the sum of
// the values in it. Nothing of size q * k ever exists unless keys are few.
//
// A row takes one of three ways. Short rows are solved one per lane; if all rows are short, their
// weights may be kept whole. Rows of a sparse map are filtered as their scores come, block by
// block, so that only candidates are kept; where these turn out to be many, all scores come first.
// Other rows, and those that leave hardly a key out, stay whole until they are done.
#pragma once

#include "attention/scores.h"
#include "attention/support.h"

namespace adasparse {
namespace ADASPARSE_ISA {

constexpr int64_t kKeyBlock = 256;    // keys scored at a time while filtering
constexpr int64_t kWholeKeys = 4096;  // a strip of scores of up to so many keys fits the cache
constexpr int64_t kLaneRow = 128;     // up to here rows are solved one per lane
constexpr int64_t kLaneHeads = 8;     // of single queries that are solved together
// Up to so many keys and queries of a head, all of which one thread does, weights are kept whole.
constexpr int64_t kShortKeys = 64, kShortQueries = 1024;
constexpr int64_t kFewQueries = 3;    // up to here keys are not worth packing
constexpr int64_t kFewKeys = 4;       // rows that see at most one in so many keys are few
// Share of the first block of keys that are candidates, from which on a row is broad, or has many.
constexpr double kBroadSample = 0.8, kManySample = 0.15;

// One thread's memory.
template <class T>
struct AttentionWork {
  explicit AttentionWork(const AttentionInput& in)
      : columns(round_up(in.k, kColumns)),
        scores(larger(kStripRows * larger(columns, kKeyBlock), kBlockRows * kLaneRow)),
        values(kStripRows * list_size()),
        indices(kStripRows * list_size()),
        row(list_size()),
        solver(larger(list_size(), 3 * kLaneRow * int64_t{Lanes<T>::count})),
        sum(round_up(in.e, Lanes<T>::count) * kBlockRows),
        panels(in.k <= kShortKeys ? panel_size<T>(in.k, in.d) + 1 : 1) {}
  ~AttentionWork() {
    std::free(passing.index);
    std::free(passing.weight);
  }
  AttentionWork(const AttentionWork&) = delete;
  AttentionWork& operator=(const AttentionWork&) = delete;
  int64_t list_size() const { return columns + 4 * Lanes<T>::count; }

  int64_t columns;
  Scratch<T> scores;
  Scratch<T> values;
  Scratch<int32_t> indices;
  Scratch<T> row;     // weights of one row
  Scratch<T> solver;
  Scratch<T> sum;     // output rows
  Scratch<T> panels;  // packed keys of a group of heads, if they are few
  int64_t packed = -1;  // which one
  Candidates<T> candidates[kStripRows];
  SupportBlock passing{nullptr, nullptr, 0, 0, false};  // support that is not kept
};

inline bool needs_double(const AttentionInput& in) {
  for (int64_t b = 0; b < (in.alpha_strides[0] ? in.batch : 1); ++b)
    for (int64_t h = 0; h < (in.alpha_strides[1] ? in.heads : 1); ++h)
      for (int64_t i = 0; i < (in.alpha_strides[2] ? in.q : 1); ++i)
        if (needs_double(alpha_of(in, b, h, i))) return true;
  return false;
}

// Whether keys are so few, for several queries, that weights are best kept whole.
inline bool has_short_rows(const AttentionInput& in) {
  return 1 < in.q && in.q <= kShortQueries && 0 < in.k && in.k <= kShortKeys && !needs_double(in);
}

// Keeps for the backward what weights of a row follow from.
inline void keep_state(const AttentionForward& a, int64_t row, double max, double c, double scale) {
  if (!a.state) return;
  double* state = a.state + row * kRowState;
  state[0] = max;
  state[1] = c;
  state[2] = scale;
}

// A block of rows of one head on its way through the forward.
template <class T>
struct ForwardBlock {
  const AttentionForward& a;
  const Head<T>& head;
  AttentionWork<T>& work;
  int64_t vectors;     // of a value row
  SupportBlock* kept;  // where the support is kept, or null
  int64_t limit;       // of its size
  bool is_whole;       // whether rows are multiplied as they are: nobody asks for their support

  const AttentionInput& in() const { return a.in; }
  bool is_kept() const { return kept && !kept->is_dropped; }
  SupportBlock* entries() { return is_kept() ? kept : &work.passing; }

  void save_state(int64_t i, double max, double c, double scale) const {
    keep_state(a, head.number * a.in.q + i, max, c, scale);
  }
  void save_count(int64_t i, int64_t count) const {
    if (a.counts) a.counts[head.number * a.in.q + i] = count;
  }
  T* out_of(int64_t i) const {
    const View<T> out = view_of<T>(a.out);
    return out.at(head.b, head.h) + i * out.row;
  }
  // Output rows are written in place where they are whole vectors.
  void write_out(int64_t i, int64_t rows) const {
    const int64_t size = vectors * Lanes<T>::count;
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(out_of(i + r), work.sum.get() + r * size,
                  sizeof(T) * static_cast<size_t>(a.in.e));
  }

  // The output of row i from its entries, which start at `begin`.
  void finish_row(int64_t i, int64_t begin) {
    Entries<T> list(entries());
    const int64_t count = list.size() - begin;
    save_count(i, count);
    if (a.out.data) {
      const T* weight = list.weight() + begin;
      const int32_t* index = list.index() + begin;
      if (a.in.dropout_p > 0 && count > 0) {
        T* dropped = work.row.get();
        std::memcpy(dropped, weight, sizeof(T) * static_cast<size_t>(count));
        drop(Dropout(a.in.seed, a.in.dropout_p, head.number * a.in.q + i), index, count, grown(),
             dropped);
        weight = dropped;
      }
      const bool in_place = a.in.e == vectors * Lanes<T>::count;
      gather_rows(head.value, head.value_row, index, weight, count, vectors,
                  in_place ? out_of(i) : work.sum.get());
      if (!in_place) write_out(i, 1);
    }
    if (!is_kept())
      list.resize(0);
    else if (kept->size > limit)
      drop_kept();
  }
  void drop_kept() const {
    if (!kept) return;
    kept->is_dropped = true;
    kept->size = 0;
  }
  T grown() const { return a.in.dropout_p < 1 ? static_cast<T>(1 / (1 - a.in.dropout_p)) : T(0); }

  // Weights of `rows` queries side by side, `n` columns of them used: walked if sparse, else
  // multiplied with the values.
  void finish_strip(int64_t i, int64_t rows, int64_t n, T* weights, int64_t stride) {
    int64_t total = 0;
    for (int64_t r = 0; r < rows; ++r) total += count_positive(weights + r * stride, n);
    const bool is_nan = total == 0;  // or masked: rows of NaN are rare enough to walk
    if (is_nan || !a.out.data || total <= a.dense_share * static_cast<double>(rows * n)) {
      for (int64_t r = 0; r < rows; ++r) {
        Entries<T> list(entries());
        const int64_t begin = list.size();
        const T* row = weights + r * stride;
        const int64_t visible = visible_keys(a.in, head.length, i + r);
        if (std::isnan(row[0]))
          append_nan(visible, list);
        else
          append_support(row, nullptr, visible, list);
        finish_row(i + r, begin);
      }
      return;
    }
    if (is_kept() && n <= a.in.k / kFewKeys) {
      // The first rows of a causal map see little; that says nothing of the others.
      for (int64_t r = 0; r < rows; ++r) {
        Entries<T> list(kept);
        const int64_t begin = list.size();
        append_support(weights + r * stride, nullptr, visible_keys(a.in, head.length, i + r), list);
        save_count(i + r, list.size() - begin);
      }
      if (kept->size > limit) drop_kept();
    } else {
      drop_kept();
      for (int64_t r = 0; r < rows; ++r) save_count(i + r, n);
    }
    multiply_values(i, rows, n, weights, stride);
  }

  // The output of `rows` queries from n weights of each, which are dropped here. What a value of
  // weight zero holds never matters.
  void multiply_values(int64_t i, int64_t rows, int64_t n, T* weights, int64_t stride) {
    if (a.in.dropout_p > 0)
      for (int64_t r = 0; r < rows; ++r)
        drop(Dropout(a.in.seed, a.in.dropout_p, head.number * a.in.q + i + r), n, grown(),
             weights + r * stride);
    const int64_t size = vectors * Lanes<T>::count;
    const bool in_place = a.in.e == size;
    T* sum = in_place ? out_of(i) : work.sum.get();
    const int64_t step = in_place ? view_of<T>(a.out).row : size;
    const auto multiply_by = [&](const auto& add) {
      for (int64_t r = 0; r < rows; ++r) fill(sum + r * step, size, T(0));
      for (int64_t j = 0; j < n; j += kKeyBlock)
        add(weights + j, stride, 1, head.value + j * head.value_row, head.value_row, sum, step,
            rows, size, smaller(kKeyBlock, n - j));
    };
    multiply_by(add_product<T>);
    if (!are_finite(sum, step, rows, size)) multiply_by(add_product_of_support<T>);
    if (!in_place) write_out(i, rows);
  }

  // Weights of `rows` queries side by side, `n` columns of them used: kept whole if they are to be,
  // and multiplied with the values.
  void finish_whole(int64_t i, int64_t rows, int64_t n, T* weights, int64_t stride) {
    T* whole = static_cast<T*>(a.weights);
    for (int64_t r = 0; r < rows; ++r) {
      T* row = weights + r * stride;
      if (n && std::isnan(row[0])) {
        const int64_t visible = visible_keys(a.in, head.length, i + r);
        fill(row + visible, n - visible, T(0));
      }
      if (whole) {
        T* to = whole + (head.number * a.in.q + i + r) * a.in.k;
        std::memcpy(to, row, sizeof(T) * static_cast<size_t>(n));
        fill(to + n, a.in.k - n, T(0));
      }
    }
    multiply_values(i, rows, n, weights, stride);
  }

  template <class Map>
  void run_short(const Map& map, int64_t i, int64_t rows, int64_t n) {
    constexpr int width = Lanes<T>::count;
    T* scores = work.scores.get();
    constexpr int64_t stride = kLaneRow;
    score_strip(a.in, head, i, rows, 0, round_up(n, kColumns), scores, stride);
    for (int64_t r = 0; r < rows; r += width) {
      const int used = static_cast<int>(smaller<int64_t>(width, rows - r));
      T* strip = scores + r * stride;
      const LaneNormalizers<T> solved =
          forward_short(map, strip, stride, n, used, work.solver.get(), strip);
      for (int l = 0; l < used; ++l)
        save_state(i + r + l, static_cast<double>(solved.max[l]), static_cast<double>(solved.c[l]),
                   static_cast<double>(solved.scale[l]));
    }
    if (is_whole)
      finish_whole(i, rows, n, scores, stride);
    else
      finish_strip(i, rows, n, scores, stride);
  }

  template <class Map>
  void run_whole(const Map& map, int64_t i, int64_t rows, int64_t first, int64_t n) {
    T* scores = work.scores.get();
    const int64_t stride = work.columns;
    score_rest(i, rows, first, n);
    for (int64_t r = 0; r < rows; ++r) {
      T* row = scores + r * stride;
      bool filled;
      const Normalizer solved = solve_row(map, row, n, work.solver.get(), work.row.get(), &filled);
      write_weights(map, row, n, solved, filled, work.row.get());
      std::memcpy(row, work.row.get(), sizeof(T) * static_cast<size_t>(n));
      save_state(i + r, solved.max, solved.c, solved.scale);
    }
    finish_strip(i, rows, n, scores, stride);
  }

  // Scores of all keys from `first` on, row after row.
  void score_rest(int64_t i, int64_t rows, int64_t first, int64_t n) {
    for (int64_t j = first; j < n; j += kKeyBlock)
      score_strip(a.in, head, i, rows, j, smaller(kKeyBlock, round_up(n - j, kColumns)),
                  work.scores.get() + j, work.columns);
  }

  // Collects the candidates of every row, those of the first block of keys from its scores. A row
  // of many is looked at as a whole, which bounds its normalizer better than block by block.
  template <class Map>
  void take_candidates(const Map& map, int64_t i, int64_t rows, int64_t n, bool are_many) {
    T* scores = work.scores.get();
    Candidates<T>* candidates = work.candidates;
    if (are_many) {
      score_rest(i, rows, kKeyBlock, n);
      for (int64_t r = 0; r < rows; ++r)
        candidates[r].take(scores + r * work.columns, round_up(n, kColumns), 0, map.eps());
      return;
    }
    for (int64_t r = 0; r < rows; ++r)
      candidates[r].take(scores + r * work.columns, smaller(kKeyBlock, round_up(n, kColumns)), 0,
                         map.eps());
    for (int64_t j = kKeyBlock; j < n; j += kKeyBlock) {
      const int64_t size = smaller(kKeyBlock, round_up(n - j, kColumns));
      score_strip(a.in, head, i, rows, j, size, scores, kKeyBlock);
      for (int64_t r = 0; r < rows; ++r)
        if (visible_keys(a.in, head.length, i + r) > j)
          candidates[r].take(scores + r * kKeyBlock, size, j, map.eps());
    }
  }

  // Returns false if the first rows turn out to be broad; scores of the first block of keys are
  // then done.
  template <class Map>
  bool run_filtered(const Map& map, int64_t i, int64_t rows, int64_t n) {
    T* scores = work.scores.get();
    Candidates<T>* candidates = work.candidates;
    const int64_t block = smaller(kKeyBlock, round_up(n, kColumns));
    score_strip(a.in, head, i, rows, 0, block, scores, work.columns);
    if (a.is_scores_only) {
      for (int64_t j = kKeyBlock; j < n; j += kKeyBlock)
        score_strip(a.in, head, i, rows, j, smaller(kKeyBlock, round_up(n - j, kColumns)), scores,
                    kKeyBlock);
      return true;
    }
    const auto start = [&](int64_t r) {
      candidates[r].start(work.values.get() + r * work.list_size(),
                          work.indices.get() + r * work.list_size());
    };
    bool are_many = false;
    if (n > kKeyBlock) {
      Candidates<T>& sample = candidates[rows / 2];
      start(rows / 2);
      sample.take(scores + rows / 2 * work.columns, block, 0, map.eps());
      const double share = static_cast<double>(sample.count) / kKeyBlock;
      if (share > kBroadSample) return false;
      are_many = share > kManySample && n <= kWholeKeys;
    }
    for (int64_t r = 0; r < rows; ++r) start(r);
    take_candidates(map, i, rows, n, are_many);
    T* weights = work.row.get();
    for (int64_t r = 0; r < rows; ++r) {
      const Candidates<T>& found = candidates[r];
      Entries<T> list(entries());
      const int64_t begin = list.size();
      if (found.is_bad) {
        save_state(i + r, std::numeric_limits<double>::quiet_NaN(), 0, 1);
        append_nan(visible_keys(a.in, head.length, i + r), list);
      } else if (found.count == 0) {
        save_state(i + r, -std::numeric_limits<double>::infinity(), 0, 1);
      } else {
        bool filled;
        const Normalizer solved = solve_row(map, found.value, found.count, work.solver.get(),
                                            weights, &filled, found.bound);
        write_weights(map, found.value, found.count, solved, filled, weights);
        save_state(i + r, solved.max, solved.c, solved.scale);
        append_support(weights, found.index, found.count, list);
      }
      finish_row(i + r, begin);
    }
    return true;
  }

  // Whether rows up to i can be solved one per lane. A single one would leave the others idle.
  bool is_short(int64_t i, double alpha) const {
    return a.in.q > 1 && visible_keys(a.in, head.length, i) <= kLaneRow &&
           !needs_double(alpha) && !a.is_scores_only;
  }

  void run_strip(int64_t i, int64_t rows, double alpha) {
    const int64_t n = visible_keys(a.in, head.length, i + rows - 1);
    if (n == 0 && is_whole) return finish_whole(i, rows, 0, work.scores.get(), kLaneRow);
    if (n == 0) {
      for (int64_t r = 0; r < rows; ++r) {
        save_state(i + r, -std::numeric_limits<double>::infinity(), 0, 1);
        finish_row(i + r, entries()->size);
      }
      return;
    }
    with_map<T>(alpha, [&](const auto& map) {
      using Map = std::decay_t<decltype(map)>;
      if (is_short(i + rows - 1, alpha))
        run_short(map, i, rows, n);
      else if (n <= kLaneRow && !a.is_scores_only)
        run_whole(map, i, rows, 0, n);
      else if (!Map::kIsSparse || !run_filtered(map, i, rows, n))
        run_whole(map, i, rows, Map::kIsSparse ? kKeyBlock : 0, n);
    });
  }
};

template <class T>
Head<T> head_at(const AttentionInput& in, int64_t number, const T* panels,
                const WholeRows<T>& value) {
  const View<const T> query = view_of<T>(in.query), key = view_of<T>(in.key);
  const int64_t b = number / in.heads, h = number % in.heads, g = h / (in.heads / in.groups);
  const int64_t at = b * in.mask_strides[0] + h * in.mask_strides[1];
  return {b,
          h,
          number,
          query.at(b, h),
          query.row,
          key.at(b, g),
          key.row,
          panels ? panels + (b * in.groups + g) * panel_size<T>(in.k, in.d) : nullptr,
          value.at(b, g),
          value.row(),
          static_cast<const char*>(in.mask) + at * static_cast<int64_t>(mask_size<T>(in)),
          in.slopes ? in.slopes[h] : 0,
          length_of(in, b)};
}

// Whether there is one query in each sequence, to be solved next to those of other sequences.
inline bool are_single(const AttentionForward& a) {
  const AttentionInput& in = a.in;
  return in.q == 1 && in.k <= kLaneRow && !a.is_scores_only && !needs_double(in);
}

// Heads [h_begin, h_end) of sequences [b_begin, b_end), a lane for each sequence, as when text is
// generated. Keys and values are read in the order of memory; `scores` holds kLaneRow of each row.
template <class T>
void forward_lanes(const AttentionForward& a, const WholeRows<T>& value, AttentionWork<T>& work,
                   T* scores, int64_t h_begin, int64_t h_end, int64_t b_begin, int64_t b_end) {
  const AttentionInput& in = a.in;
  const auto row_of = [&](int64_t b, int64_t h) {
    return scores + ((h - h_begin) * Lanes<T>::count + b - b_begin) * kLaneRow;
  };
  const auto for_each = [&](const auto& body) {
    for (int64_t b = b_begin; b < b_end; ++b)
      for (int64_t h = h_begin; h < h_end; ++h) {
        const Head<T> head = head_at<T>(in, b * in.heads + h, nullptr, value);
        SupportBlock* kept = a.blocks ? a.blocks + head.number : nullptr;
        body(ForwardBlock<T>{a, head, work, value.vectors(), kept, a.row_limit, false},
             row_of(b, h));
      }
  };
  for_each([&](ForwardBlock<T> block, T* row) {
    score_strip(in, block.head, 0, 1, 0, work.columns, row, kLaneRow);
  });
  for (int64_t h = h_begin; h < h_end; ++h)
    for (int64_t b = b_begin, end; b < b_end; b = end) {
      const double alpha = alpha_of(in, b, h, 0);
      for (end = b + 1; end < b_end && alpha_of(in, end, h, 0) == alpha; ++end) {}
      with_map<T>(alpha, [&](const auto& map) {
        T* rows = row_of(b, h);
        const int used = static_cast<int>(end - b);
        const LaneNormalizers<T> solved =
            forward_short(map, rows, kLaneRow, in.k, used, work.solver.get(), rows);
        for (int r = 0; r < used; ++r)
          keep_state(a, (b + r) * in.heads + h, static_cast<double>(solved.max[r]),
                     static_cast<double>(solved.c[r]), static_cast<double>(solved.scale[r]));
      });
    }
  for_each([&](ForwardBlock<T> block, T* row) {
    block.finish_strip(0, 1, visible_keys(in, block.head.length, 0), row, kLaneRow);
  });
}

template <class T>
void forward_singles(const AttentionForward& a) {
  constexpr int64_t width = Lanes<T>::count;
  struct Work {
    Work(const AttentionInput& in, int64_t rows) : work(in), scores(rows * kLaneRow) {}
    AttentionWork<T> work;
    Scratch<T> scores;
  };
  const AttentionInput& in = a.in;
  const WholeRows<T> value(in, in.value, in.groups, in.k, in.e);
  const int64_t blocks = (in.batch + width - 1) / width;
  // Heads of a sequence, which are close in memory, go together if all threads still get some.
  const int64_t together = blocks < 2 * in.threads ? 1 : smaller(in.heads, kLaneHeads);
  const int64_t groups = (in.heads + together - 1) / together;
  parallel_with(
      blocks * groups, in.threads, [&] { return Work(in, together * width); },
      [&](Work& work, int64_t task) {
        const int64_t b = task / groups * width, h = task % groups * together;
        forward_lanes(a, value, work.work, work.scores.get(), h, smaller(in.heads, h + together), b,
                      smaller(in.batch, b + width));
      });
}

template <class T>
void attention_forward_in(const AttentionForward& a) {
  const AttentionInput& in = a.in;
  if (are_single(a)) return forward_singles<T>(a);
  const int64_t heads = in.batch * in.heads;
  const bool is_whole = a.out.data && !a.blocks && has_short_rows(in);
  const bool is_packed = in.q * (in.heads / in.groups) > kFewQueries;
  const bool pack_now = is_packed && !is_whole;
  Scratch<T> panels(pack_now ? in.batch * in.groups * panel_size<T>(in.k, in.d) : 1);
  if (pack_now)
    pack_all<T>(in, view_of<T>(in.key), in.d, panels.get(), [](int64_t, int64_t) { return true; });
  const WholeRows<T> value(in, in.value, in.groups, in.k, in.e);
  const int64_t blocks = (in.q + kBlockRows - 1) / kBlockRows;
  const int64_t together = is_whole ? heads_together(in, in.heads) * blocks : 1;
  const auto run_block = [&](AttentionWork<T>& work, int64_t number) {
    Head<T> head = head_at(in, number / blocks, pack_now ? panels.get() : nullptr, value);
    if (is_packed && is_whole) {
      const int64_t group = head.number / (in.heads / in.groups);
      if (work.packed != group)
        pack_panels(head.key, head.key_row, in.k, in.d, work.panels.get());
      work.packed = group;
      head.panels = work.panels.get();
    }
    const int64_t first = number % blocks * kBlockRows;
    const int64_t last = smaller(in.q, first + kBlockRows);
    ForwardBlock<T> block{a,
                          head,
                          work,
                          value.vectors(),
                          a.blocks ? a.blocks + number : nullptr,
                          a.row_limit * (last - first),
                          is_whole};
    int64_t i = first;
    while (i < last) {
      const double alpha = alpha_of(in, head.b, head.h, i);
      const int64_t strip = block.is_short(last - 1, alpha) ? kBlockRows : kStripRows;
      int64_t end = i + 1;
      while (end < smaller(last, i + strip) && alpha_of(in, head.b, head.h, end) == alpha) ++end;
      block.run_strip(i, end - i, alpha);
      i = end;
    }
  };
  parallel_with(
      heads * blocks / together, in.threads, [&] { return AttentionWork<T>(in); },
      [&](AttentionWork<T>& work, int64_t task) {
        for (int64_t i = task * together; i < (task + 1) * together; ++i) run_block(work, i);
      });
}

inline void attention_forward(const AttentionForward& a) {
  a.in.is_double ? attention_forward_in<double>(a) : attention_forward_in<float>(a);
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
