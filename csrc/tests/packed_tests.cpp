// Tests of packed batches: every sequence against the reference of its own, forward and backward.
#include "attention/packed.h"

#include "attention_checks.h"
#include "dispatch.h"

namespace kernel_tests {
namespace {

using adasparse::PackedAttention;

class Using {
 public:
  explicit Using(const Kernels& kernels) : before_(adasparse::current_kernels()) {
    adasparse::use_kernels(kernels);
  }
  ~Using() { adasparse::use_kernels(before_); }

 private:
  const Kernels& before_;
};

struct Lengths {
  int64_t queries, keys, used;  // the last keys beyond `used` hold NaN
};

// (tokens, heads, size) in memory.
adasparse::WritableRows by_token(const Array& array, int64_t heads, int64_t size) {
  return {array.data(), {0, size, heads * size}};
}

// Sequences with data of their own, and one after another.
class PackedProblem {
 public:
  AttentionCase shared;
  std::vector<Lengths> lengths;
  std::vector<std::unique_ptr<AttentionProblem>> sequences;
  std::vector<int64_t> first_query{0}, first_key{0};

  PackedProblem(const AttentionCase& asked, const std::vector<Lengths>& of)
      : shared(asked), lengths(of) {
    for (const Lengths& n : lengths) {
      AttentionCase a = asked;
      a.batch = 1;
      a.q = n.queries;
      a.k = n.used;
      a.layout = Layout::kPlain;
      a.first_row = a.heads * first_query.back();
      // The last query stands at the last key, and a causal one sees nothing behind it.
      a.window_position = n.used - n.queries;
      a.is_causal = false;
      if (asked.is_causal) a.window_right = 0;
      sequences.push_back(std::make_unique<AttentionProblem>(a));
      first_query.push_back(first_query.back() + n.queries);
      first_key.push_back(first_key.back() + n.keys);
    }
    query_ =
        joined(shared.heads, shared.d, first_query, &AttentionCase::q, &AttentionProblem::queries);
    grad_ =
        joined(shared.heads, shared.e, first_query, &AttentionCase::q, &AttentionProblem::grads);
    key_ = joined(shared.groups, shared.d, first_key, &AttentionCase::k, &AttentionProblem::keys);
    value_ =
        joined(shared.groups, shared.e, first_key, &AttentionCase::k, &AttentionProblem::values);
    for (int64_t h = 0; h < shared.heads; ++h)
      for (const auto& sequence : sequences)
        for (int64_t i = 0; i < sequence->q; ++i)
          alpha_.push_back(sequence->alpha_of(h * sequence->q + i));
  }

  int64_t queries() const { return first_query.back(); }
  int64_t keys() const { return first_key.back(); }
  const Rows& grad() const { return *grad_; }

  AttentionInput input(int threads) const {
    AttentionInput in = sequences[0]->input(threads);  // slopes, sinks and seed are those of all
    in.q = queries(), in.k = keys();
    in.query = query_->view(), in.key = key_->view(), in.value = value_->view();
    in.alpha = alpha_.data();
    const bool has_rows = shared.alpha_dims & 1;  // else one alpha per head, wherever it stands
    const int64_t strides[] = {0, queries(), has_rows ? 1 : 0};
    std::copy_n(strides, 3, in.alpha_strides);
    in.is_causal = shared.is_causal;
    in.window_left = shared.window_left, in.window_right = shared.window_right;
    in.window_position = 0;
    return in;
  }
  adasparse::Packing packing() const {
    adasparse::Packing packing{first_query, {}, {}, nullptr, 0};
    for (size_t s = 0; s < lengths.size(); ++s) {
      packing.key.push_back(first_key[s]);
      packing.used.push_back(lengths[s].used);
    }
    return packing;
  }

 private:
  std::unique_ptr<Rows> joined(int64_t heads, int64_t size, const std::vector<int64_t>& firsts,
                               int64_t AttentionCase::* count,
                               const Doubles& (AttentionProblem::*numbers)() const) const {
    auto rows = std::make_unique<Rows>(shared.type, 1, heads, firsts.back(), size, shared.layout);
    for (size_t s = 0; s < sequences.size(); ++s) {
      const AttentionProblem& from = *sequences[s];
      const double* next = (from.*numbers)().data();
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < from.*count; ++i)
          rows->set_row(0, h, firsts[s] + i, [&] { return *next++; });
    }
    return rows;
  }

