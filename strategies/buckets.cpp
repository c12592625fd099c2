#include "strategies/buckets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "strategies/blocks.hpp"

namespace parsim::strategies {

namespace {

/// One unit for what is before the first block and one for what is behind the last, unless they
/// share parameters; or one for both, `with_root`.
std::vector<std::vector<ParameterId>> unit_buckets(const Network& network, bool with_root) {
  constexpr std::int64_t before = -1, behind = std::numeric_limits<std::int64_t>::max();
  std::map<std::int64_t, std::vector<ParameterId>, std::greater<>> of_block;
  std::vector<bool> placed(network.parameters.size()), early(network.parameters.size());
  bool blocks_begun = false, tied = false;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    blocks_begun = blocks_begun || block_of(network, LayerId{l}).has_value();
    for (const ParameterId id : network.layers[l].parameters) {
      tied = tied || (blocks_begun && early[id.index()]);
      if (!blocks_begun) early[id.index()] = true;
    }
  }
  blocks_begun = false;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const std::optional<std::int64_t> own = block_of(network, LayerId{l});
    blocks_begun = blocks_begun || own.has_value();
    const bool first = !blocks_begun || tied || with_root;
    const std::int64_t block = own.value_or(first ? before : behind);
    for (const ParameterId id : network.layers[l].parameters) {
      if (!placed[id.index()]) of_block[block].push_back(id);
      placed[id.index()] = true;
    }
  }
  std::vector<std::vector<ParameterId>> units;
  for (auto& [block, parameters] : of_block) units.push_back(std::move(parameters));
  return units;
}

/// Whether buckets of blocks mean something.
bool can_have_units(const StrategyInput& input) {
  return input.sync != Sync::Kind::server && !first_layers_of_blocks(input.network).empty();
}

/// Of gradients that are summed in this precision. Size 0: one for each layer.
std::vector<std::vector<ParameterId>> sized_buckets(const Network& network, Precision summed,
                                                    Bytes size) {
  std::vector<std::vector<ParameterId>> buckets;
  std::vector<bool> placed(network.parameters.size(), false);
  std::int64_t filled = 0;
  for (std::size_t l = network.layers.size(); l-- > 0;) {
    bool opened = false;
    for (const ParameterId id : network.layers[l].parameters) {
      if (placed[id.index()]) continue;
      placed[id.index()] = true;
      const bool fresh = size.value == 0 ? !opened : buckets.empty() || filled >= size.value;
      if (fresh) {
        buckets.emplace_back();
        filled = 0;
      }
      opened = true;
      buckets.back().push_back(id);
      filled += network[id].elements() * element_bytes(summed);
    }
  }
  return buckets;
}

}  // namespace

bool gathers_blocks(const StrategyInput& input) { return !input.bucket && can_have_units(input); }

bool may_size_buckets(const StrategyInput& input) {
  return gathers_blocks(input) && !input.as_run && !input.accepts;
}

std::vector<std::vector<ParameterId>> gradient_buckets(const StrategyInput& input) {
  Bytes size = input.bucket.value_or(input.zero_stage == 3 ? bucket_of_block : ddp_bucket);
  if (size == bucket_of_block || size == bucket_of_block_and_root) {
    if (can_have_units(input)) {
      return unit_buckets(input.network, size == bucket_of_block_and_root);
    }
    size = ddp_bucket;
  }
  if (input.sync == Sync::Kind::server) size = Bytes{0};
  return sized_buckets(input.network, input.reduce_precision, size);
}

std::optional<Bytes> bucket_size_of(const Network& network, const Plan& plan) {
  const LayerPlan& first = plan.layers.front();
  if (plan.buckets.empty() || first.sync.kind == Sync::Kind::server) return std::nullopt;
  const auto has = [&](Bytes size) {
    return plan.buckets == sized_buckets(network, plan.reduce_precision, size);
  };
  const bool of_blocks = first.zero.stage == 3 && !first_layers_of_blocks(network).empty();
  if (of_blocks ? plan.buckets == unit_buckets(network, false) : has(ddp_bucket)) {
    return std::nullopt;
  }
  if (has(ddp_bucket)) return ddp_bucket;  // of large parameters several sizes make the same
  for (const Bytes size : bucket_sizes) {
    if (has(size)) return size;
  }
  // Of no more than the smallest of those that are closed.
  Bytes smallest{std::numeric_limits<std::int64_t>::max()};
  for (std::size_t b = 0; b + 1 < plan.buckets.size(); ++b) {
    std::int64_t elements = 0;
    for (const ParameterId id : plan.buckets[b]) elements += network[id].elements();
    smallest = std::min(smallest, Bytes{elements * element_bytes(plan.reduce_precision)});
  }
  return plan.buckets.size() > 1 && has(smallest) ? std::optional(smallest) : std::nullopt;
}

std::string bucket_text(Bytes size) {
  const bool whole = size.value > 0 && size.value % mebibyte == 0;
  return whole ? fmt::format("{}MiB", size.value / mebibyte) : fmt::format("{}B", size.value);
}

}  // namespace parsim::strategies
