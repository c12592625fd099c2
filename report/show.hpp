// What `show` prints in JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/network.hpp"

namespace parsim::report {

/// A layer of a network as `show` has it.
struct LayerRow {
  std::string name{}, kind{}, output{};  ///< output: "64x112x112", of a sample
  std::int64_t parameters = 0;           ///< tied ones with each layer that has them
  double forward_flops = 0;              ///< per sample
};
/// A line for each of the first layers that have parameters of an earlier one (tied embeddings).
[[nodiscard]] std::vector<std::string> shared_parameters(const Network& network);

/// By LayerId.
[[nodiscard]] std::vector<LayerRow> layer_rows(const Network& network);

/// The same with one row for each module: layers whose names have the same first `depth` parts,
/// "block3.mlp" of "block3.mlp.up" and "/layer1/layer1.0" of an ONNX file's
/// "/layer1/layer1.0/conv1", where the first of them stands. Output: of the module's last layer. A
/// module of one layer is that layer, else its kind is "5 layers".
[[nodiscard]] std::vector<LayerRow> module_rows(const Network& network, std::size_t depth);

/// With these rows.
[[nodiscard]] std::string network_json(const Network& network, std::vector<LayerRow> rows);
/// With a row for each layer.
[[nodiscard]] std::string network_json(const Network& network);
/// `bisection`: from the first half of the GPUs to the second; nothing where there are no two.
[[nodiscard]] std::string cluster_json(const Cluster& cluster,
                                       std::optional<BytesPerSecond> bisection);
[[nodiscard]] std::string network_schema();
[[nodiscard]] std::string cluster_report_schema();

}  // namespace parsim::report
