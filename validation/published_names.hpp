// Names of networks and GPUs in rows: parsim's own, an alias, or either in another spelling, with
// what tables write around the name of a card.
#pragma once

#include <optional>
#include <string>

#include "validation/validation.hpp"

namespace parsim::validation {

/// parsim's name of the network in column `model`. After it may stand words that change nothing of
/// it ("-hf", "base", "v1.5" of a ResNet), before it the maker and the owner's folder. Throws
/// InputError naming the row for an unknown name, and for another word after it: "bloom-7b1".
[[nodiscard]] std::string named_network(const Claim& claim);

/// parsim's name of the card in column `gpu`: "8x NVIDIA H100 80GB HBM3" of a row of 8 GPUs, or
/// "H100 SXM5 @ 500 W (GPU 0)", is h100-sxm5. Before the name may stand the row's GPUs, or those of
/// a machine, and the maker; after it the card's form, memory and power, and notes in brackets.
/// Throws InputError naming the row for an unknown name, and for another word after it, as in "H100
/// MIG".
[[nodiscard]] std::string named_gpu(const Claim& claim);
/// The same; nothing for an unknown name.
[[nodiscard]] std::optional<std::string> known_gpu(const Claim& claim);
/// Column `gpu` without the number of GPUs before the name.
[[nodiscard]] std::string gpu_without_count(const Claim& claim);

}  // namespace parsim::validation
