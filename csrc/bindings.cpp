// Python's access to the kernels. Tensors arrive as addresses: adasparse.kernels.cpu has checked
// type, shape and contiguity, and keeps them alive for the length of the call. All arguments are
// named. std::bad_alloc of any thread becomes MemoryError.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>

#include "attention/arrange.h"
#include "attention/packed.h"
#include "dispatch.h"
#include "pages.h"
#include "parallel.h"
#include "tuning.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace {

using adasparse::AttentionBackward;
using adasparse::AttentionInput;
using adasparse::MaskKind;
using adasparse::PackedAttention;
using adasparse::SavedSupport;
using adasparse::Type;
using Address = uintptr_t;               // 0 for a tensor that is not there
using Strides = std::array<int64_t, 4>;  // of (b, h, n, size), the last of which is 1

template <class T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

// ---------------------------------------------------------------- rows

void entmax_forward(Type type, Address scores, Address weights, Address alpha, int64_t alpha_stride,
                    int64_t rows, int64_t n, int threads) {
  adasparse::current_kernels().entmax_forward({
      .type = type,
      .scores = at<const void>(scores),
      .weights = at<void>(weights),
      .alpha = at<const double>(alpha),
      .alpha_stride = alpha_stride,
      .rows = rows,
      .n = n,
      .threads = threads,
  });
}

void entmax_backward(Type type, Address weights, Address grad, Address grad_scores,
                     Address grad_alpha, Address alpha, int64_t alpha_stride, int64_t rows,
                     int64_t n, int threads) {
  adasparse::current_kernels().entmax_backward({
      .type = type,
      .weights = at<const void>(weights),
      .grad = at<const void>(grad),
      .grad_scores = at<void>(grad_scores),
      .grad_alpha = at<double>(grad_alpha),
      .alpha = at<const double>(alpha),
      .alpha_stride = alpha_stride,
      .rows = rows,
      .n = n,
      .threads = threads,
  });
}

void make_target(adasparse::Target* self, Address index, Address probability, Address weight,
                 int64_t ignore_index, double smoothing) {
  new (self) adasparse::Target{
      .index = at<const int64_t>(index),
      .probability = at<const void>(probability),
      .weight = at<const void>(weight),
      .ignore_index = ignore_index,
      .smoothing = smoothing,
  };
}

void loss_forward(Type type, Address scores, Address loss, Address state,
                  const adasparse::Target& target, Address alpha, int64_t alpha_stride,
                  int64_t rows, int64_t n, int threads) {
  adasparse::current_kernels().loss_forward({
      .type = type,
      .scores = at<const void>(scores),
      .loss = at<double>(loss),
      .state = at<double>(state),
      .target = target,
      .alpha = at<const double>(alpha),
      .alpha_stride = alpha_stride,
      .rows = rows,
      .n = n,
      .threads = threads,
  });
}

void loss_backward(Type type, Address scores, Address state, Address grad, Address grad_scores,
                   Address grad_alpha, const adasparse::Target& target, Address alpha,
                   int64_t alpha_stride, int64_t rows, int64_t n, int threads) {
  adasparse::current_kernels().loss_backward({
      .type = type,
      .scores = at<const void>(scores),
      .state = at<const double>(state),
      .grad = at<const double>(grad),
      .grad_scores = at<void>(grad_scores),
      .grad_alpha = at<double>(grad_alpha),
      .target = target,
      .alpha = at<const double>(alpha),
      .alpha_stride = alpha_stride,
      .rows = rows,
      .n = n,
      .threads = threads,
  });
}

// ---------------------------------------------------------------- attention

adasparse::RowsOf rows_of(Address data, const Strides& strides) {
  return {at<const void>(data), {strides[0], strides[1], strides[2]}};
}

adasparse::WritableRows writable_rows(Address data, const Strides& strides) {
  return {at<void>(data), {strides[0], strides[1], strides[2]}};
}

adasparse::CodesOf codes_of(Address codes, const Strides& strides, Address bounds,
                            const Strides& bound_strides) {
  return {.codes = at<const uint8_t>(codes),
          .strides = {strides[0], strides[1]},
          .bounds = at<const float>(bounds),
          .bound_strides = {bound_strides[0], bound_strides[1], bound_strides[2]}};
}

