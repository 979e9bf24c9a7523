// The interface of every instruction set: one table of plain functions over raw pointers.
// This file is shared by all of them and holds no code.
#pragma once

#include <cstdint>

namespace adasparse {

enum class Type : int { kFloat32 = 0, kFloat64 = 1, kBFloat16 = 2, kFloat16 = 3 };

// alpha[row * alpha_stride]; a stride of 0 shares one value among all rows.
struct EntmaxForward {
  Type type;
  const void* scores;  // (rows, n), contiguous
  void* weights;       // (rows, n)
  const double* alpha;
  int64_t alpha_stride;
  int64_t rows, n;
  int threads;
};

struct EntmaxBackward {
  Type type;
  const void* weights;  // (rows, n), as the forward returned them
  const void* grad;     // (rows, n), gradient with respect to the weights
  void* grad_scores;    // (rows, n)
  double* grad_alpha;   // (rows) or null
  const double* alpha;
  int64_t alpha_stride;
  int64_t rows, n;
  int threads;
};

// sum_k a_k (conjugate(s) - s_k) per row. The target mass is a_k = weight_k q_k with
//   q = (1 - smoothing) * target + smoothing / n,
// target being one class (`index`) or a distribution (`probability`); exactly one is not null.
struct Target {
  const int64_t* index;
  const void* probability;  // (rows, n) in the type of the scores
  const void* weight;       // (n) in the type of the scores, or null for ones
  int64_t ignore_index;
  double smoothing;
};

constexpr int kRowState = 3;  // numbers of a row saved for backward: max, c, scale

struct LossForward {
  Type type;
  const void* scores;  // (rows, n)
  double* loss;        // (rows)
  double* state;       // (rows, kRowState)
  Target target;
  const double* alpha;
  int64_t alpha_stride;
  int64_t rows, n;
  int threads;
};

struct LossBackward {
  Type type;
  const void* scores;   // (rows, n)
  const double* state;  // (rows, kRowState)
  const double* grad;   // (rows), gradient with respect to the loss of each row
  void* grad_scores;    // (rows, n)
  double* grad_alpha;   // (rows) or null
  Target target;
  const double* alpha;
  int64_t alpha_stride;
  int64_t rows, n;
  int threads;
};

// ---------------------------------------------------------------- attention

// Rows at strides (batch, head, row), each row contiguous.
struct RowsOf {
  const void* data;
  int64_t strides[3];
};
struct WritableRows {
  void* data;
  int64_t strides[3];
};

constexpr int64_t kCodePanel = 16;  // keys that are coded together

// Keys as int8, see attention/quantize.h: panels of codes at strides (batch, head), and the scale,
// residual and norm of each panel, three rows at strides (batch, head, row).
struct CodesOf {
  const uint8_t* codes;  // null: there are none
  int64_t strides[2];
  const float* bounds;
  int64_t bound_strides[3];
};

enum class MaskKind : int { kNone = 0, kBool = 1, kAdded = 2 };

// Scores are scale <q_i, k_j>, bounded by softcap, - slope |i + k - q - j| + mask; see
// AttentionProblem in Python. Queries, keys, values, outputs and their gradients are of `type`;
// kernels compute, and save, in double for double and in float for the others. An added mask is of
// `mask_type`, which is `type` or the one computed in. Which keys a query sees follows from
// key_lengths, is_causal and the window: attention/visible.h.
struct AttentionInput {
  Type type;
  int64_t batch, heads, groups;  // groups: heads of keys and values, which divide `heads`
  int64_t q, k, d, e;
  RowsOf query, key, value;
  CodesOf codes;
  const double* alpha;
  int64_t alpha_strides[3];  // batch, head, row
  MaskKind mask_kind;
  Type mask_type;
  const void* mask;
  int64_t mask_strides[4];     // batch, head, row, column
  const int64_t* key_lengths;  // (batch) or null
  const double* slopes;        // (heads) or null
  const double* sinks;         // (heads): score of a key without value, seen by all; or null
  double scale;
  double softcap;  // scores become softcap tanh(score / softcap) before slopes and mask; 0 for none
  bool is_causal;
  // Query i sees keys from window_position + i - window_left to window_position + i + window_right,
  // both included; a negative window_left or window_right is no limit on that side.
  int64_t window_left, window_right, window_position;
  double dropout_p;
  uint64_t seed;
  int threads;

