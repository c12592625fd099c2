#include "experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/json.hpp"
#include "core/text.hpp"
#include "experiment/attention.hpp"
#include "experiment/files.hpp"
#include "experiment/hardware.hpp"
#include "experiment/hosts.hpp"
#include "experiment/largest_batch.hpp"
#include "experiment/layer_costs.hpp"
#include "experiment/layer_times.hpp"
#include "experiment/perturbation.hpp"
#include "experiment/precision.hpp"
#include "experiment/trainer_file.hpp"
#include "experiment/trainer_model.hpp"
#include "experiment/trainer_run.hpp"
#include "experiment/upkeep.hpp"
#include "lowering/recompute.hpp"
#include "networks/networks.hpp"
#include "strategies/blocks.hpp"
#include "strategies/experts.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {

namespace {

// A weak-scaling habit of the measurements in the literature: 32 samples a GPU.
constexpr std::int64_t samples_per_gpu = 32;

Plan read_plan(const Request& request) {
  return plan_of_file(read_file(request.plan_file, "--plan"), request.plan_file, request);
}

LayoutFile layout_of_plan(Plan plan) {
  LayoutFile file;
  file.batch = plan.batch;
  file.precision = plan.precision;
  file.reduce_precision = plan.reduce_precision;
  file.optimizer = plan.optimizer;
  file.plan = std::move(plan);
  return file;
}

/// An option and the layout file that both decide something.
void check_decided_once(const Request& request, const LayoutFile& layout) {
  const std::pair<std::string_view, bool> decided[] = {
      {"--micro-batches", layout.micro_batches.has_value()},
      {"--schedule", layout.schedule.has_value()},
      {"--pipeline-sends", layout.sends.has_value()},
      {"--reduce-every", layout.reduce_every.has_value()},
      {"--bucket", layout.bucket.has_value()},
      {"--cp", layout.context.has_value()},
      {"--cp-comm", layout.context_exchange.has_value()},
      {"--zero", layout.zero_stage.has_value()},
      {"--zero-group", layout.zero_group.has_value()},
      {"--recompute", layout.recompute.has_value()},
      {"--shares", layout.shares.has_value()},
      {"--batch", layout.batch.has_value()},
      {"--precision", layout.precision.has_value()},
      {"--reduce-precision", layout.reduce_precision.has_value()},
      {"--optimizer", layout.optimizer.has_value()},
      {"--sequence-parallel", layout.sequence_parallel.has_value()},
      {"--tp-overlap", layout.tensor_overlap.has_value()},
      {"--ep", layout.expert_parallel.has_value()},
      {"--etp", layout.expert_tensor_parallel.has_value()},
      {"--recompute-every", layout.recompute_every.has_value()}};
  for (const auto& [flag, by_file] : decided) {
    if (!by_file || !request.given.contains(flag)) continue;
    throw InputError(flag, fmt::format("{} decides it", request.layout_file),
                     "accepted: one of the two");
  }
}

/// Throws InputError if the network has nothing that this would drop.
void check_recompute(const Network& network, strategies::Recompute recompute,
                     const std::string& where) {
  std::string lacks;
  if (recompute == strategies::Recompute::selective &&
      lowering::attention_scores(network).empty()) {
    lacks = "attention scores to drop (a fused kernel keeps none)";
  }
  constexpr strategies::Recompute of_blocks[] = {
      strategies::Recompute::pointwise, strategies::Recompute::op, strategies::Recompute::full};
  const bool has_blocks = !strategies::first_layers_of_blocks(network).empty();
  const bool needs_blocks =
      std::find(std::begin(of_blocks), std::end(of_blocks), recompute) != std::end(of_blocks);
  if (needs_blocks && !has_blocks) lacks = "transformer blocks";
  if (lacks.empty()) return;
  throw InputError(
      where,
      fmt::format("'{}', but network '{}' has no {}", to_text(recompute), network.name, lacks),
      has_blocks ? "accepted: pointwise, op, full, optimal or none" : "accepted: optimal or none");
}

/// Throws InputError if --recompute-every chooses among no blocks.
void check_recompute_every(const Request& request, const Network& network,
                           const std::optional<LayoutFile>& layout) {
  if (!request.given.contains("--recompute-every")) return;
  std::string found;
  if (strategies::first_layers_of_blocks(network).empty()) {
    found = fmt::format("network '{}' has no transformer blocks", network.name);
  } else if (!request.recompute && !(layout && layout->recompute)) {
    found = "without --recompute";
  } else if (request.recompute == strategies::Recompute::optimal) {
    found = "with --recompute optimal, which chooses layers itself";
  } else {
    return;
  }
  throw InputError("--recompute-every", found,
                   "accepted: with --recompute selective, pointwise, op or full of a transformer");
}

/// What a language model is trained with unless the user says otherwise: half precision, AdamW,
/// one sequence per GPU. Adds a note on what was chosen.
void choose_for_language_model(const Cluster& cluster, Request& request) {
  std::vector<std::string> chosen;
  const auto absent = [&](const char* flag) { return !request.given.contains(flag); };
  if (absent("--precision")) {
    request.precision = fastest_precision(cluster);
    chosen.push_back(fmt::format("--precision {}", to_text(request.precision)));
  }
  if (absent("--optimizer")) {
    request.optimizer = Optimizer::adam;
    chosen.emplace_back("--optimizer adam");
  }
  if (absent("--batch") && request.layout_file.empty()) {  // a layout has samples of its own
    request.batch = static_cast<std::int64_t>(devices_of(cluster, DeviceKind::gpu).size());
    chosen.push_back(fmt::format("--batch {}", *request.batch));
  }
  if (chosen.empty()) return;
  request.notes.push_back("defaults of a language model: " + join(chosen));
}

}  // namespace

