// Measured collectives: tables of size and time, read from what nccl-tests print or from CSV, and
// what a run takes from them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/exec_dag.hpp"
#include "sim/size_table.hpp"

namespace parsim::sim {

struct CommShape;

/// Times of one kind of collective over so many ranks, alone on its machines.
struct CollectiveTable {
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::int32_t ranks = 0;
  /// By nccl-tests' size: the buffer of each rank; of all_gather and reduce_scatter the larger of
  /// its two, which holds all shares.
  SizeTable times;
  std::string source;         ///< file:line of its first row, for messages
  std::int32_t machines = 0;  ///< that the ranks were on; 0: not known
  friend bool operator==(const CollectiveTable&, const CollectiveTable&) = default;
};

/// What the user states about a table whose text may not contain it.
struct CollectiveHint {
  std::optional<CollectiveKind> kind{};
  std::optional<std::int32_t> ranks{};
};

/// Reads either of
///
///     what a program of nccl-tests prints   one table: the kind from its name (all_reduce_perf …)
///                                           anywhere in the text, else the hint's; ranks are its
///                                           lines "#  Rank …", else the hint's; machines
///                                           are the hosts in these lines
///     CSV with a head line                  collective, size_bytes, n_gpus (or nodes and
///                                           gpus_per_node; of the three any two tell the machines), time_us_outofplace or _inplace;
///                                           further columns are ignored; a table for each
///                                           collective, number of GPUs and nodes; the hint chooses
///
/// Sizes in bytes, times in microseconds; out of place where there is such a time. Rows of no bytes
/// (a rank's share of a small size rounds to none) are left out. Throws InputError with file:line,
/// what was found and what is accepted. Columns and sizes: nccl-tests, src/util.cu
/// (writeResultHeader) and *GetCollByteCount of each program.
[[nodiscard]] std::vector<CollectiveTable> read_collective_tables(std::string_view text,
                                                                  const std::string& file,
                                                                  const CollectiveHint& hint);

/// Tables of several files together. Throws InputError if two are of one kind and number of
/// ranks and machines.
void add_tables(std::vector<CollectiveTable>& all, std::vector<CollectiveTable> more);

/// Where ranks are.
struct RankPlaces {
  std::size_t ranks = 0, machines = 1;
  std::size_t fewest = 1;  ///< machines that have room for so many ranks
};
[[nodiscard]] RankPlaces places_of(const CommShape& shape);
/// Nullptr if there is none for the kind and so many ranks on so many machines; a table of unknown
/// machines counts where there is none of these, on as few machines as have room for its ranks.
[[nodiscard]] const CollectiveTable* find_table(std::span<const CollectiveTable> tables,
                                                CollectiveKind kind, const RankPlaces& where);

/// nccl-tests' size of a collective that carries `payload` as at Collective: an all_to_all counts
/// what travels, (ranks−1)/ranks of every buffer.
[[nodiscard]] Bytes table_size(CollectiveKind kind, std::size_t ranks, Bytes payload);

}  // namespace parsim::sim