  std::unique_ptr<Rows> query_, key_, value_, grad_;
  Doubles alpha_;
};

// Some tokens of (tokens, heads, size), in the order (heads, tokens, size) of a problem.
Array taken(const Array& from, Type type, int64_t first, int64_t tokens, int64_t heads,
            int64_t size) {
  Array out(type, heads * tokens * size);
  for (int64_t h = 0, to = 0; h < heads; ++h)
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t t = 0; t < size; ++t, ++to)
        out.set(to, from[((first + i) * heads + h) * size + t]);
  return out;
}

struct PackedResult {
  Array out, sinks, query, key, value, alpha, slopes, by_sink;

  explicit PackedResult(const PackedProblem& problem)
      : out(problem.shared.type, rows(problem) * problem.shared.e),
        sinks(problem.shared.computed(), problem.shared.has_sinks ? rows(problem) : 0),
        query(problem.shared.type, rows(problem) * problem.shared.d),
        key(problem.shared.type, problem.keys() * problem.shared.groups * problem.shared.d),
        value(problem.shared.type, problem.keys() * problem.shared.groups * problem.shared.e),
        alpha(Type::kFloat64, rows(problem)),
        slopes(Type::kFloat64, rows(problem)),
        by_sink(Type::kFloat64, problem.shared.has_sinks ? rows(problem) : 0) {}
  static int64_t rows(const PackedProblem& problem) {
    return problem.shared.heads * problem.queries();
  }
  bool is_intact() const {
    for (const Array* x : {&out, &sinks, &query, &key, &value, &alpha, &slopes, &by_sink})
      if (!x->is_intact()) return false;
    return true;
  }
  bool operator==(const PackedResult& other) const {
    return out == other.out && sinks == other.sinks && query == other.query && key == other.key &&
           value == other.value && alpha == other.alpha && slopes == other.slopes &&
           by_sink == other.by_sink;
  }
};

PackedResult run_packed(const PackedProblem& problem, int64_t support_bytes, int threads) {
  const AttentionCase& shared = problem.shared;
  const AttentionInput in = problem.input(threads);
  const int64_t rows = PackedResult::rows(problem);
  const auto count = static_cast<int64_t>(problem.lengths.size());
  PackedResult result(problem);
  PackedAttention packed(in, problem.packing());
  Array state(Type::kFloat64, rows * adasparse::kRowState);
  Array weights(shared.computed(), packed.weights_size());
  adasparse::AttentionForward forward{};
  forward.out = by_token(result.out, shared.heads, shared.e);
  forward.state = doubles(state);
  forward.weights = weights.data();
  forward.sink_weights = shared.has_sinks ? result.sinks.data() : nullptr;
  packed.forward(forward, true, support_bytes);

  std::vector<int64_t> offsets(static_cast<size_t>(rows + count), -1);
  std::vector<uint8_t> is_dense(static_cast<size_t>(shared.heads * count));
  const int64_t entries = packed.arrange(offsets.data(), is_dense.data());
  std::vector<int32_t> index(static_cast<size_t>(entries));
  Array weight(shared.computed(), entries);
  packed.move(offsets.data(), is_dense.data(), index.data(), weight.data());

  adasparse::AttentionBackward backward{};
  backward.grad = problem.grad().view();
  backward.weights = weights.data();
  backward.state = doubles(state);
  backward.offsets = offsets.data();
  backward.index = index.data();
  backward.weight = weight.data();
  backward.is_dense = is_dense.data();
  backward.sink_weights = forward.sink_weights;
  backward.grad_query = by_token(result.query, shared.heads, shared.d);
  backward.grad_key = by_token(result.key, shared.groups, shared.d);
  backward.grad_value = by_token(result.value, shared.groups, shared.e);
  backward.grad_alpha = doubles(result.alpha);
  backward.grad_slopes = doubles(result.slopes);
  backward.grad_sinks = shared.has_sinks ? doubles(result.by_sink) : nullptr;
  packed.backward(backward);
  CHECK(state.is_intact() && weights.is_intact() && weight.is_intact(),
        "%s: wrote outside of what is saved", shared.text().c_str());

  Array alone(shared.type, rows * shared.e);
  forward.out = by_token(alone, shared.heads, shared.e);
  packed.forward(forward, false, 0);
  CHECK(alone == result.out, "%s: what is saved changes the output", shared.text().c_str());
  return result;
}

