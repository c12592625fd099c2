#include "strategies/experts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"

namespace parsim::strategies {

namespace {

/// Sums of so many sizes each.
std::vector<std::int64_t> joined_sizes(const std::vector<std::int64_t>& sizes, std::size_t ways) {
  std::vector<std::int64_t> joined(sizes.size() / ways);
  for (std::size_t i = 0; i < sizes.size(); ++i) joined[i / ways] += sizes[i];
  return joined;
}

bool routes(const Layer& layer) {
  return layer.kind.as<ExpertDispatch>() != nullptr || layer.kind.as<ExpertCombine>() != nullptr;
}

}  // namespace

std::int64_t experts_of(const Network& network) {
  std::int64_t most = 0;
  for (const Layer& layer : network.layers) {
    if (layer.kind.as<ExpertDense>() == nullptr) continue;
    most = std::max(most, layer.out.extent(Dim::expert));
  }
  return most;
}

bool is_of_experts(const Layer& layer) {
  return layer.out.region_axis(Dim::expert) != 0 && layer.kind.as<ExpertDispatch>() == nullptr;
}

std::vector<std::size_t> expert_degrees(const StrategyInput& input, std::size_t replicas) {
  if (input.expert_parallel) {
    const auto asked = static_cast<std::size_t>(*input.expert_parallel);
    return replicas % asked == 0 ? std::vector{asked} : std::vector<std::size_t>{};
  }
  std::vector<std::size_t> degrees{1};
  const auto experts = static_cast<std::size_t>(experts_of(input.network));
  for (std::size_t ways = 2; ways <= std::min(replicas, experts); ++ways) {
    if (replicas % ways == 0 && experts % ways == 0) degrees.push_back(ways);
  }
  return degrees;
}

void expect_experts(const StrategyInput& input) {
  const std::int64_t experts = experts_of(input.network);
  if (input.expert_parallel.value_or(1) <= std::max<std::int64_t>(1, experts)) return;
  throw InputError(
      "--ep",
      fmt::format("{} for '{}', which has {}", *input.expert_parallel, input.network.name,
                  experts == 0 ? "no experts" : fmt::format("{} experts", experts)),
      experts == 0 ? "accepted: with a mixture of experts"
                   : fmt::format("accepted: at most {}", experts));
}

void divide_experts(const Network& network, std::size_t ways, Plan& plan) {
  if (ways < 2) return;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    std::vector<Cut>& cuts = plan.layers[l].cuts;
    if (cuts.empty() || cuts[0].dim != Dim::sample || cuts[0].sizes.size() % ways != 0 ||
        plan.layers[l].joined) {
      continue;
    }
    if (is_of_experts(layer)) {
      cuts[0].sizes = joined_sizes(cuts[0].sizes, ways);
      cuts.insert(cuts.begin() + 1,
                  Cut{Dim::expert, even_split(layer.out.extent(Dim::expert), ways)});
    } else if (routes(layer) && cuts.size() == 2 && cuts[1].dim == Dim::replica) {
      cuts[1] = {Dim::channel, even_split(layer.out.axes.back().extent, cuts[1].sizes.size())};
    }
  }
}

}  // namespace parsim::strategies
