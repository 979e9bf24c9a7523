// Python's door to the kernels. Tensors arrive as addresses: the caller has checked type, shape
// and contiguity, and keeps them alive for the length of the call.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "dispatch.h"

namespace nb = nanobind;

namespace {

using Address = uintptr_t;

const adasparse::Kernels* current = nullptr;

template <class T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

adasparse::Target target_of(Address index, Address probability, Address weight,
                            int64_t ignore_index, double smoothing) {
  return {at<const int64_t>(index), at<const void>(probability), at<const void>(weight),
          ignore_index, smoothing};
}

void entmax_forward(int type, Address scores, Address weights, Address alpha,
                    int64_t alpha_stride, int64_t rows, int64_t n, int threads) {
  current->entmax_forward({static_cast<adasparse::Type>(type), at<const void>(scores),
                           at<void>(weights), at<const double>(alpha), alpha_stride, rows, n,
                           threads});
}

void entmax_backward(int type, Address weights, Address grad, Address grad_scores,
                     Address grad_alpha, Address alpha, int64_t alpha_stride, int64_t rows,
                     int64_t n, int threads) {
  current->entmax_backward({static_cast<adasparse::Type>(type), at<const void>(weights),
                            at<const void>(grad), at<void>(grad_scores), at<double>(grad_alpha),
                            at<const double>(alpha), alpha_stride, rows, n, threads});
}

void loss_forward(int type, Address scores, Address loss, Address state, Address index,
                  Address probability, Address weight, int64_t ignore_index, double smoothing,
                  Address alpha, int64_t alpha_stride, int64_t rows, int64_t n, int threads) {
  current->loss_forward({static_cast<adasparse::Type>(type), at<const void>(scores),
                         at<double>(loss), at<double>(state),
                         target_of(index, probability, weight, ignore_index, smoothing),
                         at<const double>(alpha), alpha_stride, rows, n, threads});
}

void loss_backward(int type, Address scores, Address state, Address grad, Address grad_scores,
                   Address grad_alpha, Address index, Address probability, Address weight,
                   int64_t ignore_index, double smoothing, Address alpha, int64_t alpha_stride,
                   int64_t rows, int64_t n, int threads) {
  current->loss_backward({static_cast<adasparse::Type>(type), at<const void>(scores),
                          at<const double>(state), at<const double>(grad), at<void>(grad_scores),
                          at<double>(grad_alpha),
                          target_of(index, probability, weight, ignore_index, smoothing),
                          at<const double>(alpha), alpha_stride, rows, n, threads});
}

// ---------------------------------------------------------------- attention

using Sizes = std::array<int64_t, 7>;
using Strides = std::array<int64_t, 4>;

adasparse::RowsOf rows_of(Address data, const Strides& strides) {
  return {at<const void>(data), {strides[0], strides[1], strides[2]}};
}

adasparse::WritableRows writable_rows(Address data, const Strides& strides) {
  return {at<void>(data), {strides[0], strides[1], strides[2]}};
}

void make_input(adasparse::AttentionInput* self, bool is_double, const Sizes& sizes, Address query,
                const Strides& query_strides, Address key, const Strides& key_strides,
                Address value, const Strides& value_strides, Address alpha,
                const Strides& alpha_strides, int mask_kind, Address mask,
                const Strides& mask_strides, Address key_lengths, Address slopes, double scale,
                bool is_causal, double dropout_p, uint64_t seed, int threads) {
  new (self) adasparse::AttentionInput{
      is_double,
      sizes[0],
      sizes[1],
      sizes[2],
      sizes[3],
      sizes[4],
      sizes[5],
      sizes[6],
      rows_of(query, query_strides),
      rows_of(key, key_strides),
      rows_of(value, value_strides),
      at<const double>(alpha),
      {alpha_strides[0], alpha_strides[1], alpha_strides[2]},
      static_cast<adasparse::MaskKind>(mask_kind),
      at<const void>(mask),
      {mask_strides[0], mask_strides[1], mask_strides[2], mask_strides[3]},
      at<const int64_t>(key_lengths),
      at<const double>(slopes),
      scale,
      is_causal,
      dropout_p,
      seed,
      threads};
}

// The support that a forward has kept, until it moves into tensors.
class Support {
 public:
  explicit Support(const adasparse::AttentionInput& in)
      : in_(in),
        blocks_per_head_((in.q + adasparse::kBlockRows - 1) / adasparse::kBlockRows),
        blocks_(static_cast<size_t>(in.batch * in.heads * blocks_per_head_)),
        counts_(static_cast<size_t>(in.batch * in.heads * in.q)) {}
  ~Support() {
    for (auto& block : blocks_) release(block);
  }
  Support(const Support&) = delete;
  Support& operator=(const Support&) = delete;

  adasparse::SupportBlock* blocks() { return blocks_.data(); }
  int64_t* counts() { return counts_.data(); }