void check_sequence(const std::string& text, const PackedProblem& problem,
                    const PackedResult& result, size_t s) {
  const AttentionProblem& expected = *problem.sequences[s];
  const int64_t heads = expected.heads, groups = expected.groups, q = expected.q, k = expected.k;
  const Type type = expected.type, computed = expected.computed();
  const int64_t query = problem.first_query[s], key = problem.first_key[s];
  // Rows lie one sequence after another, each head by head.
  const auto rows = [&](const Array& from, Type of) {
    return taken(from, of, heads * query, heads * q, 1, 1);
  };
  check_near(text, "output", taken(result.out, type, query, q, heads, expected.e), expected.out,
             bars_of(type).tensor);
  if (expected.has_sinks)
    check_near(text, "weight of the sink", rows(result.sinks, computed), expected.sink_weights,
               bars_of(computed).tensor);
  if (q == 0) return;  // its keys are left alone
  BackwardResult got(expected);
  got.query = taken(result.query, type, query, q, heads, expected.d);
  got.key = taken(result.key, type, key, k, groups, expected.d);
  got.value = taken(result.value, type, key, k, groups, expected.e);
  got.alpha = rows(result.alpha, Type::kFloat64);
  got.slopes = rows(result.slopes, Type::kFloat64);
  if (expected.has_sinks) got.sinks = rows(result.by_sink, Type::kFloat64);
  check_gradients(text, expected, got, true);
}

// Keys that no query sees have no gradient: it stays as it was.
void check_untouched(const std::string& text, const PackedProblem& problem, const Array& gradient,
                     int64_t size) {
  const Array fresh(problem.shared.type, 1);
  bool is_untouched = true;
  for (size_t s = 0; s < problem.lengths.size(); ++s) {
    const Lengths& n = problem.lengths[s];
    for (int64_t j = n.queries ? n.used : 0; j < n.keys; ++j)
      for (int64_t t = 0; t < size; ++t)
        is_untouched &= gradient[(problem.first_key[s] + j) * size + t] == fresh[0];
  }
  CHECK(is_untouched, "%s: wrote gradients of keys that are not used", text.c_str());
}

void check_packed(const AttentionCase& asked, const std::vector<Lengths>& lengths,
                  int64_t support_bytes) {
  const PackedProblem problem(asked, lengths);
  for (const Kernels* kernels : sets()) {
    const Using chosen(*kernels);
    const std::string text = std::string(kernels->name) + " packed";
    const PackedResult result = run_packed(problem, support_bytes, 1);
    CHECK(result.is_intact(), "%s %s: wrote outside its memory", text.c_str(),
          asked.text().c_str());
    for (size_t s = 0; s < lengths.size(); ++s)
      check_sequence(text + " " + problem.sequences[s]->text(), problem, result, s);
    check_untouched(text, problem, result.key, asked.groups * asked.d);
    check_untouched(text, problem, result.value, asked.groups * asked.e);
    for (const int threads : {2, 5})
      CHECK(run_packed(problem, support_bytes, threads) == result,
            "%s %s: %d threads give another result", text.c_str(), asked.text().c_str(), threads);
  }
}

// ---------------------------------------------------------------- the tests

constexpr int64_t kAllBytes = int64_t{1} << 30;

// Lengths around those of blocks, strips and whole weights, without queries or keys, with more
// queries than keys, and with keys that are not used.
const std::vector<Lengths> kLengths{{25, 25, 25}, {0, 5, 5},    {1, 1, 1},    {70, 70, 66},
                                    {7, 0, 0},    {64, 64, 64}, {30, 9, 9},   {130, 131, 130},
                                    {0, 0, 0},    {49, 90, 65}, {1, 200, 150}};

AttentionCase packed_case(uint64_t seed) {
  constexpr Type types[] = {Type::kFloat32, Type::kFloat64, Type::kBFloat16, Type::kFloat16};
  AttentionCase a;
  a.seed = seed;
  a.type = types[seed % 4];
  a.alphas = {1.5, 1, 1.2, 2};
  a.alpha_dims = seed % 3 ? 0b010 : 0b011;
  a.heads = 2 + static_cast<int64_t>(seed % 2) * 2;
  a.groups = 2;
  a.d = seed % 5 ? 8 : 17;
  a.e = seed % 3 ? 16 : 5;
  a.layout = seed % 2 ? Layout::kHeadsInside : Layout::kGaps;
  return a;
}

