// A block of rows of one head, forward: scores of a strip of queries at a time, their support, and
// the sum of the values in it.
//
// A strip takes one of three routes. Few keys: rows are solved one per lane. A sparse map:
// candidates are selected as scores are computed, chunk by chunk, so that only these are stored;
// where they are few, they are found in int8 and no other scores are computed (screen.h); where
// they are many, all scores come first. Other maps, and rows that leave hardly a
// key out: scores stay whole until the row is solved.
#pragma once

#include "attention/dropout.h"
#include "attention/scores.h"
#include "attention/screen.h"
#include "attention/support.h"
#include "entmax/solve_lanes.h"
#include "entmax/solve_row.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// One thread's memory.
template <class T>
struct AttentionWork {
  explicit AttentionWork(const AttentionInput& in)
      : columns(most_columns(in, kStripRows) + (in.sinks ? kColumns : 0)),
        stride(columns + kRowPadding),
        scores(larger(strip_rows(in) * larger(stride, kChunkKeys + kRowPadding),
                      kBlockRows * kLaneKeys)),
        values(strip_rows(in) * list_size()),
        indices(strip_rows(in) * list_size()),
        row(list_size()),
        solver(larger(list_size(), 3 * kLaneKeys * int64_t{Lanes<T>::count})),
        sum(round_up(in.e, Lanes<T>::count) * kBlockRows),
        panels(in.k <= kWholeKeys ? panel_size<T>(in.k, in.d) + 1 : 1),
        screen(in.d) {}
  ~AttentionWork() {
    std::free(passing.index);
    std::free(passing.weight);
  }
  AttentionWork(const AttentionWork&) = delete;
  AttentionWork& operator=(const AttentionWork&) = delete;
  static int64_t strip_rows(const AttentionInput& in) { return smaller(kStripRows, in.q); }
  int64_t list_size() const { return columns + 4 * Lanes<T>::count; }

  int64_t columns, stride;  // of a strip, and from row to row of its scores
  Scratch<T> scores;
  Scratch<T> values;
  Scratch<int32_t> indices;
  Scratch<T> row;  // weights of one row
  Scratch<T> solver;
  Scratch<T> sum;       // output rows
  Scratch<T> panels;    // packed keys of a group of heads, if they are few
  int64_t packed = -1;  // the number of that group
  Candidates<T> candidates[kStripRows];
  ScreenedStrip screen;
  int64_t screened = -1;                                // the head whose last strip was screened
  SupportBlock passing{nullptr, nullptr, 0, 0, false};  // support that is not saved
};

inline bool needs_double(const AttentionInput& in) {
  for (int64_t b = 0; b < (in.alpha_strides[0] ? in.batch : 1); ++b)
    for (int64_t h = 0; h < (in.alpha_strides[1] ? in.heads : 1); ++h)
      for (int64_t i = 0; i < (in.alpha_strides[2] ? in.q : 1); ++i)
        if (needs_double(alpha_of(in, b, h, i))) return true;
  return false;
}

// Whether keys are so few, for several queries, that weights are saved whole.
inline bool saves_weights(const AttentionInput& in) {
  return 1 < in.q && in.q <= kWholeQueries && 0 < in.k && in.k <= kWholeKeys && !needs_double(in);
}

// Saves for backward the numbers that weights of a row follow from.
inline void save_state_of(const AttentionForward& a, int64_t number, const Normalizer& row) {
  if (!a.state) return;
  double* state = a.state + number * kRowState;
  state[0] = row.max;
  state[1] = row.c;
  state[2] = row.scale;
}

// Scores of all queries of a head that are known already, see decode.h; keys from `first` on.
template <class T>
struct KnownScores {
  const T* data = nullptr;
  int64_t first = 0, stride = 0;
};

// A block of rows of one head. Columns of a strip are counted from its first, see columns_of.
template <class T>
struct ForwardBlock {
  const AttentionForward& a;
  const Head<T>& head;
  AttentionWork<T>& work;
  int64_t vectors;      // of a value row
  SupportBlock* saved;  // where the support is saved, or null
  int64_t limit;        // of its size
  bool is_whole;        // whether rows are multiplied as they are: no support is saved
  KnownScores<T> known = {};

