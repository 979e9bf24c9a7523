#include "attention/arrange.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "attention/visible.h"
#include "parallel.h"
#include "tuning.h"

namespace adasparse {
namespace {

void release(SupportBlock& block) {
  std::free(block.index);
  std::free(block.weight);
  block = {};
}

size_t weight_bytes(const AttentionInput& in) { return in.is_double() ? 8 : 4; }

}  // namespace

double dense_share_of(const AttentionInput& in) {
  return most_visible_keys(in) <= kSupportKeys ? 1 : kDenseShare;
}

int64_t row_limit_of(const AttentionInput& in, int64_t bytes) {
  const auto entry = static_cast<int64_t>(sizeof(int32_t) + weight_bytes(in));
  const int64_t fair_share = bytes / (entry * std::max<int64_t>(1, in.batch * in.heads * in.q));
  const double useful = dense_share_of(in) * static_cast<double>(most_visible_keys(in));
  return std::min(fair_share, std::max(kLeastRowLimit, static_cast<int64_t>(useful)));
}

SavedSupport::SavedSupport(const AttentionInput& in)
    : in_(in),
      blocks_per_head_((in.q + kBlockRows - 1) / kBlockRows),
      blocks_(static_cast<size_t>(in.batch * in.heads * blocks_per_head_)),
      counts_(static_cast<size_t>(in.batch * in.heads * in.q)) {}

SavedSupport::~SavedSupport() {
  for (auto& block : blocks_) release(block);
}

void SavedSupport::find_dense(double dense_share, uint8_t* is_dense) const {
  for (int64_t head = 0; head < in_.batch * in_.heads; ++head) {
    const int64_t length = length_of(in_, head / in_.heads);
    bool is_lost = false;
    for (int64_t i = 0; i < blocks_per_head_; ++i)
      is_lost |= blocks_[static_cast<size_t>(head * blocks_per_head_ + i)].is_dropped;
    double entries = 0, visible = 0;
    for (int64_t i = 0; i < in_.q; ++i) {
      entries += static_cast<double>(counts_[static_cast<size_t>(head * in_.q + i)]);
      visible += static_cast<double>(visible_keys(in_, length, i).size());
    }
    is_dense[head] = is_lost || entries > dense_share * visible;
  }
}

int64_t SavedSupport::place(const uint8_t* is_dense, int64_t* offsets) const {
  const int64_t rows = in_.batch * in_.heads * in_.q;
  int64_t total = 0;
  for (int64_t row = 0; row < rows; ++row) {
    offsets[row] = total;
    if (!is_dense[row / in_.q]) total += counts_[static_cast<size_t>(row)];
  }
  offsets[rows] = total;
  return total;
}

void SavedSupport::move(const uint8_t* is_dense, const int64_t* offsets, int32_t* index,
                        void* weight) {
  const size_t bytes = weight_bytes(in_);
  const auto count = static_cast<int64_t>(blocks_.size());
  parallel_for(count, 1, count > 64 ? in_.threads : 1, [&](int64_t i, int64_t) {
    const int64_t head = i / blocks_per_head_;
    SupportBlock& block = blocks_[static_cast<size_t>(i)];
    if (!is_dense[head] && block.size) {
      const auto first =
          static_cast<size_t>(offsets[head * in_.q + i % blocks_per_head_ * kBlockRows]);
      const auto entries = static_cast<size_t>(block.size);
      std::memcpy(index + first, block.index, entries * sizeof(int32_t));
      std::memcpy(static_cast<char*>(weight) + first * bytes, block.weight, entries * bytes);
    }
    release(block);
  });
}

}  // namespace adasparse
