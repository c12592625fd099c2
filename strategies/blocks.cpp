#include "strategies/blocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "core/text.hpp"

namespace parsim::strategies {

std::optional<std::int64_t> block_of(const Network& network, LayerId layer) {
  constexpr std::string_view prefix = "block";
  const std::string_view name = network[layer].name;
  const std::size_t dot = name.find('.');
  if (!name.starts_with(prefix) || dot == std::string_view::npos) return std::nullopt;
  const std::string_view digits = name.substr(prefix.size(), dot - prefix.size());
  const auto number = to_number<std::int64_t>(digits);
  constexpr std::int64_t most = std::int64_t{1} << 30;
  return number && *number >= 0 && *number <= most ? number : std::nullopt;
}

std::vector<std::int64_t> blocks_of(const Network& network) {
  std::vector<std::int64_t> blocks;
  std::int64_t now = -1, most = -1;
  bool inside = false;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const std::optional<std::int64_t> block = block_of(network, LayerId{l});
    if (block) most = now = *block;
    if (!block && inside) now = most + 1;
    inside = block.has_value();
    blocks.push_back(now);
  }
  return blocks;
}

std::vector<std::size_t> first_layers_of_blocks(const Network& network) {
  std::vector<std::size_t> first;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const std::optional<std::int64_t> block = block_of(network, LayerId{l});
    if (block && *block == static_cast<std::int64_t>(first.size())) first.push_back(l);
  }
  if (!first.empty()) first[0] = 0;
  return first;
}

std::vector<std::size_t> units_of(const Network& network, std::optional<Granularity> granularity) {
  const std::size_t layers = network.layers.size();
  std::vector<std::size_t> units;
  std::int64_t block = -1;
  if (granularity.value_or(Granularity::block) == Granularity::block) {
    const std::vector<std::int64_t> blocks = blocks_of(network);
    for (std::size_t l = 0; l < layers; ++l) {
      if (l > 0 && blocks[l] <= block) continue;
      units.push_back(l);
      block = blocks[l];
    }
  }
  if (units.size() > 1) return units;
  units.resize(layers);
  std::iota(units.begin(), units.end(), std::size_t{0});
  return units;
}

std::string finer_cut_note(const StrategyInput& input, double step, double finer) {
  const std::size_t units = units_of(input.network, input.granularity).size();
  if (units == input.network.layers.size()) return {};
  const double gain = 100 * (1 - finer / step);
  return gain < 0.05
             ? "stages begin at blocks; cutting within them would gain nothing"
             : fmt::format("stages begin at blocks; --granularity layer would gain about {:.1f} %",
                           gain);
}

void recompute_blocks(const Network& network, Plan& plan) {
  const std::vector<std::int64_t> blocks = blocks_of(network);
  const auto readers = consumers(network);
  for (std::size_t l = 0; l < blocks.size(); ++l) {
    plan.layers[l].recompute =
        block_of(network, LayerId{l}) &&
        std::all_of(readers[l].begin(), readers[l].end(), [&](const Consumer& reader) {
          return blocks[reader.layer.index()] == blocks[l];
        });
  }
}

}  // namespace parsim::strategies