TEST(packed_sequences) {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    AttentionCase a = packed_case(seed);
    a.is_causal = seed % 4 < 2;
    a.has_sinks = seed / 2 % 2;
    a.softcap = seed / 3 % 2 ? 1.5 : 0;
    a.has_slopes = seed / 4 % 2;
    a.dropout_p = seed % 5 == 1 ? 0.3 : 0;
    if (seed % 3 == 2) a.window_left = 40, a.window_right = seed % 2 ? 3 : -1;
    a.spread = seed % 7 ? 1 : 0.1;
    check_packed(a, kLengths, kAllBytes);
  }
}

// Memory for a part of the support: what is lost is recomputed.
TEST(packed_with_little_memory) {
  for (uint64_t seed = 20; seed < 24; ++seed)
    for (const int64_t bytes : {0, 20000}) {
      AttentionCase a = packed_case(seed);
      a.has_sinks = seed % 2;
      a.spread = 0.1;
      check_packed(a, kLengths, bytes);
    }
}

// One sequence with nearly all the work, which threads divide, and many that they take in turn.
TEST(packed_unevenly) {
  AttentionCase a = packed_case(30);
  a.heads = a.groups = 1;
  a.is_causal = true;
  std::vector<Lengths> lengths(20, {11, 11, 11});
  lengths[7] = {300, 300, 300};
  check_packed(a, lengths, kAllBytes);
}

// Keys and values in pages, backwards or side by side, the rest of the last page NaN.
TEST(packed_pages) {
  for (uint64_t seed = 40; seed < 46; ++seed) {
    AttentionCase a = packed_case(seed);
    a.is_causal = seed % 2;
    a.has_sinks = seed / 2 % 2;
    const PackedProblem problem(a, kLengths);
    const int64_t page = seed % 3 ? 16 : 7, row = (200 + page - 1) / page;
    const bool is_reversed = seed % 2;
    const auto count = static_cast<int64_t>(kLengths.size()), pages = count * row;
    std::vector<int32_t> table;
    for (int64_t at = 0; at < pages; ++at)
      table.push_back(static_cast<int32_t>(is_reversed ? pages - 1 - at : at));
    Rows key(a.type, pages, a.groups, page, a.d, Layout::kHeadsInside);
    Rows value(a.type, pages, a.groups, page, a.e, Layout::kHeadsInside);
    const auto place = [&](Rows& to, size_t s, const Doubles& numbers) {
      const double* next = numbers.data();
      for (int64_t g = 0; g < a.groups; ++g)
        for (int64_t j = 0; j < kLengths[s].used; ++j)
          to.set_row(table[static_cast<int64_t>(s) * row + j / page], g, j % page,
                     [&] { return *next++; });
    };
    for (size_t s = 0; s < kLengths.size(); ++s) {
      place(key, s, problem.sequences[s]->keys());
      place(value, s, problem.sequences[s]->values());
    }
    for (const Kernels* kernels : sets())
      for (const int threads : {1, 3}) {
        const Using chosen(*kernels);
        AttentionInput in = problem.input(threads);
        in.k = page;
        in.key = key.view(), in.value = value.view();
        adasparse::Packing packing = problem.packing();
        packing.key.clear();
        packing.table = table.data();
        packing.pages = row;
        PackedAttention packed(in, packing);
        PackedResult result(problem);
        adasparse::AttentionForward forward{};
        forward.out = by_token(result.out, a.heads, a.e);
        packed.forward(forward, false, 0);
        CHECK(result.is_intact(), "%s pages: wrote outside its memory", kernels->name);
        for (size_t s = 0; s < kLengths.size(); ++s) {
          const AttentionProblem& expected = *problem.sequences[s];
          check_near(std::string(kernels->name) + " pages " + expected.text(), "output",
                     taken(result.out, a.type, problem.first_query[s], expected.q, a.heads, a.e),
                     expected.out, bars_of(a.type).tensor);
        }
      }
  }
}

}  // namespace
}  // namespace kernel_tests
