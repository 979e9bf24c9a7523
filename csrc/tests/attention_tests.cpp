// Tests of attention, forward and backward, for every instruction set.
#include <cstdlib>
#include <utility>

#include "attention_problem.h"

namespace kernel_tests {
namespace {

using adasparse::Kernels;
using adasparse::SupportBlock;

constexpr int64_t kSizes[] = {1, 2, 23, 24, 25, 47, 48, 49, 63, 64, 65, 255, 256, 257, 700};
constexpr int64_t kDims[] = {1, 3, 8, 16, 33, 64, 65, 130};
constexpr double kDenseShares[] = {0.4, 0, 2};  // the ends mean always and never
constexpr int64_t kNoLimit = int64_t{1} << 40;

// Those above 2 are computed in double, which is the caller's part.
Doubles alphas_of(Type type) {
  Doubles alphas{1.5, 1, 1 + 1e-6, 1.05, 1.9, 2};
  if (type == Type::kFloat64) alphas.push_back(3);
  return alphas;
}

// ---------------------------------------------------------------- calls

double* doubles(const Array& array) { return static_cast<double*>(array.data()); }

struct ForwardResult {
  Array out, state;
  std::vector<int64_t> counts;
  std::vector<SupportBlock> blocks;

  explicit ForwardResult(const AttentionProblem& problem)
      : out(problem.type, problem.rows() * problem.e),
        state(Type::kFloat64, problem.rows() * adasparse::kRowState),
        counts(static_cast<size_t>(problem.rows()), -1),
        blocks(static_cast<size_t>(problem.batch * problem.heads * blocks_of(problem))) {}
  ~ForwardResult() {
    for (auto& block : blocks) {
      std::free(block.index);
      std::free(block.weight);
    }
  }
  ForwardResult(const ForwardResult&) = delete;
  ForwardResult& operator=(const ForwardResult&) = delete;

  static int64_t blocks_of(const AttentionProblem& problem) {
    return (problem.q + adasparse::kBlockRows - 1) / adasparse::kBlockRows;
  }
  bool has_same_support(const ForwardResult& other, size_t bytes) const {
    bool is_same = counts == other.counts;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const SupportBlock &mine = blocks[i], &its = other.blocks[i];
      const auto size = static_cast<size_t>(mine.size);
      is_same = is_same && mine.size == its.size && mine.is_dropped == its.is_dropped &&
                (size == 0 || (std::memcmp(mine.index, its.index, size * 4) == 0 &&
                               std::memcmp(mine.weight, its.weight, size * bytes) == 0));
    }
    return is_same;
  }
};

adasparse::AttentionForward forward_call(const AttentionProblem& problem, int threads) {
  adasparse::AttentionForward call{};
  call.in = problem.input(threads);
  call.dense_share = problem.dense_share;
  return call;
}

adasparse::WritableRows one_after_another(Array& array, int64_t heads, int64_t rows, int64_t size) {
  return {array.data(), {heads * rows * size, rows * size, size}};
}

enum class Wanted { kOutput, kSupport };

std::unique_ptr<ForwardResult> run_forward(const Kernels& kernels, const AttentionProblem& problem,
                                           Wanted wanted, int64_t row_limit, int threads = 1) {
  auto result = std::make_unique<ForwardResult>(problem);
  adasparse::AttentionForward call = forward_call(problem, threads);
  if (wanted == Wanted::kOutput)
    call.out = one_after_another(result->out, problem.heads, problem.q, problem.e);
  call.state = doubles(result->state);
  call.counts = result->counts.data();
  call.blocks = result->blocks.data();
  call.row_limit = row_limit;
  kernels.attention_forward(call);
  return result;
}

// The support as the backward takes it: all rows of heads that are not dense.
struct Support {
  std::vector<int64_t> offsets;
  std::vector<uint8_t> is_dense;
  std::vector<int32_t> index;
  Array weight;

