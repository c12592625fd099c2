#include "experiment/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "core/dag_traffic.hpp"
#include "core/errors.hpp"
#include "core/files.hpp"
#include "experiment/comparison.hpp"
#include "experiment/faster_links.hpp"
#include "experiment/hosts.hpp"
#include "experiment/progress.hpp"
#include "experiment/trainer_run.hpp"
#include "lowering/lower.hpp"
#include "strategies/hypergraph/exchange.hpp"
#include "strategies/idle_devices.hpp"
#include "strategies/mixed_stages.hpp"
#include "strategies/price.hpp"

namespace parsim::experiment {

namespace {

using Clock = std::chrono::steady_clock;

/// By Hop::index(): bytes / what the link could have carried during the step.
std::vector<double> link_use(const Cluster& cluster, const Timeline& timeline,
                             const sim::Slowdowns& slowdowns) {
  const Seconds step = makespan(timeline);
  if (timeline.hop_bytes.empty() || step <= Seconds{}) return {};
  std::vector<double> use;
  for (std::size_t i = 0; i < timeline.hop_bytes.size(); ++i) {
    const LinkId link{i / 2};
    use.push_back(timeline.hop_bytes[i] /
                  (cluster[link].rate.value * slowdowns.of(link).work(Seconds{0}, step).count()));
  }
  return use;
}

constexpr std::string_view zero_bubble_trainers =
    "zero-bubble orders: the Megatron-LM of their authors runs something like ZB-H1 "
    "(--enable-zero-bubble of github.com/sail-sg/zero-bubble-pipeline-parallelism) and ZB-H2 (with "
    "--zero-bubble-max-pending-backward of twice the stages), torchtitan ZB-H1 with model chunks; "
    "Megatron-LM and DeepSpeed have 1F1B: --schedule 1f1b";

constexpr std::string_view order_by_time_trainers =
    "zero-bubble order by the times of stages: the Megatron-LM of its authors makes such orders "
    "itself from times that it measures (--enable-zero-bubble of "
    "github.com/sail-sg/zero-bubble-pipeline-parallelism), PyTorch's pipelines read orders from a "
    "file; Megatron-LM and DeepSpeed have 1F1B: --schedule 1f1b";

/// Ties go to the lower link, forwards first. Nothing without the use of hops (link_use).
std::optional<LinkUse> busiest_link(const Cluster& cluster, const std::vector<double>& hop_use) {
  std::optional<LinkUse> busiest;
  for (std::size_t i = 0; i < hop_use.size() / 2; ++i) {
    const Link& link = cluster.links[i];
    for (const bool backwards : {false, true}) {
      const double utilisation = hop_use[Hop{LinkId{i}, backwards}.index()];
      if (utilisation <= (busiest ? busiest->utilisation : 0.0)) continue;
      busiest = {link.name, port_name(cluster, backwards ? link.b : link.a),
                 port_name(cluster, backwards ? link.a : link.b), utilisation};
    }
  }
  return busiest;
}

std::array<double, origins.size()> cost_shares(const Durations& durations, const ExecDag& dag) {
  std::array<double, origins.size()> shares{};
  double total = 0.0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpKind kind = dag.kind(OpId{i});
    if (kind == OpKind::transfer || kind == OpKind::collective) continue;
    const double time = static_cast<double>(dag.count(OpId{i})) * durations.times[i].count();
    shares[static_cast<std::size_t>(durations.origins[i])] += time;
    total += time;
  }
  for (double& share : shares) share = total > 0.0 ? share / total : 0.0;
  return shares;
}

std::vector<DeviceResult> device_results(const Experiment& experiment,
                                         const std::vector<lowering::MemoryUse>& memory,
                                         const Run& run) {
  const Cluster& cluster = experiment.cluster;
  const std::vector<DeviceUse> use = device_use(run.dag, run.timeline, cluster.devices.size());
  std::vector<DeviceResult> devices;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    const DeviceModel& model = cluster.model(DeviceId{i});
    devices.push_back({cluster.devices[i].name, model.name, model.kind, use[i], memory[i],
                       cluster.devices[i].memory, experiment.request.headroom});
  }
  return devices;
}

