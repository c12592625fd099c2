// What a trainer's file says of the model, which a layout leaves to the network.
#pragma once

#include <optional>
#include <string>

#include "core/network.hpp"
#include "core/plan.hpp"
#include "experiment/layout_file.hpp"
#include "experiment/trainer_words.hpp"

namespace parsim::experiment {

/// A line if the file has other numbers of layers, widths, heads or tokens than the network, or of
/// Megatron-LM other feed-forwards, key heads, experts or ties, that this is the network's step.
/// Names that Megatron-LM and torchtitan give these; a name that a script may or may not give, or
/// without a number, says nothing. What is absent is Megatron-LM's default if the script gives the
/// network's sizes and no arguments come from elsewhere.
[[nodiscard]] std::optional<std::string> other_model(const TrainerWords& words,
                                                     const Network& network);

/// Pads the network's vocabulary as the trainer of the file does (words_multiple), and says so in
/// its notes.
void pad_words(Network& network, const std::string& at, LayoutFile& file);
/// Pads it to as many words as the plan divides.
void pad_words(Network& network, const Plan& plan);

}  // namespace parsim::experiment
