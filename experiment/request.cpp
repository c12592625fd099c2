#include "experiment/request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/json.hpp"
#include "core/text.hpp"
#include "experiment/communication.hpp"
#include "experiment/trainer_file.hpp"
#include "strategies/degrees.hpp"

namespace parsim::experiment {

namespace {

/// True if several devices hold the same parameters, so that their gradients must become one sum.
bool adds_gradients_up(const Network& network, const Plan& plan) {
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    if (network.layers[i].parameters.empty()) continue;
    for (const Cut& cut : plan.layers[i].cuts) {
      const bool splits_parameters = cut.dim == Dim::channel || cut.dim == Dim::in_channel ||
                                     cut.dim == Dim::head || cut.dim == Dim::expert;
      if (!splits_parameters && cut.sizes.size() > 1) return true;
    }
  }
  return false;
}

/// --seed, if steps with jitter use it, too.
bool is_jitter_seed(const Request& request, const Option& option) {
  return option.flag == "--seed" && request.jitter > 0;
}

/// A trainer's file is a layout, also with --plan; and so is, for 'compare', a plan of parsim's.
void find_trainer_file(Request& request) {
  request.layout_file = trainer_file_in(request.layout_file);
  const std::string& given = request.plan_or_trainer_file;
  if (given.empty()) return;
  const std::string path = trainer_file_in(given);
  const bool compares = request.verb == "compare";
  std::string text;
  try {
    text = read_file(path, "--plan");
  } catch (const InputError&) {  // other verbs refuse it when they read the plan
    if (compares) throw;
    request.plan_file = given;
    return;
  }
  if (!is_trainer_file(text, path)) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string::npos || text[begin] != '{') {
      throw InputError("--plan",
                       begin == std::string::npos
                           ? fmt::format("'{}' is empty", given)
                           : fmt::format("'{}' is neither a plan of parsim nor a file of a trainer "
                                         "that it knows",
                                         given),
                       "accepted: what 'parsim plan -o' writes, or what starts Megatron-LM, "
                       "FlagScale, DeepSpeed, torchtitan or accelerate");
    }
    if (!compares) {
      request.plan_file = given;
      return;
    }
    const Plan plan = plan_from_json(text, given);  // stands in for absent names, as elsewhere
    take_question(plan, given, request);
  }
  if (request.given.contains("--layout")) {
    throw InputError("--plan", "given together with --layout", "accepted: one of the two");
  }
  request.layout_file = path;
  request.given.erase("--plan");
  request.given.insert("--layout");
}

/// A layout leaves strategies nothing to choose, but 'compare' may have both.
void check_layout(const Request& request) {
  if (!request.given.contains("--layout")) return;
  if (request.layout_file.empty()) {
    throw InputError("--layout", "the name is empty", "accepted: a TOML file");
  }
  for (const std::string_view flag : {"--plan", "--scaling"}) {
    if (request.given.contains(flag)) {
      throw InputError("--layout", fmt::format("given together with {}", flag),
                       "accepted: one of the two");
    }
  }
  if (request.verb == "compare") return;
  for (const Option& option : options()) {
    const bool decided = option.flag == "--strategy" || !option.is_read_by("layout");
    if (decided && request.given.contains(option.flag) && !is_jitter_seed(request, option)) {
      throw InputError(option.flag, "given together with --layout",
                       "accepted: one of the two, the layout decides it already");
    }
  }
}

/// Throws InputError if an option is given that needs --hw.
void check_hardware(const Request& request) {
  for (const Option& option : options()) {
    if (option.group == OptionGroup::hardware && request.given.contains(option.flag) &&
        !request.hardware) {
      throw InputError(option.flag, "unused without --hw", "accepted: together with --hw");
    }
  }
  for (const std::string_view flag : {"--straggler", "--interference"}) {
    if (request.given.contains(flag) && request.hardware) {
      throw InputError(flag, "together with --hw, which cannot slow real devices down",
                       "accepted: one of them");
    }
  }
}