void code_keys(Type type, int64_t batch, int64_t groups, int64_t first, int64_t n, int64_t d,
               Address key, const Strides& key_strides, Address codes, const Strides& code_strides,
               Address code_bounds, const Strides& code_bound_strides, int threads) {
  adasparse::current_kernels().code_keys({
      .type = type,
      .key = rows_of(key, key_strides),
      .batch = batch,
      .groups = groups,
      .first = first,
      .n = n,
      .d = d,
      .codes = at<uint8_t>(codes),
      .bounds = at<float>(code_bounds),
      .to = codes_of(codes, code_strides, code_bounds, code_bound_strides),
      .threads = threads,
  });
}

void make_input(AttentionInput* self, Type type, int64_t batch, int64_t heads, int64_t groups,
                int64_t q, int64_t k, int64_t d, int64_t e, Address query,
                const Strides& query_strides, Address key, const Strides& key_strides,
                Address value, const Strides& value_strides, Address codes,
                const Strides& code_strides, Address code_bounds, const Strides& code_bound_strides,
                Address alpha, const Strides& alpha_strides, MaskKind mask_kind, Type mask_type,
                Address mask, const Strides& mask_strides, Address key_lengths, Address slopes,
                Address sinks, double scale, double softcap, bool is_causal, int64_t window_left,
                int64_t window_right, int64_t window_position, double dropout_p, uint64_t seed,
                int threads) {
  new (self) AttentionInput{
      .type = type,
      .batch = batch,
      .heads = heads,
      .groups = groups,
      .q = q,
      .k = k,
      .d = d,
      .e = e,
      .query = rows_of(query, query_strides),
      .key = rows_of(key, key_strides),
      .value = rows_of(value, value_strides),
      .codes = codes_of(codes, code_strides, code_bounds, code_bound_strides),
      .alpha = at<const double>(alpha),
      .alpha_strides = {alpha_strides[0], alpha_strides[1], alpha_strides[2]},
      .mask_kind = mask_kind,
      .mask_type = mask_type,
      .mask = at<const void>(mask),
      .mask_strides = {mask_strides[0], mask_strides[1], mask_strides[2], mask_strides[3]},
      .key_lengths = at<const int64_t>(key_lengths),
      .slopes = at<const double>(slopes),
      .sinks = at<const double>(sinks),
      .scale = scale,
      .softcap = softcap,
      .is_causal = is_causal,
      .window_left = window_left,
      .window_right = window_right,
      .window_position = window_position,
      .dropout_p = dropout_p,
      .seed = seed,
      .threads = threads,
  };
}

void attention_forward(const AttentionInput& input, Address out, const Strides& out_strides,
                       Address weights, Address state, Address sink_weights, SavedSupport* support,
                       int64_t support_bytes, Address rescored) {
  adasparse::current_kernels().attention_forward({
      .in = input,
      .out = writable_rows(out, out_strides),
      .state = at<double>(state),
      .counts = support ? support->counts().data() : nullptr,
      .rescored = at<int64_t>(rescored),
      .blocks = support ? support->blocks().data() : nullptr,
      .weights = at<void>(weights),
      .sink_weights = at<void>(sink_weights),
      .row_limit = adasparse::row_limit_of(input, support_bytes),
      .dense_share = adasparse::dense_share_of(input),
      .is_scores_only = false,
  });
}

void attention_support(const AttentionInput& input, SavedSupport& support) {
  adasparse::current_kernels().attention_forward({
      .in = input,
      .out = {},
      .state = nullptr,
      .counts = support.counts().data(),
      .rescored = nullptr,
      .blocks = support.blocks().data(),
      .weights = nullptr,
      .sink_weights = nullptr,
      .row_limit = adasparse::kNoRowLimit,
      .dense_share = 1,
      .is_scores_only = false,
  });
}

void attention_scores(const AttentionInput& input) {
  adasparse::current_kernels().attention_forward({
      .in = input,
      .out = {},
      .state = nullptr,
      .counts = nullptr,
      .rescored = nullptr,
      .blocks = nullptr,
      .weights = nullptr,
      .sink_weights = nullptr,
      .row_limit = 0,
      .dense_share = 0,
      .is_scores_only = true,
  });
}

