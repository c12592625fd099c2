// Numbers with units as SimGrid's platforms write them.
#pragma once

#include <string_view>

#include "core/units.hpp"
#include "topologies/import/xml.hpp"

namespace parsim::topologies {

/// Attribute "speed" of a host, one core. All throw InputError with file, line and the units that
/// are accepted.
[[nodiscard]] FlopsPerSecond platform_speed(const XmlTag& tag);
[[nodiscard]] BytesPerSecond platform_rate(const XmlTag& tag, std::string_view attribute);
/// Zero if the attribute is absent.
[[nodiscard]] Seconds platform_latency(const XmlTag& tag, std::string_view attribute);

}  // namespace parsim::topologies
