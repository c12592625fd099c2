// Degrees and stages of a plan in reports.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/json_schema.hpp"
#include "core/network.hpp"
#include "report/document.hpp"
#include "strategies/degrees.hpp"

namespace parsim::report {

inline constexpr json::Rule degrees_meaning{
    "of parallelism; null where layers or stages of the plan differ"};
struct DegreesRow {
  strategies::Degrees degrees{};
};
void fields(auto& visit, json::Of<DegreesRow> auto& row) {
  constexpr json::Limits count{1};
  const strategies::Degrees& degrees = row.degrees;
  visit("tp", degrees.tp, count);
  visit("pp", degrees.pp, count);
  visit("dp", degrees.dp, count);
  visit("cp", degrees.cp, count);
  visit("ep", degrees.ep, count);
  visit("etp", degrees.etp,
        json::Rule(count, "devices that split each expert; null without experts"));
  visit("vp", degrees.vp, count);
  visit("micro_batches", degrees.micro_batches, count);
  visit("micro_batch", degrees.micro_batch, json::Rule(count, "samples of a replica"));
  visit("zero", degrees.zero, json::Limits{0, 3});
  const std::optional<std::string> group = strategies::zero_group_text(degrees);
  visit("zero_group", group,
        "replicas that share states, as --zero-group; null: all of them, or none");
  visit("recompute", degrees.recompute);
  visit("sequence_parallel", degrees.sequence_parallel);
  visit("tp_overlap", degrees.tensor_overlap,
        "tensor-parallel groups gather and scatter tokens while products work on them in chunks");
  visit("schedule", degrees.schedule, "null without a pipeline");
  const std::optional<std::int64_t> bucket =
      degrees.bucket ? std::optional(degrees.bucket->value) : std::nullopt;
  visit("bucket_bytes", bucket,
        json::Rule(json::Limits{0, std::numeric_limits<std::int64_t>::max()},
                   "of gradients, as --bucket; null: the default, or no one size"));
}

struct StageRow {
  std::optional<std::string> blocks{};
  std::string layers{};
  std::vector<std::string> devices{};
  std::optional<std::int64_t> tp{}, cp{}, dp{};
};
void fields(auto& visit, json::Of<StageRow> auto& row) {
  constexpr json::Limits count{1};
  visit("blocks", row.blocks, "as 0-3; null for parts of blocks");
  visit("layers", row.layers, "the first and last of consecutive layers");
  visit("devices", row.devices);
  visit("tp", row.tp, count);
  visit("cp", row.cp, count);
  visit("dp", row.dp, count);
}
[[nodiscard]] std::vector<StageRow> stage_rows(const std::vector<strategies::StageSummary>& stages,
                                               const Network& network, const Cluster& cluster);

/// "0-3, 8": the blocks of a stage, or "" if it has parts of blocks.
[[nodiscard]] std::string blocks_text(const strategies::StageSummary& stage);
/// "conv1 - pool2, fc8": names of the first and last of consecutive layers.
[[nodiscard]] std::string layer_ranges(const Network& network, const std::vector<LayerId>& layers);

/// Of the plan: a row for each stage whose degrees are known, else for consecutive layers that are
/// cut alike.
[[nodiscard]] Table stage_table(const Network& network, const Cluster& cluster, const Plan& plan);

}  // namespace parsim::report
