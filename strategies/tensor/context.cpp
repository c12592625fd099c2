#include "strategies/tensor/context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "strategies/experts.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/tensor/split.hpp"

namespace parsim::strategies::tensor {

namespace {

/// Tokens cut by `context`, each part by `tensor`.
Cut nested(Dim dim, std::int64_t tokens, std::size_t context, std::size_t tensor) {
  Cut cut{dim, {}};
  for (const std::int64_t part : even_split(tokens, context)) {
    for (const std::int64_t size : even_split(part, tensor)) cut.sizes.push_back(size);
  }
  return cut;
}

class Sharing {
 public:
  Sharing(const StrategyInput& input, std::size_t tensor, std::size_t context)
      : network_(input.network),
        exchange_(input.context_exchange),
        sequence_parallel_(input.sequence_parallel),
        tensor_(tensor),
        context_(context),
        split_(split(input, tensor)),
        readers_(consumers(input.network)) {}

  std::vector<LayerShare> run() {
    std::vector<LayerShare> shares;
    for (std::size_t l = 0; l < network_.layers.size(); ++l) shares.push_back(share(LayerId{l}));
    if (exchange_ != ContextExchange::all_gather) return shares;
    for (const Layer& layer : network_.layers) {
      if (layer.kind.as<Attention>() == nullptr) continue;
      for (const std::size_t operand : {1U, 2U})
        shares[layer.inputs[operand].index()].regather = true;
    }
    return shares;
  }

 private:
  [[nodiscard]] bool may_cut(LayerId id, Dim dim) const {
    const Layer& layer = network_[id];
    const std::vector<Dim> dims = cuttable_dims(layer.kind, input_shapes(network_, id), layer.out);
    return std::find(dims.begin(), dims.end(), dim) != dims.end();
  }

  [[nodiscard]] LayerShare share(LayerId id) const {
    const Layer& layer = network_[id];
    LayerShare share;
    std::optional<Cut> within;  // of a part of the tokens
    if (!split_[id.index()].empty()) within = split_[id.index()][0];
    const auto* attention = layer.kind.as<Attention>();
    if (attention != nullptr && exchange_ == ContextExchange::a2a) {
      share.cuts = {{Dim::channel, even_split(layer.out.extent(Dim::channel), tensor_ * context_)}};
      share.context = context_;
      return share;
    }
    if (attention != nullptr) {
      share.zigzag = attention->causal ? static_cast<std::int32_t>(context_) : 0;
      share.ring = exchange_ == ContextExchange::p2p;
    }
    if (!may_cut(id, Dim::token)) {
      share.cuts = {{Dim::replica, std::vector<std::int64_t>(context_, 1)}};
      if (within && within->dim == Dim::replica) {
        share.cuts[0].sizes = std::vector<std::int64_t>(context_ * tensor_, 1);
      } else if (within) {
        share.cuts.push_back(*within);
      }
      const std::vector<Consumer>& readers = readers_[id.index()];
      const bool by_token =
          std::all_of(readers.begin(), readers.end(),
                      [&](const Consumer& reader) { return may_cut(reader.layer, Dim::token); });
      if (layer.kind.as<Learned>() != nullptr && !readers.empty() && by_token) {
        share.token_parts = static_cast<std::int32_t>(context_);
        share.last_reader = readers.back().layer.index();
      }
      return share;
    }
    const std::int64_t tokens = layer.out.extent(Dim::token);
    if (layer.kind.as<Learned>() != nullptr)
      share.token_parts = static_cast<std::int32_t>(context_);
    if (within && within->dim == Dim::token) {
      share.cuts = {nested(Dim::token, tokens, context_, tensor_)};
      share.regather = sequence_parallel_ && !is_in_mixture(layer);
      return share;
    }
    share.cuts = {{Dim::token, even_split(tokens, context_)}};
    if (within) share.cuts.push_back(*within);
    return share;
  }

