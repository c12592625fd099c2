#include "core/errors.hpp"
#include "sim/sim.hpp"

namespace parsim::sim {

const std::vector<CostSource>& cost_sources() {
  static const std::vector<CostSource> all = {
      {"tiles",
       "GEMMs and convolutions by tiles, waves and split-K, with Winograd; other kernels by memory "
       "bandwidth (default)",
       make_tile_costs},
      {"constant", "a constant fraction of the peak per device and kernel class",
       make_constant_efficiency},
  };
  return all;
}

const CostSource& cost_source(std::string_view name, std::string_view where) {
  std::vector<std::string> names;
  for (const CostSource& source : cost_sources()) {
    if (source.name == name) return source;
    names.push_back(source.name);
  }
  throw InputError(where, "unknown cost source '" + std::string(name) + "'",
                   "accepted: " + join(names) + did_you_mean(name, names));
}

}  // namespace parsim::sim
