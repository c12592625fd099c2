// How a layer may be split, as in Jia et al. 2018, section 4: one degree per dimension, equal parts
// (or, beyond the paper, parts in proportion to the devices' speeds), part k on device k.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/network.hpp"
#include "core/plan.hpp"
#include "strategies/strategies.hpp"

namespace parsim::strategies::layer_wise {

/// The dimensions of the paper's table 1, slowest first: parts are numbered row-major in this
/// order.
inline constexpr std::array<Dim, 5> searched_dims{Dim::sample, Dim::channel, Dim::depth,
                                                  Dim::height, Dim::width};
using Degrees = std::array<std::int64_t, searched_dims.size()>;

/// Parts along each of searched_dims.
struct Configuration {
  Degrees degrees{1, 1, 1, 1, 1};

  [[nodiscard]] std::int64_t parts() const {
    std::int64_t product = 1;
    for (const std::int64_t degree : degrees) product *= degree;
    return product;
  }
  friend bool operator==(const Configuration&, const Configuration&) = default;
};

/// Every configuration with degrees of at most `most` whose product divides `devices` (or, by the
/// other rule, is at most `devices`); the larger degree of the earlier dimension first, so that
/// ties in a search go to the split by sample. For the four dimensions of an image 15 at 4 devices,
/// 70 at 16, 210 at 64 (19, 204 and 1824).
[[nodiscard]] std::vector<Configuration> configurations(const Degrees& most, std::int64_t devices,
                                                        DegreeRule rule = DegreeRule::dividing);

/// Into how many parts the layer could be cut along each dimension: its extent, or 1 where it must
/// not be cut. A flattened tensor is cut between channels.
[[nodiscard]] Degrees most_parts(const Network& network, LayerId layer, std::int64_t batch);

/// The cuts of a configuration of a node whose first layer is `layer`, those of degree 1 left out.
/// `speeds`: by part, how much it should get; an index of a dimension gets as much as its parts
/// together. Equal speeds give equal parts.
[[nodiscard]] std::vector<Cut> cuts(const Network& network, LayerId layer,
                                    const Configuration& configuration, std::int64_t batch,
                                    std::span<const double> speeds);

/// By part its box of the output; empty where a part got nothing.
[[nodiscard]] std::vector<Region> boxes(const Network& network, LayerId layer,
                                        const Configuration& configuration, std::int64_t batch,
                                        std::span<const double> speeds);

}  // namespace parsim::strategies::layer_wise
