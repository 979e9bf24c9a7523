#define ADASPARSE_ISA baseline
#include "isa.h"

namespace adasparse {
extern const Kernels kBaselineKernels;
const Kernels kBaselineKernels = {
    "baseline",
    baseline::entmax_forward,
    baseline::entmax_backward,
    baseline::loss_forward,
    baseline::loss_backward,
    baseline::has_short_rows,
    baseline::attention_forward,
    baseline::attention_backward,
};
}  // namespace adasparse
