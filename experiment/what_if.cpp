#include "experiment/what_if.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/errors.hpp"
#include "experiment/comparison.hpp"
#include "experiment/progress.hpp"
#include "experiment/purchases.hpp"
#include "strategies/blocks.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {

namespace {

constexpr double half = 0.5;
constexpr std::size_t most_kinds = 4;  // of GPUs or machines that are asked about

struct Question {
  WhatIf row;
  Cluster cluster;
};

bool computes(const RunResult& result, const std::string& model) {
  return std::any_of(result.devices.begin(), result.devices.end(), [&](const DeviceResult& device) {
    return device.model == model && device.use.compute > Seconds{};
  });
}

struct TypeOfGpu {
  std::int32_t model = -1;
  std::size_t count = 0;
};

/// The types of GPUs but the one with the highest peak in all, which does most of the work; none if
/// they are many.
std::vector<TypeOfGpu> minor_types(const Cluster& cluster, Precision precision) {
  std::vector<TypeOfGpu> types;
  for (const DeviceId gpu : devices_of(cluster, DeviceKind::gpu)) {
    const std::int32_t model = cluster[gpu].model;
    const auto known = std::find_if(types.begin(), types.end(),
                                    [&](const TypeOfGpu& type) { return type.model == model; });
    if (known == types.end()) {
      types.push_back({model, 1});
    } else {
      ++known->count;
    }
  }
  if (types.empty() || types.size() > most_kinds) return {};
  const auto peak = [&](const TypeOfGpu& type) {
    return static_cast<double>(type.count) *
           cluster.models[static_cast<std::size_t>(type.model)].peak_at(precision);
  };
  types.erase(
      std::max_element(types.begin(), types.end(),
                       [&](const TypeOfGpu& a, const TypeOfGpu& b) { return peak(a) < peak(b); }));
  return types;
}

std::vector<Question> questions(const Cluster& cluster, const RunResult& best,
                                Precision precision) {
  std::vector<Question> asked;
  Cluster halved = cluster;
  for (const DeviceId gpu : devices_of(cluster, DeviceKind::gpu)) {
    Bytes& memory = halved.devices[gpu.index()].memory;
    memory.value = static_cast<std::int64_t>(half * static_cast<double>(memory.value));
  }
  asked.push_back({{WhatIf::Kind::half_memory, "half the memory in every GPU"}, std::move(halved)});
  for (const TypeOfGpu& type : minor_types(cluster, precision)) {
    std::vector<bool> keep;
    for (const Device& device : cluster.devices) keep.push_back(device.model != type.model);
    const std::string& name = cluster.models[static_cast<std::size_t>(type.model)].name;
    asked.push_back({{WhatIf::Kind::without, fmt::format("without the {} x {}", type.count, name),
                      std::nullopt, !computes(best, name)},
                     topologies::only_devices(cluster, keep)});
  }
  const std::vector<MachineGroup> groups = machine_groups(cluster);
  for (const MachineGroup& group : groups) {
    if (groups.size() > most_kinds) break;
    if (auto larger = topologies::with_one_more(cluster, group.nodes.back())) {
      asked.push_back({{WhatIf::Kind::one_more, fmt::format("one more machine of {}", group.text)},
                       *std::move(larger)});
    }
  }
  return asked;
}

struct MemoryTry {
  std::int32_t zero = 0;
  strategies::Recompute recompute = strategies::Recompute::none;
  friend bool operator==(const MemoryTry&, const MemoryTry&) = default;
};

/// Each saves more memory than the one before, and costs more time.
std::vector<MemoryTry> memory_tries(const Experiment& experiment, const RunResult& start) {
  using strategies::Recompute;
  const Recompute most = strategies::first_layers_of_blocks(experiment.network).empty()
                             ? Recompute::optimal
                             : Recompute::full;
  const MemoryTry first{start.degrees.zero.value_or(0),
                        start.degrees.recompute.value_or(Recompute::none)};
  const std::int32_t one = std::max(first.zero, 1);
  std::vector<MemoryTry> tries;
  for (const MemoryTry& next :
       {first, MemoryTry{one, first.recompute}, MemoryTry{one, most}, MemoryTry{3, most}}) {
    if (experiment.request.zero_stage && next.zero != first.zero) continue;
    if (experiment.request.recompute && next.recompute != first.recompute) continue;
    if (tries.empty() || tries.back() != next) tries.push_back(next);
  }
  return tries;
}

std::optional<RunResult> planned(Request request, const strategies::Strategy& strategy,
                                 const std::vector<MemoryTry>& tries) {
  for (const MemoryTry& options : tries) {
    request.zero_stage = options.zero;
    request.recompute = options.recompute;
    try {
      const Experiment experiment(request);
      RunResult result = run_plan(experiment, make_plan(experiment, strategy)).result;
      if (result.fits()) return result;
    } catch (const InputError&) {  // no such plan on that cluster
    }
  }
  return std::nullopt;
}

}  // namespace

WhatIfs what_if(const Experiment& experiment, const std::vector<RunResult>& results, bool quiet) {
  constexpr std::int64_t most_operations = 3'000'000;
  const Request& request = experiment.request;
  if (experiment.plan || experiment.layout || request.hardware || results.empty() ||
      !results.front().fits() || results.front().operations > most_operations) {
    return {};
  }
  const RunResult& best = results.front();
  const auto other = std::find_if(results.begin(), results.end(), [](const RunResult& result) {
    return result.fits() && result.strategy != "best";
  });
  const RunResult& from = other == results.end() ? best : *other;
  const strategies::Strategy& strategy = named_strategy(request, from.strategy);
  if (strategy.callback) return {};  // the caller's own may know this cluster only
  const std::vector<MemoryTry> tries = memory_tries(experiment, from);
  std::vector<Question> asked = questions(experiment.cluster, best, request.precision);
  WhatIfs answer{from.strategy, from.step_time, {}};
  Progress progress(asked.size(), quiet, request.poll);
  for (Question& question : asked) {
    progress.next(question.row.change);
    if (!question.row.unused) {
      Request anew = request;
      anew.cluster = question.cluster.name;
      anew.built_cluster = std::move(question.cluster);
      anew.first_gpus.reset();
      anew.batch = experiment.batch;
      anew.given.insert("--batch");
      anew.jitter = 0;
      anew.sim.engine = sim::Engine::fast;
      question.row.result = planned(std::move(anew), strategy, tries);
      const std::optional<RunResult>& result = question.row.result;
      question.row.unused = question.row.kind == WhatIf::Kind::one_more &&
                            (!result || !(result->step_time < best.step_time));
    }
    answer.rows.push_back(std::move(question.row));
  }
  return answer;
}

}  // namespace parsim::experiment
