// Tests of attention, forward and backward, for every instruction set.
#include "attention_checks.h"

namespace kernel_tests {
namespace {

constexpr int64_t kSizes[] = {1, 2, 23, 24, 25, 47, 48, 49, 63, 64, 65, 255, 256, 257, 700};
constexpr int64_t kDims[] = {1, 3, 8, 16, 33, 64, 65, 130};
constexpr double kDenseShares[] = {0.4, 0, 2};  // the ends mean always and never
constexpr int64_t kWindows[] = {-1, -1, 0, 7, 60, 300};

// Those above 2 are computed in double, which is the caller's part.
Doubles alphas_of(Type type) {
  Doubles alphas{1.5, 1, 1 + 1e-6, 1.05, 1.9, 2};
  if (type == Type::kFloat64) alphas.push_back(3);
  return alphas;
}

// ---------------------------------------------------------------- the tests

template <class List>
auto pick(const List& list, uint64_t at) {
  return list[at % std::size(list)];
}

// Every length, head size and alpha with many others.
TEST(attention_sizes) {
  uint64_t seed = 0;
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const double alpha : alphas_of(type))
      for (const int64_t k : kSizes) {
        AttentionCase a;
        a.seed = ++seed;
        a.type = type;
        a.alphas = {alpha};
        a.k = k;
        a.q = pick(kSizes, seed * 7 + seed / std::size(kSizes));
        a.batch = 1 + static_cast<int64_t>(seed % 2);
        a.heads = 1 + static_cast<int64_t>(seed % 4);
        a.groups = a.heads % 2 == 0 ? a.heads / 2 : 1;
        if (a.q * k > 3000) a.batch = 1;
        if (a.q * k > 8000) a.heads = a.groups = 1;
        a.d = pick(kDims, seed * 3);
        a.e = pick(kDims, seed * 5 + 1);
        a.spread = pick(Doubles{1, 4, 0.1}, seed / 2);
        a.is_causal = seed % 5 == 0;
        a.layout = pick(kLayouts, seed / 3);
        a.dense_share = pick(kDenseShares, seed);
        if (a.q * k < 50000) check_all(a);
      }
}

// Long enough for all blocks of rows and keys there are.
TEST(attention_long) {
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const int64_t q : {257, 700}) {
      AttentionCase a;
      a.type = type;
      a.alphas = alphas_of(type);
      a.seed = static_cast<uint64_t>(q);
      a.batch = 1;
      a.heads = q == 257 ? 2 : 1;
      a.groups = 1;
      a.q = q;
      a.k = 700;
      a.alpha_dims = 0b001;
      a.is_causal = q == 700;
      check_all(a);
    }
}

// Scores so close to each other that the support is broad at any alpha.
TEST(attention_broad) {
  uint64_t seed = 0;
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const double alpha : alphas_of(type))
      for (const double spread : {1e-3, 1e-2}) {
        AttentionCase a;
        a.seed = ++seed;
        a.type = type;
        a.alphas = {alpha};
        a.batch = 1;
        a.k = 260;
        a.spread = spread;
        check_all(a);
      }
}

// Heads enough for the widest tiles of features.
TEST(attention_many_heads) {
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const int64_t d : {64, 130}) {
      AttentionCase a;
      a.type = type;
      a.seed = static_cast<uint64_t>(d);
      a.batch = a.heads = a.groups = 4;
      a.q = 5;
      a.k = 9;
      a.d = a.e = d;
      check_all(a);
    }
}

// Masks of both kinds, broadcast along any dimensions.
TEST(attention_masks) {
  constexpr int64_t shapes[][2] = {{25, 65}, {257, 23}, {2, 700}, {49, 48},
                                   {1, 63},  {24, 300}, {64, 24}};
  uint64_t seed = 0;
  for (const MaskKind kind : {MaskKind::kBool, MaskKind::kAdded})
    for (unsigned dims = 0; dims < 16; ++dims)
      for (const bool is_transposed : {false, true}) {
        AttentionCase a;
        a.seed = ++seed;
        a.batch = 1 + static_cast<int64_t>(seed / 4 % 2);
        a.type = seed % 3 == 0 ? Type::kFloat64 : Type::kFloat32;
        a.alphas = alphas_of(a.type);
        a.q = pick(shapes, seed)[0];
        a.k = pick(shapes, seed)[1];
        a.d = pick(kDims, seed);
        a.e = pick(kDims, seed + 3);
        a.mask_kind = kind;
        a.mask_dims = dims;
        a.is_mask_transposed = is_transposed;
        a.is_causal = seed % 4 == 2;
        check_all(a);
      }
}