  template <class IsDense>
  Support(const AttentionProblem& problem, const ForwardResult& from, const IsDense& choose)
      : weight(problem.type, 0) {
    const int64_t heads = problem.batch * problem.heads;
    const int64_t blocks = ForwardResult::blocks_of(problem);
    const size_t bytes = precision(problem.type).bytes;
    int64_t total = 0;
    for (int64_t head = 0; head < heads; ++head) {
      is_dense.push_back(choose(head));
      for (int64_t i = 0; i < problem.q; ++i) {
        offsets.push_back(total);
        if (!is_dense[head]) total += from.counts[head * problem.q + i];
      }
    }
    offsets.push_back(total);
    offsets.shrink_to_fit();
    is_dense.shrink_to_fit();
    index.resize(static_cast<size_t>(total));
    weight = Array(problem.type, total);
    for (int64_t i = 0; i < heads * blocks; ++i) {
      const SupportBlock& block = from.blocks[i];
      if (is_dense[i / blocks] || block.size == 0) continue;
      const int64_t row = i / blocks * problem.q + i % blocks * adasparse::kBlockRows;
      const auto first = static_cast<size_t>(offsets[row]), size = static_cast<size_t>(block.size);
      std::memcpy(index.data() + first, block.index, size * 4);
      std::memcpy(static_cast<char*>(weight.data()) + first * bytes, block.weight, size * bytes);
    }
  }
};

struct BackwardResult {
  Array query, key, value, alpha, slopes, mask;
  explicit BackwardResult(const AttentionProblem& problem)
      : query(problem.type, static_cast<int64_t>(problem.by_query.value.size())),
        key(problem.type, static_cast<int64_t>(problem.by_key.value.size())),
        value(problem.type, static_cast<int64_t>(problem.by_value.value.size())),
        alpha(Type::kFloat64, problem.rows()),
        slopes(Type::kFloat64, problem.rows()),
        mask(problem.type, static_cast<int64_t>(problem.by_mask.value.size())) {
    for (size_t i = 0; i < problem.by_mask.value.size(); ++i)
      mask.set(static_cast<int64_t>(i), 0);
  }
  bool is_intact() const {
    return query.is_intact() && key.is_intact() && value.is_intact() && alpha.is_intact() &&
           slopes.is_intact() && mask.is_intact();
  }
  bool operator==(const BackwardResult& other) const {
    return query == other.query && key == other.key && value == other.value &&
           alpha == other.alpha && slopes == other.slopes && mask == other.mask;
  }
};

// From a call that says what the forward has kept.
BackwardResult run_backward(const Kernels& kernels, const AttentionProblem& problem,
                            adasparse::AttentionBackward call, bool with_all, int threads = 1) {
  BackwardResult result(problem);
  call.in = problem.input(threads);
  call.grad = problem.grad();
  call.grad_query = one_after_another(result.query, problem.heads, problem.q, problem.d);
  call.grad_key = one_after_another(result.key, problem.groups, problem.k, problem.d);
  call.grad_value = one_after_another(result.value, problem.groups, problem.k, problem.e);
  if (with_all) {
    call.grad_alpha = doubles(result.alpha);
    call.grad_slopes = doubles(result.slopes);
    call.grad_mask = problem.has_bias() ? result.mask.data() : nullptr;
  }
  std::copy_n(problem.grad_mask_strides(), 4, call.grad_mask_strides);
  kernels.attention_backward(call);
  return result;
}

BackwardResult run_backward(const Kernels& kernels, const AttentionProblem& problem,
                            const Array& state, const Support& support, bool with_all,
                            int threads = 1) {
  const bool is_empty = support.index.empty();  // as empty tensors of PyTorch: at no address
  adasparse::AttentionBackward call{};
  call.state = doubles(state);
  call.offsets = support.offsets.data();
  call.index = is_empty ? nullptr : support.index.data();
  call.weight = is_empty ? nullptr : support.weight.data();
  call.is_dense = support.is_dense.data();
  return run_backward(kernels, problem, call, with_all, threads);
}

// ---------------------------------------------------------------- checks

struct Bars {
  double tensor, alpha;  // errors, as shares of the largest number
};
Bars bars_of(Type type) { return type == Type::kFloat64 ? Bars{1e-10, 1e-10} : Bars{2e-5, 1e-4}; }

// Numbers that should be NaN must be; others may where `spares_nan`.
void check_near(const std::string& text, const char* what, const Array& got, const Expected& want,
                double bar, bool spares_nan = false) {
  int64_t wrong = -1;
  double worst = bar * want.size;
  for (size_t i = 0; i < want.value.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i);
    const double x = got[at], y = want.value[i];
    if (std::isnan(y) ? std::isnan(x) : std::fabs(x - y) <= worst) continue;
    if (spares_nan && std::isnan(x) && !std::isnan(y)) continue;
    wrong = at;
    if (std::fabs(x - y) > worst) worst = std::fabs(x - y);
  }
  CHECK(wrong < 0, "%s: %s %lld is %.17g, not %.17g; %.2g of the largest, more than %g",
        text.c_str(), what, static_cast<long long>(wrong), got[std::max<int64_t>(wrong, 0)],
        want.value.empty() ? 0 : want.value[static_cast<size_t>(std::max<int64_t>(wrong, 0))],
        worst / want.size, bar);
}

