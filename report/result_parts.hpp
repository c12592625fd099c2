// Parts of a strategy's row in JSON (report/result_rows.hpp).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiment/run.hpp"
#include "report/result_text.hpp"

namespace parsim::report {

/// What was planned: the first fields of results about one plan.
struct SubjectRow {
  std::string strategy{}, network{}, cluster{};
  std::int64_t batch = 0;
};
void fields(auto& visit, json::Of<SubjectRow> auto& row) {
  visit("strategy", row.strategy);
  visit("network", row.network);
  visit("cluster", row.cluster);
  visit("batch", row.batch, from_one);
}
[[nodiscard]] inline SubjectRow subject_of(const experiment::Experiment& experiment,
                                           const Plan& plan) {
  return {plan.strategy, experiment.network.name, experiment.cluster.name, plan.batch};
}

struct SpreadRow {
  Spread spread{};
};
void fields(auto& visit, json::Of<SpreadRow> auto& row) {
  visit("median_s", row.spread.median);
  visit("lower_quartile_s", row.spread.low);
  visit("upper_quartile_s", row.spread.high);
  visit("samples", row.spread.samples, from_one);
}

struct GoodputRow {
  experiment::Goodput goodput{};
  double samples_per_second = 0;
};
void fields(auto& visit, json::Of<GoodputRow> auto& row) {
  const experiment::Goodput& goodput = row.goodput;
  visit("share", goodput.share,
        "of the time that trains; closed form of Daly 2006, eq. 20, not simulated");
  visit("throughput_samples_per_s", row.samples_per_second, "with failures");
  visit("mtbf_s", goodput.rates.mtbf, "mean time between failures of the whole job");
  visit("checkpoint_write_s", goodput.rates.write);
  visit("restart_s", goodput.rates.restart);
  visit("young_interval_s", goodput.young, "between checkpoints, Young 1974");
  visit("daly_interval_s", goodput.daly, "between checkpoints, Daly 2006, eq. 37");
  visit("steps_between_checkpoints", goodput.steps_between,
        Rule(from_one, "Daly's interval in whole steps"));
  visit("checkpoint_interval_s", goodput.interval, "of that many steps");
}
/// Nothing where failures were not asked for.
[[nodiscard]] inline std::optional<GoodputRow> goodput_row(const experiment::RunResult& result) {
  if (!result.goodput) return std::nullopt;
  return GoodputRow{*result.goodput, result.samples_per_second * result.goodput->share};
}

struct MemoryRow {
  lowering::MemoryUse memory{};
};
void fields(auto& visit, json::Of<MemoryRow> auto& row) {
  visit("weights_bytes", row.memory.weights.value, any_count);
  visit("gradients_bytes", row.memory.gradients.value, any_count);
  visit("optimizer_state_bytes", row.memory.optimizer_state.value, any_count);
  visit("activations_bytes", row.memory.activations.value, any_count);
  visit("communication_bytes", row.memory.communication.value, any_count);
}

struct DeviceRow {
  experiment::DeviceResult device{};
  std::int64_t count = 0;
};
void fields(auto& visit, json::Of<DeviceRow> auto& row) {
  const experiment::DeviceResult& device = row.device;
  visit("name", device.name);
  visit("model", device.model);
  visit("compute_s", device.use.compute);
  visit("exposed_communication_s", device.use.exposed_communication);
  visit("idle_s", device.use.idle, any_number);
  visit("peak_memory_bytes", device.peak().value, any_count);
  visit("memory_bytes", device.capacity.value, Rule(any_count, "capacity"));
  visit("lacking_memory_bytes", device.lacking().value, any_count);
  visit("headroom_bytes", device.headroom.of(device.capacity).value, Rule(any_count, "kept free"));
  visit("verdict", device.verdict());
  visit("memory", MemoryRow{device.memory});
  visit.optional("count", row.count, Rule(from_one, "equal devices, with --devices classes"));
}

/// What an interval is made of, as factors of the step.
struct QuantilesRow {
  experiment::StepInterval interval{};
};
void fields(auto& visit, json::Of<QuantilesRow> auto& row) {
  visit("0.05", row.interval.low);
  visit("0.95", row.interval.high);
}
struct AccuracyRow {
  std::string widest;
  experiment::StepInterval interval{};
  std::string source;
};
void fields(auto& visit, json::Of<AccuracyRow> auto& row) {
  visit("class", row.widest, "of prices that makes the interval widest");
  visit("quantiles", QuantilesRow{row.interval}, "factors of step_time_s");
  visit("source", row.source);
}

struct BottleneckRow {
  std::optional<experiment::LinkUse> use{};
};
void fields(auto& visit, json::Of<BottleneckRow> auto& row) {
  const auto name = [&](auto member) {
    return row.use ? std::optional<std::string>((*row.use).*member) : std::nullopt;
  };
  visit("link", name(&experiment::LinkUse::link));
  visit("from", name(&experiment::LinkUse::from));
  visit("to", name(&experiment::LinkUse::to));
  visit("utilisation", row.use ? row.use->utilisation : 0.0);
}

struct CostRow {
  std::array<double, origins.size()> shares{};
  std::string summary, accuracy;
};
void fields(auto& visit, json::Of<CostRow> auto& row) {
  for (const Origin origin : origins) {
    visit(to_text(origin), row.shares[static_cast<std::size_t>(origin)],
          origin == Origin::published ? Rule("near shapes that others measured on this card")
                                      : Rule());
  }
  visit("summary", row.summary);
  visit("accuracy", row.accuracy);
}

struct CommunicationRow {
  double measured = 0, library = 0, links = 0;
};
void fields(auto& visit, json::Of<CommunicationRow> auto& row) {
  visit("measured", row.measured);
  visit("library", row.library, "NCCL's model");
  visit("links", row.links, "latency and bandwidth only");
}

struct BoundsRow {
  experiment::Bounds bounds{};
};
void fields(auto& visit, json::Of<BoundsRow> auto& row) {
  visit("critical_path_s", row.bounds.critical_path);
  visit("busiest_device_s", row.bounds.busiest_device);
  visit("busiest_link_s", row.bounds.busiest_link);
}

/// A row with --hw: the step as measured.
struct MeasuredRow {
  std::optional<Spread> step;
  std::optional<double> error;
  std::string note;
  std::optional<std::int64_t> peak_bytes;
};
void fields(auto& visit, json::Of<MeasuredRow> auto& row) {
  const auto part = [&](auto member) {
    return row.step ? std::optional((*row.step).*member) : std::nullopt;
  };
  visit("measured_step_time_s", part(&Spread::median));
  visit("measured_low_s", part(&Spread::low));
  visit("measured_high_s", part(&Spread::high));
  visit("measured_samples", part(&Spread::samples));
  visit("measured_error", row.error, Rule(any_number, "(predicted - measured) / measured"));
  visit("measured_note", row.note);
  visit("measured_peak_memory_bytes", row.peak_bytes,
        "tensors and workspaces of the step on the device that has most of them");
}

/// What measured, with --hw; nothing known where `reason` says why.
struct HardwareRow {
  std::optional<std::string> backend{}, name{};
  TextMap versions{};
  std::optional<std::string> clocks{}, reason{};
};
void fields(auto& visit, json::Of<HardwareRow> auto& row) {
  visit("backend", row.backend);
  visit("name", row.name);
  visit("versions", row.versions);
  visit("clocks", row.clocks);
  visit("reason", row.reason, "why nothing was measured");
}

}  // namespace parsim::report
