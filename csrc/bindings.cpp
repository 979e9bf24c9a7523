// Python's door to the kernels. Tensors arrive as addresses: the caller has checked type, shape
// and contiguity, and keeps them alive for the length of the call.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "dispatch.h"

namespace nb = nanobind;

namespace {

using Address = uintptr_t;

const adasparse::Kernels* current = nullptr;

template <class T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

adasparse::Target target_of(Address index, Address probability, Address weight,
                            int64_t ignore_index, double smoothing) {
  return {at<const int64_t>(index), at<const void>(probability), at<const void>(weight),
          ignore_index, smoothing};
}

void entmax_forward(int type, Address scores, Address weights, Address alpha,
                    int64_t alpha_stride, int64_t rows, int64_t n, int threads) {
  current->entmax_forward({static_cast<adasparse::Type>(type), at<const void>(scores),
                           at<void>(weights), at<const double>(alpha), alpha_stride, rows, n,
                           threads});
}

void entmax_backward(int type, Address weights, Address grad, Address grad_scores,
                     Address grad_alpha, Address alpha, int64_t alpha_stride, int64_t rows,
                     int64_t n, int threads) {
  current->entmax_backward({static_cast<adasparse::Type>(type), at<const void>(weights),
                            at<const void>(grad), at<void>(grad_scores), at<double>(grad_alpha),
                            at<const double>(alpha), alpha_stride, rows, n, threads});
}

void loss_forward(int type, Address scores, Address loss, Address state, Address index,
                  Address probability, Address weight, int64_t ignore_index, double smoothing,
                  Address alpha, int64_t alpha_stride, int64_t rows, int64_t n, int threads) {
  current->loss_forward({static_cast<adasparse::Type>(type), at<const void>(scores),
                         at<double>(loss), at<double>(state),
                         target_of(index, probability, weight, ignore_index, smoothing),
                         at<const double>(alpha), alpha_stride, rows, n, threads});
}

void loss_backward(int type, Address scores, Address state, Address grad, Address grad_scores,
                   Address grad_alpha, Address index, Address probability, Address weight,
                   int64_t ignore_index, double smoothing, Address alpha, int64_t alpha_stride,
                   int64_t rows, int64_t n, int threads) {
  current->loss_backward({static_cast<adasparse::Type>(type), at<const void>(scores),
                          at<const double>(state), at<const double>(grad), at<void>(grad_scores),
                          at<double>(grad_alpha),
                          target_of(index, probability, weight, ignore_index, smoothing),
                          at<const double>(alpha), alpha_stride, rows, n, threads});
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "The kernels of adasparse, over raw addresses. Use adasparse.kernels.cpu instead.";
  current = &adasparse::kernels_named(adasparse::available_isas().front());

  m.def("available_isas", &adasparse::available_isas,
        "The instruction sets compiled in that this processor runs, best first.");
  m.def("isa", [] { return std::string(current->name); }, "The instruction set in use.");
  m.def(
      "use_isa", [](const std::string& name) { current = &adasparse::kernels_named(name); },
      nb::arg("name"), "Switches to another instruction set.");
#if defined(_OPENMP)
  m.attr("has_openmp") = true;
#else
  m.attr("has_openmp") = false;
#endif

  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  m.def("entmax_forward", &entmax_forward, unlocked);
  m.def("entmax_backward", &entmax_backward, unlocked);
  m.def("loss_forward", &loss_forward, unlocked);
  m.def("loss_backward", &loss_backward, unlocked);
}
