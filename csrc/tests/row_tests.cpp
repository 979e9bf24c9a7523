// Tests of the row operators and losses against plain formulas in double, for every instruction
// set.
#include <iterator>
#include <stdexcept>
#include <string>
#include <tuple>

#include "dispatch.h"
#include "reference.h"

namespace kernel_tests {
namespace {

using adasparse::Kernels;

constexpr Type kTypes[] = {Type::kFloat32, Type::kFloat64, Type::kBFloat16, Type::kFloat16};
constexpr double kAlphas[] = {1, 1 + 1e-6, 1.05, 1.4, 1.5, 1.9, 2, 3, 0.5};

// Gradients through weights below the normal numbers are right to this and no further: sigma of
// such a weight is up to 2^(-126 (2 - alpha)).
constexpr double kTiny = 1e-22;

// ---------------------------------------------------------------- reference

// (1 + (y - 1) e^y) / y^2, by its series where that would cancel.
double first_tail(double y) {
  if (std::fabs(y) >= 1) return (1 + (y - 1) * std::exp(y)) / (y * y);
  double term = 0.5, sum = 0.5;  // y^k / (k + 2)!, times k + 1
  for (int k = 1; k < 23; ++k) sum += (k + 1) * (term *= y / (k + 2));
  return sum;
}

// max_p <p, s> - Omega(p) minus the maximum, and its derivative with respect to alpha at the p that
// attains it.
Sum conjugate(const Doubles& scores, const Solved& solved, double alpha) {
  const double eps = alpha - 1;
  Sum out;
  for (size_t j = 0; j < scores.size(); ++j)
    if (solved.p[j] > 0) {
      const double p = solved.p[j], log_p = std::log(p);
      out.add(p * (scores[j] - solved.max));
      out.add(-p * (eps == 0 ? log_p : std::expm1(eps * log_p) / eps) / alpha);
    }
  return out;
}
Sum conjugate_by_alpha(const Solved& solved, double alpha) {
  const double eps = alpha - 1;
  Sum out;
  for (const double p : solved.p)
    if (p > 0) {
      const double log_p = std::log(p);
      out.add(-p * log_p * log_p * first_tail(eps * log_p) / alpha);
      out.add(p * (eps == 0 ? log_p : std::expm1(eps * log_p) / eps) / (alpha * alpha));
    }
  return out;
}

// ---------------------------------------------------------------- problems

// Rows of scores of many kinds, and their reference.
struct Problem {
  Type type;
  int64_t rows, n;
  Doubles alpha;  // one, or one per row
  uint64_t seed;
  Array scores;
  std::vector<Doubles> row;
  std::vector<Solved> solved;

  Problem(Type type, int64_t rows, int64_t n, Doubles alpha, uint64_t seed)
      : type(type),
        rows(rows),
        n(n),
        alpha(std::move(alpha)),
        seed(seed),
        scores(type, rows * n, lead()) {
    Random random(seed);
    for (int64_t i = 0; i < rows; ++i) {
      row.push_back(make_row(random));
      for (int64_t j = 0; j < n; ++j) {
        scores.set(i * n + j, row[i][j]);
        row[i][j] = scores[i * n + j];
      }
    }
  }
  void solve_all() {
    for (int64_t i = 0; i < rows; ++i) solved.push_back(solve(row[i], alpha_of(i)));
  }

  int64_t lead() const { return (rows + n) % 2; }
  int64_t stride() const { return alpha.size() > 1; }
  double alpha_of(int64_t i) const { return alpha[i * stride()]; }
  std::string text(const Kernels& kernels, int64_t i) const {
    char out[160];
    std::snprintf(out, sizeof out, "%s %s, alpha %.7g, row %lld of %lld, n %lld, seed %llu",
                  kernels.name, precision(type).name, alpha_of(i), static_cast<long long>(i),
                  static_cast<long long>(rows), static_cast<long long>(n),
                  static_cast<unsigned long long>(seed));
    return out;
  }

