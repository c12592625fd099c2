#include "experiment/largest_batch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace parsim::experiment {

void check_batch(const Network& network, Precision precision, std::int64_t batch,
                 const std::string& where) {
  constexpr double most = 0x1p55;
  double sample = 0;
  for (const Layer& layer : network.layers) {
    double bytes = static_cast<double>(element_bytes(precision));
    for (const Axis& axis : layer.out.axes) bytes *= static_cast<double>(axis.extent);
    sample += bytes;
  }
  if (sample * static_cast<double>(batch) <= most) return;
  throw InputError(
      where,
      fmt::format("{} of {:.2g} bytes each, of all layers", counted(batch, "sample"), sample),
      sample <= most
          ? fmt::format("accepted: at most {:.0f}", std::max(1.0, std::floor(most / sample)))
          : fmt::format("accepted: a network with less than {:.2g} bytes a sample", most));
}

}  // namespace parsim::experiment
