// A RunResult as bytes, from the process that simulates to the one that reports. Packed is what
// core/packed.hpp says.
#pragma once

#include <tuple>

#include "core/packed.hpp"
#include "experiment/run.hpp"

namespace parsim::strategies {

auto packed_parts(PackedAs<StageSummary> auto& value) {
  auto& [layers, blocks, devices, tp, dp, cp, micro_batch, sequence_parallel] = value;
  return std::tie(layers, blocks, devices, tp, dp, cp, micro_batch, sequence_parallel);
}

}  // namespace parsim::strategies

namespace parsim::sim {

auto packed_parts(PackedAs<CommunicationSources> auto& value) {
  auto& [measured, library, links, lacking, assumed, collectives, refused, flag, reason, accepted] =
      value;
  return std::tie(measured, library, links, lacking, assumed, collectives, refused, flag, reason,
                  accepted);
}

}  // namespace parsim::sim

namespace parsim::experiment {

auto packed_parts(PackedAs<DeviceResult> auto& value) {
  auto& [name, model, kind, use, memory, capacity, headroom] = value;
  return std::tie(name, model, kind, use, memory, capacity, headroom);
}

auto packed_parts(PackedAs<LinkUse> auto& value) {
  auto& [link, from, to, utilisation] = value;
  return std::tie(link, from, to, utilisation);
}

auto packed_parts(PackedAs<Choice> auto& value) {
  auto& [name, choice] = value;
  return std::tie(name, choice);
}

auto packed_parts(PackedAs<SharingJob> auto& value) {
  auto& [network, strategy, devices, fits, alone, together, steps] = value;
  return std::tie(network, strategy, devices, fits, alone, together, steps);
}

auto packed_parts(PackedAs<TwoJobs> auto& value) {
  auto& [first, second] = value;
  return std::tie(first, second);
}

auto packed_parts(PackedAs<RunResult> auto& value) {
  auto& [strategy, error, step_time, samples_per_second, read_by_host, flops, upkeep, moved,
         messages, operations, simulated_operations, engine, devices, device_rows, bottleneck,
         search_time, simulation_time, cost_shares, cost_summary, cost_accuracy, communication,
         bounds, parts, by_model, interval, probability_fastest, lower_bound, checks, notes,
         micro_batches, degrees, stages, choices, trainers, plan_id, same_plan_as, goodput,
         two_jobs, jittered, measured, measured_note, measured_bytes] = value;
  return std::tie(strategy, error, step_time, samples_per_second, read_by_host, flops, upkeep,
                  moved, messages, operations, simulated_operations, engine, devices, device_rows,
                  bottleneck, search_time, simulation_time, cost_shares, cost_summary,
                  cost_accuracy, communication, bounds, parts, by_model, interval,
                  probability_fastest, lower_bound, checks, notes, micro_batches, degrees, stages,
                  choices, trainers, plan_id, same_plan_as, goodput, two_jobs, jittered, measured,
                  measured_note, measured_bytes);
}

}  // namespace parsim::experiment
