#define ADASPARSE_ISA avx2
#include "isa.h"

namespace adasparse {
extern const Kernels kAvx2Kernels;
const Kernels kAvx2Kernels = {
    "avx2",
    avx2::entmax_forward,
    avx2::entmax_backward,
    avx2::loss_forward,
    avx2::loss_backward,
    avx2::has_short_rows,
    avx2::attention_forward,
    avx2::attention_backward,
};
}  // namespace adasparse