  const Network& network_;
  ContextExchange exchange_;
  bool sequence_parallel_;
  std::size_t tensor_, context_;
  std::vector<std::vector<Cut>> split_;  ///< by layer, among the devices of a tensor-parallel group
  std::vector<std::vector<Consumer>> readers_;
};

std::int64_t tokens_of(const StrategyInput& input, LayerId id) {
  return input.network[id].out.extent(Dim::token);
}

/// Why the tokens cannot be divided so, and what can be; empty if they can.
struct Obstacle {
  std::string found, accepted;
};

std::optional<Obstacle> obstacle(const StrategyInput& input, std::int64_t ways) {
  bool attends = false;
  for (const Layer& layer : input.network.layers) {
    const auto* rearrange = layer.kind.as<Rearrange>();
    if (rearrange != nullptr && heads_moved(*rearrange) == HeadMove::split_transposed) {
      return Obstacle{"stores attention scores", "with fused attention only"};
    }
    const auto* attention = layer.kind.as<Attention>();
    if (attention == nullptr) continue;
    attends = true;
    const std::int64_t tokens = tokens_of(input, layer.inputs[0]);
    const std::int64_t keys = tokens_of(input, layer.inputs[1]);
    if (input.context_exchange == ContextExchange::p2p && tokens != keys) {
      return Obstacle{"has queries and keys of different lengths",
                      "with --cp-comm all_gather or a2a"};
    }
    // Transformer Engine 2, tests/pytorch/attention/test_attention_with_cp.py: no support for
    // sliding windows with p2p.
    if (input.context_exchange == ContextExchange::p2p && attention->window > 0) {
      return Obstacle{fmt::format("has attention with a window of {} tokens", attention->window),
                      "with --cp-comm all_gather or a2a"};
    }
    const std::int64_t parts = attention->causal ? 2 * ways : ways;
    if (tokens % parts == 0 && keys % parts == 0) continue;
    return Obstacle{fmt::format("has {} tokens", tokens % parts == 0 ? keys : tokens),
                    attention->causal ? "half a divisor of the tokens, because a causal mask asks "
                                        "for two chunks a device"
                                      : "a divisor of the tokens"};
  }
  if (!attends) return Obstacle{"has no attention", "with a transformer"};
  for (const Layer& layer : input.network.layers) {
    const auto* dispatch = layer.kind.as<ExpertDispatch>();
    if (dispatch == nullptr || dispatch->groups % ways == 0) continue;
    return Obstacle{fmt::format("routes its tokens in {}", counted(dispatch->groups, "group")),
                    "a divisor of the groups"};
  }
  return std::nullopt;
}

}  // namespace

std::vector<LayerShare> share_tokens(const StrategyInput& input, std::size_t tensor,
                                     std::size_t context) {
  return Sharing(input, tensor, context).run();
}

void divide(const LayerShare& share, std::span<const std::vector<DeviceId>> groups,
            const std::vector<std::int64_t>& samples, std::size_t end, LayerPlan& layer) {
  layer.cuts.clear();
  layer.devices.clear();
  if (groups.size() > 1) layer.cuts.push_back({Dim::sample, samples});
  layer.cuts.insert(layer.cuts.end(), share.cuts.begin(), share.cuts.end());
  for (const std::vector<DeviceId>& group : groups) {
    const std::size_t tensor = group.size() / share.context;
    for (std::size_t part = 0; part < group.size(); ++part) {
      const std::size_t k = part / share.context, c = part % share.context;
      layer.devices.push_back(group[c * tensor + k]);
    }
  }
  layer.zigzag = share.zigzag;
  layer.regather = share.regather;
  layer.ring = share.ring;
  layer.token_parts = share.last_reader < end ? share.token_parts : 0;
}

void divide_tokens(const StrategyInput& input, LayerRange layers,
                   std::span<const std::vector<DeviceId>> groups,
                   const std::vector<std::int64_t>& samples, const std::string& where,
                   std::vector<LayerPlan>& plans) {
  const auto context = static_cast<std::size_t>(input.context_parallel.value_or(1));
  const std::size_t size = groups[0].size(), tensor = size / context;
  const auto other = [&](const std::vector<DeviceId>& group) { return group.size() != size; };
  if (std::any_of(groups.begin(), groups.end(), other) || size % context != 0) {
    throw InputError(where,
                     fmt::format("a group of {} with cp {}", counted(size, "device"), context),
                     fmt::format("accepted: groups of one size, a multiple of {}", context));
  }
  if (!has_heads_for(input, tensor, context)) {
    throw InputError(where, fmt::format("heads divided among {} devices", size),
                     "accepted: with --cp-comm a2a groups whose size divides the key/value heads");
  }
  const std::vector<LayerShare> shares = share_tokens(input, tensor, context);
  for (std::size_t l = layers.begin; l < layers.end; ++l) {
    plans[l].sync = chosen_sync(input);
    divide(shares[l], groups, samples, layers.end, plans[l]);
  }
}

bool has_heads_for(const StrategyInput& input, std::size_t tensor, std::size_t context) {
  if (context == 1 || input.context_exchange != ContextExchange::a2a) return true;
  return std::all_of(
      input.network.layers.begin(), input.network.layers.end(), [&](const Layer& layer) {
        const auto* attention = layer.kind.as<Attention>();
        return attention == nullptr ||
               attention->key_heads % static_cast<std::int64_t>(tensor * context) == 0;
      });
}

void expect_context(const StrategyInput& input) {
  const std::int64_t ways = input.context_parallel.value_or(1);
  if (ways == 1) return;
  const std::optional<Obstacle> found = obstacle(input, ways);
  if (!found) return;
  throw InputError("--cp",
                   fmt::format("{} for '{}', which {}", ways, input.network.name, found->found),
                   "accepted: " + found->accepted);
}

std::vector<std::size_t> context_degrees(const StrategyInput& input, std::size_t devices) {
  if (input.context_parallel) return {static_cast<std::size_t>(*input.context_parallel)};
  // Long sequences are what context parallelism is for (guessed).
  constexpr std::int64_t fewest_tokens = 2048;
  std::int64_t tokens = 0;
  for (const Layer& layer : input.network.layers) {
    if (layer.kind.as<Attention>() != nullptr) tokens = tokens_of(input, layer.inputs[0]);
  }
  std::vector<std::size_t> degrees{1};
  for (std::size_t ways = 2; ways <= devices; ways *= 2) {
    const auto parts = static_cast<std::int64_t>(ways);
    if (tokens / parts < fewest_tokens || obstacle(input, parts)) break;
    degrees.push_back(ways);
  }
  return degrees;
}

}  // namespace parsim::strategies::tensor
