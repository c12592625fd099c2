// Tiny index types. An id is the position in the vector that owns the thing: LayerId in
// Network::layers, DeviceId in Cluster::devices, OpId in ExecDag, and so on.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace parsim {

/// Index of a `Tag`. Default-constructed it names nothing (`valid()` is false).
template <class Tag>
struct Id {
  std::int32_t value = -1;

  constexpr Id() = default;
  constexpr explicit Id(std::int32_t v) : value(v) {}
  constexpr explicit Id(std::size_t v) : value(static_cast<std::int32_t>(v)) {}

  [[nodiscard]] constexpr bool valid() const { return value >= 0; }
  /// Position for indexing a vector. The id must be valid.
  [[nodiscard]] constexpr std::size_t index() const { return static_cast<std::size_t>(value); }
  friend constexpr auto operator<=>(const Id&, const Id&) = default;
};

using LayerId = Id<struct LayerTag>;
using ParameterId = Id<struct ParameterTag>;
using DeviceId = Id<struct DeviceTag>;
using NodeId = Id<struct NodeTag>;
using SwitchId = Id<struct SwitchTag>;
using LinkId = Id<struct LinkTag>;
using OpId = Id<struct OpTag>;
using TensorId = Id<struct TensorTag>;
using RegionId = Id<struct RegionTag>;
using WorkId = Id<struct WorkTag>;
using GroupId = Id<struct GroupTag>;

}  // namespace parsim

template <class Tag>
struct std::hash<parsim::Id<Tag>> {
  std::size_t operator()(parsim::Id<Tag> id) const noexcept {
    return std::hash<std::int32_t>{}(id.value);
  }
};
