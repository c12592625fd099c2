#include "strategies/experts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

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

/// Whether a layer sends tokens to experts, receives or returns them.
bool moves_tokens(const Layer& layer) {
  const auto* activation = layer.kind.as<Activation>();
  return routes(layer) ||
         (is_of_experts(layer) && activation != nullptr && activation->function == "identity");
}

/// What makes the probabilities of a dispatch, last to first.
std::vector<LayerId> router_of(const Network& network, const Layer& dispatch) {
  std::vector<LayerId> made{dispatch.inputs[1]};
  while (network[made.back()].inputs.size() == 1 &&
         network[made.back()].kind.as<Dense>() == nullptr) {
    made.push_back(network[made.back()].inputs[0]);
  }
  return made;
}

/// Slots shared by so many parts of the tokens, none of which has a fraction of one.
std::int64_t in_parts(std::int64_t slots, std::int64_t parts) {
  return (slots + parts - 1) / parts * parts;
}

/// Whether devices that all have a layer can have tokens of their own instead, as they have of its
/// input.
bool follows_tokens(const Network& network, LayerId id, const std::vector<Cut>& cuts,
                    const std::vector<Cut>& before) {
  if (cuts.empty() || cuts.size() != before.size()) return false;
  const std::size_t ways = cuts.back().sizes.size();
  const std::int64_t tokens = network[network[id].inputs[0]].out.extent(Dim::token);
  return cuts.back().dim == Dim::replica && before.back().dim == Dim::token &&
         before.back().sizes == even_split(tokens, ways);
}

/// Where the devices of a tensor group have tokens of their own before a mixture of experts
/// (sequence parallelism), they route, send and receive these alone. Not where slots are shared by
/// tokens of two devices.
void route_own_tokens(const Network& network, Plan& plan) {
  const auto cuts_of = [&](LayerId id) -> std::vector<Cut>& {
    return plan.layers[id.index()].cuts;
  };
  std::vector<bool> own(network.layers.size());
  const auto by_token = [&](LayerId id) {
    std::vector<Cut>& cuts = cuts_of(id);
    if (cuts.empty() || cuts.back().dim != Dim::replica) return;
    const std::size_t ways = cuts.back().sizes.size();
    cuts.back() = {Dim::token, even_split(network[id].out.extent(Dim::token), ways)};
  };
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerId id{l};
    const Layer& layer = network[id];
    if (const auto* dispatch = layer.kind.as<ExpertDispatch>()) {
      own[l] = follows_tokens(network, id, cuts_of(id), cuts_of(layer.inputs[0])) &&
               dispatch->groups % std::ssize(cuts_of(id).back().sizes) == 0;
      if (!own[l]) continue;
      for (const LayerId made : router_of(network, layer)) by_token(made);
    } else if (is_in_mixture(layer)) {
      own[l] = own[layer.inputs[0].index()];
    }
    if (own[l] && moves_tokens(layer)) by_token(id);
  }
}

/// Whether so many neighbours can divide the experts.
bool can_divide(std::size_t ways, std::size_t replicas, std::size_t parts) {
  if (ways <= parts) return parts % ways == 0;
  return ways % parts == 0 && replicas % (ways / parts) == 0;
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

bool is_in_mixture(const Layer& layer) { return routes(layer) || is_of_experts(layer); }

std::vector<bool> routers(const Network& network) {
  std::vector<bool> routing(network.layers.size());
  for (const Layer& layer : network.layers) {
    if (layer.kind.as<ExpertDispatch>() == nullptr) continue;
    for (const LayerId id : router_of(network, layer)) routing[id.index()] = true;
  }
  return routing;
}

bool whole_experts(const StrategyInput& input, std::size_t tensor) {
  return tensor > 1 && input.expert_tensor_parallel == 1;
}

std::size_t token_parts_of_experts(const StrategyInput& input, std::size_t tensor,
                                   std::size_t context) {
  return context * (whole_experts(input, tensor) ? tensor : 1);
}

bool splits_experts_as_asked(const StrategyInput& input, std::size_t tensor, std::size_t context) {
  if (!input.expert_tensor_parallel) return true;
  if (!whole_experts(input, tensor))
    return static_cast<std::size_t>(*input.expert_tensor_parallel) == tensor;
  const std::vector<Layer>& layers = input.network.layers;
  const auto parts = static_cast<std::int64_t>(tensor * context);
  return std::all_of(layers.begin(), layers.end(), [&](const Layer& layer) {
    const auto* dispatch = layer.kind.as<ExpertDispatch>();
    return dispatch == nullptr || dispatch->slots >= parts;
  });
}

std::vector<std::size_t> expert_degrees(const StrategyInput& input, std::size_t replicas,
                                        std::size_t tensor, std::size_t context) {
  const std::size_t parts = token_parts_of_experts(input, tensor, context);
  if (input.expert_parallel) {
    const auto asked = static_cast<std::size_t>(*input.expert_parallel);
    return can_divide(asked, replicas, parts) ? std::vector{asked} : std::vector<std::size_t>{};
  }
  std::vector<std::size_t> degrees{1};
  const auto experts = static_cast<std::size_t>(experts_of(input.network));
  for (std::size_t ways = 2; ways <= std::min(replicas * parts, experts); ++ways) {
    if (can_divide(ways, replicas, parts) && experts % ways == 0) degrees.push_back(ways);
  }
  return degrees;
}

void route_in_parts(Network& network, std::int64_t parts) {
  std::vector<bool> changed(network.layers.size());
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    Layer& layer = network.layers[l];
    if (!is_in_mixture(layer)) continue;
    const std::vector<Shape> shapes = input_shapes(network, LayerId{l});
    if (const auto* dispatch = layer.kind.as<ExpertDispatch>()) {
      const std::int64_t tokens = shapes[0].extent(Dim::token);
      if (dispatch->groups % parts == 0 || tokens % parts != 0) continue;
      const std::int64_t slots = in_parts(dispatch->slots, parts);
      layer.kind = ExpertDispatch{dispatch->top_k, slots, std::gcd(tokens, slots)};
    } else if (!changed[layer.inputs[0].index()]) {
      continue;
    } else if (const auto* combine = layer.kind.as<ExpertCombine>()) {
      layer.kind =
          ExpertCombine{combine->top_k, combine->normalized,
                        std::gcd(shapes[1].extent(Dim::token), shapes[0].extent(Dim::token))};
    }
    layer.out = output_shape(layer.kind, shapes, layer.name);
    changed[l] = true;
  }
}