std::vector<Seconds> compute_times(const std::vector<DeviceResult>& devices) {
  std::vector<Seconds> times;
  for (const DeviceResult& device : devices) times.push_back(device.use.compute);
  return times;
}

bool has_server(const Plan& plan) {
  return std::any_of(plan.layers.begin(), plan.layers.end(),
                     [](const LayerPlan& layer) { return layer.sync.kind == Sync::Kind::server; });
}

/// Steps that differ in their kernel times only.
Spread jittered_steps(const Experiment& experiment, const ExecDag& dag) {
  std::vector<Seconds> steps;
  for (std::int64_t run = 0; run < experiment.request.runs; ++run) {
    sim::SimOptions options = experiment.step_options();
    options.slowdowns.jitter = {
        experiment.request.jitter,
        experiment.request.seed + static_cast<std::uint64_t>(run) * 0x100000000ULL};
    steps.push_back(makespan(
        sim::make_simulator(experiment.cluster, experiment.step_cost(), options)->run(dag)));
  }
  return spread_of(std::move(steps));
}

}  // namespace

bool RunResult::fits() const { return verdict() != lowering::Verdict::over; }

std::optional<double> RunResult::gap() const {
  if (!lower_bound || *lower_bound <= Seconds{} || !fits()) return std::nullopt;
  return step_time / *lower_bound - 1;
}

std::optional<double> RunResult::cost_per_million_samples() const {
  if (!upkeep.cost || samples_per_second <= 0) return std::nullopt;
  return 1e6 * upkeep.cost->value / (samples_per_second * step_time.count());
}

std::optional<double> RunResult::energy_per_million_samples() const {
  if (!upkeep.energy || samples_per_second <= 0) return std::nullopt;
  return 1e6 * upkeep.energy->value / (samples_per_second * step_time.count());
}

lowering::Verdict RunResult::verdict() const {
  lowering::Verdict worst = error.empty() ? lowering::Verdict::fits : lowering::Verdict::over;
  for (const DeviceResult& device : devices) worst = std::max(worst, device.verdict());
  return worst;
}

const DeviceResult* RunResult::fullest() const {
  const auto part = [](const DeviceResult& device) {
    const Bytes usable = device.headroom.usable(device.capacity);
    return static_cast<double>(device.peak().value) /
           static_cast<double>(std::max<std::int64_t>(1, usable.value));
  };
  const auto most = std::max_element(
      devices.begin(), devices.end(),
      [&](const DeviceResult& a, const DeviceResult& b) { return part(a) < part(b); });
  return most == devices.end() ? nullptr : &*most;
}

const strategies::Strategy& layout_strategy() {
  static const strategies::Strategy strategy{"layout",
                                             "the stages, groups and samples of --layout"};
  return strategy;
}

Planner::Planner(const Experiment& experiment, bool once)
    : experiment_(experiment), once_(once), prices_(experiment.strategy_input().step()) {}