std::int64_t tokens_per_sample(const Network& network) {
  for (const Layer& layer : network.layers) {
    if (layer.kind.as<Embedding>() != nullptr) return layer.out.extent(Dim::token);
  }
  return 0;
}

void refuse_name(std::string_view where, std::string_view what, std::string_view name,
                 const Cluster& cluster, const std::vector<std::string>& names) {
  constexpr std::size_t listed = 16;
  const std::string some = join(std::span(names).first(std::min(listed, names.size())));
  throw InputError(where, fmt::format("no {} '{}' in cluster '{}'", what, name, cluster.name),
                   fmt::format("accepted: {}{}{}", some, names.size() > listed ? ", …" : "",
                               did_you_mean(name, names)));
}

DeviceId find_device(const Cluster& cluster, std::string_view name, std::string_view where) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    if (cluster.devices[i].name == name) return DeviceId{i};
    names.push_back(cluster.devices[i].name);
  }
  refuse_name(where, "device", name, cluster, names);
}

Network load_network_with(const std::string& name, const std::map<std::string, std::int64_t>& dims,
                          std::string_view where) {
  const std::vector<networks::NetworkEntry>& known = networks::all();
  const bool fixed = std::any_of(
      known.begin(), known.end(),
      [&](const networks::NetworkEntry& entry) { return entry.name == name && !entry.sized; });
  if (fixed && !dims.empty()) {
    throw InputError("--dim", fmt::format("unused: network '{}' has no symbolic dimensions", name),
                     "accepted: with an ONNX file, a config.json or a built-in language model");
  }
  return networks::load_network(name, dims, where);
}