TEST(attention_key_lengths) {
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const int64_t k : {1, 25, 65, 257})
      for (const bool is_causal : {false, true}) {
        AttentionCase a;
        a.seed = static_cast<uint64_t>(k);
        a.type = type;
        a.alphas = alphas_of(type);
        a.batch = 6;
        a.heads = 2;
        a.groups = is_causal ? 1 : 2;
        a.q = 26;
        a.k = k;
        a.d = is_causal ? 8 : 3;
        a.e = is_causal ? 5 : 16;
        a.key_lengths = {0, k, (k + 1) / 2, 1, k + 5, -2};
        a.is_causal = is_causal;
        a.dropout_p = is_causal ? 0.2 : 0;
        check_all(a);
      }
}

TEST(attention_dropout) {
  uint64_t seed = 0;
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const double p : {1e-3, 0.1, 0.5, 1.})
      for (const int64_t k : {7, 49, 257}) {
        AttentionCase a;
        a.seed = ++seed;
        a.type = type;
        a.alphas = alphas_of(type);
        a.k = k;
        a.dropout_p = p;
        check_all(a);
      }
}

TEST(attention_slopes) {
  uint64_t seed = 0;
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const int64_t q : {1, 49, 257})
      for (const int64_t k : {24, 64, 257}) {
        AttentionCase a;
        a.seed = ++seed;
        a.type = type;
        a.alphas = alphas_of(type);
        a.batch = 1;
        a.q = q;
        a.k = k;
        a.has_slopes = true;
        a.is_causal = seed % 2 == 0;
        check_all(a);
      }
}

// A window on either side or both, where queries stand anywhere among the keys.
TEST(attention_window) {
  uint64_t seed = 0;
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const int64_t left : {-1, 0, 5, 70, 300})
      for (const int64_t right : {-1, 0, 9, 129})
        for (const int64_t k : {40, 129, 400}) {
          AttentionCase a;
          a.seed = ++seed;
          a.type = type;
          a.alphas = alphas_of(type);
          a.alpha_dims = seed % 2 ? 0b010 : 0b001;
          a.batch = 1;
          a.heads = 2;
          a.groups = 1 + static_cast<int64_t>(seed % 2);
          a.q = pick(std::vector<int64_t>{1, 65, 290}, seed);
          a.k = k;
          a.window_left = left;
          a.window_right = right;
          a.window_position = pick(std::vector<int64_t>{0, k - a.q, 30, -20}, seed / 3);
          a.is_causal = seed % 3 == 0;
          a.has_slopes = seed % 4 == 0;
          a.dropout_p = seed % 5 == 0 ? 0.2 : 0;
          a.spread = pick(Doubles{1, 0.05, 4}, seed / 5);
          a.dense_share = pick(kDenseShares, seed / 2);
          if (seed % 7 == 0) a.key_lengths = {k / 2};
          if (seed % 6 == 0) a.mask_kind = seed % 4 ? MaskKind::kBool : MaskKind::kAdded;
          check_all(a);
        }
}

// Many entries per row, so that backward sums by tiles, of which a query sees some.
TEST(attention_window_by_tiles) {
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const int64_t left : {int64_t{200}, int64_t{600}, std::numeric_limits<int64_t>::max()}) {
      AttentionCase a;
      a.seed = static_cast<uint64_t>(left % 1000);
      a.type = type;
      a.alphas = {1.2};
      a.batch = a.heads = a.groups = 1;
      a.q = a.k = 600;
      a.spread = 0.3;
      a.window_left = left;
      a.window_right = 100;
      a.is_causal = left == 600;
      a.row_limit = kNoRowLimit;
      check_all(a);
    }
}

// Sinks: one per head, none in the second head, with keys few enough for lanes or many, with rows
// that see nothing, and beside everything that changes a score.
TEST(attention_sinks) {
  uint64_t seed = 0;
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const double alpha : alphas_of(type))
      for (const int64_t k : {1, 63, 64, 127, 128, 300}) {
        AttentionCase a;
        a.seed = ++seed;
        a.type = type;
        a.alphas = {alpha};
        a.has_sinks = true;
        a.batch = 1;
        a.heads = 2;
        a.groups = 1 + static_cast<int64_t>(seed % 2);
        a.q = pick(std::vector<int64_t>{1, 26, 49}, seed / 2);
        a.k = k;
        a.d = pick(kDims, seed);
        a.e = pick(kDims, seed + 3);
        a.spread = pick(Doubles{1, 0.05, 4}, seed / 3);
        a.is_causal = seed % 3 == 0;
        a.has_slopes = seed % 4 == 0;
        a.has_nan = seed % 11 == 0 && seed % 5 != 2;
        a.dropout_p = seed % 5 == 0 ? 0.2 : 0;
        a.dense_share = pick(kDenseShares, seed);
        if (seed % 6 == 0) a.mask_kind = seed % 4 ? MaskKind::kBool : MaskKind::kAdded;
        if (seed % 7 == 0) a.key_lengths = {seed % 2 ? 0 : k / 2};
        if (seed % 5 == 2) a.window_left = 20, a.window_position = k - a.q;
        check_all(a);
      }
}

