#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

#include "app/verbs.hpp"
#include "core/dag_traffic.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/collective.hpp"
#include "experiment/communication.hpp"
#include "experiment/request.hpp"
#include "report/result_text.hpp"
#include "report/runs.hpp"
#include "sim/communication_sources.hpp"
#include "sim/nccl.hpp"
#include "sim/sim.hpp"

namespace parsim::app {

namespace {

constexpr std::string_view send_receive = "send-receive";

std::vector<Bytes> chosen_sizes(const experiment::Request& request) {
  const experiment::CollectiveOptions& asked = request.collective;
  if (!request.given.contains("--sizes")) {
    return {asked.size.value_or(experiment::default_payload)};
  }
  if (asked.size) {
    throw InputError("--sizes", "given together with --size", "accepted: one of the two");
  }
  return experiment::parse_sizes(asked.sizes);
}

std::vector<DeviceId> chosen_devices(std::optional<std::int64_t> asked, const Cluster& cluster) {
  std::vector<DeviceId> gpus = devices_of(cluster, DeviceKind::gpu);
  const auto count = static_cast<std::int64_t>(gpus.size());
  if (count < 2) {
    throw InputError("--cluster",
                     fmt::format("'{}' has {}", cluster.name, count == 1 ? "1 GPU" : "no GPU"),
                     "accepted: a cluster with at least two GPUs");
  }
  const std::int64_t used = asked.value_or(count);
  gpus.resize(static_cast<std::size_t>(parse_whole(std::to_string(used), "--devices", 2, count)));
  return gpus;
}

report::TableCell scaled(double value, double unit) {
  return {three_digits(value / unit), report::exact(value)};
}

/// A time and how the collective ran.
struct CollectiveRow {
  experiment::CollectiveTime time;
  sim::CollectiveRun run;
};

struct SizeRow {
  CollectiveRow row{};
  std::optional<sim::Engine> engine{};
};
void fields(auto& visit, json::Of<SizeRow> auto& row) {
  visit("size_bytes", row.row.time.size.value, report::any_count);
  visit("time_s", row.row.time.time.count(), report::any_count);
  visit("algbw_bytes_per_s", row.row.time.algorithm_rate.value, report::any_count);
  visit("busbw_bytes_per_s", row.row.time.bus_rate.value, report::any_count);
  visit("algorithm", row.row.run.algorithm);
  visit("protocol", row.row.run.protocol);
  visit("engine", row.engine, json::Rule("null with --fidelity analytic", "auto"));
}
struct CollectiveResults {
  std::size_t devices = 0;
  std::vector<SizeRow> results{};
  report::InputsText inputs{};
};
void fields(auto& visit, json::Of<CollectiveResults> auto& rows) {
  visit("devices", rows.devices, json::Rule({2, json::any_integer.most}, "that take part"));
  visit("results", rows.results, "one of each size");
  visit("version", report::version());
  visit("inputs", rows.inputs);
}

report::Document report(const experiment::Request& request, const Cluster& cluster,
                        std::size_t devices, const sim::SimOptions& options,
                        const std::vector<CollectiveRow>& rows) {
  const std::string& kind = request.collective.kind;
  CollectiveResults all{devices, {}, report::inputs_of(request)};
  const bool analytic = options.fidelity == sim::Fidelity::analytic;
  const std::string engine(analytic ? "" : to_text(options.engine));
  for (const auto& [row, run] : rows) {
    all.results.push_back(
        {{row, run}, analytic ? std::nullopt : std::optional<sim::Engine>(options.engine)});
  }
  report::Document document;
  document.head = {fmt::format("{} over {} devices of {}: {}", kind, devices, cluster.name,
                               experiment::communication_model(options, cluster))};
  // Fixed units, as nccl-tests prints them: the rows span nine orders of magnitude.
  report::Table table;
  std::vector<report::TableCell> sizes, times, algorithm_rates, bus_rates, algorithms, protocols,
      engines;
  for (const auto& [row, run] : rows) {
    sizes.push_back(report::TableCell::word(fmt::format("{}", row.size.value)));
    times.push_back(scaled(row.time.count(), 1e-6));
    algorithm_rates.push_back(scaled(row.algorithm_rate.value, 1e9));
    bus_rates.push_back(scaled(row.bus_rate.value, 1e9));
    algorithms.push_back(report::TableCell::word(run.algorithm));
    protocols.push_back(report::TableCell::word(run.protocol));
    engines.push_back(report::TableCell::word(engine));
  }
  report::add_column(table, {"size [B]", "size_bytes"}, std::move(sizes));
  report::add_column(table, {"time [us]", "time_s"}, std::move(times));
  report::add_column(table, {"algbw [GB/s]", "algbw_bytes_per_s"}, std::move(algorithm_rates));
  report::add_column(table, {"busbw [GB/s]", "busbw_bytes_per_s"}, std::move(bus_rates));
  report::add_column(table, {"algorithm", "algorithm", false}, std::move(algorithms));
  report::add_column(table, {"protocol", "protocol", false}, std::move(protocols));
  report::add_column(table, {"engine", "engine", false, report::Audience::programs},
                     std::move(engines));
  document.tables = {std::move(table)};
  document.notes = {"self-checks passed at every size"};
  if (options.collectives == sim::CollectiveCost::measured &&
      rows.front().run.algorithm != "measured") {
    document.warnings.push_back(fmt::format(
        "no measured times of {} over {} on these machines: NCCL's model instead", kind, devices));
  }
  document.json = report::result_text(all);
  return document;
}

/// A message has no algorithm; its protocol follows from its size.
sim::CollectiveRun message_run(Bytes size, const sim::SimOptions& options) {
  const bool ideal = options.collectives == sim::CollectiveCost::ideal;
  return {"message", ideal ? "ideal" : std::string(to_text(sim::message_protocol(size)))};
}

void check_messages(const sim::SimOptions& options) {
  if (!options.algorithm && !options.protocol) return;
  throw InputError(options.algorithm ? "--algorithm" : "--protocol",
                   "unused by send-receive, whose protocol follows from the size",
                   "accepted: with a collective");
}

}  // namespace

std::string collective_schema() {
  return json::schema_of_file<CollectiveResults>("What parsim collective --json prints");
}

const std::vector<std::string>& collective_words() {
  static const std::vector<std::string> words = [] {
    const auto kinds = spellings_of<CollectiveKind>();
    std::vector<std::string> all(kinds.begin(), kinds.end());
    all.emplace_back(send_receive);
    return all;
  }();
  return words;
}

Outcome run_collective(const experiment::Arguments& arguments) {
  const std::string& word = arguments.words.at(0);
  const std::optional<CollectiveKind> kind = from_text<CollectiveKind>(word);
  if (!kind && word != send_receive)
    experiment::refuse_word(word, "collective", collective_words());
  experiment::Request request = experiment::read_options(arguments);
  request.collective.kind = word;
  const std::vector<Bytes> sizes = chosen_sizes(request);
  sim::SimOptions options = request.sim;
  if (options.engine == sim::Engine::automatic) options.engine = sim::Engine::simgrid;
  if (request.cluster.empty()) {
    throw InputError("--cluster", "missing",
                     "accepted: a name, a generator call (see 'parsim list clusters') or a file");
  }
  std::vector<std::string> warnings;
  const Cluster cluster =
      experiment::load_cluster_with(request.cluster, request.overrides, "--cluster", &warnings);
  const std::vector<DeviceId> devices = chosen_devices(request.collective.devices, cluster);
  if (kind) {
    sim::check_collective(*kind, devices, cluster, options);
  } else {
    check_messages(options);
  }
  const std::unique_ptr<CostModel> cost = sim::make_tile_costs(cluster, options);
  const std::unique_ptr<Executor> executor = sim::make_simulator(cluster, *cost, options);
  std::vector<CollectiveRow> rows;
  for (const Bytes size : sizes) {
    const ExecDag dag = kind ? experiment::collective_dag(*kind, devices, size)
                             : experiment::send_receive_dag(devices, size);
    const double factor = kind ? bus_factor(*kind, devices.size()) : 1;
    rows.push_back({experiment::time_collective(dag, size, factor, {cluster, *cost, *executor}),
                    kind ? sim::collective_run(*kind, devices, size, cluster, options)
                         : message_run(size, options)});
  }
  if (kind) {
    const ExecDag dag = experiment::collective_dag(*kind, devices, sizes.back());
    const std::vector<Seconds> times(dag.size(), Seconds{1});
    const std::string assumed = experiment::assumed_machines(
        sim::communication_sources(dag, times, cluster, *cost, options));
    if (!assumed.empty()) warnings.push_back(assumed);
  }
  report::Document document = report(request, cluster, devices.size(), options, rows);
  document.warnings.insert(document.warnings.begin(), warnings.begin(), warnings.end());
  return {std::move(document), ExitCode::ok};
}

}  // namespace parsim::app
