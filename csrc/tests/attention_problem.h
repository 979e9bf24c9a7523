// An attention problem, and its solution by the formulas in double with all weights at hand.
#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "reference.h"

namespace kernel_tests {
namespace {

using adasparse::AttentionInput;
using adasparse::MaskKind;

enum class Layout : int { kPlain, kHeadsInside, kGaps, kSharedBatch };
constexpr Layout kLayouts[] = {Layout::kPlain, Layout::kHeadsInside, Layout::kGaps,
                               Layout::kSharedBatch};

// Rows (batch, heads, n, d) in memory that ends where the last row does, NaN in between.
class Rows {
 public:
  Rows(Type type, int64_t batch, int64_t heads, int64_t n, int64_t d, Layout layout)
      : sizes_{batch, heads, n, d},
        strides_(strides_of(layout, heads, n, d)),
        data_(type, reach(), layout == Layout::kGaps) {
    for (int64_t at = 0; at < reach(); ++at) data_.set(at, kNaN);
  }
  template <class Next>
  void fill(const Next& next) {
    for (int64_t b = 0; b < sizes_[0]; ++b)
      for (int64_t h = 0; h < sizes_[1]; ++h)
        for (int64_t i = 0; i < sizes_[2]; ++i) set_row(b, h, i, next);
  }
  template <class Next>
  void set_row(int64_t b, int64_t h, int64_t i, const Next& next) {
    for (int64_t t = 0; t < sizes_[3]; ++t) data_.set(at(b, h, i) + t, next());
  }
  // All of them in order, as they came out in the type.
  Doubles read() const {
    Doubles all;
    for (int64_t b = 0; b < sizes_[0]; ++b)
      for (int64_t h = 0; h < sizes_[1]; ++h)
        for (int64_t i = 0; i < sizes_[2]; ++i)
          for (int64_t t = 0; t < sizes_[3]; ++t) all.push_back(data_[at(b, h, i) + t]);
    return all;
  }
  adasparse::RowsOf view() const { return {data_.data(), {strides_[0], strides_[1], strides_[2]}}; }

 private:
  using Strides = std::array<int64_t, 3>;
  static Strides strides_of(Layout layout, int64_t heads, int64_t n, int64_t d) {
    const int64_t row = d + 3;
    switch (layout) {
      case Layout::kHeadsInside:
        return {n * heads * d, d, heads * d};
      case Layout::kGaps:
        return {heads * n * row, n * row, row};
      case Layout::kSharedBatch:
        return {0, n * d, d};
      default:
        return {heads * n * d, n * d, d};
    }
  }
  int64_t at(int64_t b, int64_t h, int64_t i) const {
    return b * strides_[0] + h * strides_[1] + i * strides_[2];
  }
  int64_t reach() const {
    for (const int64_t size : sizes_)
      if (size == 0) return 0;
    return at(sizes_[0] - 1, sizes_[1] - 1, sizes_[2] - 1) + sizes_[3];
  }
  int64_t sizes_[4];
  Strides strides_;
  Array data_;
};

// The parameters of a test.
struct AttentionCase {
  Type type = Type::kFloat32;
  int64_t batch = 2, heads = 4, groups = 2, q = 25, k = 65, d = 8, e = 8;
  Doubles alphas{1.5};          // what alpha is drawn from
  unsigned alpha_dims = 0b010;  // which of batch, head, row (the lowest bit) it has
  double spread = 1;            // of the dot products
  Layout layout = Layout::kPlain;
  MaskKind mask_kind = MaskKind::kNone;
  unsigned mask_dims = 0b1111;         // which of batch, head, row, column it has
  bool is_mask_transposed = false;     // columns before rows in memory
  bool has_wide_mask = false;          // in the type computed in, beside others in half precision
  std::vector<int64_t> key_lengths{};  // per batch, or none
  bool has_slopes = false, has_sinks = false, is_causal = false, has_nan = false;
  double softcap = 0;
  int64_t window_left = -1, window_right = -1, window_position = 0;
  double dropout_p = 0;
  int64_t row_limit = 64;
  double dense_share = 0.4;
  uint64_t seed = 0;
  int64_t first_row = 0;  // of a packed batch: rows of the sequences before this one