void check_combinations(const Request& request) {
  check_layout(request);
  const bool planned = request.given.contains("--plan");
  for (const Option& option : options()) {
    if (planned && option.is_in_plan_file() && request.given.contains(option.flag)) {
      throw InputError(option.flag, "given together with --plan",
                       "accepted: one of the two, the plan decides it already");
    }
  }
  if (!planned && request.network.empty()) {
    throw InputError("--network", "missing",
                     "accepted: a name (see 'parsim list networks') or an ONNX file");
  }
  // A profile of kernels names its machine; whether it is one, its reader finds.
  if (!planned && request.cluster.empty() && !request.hardware && request.profile.empty()) {
    throw InputError("--cluster", "missing",
                     "accepted: a name, a generator call (see 'parsim list clusters') or a file");
  }
  check_hardware(request);
  const bool shards = request.zero_stage.value_or(0) > 0 || !request.zero_of_alias.empty();
  if (shards && request.sync == Sync::Kind::server) {
    throw InputError(request.zero_stage ? "--zero" : "--strategy fsdp",
                     "together with --sync ps, whose server holds all states",
                     "accepted: one of them");
  }
  if (request.reduce_every == ReduceEvery::micro_batch && request.sync == Sync::Kind::server) {
    throw InputError("--reduce-every", "'micro-batch' together with --sync ps",
                     "accepted: one of them");
  }
  if (request.given.contains("--zero-group") && !shards && request.layout_file.empty()) {
    throw InputError("--zero-group", "unused without --zero",
                     "accepted: together with --zero 1 to 3");
  }
  if (request.tensor_overlap && !request.sequence_parallel && request.layout_file.empty()) {
    throw InputError("--tp-overlap", "unused without --sequence-parallel",
                     "accepted: together with --sequence-parallel");
  }
  // megatron/core/transformer/moe/moe_layer.py, forward
  if (request.expert_tensor_parallel == 1 && request.tensor_parallel != 1 &&
      !request.sequence_parallel && request.layout_file.empty()) {
    throw InputError("--etp", "1 without --sequence-parallel",
                     "accepted: together with --sequence-parallel, or with --tp 1");
  }
  if (request.tensor_overlap && request.tensor_parallel == 1) {
    throw InputError("--tp-overlap", "unused with --tp 1, where nothing is gathered or scattered",
                     "accepted: together with --tp 2 or more");
  }
  if (request.given.contains("--straggler") && request.given.contains("--scaling")) {
    throw InputError("--straggler", "together with --scaling, which leaves devices out",
                     "accepted: one of them");
  }
  if (request.given.contains("--runs") && request.jitter <= 0) {
    throw InputError("--runs", "unused without --jitter", "accepted: together with --jitter");
  }
  for (const std::string_view flag : {"--mtbf", "--restart"}) {
    if (request.given.contains(flag) && request.failures.write.empty()) {
      throw InputError(flag, "unused without --checkpoint-write",
                       "accepted: together with --checkpoint-write");
    }
  }
  if (!request.server.empty() && request.sync != Sync::Kind::server) {
    throw InputError("--server", "unused without a parameter server",
                     "accepted: together with --sync ps");
  }
}

/// Of options of pipelines: with what they are of use.
constexpr std::string_view accepts_micro_batches =
    "accepted: with a strategy that makes a pipeline, or hybrid --parts 1, which accumulates "
    "gradients over micro-batches";
constexpr std::string_view accepts_schedule =
    "accepted: with a strategy that makes a pipeline of several micro-batches";
constexpr std::string_view accepts_sends = "accepted: with a strategy that makes a pipeline";

std::string unused_by(const Request& request) {
  return request.strategies.size() == 1
             ? fmt::format("unused by strategy '{}'", request.strategies.front())
             : std::string("unused by every strategy asked for");
}

/// check_used, before a search that may take long, for strategies that never make a pipeline.
void check_pipeline_options(const Request& request) {
  constexpr std::array<std::string_view, 5> without{"data", "owt", "layer-wise", "model",
                                                    "model-even"};
  const auto never = [&](const std::string& name) {
    return std::find(without.begin(), without.end(), name) != without.end();
  };
  if (!request.layout_file.empty() || !request.plan_file.empty() ||
      !std::all_of(request.strategies.begin(), request.strategies.end(), never)) {
    return;
  }
  if (request.micro_batches.value_or(1) > 1)
    throw InputError("--micro-batches", unused_by(request), accepts_micro_batches);
  if (request.given.contains("--schedule"))
    throw InputError("--schedule", unused_by(request), accepts_schedule);
  if (request.given.contains("--pipeline-sends"))
    throw InputError("--pipeline-sends", unused_by(request), accepts_sends);
}

/// An option that none of the strategies asked for reads is a misunderstanding.
void check_strategy_options(const Request& request) {
  std::vector<std::string> asked = request.strategies;
  if (!request.layout_file.empty()) asked.emplace_back("layout");
  if (request.strategies.empty()) return;
  for (const std::string& name : request.strategies) {
    // Other unknown names may be of a caller's own strategies.
    if (name.find(',') == std::string::npos) continue;
    static_cast<void>(strategies::strategy(name, "--strategy"));
  }
  for (const Option& option : options()) {
    if (!request.given.contains(option.flag) || is_jitter_seed(request, option)) continue;
    if (std::any_of(asked.begin(), asked.end(),
                    [&](const std::string& name) { return option.is_read_by(name); })) {
      continue;
    }
    std::vector<std::string> readers;
    for (const strategies::Strategy& entry : strategies::all()) {
      if (option.is_read_by(entry.name)) readers.push_back(entry.name);
    }
    const std::string_view hint =
        option.flag == "--parts" ? "; the stages of pipeline and tensor are --pp" : "";
    throw InputError(option.flag, "unused by every strategy asked for",
                     fmt::format("accepted: with strategy {}{}", join(readers), hint));
  }
  check_pipeline_options(request);
}

