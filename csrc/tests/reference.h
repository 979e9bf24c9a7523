// Numbers in memory that is watched, and entmax by its formula in double.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels.h"
#include "tests.h"

namespace kernel_tests {

namespace {

using adasparse::Type;
using Doubles = std::vector<double>;

// The range of a type, and the accuracy that the kernels promise for it: they compute halves in
// float.
struct Precision {
  const char* name;
  size_t bytes;
  double rounding;  // relative error of storing a number
  double smallest, largest;
  double forward;   // absolute error of a probability, beyond rounding
  double gradient;  // relative error of the terms of a gradient, beyond rounding
};
const Precision& precision(Type type) {
  static const Precision table[] = {
      {"float32", 4, 0x1p-24, 0x1p-149, 3.4028234663852886e38, 1e-6, 1e-5},
      {"float64", 8, 0x1p-53, 0x1p-1074, std::numeric_limits<double>::max(), 2e-13, 3e-13},
      {"bfloat16", 2, 0x1p-8, 0x1p-133, 3.3895313892515355e38, 1e-6, 1e-5},
      {"float16", 2, 0x1p-11, 0x1p-24, 65504, 1e-6, 1e-5},
  };
  return table[static_cast<int>(type)];
}

#if defined(__has_feature)  // Clang
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kGuard = 0;  // AddressSanitizer sees the first byte beyond
#else
constexpr size_t kGuard = 64;
#endif
constexpr unsigned char kUnwritten = 0x4B;  // a large number in every type

// Numbers of a type in memory of exactly their size or, without AddressSanitizer, between bytes
// that must not change. They begin `lead` elements past an aligned address.
class Array {
 public:
  Array(Type type, int64_t size, int64_t lead = 0)
      : type_(type),
        begin_(kGuard + static_cast<size_t>(lead) * bytes()),
        end_(begin_ + static_cast<size_t>(size) * bytes()),
        memory_(new unsigned char[end_ + kGuard]) {
    std::memset(memory_.get(), kUnwritten, end_ + kGuard);
  }
  void* data() const { return memory_.get() + begin_; }
  double operator[](int64_t i) const {
    const unsigned char* at = memory_.get() + begin_ + static_cast<size_t>(i) * bytes();
    switch (type_) {
      case Type::kFloat32:
        return read<float>(at);
      case Type::kFloat64:
        return read<double>(at);
      case Type::kBFloat16:
        return kBFloat16Format.decode(read<uint16_t>(at));
      default:
        return kFloat16Format.decode(read<uint16_t>(at));
    }
  }
  void set(int64_t i, double x) {
    unsigned char* at = memory_.get() + begin_ + static_cast<size_t>(i) * bytes();
    switch (type_) {
      case Type::kFloat32:
        return write(at, static_cast<float>(x));
      case Type::kFloat64:
        return write(at, x);
      case Type::kBFloat16:
        return write(at, kBFloat16Format.encode(x));
      case Type::kFloat16:
        return write(at, kFloat16Format.encode(x));
    }
  }
  bool is_intact() const {
    for (size_t i = 0; i < begin_; ++i)
      if (memory_[i] != kUnwritten) return false;
    for (size_t i = end_; i < end_ + kGuard; ++i)
      if (memory_[i] != kUnwritten) return false;
    return true;
  }
  bool operator==(const Array& other) const {
    return end_ - begin_ == other.end_ - other.begin_ &&
           std::memcmp(data(), other.data(), end_ - begin_) == 0;
  }
  bool operator!=(const Array& other) const { return !(*this == other); }

