#include "attention/packed.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "dispatch.h"
#include "parallel.h"
#include "tuning.h"

namespace adasparse {
namespace {

// Of a number that is given, and of one that is computed.
size_t element_bytes(const AttentionInput& in) {
  return in.is_double() ? 8 : in.type == Type::kFloat32 ? 4 : 2;
}
size_t computed_bytes(const AttentionInput& in) { return in.is_double() ? 8 : 4; }

template <class Rows>
Rows from_row(Rows rows, int64_t row, const AttentionInput& in) {
  using Byte = std::conditional_t<std::is_same_v<Rows, RowsOf>, const char, char>;
  rows.data = static_cast<Byte*>(rows.data) +
              row * rows.strides[2] * static_cast<int64_t>(element_bytes(in));
  return rows;
}

template <class T>
T* shifted(T* data, int64_t by) {
  return data ? data + by : nullptr;
}
// Computed numbers, from one of them on.
template <class Void>
Void* shifted_bytes(Void* data, int64_t numbers, const AttentionInput& in) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
  return data ? static_cast<Byte*>(data) + numbers * static_cast<int64_t>(computed_bytes(in))
              : nullptr;
}

// The first `n` rows of some pages, as (groups, n, size). Pages side by side are read where they
// are, others are copied.
class PagedRows {
 public:
  PagedRows(const RowsOf& pages, const int32_t* table, int64_t page, int64_t n, int64_t size,
            const AttentionInput& in) {
    const auto bytes = static_cast<int64_t>(element_bytes(in));
    const auto* data = static_cast<const char*>(pages.data);
    const auto row = [&](int64_t g, int64_t j) {
      return data + (table[j / page] * pages.strides[0] + g * pages.strides[1] +
                     j % page * pages.strides[2]) *
                        bytes;
    };
    bool are_neighbors = pages.strides[0] == page * pages.strides[2];
    for (int64_t j = page; j < n && are_neighbors; j += page)
      are_neighbors = table[j / page] == table[j / page - 1] + 1;
    if (are_neighbors || n <= page) {
      rows_ = {n ? row(0, 0) : data, {0, pages.strides[1], pages.strides[2]}};
      return;
    }
    const auto row_bytes = static_cast<size_t>(size * bytes);
    copy_.reset(new char[static_cast<size_t>(in.groups * n) * row_bytes]);
    for (int64_t g = 0; g < in.groups; ++g)
      for (int64_t j = 0; j < n; ++j)
        std::memcpy(copy_.get() + static_cast<size_t>(g * n + j) * row_bytes, row(g, j), row_bytes);
    rows_ = {copy_.get(), {0, n * size, size}};
  }
  const RowsOf& rows() const { return rows_; }

 private:
  std::unique_ptr<char[]> copy_;
  RowsOf rows_;
};

}  // namespace

PackedAttention::PackedAttention(const AttentionInput& in, Packing packing)
    : in_(in), packing_(std::move(packing)), weights_{0} {
  for (int64_t s = 0; s < count(); ++s) {
    const int64_t size = is_whole(s) ? in_.heads * queries(s) * packing_.used[s] : 0;
    weights_.push_back(weights_.back() + size);
  }
}

int64_t PackedAttention::queries(int64_t s) const {
  return packing_.query[s + 1] - packing_.query[s];
}

bool PackedAttention::is_whole(int64_t s) const {
  return current_kernels().saves_weights(sequence(s));
}

AttentionInput PackedAttention::sequence(int64_t s) const {
  AttentionInput in = in_;
  const int64_t first = packing_.query[s];
  in.q = queries(s);
  in.k = packing_.used[s];
  in.query = from_row(in.query, first, in);
  if (!packing_.table) {
    in.key = from_row(in.key, packing_.key[s], in);
    in.value = from_row(in.value, packing_.key[s], in);
  }
  in.alpha += first * in.alpha_strides[2];
  // The last query is at the last key. A causal query is one whose window ends there.
  in.window_position = in.k - in.q;
  if (in.is_causal && in.window_position != 0) {
    in.is_causal = false;
    in.window_right = 0;
  }
  // Rows of dropout are numbered on from one sequence to the next: see Dropout.
  in.seed += static_cast<uint64_t>(in.heads * first) * 0x9E3779B97F4A7C15u;
  return in;
}

// Calls body(s, threads) for every sequence with queries. The order does not matter.
void PackedAttention::run(const std::function<void(int64_t s, int threads)>& body) const {
  const auto work = [&](int64_t s) { return queries(s) * (packing_.used[s] + 1); };
  std::vector<int64_t> order;
  int64_t total = 0;
  for (int64_t s = 0; s < count(); ++s)
    if (queries(s) > 0) {
      order.push_back(s);
      total += work(s);
    }
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return work(a) > work(b); });
  // Sequences that one thread would be late with are divided among all.
  size_t done = 0;
  for (; done < order.size() && in_.threads > 1; ++done) {
    if (work(order[done]) * in_.threads * kLongSequenceShare <= total) break;
    body(order[done], in_.threads);
    total -= work(order[done]);
  }
  parallel_for(static_cast<int64_t>(order.size() - done), 1, in_.threads,
               [&](int64_t i, int64_t) { body(order[done + static_cast<size_t>(i)], 1); });
}

