#include "experiment/request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "core/text.hpp"
#include "experiment/communication.hpp"
#include "experiment/layer_times.hpp"

namespace parsim {

namespace {

constexpr std::pair<std::string_view, Precision> precisions[] = {{"fp32", Precision::fp32},
                                                                 {"tf32", Precision::tf32},
                                                                 {"fp16", Precision::fp16},
                                                                 {"bf16", Precision::bf16}};
constexpr std::pair<std::string_view, Precision> reduce_precisions[] = {
    {"fp32", Precision::fp32}, {"fp16", Precision::fp16}, {"bf16", Precision::bf16}};
constexpr std::pair<std::string_view, Optimizer> optimizers[] = {
    {"sgd", Optimizer::sgd}, {"momentum", Optimizer::momentum}, {"adam", Optimizer::adam}};
constexpr std::pair<std::string_view, Sync::Kind> syncs[] = {
    {"ring", Sync::Kind::ring}, {"ps", Sync::Kind::server}, {"auto", Sync::Kind::automatic}};
constexpr std::pair<std::string_view, PipelineSchedule> schedules[] = {
    {"gpipe", PipelineSchedule::gpipe}, {"1f1b", PipelineSchedule::one_f_one_b}};
constexpr std::pair<std::string_view, Fidelity> fidelities[] = {{"p2p", Fidelity::p2p},
                                                                {"hops", Fidelity::hops},
                                                                {"macro", Fidelity::macro},
                                                                {"analytic", Fidelity::analytic}};
constexpr std::pair<std::string_view, Engine> engines[] = {
    {"auto", Engine::automatic}, {"simgrid", Engine::simgrid}, {"fast", Engine::fast}};
constexpr std::pair<std::string_view, CollectiveCost> collective_costs[] = {
    {"nccl", CollectiveCost::nccl},
    {"ideal", CollectiveCost::ideal},
    {"measured", CollectiveCost::measured}};
constexpr std::pair<std::string_view, CollectiveKind> collective_kinds[] = {
    {"all-reduce", CollectiveKind::all_reduce},
    {"all-gather", CollectiveKind::all_gather},
    {"reduce-scatter", CollectiveKind::reduce_scatter},
    {"broadcast", CollectiveKind::broadcast},
    {"all-to-all", CollectiveKind::all_to_all}};
constexpr std::pair<std::string_view, NcclAlgorithm> nccl_algorithms[] = {
    {"ring", NcclAlgorithm::ring},
    {"tree", NcclAlgorithm::tree},
    {"nvls", NcclAlgorithm::nvls},
    {"nvls-tree", NcclAlgorithm::nvls_tree},
    {"pat", NcclAlgorithm::pat}};
constexpr std::pair<std::string_view, NcclProtocol> nccl_protocols[] = {
    {"ll", NcclProtocol::ll}, {"ll128", NcclProtocol::ll128}, {"simple", NcclProtocol::simple}};

constexpr std::pair<std::string_view, ShareRule> share_rules[] = {
    {"equal", ShareRule::equal}, {"proportional", ShareRule::proportional}};
constexpr std::pair<std::string_view, Rounding> roundings[] = {
    {"largest-remainder", Rounding::largest_remainder}, {"released", Rounding::released}};
constexpr std::pair<std::string_view, SearchCosts> search_costs[] = {
    {"own", SearchCosts::own},
    {"paper", SearchCosts::paper},
    {"paper-total", SearchCosts::paper_total}};
constexpr std::pair<std::string_view, DegreeRule> degree_rules[] = {
    {"dividing", DegreeRule::dividing}, {"any", DegreeRule::any}};
constexpr std::pair<std::string_view, Recompute> recomputations[] = {
    {"none", Recompute::none},
    {"attention", Recompute::attention},
    {"segments", Recompute::segments}};
/// Options that only some strategies read; the table of strategies says which.
constexpr std::string_view strategy_options[] = {"--shares",  "--rounding", "--search-costs",
                                                 "--degrees", "--parts",    "--tensor",
                                                 "--budget",  "--seed"};

// Keeps batch x activations x 8 bytes within 64 bits.
constexpr std::int64_t largest_batch = 1'000'000'000;
// Each is an operation per layer and pass; more would only look like a hang.
constexpr std::int64_t largest_micro_batches = 65'536;

constexpr std::int64_t largest_parts = 65'536, largest_budget = 1'000'000'000;

/// The word of a value in one of the tables above.
template <class Value, std::size_t count>
std::string word_of(Value value, const std::pair<std::string_view, Value> (&words)[count]) {
  for (const auto& [word, meaning] : words) {
    if (meaning == value) return std::string(word);
  }
  throw BrokenInvariant("every value of an option has a word");
}

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

/// Options that a plan file answers already.
constexpr std::string_view decided_by_plan[] = {
    "--strategy", "--batch",    "--precision",     "--optimizer", "--sync",
    "--server",   "--schedule", "--micro-batches", "--bucket",    "--seed",
    "--shares",   "--rounding", "--search-costs",  "--degrees",   "--parts",
    "--tensor",   "--budget",   "--recompute",     "--zero",      "--reduce-precision"};

/// Options that a layout file may decide; both at once is a misunderstanding.
constexpr std::string_view decided_by_layout[] = {"--micro-batches", "--schedule", "--zero",
                                                  "--recompute", "--shares"};

/// A layout leaves strategies nothing to choose, but 'compare' may have both.
void check_layout(const Arguments& arguments) {
  if (!arguments.has("--layout")) return;
  if (arguments.text("--layout") == "") {
    throw InputError("--layout", "the name is empty", "accepted: a TOML file");
  }
  for (const std::string_view flag : {"--plan", "--scaling"}) {
    if (arguments.has(flag)) {
      throw InputError("--layout", fmt::format("given together with {}", flag),
                       "accepted: one of the two");
    }
  }
  if (arguments.verb == "compare") return;
  for (const std::string_view flag : {"--strategy", "--rounding", "--search-costs", "--degrees",
                                      "--parts", "--tensor", "--budget"}) {
    if (arguments.has(flag)) {
      throw InputError(flag, "given together with --layout",
                       "accepted: one of the two, the layout decides it already");
    }
  }
}

void check_combinations(const Arguments& arguments, const Request& request) {
  check_layout(arguments);
  const bool planned = arguments.has("--plan");
  for (const std::string_view flag : decided_by_plan) {
    if (planned && arguments.has(flag)) {
      throw InputError(flag, "given together with --plan",
                       "accepted: one of the two, the plan decides it already");
    }
  }
  if (!planned && request.network.empty()) {
    throw InputError("--network", "missing",
                     "accepted: a name (see 'parsim list networks') or an ONNX file");
  }
  // A profile of kernels names its machine.
  const bool by_profile = !request.profile.empty() && !is_layer_times(request.profile);
  if (!planned && request.cluster.empty() && !request.hardware && !by_profile) {
    throw InputError("--cluster", "missing",
                     "accepted: a name, a generator call (see 'parsim list clusters') or a file");
  }
  for (const std::string_view flag :
       {"--hw-backend", "--hw-partition", "--hw-link", "--hw-measured"}) {
    if (arguments.has(flag) && !request.hardware) {
      throw InputError(flag, "unused without --hw", "accepted: together with --hw");
    }
  }
  if (request.zero_stage > 0 && request.sync == Sync::Kind::server) {
    throw InputError("--zero", "together with --sync ps, whose server has all states",
                     "accepted: one of them");
  }
  if (arguments.has("--slow") && arguments.has("--scaling")) {
    throw InputError("--slow", "together with --scaling, which leaves devices out",
                     "accepted: one of them");
  }
  for (const std::string_view flag : {"--slow", "--interference", "--launch-interval"}) {
    if (arguments.has(flag) && request.hardware) {
      throw InputError(flag, "together with --hw, whose devices nobody slows down",
                       "accepted: one of them");
    }
  }
  if (arguments.has("--runs") && request.jitter <= 0) {
    throw InputError("--runs", "unused without --jitter", "accepted: together with --jitter");
  }
  if (!request.server.empty() && request.sync != Sync::Kind::server) {
    throw InputError("--server", "unused without a parameter server",
                     "accepted: together with --sync ps");
  }
}

/// A size has a unit, a share is a bare number or in percent.
Headroom parse_headroom(const std::string& text) {
  constexpr double most = 0.9;
  Headroom headroom;
  if (text.ends_with('B')) {
    headroom.bytes = parse_bytes(text, "--headroom");
  } else {
    headroom.share = parse_share(text, "--headroom", 0, most, ", or a size, as in 2GiB");
  }
  return headroom;
}

/// An option that none of the strategies asked for reads is a misunderstanding.
void check_strategy_options(const Arguments& arguments, const Request& request) {
  for (const std::string_view flag : strategy_options) {
    if (!arguments.has(flag) || (flag == "--seed" && request.jitter > 0)) continue;
    std::vector<std::string> readers;
    bool used = false;
    for (const Strategy& entry : strategies()) {
      if (std::find(entry.options.begin(), entry.options.end(), flag) == entry.options.end()) {
        continue;
      }
      readers.push_back(entry.name);
      used |= request.strategies.empty() ||
              std::find(request.strategies.begin(), request.strategies.end(), entry.name) !=
                  request.strategies.end();
    }
    used |= !request.layout_file.empty() && flag == "--shares";
    if (!used) {
      throw InputError(flag, "unused by every strategy asked for",
                       fmt::format("accepted: with strategy {}", join(readers)));
    }
  }
}

}  // namespace

Request make_request(const Arguments& arguments) {
  Request request;
  request.verb = arguments.verb;
  request.command = arguments.command;
  request.network = arguments.text("--network").value_or("");
  request.cluster = arguments.text("--cluster").value_or("");
  request.dims = parse_dims(arguments.texts("--dim"));
  request.overrides = arguments.texts("--override");
  request.strategies = arguments.texts("--strategy");
  request.plan_file = arguments.text("--plan").value_or("");
  request.layout_file = arguments.text("--layout").value_or("");
  for (const std::string_view flag : decided_by_layout) {
    if (arguments.has(flag)) request.given.insert(flag);
  }
  request.batch = arguments.number("--batch", 1, largest_batch);
  if (const auto word = arguments.text("--precision")) {
    request.precision = parse_word(*word, "--precision", precisions);
  }
  // Engines on real hardware add up in the type that they compute in.
  if (arguments.has("--hw")) request.reduce_precision = storage_of(request.precision);
  if (const auto word = arguments.text("--reduce-precision")) {
    request.reduce_precision = parse_word(*word, "--reduce-precision", reduce_precisions);
  }
  if (const auto word = arguments.text("--optimizer")) {
    request.optimizer = parse_word(*word, "--optimizer", optimizers);
  }
  if (const auto word = arguments.text("--sync")) {
    request.sync = parse_word(*word, "--sync", syncs);
  }
  request.server = arguments.text("--server").value_or("");
  if (const auto count = arguments.number("--micro-batches", 1, largest_micro_batches)) {
    request.micro_batches = static_cast<std::int32_t>(*count);
  }
  if (const auto word = arguments.text("--schedule")) {
    request.schedule = parse_word(*word, "--schedule", schedules);
  }
  if (const auto size = arguments.text("--bucket")) {
    request.bucket = parse_bytes(*size, "--bucket");
  }
  if (const auto word = arguments.text("--recompute")) {
    request.recompute = parse_word(*word, "--recompute", recomputations);
  }
  if (const auto stage = arguments.number("--zero", 0, 3)) {
    request.zero_stage = static_cast<std::int32_t>(*stage);
  }
  if (const auto text = arguments.text("--headroom")) request.headroom = parse_headroom(*text);
  if (const auto word = arguments.text("--shares")) {
    request.shares = parse_word(*word, "--shares", share_rules);
  }
  if (const auto word = arguments.text("--rounding")) {
    request.rounding = parse_word(*word, "--rounding", roundings);
  }
  if (const auto word = arguments.text("--search-costs")) {
    request.search_costs = parse_word(*word, "--search-costs", search_costs);
  }
  if (const auto word = arguments.text("--degrees")) {
    request.degrees = parse_word(*word, "--degrees", degree_rules);
  }
  if (const auto count = arguments.number("--parts", 1, largest_parts)) {
    request.parts = static_cast<std::int32_t>(*count);
  }
  if (const auto count = arguments.number("--tensor", 1, largest_parts)) {
    request.tensor = static_cast<std::int32_t>(*count);
  }
  request.budget = arguments.number("--budget", 1, largest_budget);
  if (const auto name = arguments.text("--costs")) {
    request.costs = cost_source(*name, "--costs").name;
  }
  request.sim = parse_sim_options(arguments);
  request.collective_times = arguments.texts("--collective-times");
  if (const auto seed = arguments.number("--seed", 0, std::numeric_limits<std::int64_t>::max())) {
    request.seed = static_cast<std::uint64_t>(*seed);
  }
  request.timings = !arguments.has("--no-timings");
  request.wide = arguments.has("--wide");
  request.profile = arguments.text("--profile").value_or("");
  request.hardware = arguments.has("--hw");
  if (const auto text = arguments.text("--jitter")) {
    request.jitter = parse_share(*text, "--jitter", 1e-4, 1);
  }
  // Of fewer nobody can tell a spread.
  constexpr std::int64_t fewest_runs = 5, most_runs = 10'000;
  request.runs = arguments.number("--runs", fewest_runs, most_runs).value_or(request.runs);
  request.slow = arguments.texts("--slow");
  request.interference = arguments.texts("--interference");
  if (const auto text = arguments.text("--launch-interval")) {
    request.sim.launch_interval = parse_seconds(*text, "--launch-interval");
    request.launch_interval_given = true;
  }
  check_combinations(arguments, request);
  check_strategy_options(arguments, request);
  return request;
}

std::map<std::string, std::int64_t> parse_dims(const std::vector<std::string>& texts) {
  std::map<std::string, std::int64_t> dims;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw InputError("--dim", fmt::format("'{}'", text), "accepted: NAME=NUMBER");
    }
    const std::string name = text.substr(0, equals);
    const std::int64_t value = parse_whole(std::string_view(text).substr(equals + 1),
                                           fmt::format("--dim {}", name), 1, largest_batch);
    if (!dims.emplace(name, value).second) {
      throw InputError("--dim", fmt::format("'{}' given twice", name), "accepted: once");
    }
  }
  return dims;
}

