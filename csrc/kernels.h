// What every instruction set offers: one table of plain functions over raw pointers.
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
  const void* weights;      // (rows, n), what the forward returned
  const void* grad;         // (rows, n), gradient of the loss by the weights
  void* grad_scores;        // (rows, n)
  double* grad_alpha;       // (rows) or null
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

constexpr int kRowState = 3;  // what the forward keeps of a row: max, c, scale

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
  const double* grad;   // (rows), gradient by the loss of each row
  void* grad_scores;    // (rows, n)
  double* grad_alpha;   // (rows) or null
  Target target;
  const double* alpha;
  int64_t alpha_stride;
  int64_t rows, n;
  int threads;
};

struct Kernels {
  const char* name;
  void (*entmax_forward)(const EntmaxForward&);
  void (*entmax_backward)(const EntmaxBackward&);
  void (*loss_forward)(const LossForward&);
  void (*loss_backward)(const LossBackward&);
};

extern const Kernels kBaselineKernels;
#if defined(ADASPARSE_X86)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

}  // namespace adasparse
