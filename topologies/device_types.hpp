// Reading one entry of [[device_types]], which the built-in table and cluster files share.
#pragma once

#include <span>

#include "core/cluster.hpp"
#include "topologies/document.hpp"

namespace parsim::topologies {

/// Reads one entry. With `base = "…"` it starts from that type of `known` and changes what it
/// names. Throws InputError with file, line and key.
[[nodiscard]] DeviceModel read_device_type(const Value& entry, const std::string& file,
                                           std::span<const DeviceModel> known);

/// `known` with what the table says of price and power. Throws InputError for what cannot be read.
[[nodiscard]] Upkeep read_upkeep(const Fields& fields, Upkeep known);

/// The type of that name. Throws InputError with a did-you-mean.
[[nodiscard]] const DeviceModel& find_device_type(std::span<const DeviceModel> known,
                                                  std::string_view name, std::string_view where);

/// "measured", "data sheet" or "guessed".
[[nodiscard]] Label parse_label(const std::string& text, const std::string& where);

}  // namespace parsim::topologies