NcclVersion parse_nccl_version(std::string_view text, std::string_view where) {
  const std::size_t dot = text.find('.');
  const std::size_t end = dot == text.npos ? dot : text.find('.', dot + 1);
  if (dot == text.npos || text.substr(0, dot) != "2") {
    throw InputError(std::string(where), fmt::format("'{}'", text),
                     "accepted: a version from 2.0 on, as in 2.18 or 2.18.6");
  }
  constexpr std::int64_t most = 99;
  const std::size_t length = end == text.npos ? text.npos : end - dot - 1;
  return {2, static_cast<std::int32_t>(parse_whole(text.substr(dot + 1, length), where, 0, most))};
}

SimOptions parse_sim_options(const Arguments& arguments) {
  SimOptions sim;
  if (const auto word = arguments.text("--fidelity")) {
    sim.fidelity = parse_word(*word, "--fidelity", fidelities);
  }
  sim.engine = Engine::automatic;
  if (const auto word = arguments.text("--engine")) {
    sim.engine = parse_word(*word, "--engine", engines);
    if (sim.fidelity == Fidelity::analytic) {
      throw InputError("--engine", "unused by formulas",
                       "accepted: with --fidelity p2p, hops or macro");
    }
  }
  sim.merge = !arguments.has("--every-rank");
  if (!sim.merge && (sim.fidelity == Fidelity::p2p || sim.fidelity == Fidelity::analytic)) {
    throw InputError("--every-rank", "every device is simulated anyway",
                     "accepted: with --fidelity hops or macro");
  }
  // Message by message there is no library: its costs are those of whole collectives.
  sim.collectives = sim.fidelity == Fidelity::p2p ? CollectiveCost::ideal : CollectiveCost::nccl;
  if (const auto word = arguments.text("--collectives")) {
    sim.collectives = parse_word(*word, "--collectives", collective_costs);
    if (sim.fidelity == Fidelity::p2p && sim.collectives != CollectiveCost::ideal) {
      throw InputError("--collectives", fmt::format("'{}' message by message", *word),
                       "accepted: ideal with --fidelity p2p");
    }
  }
  if (const auto word = arguments.text("--algorithm")) {
    sim.algorithm = parse_word(*word, "--algorithm", nccl_algorithms);
  }
  if (const auto word = arguments.text("--protocol")) {
    sim.protocol = parse_word(*word, "--protocol", nccl_protocols);
  }
  if (const auto word = arguments.text("--nccl-version")) {
    sim.nccl_version = parse_nccl_version(*word, "--nccl-version");
  }
  for (const std::string_view flag : {"--algorithm", "--protocol", "--nccl-version"}) {
    if (arguments.has(flag) && sim.collectives != CollectiveCost::nccl) {
      throw InputError(flag, fmt::format("unused by {} collectives", to_text(sim.collectives)),
                       "accepted: with --collectives nccl");
    }
  }
  const std::vector<std::string> files = arguments.texts("--collective-times");
  if (files.empty() != (sim.collectives != CollectiveCost::measured)) {
    throw InputError("--collective-times",
                     files.empty() ? "missing" : "unused unless collectives are measured",
                     "accepted: together with --collectives measured");
  }
  sim.tables = read_collective_times(files);
  return sim;
}