  bool is_double() const { return type == Type::kFloat64; }
  // The type that kernels compute and save in, and that of an added mask.
  Type computed() const { return is_double() ? type : Type::kFloat32; }
  Type mask_type() const { return has_wide_mask ? computed() : type; }
  bool has_bias() const { return mask_kind == MaskKind::kAdded; }
  std::string text() const {
    char out[400];
    const auto number = [](int64_t n) { return static_cast<long long>(n); };
    std::snprintf(out, sizeof out,
                  "%s, (b %lld, h %lld/%lld, q %lld, k %lld, d %lld, e %lld), alpha %.7g%s in %x, "
                  "spread %g, layout %d, mask %d in %x%s%s%s%s%s%s, softcap %g, window %lld/%lld "
                  "at %lld, dropout %g, "
                  "limit %lld, dense %g, seed %llu",
                  precision(type).name, number(batch), number(heads), number(groups), number(q),
                  number(k), number(d), number(e), alphas[0], alphas.size() > 1 ? "..." : "",
                  alpha_dims, spread, static_cast<int>(layout), static_cast<int>(mask_kind),
                  mask_dims, is_mask_transposed ? "'" : "", is_causal ? ", causal" : "",
                  has_slopes ? ", slopes" : "", has_sinks ? ", sinks" : "",
                  key_lengths.empty() ? "" : ", lengths", has_nan ? ", NaN" : "", softcap,
                  number(window_left), number(window_right), number(window_position), dropout_p,
                  number(row_limit), dense_share, static_cast<unsigned long long>(seed));
    return out;
  }
};

// An expected tensor and the largest magnitude of its numbers or of the terms they are sums of.
struct Expected {
  Doubles value;
  double size = 0;
  void use(double magnitude) {
    if (magnitude > size) size = magnitude;
  }
  void use_values() {
    for (const double x : value) use(std::fabs(x));
  }
};
double largest(const Doubles& numbers) {
  double top = 0;
  for (const double x : numbers)
    if (std::fabs(x) > top) top = std::fabs(x);
  return top;
}

class AttentionProblem : public AttentionCase {
 public:
  explicit AttentionProblem(const AttentionCase& from)
      : AttentionCase(from),
        query_(type, batch, heads, q, d, layout),
        key_(type, batch, groups, k, d, layout),
        value_(type, batch, groups, k, e, layout),
        grad_(type, batch, heads, q, e, layout),
        random_(seed + 1000003 * static_cast<uint64_t>(first_row)) {
    make_rows();
    make_mask();
    // The sequences of a packed batch share what their heads have.
    Random of_heads(~seed);
    for (int64_t h = 0; h < heads && has_slopes; ++h)
      slopes_.push_back(h == 1 ? 0 : 0.3 * of_heads.uniform());
    for (int64_t h = 0; h < heads && has_sinks; ++h)
      sinks_.push_back(h == 1 ? -kInfinity : round_to_computed(2 * of_heads.normal()));
    make_alphas(of_heads);
    solve_rows();
    differentiate();
  }

  AttentionInput input(int threads) const {
    AttentionInput in{};
    in.type = type;
    in.mask_type = mask_type();
    in.batch = batch, in.heads = heads, in.groups = groups;
    in.q = q, in.k = k, in.d = d, in.e = e;
    in.query = query_.view(), in.key = key_.view(), in.value = value_.view();
    in.alpha = alpha_.data();
    std::copy(alpha_strides_ + 1, alpha_strides_ + 4, in.alpha_strides);
    in.mask_kind = mask_kind;
    in.mask = has_bias() ? bias_->data() : allowed_.data();
    std::copy(mask_strides_, mask_strides_ + 4, in.mask_strides);
    in.key_lengths = key_lengths.empty() ? nullptr : key_lengths.data();
    in.slopes = has_slopes ? slopes_.data() : nullptr;
    in.sinks = has_sinks ? sinks_.data() : nullptr;
    in.softcap = softcap;
    in.scale = scale();
    in.is_causal = is_causal;
    in.window_left = window_left, in.window_right = window_right;
    in.window_position = window_position;
    in.dropout_p = dropout_p;
    in.seed = dropout_seed();
    in.threads = threads;
    return in;
  }
  adasparse::RowsOf grad() const { return grad_.view(); }
  const int64_t* grad_mask_strides() const { return grad_mask_strides_; }