Experiment::Experiment(const Request& asked)
    : request(asked),
      plan(asked.plan_file.empty() ? std::nullopt : std::optional(read_plan(asked))) {
  if (plan) take_question(*plan, request.plan_file, request);
  network = load_network_with(request.network, request.dims, "--network");
  std::optional<Profile> profile;
  const std::string measured =
      request.profile.empty() ? "" : read_file(request.profile, "--profile");
  has_layer_times = is_layer_times(request.profile, measured);
  if (!request.profile.empty() && !has_layer_times) {
    profile = read_profile(measured, request.profile, request.machine);
  }
  // The machine that a profile was measured on knows its links better than one just looked at.
  const Machine* machine = profile           ? &profile->machine
                           : request.machine ? &*request.machine
                                             : nullptr;
  if (request.built_cluster) {
    cluster = *request.built_cluster;
    request.cluster = cluster.name;
  } else if (machine != nullptr &&
             (request.cluster.empty() || request.cluster == machine->cluster.name)) {
    cluster = machine->cluster;
    for (const std::string& text : request.overrides) apply_override(cluster, text);
    request.cluster = cluster.name;
  } else {
    cluster = load_cluster_with(request.cluster, request.overrides, "--cluster", &warnings);
  }
  if (request.first_gpus) {
    cluster = topologies::first_gpus(std::move(cluster), *request.first_gpus, "--scaling");
  }
  NetworkOnDevices chosen =
      on_devices(std::move(network), request.network, request.dims, cluster, plan);
  network = std::move(chosen.network);
  if (request.given.contains("--expert-imbalance")) {
    set_expert_imbalance(network, request.expert_imbalance, "--expert-imbalance");
  }
  attention_by_default = chosen.by_default;
  if (!request.layout_file.empty()) read_layout_file();
  const auto context = layout && layout->context ? layout->context : request.context_parallel;
  if (!plan) strategies::route_in_parts(network, context.value_or(1));
  if (!plan && request.usual_settings && tokens_per_sample(network) > 0) {
    choose_for_language_model(cluster, request);
  }
  const bool in_weights = request.hardware || (layout && layout->sums_in_weights);
  if (in_weights && !request.given.contains("--reduce-precision")) {
    request.reduce_precision = storage_of(request.precision);
  }
  warnings.insert(warnings.begin(), network.warnings.begin(), network.warnings.end());
  if (request.granularity == strategies::Granularity::block &&
      strategies::first_layers_of_blocks(network).empty()) {
    throw InputError(
        "--granularity",
        fmt::format("'block', but network '{}' has no transformer blocks", network.name),
        "accepted: layer");
  }
  check_recompute(network, request.recompute.value_or(strategies::Recompute::none), "--recompute");
  check_recompute_every(request, network, layout);
  if (const auto warning = attention_warning(network, chosen.because)) {
    warnings.push_back(*warning);
  }
  if (plan) {
    check_plan(*plan, request.plan_file);
    follow_framework(*plan, request);
    request.precision = plan->precision;
    request.reduce_precision = plan->reduce_precision;
    request.optimizer = plan->optimizer;
    batch = plan->batch;
  } else {
    const std::size_t gpus = devices_of(cluster, DeviceKind::gpu).size();
    if (gpus == 0) {
      throw InputError("--cluster", fmt::format("'{}' has no GPU", cluster.name),
                       "accepted: a cluster with at least one GPU");
    }
    batch = request.batch.value_or(samples_per_gpu * static_cast<std::int64_t>(gpus));
    if (layout) check_layout_batch();
  }
  check_batch(network, request.precision, batch, plan ? request.plan_file : "--batch");
  check_objective(request.objective, cluster);
  if (const auto note = objective_note(request.objective, cluster)) request.notes.push_back(*note);
  check_failures(request.failures, cluster);
  check_fp8(cluster, request.precision, plan ? request.plan_file : "--precision");
  const auto warn = [&](const std::vector<std::string>& more) {
    warnings.insert(warnings.end(), more.begin(), more.end());
  };
  warn(precision_warnings(cluster, request.precision));
  for (const auto& [name, value] : request.dims) {
    const bool of_samples = name == "batch" || name == "batch_size" || name == "N";
    if (of_samples && value != batch) {
      warnings.push_back(fmt::format(
          "--dim {}={} only reads the file; the step has {} samples, which --batch sets", name,
          value, batch));
    }
  }
  if (!request.server.empty()) server = find_device(cluster, request.server, "--server");
  if (!request.fitted.empty()) {
    calibration = calibration_of(request.fitted, network, request.precision, cluster, batch);
    check_calibrated_costs(*calibration, request.costs, request.profile,
                           request.sim.launch_interval);
    warn(calibration_warnings(*calibration, request.sim.fusion));
    cluster = with_link_shares(std::move(cluster), calibration->links);
  }
  const auto start = std::chrono::steady_clock::now();
  sim::Slowdowns& slowdowns = request.sim.slowdowns;
  slowdowns.interference =
      parse_interference(request.interference, profile ? profile->interference : Interference{});
  if (profile) {
    warn(profile_warnings(*profile, request.profile, cluster, request.precision));
    slowdowns.common_memory = sim::common_memory_of(*profile, cluster);
    request.sim.shared_gpus = sim::shared_gpus_of(*profile, cluster);
  }
  set_hosts(request, profile, calibration);
  cost = sim::cost_source(request.costs, "--costs").make(cluster, request.sim);
  if (has_layer_times) {
    const auto times =
        layer_times_of(measured, request.profile, network, cluster, request.precision);
    warn(layer_times_warnings(times, request.profile, cluster, request.precision));
    cost = make_layer_costs(times, network, cluster, std::move(cost), request.reduce_precision,
                            request.sim, request.profile);
  }
  if (profile) cost = sim::make_profiled(cluster, std::move(cost), *profile, "--profile");
  if (calibration) cost = make_calibrated(std::move(cost), calibration->kernels);
  preparation = std::chrono::steady_clock::now() - start;
  stragglers = parse_stragglers(cluster, request.stragglers);
  if (!stragglers.factors.empty()) slowed = sim::make_slowed(*cost, stragglers.factors);
  if (!stragglers.links.empty() && request.sim.fidelity == sim::Fidelity::analytic) {
    throw InputError("--straggler", "a link, which formulas cannot slow down",
                     "accepted: with --fidelity p2p, hops or macro");
  }
}