void check_used(const Request& request, const Network& network, const std::vector<Plan>& plans) {
  const auto no_plan = [&](auto uses) { return std::none_of(plans.begin(), plans.end(), uses); };
  const std::string who = request.strategies.size() == 1
                              ? fmt::format("unused by strategy '{}'", request.strategies.front())
                              : std::string("unused by every strategy asked for");
  if (request.micro_batches && no_plan([&](const Plan& plan) {
        return plan.schedule.micro_batches == *request.micro_batches;
      })) {
    throw InputError(
        "--micro-batches", who,
        "accepted: with a strategy that makes a pipeline, or hybrid --parts 1, which adds up "
        "gradients of micro-batches");
  }
  if (request.schedule &&
      no_plan([](const Plan& plan) { return plan.schedule.micro_batches > 1; })) {
    throw InputError("--schedule", who,
                     "accepted: with a strategy that makes a pipeline of several micro-batches");
  }
  if (request.sync && *request.sync != Sync::Kind::automatic &&
      no_plan([&](const Plan& plan) { return adds_gradients_up(network, plan); })) {
    throw InputError("--sync", who, "accepted: with a strategy that adds gradients up");
  }
  // 0 asks for no buckets, so that a plan without any obeys it.
  if (request.bucket && request.bucket->value > 0 &&
      no_plan([](const Plan& plan) { return !plan.buckets.empty(); })) {
    throw InputError("--bucket", who, "accepted: with a strategy that puts gradients in buckets");
  }
}