// Scores far inside the cap, at it, and so far beyond that the slope underflows.
TEST(attention_softcap) {
  uint64_t seed = 0;
  for (const Type type : {Type::kFloat32, Type::kFloat64, Type::kBFloat16})
    for (const double softcap : {0.1, 2., 50.})
      for (const double spread : {0.3, 3., 40.})
        for (const int64_t k : {7, 65, 300}) {
          AttentionCase a;
          a.seed = ++seed;
          a.type = type;
          a.alphas = alphas_of(type);
          a.softcap = softcap;
          a.spread = spread;
          a.batch = 1;
          a.heads = 2;
          a.groups = 1 + static_cast<int64_t>(seed % 2);
          a.q = pick(std::vector<int64_t>{1, 25, 50}, seed / 2);
          a.k = k;
          a.d = pick(kDims, seed);
          a.e = pick(kDims, seed + 3);
          a.has_sinks = seed % 3 == 0;
          a.has_slopes = seed % 4 == 0;
          a.is_causal = seed % 5 < 2;
          a.dense_share = pick(kDenseShares, seed);
          if (seed % 4 == 1) a.mask_kind = seed % 8 == 1 ? MaskKind::kBool : MaskKind::kAdded;
          check_all(a);
        }
}

// NaN stays in its row, and in what sums over rows.
TEST(attention_not_a_number) {
  uint64_t seed = 0;
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const double alpha : alphas_of(type))
      for (const int64_t k : {7, 65, 300})
        for (const bool is_causal : {false, true}) {
          AttentionCase a;
          a.seed = ++seed;
          a.type = type;
          a.alphas = {alpha};
          a.heads = a.groups = 2;
          a.q = 29;
          a.k = k;
          a.has_nan = true;
          a.is_causal = is_causal;
          a.has_slopes = seed % 2 == 0;
          a.dropout_p = seed % 5 == 0 ? 0.3 : 0;
          if (seed % 3 == 0) a.mask_kind = seed % 2 ? MaskKind::kBool : MaskKind::kAdded;
          check_all(a);
        }
}

// Everything at once.
AttentionCase any_case(uint64_t seed) {
  Random random(seed);
  AttentionCase a;
  a.seed = seed;
  a.type = random.below(3) == 0 ? Type::kFloat64 : Type::kFloat32;
  a.alphas = alphas_of(a.type);
  a.alpha_dims = static_cast<unsigned>(random.below(8));
  a.batch = 1 + random.below(3);
  a.groups = 1 + random.below(3);
  a.heads = a.groups * (1 + random.below(3));
  const int64_t longest = a.batch * a.heads > 4 ? 8 : 14;
  a.q = kSizes[random.below(longest)];
  a.k = kSizes[random.below(longest)];
  if (a.q * a.k > 10000) a.batch = a.heads = a.groups = 1;
  a.d = kDims[random.below(std::size(kDims))];
  a.e = kDims[random.below(std::size(kDims))];
  a.spread = pick(Doubles{1, 3, 0.1}, random.bits());
  a.layout = pick(kLayouts, random.bits());
  a.mask_kind = static_cast<MaskKind>(random.below(3));
  a.mask_dims = static_cast<unsigned>(random.below(16));
  a.is_mask_transposed = random.below(2);
  a.is_causal = random.below(2);
  a.has_slopes = random.below(2);
  a.window_left = pick(kWindows, random.bits());
  a.window_right = pick(kWindows, random.bits());
  a.window_position = random.below(3) ? 0 : a.k - a.q;
  if (random.below(2))
    for (int64_t b = 0; b < a.batch; ++b) a.key_lengths.push_back(random.below(a.k + 2));
  a.dropout_p = random.below(3) ? 0 : 0.3;
  a.dense_share = pick(kDenseShares, random.bits());
  a.row_limit = pick(std::vector<int64_t>{0, 1, 3, 20, kNoRowLimit}, random.bits());
  return a;
}

TEST(attention_any) {
  int64_t rows = 0, kinks = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const AttentionProblem problem(any_case(seed));
    for (const Kernels* kernels : sets()) check_all(*kernels, problem);
    rows += problem.rows();
    kinks += problem.kinks;
  }
  CHECK(20 * kinks < rows, "%lld of %lld rows are without gradient", static_cast<long long>(kinks),
        static_cast<long long>(rows));
}

// The same in half precision, of inputs, outputs and gradients, on every route.
TEST(attention_half_precision) {
  for (uint64_t seed = 3000; seed < 3060; ++seed) {
    AttentionCase a = any_case(seed);
    a.type = seed % 2 ? Type::kBFloat16 : Type::kFloat16;
    a.alphas = alphas_of(a.type);
    a.has_wide_mask = seed % 4 < 2;
    a.has_nan = seed % 7 == 0;
    check_all(a);
  }
}

