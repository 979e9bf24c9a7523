#define ADASPARSE_ISA avx512
#include "isa.h"

namespace adasparse {
extern const Kernels kAvx512Kernels;
const Kernels kAvx512Kernels = {
    "avx512",
    avx512::entmax_forward,
    avx512::entmax_backward,
    avx512::loss_forward,
    avx512::loss_backward,
    avx512::has_short_rows,
    avx512::attention_forward,
    avx512::attention_backward,
};
}  // namespace adasparse