// Whether the weights of a row, as far as they are not NaN, are those expected.
bool is_row_near(const Doubles& got, const Doubles& want, double bar) {
  for (size_t j = 0; j < want.size(); ++j)
    if (std::isnan(want[j]) ? !std::isnan(got[j]) : !(std::fabs(got[j] - want[j]) <= bar))
      return false;
  return true;
}

// From the state of a row all its weights follow.
void check_state(const std::string& text, const AttentionProblem& problem, const Array& state) {
  int64_t wrong = -1;
  for (int64_t row = 0; row < problem.rows(); ++row) {
    const double max = state[3 * row], c = state[3 * row + 1], scale = state[3 * row + 2];
    Doubles p;
    for (const double s : problem.scores(row)) {
      const bool is_out = s == -kInfinity || max == -kInfinity;
      p.push_back(std::isnan(max) ? kNaN
                  : is_out        ? 0
                                  : scale * weight_at(s - max - c, problem.alpha_of(row) - 1));
    }
    if (!is_row_near(p, problem.weights(row), bars_of(problem.type).tensor)) wrong = row;
  }
  const int64_t at = std::max<int64_t>(wrong, 0);
  CHECK(wrong < 0, "%s: the state of row %lld is %.9g, %.9g, %.9g", text.c_str(),
        static_cast<long long>(wrong), state[3 * at], state[3 * at + 1], state[3 * at + 2]);
}

// A support that was kept whole: columns in order, no weight of zero, and all that matter.
void check_support(const std::string& text, const AttentionProblem& problem,
                   const Support& support) {
  int64_t wrong = -1;
  for (int64_t row = 0; row < problem.rows(); ++row) {
    Doubles p(problem.weights(row).size(), 0.);
    double total = 0;
    int64_t last = -1;
    bool is_good = true;
    for (int64_t at = support.offsets[row]; at < support.offsets[row + 1]; ++at) {
      const int64_t j = support.index[at];
      is_good = is_good && j > last && j < problem.visible(row) && support.weight[at] != 0;
      if (!is_good) break;
      total += p[j] = support.weight[at];
      last = j;
    }
    const double bar = bars_of(problem.type).tensor;
    is_good = is_good && is_row_near(p, problem.weights(row), bar) &&
              (last < 0 || !(std::fabs(total - 1) > bar));
    if (!is_good) wrong = row;
  }
  CHECK(wrong < 0, "%s: the support of row %lld is wrong", text.c_str(),
        static_cast<long long>(wrong));
}

// What is kept of a block is all of it or nothing. Returns whether a head has lost a block.
std::vector<bool> check_blocks(const std::string& text, const AttentionProblem& problem,
                               const ForwardResult& result, int64_t row_limit, bool is_exact) {
  const int64_t blocks = ForwardResult::blocks_of(problem), q = problem.q;
  std::vector<bool> is_lost(static_cast<size_t>(problem.batch * problem.heads), false);
  int64_t wrong = -1;
  for (size_t i = 0; i < result.blocks.size(); ++i) {
    const SupportBlock& block = result.blocks[i];
    const int64_t head = static_cast<int64_t>(i) / blocks;
    const int64_t first = static_cast<int64_t>(i) % blocks * adasparse::kBlockRows;
    const int64_t last = std::min(q, first + adasparse::kBlockRows);
    int64_t total = 0;
    for (int64_t row = head * q + first; row < head * q + last; ++row) {
      total += result.counts[row];
      if (result.counts[row] < 0) wrong = static_cast<int64_t>(i);
    }
    const bool is_over = total > row_limit * (last - first);
    if (block.is_dropped ? block.size != 0 || (is_exact && !is_over) : block.size != total)
      wrong = static_cast<int64_t>(i);
    if (is_over && !block.is_dropped) wrong = static_cast<int64_t>(i);
    if (block.is_dropped) is_lost[head] = true;
  }
  CHECK(wrong < 0, "%s: block %lld with limit %lld", text.c_str(), static_cast<long long>(wrong),
        static_cast<long long>(row_limit));
  return is_lost;
}

