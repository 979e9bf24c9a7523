// Calls of the attention kernels, and checks of their results against the reference.
#pragma once

#include <utility>

#include "attention/arrange.h"
#include "attention_problem.h"

namespace kernel_tests {
namespace {

using adasparse::Kernels;
using adasparse::SupportBlock;

using adasparse::kNoRowLimit;

// ---------------------------------------------------------------- calls

double* doubles(const Array& array) { return static_cast<double*>(array.data()); }

struct ForwardResult {
  Array out, state, sinks;
  adasparse::SavedSupport support;

  ForwardResult(const AttentionProblem& problem, int threads)
      : out(problem.type, problem.rows() * problem.e),
        state(Type::kFloat64, problem.rows() * adasparse::kRowState),
        sinks(problem.computed(), problem.has_sinks ? problem.rows() : 0),
        support(problem.input(threads)) {
    std::fill(support.counts().begin(), support.counts().end(), -1);
  }
  bool has_same_support(const ForwardResult& other, size_t bytes) const {
    bool is_same = support.counts() == other.support.counts();
    for (size_t i = 0; i < support.blocks().size(); ++i) {
      const SupportBlock &mine = support.blocks()[i], &its = other.support.blocks()[i];
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
  auto result = std::make_unique<ForwardResult>(problem, threads);
  adasparse::AttentionForward call = forward_call(problem, threads);
  if (wanted == Wanted::kOutput)
    call.out = one_after_another(result->out, problem.heads, problem.q, problem.e);
  call.state = doubles(result->state);
  if (problem.has_sinks) call.sink_weights = result->sinks.data();
  call.counts = result->support.counts().data();
  call.blocks = result->support.blocks().data();
  call.row_limit = row_limit;
  kernels.attention_forward(call);
  return result;
}

// The support as backward takes it: all rows of heads that are not dense.
struct Support {
  std::vector<uint8_t> is_dense;
  std::vector<int64_t> offsets;
  std::vector<int32_t> index;
  Array weight;

  // Takes the support of a forward, with the heads that `choose` names as dense ones.
  template <class IsDense>
  Support(const AttentionProblem& problem, ForwardResult& from, const IsDense& choose)
      : offsets(static_cast<size_t>(problem.rows()) + 1), weight(problem.computed(), 0) {
    for (int64_t head = 0; head < problem.batch * problem.heads; ++head)
      is_dense.push_back(choose(head));
    is_dense.shrink_to_fit();
    const int64_t total = from.support.place(is_dense.data(), offsets.data());
    index.resize(static_cast<size_t>(total));
    weight = Array(problem.computed(), total);
    from.support.move(is_dense.data(), offsets.data(), index.data(), weight.data());
  }
};

struct BackwardResult {
  Array query, key, value, alpha, slopes, sinks, mask;
  explicit BackwardResult(const AttentionProblem& problem)
      : query(problem.type, static_cast<int64_t>(problem.by_query.value.size())),
        key(problem.type, static_cast<int64_t>(problem.by_key.value.size())),
        value(problem.type, static_cast<int64_t>(problem.by_value.value.size())),
        alpha(Type::kFloat64, problem.rows()),
        slopes(Type::kFloat64, problem.rows()),
        sinks(Type::kFloat64, static_cast<int64_t>(problem.by_sink.value.size())),
        mask(problem.computed(), static_cast<int64_t>(problem.by_mask.value.size())) {
    for (size_t i = 0; i < problem.by_mask.value.size(); ++i) mask.set(static_cast<int64_t>(i), 0);
  }
  bool is_intact() const {
    return query.is_intact() && key.is_intact() && value.is_intact() && alpha.is_intact() &&
           slopes.is_intact() && sinks.is_intact() && mask.is_intact();
  }
  bool operator==(const BackwardResult& other) const {
    return query == other.query && key == other.key && value == other.value &&
           alpha == other.alpha && slopes == other.slopes && sinks == other.sinks &&
           mask == other.mask;
  }
};

// From a call that holds what was saved for backward.
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
    call.grad_sinks = problem.has_sinks ? doubles(result.sinks) : nullptr;
    call.grad_mask = problem.has_bias() ? result.mask.data() : nullptr;
  }
  std::copy_n(problem.grad_mask_strides(), 4, call.grad_mask_strides);
  kernels.attention_backward(call);
  return result;
}

BackwardResult run_backward(const Kernels& kernels, const AttentionProblem& problem,
                            const ForwardResult& forward, const Support& support, bool with_all,
                            int threads = 1) {
  const bool is_empty = support.index.empty();  // as empty tensors of PyTorch: at no address
  adasparse::AttentionBackward call{};
  call.state = doubles(forward.state);
  if (problem.has_sinks) call.sink_weights = forward.sinks.data();
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
// Half precision differs from float by the rounding of what is written, and nothing else.
Bars bars_of(Type type) {
  if (type == Type::kFloat64) return {1e-10, 1e-10};
  return {2e-5 + (type == Type::kFloat32 ? 0 : 1.01 * precision(type).rounding), 1e-4};
}

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

// From the state of a row all its weights follow, but for alpha > 2 in double: backward solves such
// a row again.
void check_state(const std::string& text, const AttentionProblem& problem, const Array& state) {
  int64_t wrong = -1;
  for (int64_t row = 0; row < problem.rows(); ++row) {
    if (problem.is_double() && problem.alpha_of(row) > 2) continue;
    const double max = state[3 * row], c = state[3 * row + 1], scale = state[3 * row + 2];
    const auto seen = problem.visible(row);
    Doubles p;
    for (const double s : problem.scores(row)) {
      const bool is_out = s == -kInfinity || max == -kInfinity;
      const int64_t j = static_cast<int64_t>(p.size());
      const bool is_seen = j >= seen.first && j < seen.last;
      p.push_back(std::isnan(max) ? (is_seen ? kNaN : 0)
                  : is_out        ? 0
                                  : scale * weight_at(s - max - c, problem.alpha_of(row) - 1));
    }
    if (!is_row_near(p, problem.weights(row), bars_of(problem.computed()).tensor)) wrong = row;
  }
  const int64_t at = std::max<int64_t>(wrong, 0);
  CHECK(wrong < 0, "%s: the state of row %lld is %.9g, %.9g, %.9g", text.c_str(),
        static_cast<long long>(wrong), state[3 * at], state[3 * at + 1], state[3 * at + 2]);
}

// A support that was saved whole: columns in order, no weight of zero, and all that matter.
void check_support(const std::string& text, const AttentionProblem& problem,
                   const Support& support) {
  int64_t wrong = -1;
  for (int64_t row = 0; row < problem.rows(); ++row) {
    Doubles p(static_cast<size_t>(problem.k), 0.);
    double total = 0;
    int64_t last = -1;
    bool is_good = true;
    for (int64_t at = support.offsets[row]; at < support.offsets[row + 1]; ++at) {
      const int64_t j = support.index[at];
      is_good = is_good && j > last && j >= problem.visible(row).first &&
                j < problem.visible(row).last && support.weight[at] != 0;
      if (!is_good) break;
      total += p[j] = support.weight[at];
      last = j;
    }
    const double bar = bars_of(problem.computed()).tensor;
    is_good = is_good && is_row_near(p, problem.weights(row), bar) &&
              (last < 0 || !(std::fabs(total + problem.sink_weight(row) - 1) > bar));
    if (!is_good) wrong = row;
  }
  CHECK(wrong < 0, "%s: the support of row %lld is wrong", text.c_str(),
        static_cast<long long>(wrong));
}

// A block is saved whole or not at all. Returns whether a head has lost a block.
std::vector<bool> check_blocks(const std::string& text, const AttentionProblem& problem,
                               const ForwardResult& result, int64_t row_limit, bool is_exact) {
  const int64_t blocks = result.support.blocks_per_head(), q = problem.q;
  const std::vector<int64_t>& counts = result.support.counts();
  std::vector<bool> is_lost(static_cast<size_t>(problem.batch * problem.heads), false);
  int64_t wrong = -1;
  for (size_t i = 0; i < result.support.blocks().size(); ++i) {
    const SupportBlock& block = result.support.blocks()[i];
    const int64_t head = static_cast<int64_t>(i) / blocks;
    const int64_t first = static_cast<int64_t>(i) % blocks * adasparse::kBlockRows;
    const int64_t last = std::min(q, first + adasparse::kBlockRows);
    int64_t total = 0;
    for (int64_t row = head * q + first; row < head * q + last; ++row) {
      total += counts[row];
      if (counts[row] < 0) wrong = static_cast<int64_t>(i);
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
  const Bars bars = bars_of(problem.type), exact = bars_of(problem.computed());
  // Rows of NaN may reach keys that they do not see.
  const bool spares_nan = problem.has_nan && problem.is_causal;
  CHECK(got.is_intact(), "%s: wrote outside its memory", text.c_str());
  check_near(text, "gradient of query", got.query, problem.by_query, bars.tensor);
  check_near(text, "gradient of key", got.key, problem.by_key, bars.tensor, spares_nan);
  check_near(text, "gradient of value", got.value, problem.by_value, bars.tensor, spares_nan);
  if (!has_all) return;
  check_near(text, "gradient of alpha", got.alpha, problem.by_alpha, exact.alpha);
  check_near(text, "gradient of slope", got.slopes, problem.by_slope, exact.tensor);
  check_near(text, "gradient of sink", got.sinks, problem.by_sink, exact.tensor);
  if (problem.has_bias())
    check_near(text, "gradient of mask", got.mask, problem.by_mask, exact.tensor, spares_nan);
}

void check_all(const Kernels& kernels, const AttentionProblem& problem) {
  const std::string text = std::string(kernels.name) + " " + problem.text();
  const int64_t limit = problem.row_limit;
  const auto result = run_forward(kernels, problem, Wanted::kOutput, limit);
  const auto support = run_forward(kernels, problem, Wanted::kSupport, kNoRowLimit);
  CHECK(result->out.is_intact() && result->state.is_intact() && result->sinks.is_intact(),
        "%s: wrote outside its memory", text.c_str());
  check_near(text, "output", result->out, problem.out, bars_of(problem.type).tensor);
  check_near(text, "weight of the sink", result->sinks, problem.sink_weights,
             bars_of(problem.computed()).tensor);
  check_state(text, problem, result->state);
  CHECK(support->state == result->state && support->sinks == result->sinks,
        "%s: without the output, the state is another", text.c_str());
  const auto is_lost = check_blocks(text, problem, *result, limit, false);
  check_blocks(text, problem, *support, kNoRowLimit, true);

  Array alone(problem.type, problem.rows() * problem.e);
  adasparse::AttentionForward call = forward_call(problem, 1);
  call.out = one_after_another(alone, problem.heads, problem.q, problem.e);
  kernels.attention_forward(call);
  CHECK(alone == result->out, "%s: the output depends on what is saved", text.c_str());
  if (kernels.saves_weights(call.in)) {
    Array weights(problem.computed(), problem.rows() * problem.k);
    call.weights = weights.data();
    kernels.attention_forward(call);
    CHECK(weights.is_intact(), "%s: wrote outside its memory", text.c_str());
    CHECK(alone == result->out, "%s: whole weights change the output", text.c_str());
    adasparse::AttentionBackward kept{};
    kept.weights = weights.data();
    if (problem.has_sinks) kept.sink_weights = result->sinks.data();
    check_gradients(text + ", whole", problem, run_backward(kernels, problem, kept, true), true);
  }

  // A support moves away once arranged, so that each check takes one of its own.
  const auto check_with = [&](const char* what, ForwardResult& from, const auto& is_dense,
                              bool with_all) {
    const Support arranged(problem, from, is_dense);
    check_gradients(text + ", " + what, problem,
                    run_backward(kernels, problem, from, arranged, with_all), with_all);
  };
  const auto none = [](int64_t) { return false; };
  {
    const Support arranged(problem, *support, none);
    check_support(text, problem, arranged);
    check_gradients(text + ", sparse", problem,
                    run_backward(kernels, problem, *support, arranged, true), true);
  }
  const auto again = run_forward(kernels, problem, Wanted::kSupport, kNoRowLimit);
  const auto dense = run_forward(kernels, problem, Wanted::kOutput, limit);
  check_with("dense", *dense, [](int64_t) { return true; }, true);
  check_with("as saved", *result, [&](int64_t head) { return is_lost[head]; }, false);
  if (problem.batch * problem.heads > 1)
    check_with("mixed", *again, [](int64_t head) { return head % 3 == 1; }, true);
}

[[maybe_unused]] void check_all(const AttentionCase& asked) {
  const AttentionProblem problem(asked);
  for (const Kernels* kernels : sets()) check_all(*kernels, problem);
}

}  // namespace
}  // namespace kernel_tests
