// The machines of published measurements: from the alias table, else built from the columns of the
// row.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/cluster.hpp"
#include "core/network.hpp"
#include "validation/validation.hpp"

namespace parsim::validation {

/// parsim's name of the row's network or GPU: column `network`, an alias, or a name of parsim in
/// another spelling. Throws InputError naming the row for an unknown one.
[[nodiscard]] std::string network_of(const Claim& claim);
[[nodiscard]] std::string device_of(const Claim& claim);
/// The network of that name; a built-in language model with samples of column `seq_len` tokens.
/// Throws InputError naming the row if column `layers` gives another number of blocks.
[[nodiscard]] Network load_network_of(const Claim& claim);
/// Dimensions that load_network_of gives the network: seq_length, or none.
[[nodiscard]] std::map<std::string, std::int64_t> dims_of(const Claim& claim);

/// The value of --cluster for the row: column `cluster`, a name, or a generator call made from gpu,
/// nodes, gpus_per_node and interconnect. Of a name's machines the row may take another number.
[[nodiscard]] std::string cluster_call(const Claim& claim);
/// The cluster with the row's GPUs only: the first ones, or as many per machine as column
/// `placement` gives ("1+1+4+3"). With a layout file, which chooses devices, all of a named
/// cluster.
///
/// Links carry what systems other than the row's machine say of their kinds; in a `bare` row, their
/// data sheet's rate.
[[nodiscard]] Cluster cluster_of(const Claim& claim);
/// Column `nodes`; without it the parts of `placement`, or n_gpus / gpus_per_node, else 1.
[[nodiscard]] std::int64_t nodes_of(const Claim& claim);
/// Column `interconnect`; without it the description of one machine that names links ("8 x H100,
/// NVSwitch"), else "".
[[nodiscard]] std::string interconnect_of(const Claim& claim);
/// The kind of links between the machines of a row, if its cluster or its column `interconnect`
/// names one.
[[nodiscard]] std::optional<LinkKind> kind_between_machines_of(const Claim& claim,
                                                               const Cluster& cluster);
/// Machines that a row's GPUs are in.
[[nodiscard]] std::int64_t machines_of(const Claim& claim);

/// The system of a row: its machine, card and framework, as far as it names them. What is left out
/// when a row's interval is judged.
[[nodiscard]] std::string system_of(const Claim& claim);

/// Location of a column for errors: set:line:column.
[[nodiscard]] std::string location_of(const Claim& claim, std::string_view key);
/// A column, or "".
[[nodiscard]] std::string column(const Claim& claim, std::string_view name);
/// True if what the column affirms (affirmed_words.hpp) contains the text, in capitals or not.
[[nodiscard]] bool column_contains(const Claim& claim, std::string_view name,
                                   std::string_view word);
/// Whether column framework names Megatron-LM or a trainer by Megatron-core: NeMo 1 and 2, but not
/// NeMo AutoModel, which is PyTorch's FSDP.
[[nodiscard]] bool trained_by_megatron(const Claim& claim);
/// The same of NeMo alone.
[[nodiscard]] bool trained_by_nemo(const Claim& claim);
/// A column as a whole number of at least 1, or `otherwise` if it is empty. Throws InputError.
[[nodiscard]] std::int64_t count_column(const Claim& claim, std::string_view name,
                                        std::int64_t otherwise);

}  // namespace parsim::validation