int64_t arrange(SavedSupport& self, const AttentionInput& input, Address offsets, Address is_dense,
                bool keeps_all) {
  const double share = keeps_all ? 1 : adasparse::dense_share_of(input);
  self.find_dense(share, at<uint8_t>(is_dense));
  return self.place(at<const uint8_t>(is_dense), at<int64_t>(offsets));
}

void move(SavedSupport& self, Address offsets, Address is_dense, Address index, Address weight) {
  self.move(at<const uint8_t>(is_dense), at<const int64_t>(offsets), at<int32_t>(index),
            at<void>(weight));
}

void make_backward(AttentionBackward* self, const AttentionInput& input, Address grad,
                   const Strides& grad_strides, Address weights, Address state, Address offsets,
                   Address index, Address weight, Address is_dense, Address sink_weights,
                   Address grad_query, const Strides& grad_query_strides, Address grad_key,
                   const Strides& grad_key_strides, Address grad_value,
                   const Strides& grad_value_strides, Address grad_alpha, Address grad_slopes,
                   Address grad_sinks, Address grad_mask, const Strides& grad_mask_strides) {
  const Strides& mask = grad_mask_strides;
  new (self) AttentionBackward{
      .in = input,
      .grad = rows_of(grad, grad_strides),
      .weights = at<const void>(weights),
      .state = at<const double>(state),
      .offsets = at<const int64_t>(offsets),
      .index = at<const int32_t>(index),
      .weight = at<const void>(weight),
      .is_dense = at<const uint8_t>(is_dense),
      .sink_weights = at<const void>(sink_weights),
      .grad_query = writable_rows(grad_query, grad_query_strides),
      .grad_key = writable_rows(grad_key, grad_key_strides),
      .grad_value = writable_rows(grad_value, grad_value_strides),
      .grad_alpha = at<double>(grad_alpha),
      .grad_slopes = at<double>(grad_slopes),
      .grad_sinks = at<double>(grad_sinks),
      .grad_mask = at<void>(grad_mask),
      .grad_mask_strides = {mask[0], mask[1], mask[2], mask[3]},
  };
}

// ---------------------------------------------------------------- packed batches

void make_packed(PackedAttention* self, const AttentionInput& input, std::vector<int64_t> query,
                 std::vector<int64_t> key, std::vector<int64_t> used, Address table,
                 int64_t pages) {
  new (self) PackedAttention(input, {.query = std::move(query),
                                     .key = std::move(key),
                                     .used = std::move(used),
                                     .table = at<const int32_t>(table),
                                     .pages = pages});
}

void packed_forward(PackedAttention& self, Address out, const Strides& out_strides, bool is_saved,
                    Address weights, Address state, Address sink_weights, int64_t support_bytes) {
  self.forward(
      {
          .in = {},
          .out = writable_rows(out, out_strides),
          .state = at<double>(state),
          .counts = nullptr,
          .rescored = nullptr,
          .blocks = nullptr,
          .weights = at<void>(weights),
          .sink_weights = at<void>(sink_weights),
          .row_limit = 0,
          .dense_share = 0,
          .is_scores_only = false,
      },
      is_saved, support_bytes);
}

constexpr Strides kNoStrides{0, 0, 0, 0};