  // Decides which heads are dense, fills is_dense (heads) and offsets (rows + 1), and returns the
  // number of entries of the others.
  int64_t arrange(Address offsets_address, Address dense_address, double dense_share) {
    auto* offsets = at<int64_t>(offsets_address);
    auto* is_dense = at<uint8_t>(dense_address);
    int64_t total = 0;
    for (int64_t head = 0; head < in_.batch * in_.heads; ++head) {
      const int64_t length =
          in_.key_lengths ? std::min(in_.k, in_.key_lengths[head / in_.heads]) : in_.k;
      bool dense = false;
      for (int64_t i = 0; i < blocks_per_head_; ++i)
        dense |= blocks_[static_cast<size_t>(head * blocks_per_head_ + i)].is_dropped;
      double entries = 0, visible = 0;
      for (int64_t i = 0; i < in_.q; ++i) {
        entries += static_cast<double>(counts_[static_cast<size_t>(head * in_.q + i)]);
        visible += static_cast<double>(in_.is_causal ? std::min(length, i + 1) : length);
      }
      dense |= entries > dense_share * visible;
      is_dense[head] = dense;
      for (int64_t i = 0; i < in_.q; ++i) {
        offsets[head * in_.q + i] = total;
        if (!dense) total += counts_[static_cast<size_t>(head * in_.q + i)];
      }
    }
    offsets[in_.batch * in_.heads * in_.q] = total;
    return total;
  }

  // Moves the entries where offsets say they belong.
  void move(Address offsets_address, Address dense_address, Address index, Address weight) {
    const auto* offsets = at<const int64_t>(offsets_address);
    const auto* is_dense = at<const uint8_t>(dense_address);
    const size_t size = in_.is_double ? 8 : 4;
    const int64_t count = static_cast<int64_t>(blocks_.size());
#pragma omp parallel for schedule(dynamic, 1) num_threads(in_.threads) if (count > 64)
    for (int64_t i = 0; i < count; ++i) {
      const int64_t head = i / blocks_per_head_;
      auto& block = blocks_[static_cast<size_t>(i)];
      if (!is_dense[head] && block.size) {
        const int64_t row = head * in_.q + i % blocks_per_head_ * adasparse::kBlockRows;
        const auto first = static_cast<size_t>(offsets[row]);
        const auto entries = static_cast<size_t>(block.size);
        std::memcpy(at<int32_t>(index) + first, block.index, entries * 4);
        std::memcpy(at<char>(weight) + first * size, block.weight, entries * size);
      }
      release(block);
    }
  }

 private:
  static void release(adasparse::SupportBlock& block) {
    std::free(block.index);
    std::free(block.weight);
    block = {};
  }
  adasparse::AttentionInput in_;
  int64_t blocks_per_head_;
  std::vector<adasparse::SupportBlock> blocks_;
  std::vector<int64_t> counts_;
};

void attention_forward(const adasparse::AttentionInput& in, Address out, const Strides& strides,
                       Address weights, Address state, Support* support, int64_t row_limit,
                       double dense_share) {
  current->attention_forward({in, writable_rows(out, strides), at<double>(state),
                              support ? support->counts() : nullptr,
                              support ? support->blocks() : nullptr, at<void>(weights), row_limit,
                              dense_share, false});
}

void attention_scores(const adasparse::AttentionInput& in) {
  current->attention_forward({in, {}, nullptr, nullptr, nullptr, nullptr, 0, 0, true});
}

void attention_backward(const adasparse::AttentionInput& in, Address grad,
                        const Strides& grad_strides, Address weights, Address state,
                        Address offsets, Address index, Address weight, Address is_dense, Address grad_query,
                        const Strides& grad_query_strides, Address grad_key,
                        const Strides& grad_key_strides, Address grad_value,
                        const Strides& grad_value_strides, Address grad_alpha,
                        Address grad_slopes, Address grad_mask, const Strides& grad_mask_strides) {
  current->attention_backward(
      {in,
       rows_of(grad, grad_strides),
       at<const void>(weights),
       at<const double>(state),
       at<const int64_t>(offsets),
       at<const int32_t>(index),
       at<const void>(weight),
       at<const uint8_t>(is_dense),
       writable_rows(grad_query, grad_query_strides),
       writable_rows(grad_key, grad_key_strides),
       writable_rows(grad_value, grad_value_strides),
       at<double>(grad_alpha),
       at<double>(grad_slopes),
       at<void>(grad_mask),
       {grad_mask_strides[0], grad_mask_strides[1], grad_mask_strides[2], grad_mask_strides[3]}});
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "The kernels of adasparse, over raw addresses. Use adasparse.kernels.cpu instead.";
  current = &adasparse::kernels_named(adasparse::available_isas().front());

  m.def("available_isas", &adasparse::available_isas,
        "The instruction sets compiled in that this processor runs, best first.");
  m.def("isa", [] { return std::string(current->name); }, "The instruction set in use.");
  m.def(
      "use_isa", [](const std::string& name) { current = &adasparse::kernels_named(name); },
      nb::arg("name"), "Switches to another instruction set.");
#if defined(_OPENMP)
  m.attr("has_openmp") = true;
#else
  m.attr("has_openmp") = false;
#endif

  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  m.def("entmax_forward", &entmax_forward, unlocked);
  m.def("entmax_backward", &entmax_backward, unlocked);
  m.def("loss_forward", &loss_forward, unlocked);
  m.def("loss_backward", &loss_backward, unlocked);

  nb::class_<adasparse::AttentionInput>(m, "AttentionInput").def("__init__", &make_input);
  nb::class_<Support>(m, "Support")
      .def(nb::init<const adasparse::AttentionInput&>())
      .def("arrange", &Support::arrange, unlocked)
      .def("move", &Support::move, unlocked);
  m.def(
      "has_short_rows",
      [](const adasparse::AttentionInput& in) { return current->has_short_rows(in); }, unlocked);
  m.def("attention_forward", &attention_forward, nb::arg(), nb::arg(), nb::arg(), nb::arg(),
        nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), unlocked);
  m.def("attention_scores", &attention_scores, unlocked);
  m.def("attention_backward", &attention_backward, unlocked);
}