/// Options of the simulator that exclude or need each other.
void complete_sim_options(Request& request) {
  const auto given = [&](std::string_view flag) { return request.given.contains(flag); };
  sim::SimOptions& sim = request.sim;
  if (given("--engine") && sim.fidelity == sim::Fidelity::analytic) {
    throw InputError("--engine", "unused by formulas",
                     "accepted: with --fidelity p2p, hops or macro");
  }
  if (!sim.merge &&
      (sim.fidelity == sim::Fidelity::p2p || sim.fidelity == sim::Fidelity::analytic)) {
    throw InputError("--no-symmetry", "every rank is simulated anyway",
                     "accepted: with --fidelity hops or macro");
  }
  // Message by message there is no library: its costs are those of whole collectives.
  if (sim.fidelity == sim::Fidelity::p2p) {
    if (given("--collectives") && sim.collectives != sim::CollectiveCost::ideal) {
      throw InputError("--collectives",
                       fmt::format("'{}' with --fidelity p2p", to_text(sim.collectives)),
                       "accepted: ideal");
    }
    sim.collectives = sim::CollectiveCost::ideal;
  }
  for (const std::string_view flag :
       {"--algorithm", "--protocol", "--nccl-version", "--collective-launch"}) {
    if (given(flag) && sim.collectives != sim::CollectiveCost::nccl) {
      throw InputError(flag, fmt::format("unused by {} collectives", to_text(sim.collectives)),
                       "accepted: with --collectives nccl");
    }
  }
  const bool measured = sim.collectives == sim::CollectiveCost::measured;
  if (request.collective_times.empty() == measured) {
    throw InputError("--collective-times",
                     measured ? "missing" : "unused unless collectives are measured",
                     "accepted: together with --collectives measured");
  }
  sim.tables = read_collective_times(request.collective_times);
}

/// Replaces names that other projects have for strategies.
void resolve_aliases(Request& request) {
  for (std::string& name : request.strategies) {
    const strategies::StrategyAlias* alias = strategies::strategy_alias(name);
    if (alias == nullptr) continue;
    name = alias->strategy;
    std::string note = fmt::format("{} is the strategy '{}'", alias->name, name);
    if (alias->zero_stage && !request.zero_stage) {
      request.zero_of_alias[name] = *alias->zero_stage;
      note += fmt::format(" with --zero {}", *alias->zero_stage);
    }
    request.notes.push_back(std::move(note));
  }
}

}  // namespace

Request read_options(const Arguments& arguments) {
  Request request;
  request.verb = arguments.verb;
  request.command = arguments.command;
  request.poll = arguments.poll;
  request.own_strategies = arguments.strategies;
  for (const Option& option : options()) {
    // Verbs may have options of one name.
    if (!arguments.has(option.flag) || !option.is_for(arguments.verb)) continue;
    request.given.insert(option.flag);
    if (option.member.read != nullptr) {
      option.member.read(request, option, arguments.texts(option.flag));
    }
  }
  resolve_aliases(request);
  // Engines on real hardware sum in the type that they compute in.
  if (request.hardware && !request.given.contains("--reduce-precision")) {
    request.reduce_precision = storage_of(request.precision);
  }
  complete_sim_options(request);
  return request;
}

Request make_request(const Arguments& arguments) {
  Request request = read_options(arguments);
  request.usual_settings = true;
  find_trainer_file(request);
  check_combinations(request);
  check_strategy_options(request);
  return request;
}

void take_question(const Plan& plan, const std::string& file, Request& request) {
  if (request.network.empty()) request.network = plan.network;
  if (request.cluster.empty()) request.cluster = plan.cluster;
  if (plan.dims.empty()) return;
  const std::map<std::string, std::int64_t> dims = parse_dims(plan.dims, file);
  if (request.dims.empty()) request.dims = dims;
  if (request.dims == dims) return;
  throw InputError("--dim",
                   fmt::format("{}, but {} is a plan for {}", join(dim_texts(request.dims)), file,
                               join(plan.dims)),
                   "accepted: no --dim, or the plan's");
}

std::vector<std::string> plan_warnings(const Plan& plan, const std::string& file,
                                       const Network& network, const Cluster& cluster) {
  std::vector<std::string> warnings;
  if (plan.cluster != cluster.name) {
    warnings.push_back(fmt::format("{} was made for cluster '{}', not for '{}'", file, plan.cluster,
                                   cluster.name));
  }
  if (!plan.network_fingerprint.empty() && plan.network_fingerprint != fingerprint(network)) {
    warnings.push_back(
        fmt::format("{} was made for a network '{}' of other extents: it has changed since", file,
                    network.name));
  }
  return warnings;
}

