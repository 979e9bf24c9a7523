// Shared by all C++ tests: CHECK, TEST, the formats of numbers, and random ones.
//
// This is included by objects compiled for different instruction sets. Each of them has its own
// copy of what is in the unnamed namespace, so that none runs the code of another.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace adasparse {
struct Kernels;
}

namespace kernel_tests {

// The kernels of every instruction set that this processor runs.
const std::vector<const adasparse::Kernels*>& sets();

bool count(bool is_good);  // returns what it is given
void print_failure(const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

// The message, formatted as by printf, is built only on failure.
#define CHECK(condition, ...)              \
  (kernel_tests::count(condition) ? void() \
                                  : kernel_tests::print_failure(__FILE__, __LINE__, __VA_ARGS__))

// A test with its name; `isa` is the instruction set it is compiled for, or null. Tests register
// themselves before main and run in the order of their names.
class Registration {
 public:
  Registration(const char* name, const char* isa, void (*run)());
};
#define TEST(name)                                                            \
  void name();                                                                \
  const kernel_tests::Registration name##_registration(#name, nullptr, name); \
  void name()

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A 16-bit format, in the plainest terms.
struct Half {
  int exponent_bits, mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  unsigned infinity() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }

  double decode(uint16_t bits) const {
    const double sign = bits & 0x8000u ? -1 : 1;
    const unsigned magnitude = bits & 0x7FFFu;
    if (magnitude > infinity()) return std::numeric_limits<double>::quiet_NaN();
    if (magnitude == infinity()) return sign * std::numeric_limits<double>::infinity();
    const int exponent = static_cast<int>(magnitude >> mantissa_bits);
    const int fraction = static_cast<int>(magnitude & ((1u << mantissa_bits) - 1));
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias() - mantissa_bits);
    return sign * std::ldexp(fraction + (1 << mantissa_bits), exponent - bias() - mantissa_bits);
  }
  // To the nearest, ties to even.
  uint16_t encode(double x) const {
    const unsigned sign = std::signbit(x) ? 0x8000u : 0u;
    const double magnitude = std::fabs(x);
    if (std::isnan(x)) return static_cast<uint16_t>(infinity() + 1);
    if (std::isinf(x)) return static_cast<uint16_t>(sign | infinity());
    const int lowest = 1 - bias();
    int exponent = lowest;
    if (magnitude >= std::ldexp(1., lowest)) exponent = std::ilogb(magnitude);
    // The leading one of the fraction counts as one in the exponent, and so does a carry.
    const double fraction = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
    const double bits = fraction + std::ldexp(exponent - lowest, mantissa_bits);
    const unsigned whole = bits < infinity() ? static_cast<unsigned>(bits) : infinity();
    return static_cast<uint16_t>(sign | whole);
  }
};
constexpr Half kBFloat16Format{8, 7}, kFloat16Format{5, 10};

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits() {  // splitmix64
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double normal() {
    return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform());
  }

 private:
  uint64_t state_;
};

}  // namespace
}  // namespace kernel_tests
