// The matrix of `nvidia-smi topo -m` as it stands in the text, checked; nvidia_smi.cpp makes a
// cluster of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace parsim {

/// How two devices meet, nearest first; `nvlink` hides which way PCIe would take.
enum class SmiWay : std::uint8_t { pix, pxb, phb, node, sys, nvlink, self };

struct SmiCell {
  SmiWay way = SmiWay::self;
  std::int64_t nvlinks = 0;
};

struct SmiMatrix {
  std::vector<std::string> names;  ///< of columns: GPUs, then network cards
  std::vector<std::vector<SmiCell>> cells;
  std::vector<std::int64_t> lines;              ///< of rows
  std::vector<std::string> affinity;            ///< CPUs of a row, "" if not told
  std::map<std::string, std::string> products;  ///< "GPU0" -> "Tesla V100-SXM2-16GB"
};

/// "mlx5_0" is none.
[[nodiscard]] inline bool is_smi_gpu(std::string_view name) { return name.starts_with("GPU"); }

/// Reads lines of nvidia-smi -L, if there are any, and the matrix behind them. Throws InputError
/// with file and line for a row that is missing or too short, for a word that is no way, for two
/// devices that say different things of each other, and for a list of other GPUs than the matrix's.
[[nodiscard]] SmiMatrix parse_smi_matrix(std::string_view text, const std::string& file);

}  // namespace parsim
