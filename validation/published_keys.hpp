// What rows must have in common for one to calibrate the other.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "validation/validation.hpp"

namespace parsim::validation {

/// The row's quantity and these columns.
[[nodiscard]] std::string key_of(const Claim& claim, std::initializer_list<std::string_view> names);

/// Transformers on a card, under any framework: GEMMs and attention are the vendor's kernels.
/// Nothing for convolutional networks, whose frameworks differ by factors.
[[nodiscard]] std::optional<std::string> key_of_card(const Claim& claim);

/// From the series itself to ever coarser keys.
[[nodiscard]] std::vector<std::string> keys_of(const Claim& claim);

/// Of throughputs: what a host feeds depends on machine, network, precision and trainer.
[[nodiscard]] std::string key_of_hosts(const Claim& claim);

/// Keys of the share of its rate that the network between machines reaches.
[[nodiscard]] std::vector<std::string> keys_of_links(const Claim& claim);

}  // namespace parsim::validation
