#define ADASPARSE_ISA baseline
#include "isa.h"

namespace adasparse {
extern const Kernels kBaselineKernels;
const Kernels kBaselineKernels = {
    .name = "baseline",
    .entmax_forward = baseline::entmax_forward,
    .entmax_backward = baseline::entmax_backward,
    .loss_forward = baseline::loss_forward,
    .loss_backward = baseline::loss_backward,
    .saves_weights = baseline::saves_weights,
    .attention_forward = baseline::attention_forward,
    .attention_backward = baseline::attention_backward,
    .code_keys = baseline::code_keys,
    .has_code_products = baseline::has_code_products,
};
}  // namespace adasparse
