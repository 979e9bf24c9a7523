#define ADASPARSE_ISA neon
#include "isa.h"

namespace adasparse {
extern const Kernels kNeonKernels;
const Kernels kNeonKernels = {
    .name = "neon",
    .entmax_forward = neon::entmax_forward,
    .entmax_backward = neon::entmax_backward,
    .loss_forward = neon::loss_forward,
    .loss_backward = neon::loss_backward,
    .saves_weights = neon::saves_weights,
    .attention_forward = neon::attention_forward,
    .attention_backward = neon::attention_backward,
    .code_keys = neon::code_keys,
    .has_code_products = neon::has_code_products,
};
}  // namespace adasparse