 private:
  static double odd_nan() {  // with a payload, in double and in float
    const uint64_t bits = 0xFFF80000E0000007u;
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }
  Doubles make_row(Random& random) const {
    Doubles s(static_cast<size_t>(n));
    const int64_t any = random.below(n), other = random.below(n);
    for (double& x : s) x = random.normal();
    switch (random.below(16)) {
      case 0:
      case 1:
      case 2:
        break;
      case 3:
        for (double& x : s) x *= 5;
        break;
      case 4:
        for (double& x : s) x *= 0.01;
        break;
      case 5:
        for (double& x : s) x = random.uniform() < 0.5 ? -kInfinity : x;
        break;
      case 6:
        std::fill(s.begin(), s.end(), -kInfinity);
        break;
      case 7:
        std::fill(s.begin(), s.end(), -kInfinity);
        s[any] = 3;
        s[other] = 2.5;
        break;
      case 8:
        std::fill(s.begin(), s.end(), s[0]);
        break;
      case 9:
        for (double& x : s) x = 1e4 * (2 * random.uniform() - 1);
        break;
      case 10:
        for (double& x : s) x = x < 0 ? -1e4 : 1e4;
        break;
      case 11:
        for (double& x : s) x += 1e3;
        break;
      case 12:
        s[any] = random.uniform() < 0.5 ? kNaN : odd_nan();
        break;
      case 13:
        s[any] = kInfinity;
        s[other] = random.below(2) ? kInfinity : -kInfinity;
        break;
      case 14:
        s[any] = precision(type).largest;
        s[other] = -precision(type).largest;
        break;
      case 15:
        std::sort(s.begin(), s.end());
        break;
    }
    return s;
  }
};

// Whether `got` is `want` as well as the type can say, up to `slack`.
bool is_near(double got, double want, double slack, const Precision& limits) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  const double error = slack + 1.01 * limits.rounding * std::fabs(want) + limits.smallest;
  if (std::isinf(got)) return std::fabs(want) + error >= limits.largest && (got > 0) == (want > 0);
  return std::fabs(got - want) <= error;
}

// ---------------------------------------------------------------- entmax

adasparse::EntmaxForward forward_call(const Problem& problem, Array& weights, int threads = 1) {
  return {.type = problem.type,
          .scores = problem.scores.data(),
          .weights = weights.data(),
          .alpha = problem.alpha.data(),
          .alpha_stride = problem.stride(),
          .rows = problem.rows,
          .n = problem.n,
          .threads = threads};
}

void check_forward(const Kernels& kernels, const Problem& problem) {
  const int64_t n = problem.n;
  const Precision& limits = precision(problem.type);
  Array weights(problem.type, problem.rows * n, problem.lead());
  kernels.entmax_forward(forward_call(problem, weights));
  CHECK(weights.is_intact(), "%s: wrote outside its memory", problem.text(kernels, 0).c_str());
  for (int64_t i = 0; i < problem.rows; ++i) {
    const Solved& solved = problem.solved[i];
    const double eps = problem.alpha_of(i) - 1;
    double total = 0;
    int64_t wrong = -1, nonzero = -1;
    for (int64_t j = 0; j < n; ++j) {
      const double got = weights[i * n + j], want = solved.p[j];
      total += got;
      bool is_good = is_near(got, want, limits.forward, limits);
      // Above alpha = 2 the slope at the edge is infinite: what counts there is p^eps.
      if (!is_good && eps > 1)
        is_good = std::fabs(std::pow(got, eps) - std::pow(want, eps)) <= limits.forward;
      if (!is_good) wrong = j;
      const double base = 1 + eps * (problem.row[i][j] - solved.max - solved.c);
      const bool is_outside = problem.row[i][j] == -kInfinity || base < -limits.forward;
      if (std::isfinite(solved.max) && is_outside && got != 0) nonzero = j;
    }
    const int64_t at = std::max<int64_t>(wrong, 0);
    CHECK(wrong < 0, "%s: weight %lld is %.17g, not %.17g", problem.text(kernels, i).c_str(),
          static_cast<long long>(wrong), weights[i * n + at], solved.p[at]);
    CHECK(nonzero < 0, "%s: weight %lld is outside the support and not zero",
          problem.text(kernels, i).c_str(), static_cast<long long>(nonzero));
    if (std::isfinite(solved.max))
      CHECK(std::fabs(total - 1) <=
                limits.forward + limits.rounding + static_cast<double>(n) * limits.smallest,
            "%s: the weights sum to 1 + %g", problem.text(kernels, i).c_str(), total - 1);
  }
}

void check_backward(const Kernels& kernels, const Problem& problem) {
  const int64_t rows = problem.rows, n = problem.n;
  const Precision& limits = precision(problem.type);
  Array weights(problem.type, rows * n, problem.lead()), grad(problem.type, rows * n);
  std::vector<Gradient> expected;
  Random random(problem.seed + 1);
  for (int64_t i = 0; i < rows; ++i) {
    Doubles p(static_cast<size_t>(n)), g(static_cast<size_t>(n));
    for (int64_t j = 0; j < n; ++j) {
      weights.set(i * n + j, problem.solved[i].p[j]);
      grad.set(i * n + j, random.normal());
      p[j] = weights[i * n + j];
      g[j] = grad[i * n + j];
      // What comes in outside the support must stay without effect, whatever it is.
      if (p[j] == 0 && j % 3 == 0) grad.set(i * n + j, j % 2 ? kNaN : kInfinity);
    }
    expected.push_back(entmax_gradient(p, g, problem.alpha_of(i)));
  }
  for (const bool with_alpha : {false, true}) {
    Array grad_scores(problem.type, rows * n, problem.lead()), grad_alpha(Type::kFloat64, rows);
    kernels.entmax_backward({problem.type, weights.data(), grad.data(), grad_scores.data(),
                             with_alpha ? static_cast<double*>(grad_alpha.data()) : nullptr,
                             problem.alpha.data(), problem.stride(), rows, n, 1});
    CHECK(grad_scores.is_intact() && grad_alpha.is_intact(), "%s: wrote outside its memory",
          problem.text(kernels, 0).c_str());
    for (int64_t i = 0; i < rows; ++i) {
      int64_t wrong = -1;
      for (int64_t j = 0; j < n; ++j) {
        const Sum& want = expected[i].scores[j];
        const double got = grad_scores[i * n + j];
        if (!is_near(got, want.value, limits.gradient * want.size + kTiny, limits)) wrong = j;
        if (problem.solved[i].p[j] == 0 && got != 0) wrong = j;
      }
      const int64_t at = std::max<int64_t>(wrong, 0);
      CHECK(wrong < 0, "%s: gradient with respect to score %lld is %.17g, not %.17g",
            problem.text(kernels, i).c_str(), static_cast<long long>(wrong),
            grad_scores[i * n + at], expected[i].scores[at].value);
      if (!with_alpha) continue;
      const Sum& want = expected[i].alpha;
      CHECK(is_near(grad_alpha[i], want.value, limits.gradient * want.size + kTiny,
                    precision(Type::kFloat64)),
            "%s: gradient with respect to alpha is %.17g, not %.17g",
            problem.text(kernels, i).c_str(), grad_alpha[i], want.value);
    }
  }
}

// ---------------------------------------------------------------- loss

// One kind of target for every row of a problem.
struct Targets {
  static constexpr int kKinds = 6;
  static constexpr int64_t kIgnored = -100;
  std::vector<int64_t> index;
  Array probability, weight;
  adasparse::Target target;

