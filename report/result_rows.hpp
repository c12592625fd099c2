// A strategy's row in JSON: its list of fields (core/json_fields.hpp) writes it and makes its
// schema. Results are only written, never read back.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiment/run.hpp"
#include "report/degrees.hpp"
#include "report/device_classes.hpp"
#include "report/result_parts.hpp"
#include "report/result_text.hpp"
#include "report/runs.hpp"
#include "report/two_jobs.hpp"

namespace parsim::report {

/// A strategy's row; without a plan most are null.
struct RunRow {
  experiment::RunResult result{};
  AccuracyRow accuracy{};
  std::vector<CalibratedRow> calibrated_by{};
  std::vector<StageRow> stages{};
  std::vector<std::string> warnings{};
  std::int64_t seed = 0;
  InputsText inputs{};
};
void fields(auto& visit, json::Of<RunRow> auto& row) {
  const experiment::RunResult& result = row.result;
  const bool made = result.error.empty();
  const auto known = [&]<class T>(T value) {
    return made ? std::optional<T>(std::move(value)) : std::nullopt;
  };
  const auto perhaps = [&]<class T>(const std::optional<T>& value) {
    return made ? value : std::nullopt;
  };
  const Seconds step = result.step_time;
  visit("strategy", result.strategy);
  visit("step_time_s", known(step), "null if there is no plan; computed as if memory sufficed");
  visit("interval_s", known(std::array{step * result.interval.low, step * result.interval.high}),
        "90 % of measured steps are expected in it");
  visit("accuracy", known(row.accuracy));
  visit("probability_fastest", perhaps(result.probability_fastest),
        "of the plans that fit, in a comparison; equal plans have that of all of them");
  visit("lower_bound_s", perhaps(result.lower_bound),
        "no plan's step is shorter; null where kernels' times were measured, which have no bound");
  visit("gap", perhaps(result.gap()),
        "step_time_s over lower_bound_s, less 1; null if the plan does not fit");
  visit("throughput_samples_per_s", known(result.samples_per_second));
  visit("cost_per_million_samples", perhaps(result.cost_per_million_samples()),
        "in the currency of the cluster file; null where a price is not known");
  visit("energy_per_step_j",
        result.upkeep.energy ? known(result.upkeep.energy->value) : std::nullopt,
        "of the machines that compute; null where a GPU's power is not known");
  visit.optional(
      "links_energy_per_step_j",
      made && result.upkeep.links ? std::optional(result.upkeep.links->value) : std::nullopt,
      "of it, where a link of the cluster has a power");
  visit("energy_per_million_samples_j", perhaps(result.energy_per_million_samples()));
  visit("model_flops", known(result.flops.model.value),
        Rule("that the batch needs, forward once and backward twice, of products, convolutions and "
             "attention with all keys"));
  visit("mfu", known(result.flops.mfu(step)),
        "model_flops over what the devices that compute could do in the step at their peak");
  visit("hfu", known(result.flops.hfu(step)), "the same with what the plan recomputes");
  visit("bytes_moved", known(result.moved.value), any_count);
  visit("messages", known(result.messages), any_count);
  visit("operations", known(result.operations), any_count);
  visit("simulated_operations", known(result.simulated_operations),
        Rule(any_count, "the others are equal to one of them and happen at the same times"));
  visit("engine", perhaps(result.engine), Rule("that simulated it", "auto"));
  std::vector<DeviceRow> devices;
  if (result.device_rows == experiment::DeviceRows::classes) {
    for (const DeviceClass& one : device_classes(result.devices))
      devices.push_back({one.first, one.count});
  } else {
    for (const experiment::DeviceResult& device : result.devices) devices.push_back({device});
  }
  visit("devices", devices);
  visit("fits", made && result.fits(), "verdict is not over");
  visit("verdict", known(result.verdict()), "tight: above 90 % of what headroom leaves");
  const experiment::DeviceResult* fullest = made ? result.fullest() : nullptr;
  visit("headroom_bytes",
        fullest == nullptr ? std::nullopt
                           : std::optional(fullest->headroom.of(fullest->capacity).value),
        Rule(any_count, "kept free on the fullest device"));
  visit("bottleneck", known(BottleneckRow{result.bottleneck}));
  visit("degrees", known(DegreesRow{result.degrees}), degrees_meaning);
  visit("stages", row.stages);
  visit("plan_id", known(result.plan_id), "equal for equal plans");
  visit("same_plan_as", result.same_plan_as.empty() ? std::nullopt : known(result.same_plan_as),
        "the first row with this plan, if there is one");
  visit("trainers", perhaps(result.trainers),
        "whose launch files carry the plan, as plan --launch names them; null where not asked");
  visit("search_time_s", perhaps(result.search_time), wall_clock_meaning);
  visit("simulation_time_s", perhaps(result.simulation_time), wall_clock_meaning);
  visit("cost_sources",
        known(CostRow{result.cost_shares, result.cost_summary, result.cost_accuracy}));
  std::optional<CommunicationRow> communication;
  if (made && result.communication) {
    communication = {result.communication->measured, result.communication->library,
                     result.communication->links};
  }
  visit("communication_sources", communication,
        "of the times of transfers and collectives alone; null without --collectives measured, "
        "--algorithm and --protocol");
  visit("bounds", known(BoundsRow{result.bounds}));
  std::optional<SpreadRow> jittered;
  if (result.jittered) jittered = {*result.jittered};
  visit.optional("jittered", jittered, "with --jitter");
  visit.optional("goodput", goodput_row(result), "with --checkpoint-write");
  std::optional<TwoJobsRow> two_jobs;
  if (result.two_jobs) two_jobs = {*result.two_jobs};
  visit.optional("two_jobs", two_jobs, "with --beside");
  visit("notes", made ? result.notes : std::vector<std::string>{});
  visit("error", made ? std::nullopt : std::optional(result.error), "why there is no plan");
  visit("calibrated_by", row.calibrated_by, "rows of --calibrate-with that apply to the run");
  visit("warnings", row.warnings);
  visit("seed", row.seed, any_count);
  visit("version", version());
  visit("inputs", row.inputs);
}

}  // namespace parsim::report