  int64_t rows() const { return batch * heads * q; }
  // Whether a row sees key j, by definition; and the first such key and one past the last.
  bool sees(int64_t row, int64_t j) const {
    const int64_t i = row % q, here = i + window_position;
    return (key_lengths.empty() || j < key_lengths[row / q / heads]) && !(is_causal && j > i) &&
           (window_left < 0 || here - j <= window_left) &&
           (window_right < 0 || j - here <= window_right);
  }
  struct Range {
    int64_t first = 0, last = 0;
  };
  Range visible(int64_t row) const {
    Range out;
    while (out.first < k && !sees(row, out.first)) ++out.first;
    out.last = out.first;
    while (out.last < k && sees(row, out.last)) ++out.last;
    return out;
  }
  double alpha_of(int64_t row) const {
    return alpha_[place(alpha_strides_, 0, row / q / heads, row / q % heads, row % q)];
  }
  // The inputs in the order (batch, head, row, feature), as they came out in the type.
  const Doubles& queries() const { return queries_; }
  const Doubles& keys() const { return keys_; }
  const Doubles& values() const { return values_; }
  const Doubles& grads() const { return grads_; }
  const Doubles& scores(int64_t row) const { return scores_[row]; }
  const Doubles& weights(int64_t row) const { return solved_[row].p; }
  double sink_weight(int64_t row) const {
    return sink_weights.value.empty() ? 0 : sink_weights.value[row];
  }

  Expected out, sink_weights, by_query, by_key, by_value, by_alpha, by_slope, by_sink, by_mask;
  int64_t kinks = 0;  // rows left without gradient

 private:
  static int64_t place(const int64_t* strides, int64_t a, int64_t b, int64_t c, int64_t d) {
    return a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3];
  }
  // Strides of a contiguous tensor that has the dimensions `dims`, in this order of memory, and 0
  // for those it is broadcast along. Returns its size.
  static int64_t set_strides(const int64_t (&sizes)[4], unsigned dims, const int (&order)[4],
                             int64_t* strides) {
    int64_t size = 1;
    for (int at = 3; at >= 0; --at) {
      const bool has = dims >> (3 - order[at]) & 1;
      strides[order[at]] = has ? size : 0;
      if (has) size *= sizes[order[at]];
    }
    return size;
  }
  int64_t key_row(int64_t row, int64_t j) const {
    return (row / q / heads * groups + row / q % heads / (heads / groups)) * k + j;
  }
  double round_to_computed(double x) const { return is_double() ? x : static_cast<float>(x); }
  uint64_t dropout_seed() const { return ~seed << 32 | seed; }
  double scale() const { return d ? spread / std::sqrt(static_cast<double>(d)) : 1; }
  // The distance of key j from the query, minus that of the nearest key it sees. Subtracting the
  // same number for all keys of a row changes no weight or gradient; the state is of these scores.
  // A sink has no distance: beside one, distances are whole.
  double distance(int64_t row, int64_t j) const {
    const int64_t here = row % q + k - q;
    if (has_sinks) return static_cast<double>(std::abs(here - j));
    const Range seen = ranges_[row];
    const int64_t nearest = std::max(seen.first, std::min(here, seen.last - 1));
    return static_cast<double>(std::abs(here - j) - std::abs(here - nearest));
  }
  static double dot(const double* a, const double* b, int64_t n) {
    double total = 0;
    for (int64_t t = 0; t < n; ++t) total += a[t] * b[t];
    return total;
  }
  // to += factor * from
  static void add(double factor, const double* from, int64_t n, double* to) {
    for (int64_t t = 0; t < n; ++t) to[t] += factor * from[t];
  }

  // ---------------------------------------------------------------- inputs

  void make_rows() {
    const auto normal = [&] { return random_.normal(); };
    const auto nan = [] { return kNaN; };
    query_.fill(normal);
    key_.fill(normal);
    value_.fill(normal);
    grad_.fill(normal);
    if (has_nan) query_.set_row(0, heads - 1, q / 2, nan);
    // What follows the end of a sequence may be anything.
    if (!key_lengths.empty() && layout != Layout::kSharedBatch)
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t g = 0; g < groups; ++g)
          for (int64_t j = std::max<int64_t>(0, key_lengths[b]); j < k; ++j) {
            key_.set_row(b, g, j, nan);
            value_.set_row(b, g, j, nan);
          }
    queries_ = query_.read();
    keys_ = key_.read();
    values_ = value_.read();
  }

