// Tests of the vector primitives, compiled once per instruction set with its flags and a name in
// ADASPARSE_ISA. These objects use nothing of std:: that another one could share.
#include <cstdio>

#include "isa_tests.h"

#include "loss.h"  // for all below it
#include "matrix.h"

namespace adasparse {
namespace ADASPARSE_ISA {
namespace {

using kernel_tests::Half;
using kernel_tests::Random;

template <class T>
T from_bits(typename Lanes<T>::Int bits) {
  T x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// Results are compared with those of long double. Where that is computed by software (quadruple
// precision, on Arm), arguments are fewer; where it is no wider than T (Windows, macOS on Arm), its
// own error counts.
constexpr int kArguments = std::numeric_limits<long double>::digits > 64 ? 10000 : 100000;
template <class T>
constexpr double kErrorOfExact =
    std::numeric_limits<long double>::digits > std::numeric_limits<T>::digits ? 0 : 1;

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
    bound += kErrorOfExact<T>;
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
  constexpr int steps = kArguments;
  for (int i = 0; i <= steps; ++i) accuracy.add(lowest + (highest - lowest) * (T(i) / T(steps)));
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
      CHECK(y[lane] == 0 && is_one_elsewhere, "%s exp(%g) in lane %d", kIsa, static_cast<double>(x),
            lane);
    }
  using Int = typename Lanes<T>::Int;
  constexpr Int quiet = is_float ? Int(0x7FC00000) : Int(0x7FF8000000000000);
  constexpr Int sign = std::numeric_limits<Int>::min();
  for (const Int payload : {Int(0), Int(1), Int(2), Int(0x1FF), Int(0x3FFFFF)})
    for (const Int bits : {Int(quiet | payload), Int(quiet | payload | sign)}) {
      const Vec<T> y = exp(broadcast<T>(from_bits<T>(bits)));
      CHECK(std::isnan(y[0]), "%s exp<%s> of the NaN %llx is %g", kIsa,
            is_float ? "float" : "double", static_cast<long long>(bits), static_cast<double>(y[0]));
    }
}

template <class T>
void test_log() {
  using Int = typename Lanes<T>::Int;
  constexpr bool is_float = sizeof(T) == 4;
  Accuracy<T> log([](Vec<T> x) -> Vec<T> { return log_positive(x); },
                  [](long double x) { return std::log(x); });
  const auto log_of_power = [](Vec<T> x) -> Vec<T> {
    Vec<T> log_x;
    power_of<Vec<T>>(x, T(0.5), log_x);
    return log_x;
  };
  Accuracy<T> other(log_of_power, [](long double x) { return std::log(x); });
  Accuracy<T> log1p([](Vec<T> x) -> Vec<T> { return log1p_positive(x); },
                    [](long double x) { return std::log1p(x); });
  Random random(1);
  const Int first = is_float ? Int(0x00800000) : Int(0x0010000000000000);
  const Int last = is_float ? Int(0x7F7FFFFF) : Int(0x7FEFFFFFFFFFFFFF);
  for (int i = 0; i < kArguments; ++i) {
    const T x = from_bits<T>(static_cast<Int>(first + random.below(last - first)));
    log.add(x);
    other.add(x);
    log1p.add(x);
    if (x < 1) log1p.add(-x);
  }
  log.add(from_bits<T>(first));
  log.add(from_bits<T>(last));
  for (int i = 0; i < kArguments; ++i) {
    log.add(T(0.5) + T(i) * T(2e-5));
    other.add(T(0.5) + T(i) * T(2e-5));
    log1p.add(T(-0.5) + T(i) * T(2e-5));
  }
  const T step = std::numeric_limits<T>::epsilon() / 2;
  for (int i = 1; i < 10000; ++i) {
    log.add(1 + 2 * step * T(i));
    log.add(1 - step * T(i));
    other.add(1 + 2 * step * T(i));
    other.add(1 - step * T(i));
    log1p.add(-1 + step * T(i));  // the edge of the support
    log1p.add(step * T(i));
    log1p.add(-step * T(i));
  }
  log.check("log_positive", 3);
  other.check("the logarithm of power_of", 3);
  log1p.check("log1p_positive", 3);
}

// (1 + x)^power where the result is a normal number: the errors of the logarithm and of the product
// grow with the exponent of the result.
template <class T>
void test_power() {
  constexpr T lowest = sizeof(T) == 4 ? T(-85) : T(-700);
  Random random(3);
  double worst = 0;
  T worst_x = 0, worst_power = 0;
  for (int i = 0; i < 2 * kArguments; ++i) {
    const T power = static_cast<T>(std::exp(7 * random.uniform()) / 10);  // 0.1 to 110
    const T x = static_cast<T>(std::expm1(-10 * random.uniform()));
    const long double exact_log =
        static_cast<long double>(power) * std::log1p(static_cast<long double>(x));
    if (exact_log < lowest) continue;
    const Vec<T> got = power_of_1p<Vec<T>>(broadcast<T>(x), power);
    const double bound = 2 + 5 * std::fabs(static_cast<double>(exact_log));
    const double off = units_off(got[0], std::exp(exact_log)) / bound;
    if (off > worst) worst = off, worst_x = x, worst_power = power;
  }
  CHECK(worst <= 1, "%s power_of_1p(%a, %a) is off by %g of its bound", kIsa,
        static_cast<double>(worst_x), static_cast<double>(worst_power), worst);
}

// Weights of alpha = 1 + 1/m, which are products, where they are normal numbers.
template <class T>
void test_whole_powers() {
  constexpr T lowest = sizeof(T) == 4 ? T(-85) : T(-700);
  Random random(4);
  for (int m = 3; m <= 20; ++m) {
    const double eps = 1 + 1. / m - 1;
    const GeneralMap<T> map(eps);
    CHECK(map.is_cheap(), "%s alpha = 1 + 1/%d", kIsa, m);
    double worst = 0;
    T worst_z = 0;
    for (int i = 0; i < kArguments / 10; ++i) {
      const T z = static_cast<T>(m * std::expm1(-10 * random.uniform()));
      // As rounded: near the edge of the support, p is steep.
      const volatile T x = z * static_cast<T>(eps);
      const long double exact_log = std::log1p(static_cast<long double>(x)) * m;
      if (!(exact_log > lowest)) continue;
      Vec<T> p, sigma;
      map.eval(broadcast<T>(z), Vec<T>{}, p, sigma);
      const double bound = 2 + m / 2. + 5 * std::fabs(static_cast<double>(exact_log));
      const double off = units_off(p[0], std::exp(exact_log)) / bound;
      const double slope = units_off(sigma[0], std::exp(exact_log * (m - 1) / m)) / bound;
      if (larger(off, slope) > worst) worst = larger(off, slope), worst_z = z;
    }
    CHECK(worst <= 1, "%s weights at alpha = 1 + 1/%d, %a are off by %g of their bound", kIsa, m,
          static_cast<double>(worst_z), worst);
  }
}

void test_rough_exp() {
  double worst = 0;
  for (int i = 0; i <= 80000; ++i) {
    const float x = -static_cast<float>(i) / 1000;
    const double exact = std::exp(static_cast<double>(x));
    const double off =
        std::fabs(static_cast<double>(rough_exp(broadcast<float>(x))[0]) / exact - 1);
    if (off > worst) worst = off;
  }
  CHECK(worst <= 0.04, "%s rough_exp is off by %g", kIsa, worst);
  CHECK(rough_exp(broadcast<float>(-1000.f))[0] < 1e-30f, "%s rough_exp(-1000)", kIsa);
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
    // The way back, from memory that ends with the last chosen lane.
    T* chosen = new T[static_cast<size_t>(expected)];
    for (int i = 0; i < expected; ++i) chosen[i] = packed[i];
    const Vec<T> expanded = expand_load<T>(chosen, greater(is_chosen, zero));
    for (int i = 0; i < width; ++i) is_right &= expanded[i] == (mask >> i & 1 ? v[i] : T(0));
    delete[] chosen;
    if (!is_right || got != expected) wrong = mask;
  }
  delete[] packed;
  CHECK(wrong < 0, "%s compress_store or expand_load of the lanes %x", kIsa,
        static_cast<unsigned>(wrong));
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
  for (int i = 0; i < count; ++i) floats[i] = from_bits<float>(static_cast<int32_t>(random.bits()));
  narrow_row(floats, count, back);
  expect_same("rounding any float", count);
#if defined(__FLT16_MAX__)
  if (format.mantissa_bits == 10) {
#if defined(__aarch64__)
    typedef __fp16 Native;  // GCC 12 has no _Float16 here in C++
#else
    __extension__ typedef _Float16 Native;
#endif
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

// Matrices of small whole numbers, whose products are exact in any order.
template <class T>
struct Numbers {
  Numbers(Random& random, int64_t size) : data(size) {
    for (int64_t i = 0; i < size; ++i) data.get()[i] = static_cast<T>(random.below(15) - 7);
  }
  Scratch<T> data;
  T at(int64_t i) const { return data.get()[i]; }
};

// add_product of `a`, or of its transpose, and multiply_panels, for tiles that are full and not.
template <class T>
void test_products_of(Random& random, int64_t rows, int64_t vectors, int64_t steps) {
  const int64_t columns = vectors * Lanes<T>::count, a_row = steps + 3, a_step = rows + 5;
  const int64_t row = columns + 1, size = rows * row;
  const Numbers<T> a(random, rows * a_row), transposed(random, steps * a_step);
  const Numbers<T> b(random, steps * columns), old(random, size);
  const Numbers<T> sum(random, size), by_transposed(random, size);
  std::memcpy(sum.data.get(), old.data.get(), sizeof(T) * static_cast<size_t>(size));
  std::memcpy(by_transposed.data.get(), old.data.get(), sizeof(T) * static_cast<size_t>(size));
  add_product(a.data.get(), a_row, One{}, b.data.get(), columns, sum.data.get(), row, rows, columns,
              steps);
  add_product(transposed.data.get(), One{}, a_step, b.data.get(), columns, by_transposed.data.get(),
              row, rows, columns, steps);
  const int64_t panels = round_up(steps, kPanel<T>) / kPanel<T>, wide = panels * kPanel<T>;
  const int64_t d = columns;  // of rows of b, as keys
  Scratch<T> packed(panels * kPanel<T> * d), scores(rows * wide);
  const Numbers<T> queries(random, rows * d);
  pack_panels(b.data.get(), d, steps, d, packed.get());
  multiply_panels(queries.data.get(), d, packed.get(), d, T(2), scores.get(), wide, rows, panels);
  bool are_right = true;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < row; ++j) {
      T exact = old.at(i * row + j), exact_transposed = exact;
      for (int64_t t = 0; t < steps && j < columns; ++t) {
        exact += a.at(i * a_row + t) * b.at(t * columns + j);
        exact_transposed += transposed.at(t * a_step + i) * b.at(t * columns + j);
      }
      are_right &= sum.at(i * row + j) == exact;
      are_right &= by_transposed.at(i * row + j) == exact_transposed;
    }
    for (int64_t j = 0; j < wide; ++j) {
      T exact = 0;
      for (int64_t t = 0; t < d && j < steps; ++t)
        exact += 2 * queries.at(i * d + t) * b.at(j * d + t);
      are_right &= scores.get()[i * wide + j] == exact;
    }
  }
  CHECK(are_right, "%s: a product of %lld x %lld by %lld vectors", kIsa,
        static_cast<long long>(rows), static_cast<long long>(steps),
        static_cast<long long>(vectors));
}
template <class T>
void test_products() {
  Random random(1);
  for (int64_t rows = 1; rows <= 2 * kTileRows + 1; ++rows)
    for (int64_t vectors = 1; vectors <= 7; ++vectors)
      for (const int64_t steps : {1, 5, 33}) test_products_of<T>(random, rows, vectors, steps);
}

// ---------------------------------------------------------------- the tests

ISA_TEST(exp) {
  test_exp<float>();
  test_exp<double>();
}
ISA_TEST(log) {
  test_log<float>();
  test_log<double>();
}
ISA_TEST(power) {
  test_power<float>();
  test_power<double>();
  test_whole_powers<float>();
  test_whole_powers<double>();
}
ISA_TEST(products) {
  test_products<float>();
  test_products<double>();
}
ISA_TEST(rough_exp) { test_rough_exp(); }
ISA_TEST(lanes) {
  test_lanes<float>();
  test_lanes<double>();
}
ISA_TEST(compress) {
  test_compress<float>();
  test_compress<double>();
}
ISA_TEST(half_precision) {
  test_half<BFloat16>(kernel_tests::kBFloat16Format, "bfloat16");
  test_half<Float16>(kernel_tests::kFloat16Format, "float16");
}

}  // namespace
}  // namespace ADASPARSE_ISA
}  // namespace adasparse
