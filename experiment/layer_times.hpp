// Measured times of whole layers or blocks, as profilers of training libraries print them; what
// kernels then take is in layer_costs.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cost_model.hpp"

namespace parsim::experiment {

/// A part of a network on one device of a tensor-parallel group, with what the group exchanges.
struct LayerTime {
  enum class What : std::uint8_t { before, block, after, around };

  std::string device;  ///< a device type
  Precision precision = Precision::fp32;
  std::int64_t samples = 1;  ///< of a micro-batch
  std::size_t group = 1;     ///< devices that share the layers
  What what = What::block;   ///< one block, or all that is before, after or around the blocks
  Seconds forward{}, backward{};
};

/// True for a file of layer times with this content: CSV, or JSON that is no profile of kernels.
[[nodiscard]] bool is_layer_times(const std::string& path, std::string_view text);

/// The times in such a file: a CSV table (read_layer_times), or another planner's profile
/// (experiment/planner_times.hpp) of the cluster's only type of GPU in `precision`.
[[nodiscard]] std::vector<LayerTime> layer_times_of(const std::string& text,
                                                    const std::string& file, const Network& network,
                                                    const Cluster& cluster, Precision precision);

/// A table with the columns device, precision, samples, tp, layers (before, block or after),
/// forward_s and backward_s; others are ignored. Throws InputError with file:line.
[[nodiscard]] std::vector<LayerTime> read_layer_times(std::string_view text,
                                                      const std::string& file);

/// The first `size` GPUs of the type in one machine; nothing where no machine has as many.
[[nodiscard]] std::optional<std::vector<DeviceId>> group_in(const Cluster& cluster,
                                                            const std::string& type,
                                                            std::size_t size);

/// A line for each type of GPU of the cluster without a time in this precision, or with times of
/// larger groups than a machine has, and for a file of Metis whose name says another GPU.
[[nodiscard]] std::vector<std::string> layer_times_warnings(const std::vector<LayerTime>& times,
                                                            const std::string& file,
                                                            const Cluster& cluster,
                                                            Precision precision);

}  // namespace parsim::experiment