CollectiveKind parse_collective(std::string_view word, std::string_view where) {
  return parse_word(word, where, collective_kinds);
}

std::optional<CollectiveKind> parse_exchange(std::string_view word, std::string_view where) {
  constexpr std::size_t count = std::size(collective_kinds);
  std::pair<std::string_view, std::optional<CollectiveKind>> exchanges[count + 1];
  std::copy(std::begin(collective_kinds), std::end(collective_kinds), exchanges);
  exchanges[count] = {"send-receive", std::nullopt};
  return parse_word(word, where, exchanges);
}

PipelineSchedule parse_schedule(std::string_view word, std::string_view where) {
  return parse_word(word, where, schedules);
}
Recompute parse_recompute(std::string_view word, std::string_view where) {
  return parse_word(word, where, recomputations);
}
ShareRule parse_share_rule(std::string_view word, std::string_view where) {
  return parse_word(word, where, share_rules);
}

std::string to_text(Sync::Kind kind) { return word_of(kind, syncs); }
std::string to_text(PipelineSchedule schedule) { return word_of(schedule, schedules); }
std::string to_text(Recompute recompute) { return word_of(recompute, recomputations); }
std::string to_text(ShareRule rule) { return word_of(rule, share_rules); }
std::string to_text(Rounding rounding) { return word_of(rounding, roundings); }
std::string to_text(SearchCosts costs) { return word_of(costs, search_costs); }
std::string to_text(Fidelity fidelity) { return word_of(fidelity, fidelities); }
std::string to_text(Engine engine) { return word_of(engine, engines); }
std::string to_text(CollectiveCost cost) { return word_of(cost, collective_costs); }

}  // namespace parsim
