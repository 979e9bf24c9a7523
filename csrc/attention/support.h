// The support of a row of attention: candidates selected while scores are computed, and entries
// saved for backward.
#pragma once

#include <cstdlib>
#include <new>

#include "entmax/normalizer.h"
#include "kernels.h"
#include "tuning.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// Entries (index, weight) of the support, row after row; grows as needed.
template <class T>
class Entries {
 public:
  explicit Entries(SupportBlock* block) : block_(block) {}
  // Room for `count` more, and for the vector that compress_store writes past the end.
  void reserve(int64_t count) {
    const int64_t needed = block_->size + count + 2 * Lanes<T>::count;
    if (needed <= block_->capacity) return;
    // Rows of a block are much alike: after the first, room for some more.
    const int64_t capacity = larger(block_->capacity ? needed : 8 * needed, 2 * block_->capacity);
    block_->index = grown(block_->index, capacity);
    block_->weight = grown(static_cast<T*>(block_->weight), capacity);
    block_->capacity = capacity;
  }
  int32_t* index() const { return block_->index; }
  T* weight() const { return static_cast<T*>(block_->weight); }
  int64_t size() const { return block_->size; }
  void resize(int64_t size) const { block_->size = size; }

 private:
  template <class N>
  static N* grown(N* old, int64_t capacity) {
    void* memory = std::realloc(old, sizeof(N) * static_cast<size_t>(capacity));
    if (!memory) throw std::bad_alloc();
    return static_cast<N*>(memory);
  }
  SupportBlock* block_;
};

template <class T>
ADASPARSE_INLINE IntVec<T> lane_numbers() {
  IntVec<T> lane{};
  for (int i = 0; i < Lanes<T>::count; ++i) lane[i] = i;
  return lane;
}
// The first `count` of these indices.
template <class T>
ADASPARSE_INLINE IntVec<T> load_index(const int32_t* from, int count) {
  IntVec<T> index{};
  if constexpr (sizeof(T) == 4)
    if (count == Lanes<T>::count) {
      std::memcpy(&index, from, sizeof index);
      return index;
    }
  for (int i = 0; i < count; ++i) index[i] = from[i];
  return index;
}
// Packs the chosen lanes of indices as int32 and returns how many.
template <class T>
ADASPARSE_INLINE int compress_index(int32_t* to, Mask<T> mask, IntVec<T> index) {
  if constexpr (sizeof(T) == 4) {
    return compress_store<float>(reinterpret_cast<float*>(to), mask,
                                 reinterpret_cast<FloatVector>(index));
  } else {
    const unsigned chosen = bits(mask);
    int at = 0;
    for (int i = 0; i < Lanes<T>::count; ++i) {
      to[at] = static_cast<int32_t>(index[i]);
      at += chosen >> i & 1;
    }
    return at;
  }
}

// Appends the positive ones of n weights, whose columns are `index` or, if that is null, those from
// `first` on.
template <class T>
void append_support(const T* weights, const int32_t* index, int64_t first, int64_t n,
                    Entries<T>& to) {
  using V = Vec<T>;
  to.reserve(n);
  int64_t size = to.size();
  int32_t* columns = to.index();
  T* values = to.weight();
  const IntVec<T> lane = lane_numbers<T>() + static_cast<typename Lanes<T>::Int>(first);
  for_each_vector(weights, n, [&](V p, int count, int64_t j) ADASPARSE_INLINE_BODY {
    const Mask<T> inside = greater(p, V{});
    if (!any(inside)) return;
    const IntVec<T> column =
        index ? load_index<T>(index + j, count) : lane + static_cast<typename Lanes<T>::Int>(j);
    compress_index<T>(columns + size, inside, column);
    size += compress_store<T>(values + size, inside, p);
  });
  to.resize(size);
}

// A row that holds NaN or +inf: every key it sees gets NaN.
template <class T>
void append_nan(int64_t first, int64_t n, Entries<T>& to) {
  to.reserve(n);
  const int64_t size = to.size();
  for (int64_t j = 0; j < n; ++j) {
    to.index()[size + j] = static_cast<int32_t>(first + j);
    to.weight()[size + j] = std::numeric_limits<T>::quiet_NaN();
  }
  to.resize(size + n);
}