void bind_rows(nb::module_& m) {
  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  nb::enum_<Type>(m, "Type", "Element type of tensors.")
      .value("FLOAT32", Type::kFloat32)
      .value("FLOAT64", Type::kFloat64)
      .value("BFLOAT16", Type::kBFloat16)
      .value("FLOAT16", Type::kFloat16);
  m.def("entmax_forward", &entmax_forward, nb::kw_only(), "type"_a, "scores"_a, "weights"_a,
        "alpha"_a, "alpha_stride"_a, "rows"_a, "n"_a, "threads"_a, unlocked);
  m.def("entmax_backward", &entmax_backward, nb::kw_only(), "type"_a, "weights"_a, "grad"_a,
        "grad_scores"_a, "grad_alpha"_a, "alpha"_a, "alpha_stride"_a, "rows"_a, "n"_a, "threads"_a,
        unlocked);
  nb::class_<adasparse::Target>(m, "Target", "Targets of the rows of a loss.")
      .def("__init__", &make_target, nb::kw_only(), "index"_a, "probability"_a, "weight"_a,
           "ignore_index"_a, "smoothing"_a);
  m.def("loss_forward", &loss_forward, nb::kw_only(), "type"_a, "scores"_a, "loss"_a, "state"_a,
        "target"_a, "alpha"_a, "alpha_stride"_a, "rows"_a, "n"_a, "threads"_a, unlocked);
  m.def("loss_backward", &loss_backward, nb::kw_only(), "type"_a, "scores"_a, "state"_a, "grad"_a,
        "grad_scores"_a, "grad_alpha"_a, "target"_a, "alpha"_a, "alpha_stride"_a, "rows"_a, "n"_a,
        "threads"_a, unlocked);
}

void bind_attention(nb::module_& m) {
  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  nb::enum_<MaskKind>(m, "MaskKind", "Meaning of an attention mask.")
      .value("NONE", MaskKind::kNone)
      .value("BOOL", MaskKind::kBool)
      .value("ADDED", MaskKind::kAdded);
  nb::class_<AttentionInput>(m, "AttentionInput", "One attention call: see AttentionProblem.")
      .def("__init__", &make_input, nb::kw_only(), "type"_a, "batch"_a, "heads"_a, "groups"_a,
           "q"_a, "k"_a, "d"_a, "e"_a, "query"_a, "query_strides"_a, "key"_a, "key_strides"_a,
           "value"_a, "value_strides"_a, "codes"_a = 0, "code_strides"_a = kNoStrides,
           "code_bounds"_a = 0, "code_bound_strides"_a = kNoStrides, "alpha"_a, "alpha_strides"_a,
           "mask_kind"_a = MaskKind::kNone, "mask_type"_a = Type::kFloat32, "mask"_a = 0,
           "mask_strides"_a = kNoStrides, "key_lengths"_a = 0, "slopes"_a = 0, "sinks"_a = 0,
           "scale"_a, "softcap"_a = 0., "is_causal"_a = false, "window_left"_a = -1,
           "window_right"_a = -1, "window_position"_a = 0, "dropout_p"_a = 0., "seed"_a = 0,
           "threads"_a);
  nb::class_<SavedSupport>(m, "Support", "Support of all rows, until it moves into tensors.")
      .def(nb::init<const AttentionInput&>(), "input"_a)
      .def("arrange", &arrange, nb::kw_only(), "input"_a, "offsets"_a, "is_dense"_a,
           "keeps_all"_a = false, unlocked,
           "Decides which heads are dense, fills offsets and is_dense and returns the number of "
           "entries of the other heads.")
      .def("move", &move, nb::kw_only(), "offsets"_a, "is_dense"_a, "index"_a, "weight"_a, unlocked,
           "Moves the entries to where offsets say.");
  m.attr("CODE_KEYS") = adasparse::kCodePanel;
  m.def("code_keys", &code_keys, nb::kw_only(), "type"_a, "batch"_a, "groups"_a, "first"_a, "n"_a,
        "d"_a, "key"_a, "key_strides"_a, "codes"_a, "code_strides"_a, "code_bounds"_a,
        "code_bound_strides"_a, "threads"_a, unlocked,
        "Codes keys from `first` on, a multiple of CODE_KEYS, as int8 with bounds of the error.");
  m.def(
      "has_code_products", [] { return adasparse::current_kernels().has_code_products(); },
      "Whether this processor multiplies codes faster than float32.");
  m.attr("SUPPORT_BYTES") = adasparse::kSupportBytes;
  m.def(
      "saves_weights",
      [](const AttentionInput& input) { return adasparse::current_kernels().saves_weights(input); },
      "input"_a, unlocked, "Whether the forward saves weights whole, not as a support.");
  m.def("attention_forward", &attention_forward, "input"_a, nb::kw_only(), "out"_a, "out_strides"_a,
        "weights"_a = 0, "state"_a = 0, "sink_weights"_a = 0, "support"_a = nb::none(),
        "support_bytes"_a = adasparse::kSupportBytes, "rescored"_a = 0, unlocked);
  m.def("attention_support", &attention_support, "input"_a, nb::kw_only(), "support"_a, unlocked);
  m.def("attention_scores", &attention_scores, "input"_a, unlocked,
        "Computes scores and nothing else, to measure them.");
  nb::class_<AttentionBackward>(m, "AttentionBackward",
                                "One backward call: what the forward saved.")
      .def("__init__", &make_backward, "input"_a, nb::kw_only(), "grad"_a, "grad_strides"_a,
           "weights"_a = 0, "state"_a = 0, "offsets"_a = 0, "index"_a = 0, "weight"_a = 0,
           "is_dense"_a = 0, "sink_weights"_a = 0, "grad_query"_a, "grad_query_strides"_a,
           "grad_key"_a, "grad_key_strides"_a, "grad_value"_a, "grad_value_strides"_a,
           "grad_alpha"_a = 0, "grad_slopes"_a = 0, "grad_sinks"_a = 0, "grad_mask"_a = 0,
           "grad_mask_strides"_a = kNoStrides);
  m.def(
      "attention_backward",
      [](const AttentionBackward& call) { adasparse::current_kernels().attention_backward(call); },
      "call"_a, unlocked);
}