void PackedAttention::forward(const AttentionForward& a, bool is_saved, int64_t support_bytes) {
  const Kernels& kernels = current_kernels();
  supports_.clear();
  supports_.resize(packing_.used.size());
  const auto rows = std::max<int64_t>(1, packing_.query.back());
  run([&](int64_t s, int threads) {
    AttentionInput in = sequence(s);
    in.threads = threads;
    const int64_t first = packing_.query[s], row = in.heads * first;
    AttentionForward mine = a;
    mine.out = from_row(a.out, first, in);
    mine.state = shifted(a.state, row * kRowState);
    mine.sink_weights = shifted_bytes(a.sink_weights, row, in);
    mine.weights = nullptr;
    if (is_saved) {
      if (is_whole(s))
        mine.weights = shifted_bytes(a.weights, weights_[s], in);
      else
        supports_[s] = std::make_unique<SavedSupport>(in);
    }
    SavedSupport* support = supports_[s].get();
    mine.counts = support ? support->counts().data() : nullptr;
    mine.blocks = support ? support->blocks().data() : nullptr;
    mine.row_limit = row_limit_of(in, support_bytes / rows * in.q);
    mine.dense_share = dense_share_of(in);
    if (packing_.table) {
      const int32_t* table = packing_.table + s * packing_.pages;
      const PagedRows key(in_.key, table, in_.k, in.k, in.d, in);
      const PagedRows value(in_.value, table, in_.k, in.k, in.e, in);
      in.key = key.rows();
      in.value = value.rows();
      mine.in = in;
      return kernels.attention_forward(mine);
    }
    mine.in = in;
    kernels.attention_forward(mine);
  });
}

int64_t PackedAttention::arrange(int64_t* offsets, uint8_t* is_dense) const {
  int64_t total = 0;
  for (int64_t s = 0; s < count(); ++s) {
    int64_t* mine = offsets + in_.heads * packing_.query[s] + s;
    uint8_t* dense = is_dense + in_.heads * s;
    if (supports_[s]) {
      supports_[s]->find_dense(dense_share_of(sequence(s)), dense);
      total += supports_[s]->place(dense, mine);
    } else {
      std::fill_n(mine, in_.heads * queries(s) + 1, int64_t{0});
      std::fill_n(dense, in_.heads, uint8_t{0});
    }
  }
  return total;
}

void PackedAttention::move(const int64_t* offsets, const uint8_t* is_dense, int32_t* index,
                           void* weight) {
  const std::vector<int64_t> entry = entries(offsets);
  // On the threads of the forward, which `supports_` know.
  run([&](int64_t s, int) {
    if (supports_[s])
      supports_[s]->move(is_dense + in_.heads * s, offsets + in_.heads * packing_.query[s] + s,
                         index + entry[s], shifted_bytes(weight, entry[s], in_));
  });
  supports_.clear();
}

// The first entry of each sequence, and the end.
std::vector<int64_t> PackedAttention::entries(const int64_t* offsets) const {
  std::vector<int64_t> entry{0};
  for (int64_t s = 0; s < count(); ++s)
    entry.push_back(entry.back() + offsets[in_.heads * packing_.query[s + 1] + s]);
  return entry;
}

void PackedAttention::backward(const AttentionBackward& a) const {
  const Kernels& kernels = current_kernels();
  const std::vector<int64_t> entry = entries(a.offsets);
  run([&](int64_t s, int threads) {
    AttentionInput in = sequence(s);
    in.threads = threads;
    const int64_t first = packing_.query[s], row = in.heads * first, key = packing_.key[s];
    AttentionBackward mine = a;
    mine.in = in;
    mine.grad = from_row(a.grad, first, in);
    mine.weights = is_whole(s) ? shifted_bytes(a.weights, weights_[s], in) : nullptr;
    mine.state = shifted(a.state, row * kRowState);
    mine.offsets = a.offsets + row + s;
    mine.index = shifted(a.index, entry[s]);
    mine.weight = shifted_bytes(a.weight, entry[s], in);
    mine.is_dense = a.is_dense + in.heads * s;
    mine.sink_weights = shifted_bytes(a.sink_weights, row, in);
    mine.grad_query = from_row(a.grad_query, first, in);
    mine.grad_key = from_row(a.grad_key, key, in);
    mine.grad_value = from_row(a.grad_value, key, in);
    mine.grad_alpha = shifted(a.grad_alpha, row);
    mine.grad_slopes = shifted(a.grad_slopes, row);
    mine.grad_sinks = shifted(a.grad_sinks, row);
    kernels.attention_backward(mine);
  });
}

}  // namespace adasparse