TEST(limits_do_not_change_attention) {
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (const double alpha : {1., 1.05, 1.5, 2.})
      for (const int64_t k : {49, 300}) {
        AttentionCase a;
        a.seed = static_cast<uint64_t>(k);
        a.type = type;
        a.alphas = {alpha};
        a.batch = 1;
        a.q = 100;
        a.k = k;
        a.spread = 3;
        const AttentionProblem problem(a);
        for (const Kernels* kernels : sets()) {
          const std::string text = kernels->name + (" " + problem.text());
          const auto all = run_forward(*kernels, problem, Wanted::kOutput, kNoRowLimit);
          for (const int64_t limit : {0, 1, 2, 5, 10, 40}) {
            const auto some = run_forward(*kernels, problem, Wanted::kOutput, limit);
            CHECK(some->out == all->out && some->state == all->state &&
                      some->support.counts() == all->support.counts(),
                  "%s: with limit %lld the result is another", text.c_str(),
                  static_cast<long long>(limit));
            check_blocks(text, problem, *some, limit, false);
            const auto support = run_forward(*kernels, problem, Wanted::kSupport, limit);
            check_blocks(text, problem, *support, limit, true);
          }
        }
      }
}

TEST(threads_do_not_change_attention) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    AttentionCase a = any_case(1000 + seed);
    a.row_limit = 20;
    // Masks whose gradients of many rows or heads fall on the same numbers; several chunks.
    if (seed % 3 == 0)
      a.mask_kind = MaskKind::kAdded, a.mask_dims = static_cast<unsigned>(seed / 3 * 5 % 16);
    if (seed % 3 == 1) a.q = 700, a.k = 25, a.batch = 1, a.heads = a.groups = 2;
    if (seed % 4 == 3) a.type = Type::kBFloat16, a.alphas = alphas_of(a.type);
    if (!a.key_lengths.empty()) a.key_lengths.assign(static_cast<size_t>(a.batch), a.k / 2);
    const AttentionProblem problem(a);
    for (const Kernels* kernels : sets()) {
      const std::string text = kernels->name + (" " + problem.text());
      const auto is_dense = [](int64_t head) { return head % 2 == 0; };
      const auto one = run_forward(*kernels, problem, Wanted::kSupport, kNoRowLimit);
      const auto one_out = run_forward(*kernels, problem, Wanted::kOutput, a.row_limit);
      const auto source = run_forward(*kernels, problem, Wanted::kSupport, kNoRowLimit);
      const Support support(problem, *source, is_dense);
      const BackwardResult first = run_backward(*kernels, problem, *one, support, true);
      const BackwardResult bare = run_backward(*kernels, problem, *one, support, false);
      for (const int threads : {1, 2, 5}) {
        for (const Wanted wanted : {Wanted::kOutput, Wanted::kSupport}) {
          const bool is_out = wanted == Wanted::kOutput;
          const auto result =
              run_forward(*kernels, problem, wanted, is_out ? a.row_limit : kNoRowLimit, threads);
          const ForwardResult& expected = is_out ? *one_out : *one;
          CHECK(result->out == expected.out && result->state == expected.state &&
                    result->has_same_support(expected, precision(a.computed()).bytes),
                "%s: %d threads give another result", text.c_str(), threads);
        }
        const auto again = [&](bool with_all) {
          return run_backward(*kernels, problem, *one, support, with_all, threads);
        };
        CHECK(again(true) == first && again(false) == bare, "%s: %d threads give other gradients",
              text.c_str(), threads);
      }
    }
  }
}

// No batches, queries, keys or features: sums of nothing are zero.
TEST(attention_over_nothing) {
  for (const Type type : {Type::kFloat32, Type::kFloat64})
    for (int64_t AttentionCase::* size : {&AttentionCase::batch, &AttentionCase::q,
                                          &AttentionCase::k, &AttentionCase::d, &AttentionCase::e})
      for (const double dropout_p : {0., 0.3}) {
        AttentionCase a;
        a.type = type;
        a.*size = 0;
        a.dropout_p = dropout_p;
        check_all(a);
      }
}

// Measures: nothing comes of it.
TEST(attention_scores_alone) {
  for (uint64_t seed = 2000; seed < 2020; ++seed) {
    const AttentionProblem problem(any_case(seed));
    for (const Kernels* kernels : sets()) {
      adasparse::AttentionForward call = forward_call(problem, 2);
      call.is_scores_only = true;
      kernels->attention_forward(call);
      CHECK(true, "%s", kernels->name);
    }
  }
}

}  // namespace
}  // namespace kernel_tests
