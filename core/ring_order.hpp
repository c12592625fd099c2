// In which order rings pass machines. Private to core/rings.cpp.
#pragma once

#include <cstddef>
#include <vector>

#include "core/routes.hpp"

namespace parsim {

/// Whether two hops of a ring cross the same link between machines in the same direction.
[[nodiscard]] bool crosses_twice(const Cluster& cluster, const Ring& ring);

/// Bytes/s of all rings at once: the sum over rings of that of the slowest link, of which each of
/// the k hops that cross it has a k-th.
[[nodiscard]] double rate_of(const Cluster& cluster, const std::vector<Ring>& rings);

/// By device, when a walk along the links meets it, counted from 1: depth first from `start`, of
/// each device or switch the links in id order; devices do not forward. 0: never.
///
/// In a torus the walk is a snake, which leaves every row at its end for the next one; in a
/// dragonfly it goes through one group after the other.
[[nodiscard]] std::vector<std::size_t> met_along_links(const Cluster& cluster, DeviceId start);

}  // namespace parsim
