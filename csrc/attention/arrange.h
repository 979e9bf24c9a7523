// The support that a forward saves, and the decisions of what to save: how much of the support, and
// which heads are dense, so that backward recomputes them instead. Compiled once, not per
// instruction set.
#pragma once

#include <vector>

#include "kernels.h"

namespace adasparse {

// Density from which the kernels multiply rows whole, and backward recomputes a head.
double dense_share_of(const AttentionInput& in);

// Entries that a row may save on average, for a support of at most `bytes`.
int64_t row_limit_of(const AttentionInput& in, int64_t bytes);
constexpr int64_t kNoRowLimit = int64_t{1} << 40;

// The support of all rows (batch, heads, q) in blocks as the forward writes them, until it moves
// into arrays of exactly its size.
class SavedSupport {
 public:
  explicit SavedSupport(const AttentionInput& in);
  ~SavedSupport();
  SavedSupport(const SavedSupport&) = delete;
  SavedSupport& operator=(const SavedSupport&) = delete;

  std::vector<SupportBlock>& blocks() { return blocks_; }
  const std::vector<SupportBlock>& blocks() const { return blocks_; }
  std::vector<int64_t>& counts() { return counts_; }
  const std::vector<int64_t>& counts() const { return counts_; }
  int64_t blocks_per_head() const { return blocks_per_head_; }

  // Fills is_dense (batch, heads): heads that lost a block, or with a larger share of weights.
  void find_dense(double dense_share, uint8_t* is_dense) const;
  // Fills offsets (batch * heads * q + 1) and returns the number of entries of heads that are not
  // dense.
  int64_t place(const uint8_t* is_dense, int64_t* offsets) const;
  // Moves these entries to their places and releases the blocks.
  void move(const uint8_t* is_dense, const int64_t* offsets, int32_t* index, void* weight);

 private:
  AttentionInput in_;
  int64_t blocks_per_head_;
  std::vector<SupportBlock> blocks_;
  std::vector<int64_t> counts_;
};

}  // namespace adasparse