  bool is_double() const { return type == Type::kFloat64; }
};

// The forward works on this many rows of one head at a time and saves their support together.
constexpr int64_t kBlockRows = 48;

// Support of a block of rows: the entries of one row after those of another. Memory of malloc,
// owned by the array of blocks (see SavedSupport in attention/arrange.h).
struct SupportBlock {
  int32_t* index;
  void* weight;
  int64_t size, capacity;
  bool is_dropped;  // more than the limit: nothing is saved
};

struct AttentionForward {
  AttentionInput in;
  WritableRows out;      // (batch, heads, q, e); null for the support alone
  double* state;         // (batch, heads, q, kRowState) or null
  int64_t* counts;       // (batch, heads, q): size of each row's support; or null
  int64_t* rescored;     // (batch, heads, q): keys whose scores decoding computed; or null
  SupportBlock* blocks;  // (batch, heads, blocks of q) or null
  void* weights;  // (batch, heads, q, k) as computed, where saves_weights, in place of blocks; or
                  // null
  void* sink_weights;   // (batch, heads, q) as computed: weight of the sink of each row; or null
  int64_t row_limit;    // a block of rows saves no more than this times its rows
  double dense_share;   // rows with a larger share of weights in the support are multiplied whole
  bool is_scores_only;  // stop after the scores, to measure them
};

// Whole weights, or the support: then rows of dense heads have no entries in offsets, and their
// weights are recomputed from `state`.
struct AttentionBackward {
  AttentionInput in;
  RowsOf grad;             // (batch, heads, q, e)
  const void* weights;     // of the forward, or null
  const double* state;     // of the forward
  const int64_t* offsets;  // (batch * heads * q + 1) into index and weight
  const int32_t* index;
  const void* weight;
  const uint8_t* is_dense;       // (batch, heads)
  const void* sink_weights;      // of the forward, where there are sinks
  WritableRows grad_query;       // (batch, heads, q, d)
  WritableRows grad_key;         // (batch, groups, k, d)
  WritableRows grad_value;       // (batch, groups, k, e)
  double* grad_alpha;            // (batch, heads, q) or null
  double* grad_slopes;           // (batch, heads, q) or null
  double* grad_sinks;            // (batch, heads, q) or null
  void* grad_mask;               // zeros of the type computed in, or null
  int64_t grad_mask_strides[4];  // 0 where the mask is broadcast
};

// Codes of keys [first, n), `first` being a multiple of a panel.
struct KeyCoding {
  Type type;  // but double
  RowsOf key;
  int64_t batch, groups, first, n, d;
  uint8_t* codes;
  float* bounds;
  CodesOf to;  // only its strides
  int threads;
};

struct Kernels {
  const char* name;
  void (*entmax_forward)(const EntmaxForward&);
  void (*entmax_backward)(const EntmaxBackward&);
  void (*loss_forward)(const LossForward&);
  void (*loss_backward)(const LossBackward&);
  bool (*saves_weights)(const AttentionInput&);
  void (*attention_forward)(const AttentionForward&);
  void (*attention_backward)(const AttentionBackward&);
  void (*code_keys)(const KeyCoding&);
  bool (*has_code_products)();
};

#if defined(__aarch64__)
extern const Kernels kNeonKernels;  // every processor of this kind has NEON: it is the baseline
#else
extern const Kernels kBaselineKernels;
#endif
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

}  // namespace adasparse