  void make_mask() {
    if (mask_kind == MaskKind::kNone) return;
    const int64_t sizes[] = {batch, heads, q, k};
    mask_size_ = set_strides(sizes, mask_dims, {0, 1, 2, 3}, grad_mask_strides_);
    if (is_mask_transposed)
      set_strides(sizes, mask_dims, {0, 1, 3, 2}, mask_strides_);
    else
      std::copy(grad_mask_strides_, grad_mask_strides_ + 4, mask_strides_);
    bias_.reset(new Array(mask_type(), has_bias() ? mask_size_ : 0));
    for (int64_t at = 0; at < mask_size_; ++at) {
      const bool is_out = random_.below(4) == 0;
      if (has_bias())
        bias_->set(at, is_out ? -kInfinity : random_.normal());
      else
        allowed_.push_back(!is_out);
    }
    // Some rows see nothing, where the mask has rows and columns.
    for (int64_t row = 0; (mask_dims & 3) == 3 && row < rows(); row += 7)
      for (int64_t j = 0; j < k; ++j) {
        const int64_t at = place(mask_strides_, row / q / heads, row / q % heads, row % q, j);
        if (has_bias())
          bias_->set(at, -kInfinity);
        else
          allowed_[at] = 0;
      }
    allowed_.shrink_to_fit();
  }

  void make_alphas(Random& random) {
    const int64_t sizes[] = {1, batch, heads, q};
    const int64_t count = set_strides(sizes, alpha_dims & 7, {0, 1, 2, 3}, alpha_strides_);
    // Runs of one alpha that end anywhere within a strip of rows.
    for (int64_t left = count; left > 0;) {
      const int64_t run = alpha_dims & 1 ? std::min(left, 1 + random.below(30)) : 1;
      const double alpha = alphas[random.below(static_cast<int64_t>(alphas.size()))];
      alpha_.insert(alpha_.end(), static_cast<size_t>(run), alpha);
      left -= run;
    }
    alpha_.shrink_to_fit();
  }

  // ---------------------------------------------------------------- forward

  double product(int64_t row, int64_t j) const {
    return scale() * dot(queries_.data() + row * d, keys_.data() + key_row(row, j) * d, d);
  }
  double score(int64_t row, int64_t j) const {
    double s = product(row, j);
    if (softcap > 0) s = softcap * std::tanh(s / softcap);
    if (has_slopes) s -= slopes_[row / q % heads] * distance(row, j);
    const int64_t at = place(mask_strides_, row / q / heads, row / q % heads, row % q, j);
    if (has_bias()) s += (*bias_)[at];
    if (mask_kind == MaskKind::kBool && !allowed_[at]) s = -kInfinity;
    return s;
  }
  // What dropout multiplies a weight by.
  double factor(int64_t row, int64_t j) const {
    if (dropout_p == 0) return 1;
    if (dropout_p == 1) return 0;
    // As many steps of the generator from the seed as there are rows before this one.
    Random generator(dropout_seed() + static_cast<uint64_t>(first_row + row) * 0x9E3779B97F4A7C15u);
    const uint64_t key = generator.bits();
    uint32_t y = static_cast<uint32_t>(j) * 0x9E3779B1u + static_cast<uint32_t>(key);
    y = (y ^ (y >> 16)) * 0x85EBCA6Bu;
    y ^= static_cast<uint32_t>(key >> 32);
    y = (y ^ (y >> 13)) * 0xC2B2AE35u;
    y ^= y >> 16;
    return static_cast<double>(y) < std::floor(dropout_p * 0x1p32) ? 0 : 1 / (1 - dropout_p);
  }

  void solve_rows() {
    out.value.assign(rows() * e, 0);
    for (int64_t row = 0; row < rows(); ++row) {
      // Keys that a row does not see have a score of -inf, and no part in a row of NaN.
      const Range seen = visible(row);
      ranges_.push_back(seen);
      Doubles s(static_cast<size_t>(k), -kInfinity);
      for (int64_t j = seen.first; j < seen.last; ++j) s[j] = score(row, j);
      scores_.push_back(s);
      // A sink is one more key, without a value.
      if (has_sinks) s.push_back(sinks_[row / q % heads]);
      solved_.push_back(solve(s, alpha_of(row)));
      if (has_sinks) {
        sink_weights.value.push_back(solved_[row].p.back());
        solved_[row].p.pop_back();
      }
      for (int64_t j = 0; j < k; ++j) {
        double& p = solved_[row].p[j];
        if (j < seen.first || j >= seen.last) p = 0;
        if (p == 0) continue;
        add(p * factor(row, j), values_.data() + key_row(row, j) * e, e,
            out.value.data() + row * e);
      }
      if (!is_at_kink(row)) continue;
      ++kinks;
      grad_.set_row(row / q / heads, row / q % heads, row % q, [] { return 0.; });
    }
    out.use_values();
    sink_weights.use(1);
    grads_ = grad_.read();
  }

