// The kernels of one instruction set. Included once by each csrc/isa_*.cpp, which names itself
// by ADASPARSE_ISA and is compiled with the flags of that set.
#pragma once

#include "attention/backward.h"
#include "attention/forward.h"
#include "entmax/operator.h"
#include "loss.h"
