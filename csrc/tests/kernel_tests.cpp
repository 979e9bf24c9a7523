// Tests of the kernels against plain formulas in double, without a framework.
//
// Compiled once as it is, for the kernels of every instruction set behind their table of
// functions; and once per instruction set with its flags and a name in ADASPARSE_ISA, for the
// vector primitives underneath. Those objects use nothing of std:: that another one could share.
#include <cstdio>

#include "tests.h"

#if defined(ADASPARSE_ISA)
// ================================================================ primitives of one set

#include "loss.h"

#define ADASPARSE_QUOTE(name) #name
#define ADASPARSE_NAME(name) ADASPARSE_QUOTE(name)

namespace adasparse {
namespace ADASPARSE_ISA {
namespace {

using kernel_tests::Half;
using kernel_tests::Random;

constexpr const char* kIsa = ADASPARSE_NAME(ADASPARSE_ISA);

template <class T>
T from_bits(typename Lanes<T>::Int bits) {
  T x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// How far `got` is off, in units of the last place of a T at the exact value.
template <class T>
double units_off(T got, long double exact) {
  using Limits = std::numeric_limits<T>;
  if (static_cast<long double>(got) == exact) return 0;
  int exponent = Limits::min_exponent - 1;
  if (std::fabs(exact) >= static_cast<long double>(Limits::min())) exponent = std::ilogb(exact);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - exact) /
                             std::ldexp(1.L, exponent - Limits::digits + 1));
}

// Applies a vector function to whole vectors of arguments and keeps the worst result.
template <class T>
class Accuracy {
 public:
  Accuracy(Vec<T> (*vector)(Vec<T>), long double (*exact)(long double))
      : vector_(vector), exact_(exact) {}
  void add(T x) {
    pending_[count_++] = x;
    if (count_ == Lanes<T>::count) flush();
  }
  void check(const char* name, double bound) {
    while (count_ != 0) add(pending_[0]);
    CHECK(worst_ <= bound, "%s %s<%s>(%a) is %g units off, more than %g", kIsa, name,
          sizeof(T) == 4 ? "float" : "double", static_cast<double>(at_), worst_, bound);
  }

