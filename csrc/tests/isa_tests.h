// Tests that are compiled once per instruction set, with its flags and a name in ADASPARSE_ISA.
// Such objects use nothing of std:: that another one could share.
#pragma once

#include "tests.h"

#define ADASPARSE_QUOTE(name) #name
#define ADASPARSE_NAME(name) ADASPARSE_QUOTE(name)

namespace adasparse {
namespace ADASPARSE_ISA {
namespace {

constexpr const char* kIsa = ADASPARSE_NAME(ADASPARSE_ISA);

// A test that runs where the processor has the instruction set.
#define ISA_TEST(name)                                                                          \
  void name##_test();                                                                           \
  const kernel_tests::Registration name##_registration(ADASPARSE_NAME(ADASPARSE_ISA) "_" #name, \
                                                       kIsa, name##_test);                      \
  void name##_test()

}  // namespace
}  // namespace ADASPARSE_ISA
}  // namespace adasparse
