// Packed batches: sequences of any lengths one after another. Every sequence is an attention call
// of its own, of views of the whole; short ones run side by side, one per thread, and long ones one
// after another, on all threads. Results are those of the calls. Compiled once, not per instruction
// set.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "attention/arrange.h"
#include "kernels.h"

namespace adasparse {

// The places of the sequences.
struct Packing {
  std::vector<int64_t> query;  // n + 1 offsets of queries
  std::vector<int64_t> key;    // n offsets of first keys; none where they lie in pages
  std::vector<int64_t> used;   // n numbers of keys
  const int32_t* table;        // (n, pages) or null: keys and values are (pages, groups, page, d)
  int64_t pages;               // of a row of the table
};

// What is saved lies one sequence after another: (heads, q) rows of each, `offsets` with one more
// number for each sequence, counted from the sequence's first entry.
class PackedAttention {
 public:
  // `in` has batch 1 and all queries and keys; with pages, `k` is the size of a page.
  PackedAttention(const AttentionInput& in, Packing packing);
  PackedAttention(const PackedAttention&) = delete;
  PackedAttention& operator=(const PackedAttention&) = delete;

  // Numbers in the weights of sequences that save them whole.
  int64_t weights_size() const { return weights_.back(); }

  // Fills `out`, and what is saved: state, weights and sink_weights as of AttentionForward; the
  // support stays here until `arrange` and `move`.
  void forward(const AttentionForward& a, bool is_saved, int64_t support_bytes);
  int64_t arrange(int64_t* offsets, uint8_t* is_dense) const;
  void move(const int64_t* offsets, const uint8_t* is_dense, int32_t* index, void* weight);
  void backward(const AttentionBackward& a) const;

 private:
  int64_t count() const { return static_cast<int64_t>(packing_.used.size()); }
  int64_t queries(int64_t s) const;
  bool is_whole(int64_t s) const;
  AttentionInput sequence(int64_t s) const;
  std::vector<int64_t> entries(const int64_t* offsets) const;
  void run(const std::function<void(int64_t s, int threads)>& body) const;

  AttentionInput in_;
  Packing packing_;
  std::vector<int64_t> weights_;  // n + 1 offsets into the whole weights
  std::vector<std::unique_ptr<SavedSupport>> supports_;
};

}  // namespace adasparse