void bind_packed(nb::module_& m) {
  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<PackedAttention>(m, "PackedAttention", "Attention in a packed batch.")
      .def("__init__", &make_packed, "input"_a, nb::kw_only(), "query"_a, "key"_a, "used"_a,
           "table"_a = 0, "pages"_a = 0)
      .def("weights_size", &PackedAttention::weights_size,
           "Numbers in the weights of sequences that save them whole.")
      .def("forward", &packed_forward, nb::kw_only(), "out"_a, "out_strides"_a, "is_saved"_a,
           "weights"_a = 0, "state"_a = 0, "sink_weights"_a = 0,
           "support_bytes"_a = adasparse::kSupportBytes, unlocked)
      .def(
          "arrange",
          [](const PackedAttention& self, Address offsets, Address is_dense) {
            return self.arrange(at<int64_t>(offsets), at<uint8_t>(is_dense));
          },
          nb::kw_only(), "offsets"_a, "is_dense"_a, unlocked,
          "Fills offsets and is_dense and returns the number of entries of all supports.")
      .def(
          "move",
          [](PackedAttention& self, Address offsets, Address is_dense, Address index,
             Address weight) {
            self.move(at<const int64_t>(offsets), at<const uint8_t>(is_dense), at<int32_t>(index),
                      at<void>(weight));
          },
          nb::kw_only(), "offsets"_a, "is_dense"_a, "index"_a, "weight"_a, unlocked,
          "Moves the entries to where offsets say.")
      .def("backward", &PackedAttention::backward, "call"_a, unlocked);
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "The kernels of adasparse, over raw addresses. Use adasparse.kernels.cpu instead.";
  m.def("available_isas", &adasparse::available_isas,
        "Returns the instruction sets compiled in that this processor runs, best first.");
  m.def(
      "isa", [] { return std::string(adasparse::current_kernels().name); },
      "Returns the instruction set in use.");
  m.def(
      "use_isa",
      [](const std::string& name) { adasparse::use_kernels(adasparse::kernels_named(name)); },
      "name"_a, "Switches to another instruction set.");
  m.def(
      "screening", [] { return std::string(adasparse::name_of(adasparse::screening())); },
      "Returns whether attention screens its scores in int8: auto, off or forced.");
  m.def(
      "use_screening",
      [](const std::string& name) { adasparse::use_screening(adasparse::screening_named(name)); },
      "name"_a, "Switches the screening of scores; results stay the same.");
  m.def(
      "use_large_pages",
      [](Address data, size_t bytes, int threads) {
        adasparse::use_large_pages(at<void>(data), bytes, threads);
      },
      nb::kw_only(), "data"_a, "bytes"_a, "threads"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Asks for large pages behind memory that is about to be written, if it is large.");
  m.attr("LARGE_RESULT") = adasparse::kLargeResult;
  m.attr("has_openmp") = adasparse::has_openmp();
  bind_rows(m);
  bind_attention(m);
  bind_packed(m);
}