void check_gradients(const std::string& text, const AttentionProblem& problem,
                     const BackwardResult& got, bool has_all) {
  const Bars bars = bars_of(problem.type);
  // Rows of NaN may reach keys that they do not see.
  const bool spares_nan = problem.has_nan && problem.is_causal;
  CHECK(got.is_intact(), "%s: wrote outside its memory", text.c_str());
  check_near(text, "gradient by query", got.query, problem.by_query, bars.tensor);
  check_near(text, "gradient by key", got.key, problem.by_key, bars.tensor, spares_nan);
  check_near(text, "gradient by value", got.value, problem.by_value, bars.tensor, spares_nan);
  if (!has_all) return;
  check_near(text, "gradient by alpha", got.alpha, problem.by_alpha, bars.alpha);
  check_near(text, "gradient by slope", got.slopes, problem.by_slope, bars.tensor);
  if (problem.has_bias())
    check_near(text, "gradient by mask", got.mask, problem.by_mask, bars.tensor, spares_nan);
}

void check_all(const Kernels& kernels, const AttentionProblem& problem) {
  const std::string text = std::string(kernels.name) + " " + problem.text();
  const int64_t limit = problem.row_limit;
  const auto result = run_forward(kernels, problem, Wanted::kOutput, limit);
  const auto support = run_forward(kernels, problem, Wanted::kSupport, kNoLimit);
  CHECK(result->out.is_intact() && result->state.is_intact(), "%s: wrote outside its memory",
        text.c_str());
  check_near(text, "output", result->out, problem.out, bars_of(problem.type).tensor);
  check_state(text, problem, result->state);
  CHECK(support->state == result->state, "%s: without the output, the state is another",
        text.c_str());
  const auto is_lost = check_blocks(text, problem, *result, limit, false);
  check_blocks(text, problem, *support, kNoLimit, true);

  Array alone(problem.type, problem.rows() * problem.e);
  adasparse::AttentionForward call = forward_call(problem, 1);
  call.out = one_after_another(alone, problem.heads, problem.q, problem.e);
  kernels.attention_forward(call);
  CHECK(alone == result->out, "%s: the output depends on what is kept", text.c_str());
  if (kernels.has_short_rows(call.in)) {
    Array weights(problem.type, problem.rows() * problem.k);
    call.weights = weights.data();
    kernels.attention_forward(call);
    CHECK(weights.is_intact(), "%s: wrote outside its memory", text.c_str());
    CHECK(alone == result->out, "%s: whole weights change the output", text.c_str());
    adasparse::AttentionBackward kept{};
    kept.weights = weights.data();
    check_gradients(text + ", whole", problem, run_backward(kernels, problem, kept, true), true);
  }

  const auto check_with = [&](const char* what, const ForwardResult& from, const auto& is_dense,
                              bool with_all) {
    const Support arranged(problem, from, is_dense);
    check_gradients(text + ", " + what, problem,
                    run_backward(kernels, problem, from.state, arranged, with_all), with_all);
  };
  check_support(text, problem, Support(problem, *support, [](int64_t) { return false; }));
  check_with("sparse", *support, [](int64_t) { return false; }, true);
  check_with("dense", *result, [](int64_t) { return true; }, true);
  check_with("as found", *result, [&](int64_t head) { return is_lost[head]; }, false);
  if (problem.batch * problem.heads > 1)
    check_with("mixed", *support, [](int64_t head) { return head % 3 == 1; }, true);
}

void check_all(const Sets& sets, const AttentionCase& asked) {
  const AttentionProblem problem(asked);
  for (const Kernels* kernels : sets) check_all(*kernels, problem);
}

// ---------------------------------------------------------------- the tests

template <class List>
auto pick(const List& list, uint64_t at) {
  return list[at % std::size(list)];
}

