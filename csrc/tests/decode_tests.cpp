// Tests of decoding: few queries against many keys, and keys that come with codes.
#include "attention_checks.h"
#include "dispatch.h"

namespace kernel_tests {
namespace {

// The codes of the keys of a problem, in memory that ends where they do.
class Codes {
 public:
  Codes(const Kernels& kernels, const AttentionInput& in, int threads)
      : panels_((in.k + adasparse::kCodePanel - 1) / adasparse::kCodePanel),
        row_((panels_ + 15) / 16 * 16 + 16),
        size_(adasparse::kCodePanel * ((in.d + 3) / 4 * 4)),
        codes_(static_cast<size_t>(in.batch * in.groups * panels_ * size_)),
        bounds_(Type::kFloat32, in.batch * in.groups * 3 * row_) {
    for (int64_t i = 0; i < in.batch * in.groups * 3 * row_; ++i) bounds_.set(i, 0);
    kernels.code_keys({.type = in.type,
                       .key = in.key,
                       .batch = in.batch,
                       .groups = in.groups,
                       .first = 0,
                       .n = in.k,
                       .d = in.d,
                       .codes = codes_.data(),
                       .bounds = static_cast<float*>(bounds_.data()),
                       .to = view(in),
                       .threads = threads});
  }
  adasparse::CodesOf view(const AttentionInput& in) const {
    return {.codes = codes_.data(),
            .strides = {in.groups * panels_ * size_, panels_ * size_},
            .bounds = static_cast<const float*>(bounds_.data()),
            .bound_strides = {in.groups * 3 * row_, 3 * row_, row_}};
  }
  bool is_intact() const { return bounds_.is_intact(); }
  bool operator==(const Codes& other) const {
    return codes_ == other.codes_ && bounds_ == other.bounds_;
  }

 private:
  int64_t panels_, row_, size_;
  std::vector<uint8_t> codes_;
  Array bounds_;
};

class Forced {
 public:
  Forced() { adasparse::use_screening(adasparse::Screening::kForced); }
  ~Forced() { adasparse::use_screening(adasparse::Screening::kAuto); }
};

struct Decoded {
  Array out;
  std::vector<int64_t> rescored;
};
Decoded decode(const Kernels& kernels, const AttentionProblem& problem, const Codes* codes,
               int threads) {
  Decoded result{Array(problem.type, problem.rows() * problem.e),
                 std::vector<int64_t>(static_cast<size_t>(problem.rows()), -1)};
  adasparse::AttentionForward call = forward_call(problem, threads);
  if (codes) call.in.codes = codes->view(call.in);
  call.out = one_after_another(result.out, problem.heads, problem.q, problem.e);
  call.rescored = result.rescored.data();
  kernels.attention_forward(call);
  return result;
}

// Codes change no bit of the output, and neither does the number of threads.
void check_codes(const AttentionCase& asked) {
  const AttentionProblem problem(asked);
  for (const Kernels* kernels : sets()) {
    const std::string text = std::string(kernels->name) + " " + problem.text();
    const Codes codes(*kernels, problem.input(1), 1);
    CHECK(codes == Codes(*kernels, problem.input(3), 3), "%s: threads change codes", text.c_str());
    CHECK(codes.is_intact(), "%s: codes outside their memory", text.c_str());
    const Decoded plain = decode(*kernels, problem, nullptr, 1);
    check_near(text, "output", plain.out, problem.out, bars_of(problem.type).tensor);
    for (const int threads : {1, 3}) {
      CHECK(decode(*kernels, problem, nullptr, threads).out == plain.out, "%s: threads",
            text.c_str());
      CHECK(decode(*kernels, problem, &codes, threads).out == plain.out, "%s: codes", text.c_str());
      const Forced forced;
      CHECK(decode(*kernels, problem, &codes, threads).out == plain.out, "%s: forced codes",
            text.c_str());
    }
  }
}

AttentionCase decoding(uint64_t seed, int64_t k) {
  AttentionCase a;
  a.seed = seed;
  a.batch = 1 + static_cast<int64_t>(seed % 2);
  a.q = 1 + static_cast<int64_t>(seed * 3 % 9);
  a.k = k;
  a.d = seed % 3 ? 16 : 33;
  a.e = 9;
  a.spread = seed % 4 ? 3 : 0.3;
  a.row_limit = 1024;
  return a;
}

TEST(decode_sizes) {
  uint64_t seed = 0;
  for (const double alpha : {1.5, 2., 1.25, 1., 1.05})
    for (const int64_t k : {129, 511, 512, 513, 700, 2049, 4100}) {
      AttentionCase a = decoding(++seed, k);
      a.alphas = {alpha};
      check_codes(a);
    }
}

TEST(decode_options) {
  for (uint64_t seed = 1; seed < 40; ++seed) {
    AttentionCase a = decoding(seed, 900);
    a.alphas = {1.5, 1.7, seed % 3 ? 2 : 1.01};
    a.alpha_dims = static_cast<unsigned>(seed % 8);
    a.layout = kLayouts[seed % std::size(kLayouts)];
    a.mask_kind = static_cast<MaskKind>(seed % 3);
    a.mask_dims = static_cast<unsigned>(seed % 16);
    a.has_slopes = seed % 2;
    a.has_nan = seed % 5 == 0;
    if (seed % 4 == 0) a.key_lengths.assign(static_cast<size_t>(a.batch), 777);
    if (seed % 7 == 0) a.window_left = 600, a.window_right = 100, a.window_position = 400;
    a.dropout_p = seed % 6 ? 0 : 0.2;
    check_codes(a);
  }
}

// Forward and backward of few queries, which training may have, too.
TEST(decode_gradients) {
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const int64_t q : {1, 4, 16}) {
      AttentionCase a = decoding(static_cast<uint64_t>(q), 700);
      a.type = type;
      a.q = q;
      a.alphas = {1.5, 1.2, 1};
      check_all(a);
    }
}

// Codes leave few keys to score.
TEST(decode_rescores_little) {
  AttentionCase a = decoding(1, 4096);
  a.d = 64;
  a.spread = 1;
  const AttentionProblem problem(a);
  for (const Kernels* kernels : sets()) {
    const Codes codes(*kernels, problem.input(1), 1);
    const Forced forced;
    if (!kernels->has_code_products()) continue;
    for (const int64_t count : decode(*kernels, problem, &codes, 1).rescored)
      CHECK(0 < count && count < 400, "%s: %lld keys rescored", kernels->name,
            static_cast<long long>(count));
    for (const int64_t count : decode(*kernels, problem, nullptr, 1).rescored)
      CHECK(count == 4096, "%s: not all keys", kernels->name);
  }
}

}  // namespace
}  // namespace kernel_tests