 private:
  size_t bytes() const { return precision(type_).bytes; }
  template <class N>
  static N read(const unsigned char* from) {
    N x;
    std::memcpy(&x, from, sizeof x);
    return x;
  }
  template <class N>
  static void write(unsigned char* to, N x) {
    std::memcpy(to, &x, sizeof x);
  }
  Type type_;
  size_t begin_, end_;
  std::unique_ptr<unsigned char[]> memory_;
};

// ---------------------------------------------------------------- entmax

// entmax of one row.
struct Solved {
  double max = -kInfinity;  // -inf: every score is masked; NaN: the row holds NaN or +inf
  double c = 0;
  Doubles p;
};

double weight_at(double u, double eps) {
  if (eps == 0) return std::exp(u);
  return 1 + eps * u > 0 ? std::exp(std::log1p(eps * u) / eps) : 0;
}

Solved solve(const Doubles& scores, double alpha) {
  const double eps = alpha - 1;
  Solved out;
  for (const double s : scores) {
    if (std::isnan(s) || s == kInfinity) out.max = kNaN;
    if (s > out.max) out.max = s;
  }
  out.p.assign(scores.size(), std::isnan(out.max) ? kNaN : 0);
  if (!std::isfinite(out.max)) return out;

  Doubles inside;
  for (const double s : scores)
    if (s > -kInfinity && (eps <= 0 || s - out.max > -1 / eps)) inside.push_back(s - out.max);
  double mass, slope;
  const auto sum_at = [&](double c) {
    mass = slope = 0;
    for (const double z : inside) {
      const double p = weight_at(z - c, eps);
      mass += p;
      if (p > 0) slope += p / (1 + eps * (z - c));
    }
  };
  double low = 0;
  if (eps <= 1) {
    // The sum is convex in c: Newton's method climbs to the root and stops there.
    for (;;) {
      sum_at(low);
      const double next = low + (mass - 1) / slope;
      if (!(next > low)) break;
      low = next;
    }
  } else {
    double high = -std::expm1(-eps * std::log(static_cast<double>(scores.size()))) / eps;
    for (;;) {
      const double middle = low + (high - low) / 2;
      if (!(middle > low && middle < high)) break;
      sum_at(middle);
      (mass > 1 ? low : high) = middle;
    }
    sum_at(low);
  }
  out.c = low;
  for (size_t j = 0; j < scores.size(); ++j)
    if (scores[j] > -kInfinity) out.p[j] = weight_at(scores[j] - out.max - low, eps) / mass;
  return out;
}

// (e^y - 1 - y) / y^2, by its series where that would cancel.
double second_tail(double y) {
  if (std::fabs(y) >= 1) return (std::expm1(y) - y) / (y * y);
  double term = 0.5, sum = 0.5;
  for (int k = 3; k < 25; ++k) sum += term *= y / k;
  return sum;
}

// A number and the size of the terms it was summed from, which bounds its error.
struct Sum {
  double value = 0, size = 0;
  void add(double x) { add(x, std::fabs(x)); }
  void add(double x, double error) {
    value += x;
    size += error;
  }
};

struct Gradient {
  std::vector<Sum> scores;
  Sum alpha;
};

Gradient entmax_gradient(const Doubles& p, const Doubles& g, double alpha) {
  const double eps = alpha - 1;
  Gradient out{std::vector<Sum>(p.size()), {}};
  Doubles sigma(p.size(), 0.);
  double slope = 0;
  Sum weighted;
  for (size_t j = 0; j < p.size(); ++j)
    if (p[j] > 0) {
      sigma[j] = std::pow(p[j], 2 - alpha);
      slope += sigma[j];
      weighted.add(sigma[j] * g[j]);
    }
  for (size_t j = 0; j < p.size(); ++j) {
    if (std::isnan(p[j])) out.scores[j].value = out.alpha.value = kNaN;
    if (!(p[j] > 0)) continue;
    const double centered = g[j] - weighted.value / slope;
    const double size = std::fabs(g[j]) + weighted.size / slope;
    const double log_p = std::log(p[j]);
    out.scores[j].add(sigma[j] * centered, sigma[j] * size);
    const double by_alpha = -p[j] * log_p * log_p * second_tail(-eps * log_p);
    out.alpha.add(by_alpha * centered, std::fabs(by_alpha) * size);
  }
  return out;
}

}  // namespace
}  // namespace kernel_tests