// Every length, head size and alpha with many others.
void test_sizes(const Sets& sets) {
  uint64_t seed = 0;
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const double alpha : alphas_of(type))
      for (const int64_t k : kSizes) {
        AttentionCase a;
        a.seed = ++seed;
        a.type = type;
        a.alphas = {alpha};
        a.k = k;
        a.q = pick(kSizes, seed * 7 + seed / std::size(kSizes));
        a.batch = 1 + static_cast<int64_t>(seed % 2);
        a.heads = 1 + static_cast<int64_t>(seed % 4);
        a.groups = a.heads % 2 == 0 ? a.heads / 2 : 1;
        if (a.q * k > 3000) a.batch = 1;
        if (a.q * k > 8000) a.heads = a.groups = 1;
        a.d = pick(kDims, seed * 3);
        a.e = pick(kDims, seed * 5 + 1);
        a.spread = pick(Doubles{1, 4, 0.1}, seed / 2);
        a.is_causal = seed % 5 == 0;
        a.layout = pick(kLayouts, seed / 3);
        a.dense_share = pick(kDenseShares, seed);
        if (a.q * k < 50000) check_all(sets, a);
      }
}

// Long enough for all blocks of rows and keys there are.
void test_long(const Sets& sets) {
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const int64_t q : {257, 700}) {
      AttentionCase a;
      a.type = type;
      a.alphas = alphas_of(type);
      a.seed = static_cast<uint64_t>(q);
      a.batch = 1;
      a.heads = q == 257 ? 2 : 1;
      a.groups = 1;
      a.q = q;
      a.k = 700;
      a.alpha_dims = 0b001;
      a.is_causal = q == 700;
      check_all(sets, a);
    }
}

// Scores so close to each other that the support is broad at any alpha.
void test_broad(const Sets& sets) {
  uint64_t seed = 0;
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const double alpha : alphas_of(type))
      for (const double spread : {1e-3, 1e-2}) {
        AttentionCase a;
        a.seed = ++seed;
        a.type = type;
        a.alphas = {alpha};
        a.batch = 1;
        a.k = 260;
        a.spread = spread;
        check_all(sets, a);
      }
}

// As many heads as it takes for the widest stretches of features.
void test_many_heads(const Sets& sets) {
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const int64_t d : {64, 130}) {
      AttentionCase a;
      a.type = type;
      a.seed = static_cast<uint64_t>(d);
      a.batch = a.heads = a.groups = 4;
      a.q = 5;
      a.k = 9;
      a.d = a.e = d;
      check_all(sets, a);
    }
}

// Masks of both kinds, broadcast along any dimensions.
void test_masks(const Sets& sets) {
  constexpr int64_t shapes[][2] = {{25, 65}, {257, 23}, {2, 700}, {49, 48},
                                   {1, 63},  {24, 300}, {64, 24}};
  uint64_t seed = 0;
  for (const MaskKind kind : {MaskKind::kBool, MaskKind::kAdded})
    for (unsigned dims = 0; dims < 16; ++dims)
      for (const bool is_transposed : {false, true}) {
        AttentionCase a;
        a.seed = ++seed;
        a.batch = 1 + static_cast<int64_t>(seed / 4 % 2);
        a.type = seed % 3 == 0 ? Type::kFloat64 : Type::kFloat32;
        a.alphas = alphas_of(a.type);
        a.q = pick(shapes, seed)[0];
        a.k = pick(shapes, seed)[1];
        a.d = pick(kDims, seed);
        a.e = pick(kDims, seed + 3);
        a.mask_kind = kind;
        a.mask_dims = dims;
        a.is_mask_transposed = is_transposed;
        a.is_causal = seed % 4 == 2;
        check_all(sets, a);
      }
}

void test_key_lengths(const Sets& sets) {
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const int64_t k : {1, 25, 65, 257})
      for (const bool is_causal : {false, true}) {
        AttentionCase a;
        a.seed = static_cast<uint64_t>(k);
        a.type = type;
        a.alphas = alphas_of(type);
        a.batch = 6;
        a.heads = 2;
        a.groups = is_causal ? 1 : 2;
        a.q = 26;
        a.k = k;
        a.d = is_causal ? 8 : 3;
        a.e = is_causal ? 5 : 16;
        a.key_lengths = {0, k, (k + 1) / 2, 1, k + 5, -2};
        a.is_causal = is_causal;
        a.dropout_p = is_causal ? 0.2 : 0;
        check_all(sets, a);
      }
}

