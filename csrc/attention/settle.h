// Bounds of the normalizers of several rows at once, one row per lane, and candidates settled by
// them.
#pragma once

#include "attention/support.h"
#include "entmax/solve_lanes.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// Raises the bounds of up to a vector of rows from `n` lower bounds of scores of each, those of the
// first at low(0). `lanes` holds 2 n vectors.
template <class Low>
void raise_in_lanes(const Low& low, int64_t n, int used, double eps, float* lanes,
                    Candidates<float>* rows) {
  using V = Vec<float>;
  const CenteredLanes<float> found(low, n, used, lanes, lanes + n * Lanes<float>::count);
  V c{};
  with_lower_map<float>(eps, [&](const auto& map) {
    for (int step = 0; step < kBoundSteps; ++step) {
      V mass, slope;
      sum_lanes_at(map, lanes, n, c, static_cast<float*>(nullptr), mass, slope);
      c += select(greater(mass, broadcast(1 + 1e-3f)), map.step(mass, slope), V{});
    }
  });
  for (int r = 0; r < used; ++r)
    if (std::isfinite(found.top[r]) && !(bits(found.is_bad) >> r & 1))
      rows[r].raise(static_cast<double>(found.top[r]) + static_cast<double>(c[r]) * (1 - 1e-5),
                    eps);  // rounding must not carry it over the root
}

// Candidates::settle for up to a vector of rows. `lanes` holds 2 kLaneKeys vectors. Returns false,
// with nothing done, if a row has more candidates than kLaneKeys.
inline bool settle_in_lanes(Candidates<float>* rows, int used, double eps, float* lanes) {
  constexpr int width = Lanes<float>::count;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  int64_t n = 1;
  for (int r = 0; r < used; ++r) n = larger(n, rows[r].count);
  n = round_up(n, width);
  if (n > kLaneKeys) return false;
  for (int r = 0; r < used; ++r) fill(rows[r].value + rows[r].count, n - rows[r].count, -infinity);
  const CenteredLanes<float> found([&](int64_t r) { return rows[r].value; }, n, used, lanes,
                                   lanes + n * width);
  Vec<float> c{}, mass{}, slope;
  for (int r = 0; r < used; ++r)
    c[r] = larger(static_cast<float>(rows[r].bound - static_cast<double>(found.top[r])), 0.f);
  with_lower_map<float>(eps, [&](const auto& map) {
    mass = rise_lanes(map, lanes, n, static_cast<float>(kSettledMass), c,
                      static_cast<float*>(nullptr), slope);
  });
  for (int r = 0; r < used; ++r) {
    Candidates<float>& row = rows[r];
    row.is_bad |= bits(found.is_bad) >> r & 1;
    if (found.top[r] == -infinity) row.count = 0;
    if (!row.is_bad && row.count > 0)
      row.settle_at(eps, found.top[r], static_cast<double>(c[r]), static_cast<double>(mass[r]) - 1);
  }
  return true;
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