// Calls body(map) with a cheap map whose normalizer is no larger than that of this eps.
template <class T, class Body>
ADASPARSE_INLINE void with_lower_map(double eps, const Body& body) {
  if (eps <= 0.5)
    body(Entmax15Map<T>());
  else if (eps <= 1)
    body(SparsemaxMap<T>());
}

// The scores of one row that can still be in its support. As more scores come the normalizer can
// only grow, and with its lower bound the cut below which no score counts.
template <class T>
struct Candidates {
  T* value;
  int32_t* index;
  int64_t count;
  int64_t tightened;  // `count` when the bound was last computed
  double bound;       // the normalizer, max + c, is at least this; -inf before the first score
  T cut;
  bool is_bad;  // a score was NaN or +inf

  void start(T* values, int32_t* indices) {
    value = values;
    index = indices;
    count = tightened = 0;
    bound = -std::numeric_limits<double>::infinity();
    cut = -std::numeric_limits<T>::infinity();
    is_bad = false;
  }
  void raise(double to, double eps) {
    if (!(to > bound)) return;
    bound = to;
    // Rounded down a little: an extra candidate costs nothing, a lost one would be wrong. Settling
    // may go back by a step.
    cut = static_cast<T>(to - kSettledStep - (1 + 1e-5) / eps - 1e-6 * std::fabs(to));
  }

