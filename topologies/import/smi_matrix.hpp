// The matrix of `nvidia-smi topo -m`, read and checked; nvidia_smi.cpp makes a cluster of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace parsim::topologies {

/// The path between two devices, nearest first; `nvlink` hides the PCIe path.
enum class SmiWay : std::uint8_t { pix, pxb, phb, node, sys, nvlink, self };

struct SmiCell {
  SmiWay way = SmiWay::self;
  std::int64_t nvlinks = 0;
};

struct SmiMatrix {
  std::vector<std::string> names;  ///< of columns: GPUs, then network cards
  std::vector<std::vector<SmiCell>> cells;
  std::vector<std::int64_t> lines;              ///< of rows
  std::vector<std::string> affinity;            ///< CPUs of a row, "" if the matrix has none
  std::map<std::string, std::string> products;  ///< "GPU0" -> "Tesla V100-SXM2-16GB"
};

/// True for "GPU0", false for a network card such as "mlx5_0".
[[nodiscard]] inline bool is_smi_gpu(std::string_view name) { return name.starts_with("GPU"); }

/// Reads the output of nvidia-smi -L, if there is any, and the matrix after it. Throws InputError
/// with file and line for a row that is missing, misplaced or too short, an unknown entry, a matrix
/// that is not symmetric, and a list of other GPUs than the matrix has.
[[nodiscard]] SmiMatrix parse_smi_matrix(std::string_view text, const std::string& file);

}  // namespace parsim::topologies
