// How the work of every layer is shared among the devices of a tensor-parallel group.
#pragma once

#include <cstddef>
#include <vector>

#include "core/plan.hpp"
#include "strategies/strategies.hpp"

namespace parsim::strategies::tensor {

/// By layer, its cut into `degree` parts:
///
/// - A convolution or dense layer whose input is whole on every device is cut by channel ("column
///   parallel"), an embedding table by rows if it is larger than what it makes, or shared.
/// - What reads a cut tensor follows it, as long as every part needs only what its device has:
///   activations, norms by channel, attention by heads.
/// - A convolution or dense layer whose input is cut by channel is cut along its contraction ("row
///   parallel"); its parts are summed by an all-reduce.
/// - Every expert of a mixture is cut like a dense layer; all devices route all tokens. Or experts
///   are whole: each device has the slots of its own tokens, and with sequence parallelism it
///   routes these alone.
/// - Where a smaller operand keeps a layer from following the others, all devices make it: keys and
///   values of fewer heads than devices.
/// - Everything else is done by all (replica), where need be after a gather.
///
/// This is the split of Shoeybi et al. 2019 ("Megatron-LM", section 3) for transformers, found from
/// the regions that layers read, so that it holds for any network. Degree 1: no cuts.
///
/// sequence_parallel   what all devices would do between a sum and the next product (norms,
///                     additions, dropout) is cut by token: the all-reduce of the sum becomes a
///                     reduce-scatter before and an all-gather after, and every device keeps its
///                     tokens' activations only: what it gathers is gathered again in backward (Korthikanti et al. 2022, "Reducing Activation
///                     Recomputation in Large Transformer Models", section 4.2.2)
[[nodiscard]] std::vector<std::vector<Cut>> split(const Network& network, std::size_t degree,
                                                  bool sequence_parallel = false,
                                                  bool whole_experts = false);

/// By device of a group: its share of each layer, in units of any size. With a divisor of the
/// key/value heads in all, no head is on two devices.
using DeviceUnits = std::vector<std::int64_t>;
[[nodiscard]] bool are_equal(const DeviceUnits& units);
/// The same for devices that share layers unequally.
[[nodiscard]] std::vector<std::vector<Cut>> split(const Network& network, const DeviceUnits& units,
                                                  bool sequence_parallel = false,
                                                  bool whole_experts = false);

/// As the input asks for sequence parallelism and whole experts.
[[nodiscard]] std::vector<std::vector<Cut>> split(const StrategyInput& input, std::size_t degree);
[[nodiscard]] std::vector<std::vector<Cut>> split(const StrategyInput& input,
                                                  const DeviceUnits& units);

}  // namespace parsim::strategies::tensor
