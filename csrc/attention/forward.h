// Entmax attention, forward. Nothing of size q * k ever exists unless keys are few.
#pragma once

#include "attention/decode.h"
#include "attention/forward_block.h"
#include "parallel.h"

namespace adasparse {
namespace ADASPARSE_ISA {

template <class T>
void attention_forward_in(const AttentionForward& a) {
  const AttentionInput& in = a.in;
  if (is_decoding(a)) return attention_decode<T>(a);
  if (is_long_decoding(a)) return LongDecoding<T>(a).run();
  const int64_t heads = in.batch * in.heads;
  const bool is_whole = a.out.data && !a.blocks && saves_weights(in);
  const bool is_packed = in.q * (in.heads / in.groups) > kUnpackedQueries;
  const bool pack_now = is_packed && !is_whole;
  Scratch<T> panels(pack_now ? in.batch * in.groups * panel_size<T>(in.k, in.d) : 1);
  if (pack_now) pack_all<T>(in, in.key, in.d, panels.get(), [](int64_t, int64_t) { return true; });
  const ScreenedKeys coded(in, pack_now && !a.is_scores_only && may_screen(in));
  const WholeRows<T> value(in, in.value, in.groups, in.k, in.e);
  const int64_t blocks = (in.q + kBlockRows - 1) / kBlockRows;
  const int64_t together = is_whole ? heads_together(in, in.heads) * blocks : 1;
  const auto run_block = [&](AttentionWork<T>& work, int64_t number) {
    Head<T> head = head_at(in, number / blocks, pack_now ? panels.get() : nullptr, value);
    if (is_packed && is_whole) {
      const int64_t group = head.number / (in.heads / in.groups);
      if (work.packed != group) pack_panels(head.key, in.k, in.d, work.panels.get());
      work.packed = group;
      head.panels = work.panels.get();
    }
    head.coded = coded.at(head.number / (in.heads / in.groups));
    const int64_t first = number % blocks * kBlockRows;
    const int64_t last = smaller(in.q, first + kBlockRows);
    ForwardBlock<T> block{.a = a,
                          .head = head,
                          .work = work,
                          .vectors = value.vectors(),
                          .saved = a.blocks ? a.blocks + number : nullptr,
                          .limit = a.row_limit * (last - first),
                          .is_whole = is_whole};
    int64_t i = first;
    while (i < last) {
      const double alpha = alpha_of(in, head.b, head.h, i);
      const int64_t strip = block.fits_lanes(i, last, alpha) ? kBlockRows : kStripRows;
      int64_t end = i + 1;
      while (end < smaller(last, i + strip) && alpha_of(in, head.b, head.h, end) == alpha) ++end;
      block.run_strip(i, end - i, alpha);
      i = end;
    }
  };
  parallel_with(
      heads * blocks / together, in.threads, [&] { return AttentionWork<T>(in); },
      [&](AttentionWork<T>& work, int64_t task) {
        for (int64_t i = task * together; i < (task + 1) * together; ++i) run_block(work, i);
      });
}

inline void attention_forward(const AttentionForward& a) {
  a.in.is_double() ? attention_forward_in<double>(a) : attention_forward_in<float>(a);
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