void test_dropout(const Sets& sets) {
  uint64_t seed = 0;
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const double p : {1e-3, 0.1, 0.5, 1.})
      for (const int64_t k : {7, 49, 257}) {
        AttentionCase a;
        a.seed = ++seed;
        a.type = type;
        a.alphas = alphas_of(type);
        a.k = k;
        a.dropout_p = p;
        check_all(sets, a);
      }
}

void test_slopes(const Sets& sets) {
  uint64_t seed = 0;
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const int64_t q : {1, 49, 257})
      for (const int64_t k : {24, 64, 257}) {
        AttentionCase a;
        a.seed = ++seed;
        a.type = type;
        a.alphas = alphas_of(type);
        a.batch = 1;
        a.q = q;
        a.k = k;
        a.has_slopes = true;
        a.is_causal = seed % 2 == 0;
        check_all(sets, a);
      }
}

// NaN stays in its row, and in what sums over rows.
void test_not_a_number(const Sets& sets) {
  uint64_t seed = 0;
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const double alpha : alphas_of(type))
      for (const int64_t k : {7, 65, 300})
        for (const bool is_causal : {false, true}) {
          AttentionCase a;
          a.seed = ++seed;
          a.type = type;
          a.alphas = {alpha};
          a.heads = a.groups = 2;
          a.q = 29;
          a.k = k;
          a.has_nan = true;
          a.is_causal = is_causal;
          a.has_slopes = seed % 2 == 0;
          a.dropout_p = seed % 5 == 0 ? 0.3 : 0;
          if (seed % 3 == 0) a.mask_kind = seed % 2 ? MaskKind::kBool : MaskKind::kAdded;
          check_all(sets, a);
        }
}

// Everything at once.
AttentionCase any_case(uint64_t seed) {
  Random random(seed);
  AttentionCase a;
  a.seed = seed;
  a.type = random.below(3) == 0 ? Type::kFloat64 : Type::kFloat32;
  a.alphas = alphas_of(a.type);
  a.alpha_dims = static_cast<unsigned>(random.below(8));
  a.batch = 1 + random.below(3);
  a.groups = 1 + random.below(3);
  a.heads = a.groups * (1 + random.below(3));
  const int64_t longest = a.batch * a.heads > 4 ? 8 : 14;
  a.q = kSizes[random.below(longest)];
  a.k = kSizes[random.below(longest)];
  if (a.q * a.k > 10000) a.batch = a.heads = a.groups = 1;
  a.d = kDims[random.below(std::size(kDims))];
  a.e = kDims[random.below(std::size(kDims))];
  a.spread = pick(Doubles{1, 3, 0.1}, random.bits());
  a.layout = pick(kLayouts, random.bits());
  a.mask_kind = static_cast<MaskKind>(random.below(3));
  a.mask_dims = static_cast<unsigned>(random.below(16));
  a.is_mask_transposed = random.below(2);
  a.is_causal = random.below(2);
  a.has_slopes = random.below(2);
  if (random.below(2))
    for (int64_t b = 0; b < a.batch; ++b) a.key_lengths.push_back(random.below(a.k + 2));
  a.dropout_p = random.below(3) ? 0 : 0.3;
  a.dense_share = pick(kDenseShares, random.bits());
  a.row_limit = pick(std::vector<int64_t>{0, 1, 3, 20, kNoLimit}, random.bits());
  return a;
}

void test_any(const Sets& sets) {
  int64_t rows = 0, kinks = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const AttentionProblem problem(any_case(seed));
    for (const Kernels* kernels : sets) check_all(*kernels, problem);
    rows += problem.rows();
    kinks += problem.kinks;
  }
  CHECK(20 * kinks < rows, "%lld of %lld rows are without gradient", static_cast<long long>(kinks),
        static_cast<long long>(rows));
}