Planned Planner::plan(const strategies::Strategy& strategy, Progress* progress) {
  const Experiment& experiment = experiment_;
  const Clock::time_point start = Clock::now();
  // A search simulates a hundred plans: with our own engine, equal but for SimGrid's nanosecond, in
  // a tenth of the time. The plan that it finds is simulated as the user asked.
  sim::SimOptions searching = experiment.request.sim;
  searching.engine = sim::Engine::fast;
  const auto simulator = sim::make_simulator(experiment.cluster, *experiment.cost, searching);
  const auto simulate =
      strategies::simulation(experiment.network, experiment.cluster, *experiment.cost, *simulator);
  Seconds simulated{};
  strategies::StrategyInput input = experiment.strategy_input();
  const bool trained = !experiment.request.launcher.empty() ||
                       (experiment.layout && !experiment.layout->trainer.empty());
  if (trained) input.as_run = [&](const Plan& plan) { return searched(experiment, plan); };
  input.simulate = [&](const Plan& plan) {
    if (input.poll) input.poll();
    const Clock::time_point before = Clock::now();
    const Seconds step = simulate(input.as_run ? input.as_run(plan) : plan);
    simulated += Clock::now() - before;
    return step;
  };
  sim::SimOptions counting = searching;  // the bytes of links
  counting.fidelity = sim::Fidelity::analytic;
  const auto counter = sim::make_simulator(experiment.cluster, *experiment.cost, counting);
  if (input.objective != strategies::Objective::time) {
    input.upkeep = [&](const Plan& plan, Seconds step) {
      ExecDag dag;
      std::vector<double> hop_bytes;
      if (bytes_matter(experiment.cluster)) {
        lowering::PlanRun counted = lowering::run_folded(experiment.network, experiment.cluster,
                                                         *experiment.cost, plan, *counter);
        dag = std::move(counted.lowered.dag);
        hop_bytes = std::move(counted.timeline.hop_bytes);
      } else {
        dag = lowering::lower_folded(experiment.network, experiment.cluster, *experiment.cost, plan)
                  .dag;
      }
      return goal_of(
          input.objective, step,
          step_upkeep(experiment.cluster, kernel_times(dag, experiment.cluster, *experiment.cost),
                      step, hop_bytes));
    };
  }
  input.known = known_;
  input.prices = &prices_;
  input.at_once = at_once_;
  if (const auto alias = experiment.request.zero_of_alias.find(strategy.name);
      alias != experiment.request.zero_of_alias.end()) {
    input.zero_stage = alias->second;
  }
  input.poll = experiment.request.poll;
  if (progress != nullptr) input.poll = [progress] { progress->poll(); };
  if (experiment.request.accepts) {
    input.accepts = [&](const Plan& plan) {
      return experiment.request.accepts(experiment.network, experiment.cluster, plan);
    };
  }
  if (progress != nullptr) input.progress = [&](double share) { progress->within(share); };
  const bool laid_out = &strategy == &layout_strategy();
  if (laid_out && experiment.layout->plan) {
    return {*experiment.layout->plan, experiment.preparation, {}};
  }
  if (laid_out) take_decisions(*experiment.layout, input);
  const std::string& partition = experiment.request.partition;
  const bool partitioned = !partition.empty() && strategy.name == "hypergraph";
  Plan plan = laid_out      ? strategies::plan_layout(input, experiment.layout->layout)
              : partitioned ? strategies::hypergraph::plan_of_partition(
                                  input, read_file(partition, "--partition"), partition)
              : strategy.callback ? strategy.callback(input)
                                  : strategy.plan(input);
  // Those of a caller's own strategy are its choice.
  if (strategy.callback) input.bucket = input.bucket.value_or(strategies::ddp_bucket);
  plan = strategies::with_memory_options(input, std::move(plan));
  if (laid_out) plan = with_habits(experiment.network, std::move(plan), experiment.layout->habits);
  const bool by_file = laid_out && experiment.layout->zero_group;
  strategies::check_zero_group(
      input, plan, by_file ? experiment.request.layout_file + ":zero_group" : "--zero-group");
  validate(plan, experiment.network, experiment.cluster, fmt::format("strategy {}", strategy.name));
  if (!laid_out && !once_) known_.push_back(plan);
  plan.dims = dim_texts(experiment.request.dims);
  if (!laid_out) plan = compared(experiment, std::move(plan));
  return {std::move(plan), experiment.preparation + (Clock::now() - start) - simulated, simulated};
}

Planned make_plan(const Experiment& experiment, const strategies::Strategy& strategy,
                  Progress* progress) {
  return Planner(experiment, true).plan(strategy, progress);
}

