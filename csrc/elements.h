// Rows of any element type, read as numbers of the type computed in: half precision is never copied
// as a whole. Kernels that read rows in no order take them as they are (`with_elements`); those
// that read some rows many times take copies of these (`WideRows`).
#pragma once

#include "kernels.h"
#include "scratch.h"
#include "simd/half.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// Whether elements of this type are numbers of T; those of other types become such when read.
template <class T>
bool is_of(Type type) {
  return sizeof(T) == 8 || type == Type::kFloat32;
}

// Rows of one head in their own element type, each contiguous.
template <class T>
struct Rows {
  const void* data;
  int64_t stride;  // from row to row, in elements
  Type type;

  bool is_wide() const { return is_of<T>(type); }
  // The rows as they are; only if is_wide().
  const T* wide() const { return static_cast<const T*>(data); }
  int64_t element_size() const { return is_wide() ? static_cast<int64_t>(sizeof(T)) : 2; }
  Rows moved(int64_t elements) const {
    return {static_cast<const char*>(data) + elements * element_size(), stride, type};
  }
  Rows from(int64_t i) const { return moved(i * stride); }
};

// Calls body(data) with the elements in their type.
template <class T, class Body>
ADASPARSE_INLINE void with_elements(const Rows<T>& rows, const Body& body) {
  if constexpr (sizeof(T) == 8) {
    body(rows.wide());
  } else {
    if (rows.type == Type::kBFloat16)
      body(static_cast<const BFloat16*>(rows.data));
    else if (rows.type == Type::kFloat16)
      body(static_cast<const Float16*>(rows.data));
    else
      body(rows.wide());
  }
}

// to (n, d) = the first n rows, to_row apart.
template <class T>
void read_rows(const Rows<T>& rows, int64_t n, int64_t d, T* to, int64_t to_row) {
  with_elements(rows, [&](const auto* from) {
    for (int64_t r = 0; r < n; ++r) widen_row(from + r * rows.stride, d, to + r * to_row);
  });
}

// Some rows as T: where they are, or copies of them in memory that is kept for the next ones.
template <class T>
class WideRows {
 public:
  // Room for `most` rows of d numbers.
  WideRows(Type type, int64_t most, int64_t d)
      : is_copied_(!Rows<T>{nullptr, 0, type}.is_wide()),
        d_(round_up(d, Lanes<T>::count)),
        copy_(is_copied_ ? most * d_ + 1 : 1) {}
  // The first n rows; they are `stride` apart.
  const T* read(const Rows<T>& rows, int64_t n, int64_t d) {
    stride = is_copied_ ? d_ : rows.stride;
    if (!is_copied_) return rows.wide();
    read_rows(rows, n, d, copy_.get(), d_);
    return copy_.get();
  }
  int64_t stride = 0;

 private:
  bool is_copied_;
  int64_t d_;
  Scratch<T> copy_;
};

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
