#define ADASPARSE_ISA avx512
#include "isa.h"

namespace adasparse {
extern const Kernels kAvx512Kernels;
const Kernels kAvx512Kernels = {
    .name = "avx512",
    .entmax_forward = avx512::entmax_forward,
    .entmax_backward = avx512::entmax_backward,
    .loss_forward = avx512::loss_forward,
    .loss_backward = avx512::loss_backward,
    .saves_weights = avx512::saves_weights,
    .attention_forward = avx512::attention_forward,
    .attention_backward = avx512::attention_backward,
    .code_keys = avx512::code_keys,
    .has_code_products = avx512::has_code_products,
};
}  // namespace adasparse