void test_limits_change_nothing(const Sets& sets) {
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const double alpha : {1., 1.05, 1.5, 2.})
      for (const int64_t k : {49, 300}) {
        AttentionCase a;
        a.seed = static_cast<uint64_t>(k);
        a.type = type;
        a.alphas = {alpha};
        a.batch = 1;
        a.q = 100;
        a.k = k;
        a.spread = 3;
        const AttentionProblem problem(a);
        for (const Kernels* kernels : sets) {
          const std::string text = kernels->name + (" " + problem.text());
          const auto all = run_forward(*kernels, problem, Wanted::kOutput, kNoLimit);
          for (const int64_t limit : {0, 1, 2, 5, 10, 40}) {
            const auto some = run_forward(*kernels, problem, Wanted::kOutput, limit);
            CHECK(some->out == all->out && some->state == all->state && some->counts == all->counts,
                  "%s: with limit %lld the result is another", text.c_str(),
                  static_cast<long long>(limit));
            check_blocks(text, problem, *some, limit, false);
            const auto support = run_forward(*kernels, problem, Wanted::kSupport, limit);
            check_blocks(text, problem, *support, limit, true);
          }
        }
      }
}

void test_threads_change_nothing(const Sets& sets) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    AttentionCase a = any_case(1000 + seed);
    a.row_limit = 20;
    // Masks whose gradients of many rows or heads fall on the same numbers; several chunks.
    if (seed % 3 == 0)
      a.mask_kind = MaskKind::kAdded, a.mask_dims = static_cast<unsigned>(seed / 3 * 5 % 16);
    if (seed % 3 == 1) a.q = 700, a.k = 25, a.batch = 1, a.heads = a.groups = 2;
    if (!a.key_lengths.empty()) a.key_lengths.assign(static_cast<size_t>(a.batch), a.k / 2);
    const AttentionProblem problem(a);
    for (const Kernels* kernels : sets) {
      const std::string text = kernels->name + (" " + problem.text());
      const auto is_dense = [](int64_t head) { return head % 2 == 0; };
      const auto one = run_forward(*kernels, problem, Wanted::kSupport, kNoLimit);
      const auto one_out = run_forward(*kernels, problem, Wanted::kOutput, a.row_limit);
      const Support support(problem, *one, is_dense);
      const BackwardResult first = run_backward(*kernels, problem, one->state, support, true);
      const BackwardResult bare = run_backward(*kernels, problem, one->state, support, false);
      for (const int threads : {1, 2, 5}) {
        for (const Wanted wanted : {Wanted::kOutput, Wanted::kSupport}) {
          const bool is_out = wanted == Wanted::kOutput;
          const auto result = run_forward(*kernels, problem, wanted,
                                          is_out ? a.row_limit : kNoLimit, threads);
          const ForwardResult& expected = is_out ? *one_out : *one;
          CHECK(result->out == expected.out && result->state == expected.state &&
                    result->has_same_support(expected, precision(a.type).bytes),
                "%s: %d threads give another result", text.c_str(), threads);
        }
        const auto again = [&](bool with_all) {
          return run_backward(*kernels, problem, one->state, support, with_all, threads);
        };
        CHECK(again(true) == first && again(false) == bare,
              "%s: %d threads give other gradients", text.c_str(), threads);
      }
    }
  }
}

// No batches, queries, keys or features: sums of nothing are zero.
void test_empty(const Sets& sets) {
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (int64_t AttentionCase::*size : {&AttentionCase::batch, &AttentionCase::q,
                                         &AttentionCase::k, &AttentionCase::d, &AttentionCase::e})
      for (const double dropout_p : {0., 0.3}) {
        AttentionCase a;
        a.type = type;
        a.*size = 0;
        a.dropout_p = dropout_p;
        check_all(sets, a);
      }
}

// Measures: nothing comes of it.
void test_only_scores(const Sets& sets) {
  for (uint64_t seed = 2000; seed < 2020; ++seed) {
    const AttentionProblem problem(any_case(seed));
    for (const Kernels* kernels : sets) {
      adasparse::AttentionForward call = forward_call(problem, 2);
      call.is_scores_only = true;
      kernels->attention_forward(call);
      CHECK(true, "%s", kernels->name);
    }
  }
}

}  // namespace

void test_attention(const Sets& sets) {
  test_empty(sets);
  test_only_scores(sets);
  test_many_heads(sets);
  test_sizes(sets);
  test_long(sets);
  test_broad(sets);
  test_masks(sets);
  test_key_lengths(sets);
  test_dropout(sets);
  test_slopes(sets);
  test_not_a_number(sets);
  test_limits_change_nothing(sets);
  test_threads_change_nothing(sets);
  test_any(sets);
}

}  // namespace kernel_tests
