#include "strategies/blocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>

#include "core/text.hpp"
#include "strategies/experts.hpp"

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
             : fmt::format("stages begin at blocks; --granularity layer may gain up to {:.1f} %",
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

namespace {

/// Whether the layer's output is a sum over a group of devices, which divide its inputs.
bool sums_over_group(const LayerPlan& plan) {
  return std::any_of(plan.cuts.begin(), plan.cuts.end(), [](const Cut& cut) {
    return cut.dim == Dim::in_channel && cut.sizes.size() > 1;
  });
}

}  // namespace

void exchange_again(const Network& network, bool again, Plan& plan) {
  const auto by_token = [&](LayerId id) {
    const std::vector<Cut>& cuts = plan.layers[id.index()].cuts;
    return std::any_of(cuts.begin(), cuts.end(), [](const Cut& cut) {
      return cut.dim == Dim::token && cut.sizes.size() > 1;
    });
  };
  const auto mark = [&](LayerId id) {
    LayerPlan& layer = plan.layers[id.index()];
    layer.regather = again && layer.recompute;
  };
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    if (is_in_mixture(layer)) mark(LayerId{l});
    const bool attends = layer.kind.as<Attention>() != nullptr;
    if (!attends || by_token(LayerId{l}) || !by_token(layer.inputs[0])) continue;
    mark(LayerId{l});
    for (const LayerId operand : layer.inputs) mark(operand);
  }
}

void recompute_operations(const Network& network, Plan& plan) {
  recompute_blocks(network, plan);
  const std::vector<std::int64_t> blocks = blocks_of(network);
  std::map<std::int64_t, int> products;  // by block
  for (std::size_t l = 0; l < blocks.size(); ++l) {
    const LayerKind& kind = network.layers[l].kind;
    bool kept = kind.as<Attention>() != nullptr || kind.as<ExpertDispatch>() != nullptr ||
                sums_over_group(plan.layers[l]);
    if (kind.as<Dense>() != nullptr && products[blocks[l]]++ % 2 == 0) kept = true;
    if (kept) plan.layers[l].recompute = false;
  }
}

void recompute_pointwise(const Network& network, Plan& plan) {
  recompute_blocks(network, plan);
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerKind& kind = network.layers[l].kind;
    const Combine* combine = kind.as<Combine>();
    const Activation* function = kind.as<Activation>();
    const bool dropped = kind.as<Norm>() != nullptr ||
                         (function != nullptr && function->function != "rotary" &&
                          function->function != "identity") ||
                         (combine != nullptr && combine->function == "mul");
    if (!dropped) plan.layers[l].recompute = false;
  }
}

void keep_other_blocks(const Network& network, std::int32_t every, Plan& plan) {
  const std::vector<std::int64_t> blocks = blocks_of(network);
  for (std::size_t l = 0; l < blocks.size(); ++l) {
    if ((blocks[l] + 1) % every != 0) plan.layers[l].recompute = false;
  }
}

}  // namespace parsim::strategies
