// Hypergraphs for other partitioners (PaToH, hMETIS, KaHyPar, Mt-KaHyPar), and their partitions
// back.
#pragma once

#include <string>
#include <string_view>

#include "strategies/hypergraph/search.hpp"

namespace parsim::strategies::hypergraph {

/// What another program partitions: model F of the whole network, pipelined over `micro_batches` of
/// the input, or their default; with one micro-batch model U, which also cuts samples. Work is
/// counted in multiply-accumulates. Depends on network, batch, micro-batches and number of devices
/// only, and not on what other strategies plan.
[[nodiscard]] Recipe exchanged_recipe(const StrategyInput& input);
[[nodiscard]] Model exchanged_model(const StrategyInput& input);

/// hmetis: "nets vertices 11", one line for each net (its cost, then its pins), one for each
/// vertex's weight; vertices count from 1. patoh: "1 vertices nets pins 3", the nets, all weights
/// in a line. Lines that start with % are comments.
enum class HypergraphFormat : std::uint8_t { hmetis, patoh };

/// A file of the graph. Nets of equal pins are one. Costs are divided by what all have in common,
/// and so are weights, because some programs count in 32 bits; comments say by how much, and what
/// share of the weight each part should have.
/// shares   targets of the parts, relative
[[nodiscard]] std::string hypergraph_text(const Hypergraph& graph, HypergraphFormat format,
                                          const std::vector<double>& shares,
                                          const std::vector<std::string>& comments);
/// The file of exchanged_model(); the first comments say what it is of.
[[nodiscard]] std::string exchanged_text(const StrategyInput& input, HypergraphFormat format);

/// The part of every vertex, from 0: numbers between blanks, as all these programs write. Throws
/// InputError with file:line for anything but a part below `parts`, and for another number of
/// entries than `vertices`.
[[nodiscard]] Parts read_partition(std::string_view text, const std::string& file,
                                   std::int32_t vertices, std::int32_t parts);

/// The plan of a partition of exchanged_model(): part p is on device p.
/// text, file   as in read_partition
[[nodiscard]] Plan plan_of_partition(const StrategyInput& input, std::string_view text,
                                     const std::string& file);

}  // namespace parsim::strategies::hypergraph