std::int64_t routed_parts(const Network& network, const Plan& plan) {
  const std::size_t layers = std::min(network.layers.size(), plan.layers.size());
  for (std::size_t l = 0; l < layers; ++l) {
    const auto* dispatch = network.layers[l].kind.as<ExpertDispatch>();
    if (dispatch == nullptr) continue;
    for (const Cut& cut : plan.layers[l].cuts) {
      if (cut.dim != Dim::token) continue;
      const std::int64_t slots =
          std::accumulate(cut.sizes.begin(), cut.sizes.end(), std::int64_t{0});
      for (std::int64_t parts = 1; parts <= std::ssize(cut.sizes); ++parts) {
        if (in_parts(dispatch->slots, parts) == slots && std::ssize(cut.sizes) % parts == 0)
          return parts;
      }
    }
  }
  return 1;
}

void expect_experts(const StrategyInput& input) {
  const std::int64_t experts = experts_of(input.network);
  if (input.expert_tensor_parallel && experts == 0) {
    throw InputError("--etp",
                     fmt::format("{} for '{}', which has no experts", *input.expert_tensor_parallel,
                                 input.network.name),
                     "accepted: with a mixture of experts");
  }
  if (input.expert_parallel.value_or(1) <= std::max<std::int64_t>(1, experts)) return;
  throw InputError(
      "--ep",
      fmt::format("{} for '{}', which has {}", *input.expert_parallel, input.network.name,
                  experts == 0 ? "no experts" : fmt::format("{} experts", experts)),
      experts == 0 ? "accepted: with a mixture of experts"
                   : fmt::format("accepted: at most {}", experts));
}

void divide_experts(const Network& network, std::size_t ways, std::size_t parts, Plan& plan) {
  const auto joined = [](const LayerPlan& layer) { return layer.joined; };
  if (parts == 1 && std::none_of(plan.layers.begin(), plan.layers.end(), joined)) {
    route_own_tokens(network, plan);
  }
  if (ways < 2) return;
  const std::size_t within = std::min(ways, parts), across = ways / within;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    std::vector<Cut>& cuts = plan.layers[l].cuts;
    if (cuts.empty() || plan.layers[l].joined) continue;
    const bool by_sample = cuts[0].dim == Dim::sample && cuts[0].sizes.size() % across == 0;
    if (!by_sample && across > 1) continue;
    if (is_of_experts(layer)) {
      auto after = cuts.begin() + (cuts[0].dim == Dim::sample ? 1 : 0);
      if (across > 1) cuts[0].sizes = joined_sizes(cuts[0].sizes, across);
      if (within > 1) after->sizes = joined_sizes(after->sizes, within);
      if (within == parts && parts > 1) after = cuts.erase(after);
      if (parts > within) ++after;
      cuts.insert(after, Cut{Dim::expert, even_split(layer.out.extent(Dim::expert), ways)});
    }
    // Each device of a group sends, receives and returns its tokens, else a part of the channels.
    if (moves_tokens(layer) && cuts.size() >= 2 && cuts.back().dim == Dim::replica) {
      Cut& last = cuts.back();
      last = {Dim::channel, even_split(layer.out.axes.back().extent, last.sizes.size())};
    }
  }
}

}  // namespace parsim::strategies
