// Which layers of a network model parallelism cuts by filters, and how: independent of the devices
// and their shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/network.hpp"

namespace parsim::strategies::model {

/// A run of `units` · `scale` channels of which every device has a share; all runs of a `group` are
/// shared alike.
struct Run {
  std::size_t group = 0;
  std::int64_t scale = 1;  ///< channels for one unit: the inner extent of a flattened tensor
  friend bool operator==(const Run&, const Run&) = default;
};

enum class How : std::uint8_t {
  partitioned,   ///< P: every device computes its filters from the whole input
  partial_sums,  ///< R: every device sums over its input channels, the sums are all-reduced
  follows,       ///< every device works on the channels it has
  everywhere,  ///< every device computes all of it, because all have the input and need the output
  by_sample,   ///< cannot be cut by channel and is too dear to be computed everywhere
  first_device,  ///< after the last filter layer
};

/// How a layer is computed. `runs`: the channels of its output (partitioned, follows) or of its
/// input (partial_sums), in order; empty otherwise.
struct Role {
  How how = How::first_device;
  std::vector<Run> runs;
  friend bool operator==(const Role&, const Role&) = default;
};

/// Filters that are shared once for several layers: those of a partitioned layer.
struct Group {
  LayerId layer;
  std::int64_t units = 0;
  std::vector<LayerId> members;  ///< layers that work on these shares alone, `layer` first
};

struct Roles {
  std::vector<Role> layers;  ///< by LayerId
  std::vector<Group> groups;
};

/// Convolutions alternate between partitioned and partial sums (Moreno-Alvarez et al. 2021, figure
/// 5, and the code released with it): a convolution whose input is whole on every device is cut by
/// filters, one whose input is cut by channels sums over those it has. Along a chain that is the
/// paper's rule of even and odd; where branches meet, and in networks without convolutions, whose
/// dense layers take their place, it is a reconstruction.
[[nodiscard]] Roles decide_roles(const Network& network);

}  // namespace parsim::strategies::model