namespace {

/// Lowers and simulates; returns the memory that the plan needs.
std::vector<lowering::MemoryUse> simulate(const Experiment& experiment, const Plan& plan,
                                          Operations wanted, Run& run) {
  const CostModel& cost = experiment.step_cost();
  const auto simulator = sim::make_simulator(experiment.cluster, cost, experiment.step_options());
  if (wanted == Operations::folded && experiment.request.jitter <= 0) {
    lowering::PlanRun folded =
        lowering::run_folded(experiment.network, experiment.cluster, cost, plan, *simulator);
    run.dag = std::move(folded.lowered.dag);
    run.timeline = std::move(folded.timeline);
    return std::move(folded.lowered.memory);
  }
  lowering::Lowered lowered =
      lowering::lower_with_memory(experiment.network, experiment.cluster, plan);
  run.timeline = simulator->run(lowered.dag);
  run.dag = std::move(lowered.dag);
  return std::move(lowered.memory);
}

std::int64_t operations(const ExecDag& dag) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) sum += dag.count(OpId{i});
  return sum;
}

}  // namespace

Seconds simulated_step(const Experiment& experiment, const Plan& plan) {
  Run run;
  (void)simulate(experiment, plan, Operations::folded, run);
  return makespan(run.timeline);
}

Run run_plan(const Experiment& experiment, const Planned& planned, Operations wanted) {
  const Clock::time_point start = Clock::now();
  const Plan& plan = planned.plan;
  const CostModel& cost = experiment.step_cost();
  const sim::SimOptions options = experiment.step_options();
  Run run;
  const std::vector<lowering::MemoryUse> memory = simulate(experiment, plan, wanted, run);
  if (run.timeline.hop_bytes.empty() && !options.slowdowns.links.empty()) {
    throw InputError("--straggler", "a link, but measured messages have times of their own",
                     "accepted: a device, or without measured messages");
  }
  RunResult& result = run.result;
  if (experiment.request.jitter > 0) result.jittered = jittered_steps(experiment, run.dag);
  const Seconds simulated = Clock::now() - start;
  const Durations times = durations(run.dag, experiment.cluster, cost);
  result.strategy = plan.strategy;
  result.step_time = makespan(run.timeline);
  if (result.step_time > Seconds{})
    result.samples_per_second = static_cast<double>(plan.batch) / result.step_time.count();
  result.read_by_host = read_by_fullest(run.dag.reads, result.step_time);
  result.flops = step_flops(run.dag, experiment.cluster);
  result.moved = bytes_moved(run.dag);
  result.messages = messages(run.dag);
  result.operations = operations(run.dag);
  if (options.fidelity != sim::Fidelity::analytic) {
    const bool fast = options.engine == sim::Engine::fast || run.timeline.chose_fast_engine;
    result.engine = fast ? sim::Engine::fast : sim::Engine::simgrid;
  }
  result.simulated_operations =
      static_cast<std::int64_t>(run.dag.size()) - run.timeline.merged_operations;
  result.devices = device_results(experiment, memory, run);
  result.device_rows = experiment.request.device_rows;
  result.upkeep = step_upkeep(experiment.cluster, compute_times(result.devices), result.step_time,
                              run.timeline.hop_bytes);
  if (const FailureOptions& failures = experiment.request.failures; !failures.write.empty()) {
    result.goodput = goodput_of(
        failure_rates(failures, experiment.cluster, compute_times(result.devices),
                      checkpoint_bytes(experiment.network, plan.precision, plan.optimizer)),
        result.step_time);
  }
  run.hop_use = link_use(experiment.cluster, run.timeline, options.slowdowns);
  result.bottleneck = busiest_link(experiment.cluster, run.hop_use);
  result.cost_shares = cost_shares(times, run.dag);
  result.cost_summary = experiment.step_summary();
  result.cost_accuracy = experiment.step_cost().accuracy(experiment.request.precision);
  const sim::SimOptions& sim = experiment.request.sim;
  if (sim.collectives == sim::CollectiveCost::measured || sim.algorithm || sim.protocol) {
    result.communication =
        sim::communication_sources(run.dag, times.times, experiment.cluster, cost, sim);
  }
  result.bounds =
      bounds_of(run.dag, experiment.cluster, times.times, run.timeline, options.slowdowns);
  result.checks = check_bounds(result.bounds, result.step_time,
                               experiment.request.sim.fidelity != sim::Fidelity::analytic);
  result.parts = step_parts(run.dag, run.timeline, cost, experiment.cluster);
  result.by_model = parts_by_model(
      run.dag, run.timeline, cost, experiment.cluster, result.parts,
      [&](DeviceId device) { return result.devices[device.index()].use.exposed_communication; });
  result.interval = step_interval(result.parts, experiment.spreads());
  result.notes = plan.notes;
  for (std::string& note :
       strategies::memory_option_notes(experiment.network, experiment.cluster, plan)) {
    result.notes.push_back(std::move(note));
  }
  for (std::string& line : strategies::stage_reasons(experiment.strategy_input(), plan)) {
    result.notes.push_back(std::move(line));
  }
  for (std::string& line : strategies::idle_devices(experiment.strategy_input(), plan)) {
    result.notes.push_back(std::move(line));
  }
  if (const std::string anomaly = links_anomaly(experiment, run, plan); !anomaly.empty()) {
    result.notes.push_back(anomaly);
  }
  if (result.upkeep.energy && result.upkeep.links) {
    result.notes.push_back(fmt::format("links draw {:.3g} J of the {:.3g} J of a step",
                                       result.upkeep.links->value, result.upkeep.energy->value));
  }
  if (result.flops.mfu(result.step_time) > 1)
    result.notes.push_back(mfu_above_peak(experiment.network, experiment.calibration.has_value()));
  if (has_server(plan) && result.messages > 0) {
    result.notes.push_back(fmt::format(
        "the parameter server exchanges tensors with one worker at a time, as in Jia et al. 2018; "
        "one that serves all at once is still bound by its links (busiest: {})",
        to_text(result.bounds.busiest_link)));
  }
  result.micro_batches = plan.schedule.micro_batches;
  result.stages = strategies::stages_of(experiment.network, plan);
  result.degrees = strategies::degrees_of(experiment.network, plan, result.stages);
  result.choices = choices_of(experiment.cluster, plan, result.degrees, result.stages);
  note_unfollowed(experiment, plan, result);
  if (plan.schedule.split_backward) {
    result.notes.emplace_back(result.degrees.schedule ? zero_bubble_trainers
                                                      : order_by_time_trainers);
  }
  result.plan_id = strategies::plan_id(experiment.network, plan);
  if (experiment.request.timings) {
    result.search_time = planned.search_time;
    result.simulation_time = planned.simulation_time + simulated;
  }
  return run;
}