 private:
  void flush() {
    T got[Lanes<T>::count];
    store(got, vector_(load(pending_)));
    for (int i = 0; i < Lanes<T>::count; ++i) {
      const double off = units_off(got[i], exact_(static_cast<long double>(pending_[i])));
      if (!(off <= worst_)) {
        worst_ = off;
        at_ = pending_[i];
      }
    }
    count_ = 0;
  }
  Vec<T> (*vector_)(Vec<T>);
  long double (*exact_)(long double);
  T pending_[Lanes<T>::count];
  int count_ = 0;
  double worst_ = 0;
  T at_ = 0;
};

template <class T>
void test_exp() {
  constexpr bool is_float = sizeof(T) == 4;
  const T lowest = is_float ? T(-104.5) : T(-746), highest = is_float ? T(88) : T(709);
  Accuracy<T> accuracy([](Vec<T> x) -> Vec<T> { return exp(x); },
                       [](long double x) { return std::exp(x); });
  constexpr int steps = 100000;
  for (int i = 0; i <= steps; ++i)
    accuracy.add(lowest + (highest - lowest) * (T(i) / T(steps)));
  for (int i = 0; i <= steps; ++i) accuracy.add(T(-40) * (T(i) / T(steps)));
  // Results below the normal numbers, densely.
  for (int i = 0; i <= steps; ++i) accuracy.add(lowest * (1 - T(0.2) * (T(i) / T(steps))));
  for (T x = T(0.4); x > std::numeric_limits<T>::min(); x *= T(0.7)) {
    accuracy.add(x);
    accuracy.add(-x);
  }
  accuracy.check("exp", 1.5);

  constexpr T infinity = std::numeric_limits<T>::infinity();
  for (const T x : {-infinity, std::numeric_limits<T>::lowest(), T(-1e30), T(-800)})
    for (int lane = 0; lane < Lanes<T>::count; ++lane) {
      Vec<T> v{};
      v[lane] = x;
      const Vec<T> y = exp(v);
      bool is_one_elsewhere = true;
      for (int i = 0; i < Lanes<T>::count; ++i) is_one_elsewhere &= i == lane || y[i] == 1;
      CHECK(y[lane] == 0 && is_one_elsewhere, "%s exp(%g) in lane %d", kIsa,
            static_cast<double>(x), lane);
    }
  using Int = typename Lanes<T>::Int;
  constexpr Int quiet = is_float ? Int(0x7FC00000) : Int(0x7FF8000000000000);
  constexpr Int sign = std::numeric_limits<Int>::min();
  for (const Int payload : {Int(0), Int(1), Int(2), Int(0x1FF), Int(0x3FFFFF)})
    for (const Int bits : {Int(quiet | payload), Int(quiet | payload | sign)}) {
      const Vec<T> y = exp(broadcast<T>(from_bits<T>(bits)));
      CHECK(std::isnan(y[0]), "%s exp<%s> of the NaN %llx is %g", kIsa,
            is_float ? "float" : "double", static_cast<long long>(bits),
            static_cast<double>(y[0]));
    }
}

template <class T>
void test_log() {
  using Int = typename Lanes<T>::Int;
  constexpr bool is_float = sizeof(T) == 4;
  Accuracy<T> log([](Vec<T> x) -> Vec<T> { return log_positive(x); },
                  [](long double x) { return std::log(x); });
  Accuracy<T> log1p([](Vec<T> x) -> Vec<T> { return log1p_positive(x); },
                    [](long double x) { return std::log1p(x); });
  Random random(1);
  const Int first = is_float ? Int(0x00800000) : Int(0x0010000000000000);
  const Int last = is_float ? Int(0x7F7FFFFF) : Int(0x7FEFFFFFFFFFFFFF);
  for (int i = 0; i < 100000; ++i) {
    const T x = from_bits<T>(static_cast<Int>(first + random.below(last - first)));
    log.add(x);
    log1p.add(x);
    if (x < 1) log1p.add(-x);
  }
  log.add(from_bits<T>(first));
  log.add(from_bits<T>(last));
  for (int i = 0; i < 100000; ++i) {
    log.add(T(0.5) + T(i) * T(2e-5));
    log1p.add(T(-0.5) + T(i) * T(2e-5));
  }
  const T step = std::numeric_limits<T>::epsilon() / 2;
  for (int i = 1; i < 10000; ++i) {
    log.add(1 + 2 * step * T(i));
    log.add(1 - step * T(i));
    log1p.add(-1 + step * T(i));  // the edge of the support
    log1p.add(step * T(i));
    log1p.add(-step * T(i));
  }
  log.check("log_positive", 3);
  log1p.check("log1p_positive", 3);
}

template <class T>
void test_lanes() {
  constexpr int width = Lanes<T>::count;
  T numbers[width];
  for (int i = 0; i < width; ++i) numbers[i] = T(1 << i);
  const Vec<T> v = load(numbers);
  CHECK(sum_lanes<T>(v) == T((1 << width) - 1), "%s sum_lanes", kIsa);
  for (int lane = 0; lane < width; ++lane) {
    Vec<T> w = -v;
    w[lane] = T(0.5);
    CHECK(max_lanes<T>(w) == T(0.5), "%s max_lanes, lane %d", kIsa, lane);
    CHECK(bits(greater(w, Vec<T>{})) == 1u << lane, "%s greater, lane %d", kIsa, lane);
    w[lane] = std::numeric_limits<T>::quiet_NaN();
    CHECK(bits(is_nan(w)) == 1u << lane, "%s is_nan, lane %d", kIsa, lane);
    CHECK(!any(greater(w, Vec<T>{})), "%s greater is true of NaN in lane %d", kIsa, lane);
  }
  const Vec<T> root = sqrt(v * v);
  CHECK(!any(greater(root, v)) && !any(greater(v, root)), "%s sqrt", kIsa);

  for (int used = 0; used <= width; ++used) {
    CHECK(bits(first_lanes<T>(used)) == (1u << used) - 1, "%s first_lanes(%d)", kIsa, used);
    T* exact = new T[static_cast<size_t>(used)];  // so that AddressSanitizer sees its end
    for (int i = 0; i < used; ++i) exact[i] = numbers[i];
    const Vec<T> part = load_part(exact, used, T(-7));
    bool is_right = true;
    for (int i = 0; i < width; ++i) is_right &= part[i] == (i < used ? numbers[i] : T(-7));
    CHECK(is_right, "%s load_part of %d", kIsa, used);
    store_part(exact, -v, used);
    for (int i = 0; i < used; ++i) is_right &= exact[i] == -numbers[i];
    CHECK(is_right, "%s store_part of %d", kIsa, used);
    delete[] exact;
  }
  const Vec<T> chosen = select(first_lanes<T>(1), v, -v);
  CHECK(chosen[0] == numbers[0] && chosen[width - 1] == -numbers[width - 1], "%s select", kIsa);

  Vec<T> rows[width];
  for (int i = 0; i < width; ++i)
    for (int j = 0; j < width; ++j) rows[i][j] = T(i * width + j);
  transpose<T>(rows);
  bool is_transposed = true;
  for (int i = 0; i < width; ++i)
    for (int j = 0; j < width; ++j) is_transposed &= rows[i][j] == T(j * width + i);
  CHECK(is_transposed, "%s transpose", kIsa);
}

template <class T>
void test_compress() {
  constexpr int width = Lanes<T>::count;
  Vec<T> v, zero{};
  for (int i = 0; i < width; ++i) v[i] = T(i + 1);
  T* packed = new T[width];  // a whole vector may be written and nothing more
  int wrong = -1;
  for (int mask = 0; mask < 1 << width; ++mask) {
    Vec<T> is_chosen{};
    for (int i = 0; i < width; ++i) is_chosen[i] = T(mask >> i & 1);
    const int got = compress_store<T>(packed, greater(is_chosen, zero), v);
    int expected = 0;
    bool is_right = true;
    for (int i = 0; i < width; ++i)
      if (mask >> i & 1) is_right &= packed[expected++] == v[i];
    if (!is_right || got != expected) wrong = mask;
  }
  delete[] packed;
  CHECK(wrong < 0, "%s compress_store of the lanes %x", kIsa, static_cast<unsigned>(wrong));
}

bool same_or_nan(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

template <class IO>
void test_half(const Half& format, const char* name) {
  volatile int all = 65536;  // not a constant, which sends GCC's loop warnings astray
  const int count = all;
  IO* halves = new IO[count];
  IO* back = new IO[count];
  float* floats = new float[count];
  for (int i = 0; i < count; ++i) halves[i].bits = static_cast<uint16_t>(i);
  const auto expect_same = [&](const char* what, int size) {
    int wrong = -1;
    for (int i = 0; i < size; ++i)
      if (!same_or_nan(format.decode(back[i].bits),
                       format.decode(format.encode(static_cast<double>(floats[i])))))
        wrong = i;
    CHECK(wrong < 0, "%s %s: %s of %a", kIsa, name, what,
          static_cast<double>(floats[wrong < 0 ? 0 : wrong]));
  };

  widen_row(halves, count, floats);
  int wrong = -1;
  for (int i = 0; i < count; ++i) {
    const double exact = format.decode(halves[i].bits);
    if (!same_or_nan(floats[i], exact) || !same_or_nan(widen(halves[i]), exact)) wrong = i;
  }
  CHECK(wrong < 0, "%s %s: widening %x", kIsa, name, static_cast<unsigned>(wrong));
  narrow_row(floats, count, back);
  expect_same("the way there and back", count);

  // Between every two neighbors: the middle, and a float to either side of it.
  for (const float nudge : {-1.f, 0.f, 1.f}) {
    for (int i = 0; i < count; ++i) {
      const uint16_t bits = static_cast<uint16_t>(i);
      const uint16_t next = static_cast<uint16_t>(i + 1);
      const double middle = 0.5 * (format.decode(bits) + format.decode(next));
      const float rounded = static_cast<float>(middle);
      floats[i] = nudge == 0 ? rounded : std::nextafterf(rounded, nudge * 3e38f);
    }
    narrow_row(floats, count, back);
    expect_same("rounding in a row", count);
    for (int i = 0; i < count; ++i) narrow(floats[i], back + i);
    expect_same("rounding one by one", count);
  }
  Random random(2);
  for (int i = 0; i < count; ++i)
    floats[i] = from_bits<float>(static_cast<int32_t>(random.bits()));
  narrow_row(floats, count, back);
  expect_same("rounding any float", count);
#if defined(__FLT16_MAX__)
  if (format.mantissa_bits == 10) {
    __extension__ typedef _Float16 Native;
    wrong = -1;
    for (int i = 0; i < count; ++i)
      if (!same_or_nan(format.decode(back[i].bits), static_cast<float>(Native(floats[i]))))
        wrong = i;
    CHECK(wrong < 0, "%s %s: the compiler rounds %a otherwise", kIsa, name,
          static_cast<double>(floats[wrong < 0 ? 0 : wrong]));
  }
#endif
  // Every length, within memory of that size.
  for (int size = 0; size < 40; ++size) {
    IO* from = new IO[static_cast<size_t>(size)];
    float* wide = new float[static_cast<size_t>(size)];
    for (int i = 0; i < size; ++i) from[i].bits = static_cast<uint16_t>(0x3000 + 37 * i);
    widen_row(from, size, wide);
    for (int i = 0; i < size; ++i) from[i].bits = 0;
    narrow_row(wide, size, from);
    bool is_right = true;
    for (int i = 0; i < size; ++i) is_right &= from[i].bits == 0x3000 + 37 * i;
    CHECK(is_right, "%s %s: a row of %d", kIsa, name, size);
    delete[] from;
    delete[] wide;
  }
  delete[] halves;
  delete[] back;
  delete[] floats;
}

}  // namespace

void test_primitives() {
  test_exp<float>();
  test_exp<double>();
  test_log<float>();
  test_log<double>();
  test_lanes<float>();
  test_lanes<double>();
  test_compress<float>();
  test_compress<double>();
  test_half<BFloat16>(kernel_tests::kBFloat16Format, "bfloat16");
  test_half<Float16>(kernel_tests::kFloat16Format, "float16");
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse

#else
// ================================================================ kernels of every set

#include <cstdarg>
#include <iterator>
#include <stdexcept>
#include <string>
#include <tuple>

#include "dispatch.h"
#include "reference.h"

namespace adasparse {
namespace test_baseline {
void test_primitives();
}
#if defined(ADASPARSE_X86)
namespace test_avx2 {
void test_primitives();
}
namespace test_avx512 {
void test_primitives();
}
#endif
}  // namespace adasparse

namespace kernel_tests {

void test_attention(const Sets& sets);

namespace {
int64_t passed = 0, failed = 0;
}

bool count(bool is_good) {
  ++(is_good ? passed : failed);
  return is_good;
}

void print_failure(const char* file, int line, const char* format, ...) {
  if (failed > 100) return;
  std::printf("FAILED %s:%d: ", file, line);
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::printf("\n");
  if (failed == 100) std::printf("(further failures are counted, not printed)\n");
}

namespace {

using adasparse::Kernels;

constexpr Type kTypes[] = {Type::kFloat32, Type::kFloat64, Type::kBFloat16, Type::kFloat16};
constexpr double kAlphas[] = {1, 1 + 1e-6, 1.05, 1.5, 1.9, 2, 3, 0.5};

// Gradients through weights below the normal numbers are right to this and no further.
constexpr double kTiny = 1e-35;

// ---------------------------------------------------------------- reference

// (1 + (y - 1) e^y) / y^2, by its series where that would cancel.
double first_tail(double y) {
  if (std::fabs(y) >= 1) return (1 + (y - 1) * std::exp(y)) / (y * y);
  double term = 0.5, sum = 0.5;  // y^k / (k + 2)!, times k + 1
  for (int k = 1; k < 23; ++k) sum += (k + 1) * (term *= y / (k + 2));
  return sum;
}

// max_p <p, s> - Omega(p) less the maximum, and its derivative by alpha at the p that attains it.
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
      : type(type), rows(rows), n(n), alpha(std::move(alpha)), seed(seed),
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
      case 0: case 1: case 2: break;
      case 3: for (double& x : s) x *= 5; break;
      case 4: for (double& x : s) x *= 0.01; break;
      case 5: for (double& x : s) x = random.uniform() < 0.5 ? -kInfinity : x; break;
      case 6: std::fill(s.begin(), s.end(), -kInfinity); break;
      case 7: std::fill(s.begin(), s.end(), -kInfinity); s[any] = 3; s[other] = 2.5; break;
      case 8: std::fill(s.begin(), s.end(), s[0]); break;
      case 9: for (double& x : s) x = 1e4 * (2 * random.uniform() - 1); break;
      case 10: for (double& x : s) x = x < 0 ? -1e4 : 1e4; break;
      case 11: for (double& x : s) x += 1e3; break;
      case 12: s[any] = random.uniform() < 0.5 ? kNaN : odd_nan(); break;
      case 13: s[any] = kInfinity; s[other] = random.below(2) ? kInfinity : -kInfinity; break;
      case 14: s[any] = precision(type).largest; s[other] = -precision(type).largest; break;
      case 15: std::sort(s.begin(), s.end()); break;
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
  return {problem.type, problem.scores.data(), weights.data(), problem.alpha.data(),
          problem.stride(), problem.rows, problem.n, threads};
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
      CHECK(std::fabs(total - 1) <= limits.forward + limits.rounding +
                                        static_cast<double>(n) * limits.smallest,
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
      CHECK(wrong < 0, "%s: gradient by score %lld is %.17g, not %.17g",
            problem.text(kernels, i).c_str(), static_cast<long long>(wrong),
            grad_scores[i * n + at], expected[i].scores[at].value);
      if (!with_alpha) continue;
      const Sum& want = expected[i].alpha;
      CHECK(is_near(grad_alpha[i], want.value, limits.gradient * want.size + kTiny,
                    precision(Type::kFloat64)),
            "%s: gradient by alpha is %.17g, not %.17g", problem.text(kernels, i).c_str(),
            grad_alpha[i], want.value);
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
                        state, targets.target, problem.alpha.data(), problem.stride(),
                        problem.rows, problem.n, threads});
  kernels.loss_backward({problem.type, problem.scores.data(), state, grad.data(),
                         out.grad_scores.data(),
                         with_alpha ? static_cast<double*>(out.grad_alpha.data()) : nullptr,
                         targets.target, problem.alpha.data(), problem.stride(), problem.rows,
                         problem.n, threads});
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
        "%s, target %d: gradients by scores depend on whether those by alpha are wanted",
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
          "%s, target %d: the loss's gradient by alpha is %.17g, not %.17g",
          problem.text(kernels, i).c_str(), kind, got.grad_alpha[i], by_alpha.value);

    int64_t wrong = -1;
    double want = 0;
    for (int64_t k = 0; k < n; ++k) {
      double expected = grad[i] * (total * solved.p[k] - mass[k]);
      slack = 2 * limits.forward * std::fabs(grad[i]) * (total + mass[k]);
      if (is_ignored) expected = slack = 0;
      // As in the forward pass: at the edge, p is known as well as p^eps.
      if (problem.alpha_of(i) > 2)
        slack += std::fabs(grad[i]) * total *
                 std::pow(limits.forward, 1 / (problem.alpha_of(i) - 1));
      if (is_near(got.grad_scores[i * n + k], expected, slack, limits)) continue;
      wrong = k;
      want = expected;
    }
    CHECK(wrong < 0, "%s, target %d: the loss's gradient by score %lld is %.17g, not %.17g",
          problem.text(kernels, i).c_str(), kind, static_cast<long long>(wrong),
          got.grad_scores[i * n + std::max<int64_t>(wrong, 0)], want);
  }
}

// ---------------------------------------------------------------- the tests

void test_against_reference(const Sets& sets) {
  constexpr int64_t sizes[] = {1,  2,  7,   8,   9,   15,  16,  17,  31,   33,
                               63, 64, 65, 100, 127, 128, 129, 257, 1000, 4099};
  uint64_t seed = 0;
  for (const Type type : kTypes)
    for (const double alpha : kAlphas)
      for (const int64_t n : sizes) {
        const int64_t rows = n <= 17 ? 37 : n <= 129 ? 19 : n <= 1000 ? 10 : 5;
        Problem problem(type, rows, n, {alpha}, ++seed);
        problem.solve_all();
        for (const Kernels* kernels : sets) {
          check_forward(*kernels, problem);
          check_backward(*kernels, problem);
          check_loss(*kernels, problem, static_cast<int>(seed % Targets::kKinds));
        }
      }
}

void test_every_number_of_rows(const Sets& sets) {
  for (const double alpha : {1., 1.3, 1.5})
    for (const int64_t n : {5, 33})
      for (int64_t rows = 1; rows <= 40; ++rows)
        for (const Type type : {Type::kFloat32, Type::kFloat16}) {
          Problem problem(type, rows, n, {alpha}, static_cast<uint64_t>(1000 * rows + n));
          problem.solve_all();
          for (const Kernels* kernels : sets) check_forward(*kernels, problem);
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

void test_alpha_per_row(const Sets& sets) {
  for (const Type type : kTypes)
    for (const int64_t n : {1, 5, 17, 64, 65, 130, 515}) {
      const int64_t rows = 79;
      Problem problem(type, rows, n, mixed_alphas(rows), static_cast<uint64_t>(n));
      problem.solve_all();
      for (const Kernels* kernels : sets) {
        check_forward(*kernels, problem);
        check_backward(*kernels, problem);
        for (int kind = 0; kind < Targets::kKinds; ++kind) check_loss(*kernels, problem, kind);
      }
    }
}

// A row comes out the same whichever rows are beside it.
void test_rows_are_independent(const Sets& sets) {
  for (const Type type : kTypes)
    for (const int64_t n : {3, 64, 65, 130}) {
      const int64_t rows = 40;
      const Problem problem(type, rows, n, mixed_alphas(rows), static_cast<uint64_t>(n));
      const size_t bytes = static_cast<size_t>(n) * precision(type).bytes;
      const auto row_of = [&](const Array& all, int64_t i) {
        return static_cast<unsigned char*>(all.data()) + static_cast<size_t>(i) * bytes;
      };
      for (const Kernels* kernels : sets) {
        Array together(type, rows * n), alone(type, n);
        kernels->entmax_forward(forward_call(problem, together));
        for (int64_t i = 0; i < rows; ++i) {
          kernels->entmax_forward({type, row_of(problem.scores, i), alone.data(),
                                   &problem.alpha[i], 0, 1, n, 1});
          CHECK(std::memcmp(alone.data(), row_of(together, i), bytes) == 0,
                "%s: differs from the row alone", problem.text(*kernels, i).c_str());
        }
      }
    }
}

void test_threads_change_nothing(const Sets& sets) {
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
      for (const Kernels* kernels : sets) {
        const auto one = result(*kernels, 1);
        for (const int threads : {1, 2, 3, 5})
          CHECK(result(*kernels, threads) == one, "%s: %d threads give another result",
                problem.text(*kernels, 0).c_str(), threads);
      }
    }
}

void test_empty(const Sets& sets) {
  const double alpha = 1.5;
  for (const Kernels* kernels : sets)
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
            "%s: rows without scores have a gradient by alpha", kernels->name);
    }
}