  // Whether rounding of the scores can change the gradient much. With t = p^eps, it does so
  // through sigma = t^(1 / eps - 1), which is steep at the edge of the support for alpha > 1.5.
  bool is_at_kink(int64_t row) const {
    const double eps = alpha_of(row) - 1, power = 1 / eps - 1;
    const Solved& solved = solved_[row];
    if (eps <= 0.5 || !std::isfinite(solved.max)) return false;
    const double off = is_double() ? 1e-13 : 1e-6, much = is_double() ? 1e-10 : 1e-4;
    const auto sigma = [&](double t) { return t > 0 ? std::pow(t, power) : 0; };
    double top = 0, jump = 0;
    Doubles scores = scores_[row];
    if (has_sinks) scores.push_back(sinks_[row / q % heads]);
    for (const double s : scores) {
      const double t = 1 + eps * (s - solved.max - solved.c);
      if (t < -off) continue;
      top = std::max(top, sigma(t));
      jump = std::max(jump, std::fabs(sigma(t + off) - sigma(t - off)));
    }
    return jump > much * top;
  }

  // ---------------------------------------------------------------- backward

  void differentiate() {
    by_query.value.assign(rows() * d, 0);
    by_key.value.assign(batch * groups * k * d, 0);
    by_value.value.assign(batch * groups * k * e, 0);
    by_alpha.value.assign(rows(), 0);
    by_slope.value.assign(rows(), 0);
    by_sink.value.assign(has_sinks ? rows() : 0, 0);
    by_mask.value.assign(mask_size_, 0);
    for (int64_t row = 0; row < rows(); ++row) differentiate_row(row);
    by_query.use(by_mask.size * scale() * largest(keys_));
    by_key.use(by_mask.size * scale() * largest(queries_));
    // The logarithm of a weight of 1 is zero up to rounding.
    by_alpha.use(by_mask.size * precision(computed()).rounding);
    by_sink.use(by_mask.size);
    for (Expected* x : {&by_query, &by_key, &by_value, &by_alpha, &by_slope, &by_sink, &by_mask})
      x->use_values();
  }
  void differentiate_row(int64_t row) {
    const int64_t n = k;
    Doubles p = weights(row);
    Doubles by_weight(n, 0.);
    for (int64_t j = 0; j < n; ++j) {
      if (p[j] == 0) continue;
      const int64_t at = key_row(row, j);
      const double kept = factor(row, j);
      by_weight[j] = kept * dot(grads_.data() + row * e, values_.data() + at * e, e);
      add(p[j] * kept, grads_.data() + row * e, e, by_value.value.data() + at * e);
    }
    if (has_sinks) {
      p.push_back(sink_weight(row));
      by_weight.push_back(0);
    }
    const Gradient gradient = entmax_gradient(p, by_weight, alpha_of(row));
    if (has_sinks) by_sink.value[row] = gradient.scores[n].value;
    by_alpha.value[row] = gradient.alpha.value;
    by_alpha.use(gradient.alpha.size);
    for (int64_t j = 0; j < n; ++j) {
      if (p[j] == 0) continue;
      const Sum& by_score = gradient.scores[j];
      const int64_t at = key_row(row, j);
      const double capped = softcap > 0 ? std::tanh(product(row, j) / softcap) : 0;
      const double by_dot = by_score.value * (1 - capped * capped) * scale();
      add(by_dot, keys_.data() + at * d, d, by_query.value.data() + row * d);
      add(by_dot, queries_.data() + row * d, d, by_key.value.data() + at * d);
      by_slope.value[row] -= by_score.value * distance(row, j);
      by_slope.use(by_score.size * distance(row, j));
      by_mask.use(by_score.size);  // without a mask, too: it bounds what follows from the scores
      if (has_bias())
        by_mask.value[place(grad_mask_strides_, row / q / heads, row / q % heads, row % q, j)] +=
            by_score.value;
    }
  }

  Rows query_, key_, value_, grad_;
  Doubles queries_, keys_, values_, grads_;
  Random random_;
  std::unique_ptr<Array> bias_;
  std::vector<uint8_t> allowed_;
  int64_t mask_size_ = 0;
  int64_t mask_strides_[4] = {}, grad_mask_strides_[4] = {}, alpha_strides_[4] = {};
  Doubles slopes_, sinks_, alpha_;
  std::vector<Doubles> scores_;
  std::vector<Range> ranges_;  // of visible keys
  std::vector<Solved> solved_;
};

}  // namespace
}  // namespace kernel_tests
