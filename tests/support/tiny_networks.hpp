// Networks small enough to be computed in float64 thousands of times, each with something that a
// plan or its lowering may get wrong.
#pragma once

#include <string_view>
#include <vector>

#include "core/network.hpp"

namespace parsim::testing {

/// Every tiny network: at most 8 channels, maps of at most 8 x 8, a Loss at the end.
[[nodiscard]] std::vector<Network> tiny_networks();
/// Pre-norm transformer blocks between an embedding and a classifier of the mean over tokens: four
/// tokens of twelve channels, six heads.
[[nodiscard]] Network tiny_transformer(int blocks);

/// A block of a decoder as LLaMA's: RMS norms, rotary positions, three pairs of heads that share
/// keys and values, a gated feed-forward, scores of a vocabulary for every token. `eager`: scores
/// of attention are written, and queries are broadcast to keys.
[[nodiscard]] Network tiny_llama(bool eager);

/// One of them by name. Throws BrokenInvariant if there is none.
[[nodiscard]] Network tiny_network(std::string_view name);

}  // namespace parsim::testing