void test_names() {
  const auto names = adasparse::available_isas();
  CHECK(!names.empty() && names.back() == "baseline", "the baseline is missing");
  for (const auto& name : names)
    CHECK(adasparse::kernels_named(name).name == name, "%s has another name", name.c_str());
  std::string message;
  try {
    adasparse::kernels_named("abacus");
  } catch (const std::invalid_argument& error) {
    message = error.what();
  }
  const auto mentions = [&](const char* text) { return message.find(text) != std::string::npos; };
  CHECK(mentions("baseline") && mentions("'abacus'"),
        "an unknown name gives the message \"%s\"", message.c_str());
}

void test_primitives(const Sets& sets) {
  for (const Kernels* kernels : sets) {
    const std::string name = kernels->name;
    if (name == "baseline") adasparse::test_baseline::test_primitives();
#if defined(ADASPARSE_X86)
    if (name == "avx2") adasparse::test_avx2::test_primitives();
    if (name == "avx512") adasparse::test_avx512::test_primitives();
#endif
  }
}

}  // namespace
}  // namespace kernel_tests

int main() {
  using namespace kernel_tests;
  Sets sets;
  std::printf("instruction sets:");
  for (const auto& name : adasparse::available_isas()) {
    sets.push_back(&adasparse::kernels_named(name));
    std::printf(" %s", name.c_str());
  }
  std::printf("\n");
  test_names();
  test_primitives(sets);
  test_empty(sets);
  test_every_number_of_rows(sets);
  test_alpha_per_row(sets);
  test_rows_are_independent(sets);
  test_threads_change_nothing(sets);
  test_against_reference(sets);
  test_attention(sets);
  std::printf("%lld passed, %lld failed\n", static_cast<long long>(passed),
              static_cast<long long>(failed));
  return failed == 0 ? 0 : 1;
}

#endif