void Experiment::check_plan(const Plan& checked, const std::string& file) {
  if (checked.network != network.name) {
    throw InputError(
        file, fmt::format("a plan for network '{}', not for '{}'", checked.network, network.name),
        fmt::format("accepted: --network {}", checked.network));
  }
  for (std::string& warning : plan_warnings(checked, file, network, cluster))
    warnings.push_back(std::move(warning));
  strategies::route_in_parts(network, strategies::routed_parts(network, checked));
  pad_words(network, checked);
  validate(checked, network, cluster, file);
}

void Experiment::read_layout_file() {
  const std::string text = read_file(request.layout_file, "--layout");
  const bool of_trainer = is_trainer_file(text, request.layout_file);
  const bool of_plan = request.plan_or_trainer_file == request.layout_file && !of_trainer;
  layout = of_plan ? layout_of_plan(plan_of_file(text, request.layout_file, request))
           : of_trainer
               ? read_trainer_file(text, request.layout_file, network, cluster, request.batch)
               : read_layout(text, request.layout_file, network, cluster);
  if (of_plan) check_plan(*layout->plan, request.layout_file);
  if (of_plan) follow_framework(*layout->plan, request);
  pad_words(network, request.layout_file, *layout);
  check_decided_once(request, *layout);
  const auto decide = [&](std::string_view flag, const auto& by_file, auto& value) {
    if (!by_file) return;
    value = *by_file;
    request.given.insert(flag);  // no default of a language model
  };
  decide("--batch", layout->batch, request.batch);
  decide("--precision", layout->precision, request.precision);
  decide("--reduce-precision", layout->reduce_precision, request.reduce_precision);
  decide("--optimizer", layout->optimizer, request.optimizer);
  // Other rows are compared as the same trainer would run them.
  if (of_trainer) decide("--pipeline-sends", layout->sends, request.pipeline_sends);
  if (of_trainer) follow_trainer(*layout, request);
  if (of_trainer) assume_what_scripts_decide();
  request.notes.insert(request.notes.end(), layout->notes.begin(), layout->notes.end());
  if (!of_trainer && !of_plan) check_keys(*layout, request.layout_file, request);
  const std::string& file = request.layout_file;
  check_recompute(network, layout->recompute.value_or(strategies::Recompute::none),
                  file + ":recompute");
  if (layout->zero_stage.value_or(0) > 0 && request.sync == Sync::Kind::server) {
    throw InputError(file + ":zero", "together with --sync ps, whose server holds all states",
                     "accepted: one of them");
  }
  const bool grouped = layout->zero_group || request.given.contains("--zero-group");
  if (grouped && layout->zero_stage.value_or(request.zero_stage.value_or(0)) == 0) {
    throw InputError(layout->zero_group ? file + ":zero_group" : "--zero-group",
                     "unused without ZeRO", "accepted: together with zero = 1 to 3, or --zero");
  }
}