std::vector<std::string> dim_texts(const std::map<std::string, std::int64_t>& dims) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : dims) texts.push_back(fmt::format("{}={}", name, value));
  return texts;
}

std::map<std::string, std::int64_t> parse_dims(const std::vector<std::string>& texts,
                                               std::string_view where) {
  std::map<std::string, std::int64_t> dims;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw InputError(std::string(where), fmt::format("'{}'", text), "accepted: NAME=NUMBER");
    }
    const std::string name = text.substr(0, equals);
    constexpr std::int64_t most = 1'000'000'000;
    const std::int64_t value = parse_whole(std::string_view(text).substr(equals + 1),
                                           fmt::format("{} {}", where, name), 1, most);
    if (!dims.emplace(name, value).second) {
      throw InputError(std::string(where), fmt::format("'{}' given twice", name), "accepted: once");
    }
  }
  return dims;
}

sim::NcclVersion parse_nccl_version(std::string_view text, std::string_view where) {
  const std::vector<std::string> parts = split_at(text, '.');
  const bool whole = std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
    return !part.empty() && part.find_first_not_of("0123456789") == part.npos;
  });
  if (!whole || parts.size() < 2 || parts.size() > 3 || parts[0] != "2") {
    throw InputError(std::string(where), fmt::format("'{}'", text),
                     "accepted: a version from 2.0 on, in digits alone, as in 2.18 or 2.18.6");
  }
  constexpr std::int64_t most = 99;
  return {2, static_cast<std::int32_t>(parse_whole(parts[1], where, 0, most))};
}

void check_used(const Request& request, const Network& network, std::span<const Plan> plans) {
  const auto no_plan = [&](auto uses) { return std::none_of(plans.begin(), plans.end(), uses); };
  const std::string who = unused_by(request);
  if (request.micro_batches && no_plan([&](const Plan& plan) {
        return plan.schedule.micro_batches == *request.micro_batches;
      })) {
    throw InputError("--micro-batches", who, accepts_micro_batches);
  }
  // Whether the fastest plan has stages, replicas or buckets is what that search is there to find.
  if (!no_plan([](const Plan& plan) { return plan.strategy == "best"; })) return;
  const auto given = [&](std::string_view flag) { return request.given.contains(flag); };
  if (given("--cp-comm") && no_plan([&](const Plan& plan) {
        const auto stages = strategies::stages_of(network, plan);
        return std::any_of(stages.begin(), stages.end(),
                           [](const auto& stage) { return stage.cp.value_or(1) > 1; });
      })) {
    throw InputError("--cp-comm", who, "accepted: together with --cp 2 or more");
  }
  // Nor do degrees that `tensor` chose say that an option has no use.
  const bool degrees =
      request.tensor_parallel || request.pipeline_parallel || request.data_parallel;
  if (!degrees && !no_plan([](const Plan& plan) { return plan.strategy == "tensor"; })) return;
  if (given("--schedule") &&
      no_plan([](const Plan& plan) { return plan.schedule.micro_batches > 1; })) {
    throw InputError("--schedule", who, accepts_schedule);
  }
  if (given("--zero-group") && no_plan([&](const Plan& plan) {
        const auto stages = strategies::stages_of(network, plan);
        return std::any_of(stages.begin(), stages.end(), [](const auto& stage) {
          return stage.dp.value_or(2) * stage.cp.value_or(1) > 1;
        });
      })) {
    throw InputError("--zero-group", who + ": no weight has replicas",
                     "accepted: node, or a number that divides the replicas of a plan");
  }
  if (given("--pipeline-sends") && no_plan([](const Plan& plan) {
        const std::vector<std::int32_t>& stages = plan.schedule.stage_of_layer;
        return std::any_of(stages.begin(), stages.end(), [](auto stage) { return stage > 0; });
      })) {
    throw InputError("--pipeline-sends", who, accepts_sends);
  }
  if (request.sync != Sync::Kind::automatic &&
      no_plan([&](const Plan& plan) { return adds_gradients_up(network, plan); })) {
    throw InputError("--sync", who, "accepted: with a strategy that sums gradients");
  }
  // 0 asks for no buckets, so that a plan without any obeys it.
  if (given("--bucket") && request.bucket != Bytes{0} &&
      no_plan([](const Plan& plan) { return !plan.buckets.empty(); })) {
    throw InputError("--bucket", who, "accepted: with a strategy that puts gradients in buckets");
  }
}

}  // namespace parsim::experiment
