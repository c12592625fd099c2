#include <algorithm>
#include <numeric>

#include "strategies/tensor/arrangement.hpp"

namespace parsim::strategies::tensor {

double Arranging::busiest(const Arrangement& arrangement) {
  const ParallelDegrees& degrees = arrangement.degrees;
  const std::vector<std::size_t>& first = arrangement.cut.first;
  double most = 0;
  for (std::size_t owner = 0; owner < degrees.pipeline; ++owner) {
    for (const auto& [device, samples] : loads(arrangement, owner)) {
      if (samples == 0) continue;
      const std::vector<double>& times = kernels(arrangement, device, samples);
      const auto at = [&](std::size_t stage) {
        const std::size_t layer = stage < first.size() ? first[stage] : times.size();
        return times.begin() + static_cast<std::ptrdiff_t>(layer);
      };
      double own = 0;
      for (std::size_t s = owner; s < degrees.stages(); s += degrees.pipeline) {
        own = std::accumulate(at(s), at(s + 1), own);
      }
      most = std::max(most, own);
    }
  }
  return most * degrees.micro_batches;
}

}  // namespace parsim::strategies::tensor