/// A script's optimizer is most likely Adam. Says what is assumed where no option decides.
void Experiment::assume_what_scripts_decide() {
  std::vector<std::string> assumed;
  if (!request.given.contains("--optimizer")) {
    request.optimizer = Optimizer::adam;
    request.given.insert("--optimizer");  // no default of a language model
    assumed.emplace_back("Adam (--optimizer)");
  }
  if (!layout->recompute && !request.given.contains("--recompute")) {
    assumed.emplace_back("no activation recomputation (--recompute full, if the model does)");
  }
  if (!layout->micro_batches && !request.given.contains("--micro-batches")) {
    assumed.emplace_back("one micro-batch (--micro-batches)");
  }
  if (assumed.empty()) return;
  layout->notes.push_back(fmt::format("{} leaves to the script, and here is assumed: {}",
                                      request.layout_file, join(assumed, "; ")));
}

void Experiment::check_layout_batch() {
  const std::int64_t micro_batches =
      layout->micro_batches.value_or(request.micro_batches.value_or(1));
  if (layout->samples) {
    const std::int64_t wanted = *layout->samples * micro_batches;
    if (request.batch && batch != wanted) {
      throw InputError(
          layout->samples_at,
          fmt::format("{} samples in each of {} micro-batches, but a batch of {}", *layout->samples,
                      micro_batches, batch),
          fmt::format("accepted: samples that add up to the batch, or --batch {}", wanted));
    }
    request.batch = batch = wanted;
  }
  if (const std::string at = layout->micro_batches_at; batch % micro_batches != 0) {
    throw InputError(!layout->micro_batches ? "--micro-batches"
                     : at.empty()           ? request.layout_file
                                            : at,
                     fmt::format("batch {} in {}", batch, counted(micro_batches, "micro-batch")),
                     "accepted: a number of micro-batches that divides the batch");
  }
  check_replicas(*layout, micro_batches, batch);
}

sim::SimOptions Experiment::step_options() const {
  sim::SimOptions options = request.sim;
  options.slowdowns.devices = stragglers.devices;
  options.slowdowns.links = stragglers.links;
  return options;
}

Spreads Experiment::spreads() const { return run_spreads(calibration); }

std::string Experiment::step_summary() const {
  std::string summary = step_cost().summary();
  if (!stragglers.others.empty()) summary += "; slowed down: " + join(stragglers.others);
  const sim::Slowdowns& slowdowns = request.sim.slowdowns;
  if (slowdowns.interference.any()) {
    summary += "; interference: " + join(interference_texts(slowdowns.interference));
  }
  for (const CommonMemory& memory : slowdowns.common_memory) {
    summary += "; " + common_memory_text(memory, cluster);
  }
  if (!request.sim.shared_gpus.empty()) {
    summary += "; between parts of one GPU kernels carry messages, not NCCL";
  }
  if (request.sim.fusion != sim::Fusion::none) {
    summary += "; --fusion " + std::string(to_text(request.sim.fusion));
  }
  if (request.sim.attention_kernel != sim::AttentionKernel::automatic) {
    summary += "; --attention-kernel " + std::string(to_text(request.sim.attention_kernel));
  }
  return summary + hosts_summary(request);
}

strategies::StrategyInput Experiment::strategy_input() const {
  strategies::StrategyInput input{network, cluster, *cost, request};
  input.searches_chunks = !request.given.contains("--vp");
  input.batch = batch;
  input.server = server;
  input.framework = sim::framework_of(request.sim.fusion);
  input.hosts_matter = hosts_matter(request.sim);
  return input;
}

}  // namespace parsim::experiment