  Targets(const Problem& problem, int kind)
      : index(static_cast<size_t>(problem.rows)),
        probability(problem.type, problem.rows * problem.n, problem.lead()),
        weight(problem.type, problem.n) {
    const int64_t n = problem.n;
    const bool is_dense = kind >= 4, has_weight = kind % 2 == 1, is_smooth = kind >= 2 && kind != 4;
    Random random(problem.seed + 2);
    for (int64_t i = 0; i < problem.rows; ++i) {
      index[i] = random.below(5) == 0 ? kIgnored : random.below(n);
      Doubles q(static_cast<size_t>(n));
      double total = 0;
      for (double& x : q) total += x = random.below(2) == 0 ? 0 : random.uniform();
      for (int64_t j = 0; j < n; ++j) probability.set(i * n + j, total > 0 ? q[j] / total : 0);
    }
    for (int64_t j = 0; j < n; ++j) weight.set(j, j % 7 == 3 ? 0 : 0.5 + random.uniform());
    target = {is_dense ? nullptr : index.data(), is_dense ? probability.data() : nullptr,
              has_weight ? weight.data() : nullptr, kIgnored, is_smooth ? 0.1 : 0};
  }
  bool is_ignored(int64_t i) const { return target.index && index[i] == kIgnored; }
  double mass(const Problem& problem, int64_t i, int64_t k) const {
    const double chosen = target.index ? index[i] == k : probability[i * problem.n + k];
    const double q =
        (1 - target.smoothing) * chosen + target.smoothing / static_cast<double>(problem.n);
    return target.weight ? weight[k] * q : q;
  }
};

struct LossResult {
  Array loss, state, grad_scores, grad_alpha;
  explicit LossResult(const Problem& problem)
      : loss(Type::kFloat64, problem.rows),
        state(Type::kFloat64, problem.rows * adasparse::kRowState),
        grad_scores(problem.type, problem.rows * problem.n, problem.lead()),
        grad_alpha(Type::kFloat64, problem.rows) {}
  bool is_intact() const {
    return loss.is_intact() && state.is_intact() && grad_scores.is_intact() &&
           grad_alpha.is_intact();
  }
  bool operator==(const LossResult& other) const {
    return loss == other.loss && state == other.state && grad_scores == other.grad_scores &&
           grad_alpha == other.grad_alpha;
  }
};

LossResult run_loss(const Kernels& kernels, const Problem& problem, const Targets& targets,
                    const Doubles& grad, bool with_alpha, int threads = 1) {
  LossResult out(problem);
  double* state = static_cast<double*>(out.state.data());
  kernels.loss_forward({problem.type, problem.scores.data(), static_cast<double*>(out.loss.data()),
                        state, targets.target, problem.alpha.data(), problem.stride(), problem.rows,
                        problem.n, threads});
  kernels.loss_backward(
      {problem.type, problem.scores.data(), state, grad.data(), out.grad_scores.data(),
       with_alpha ? static_cast<double*>(out.grad_alpha.data()) : nullptr, targets.target,
       problem.alpha.data(), problem.stride(), problem.rows, problem.n, threads});
  return out;
}

void check_loss(const Kernels& kernels, const Problem& problem, int kind) {
  const int64_t n = problem.n;
  const Precision& limits = precision(problem.type);
  const Precision& wide = precision(Type::kFloat64);
  const Targets targets(problem, kind);
  Doubles grad;
  Random random(problem.seed + 3);
  for (int64_t i = 0; i < problem.rows; ++i) grad.push_back(random.normal());
  const LossResult got = run_loss(kernels, problem, targets, grad, true);
  const LossResult without_alpha = run_loss(kernels, problem, targets, grad, false);
  CHECK(got.is_intact() && without_alpha.is_intact(), "%s: wrote outside its memory",
        problem.text(kernels, 0).c_str());
  CHECK(got.grad_scores == without_alpha.grad_scores,
        "%s, target %d: gradients of scores depend on whether those of alpha are asked for",
        problem.text(kernels, 0).c_str(), kind);

  for (int64_t i = 0; i < problem.rows; ++i) {
    const Solved& solved = problem.solved[i];
    const bool is_ignored = targets.is_ignored(i), is_nan = std::isnan(solved.max);
    Doubles mass(static_cast<size_t>(n), 0.);
    double total = 0;
    for (int64_t k = 0; k < n && !is_ignored; ++k) total += mass[k] = targets.mass(problem, i, k);

    Sum loss, by_alpha;
    if (is_nan && !is_ignored) loss.value = by_alpha.value = kNaN;
    if (std::isinf(solved.max) && !is_ignored) loss.value = kInfinity;
    if (std::isfinite(solved.max)) {
      const Sum top = conjugate(problem.row[i], solved, problem.alpha_of(i));
      loss.add(total * top.value, total * (top.size + 1));
      for (int64_t k = 0; k < n; ++k)
        if (mass[k] != 0) loss.add(-mass[k] * (problem.row[i][k] - solved.max));
      const Sum slope = conjugate_by_alpha(solved, problem.alpha_of(i));
      by_alpha.add(grad[i] * total * slope.value, std::fabs(grad[i]) * total * slope.size);
    }
    double slack = limits.forward * std::min(loss.size, wide.largest);
    CHECK(is_near(got.loss[i], loss.value, slack, wide),
          "%s, target %d: the loss is %.17g, not %.17g", problem.text(kernels, i).c_str(), kind,
          got.loss[i], loss.value);
    slack = limits.gradient * by_alpha.size + limits.forward * std::fabs(grad[i]) * total;
    CHECK(is_near(got.grad_alpha[i], by_alpha.value, slack, wide),
          "%s, target %d: the loss's gradient with respect to alpha is %.17g, not %.17g",
          problem.text(kernels, i).c_str(), kind, got.grad_alpha[i], by_alpha.value);

    int64_t wrong = -1;
    double want = 0;
    for (int64_t k = 0; k < n; ++k) {
      double expected = grad[i] * (total * solved.p[k] - mass[k]);
      slack = 2 * limits.forward * std::fabs(grad[i]) * (total + mass[k]);
      if (is_ignored) expected = slack = 0;
      // As in the forward pass: at the edge, p is known as well as p^eps.
      if (problem.alpha_of(i) > 2)
        slack +=
            std::fabs(grad[i]) * total * std::pow(limits.forward, 1 / (problem.alpha_of(i) - 1));
      if (is_near(got.grad_scores[i * n + k], expected, slack, limits)) continue;
      wrong = k;
      want = expected;
    }
    CHECK(wrong < 0,
          "%s, target %d: the loss's gradient with respect to score %lld is %.17g, not %.17g",
          problem.text(kernels, i).c_str(), kind, static_cast<long long>(wrong),
          got.grad_scores[i * n + std::max<int64_t>(wrong, 0)], want);
  }
}

// ---------------------------------------------------------------- the tests

TEST(rows_against_reference) {
  constexpr int64_t sizes[] = {1,  2,  7,  8,   9,   15,  16,  17,  31,   33,
                               63, 64, 65, 100, 127, 128, 129, 257, 1000, 4099};
  uint64_t seed = 0;
  for (const Type type : kTypes)
    for (const double alpha : kAlphas)
      for (const int64_t n : sizes) {
        const int64_t rows = n <= 17 ? 37 : n <= 129 ? 19 : n <= 1000 ? 10 : 5;
        Problem problem(type, rows, n, {alpha}, ++seed);
        problem.solve_all();
        for (const Kernels* kernels : sets()) {
          check_forward(*kernels, problem);
          check_backward(*kernels, problem);
          check_loss(*kernels, problem, static_cast<int>(seed % Targets::kKinds));
        }
      }
}

TEST(every_number_of_rows) {
  for (const double alpha : {1., 1.3, 1.5})
    for (const int64_t n : {5, 33})
      for (int64_t rows = 1; rows <= 40; ++rows)
        for (const Type type : {Type::kFloat32, Type::kFloat16}) {
          Problem problem(type, rows, n, {alpha}, static_cast<uint64_t>(1000 * rows + n));
          problem.solve_all();
          for (const Kernels* kernels : sets()) check_forward(*kernels, problem);
        }
}

// Runs of equal alphas that end anywhere within a group of rows.
Doubles mixed_alphas(int64_t rows) {
  constexpr int runs[] = {1, 2, 3, 17, 1, 1, 9, 16, 5, 8};
  Doubles alpha;
  for (size_t run = 0; static_cast<int64_t>(alpha.size()) < rows; ++run)
    alpha.insert(alpha.end(), static_cast<size_t>(runs[run % std::size(runs)]),
                 kAlphas[run * 3 % std::size(kAlphas)]);
  alpha.resize(static_cast<size_t>(rows));
  return alpha;
}

TEST(alpha_per_row) {
  for (const Type type : kTypes)
    for (const int64_t n : {1, 5, 17, 64, 65, 130, 515}) {
      const int64_t rows = 79;
      Problem problem(type, rows, n, mixed_alphas(rows), static_cast<uint64_t>(n));
      problem.solve_all();
      for (const Kernels* kernels : sets()) {
        check_forward(*kernels, problem);
        check_backward(*kernels, problem);
        for (int kind = 0; kind < Targets::kKinds; ++kind) check_loss(*kernels, problem, kind);
      }
    }
}

// A row comes out the same whichever rows are beside it.
TEST(rows_are_independent) {
  for (const Type type : kTypes)
    for (const int64_t n : {3, 64, 65, 130}) {
      const int64_t rows = 40;
      const Problem problem(type, rows, n, mixed_alphas(rows), static_cast<uint64_t>(n));
      const size_t bytes = static_cast<size_t>(n) * precision(type).bytes;
      const auto row_of = [&](const Array& all, int64_t i) {
        return static_cast<unsigned char*>(all.data()) + static_cast<size_t>(i) * bytes;
      };
      Array grad(type, rows * n);
      Random random(9);
      for (int64_t i = 0; i < rows * n; ++i) grad.set(i, random.normal());
      for (const Kernels* kernels : sets()) {
        Array together(type, rows * n), alone(type, n);
        kernels->entmax_forward(forward_call(problem, together));
        Array by_scores(type, rows * n), by_alpha(Type::kFloat64, rows);
        Array by_scores_alone(type, n), by_alpha_alone(Type::kFloat64, 1);
        const auto backward = [&](const void* weights, const void* from, Array& to, Array& alpha_to,
                                  const double* alpha, int64_t stride, int64_t count) {
          kernels->entmax_backward({type, weights, from, to.data(),
                                    static_cast<double*>(alpha_to.data()), alpha, stride, count, n,
                                    1});
        };
        backward(together.data(), grad.data(), by_scores, by_alpha, problem.alpha.data(), 1, rows);
        for (int64_t i = 0; i < rows; ++i) {
          kernels->entmax_forward(
              {type, row_of(problem.scores, i), alone.data(), &problem.alpha[i], 0, 1, n, 1});
          CHECK(std::memcmp(alone.data(), row_of(together, i), bytes) == 0,
                "%s: differs from the row alone", problem.text(*kernels, i).c_str());
          backward(row_of(together, i), row_of(grad, i), by_scores_alone, by_alpha_alone,
                   &problem.alpha[i], 0, 1);
          const auto* of_alpha = static_cast<const double*>(by_alpha.data()) + i;
          CHECK(std::memcmp(by_scores_alone.data(), row_of(by_scores, i), bytes) == 0 &&
                    std::memcmp(by_alpha_alone.data(), of_alpha, sizeof(double)) == 0,
                "%s: gradients differ from those of the row alone",
                problem.text(*kernels, i).c_str());
        }
      }
    }
}

TEST(threads_do_not_change_rows) {
  struct Shape {
    int64_t rows, n;
  };
  for (const Type type : kTypes)
    for (const Shape shape : {Shape{3000, 33}, Shape{131, 1000}, Shape{50, 4099}}) {
      const Problem problem(type, shape.rows, shape.n, mixed_alphas(shape.rows), 7);
      const Targets targets(problem, 3);
      Random random(8);
      Doubles grad;
      for (int64_t i = 0; i < shape.rows; ++i) grad.push_back(random.normal());
      Array by_weights(type, shape.rows * shape.n);
      for (int64_t i = 0; i < shape.rows * shape.n; ++i) by_weights.set(i, random.normal());
      const auto result = [&](const Kernels& kernels, int threads) {
        Array weights(type, shape.rows * shape.n), grad_scores(type, shape.rows * shape.n);
        Array grad_alpha(Type::kFloat64, shape.rows);
        kernels.entmax_forward(forward_call(problem, weights, threads));
        kernels.entmax_backward({type, weights.data(), by_weights.data(), grad_scores.data(),
                                 static_cast<double*>(grad_alpha.data()), problem.alpha.data(),
                                 problem.stride(), shape.rows, shape.n, threads});
        return std::make_tuple(std::move(weights), std::move(grad_scores), std::move(grad_alpha),
                               run_loss(kernels, problem, targets, grad, true, threads));
      };
      for (const Kernels* kernels : sets()) {
        const auto one = result(*kernels, 1);
        for (const int threads : {1, 2, 3, 5})
          CHECK(result(*kernels, threads) == one, "%s: %d threads give another result",
                problem.text(*kernels, 0).c_str(), threads);
      }
    }
}

TEST(empty_rows) {
  const double alpha = 1.5;
  for (const Kernels* kernels : sets())
    for (const Type type : kTypes) {
      const Array nothing(type, 0);
      Array grad_alpha(Type::kFloat64, 3);
      for (const int64_t n : {0, 5}) {
        const int64_t rows = n == 0 ? 3 : 0;
        kernels->entmax_forward({type, nothing.data(), nothing.data(), &alpha, 0, rows, n, 2});
        kernels->entmax_backward({type, nothing.data(), nothing.data(), nothing.data(),
                                  static_cast<double*>(grad_alpha.data()), &alpha, 0, rows, n, 2});
      }
      CHECK(nothing.is_intact() && grad_alpha.is_intact(), "%s: wrote outside nothing",
            kernels->name);
      CHECK(grad_alpha[0] == 0 && grad_alpha[1] == 0 && grad_alpha[2] == 0,
            "%s: rows without scores have a gradient with respect to alpha", kernels->name);
    }
}

TEST(names_of_instruction_sets) {
#if defined(__aarch64__)
  const char* const least = "neon";
#else
  const char* const least = "baseline";
#endif
  const auto names = adasparse::available_isas();
  CHECK(!names.empty() && names.back() == least, "%s is missing", least);
  for (const auto& name : names)
    CHECK(adasparse::kernels_named(name).name == name, "%s has another name", name.c_str());
  std::string message;
  try {
    adasparse::kernels_named("abacus");
  } catch (const std::invalid_argument& error) {
    message = error.what();
  }
  const auto mentions = [&](const char* text) { return message.find(text) != std::string::npos; };
  CHECK(mentions(least) && mentions("'abacus'"), "an unknown name gives the message \"%s\"",
        message.c_str());
}

}  // namespace
}  // namespace kernel_tests
