// The NVLinks of GPUs by data sheet.
#pragma once

#include <optional>

#include "core/cluster.hpp"
#include "core/link_kind.hpp"

namespace parsim::topologies {

/// The NVLinks of a GPU together.
struct CardLinks {
  LinkKind kind{};
  double gigabytes = 0;  ///< per second in each direction
};

/// Those of a module's board (SXM), or of the bridges that a card takes; nothing for a card without
/// NVLink.
[[nodiscard]] std::optional<CardLinks> card_links(const DeviceModel& model);

}  // namespace parsim::topologies