  // Scores of queries [i, i + rows) for keys [first, first + n), see score_strip.
  void score(int64_t i, int64_t rows, int64_t first, int64_t n, T* scores, int64_t stride) const {
    if (!known.data) return score_strip(a.in, head, i, rows, first, n, scores, stride);
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(scores + r * stride, known.data + (i + r) * known.stride + first - known.first,
                  sizeof(T) * static_cast<size_t>(n));
  }

  bool is_saved() const { return saved && !saved->is_dropped; }
  SupportBlock* entries() { return is_saved() ? saved : &work.passing; }

  void save_state(int64_t i, const Normalizer& row) const {
    save_state_of(a, head.number * a.in.q + i, row);
  }
  void save_count(int64_t i, int64_t count) const {
    if (a.counts) a.counts[head.number * a.in.q + i] = count;
  }
  // A sink is one more score of each row.
  int64_t sinks() const { return a.in.sinks ? 1 : 0; }
  T sink() const { return static_cast<T>(a.in.sinks[head.h]); }
  void save_sink(int64_t i, T weight) const {
    if (a.sink_weights) static_cast<T*>(a.sink_weights)[head.number * a.in.q + i] = weight;
  }
  void save_rescored(int64_t i, int64_t count) const {
    if (a.rescored) a.rescored[head.number * a.in.q + i] = count;
  }
  T* out_of(int64_t i) const {
    const View<T> out = view_of<T>(a.out);
    return out.at(head.b, head.h) + i * out.row;
  }
  // Whether output rows are computed where they belong: they are whole vectors of T.
  bool is_in_place() const { return a.in.e == vectors * Lanes<T>::count && is_of<T>(a.in.type); }
  void write_out(int64_t i, int64_t rows) const {
    write_rows(a.in, work.sum.get(), vectors * Lanes<T>::count, rows, a.in.e, a.out, head.b, head.h,
               i);
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
        drop(Dropout(a.in.seed, a.in.dropout_p, head.number * a.in.q + i), index, count,
             grown<T>(a.in), dropped);
        weight = dropped;
      }
      const bool in_place = is_in_place();
      gather_rows(head.value, index, weight, count, vectors, in_place ? out_of(i) : work.sum.get());
      if (!in_place) write_out(i, 1);
    }
    if (!is_saved())
      list.resize(0);
    else if (saved->size > limit)
      drop_saved();
  }
  void drop_saved() const {
    if (!saved) return;
    saved->is_dropped = true;
    saved->size = 0;
  }

  // Weights of `rows` queries side by side: walked if sparse, else multiplied with the values.
  void finish_strip(int64_t i, int64_t rows, const Columns& columns, T* weights, int64_t stride) {
    const int64_t n = columns.count;
    int64_t total = 0;
    for (int64_t r = 0; r < rows; ++r) total += count_positive(weights + r * stride, n);
    const bool is_nan = total == 0;  // or masked: rows of NaN are rare enough to walk
    if (is_nan || !a.out.data || total <= a.dense_share * static_cast<double>(rows * n)) {
      for (int64_t r = 0; r < rows; ++r) {
        Entries<T> list(entries());
        const int64_t begin = list.size();
        const T* row = weights + r * stride;
        const KeyRange visible = visible_keys(a.in, head.length, i + r);
        if (std::isnan(row[0]))
          append_nan(visible.first, visible.size(), list);
        else
          append_support(row, nullptr, columns.first, visible.last - columns.first, list);
        finish_row(i + r, begin);
      }
      return;
    }
    if (is_saved() && n <= most_visible_keys(a.in) / kFewKeys) {
      // The first rows of a causal map see little; that says nothing of the others.
      for (int64_t r = 0; r < rows; ++r) {
        Entries<T> list(saved);
        const int64_t begin = list.size();
        append_support(weights + r * stride, nullptr, columns.first,
                       visible_keys(a.in, head.length, i + r).last - columns.first, list);
        save_count(i + r, list.size() - begin);
      }
      if (saved->size > limit) drop_saved();
    } else {
      drop_saved();
      for (int64_t r = 0; r < rows; ++r) save_count(i + r, n);
    }
    multiply_values(i, rows, columns, weights, stride);
  }

  // The output of `rows` queries from their weights, which dropout changes here. Values of weight
  // zero never matter, not even NaN.
  void multiply_values(int64_t i, int64_t rows, const Columns& columns, T* weights,
                       int64_t stride) {
    const int64_t n = columns.count;
    if (a.in.dropout_p > 0)
      for (int64_t r = 0; r < rows; ++r)
        drop_range(Dropout(a.in.seed, a.in.dropout_p, head.number * a.in.q + i + r), columns.first,
                   n, grown<T>(a.in), weights + r * stride);
    const int64_t size = vectors * Lanes<T>::count;
    const bool in_place = is_in_place();
    T* sum = in_place ? out_of(i) : work.sum.get();
    const int64_t step = in_place ? view_of<T>(a.out).row : size;
    const auto multiply_by = [&](void (&add)(const T*, int64_t, One, const Rows<T>&, T*, int64_t,
                                             int64_t, int64_t, int64_t)) {
      for (int64_t r = 0; r < rows; ++r) fill(sum + r * step, size, T(0));
      for (int64_t j = 0; j < n; j += kChunkKeys)
        add(weights + j, stride, One{}, head.value.from(columns.first + j), sum, step, rows, size,
            smaller(kChunkKeys, n - j));
    };
    multiply_by(add_product<T, int64_t, One>);
    if (!are_finite(sum, step, rows, size)) multiply_by(add_product_of_support<T>);
    if (!in_place) write_out(i, rows);
  }

  // Weights of `rows` queries side by side: saved whole where asked for, and multiplied with the
  // values.
  void finish_whole(int64_t i, int64_t rows, const Columns& columns, T* weights, int64_t stride) {
    const int64_t n = columns.count;
    T* whole = static_cast<T*>(a.weights);
    for (int64_t r = 0; r < rows; ++r) {
      T* row = weights + r * stride;
      if (n && std::isnan(row[0])) {
        const KeyRange visible = visible_keys(a.in, head.length, i + r);
        fill(row, visible.first - columns.first, T(0));
        fill(row + (visible.last - columns.first), columns.last() - visible.last, T(0));
      }
      if (whole) {
        T* to = whole + (head.number * a.in.q + i + r) * a.in.k;
        fill(to, columns.first, T(0));
        std::memcpy(to + columns.first, row, sizeof(T) * static_cast<size_t>(n));
        fill(to + columns.last(), a.in.k - columns.last(), T(0));
      }
    }
    multiply_values(i, rows, columns, weights, stride);
  }

  // One row per lane.
  template <class Map>
  void run_lanes(const Map& map, int64_t i, int64_t rows, const Columns& columns) {
    constexpr int width = Lanes<T>::count;
    const int64_t n = columns.count;
    T* scores = work.scores.get();
    constexpr int64_t stride = kLaneKeys;
    score(i, rows, columns.first, round_up(n, kColumns), scores, stride);
    for (int64_t r = 0; r < rows && a.in.sinks; ++r) scores[r * stride + n] = sink();
    for (int64_t r = 0; r < rows; r += width) {
      const int used = static_cast<int>(smaller<int64_t>(width, rows - r));
      const auto row = [&](int64_t l) { return scores + (r + l) * stride; };
      const LaneNormalizers<T> solved =
          forward_in_lanes(map, row, n + sinks(), used, work.solver.get(), row);
      for (int l = 0; l < used; ++l) save_state(i + r + l, solved.row(l));
    }
    for (int64_t r = 0; r < rows && a.in.sinks; ++r) save_sink(i + r, scores[r * stride + n]);
    if (is_whole)
      finish_whole(i, rows, columns, scores, stride);
    else
      finish_strip(i, rows, columns, scores, stride);
  }

  // One row at a time, without selecting candidates; the first `done` columns are scored already.
  template <class Map>
  void run_whole(const Map& map, int64_t i, int64_t rows, const Columns& columns, int64_t done) {
    T* scores = work.scores.get();
    const int64_t stride = work.stride, n = columns.count, all = n + sinks();
    score_rest(i, rows, columns, done);
    for (int64_t r = 0; r < rows; ++r) {
      T* row = scores + r * stride;
      if (a.in.sinks) row[n] = sink();
      const SolvedRow solved = solve_row(map, row, all, work.solver.get(), work.row.get());
      write_weights(map, row, all, solved, work.row.get(), row);
      save_state(i + r, solved.normalizer);
      if (a.in.sinks) save_sink(i + r, row[n]);
    }
    finish_strip(i, rows, columns, scores, stride);
  }

  // Scores of all columns from `done` on, row after row.
  void score_rest(int64_t i, int64_t rows, const Columns& columns, int64_t done) {
    for (int64_t j = done; j < columns.count; j += kChunkKeys)
      score(i, rows, columns.first + j, chunk_size(columns, j), work.scores.get() + j, work.stride);
  }
  // Columns of the chunk of keys from column j on.
  static int64_t chunk_size(const Columns& columns, int64_t j) {
    return smaller(kChunkKeys, round_up(columns.count - j, kColumns));
  }

  // Selects the candidates of every row; the first chunk of keys is scored already. A row of many
  // is read as a whole, which bounds its normalizer better than chunk by chunk.
  template <class Map>
  void take_candidates(const Map& map, int64_t i, int64_t rows, const Columns& columns,
                       bool are_many) {
    const int64_t n = columns.count;
    T* scores = work.scores.get();
    Candidates<T>* candidates = work.candidates;
    if (are_many) {
      score_rest(i, rows, columns, kChunkKeys);
      for (int64_t r = 0; r < rows; ++r)
        candidates[r].take(scores + r * work.stride, round_up(n, kColumns), columns.first,
                           map.eps());
      return;
    }
    for (int64_t r = 0; r < rows; ++r)
      candidates[r].take(scores + r * work.stride, chunk_size(columns, 0), columns.first,
                         map.eps());
    for (int64_t j = kChunkKeys; j < n; j += kChunkKeys) {
      const int64_t first = columns.first + j, size = chunk_size(columns, j);
      score(i, rows, first, size, scores, kChunkKeys);
      for (int64_t r = 0; r < rows; ++r) {
        const KeyRange visible = visible_keys(a.in, head.length, i + r);
        if (visible.last > first && visible.first < first + size)
          candidates[r].take(scores + r * kChunkKeys, size, first, map.eps());
      }
    }
  }

  // Finds the candidates of a strip by the codes of its keys, and computes their scores, if that
  // pays: if few enough of the sample of run_candidates, if there is one, would be left by their
  // codes, and then of all keys. Returns false otherwise, with nothing done.
  bool screen_candidates(double eps, int64_t i, int64_t rows, const Columns& columns,
                         const Candidates<T>* sample) {
    if (!head.coded.codes || !(eps > 0 && eps <= 1)) return false;
    const bool is_tested = sample && screening() != Screening::kForced;
    const auto limit = static_cast<int64_t>(screened_sample(columns.count) * kChunkKeys);
    if (is_tested && sample->count > limit) return false;
    WideRows<T> wide(a.in.type, rows, a.in.d);
    const T* queries = wide.read(head.query.from(i), rows, a.in.d);
    work.screen.start(queries, wide.stride, rows, a.in.d, static_cast<float>(a.in.scale),
                      head.coded.query_channel);
    const T* scores = work.scores.get() + rows / 2 * work.stride;
    if (is_tested && work.screen.count_unclear(head.coded, rows / 2, scores, kChunkKeys,
                                               columns.first, sample->cut) > limit)
      return false;
    if (!take_codes(eps, i, rows, columns, sample != nullptr)) return false;
    for (int64_t r = 0; r < rows; ++r) {
      Candidates<T>& mine = work.candidates[r];
      const KeyRange visible = visible_keys(a.in, head.length, i + r);
      with_elements(head.key, [&](const auto* keys) {
        score_some(queries + r * wide.stride, keys, head.key.stride, mine.index, mine.count, a.in.d,
                   static_cast<T>(a.in.scale), mine.value);
      });
      finish_some(a.in, head, i + r, visible, mine.index, mine.count, mine.value);
    }
    return true;
  }
  // The keys of every row whose codes leave them candidates. Returns false if they are many; or
  // may be as many in the sample of run_candidates as in broad rows, if that was not taken.
  bool take_codes(double eps, int64_t i, int64_t rows, const Columns& columns, bool is_sampled) {
    const bool is_forced = screening() == Screening::kForced;
    const int64_t n = columns.count;
    Candidates<T>* candidates = work.candidates;
    for (int64_t r = 0; r < rows; ++r) {
      start_candidates(r);
      candidates[r].cut = std::numeric_limits<T>::lowest();  // -inf is masked
    }
    int64_t left = 0;
    for (int64_t j = 0; j < n; j += kScannedKeys) {
      scan_codes(i, rows, columns, j);
      if (j == 0 && !is_sampled &&
          !work.screen.has_few(head.coded, rows / 2,
                               work.scores.get() + rows / 2 * screened_stride(), kChunkKeys,
                               columns.first, eps, static_cast<int64_t>(kBroadSample * kChunkKeys)))
        return false;
      work.screen.raise(rows, eps, work.solver.get(), candidates);
      left = 0;
      for (int64_t r = 0; r < rows; ++r) {
        take_codes_of_row(i, r, columns, j);
        left += candidates[r].count;
      }
      const auto scanned = static_cast<double>(rows * smaller(n, j + kScannedKeys));
      if (!is_forced && static_cast<double>(left) > kScreenedShare * scanned) return false;
    }
    for (int64_t r = 0; r < rows && n > kScannedKeys; ++r) candidates[r].keep_above_cut();
    return true;
  }
  // Lower bounds of the scores of up to kScannedKeys keys from column j on.
  void scan_codes(int64_t i, int64_t rows, const Columns& columns, int64_t j) {
    const bool is_biased = head.slope != 0 || a.in.mask_kind != MaskKind::kNone;
    const KeyRange common{visible_keys(a.in, head.length, i + rows - 1).first,
                          visible_keys(a.in, head.length, i).last};
    const int64_t last = visible_keys(a.in, head.length, i + rows - 1).last;
    for (int64_t x = j; x < smaller(columns.count, j + kScannedKeys); x += kChunkKeys) {
      const int64_t first = columns.first + x, size = chunk_size(columns, x);
      const bool are_final = !is_biased && common.first <= first && first + size <= common.last;
      T* low = work.scores.get() + (x - j);
      work.screen.score(head.coded, first / kCodeKeys,
                        code_panels(smaller(last, first + size)) - first / kCodeKeys, rows, low,
                        screened_stride(), are_final);
      if (are_final) continue;
      for (int64_t r = 0; r < rows; ++r) {
        T* row = low + r * screened_stride();
        const KeyRange visible = visible_keys(a.in, head.length, i + r);
        finish_scores(a.in, head, i + r, first, visible, size, row);
        work.screen.add_maxima(r, row, size);
      }
    }
  }
  // Takes the candidates of row r among these keys.
  void take_codes_of_row(int64_t i, int64_t r, const Columns& columns, int64_t j) {
    const KeyRange visible = visible_keys(a.in, head.length, i + r);
    const int64_t first = columns.first + j;
    const int64_t size = smaller(kScannedKeys, round_up(columns.count - j, kColumns));
    if (visible.last <= first || visible.first >= first + size) return;
    const int64_t seen = smaller(size, visible.last - first);
    const T* low = work.scores.get() + r * screened_stride();
    Candidates<T>& mine = work.candidates[r];
    if (columns.count > kScannedKeys)
      work.screen.template take<true>(head.coded, r, low, seen, first, mine);
    else
      work.screen.template take<false>(head.coded, r, low, seen, first, mine);
  }
  // Rows do not begin on the same lines of the cache.
  int64_t screened_stride() const { return smaller(work.columns, kScannedKeys) + kRowPadding; }
  void start_candidates(int64_t r) const {
    work.candidates[r].start(work.values.get() + r * work.list_size(),
                             work.indices.get() + r * work.list_size());
  }

  // One row at a time, from its candidates. Returns false if the rows turn out to be broad; the
  // first chunk of keys is then scored.
  template <class Map>
  bool run_candidates(const Map& map, int64_t i, int64_t rows, const Columns& columns) {
    T* scores = work.scores.get();
    Candidates<T>* candidates = work.candidates;
    const int64_t n = columns.count, chunk = chunk_size(columns, 0);
    if (a.is_scores_only) {
      for (int64_t j = 0; j < n; j += kChunkKeys)
        score(i, rows, columns.first + j, chunk_size(columns, j), scores, kChunkKeys);
      return true;
    }
    const auto score_first = [&] { score(i, rows, columns.first, chunk, scores, work.stride); };
    bool are_many = false, is_scored = false;
    // After a strip that was screened, the next of its head is without a sample.
    const bool is_alike = work.screened == head.number;
    work.screened = -1;
    if constexpr (sizeof(T) == 4)
      is_scored =
          n > kChunkKeys && is_alike && screen_candidates(map.eps(), i, rows, columns, nullptr);
    if (n > kChunkKeys && !is_scored) {
      // A sample: the first chunk of the row in the middle.
      const int64_t middle = rows / 2;
      T* row = scores + middle * work.stride;
      score(i + middle, 1, columns.first, chunk, row, work.stride);
      start_candidates(middle);
      candidates[middle].take(row, chunk, columns.first, map.eps());
      const double share = static_cast<double>(candidates[middle].count) / kChunkKeys;
      if (share > kBroadSample) {
        score_first();
        return false;
      }
      are_many = share > kManySample && n <= kCachedKeys;
      if constexpr (sizeof(T) == 4)
        is_scored =
            !is_alike && screen_candidates(map.eps(), i, rows, columns, candidates + middle);
    }
    if (is_scored) work.screened = head.number;
    if (!is_scored) {
      score_first();
      for (int64_t r = 0; r < rows; ++r) start_candidates(r);
      take_candidates(map, i, rows, columns, are_many);
    }
    solve_candidates(map, i, rows);
    return true;
  }
  // Settles the candidates of every row.
  void settle(double eps, int64_t rows) {
    constexpr int width = Lanes<T>::count;
    for (int64_t r = 0; r < rows; r += width) {
      Candidates<T>* mine = work.candidates + r;
      const int used = static_cast<int>(smaller<int64_t>(width, rows - r));
      if (used > 1 && settle_in_lanes(mine, used, eps, work.solver.get())) continue;
      for (int i = 0; i < used; ++i)
        if (mine[i].count > 0 && !mine[i].is_bad) mine[i].settle(eps);
    }
  }
  // Weights of the rows of few candidates, in place of these, one row per lane; returns which. The
  // weights of one row do not depend on the others: what is filled in adds nothing to sums of cheap
  // maps, and to those of others always as much.
  template <class Map>
  uint32_t solve_few(const Map& map, int64_t i, int64_t rows) {
    constexpr int width = Lanes<T>::count;
    int64_t few[kStripRows], count = 0, n = Map::kIsCheap ? 1 : kFewCandidates;
    uint32_t solved = 0;
    for (int64_t r = 0; r < rows; ++r) {
      Candidates<T>& mine = work.candidates[r];
      const int64_t all = mine.count + sinks();
      if (mine.is_bad || all == 0 || all > kFewCandidates) continue;
      fill(mine.value + all, kFewCandidates - all, -std::numeric_limits<T>::infinity());
      n = larger(n, all);
      few[count++] = r;
      solved |= uint32_t{1} << r;
    }
    n = round_up(n, width);
    for (int64_t first = 0; first < count; first += width) {
      const auto row = [&](int64_t l) { return work.candidates[few[first + l]].value; };
      const int used = static_cast<int>(smaller<int64_t>(width, count - first));
      const LaneNormalizers<T> found = forward_in_lanes(map, row, n, used, work.solver.get(), row);
      for (int l = 0; l < used; ++l) save_state(i + few[first + l], found.row(l));
    }
    return solved;
  }
  template <class Map>
  void solve_candidates(const Map& map, int64_t i, int64_t rows) {
    T* weights = work.row.get();
    uint32_t solved_rows = 0;
    if constexpr (sizeof(T) == 4) settle(map.eps(), rows);
    for (int64_t r = 0; r < rows && a.in.sinks; ++r)
      work.candidates[r].value[work.candidates[r].count] = sink();
    if constexpr (sizeof(T) == 4) solved_rows = solve_few(map, i, rows);
    for (int64_t r = 0; r < rows; ++r) {
      Candidates<T>& mine = work.candidates[r];
      Entries<T> list(entries());
      const int64_t begin = list.size(), count = mine.count + sinks();
      if (mine.is_bad || (a.in.sinks && !(sink() < std::numeric_limits<T>::infinity()))) {
        save_sink(i + r, std::numeric_limits<T>::quiet_NaN());
        save_state(i + r, {std::numeric_limits<double>::quiet_NaN(), 0, 1});
        const KeyRange visible = visible_keys(a.in, head.length, i + r);
        append_nan(visible.first, visible.size(), list);
      } else if (count == 0) {
        save_state(i + r, {-std::numeric_limits<double>::infinity(), 0, 1});
      } else {
        T* found = mine.value;
        if (!(solved_rows >> r & 1)) {
          const SolvedRow solved =
              solve_row(map, mine.value, count, work.solver.get(), weights, mine.bound);
          write_weights(map, mine.value, count, solved, weights, weights);
          save_state(i + r, solved.normalizer);
          found = weights;
        }
        if (a.in.sinks) save_sink(i + r, found[mine.count]);
        append_support(found, mine.index, 0, mine.count, list);
      }
      finish_row(i + r, begin);
    }
  }

  // Whether queries [i, end) can be solved one per lane. A single one would leave the others idle.
  bool fits_lanes(int64_t i, int64_t end, double alpha) const {
    return a.in.q > 1 && columns_of(a.in, head.length, i, end - i).count + sinks() <= kLaneKeys &&
           !needs_double(alpha) && !a.is_scores_only;
  }

  void run_strip(int64_t i, int64_t rows, double alpha) {
    const Columns columns = columns_of(a.in, head.length, i, rows);
    const int64_t n = columns.count;
    // Alone, a sink takes all, unless the head has none.
    for (int64_t r = 0; r < rows && n == 0 && a.in.sinks; ++r)
      save_sink(i + r, sink() > -std::numeric_limits<T>::infinity() ? T(1) : T(0));
    if (n == 0 && is_whole) return finish_whole(i, rows, columns, work.scores.get(), kLaneKeys);
    if (n == 0) {
      for (int64_t r = 0; r < rows; ++r) {
        save_state(i + r, {-std::numeric_limits<double>::infinity(), 0, 1});
        finish_row(i + r, entries()->size);
      }
      return;
    }
    with_map<T>(alpha, [&](const auto& map) {
      using Map = std::decay_t<decltype(map)>;
      if (fits_lanes(i, i + rows, alpha))
        run_lanes(map, i, rows, columns);
      else if (n <= kLaneKeys && !a.is_scores_only)
        run_whole(map, i, rows, columns, 0);
      else if (!Map::kIsSparse || !run_candidates(map, i, rows, columns))
        run_whole(map, i, rows, columns, Map::kIsSparse ? kChunkKeys : 0);
    });
  }
};

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
