// What a trainer's file says of the model, which a layout leaves to the network.
#pragma once

#include <optional>
#include <string>

#include "core/network.hpp"
#include "experiment/trainer_words.hpp"

namespace parsim::experiment {

/// A line if the file has other numbers of layers, widths, heads or tokens than the network, that
/// this is the network's step. Names that Megatron-LM and torchtitan give these; a name that a
/// script may or may not give, or without a number, says nothing.
[[nodiscard]] std::optional<std::string> other_model(const TrainerWords& words,
                                                     const Network& network);

}  // namespace parsim::experiment
