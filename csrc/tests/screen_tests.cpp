// Tests of screened attention: the same bits as without screening, in every instruction set that
// can multiply int8 numbers.
#include "attention_checks.h"
#include "dispatch.h"

namespace kernel_tests {
namespace {

using adasparse::Screening;

// One choice for a while.
class Choice {
 public:
  explicit Choice(Screening choice) { adasparse::use_screening(choice); }
  ~Choice() { adasparse::use_screening(Screening::kAuto); }
};

AttentionCase long_case(uint64_t seed) {
  AttentionCase a;
  a.seed = seed;
  a.batch = 1;
  a.heads = 2;
  a.groups = seed % 2 ? 1 : 2;
  a.q = 30;
  a.k = 600;
  a.d = 20;
  a.alphas = {1.5};
  return a;
}

void check_same(const AttentionCase& a) {
  const AttentionProblem problem(a);
  for (const Kernels* kernels : sets())
    for (const int64_t limit : {kNoRowLimit, int64_t{4}}) {
      const auto run = [&](Screening choice, int threads) {
        const Choice chosen(choice);
        return run_forward(*kernels, problem, Wanted::kOutput, limit, threads);
      };
      const auto off = run(Screening::kOff, 1);
      for (const auto& [choice, threads] :
           {std::pair{Screening::kForced, 1}, {Screening::kForced, 3}, {Screening::kAuto, 2}}) {
        const auto on = run(choice, threads);
        CHECK(on->out == off->out && on->state == off->state && on->has_same_support(*off, 4) &&
                  on->out.is_intact() && on->state.is_intact(),
              "%s %s: screening (%s, %d threads) changes the result", kernels->name,
              problem.text().c_str(), adasparse::name_of(choice), threads);
      }
    }
}

TEST(screened_sizes) {
  for (const int64_t k : {129, 256, 257, 319, 320, 321, 511, 1023})
    for (const int64_t d : {1, 4, 15, 16, 33}) {
      AttentionCase a = long_case(static_cast<uint64_t>(k * d));
      a.k = k;
      a.d = d;
      a.q = 1 + k % 50;
      a.spread = d % 2 ? 1 : 5;
      check_same(a);
    }
}

TEST(screened_alphas) {
  for (const double alpha : {1., 1.001, 1.05, 1.2, 1.35, 1.5, 1.7, 2.})
    for (const double spread : {0.01, 0.3, 1., 3., 10., 100.}) {
      AttentionCase a = long_case(static_cast<uint64_t>(alpha * 1000 + spread));
      a.alphas = {alpha};
      a.spread = spread;
      check_same(a);
    }
}

TEST(screened_masks) {
  for (uint64_t seed = 0; seed < 14; ++seed) {
    AttentionCase a = long_case(seed);
    a.alphas = {1.3, 1.5, 2.};
    a.alpha_dims = seed % 3 ? 0b010 : 0b001;
    a.is_causal = seed % 7 == 1;
    if (a.is_causal) a.q = a.k;
    if (seed % 7 == 2) a.mask_kind = MaskKind::kBool, a.is_mask_transposed = seed > 7;
    if (seed % 7 == 3) a.mask_kind = MaskKind::kAdded, a.mask_dims = seed > 7 ? 0b0011 : 0b1111;
    if (seed % 7 == 4) a.has_slopes = true;
    if (seed % 7 == 5) a.window_left = 300, a.window_right = 20, a.window_position = 250;
    if (seed % 7 == 6) a.key_lengths = {577};
    a.has_nan = seed % 2;
    a.dropout_p = seed % 5 ? 0 : 0.2;
    check_same(a);
  }
}

// More keys than are scanned at once.
TEST(screened_long_rows) {
  AttentionCase a = long_case(3);
  a.heads = a.groups = 1;
  a.k = 9000;
  a.d = 8;
  check_same(a);
}

// Against the reference in double, gradients included.
TEST(screened_against_reference) {
  const Choice forced(Screening::kForced);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    AttentionCase a = long_case(seed);
    a.q = 26;
    a.k = 400;
    a.alphas = {1.5, 1.8};
    a.has_slopes = seed == 1;
    if (seed == 2) a.mask_kind = MaskKind::kAdded;
    check_all(a);
  }
}

}  // namespace
}  // namespace kernel_tests
