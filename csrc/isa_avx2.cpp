#define ADASPARSE_ISA avx2
#include "isa.h"

namespace adasparse {
extern const Kernels kAvx2Kernels;
const Kernels kAvx2Kernels = {
    .name = "avx2",
    .entmax_forward = avx2::entmax_forward,
    .entmax_backward = avx2::entmax_backward,
    .loss_forward = avx2::loss_forward,
    .loss_backward = avx2::loss_backward,
    .saves_weights = avx2::saves_weights,
    .attention_forward = avx2::attention_forward,
    .attention_backward = avx2::attention_backward,
    .code_keys = avx2::code_keys,
    .has_code_products = avx2::has_code_products,
};
}  // namespace adasparse