  // Takes n scores, a multiple of kTileScores, of columns from `first` on.
  void take(const T* scores, int64_t n, int64_t first, double eps) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    if (is_bad) return;
    if (bound == -std::numeric_limits<double>::infinity()) {
      const RowMaximum<T> top(scores, n);
      if (top.max == -infinity) return;
      is_bad = std::isnan(top.max);
      double c = 0;
      with_lower_map<T>(eps, [&](const auto& map) { c = bound_from_best(map, top); });
      raise(static_cast<double>(top.max) + c, eps);
    }
    const int64_t before = count;
    for (int64_t j = 0; j < n; j += kTileScores)
      take_tile(scores + j, static_cast<int32_t>(first + j));
    if (count == before) return;
    const T top = RowMaximum<T>(value + before, count - before).max;
    is_bad |= std::isnan(top);
    raise(static_cast<double>(top), eps);
    if (count > 2 * tightened + kLooseCandidates) tighten(eps);
  }

  static constexpr int kTileScores = 64;
  static constexpr int kFewAbove =
      kVectorBytes == 64 ? 3 : 8;  // scores of a tile, taken one by one
  ADASPARSE_INLINE void take_tile(const T* scores, int32_t first) {
    constexpr int width = Lanes<T>::count;
    const Vec<T> below = broadcast(cut);
    uint64_t above = 0;
#pragma GCC unroll 32
    for (int j = 0; j < kTileScores; j += width)
      above |= static_cast<uint64_t>(bits(greater_or_nan(load(scores + j), below))) << j;
    if (__builtin_popcountll(above) <= kFewAbove) {
      // Two without a branch: their number is hard to predict, and a misprediction costs more.
      for (int i = 0; i < 2; ++i) {
        const int j = __builtin_ctzll(above | uint64_t{1} << (kTileScores - 1));
        value[count] = scores[j];
        index[count] = first + j;
        count += above != 0;
        above &= above - 1;
      }
      for (; above; above &= above - 1) {
        const int j = __builtin_ctzll(above);
        value[count] = scores[j];
        index[count++] = first + j;
      }
      return;
    }
    const IntVec<T> lane = lane_numbers<T>() + static_cast<typename Lanes<T>::Int>(first);
    T* values = value + count;
    int32_t* indices = index + count;
    int64_t taken = 0;
#pragma GCC unroll 32
    for (int j = 0; j < kTileScores; j += width) {
      const Vec<T> s = load(scores + j);
      const Mask<T> chosen = greater_or_nan(s, below);
      compress_index<T>(indices + taken, chosen, lane + static_cast<typename Lanes<T>::Int>(j));
      taken += compress_store<T>(values + taken, chosen, s);
    }
    count += taken;
  }

  // Which candidates are left, and what is known of their normalizer, depends on the way they were
  // found; from here on it does not. Where F is the sum of weights of the cheap map below, the
  // bound becomes the largest multiple of kSettledStep above the maximum at which F > 1, and scores
  // above its cut stay. All of these were found, since no bound lay above the root of F and every
  // cut was lower by a step. F at a multiple is summed one by one: scores of weight zero, of which
  // there may be more or less, change nothing.
  __attribute__((noinline)) void settle(double eps) {
    pad();
    const T top = RowMaximum<T>(value, count).max;
    is_bad = std::isnan(top);
    if (top == -std::numeric_limits<T>::infinity()) count = 0;
    if (is_bad || count == 0) return;
    const double max = static_cast<double>(top);
    double c = larger(bound - max, 0.), excess = 0;
    with_lower_map<T>(eps, [&](const auto& map) {
      for (int round = 0;; ++round) {
        const Sums sums = sum_row(map, value, count, top, c, static_cast<T*>(nullptr));
        excess = sums.mass - 1;
        if (!(excess > kSettledMass) || round == kMaxSteps) break;
        c += map.step(sums.mass, sums.slope);
      }
    });
    settle_at(eps, top, c, excess);
  }
  // The same from a maximum, a c up to the root of F and the excess of F over one there.
  void settle_at(double eps, T top, double c, double excess) {
    // F falls by at least 1 for every 1 that c rises, as long as it is above 1.
    double step = std::floor((c + larger(excess, 0.) + kSettledError) / kSettledStep);
    if (step * kSettledStep > c - kSettledError &&
        !has_more_than_one(eps <= 0.5 ? 0.5 : 1, top, step * kSettledStep))
      --step;
    c = larger(step, 0.) * kSettledStep;
    bound = static_cast<double>(top) + c;
    const Vec<T> below = broadcast(static_cast<T>(c - 1 / eps)), shift = broadcast(top);
    keep([&](Vec<T> s) ADASPARSE_INLINE_BODY { return greater(s - shift, below); });
    pad();
  }
  void pad() {
    const int64_t before = count;
    count = pad_scores(value, count);
    fill(index + before, count - before, int32_t{0});
  }
  bool has_more_than_one(double eps, T top, double c) const {
    double mass = 0;
    for (int64_t e = 0; e < count; ++e) {
      const double t = 1 + eps * (static_cast<double>(value[e] - top) - c);
      if (t > 0) mass += eps == 1 ? t : t * t;
    }
    return mass > 1;
  }

  // Keeps the candidates for which chosen(scores) is true.
  template <class Chosen>
  ADASPARSE_INLINE void keep(const Chosen& chosen) {
    int64_t kept = 0;
    for_each_vector(value, count, [&](Vec<T> s, int lanes, int64_t j) ADASPARSE_INLINE_BODY {
      const IntVec<T> column = load_index<T>(index + j, lanes);
      const Mask<T> mine = chosen(s);
      compress_index<T>(index + kept, mine, column);
      kept += compress_store<T>(value + kept, mine, s);
    });
    count = kept;
  }

  // Computes the bound from the present candidates and drops those below the new cut.
  void tighten(double eps) {
    // Scores are read minus the bound, which takes the place of the maximum, with a normalizer of
    // 0.
    const T shift = static_cast<T>(bound);
    with_lower_map<T>(eps, [&](const auto& map) {
      double c = 0;
      for (int step = 0; step < 3; ++step) {
        const Sums sums = sum_row(map, value, count, shift, c, static_cast<T*>(nullptr));
        if (!(sums.mass > 1 + 1e-2)) break;
        c += map.step(sums.mass, sums.slope);
      }
      raise(static_cast<double>(shift) + c * (1 - 1e-6), eps);
    });
    keep_above_cut();
    tightened = count;
  }
  void keep_above_cut() {
    const Vec<T> below = broadcast(cut);
    keep([&](Vec<T> s) ADASPARSE_INLINE_BODY { return greater_or_nan(s, below); });
  }
};

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
