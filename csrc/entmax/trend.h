// Guesses of the normalizer of a row from rows that were solved before it.
#pragma once

#include "entmax/walk.h"
#include "tuning.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// Rows of a head differ mostly in the mean and the spread of their scores: the first shifts the
// normalizer, max + c, and in the second it is nearly linear. A line through the rows of a block
// that are solved already, older ones counting less, predicts the next.
class Trend {
 public:
  // Reads the mean and the standard deviation of the scores of a row that are not masked.
  template <class T>
  void read(const T* row, int64_t n) {
    using X = Two<Vec<T>>;
    X sum = all<X>(0), squares = all<X>(0);
    int64_t seen = 0;
    for_each_two(row, n, [&](X s, int64_t, int64_t) ADASPARSE_INLINE_BODY {
      const auto is_seen = greater(s, all<X>(std::numeric_limits<T>::lowest()));
      const X x = select(is_seen, s, all<X>(0));
      sum = sum + x;
      squares = squares + x * x;
      seen += __builtin_popcount(bits(is_seen.a)) + __builtin_popcount(bits(is_seen.b));
    });
    const auto count = static_cast<double>(seen);
    mean_ = sum_two<T>(sum) / count;
    deviation_ = std::sqrt(sum_two<T>(squares) / count - mean_ * mean_);
  }

  // A normalizer, max + c, a little below that of this row as a rule; NaN if rows before it are too
  // few or did not follow the line.
  double below() {
    line_ = std::numeric_limits<double>::quiet_NaN();
    if (rows_ < kTrendRows || misses_ > kTrendMisses) return line_;
    const double x = x_ / weight_, y = y_ / weight_;
    const double variance = xx_ / weight_ - x * x, covariance = xy_ / weight_ - x * y;
    const double rise = covariance / (variance + kTrendRidge * x * x);
    line_ = mean_ + y + rise * (deviation_ - x);
    return line_ - kTrendMargin * std::sqrt(error_) / slope_;
  }
  void miss() { ++misses_; }

  // This row is solved; `slope` is S there.
  void add(double normalizer, double slope) {
    const double x = deviation_, y = normalizer - mean_;
    if (!std::isfinite(x + y + slope)) return;
    if (std::isfinite(line_)) {
      const double error = (normalizer - line_) * slope;
      error_ += (error * error - error_) * (1 - kTrendDecay);
    }
    weight_ = kTrendDecay * weight_ + 1;
    x_ = kTrendDecay * x_ + x;
    y_ = kTrendDecay * y_ + y;
    xx_ = kTrendDecay * xx_ + x * x;
    xy_ = kTrendDecay * xy_ + x * y;
    slope_ = slope;
    ++rows_;
  }

 private:
  double mean_ = 0, deviation_ = 0;  // of this row
  int rows_ = 0, misses_ = 0;        // rows added, and those predicted too high
  double weight_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0,
         slope_ = 1;                       // sums over rows; S of the last
  double line_ = 0, error_ = kTrendError;  // the prediction, and the mean square of its error in F
};

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
