// A normalizer that does not depend on the scores listed beside those of the support.
//
// Kernels solve a row from a list of candidates, which holds the support and some scores below it.
// Sums over another such list differ by roundings, and c with them. To settle a row, Newton's steps
// are taken in double until they vanish; c is then known to some 1e-15, and its rounding to float
// is the same for every list. So are the weights, which follow from c score by score.
#pragma once

#include "entmax/solve_row.h"
#include "rows.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// Calls body(map) with the map of double for the exponent of a map of float.
template <class Map, class Body>
ADASPARSE_INLINE void with_wide_map(const Map& map, const Body& body) {
  if constexpr (std::is_same_v<Map, Entmax15Map<float>>)
    body(Entmax15Map<double>());
  else if constexpr (std::is_same_v<Map, SparsemaxMap<float>>)
    body(SparsemaxMap<double>());
  else
    body(GeneralMap<double>(map.eps()));
}

// Settles a solved row of n scores if its support is small. `scratch` holds n + two vectors.
template <class Map>
void settle(const Map& map, const float* row, int64_t n, float* scratch, SolvedRow& solved) {
  constexpr int width = Lanes<double>::count;
  constexpr double kVanished = 1e-9;  // the next step would be about its square
  const double eps = map.eps();
  Normalizer& out = solved.normalizer;
  if (!out.is_regular()) return;
  // The solver leaves an error of c far below this.
  const double margin = 1e-5 / eps;
  const int64_t count =
      pack_candidates(row, n, static_cast<float>(out.max), eps, out.c - margin, scratch);
  if (count > kSettledKeys) return;
  double scores[kSettledKeys + 2 * width];
  for (int64_t j = 0; j < count; ++j) scores[j] = static_cast<double>(scratch[j]);
  with_wide_map(map, [&](const auto& wide) {
    double c = out.c;
    for (int step = 0; step < 4; ++step) {
      const Sums sums = sum_row(wide, scores, count, 0., c, static_cast<double*>(nullptr));
      const double delta = wide.step(sums.mass, sums.slope);
      c += delta;
      if (std::fabs(delta) < kVanished) break;
    }
    // What is left of the mass is that of the c that weights are computed with.
    out.c = static_cast<double>(static_cast<float>(c));
    using X = Two<Vec<double>>;
    const X at = all<X>(static_cast<double>(static_cast<float>(map.at(out.c))));
    X mass = all<X>(0);
    for_each_two(scores, count, [&](X s, int64_t, int64_t) ADASPARSE_INLINE_BODY {
      X p, sigma;
      wide.eval(s, at, p, sigma);
      mass = mass + p;
    });
    out.scale = static_cast<double>(static_cast<float>(1 / sum_two<double>(mass)));
  });
  solved.has_weights = false;
  solved.is_settled = true;
}

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
