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

/// `known` with what the table says of a link's power. Throws InputError for what cannot be read,
/// for an idle power above the power, and for one without it; an idle power may be 0.
[[nodiscard]] LinkPower read_link_power(const Fields& fields, LinkPower known);

/// `known` with another power or idle power, "10 W". Throws InputError with the text's location,
/// for an idle power above the power, and for one without it.
[[nodiscard]] LinkPower with_power(LinkPower known, const std::optional<std::string>& power,
                                   const std::string& power_where,
                                   const std::optional<std::string>& idle,
                                   const std::string& idle_where);

/// The type of that name. Throws InputError with a did-you-mean.
[[nodiscard]] const DeviceModel& find_device_type(std::span<const DeviceModel> known,
                                                  std::string_view name, std::string_view where);

/// "measured", "data sheet" or "guessed".
[[nodiscard]] Label parse_label(const std::string& text, const std::string& where);

}  // namespace parsim::topologies
