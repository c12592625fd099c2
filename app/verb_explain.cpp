#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>

#include "app/measured_rows.hpp"
#include "app/verbs.hpp"
#include "core/critical_chain.hpp"
#include "core/errors.hpp"
#include "experiment/comparison.hpp"
#include "experiment/explain.hpp"
#include "experiment/faster_links.hpp"
#include "experiment/progress.hpp"
#include "experiment/run.hpp"
#include "report/result_parts.hpp"
#include "report/result_text.hpp"
#include "report/runs.hpp"
#include "report/waterfall.hpp"
#include "strategies/price.hpp"

namespace parsim::app {

namespace {

/// What the chain's operations do, and where: "backward on gpu3", "all-reduce for gradients".
std::string kind_of_work(const ExecDag& dag, const Cluster& cluster, OpId id) {
  const OpRecord& record = dag.record(id);
  const auto on_device = [&](std::string_view what) {
    return fmt::format("{} on {}", what, cluster[DeviceId{record.device}].name);
  };
  const Stream stream = dag.stream(id);
  const bool between_stages = stream == Stream::pipeline || stream == Stream::pipeline_back;
  const bool of_gradients = stream == Stream::gradient || stream == Stream::replicas;
  // ZeRO's.
  const bool of_weights = of_gradients && dag.kind(id) == OpKind::collective &&
                          static_cast<CollectiveKind>(record.sub) == CollectiveKind::all_gather;
  const std::string_view purpose = of_weights       ? "weights"
                                   : of_gradients   ? "gradients"
                                   : between_stages ? "the pipeline"
                                                    : "layers' tensors";
  switch (dag.kind(id)) {
    case OpKind::compute: {
      const auto pass = static_cast<Pass>(record.sub);
      return on_device(pass == Pass::forward     ? "forward"
                       : pass == Pass::recompute ? "recompute"
                                                 : "backward");
    }
    case OpKind::update:
      return on_device("update");
    case OpKind::local:
      return on_device("additions");
    case OpKind::delay:
      return on_device("delay");
    case OpKind::transfer:
      return fmt::format("transfer for {}", purpose);
    case OpKind::collective:
      return fmt::format("{} for {}", to_text(static_cast<CollectiveKind>(record.sub)), purpose);
  }
  throw BrokenInvariant("an operation kind outside its enum");
}

// An explanation should cost no more than what it explains, so it does not try everything.
constexpr std::size_t most_pairs = 100'000;  ///< layers x devices², for other splits of layers

/// Strategies that make a plan at once. The others search, most of them for pipelines, whose layers
/// are no other split of a plan of one stage.
constexpr std::array<std::string_view, 4> plan_at_once{"data", "model-even", "model", "owt"};

bool searches(const strategies::Strategy& strategy) {
  return std::find(plan_at_once.begin(), plan_at_once.end(), strategy.name) == plan_at_once.end();
}

struct Share {
  std::string what;
  Seconds time{};
  std::size_t operations = 0;
};

/// The chain's time by kind of work, longest first; what the operations leave is waiting
/// for a host's launches or samples.
std::vector<Share> shares_of_chain(const experiment::Run& run, const Cluster& cluster) {
  std::map<std::string, Share> by_work;
  Seconds filled{};
  for (const OpId id : critical_chain(run.dag, run.timeline, cluster.devices.size())) {
    const Span& span = run.timeline.spans[id.index()];
    const std::string what = kind_of_work(run.dag, cluster, id);
    Share& share = by_work.try_emplace(what, Share{what, {}, 0}).first->second;
    share.time += span.end - span.start;
    ++share.operations;
    filled += span.end - span.start;
  }
  std::vector<Share> shares;
  for (const auto& [what, share] : by_work) shares.push_back(share);
  const Seconds step = makespan(run.timeline);
  if (step - filled > 1e-9 * step) shares.push_back({"waiting for the host", step - filled, 0});
  std::stable_sort(shares.begin(), shares.end(),
                   [](const Share& a, const Share& b) { return a.time > b.time; });
  return shares;
}

report::Table table_of_chain(const std::vector<Share>& shares, Seconds step) {
  std::vector<std::string> words;
  std::vector<double> times;
  std::vector<report::TableCell> parts;
  for (const Share& share : shares) {
    words.push_back(share.what);
    times.push_back(share.time.count());
    const double part = share.time / step;
    parts.push_back({fmt::format("{:.1f} %", 100 * part), report::exact(part)});
  }
  report::Table table;
  table.title = "what bounds the step: the operations that followed one another to its end";
  report::add_words(table, "work", "work", words);
  report::add_numbers(table, "s", {{"time", "time_s", times}});
  report::add_column(table, {"share", "share"}, std::move(parts));
  return table;
}

report::Table table_of_layers(const experiment::Experiment& experiment, const Plan& plan,
                              const experiment::Explanation& explanation) {
  std::vector<std::string> names, splits, devices, alternatives;
  std::vector<double> work;
  std::vector<report::TableCell> changes;
  for (const experiment::LayerReason& reason : explanation.layers) {
    const LayerPlan& layer = plan.layers[reason.layer.index()];
    names.push_back(experiment.network[reason.layer].name);
    splits.push_back(experiment::split_text(layer));
    devices.push_back(report::devices_text(layer, experiment.cluster));
    work.push_back(reason.work.count());
    const bool none = reason.alternative.empty();
    alternatives.push_back(none ? "-" : reason.alternative);
    const double change = none ? 0 : reason.alternative_step / explanation.step - 1;
    changes.push_back(
        none ? report::TableCell{"-", ""}
             : report::TableCell{fmt::format("{:+.2f} %", 100 * change), report::exact(change)});
  }
  report::Table table;
  table.title = "layers";
  report::add_words(table, "layer", "layer", names);
  report::add_words(table, "split", "split", splits);
  report::add_words(table, "devices", "devices", devices);
  report::add_numbers(table, "s", {{"work", "work_s", work}});
  report::add_words(table, "best alternative", "alternative", alternatives);
  report::add_column(table, {"step with it", "alternative_change"}, std::move(changes));
  return table;
}

struct ChainRow {
  Share share{};
};
void fields(auto& visit, json::Of<ChainRow> auto& row) {
  visit("work", row.share.what);
  visit("time_s", row.share.time);
  visit("operations", row.share.operations, report::any_count);
}

struct LayerRow {
  std::string layer{}, split{};
  std::vector<std::string> devices{};
  Seconds work{};
  std::optional<std::string> alternative{};
  std::optional<Seconds> alternative_step{};
};
void fields(auto& visit, json::Of<LayerRow> auto& row) {
  visit("layer", row.layer);
  visit("split", row.split);
  visit("devices", row.devices);
  visit("work_s", row.work);
  visit("alternative", row.alternative);
  visit("alternative_step_s", row.alternative_step);
}

struct PartRow {
  experiment::StepPart part{};
  Seconds time{};
};
void fields(auto& visit, json::Of<PartRow> auto& row) {
  visit("part", row.part);
  visit("time_s", row.time, report::any_number);
}

/// Of the host that launches most.
struct LaunchesRow {
  std::string device{};
  double kernels = 0;
};
void fields(auto& visit, json::Of<LaunchesRow> auto& row) {
  visit("device", row.device);
  visit("kernels", row.kernels);
}

struct ExplainRow {
  report::SubjectRow subject{};
  Seconds step{};
  experiment::StepInterval interval{};
  std::vector<report::CalibratedRow> calibrated_by{};
  lowering::Verdict verdict{};
  Seconds estimated{};
  std::optional<Seconds> on_faster_links{};
  experiment::StepFlops flops{};
  std::vector<PartRow> waterfall{};
  std::vector<ChainRow> chain{};
  std::vector<LayerRow> layers{};
  LaunchesRow launches{};
  std::optional<report::GoodputRow> goodput{};
  std::vector<std::string> notes{};
  report::InputsText inputs{};
};
void fields(auto& visit, json::Of<ExplainRow> auto& row) {
  fields(visit, row.subject);
  visit("step_time_s", row.step);
  visit("interval_s", std::array{row.step * row.interval.low, row.step * row.interval.high},
        "90 % of measured steps are expected in it");
  visit("calibrated_by", row.calibrated_by, "rows of --calibrate-with that apply to the run");
  visit("fits", row.verdict != lowering::Verdict::over, "verdict is not over");
  visit("verdict", row.verdict, "tight: above 90 % of what headroom leaves");
  visit("estimated_step_time_s", row.estimated);
  visit("faster_links_step_s", row.on_faster_links,
        "simulated with every link twice as fast; longer than step_time_s: an anomaly");
  visit("model_flops", row.flops.model.value);
  visit("mfu", row.flops.mfu(row.step));
  visit("hfu", row.flops.hfu(row.step));
  visit("waterfall", row.waterfall,
        "means over the devices that compute, which add up to step_time_s: the model FLOPs at the "
        "peak, then what comes on top");
  visit("chain", row.chain, "time that the step waits, by kind");
  visit("layers", row.layers);
  visit("launches", row.launches, "of the device whose host launches most kernels in a step");
  visit.optional("goodput", row.goodput, "with --checkpoint-write");
  visit("notes", row.notes);
  visit("version", report::version());
  visit("inputs", row.inputs);
}

LaunchesRow most_launches(const experiment::Experiment& experiment, const ExecDag& dag) {
  const std::vector<double> launches =
      sim::launches(dag, experiment.step_cost(), experiment.cluster.devices.size());
  const auto most = std::max_element(launches.begin(), launches.end());
  const DeviceId device{static_cast<std::size_t>(most - launches.begin())};
  return {experiment.cluster[device].name, *most};
}

std::string json_of(const experiment::Experiment& experiment, const Plan& plan,
                    const experiment::Run& run, const experiment::Waterfall& parts,
                    const std::vector<Share>& shares, const experiment::Explanation& explanation,
                    const LaunchesRow& launches, std::optional<Seconds> on_faster_links) {
  ExplainRow row{report::subject_of(experiment, plan),
                 run.result.step_time,
                 run.result.interval,
                 report::calibrated_rows(experiment),
                 run.result.verdict(),
                 explanation.step,
                 on_faster_links,
                 run.result.flops,
                 {},
                 {},
                 {},
                 launches,
                 report::goodput_row(run.result),
                 plan.notes,
                 {report::inputs_json(experiment)}};
  for (std::string& note : report::question_notes(experiment, plan.strategy)) {
    row.notes.push_back(std::move(note));
  }
  for (std::size_t p = 0; p < parts.size(); ++p) {
    row.waterfall.push_back({static_cast<experiment::StepPart>(p), parts[p]});
  }
  for (const Share& share : shares) row.chain.push_back({share});
  for (const experiment::LayerReason& reason : explanation.layers) {
    const LayerPlan& layer = plan.layers[reason.layer.index()];
    LayerRow& added = row.layers.emplace_back();
    added.layer = experiment.network[reason.layer].name;
    added.split = experiment::split_text(layer);
    for (const DeviceId device : layer.devices) {
      added.devices.push_back(experiment.cluster[device].name);
    }
    added.work = reason.work;
    if (reason.alternative.empty()) continue;
    added.alternative = reason.alternative;
    added.alternative_step = reason.alternative_step;
  }
  return report::result_text(row);
}

/// Leaves the layers with the most work, in their order; ties go to earlier ones.
void keep_top(std::vector<experiment::LayerReason>& layers, std::size_t top) {
  std::vector<experiment::LayerReason> by_work = layers;
  std::stable_sort(by_work.begin(), by_work.end(),
                   [](const experiment::LayerReason& a, const experiment::LayerReason& b) {
                     return a.work > b.work;
                   });
  std::set<LayerId> kept;
  for (std::size_t i = 0; i < std::min(top, by_work.size()); ++i) kept.insert(by_work[i].layer);
  std::erase_if(layers,
                [&](const experiment::LayerReason& layer) { return !kept.contains(layer.layer); });
}

}  // namespace

Outcome run_explain(const experiment::Arguments& arguments) {
  const experiment::Request request = request_of_one_plan(arguments);
  const std::string name = request.strategies.empty() ? "best" : request.strategies.front();
  const strategies::Strategy* chosen = !request.layout_file.empty() ? &experiment::layout_strategy()
                                       : request.plan_file.empty()
                                           ? &experiment::named_strategy(request, name)
                                           : nullptr;
  const experiment::Experiment experiment(request);
  experiment::Planner planner(experiment);
  experiment::Progress progress(strategies::all().size(), arguments.has("--quiet"), arguments.poll);
  const std::size_t devices = devices_of(experiment.cluster, DeviceKind::gpu).size();
  const std::size_t layers = most_pairs / std::max<std::size_t>(1, devices * devices);
  const auto top =
      static_cast<std::size_t>(request.top.value_or(std::numeric_limits<std::int64_t>::max()));
  // The strategy 'best' starts from all others, if their searches do not take too long for it.
  const bool all = chosen != nullptr && chosen->plan == strategies::plan_best &&
                   !strategies::are_many_layers(experiment.strategy_input());
  std::vector<std::string> left_out;
  for (const strategies::Strategy& row : strategies::all()) {
    if (&row == chosen || row.plan == strategies::plan_best) continue;
    if (!all && (layers == 0 || searches(row))) {
      left_out.push_back(row.name);
      continue;
    }
    progress.next(row.name);
    try {
      (void)planner.plan(row, &progress);
    } catch (const InputError&) {  // no plan for this input
    }
  }
  const std::vector<Plan> others = planner.known();
  if (chosen != nullptr) progress.next(chosen->name);
  const experiment::Planned planned =
      chosen == nullptr ? experiment::Planned{*experiment.plan, experiment.preparation, {}}
                        : planner.plan(*chosen, &progress);
  if (chosen != nullptr) experiment::check_used(request, experiment.network, {&planned.plan, 1});
  const experiment::Run run = experiment::run_plan(experiment, planned);
  const std::vector<Share> shares = shares_of_chain(run, experiment.cluster);
  experiment::Explanation explanation =
      experiment::explain(experiment.strategy_input(), planned.plan, others, std::min(layers, top));
  keep_top(explanation.layers, top);

  report::Document document = report::report_simulation(experiment, run.result, false);
  const experiment::Waterfall parts =
      experiment::waterfall(run.dag, run.timeline, experiment.cluster);
  document.tables = {report::waterfall_table(parts, run.result.step_time),
                     table_of_chain(shares, run.result.step_time),
                     table_of_layers(experiment, planned.plan, explanation)};
  if (auto goodput = report::goodput_table({run.result})) {
    document.tables.push_back(std::move(*goodput));
  }
  document.notes.push_back(fmt::format(
      "a search estimates this plan at {:.4g} ms, with {:.4g} ms {}",
      explanation.step.count() * 1e3, run.result.step_time.count() * 1e3,
      experiment.request.sim.fidelity == sim::Fidelity::analytic ? "in closed form" : "simulated"));
  document.notes.push_back(
      "work: forward and backward of the layer's slowest device; step with it: estimated, if this "
      "one layer were split that way and all others stayed");
  const LaunchesRow launches = most_launches(experiment, run.dag);
  if (launches.kernels > 0) {
    // Without what it waits for its host now.
    const Seconds step =
        run.result.step_time - parts[static_cast<std::size_t>(experiment::StepPart::delays)];
    document.notes.push_back(fmt::format(
        "the host of {} launches {:.0f} kernels a step: if it takes longer than {:.3g} us for "
        "each, the step waits for it (--launch-interval)",
        launches.device, launches.kernels, step.count() * 1e6 / launches.kernels));
  }
  const bool gathers = std::any_of(planned.plan.layers.begin(), planned.plan.layers.end(),
                                   [](const LayerPlan& layer) { return layer.zero.stage == 3; });
  if (gathers) document.notes.emplace_back("estimates leave out gathering of split weights");
  if (layers == 0) {
    document.notes.push_back(
        fmt::format("other splits were not estimated: on {} devices each takes long", devices));
  } else if (layers < std::min(top, planned.plan.layers.size())) {
    document.notes.push_back(fmt::format(
        "other splits were estimated for the {} layers with the most work: on {} devices each "
        "takes long",
        layers, devices));
  }
  if (top < planned.plan.layers.size()) {
    document.notes.push_back(fmt::format("of {} layers the {} with the most work",
                                         planned.plan.layers.size(), explanation.layers.size()));
  }
  if (layers > 0 && !left_out.empty()) {
    document.notes.push_back(
        fmt::format("not asked for other splits, because they search: {}", join(left_out)));
  }
  if (run.timeline.merged_operations > 0) {
    document.notes.push_back(fmt::format(
        "{} operations, of which {} were simulated: each of the others is equal to one of them",
        run.result.operations, run.result.simulated_operations));
  }
  const std::optional<Seconds> on_faster_links = experiment::step_on_faster_links(experiment, run);
  // A step that they slow down says so already.
  const std::vector<std::string>& said = run.result.notes;
  const bool anomaly = std::any_of(said.begin(), said.end(), [](const std::string& note) {
    return note.starts_with(experiment::links_anomaly_begins);
  });
  if (on_faster_links && !anomaly) {
    document.notes.push_back(experiment::faster_links_text(run.result.step_time, *on_faster_links));
  }
  document.csv_table = 2;
  document.json =
      json_of(experiment, planned.plan, run, parts, shares, explanation, launches, on_faster_links);
  return {std::move(document), run.result.fits() ? ExitCode::ok : ExitCode::does_not_fit};
}

std::string explain_schema() {
  return json::schema_of_file<ExplainRow>("What parsim explain --json prints");
}

}  // namespace parsim::app