namespace {

DeviceUse mean_use_of(const RunResult& result, auto counts) {
  DeviceUse sum;
  double gpus = 0;
  for (const DeviceResult& device : result.devices) {
    if (device.kind != DeviceKind::gpu || !counts(device)) continue;
    sum.compute += device.use.compute;
    sum.exposed_communication += device.use.exposed_communication;
    sum.idle += device.use.idle;
    gpus += 1;
  }
  return {sum.compute / gpus, sum.exposed_communication / gpus, sum.idle / gpus};
}

bool computes(const DeviceResult& device) { return device.use.compute > Seconds{}; }

}  // namespace

DeviceUse mean_use(const RunResult& result) {
  return mean_use_of(result, [](const DeviceResult&) { return true; });
}

DeviceUse mean_use_of_working(const RunResult& result) {
  const bool any = std::any_of(result.devices.begin(), result.devices.end(), computes);
  return any ? mean_use_of(result, computes) : mean_use(result);
}

std::string memory_verdict(const RunResult& result) {
  const DeviceResult* worst = nullptr;
  std::size_t over = 0;
  for (const DeviceResult& device : result.devices) {
    if (device.lacking().value == 0) continue;
    ++over;
    if (worst == nullptr || device.lacking() > worst->lacking()) worst = &device;
  }
  if (worst == nullptr) return std::string(to_text(result.verdict()));
  return fmt::format("needs {} more ({}{})", to_text(worst->lacking()), worst->name,
                     over == 1   ? ""
                     : over == 2 ? " and 1 other"
                                 : fmt::format(" and {} others", over - 1));
}

std::string port_name(const Cluster& cluster, const Port& port) {
  const auto index = static_cast<std::size_t>(port.index);
  return port.kind == Port::Kind::device ? cluster.devices[index].name
                                         : cluster.switches[index].name;
}

}  // namespace parsim::experiment
