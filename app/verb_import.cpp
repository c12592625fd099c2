// The verb import: a measured step of a profiler's trace against the predicted one, and its kernels
// as a profile.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "app/measured_rows.hpp"
#include "app/verbs.hpp"
#include "core/errors.hpp"
#include "core/files.hpp"
#include "experiment/comparison.hpp"
#include "experiment/measured_step.hpp"
#include "experiment/utilization.hpp"
#include "report/result_parts.hpp"
#include "report/result_text.hpp"
#include "report/runs.hpp"
#include "topologies/topologies.hpp"

namespace parsim::app {

namespace {

using experiment::GpuPart;
using experiment::MeasuredStep;
using experiment::ShapeTimes;

constexpr std::int64_t shapes_by_default = 10;
constexpr std::int64_t levels_by_default = 2, deepest = 64;  ///< of modules
constexpr double shown_share = 0.01;  ///< of the difference; smaller parts are in the table only

/// The parts in words, in the order of the enum.
constexpr std::array<std::string_view, experiment::gpu_part_count> part_words{
    "matrix products",
    "attention",
    "element-wise and norms",
    "optimizer",
    "other kernels and copies",
    "exposed communication",
    "idle"};

std::string_view words_of(GpuPart part) { return part_words[static_cast<std::size_t>(part)]; }

std::vector<GpuPart> all_parts() {
  std::vector<GpuPart> parts;
  for (std::size_t p = 0; p < experiment::gpu_part_count; ++p) {
    parts.push_back(static_cast<GpuPart>(p));
  }
  return parts;
}

/// "5.13 matrix products, 1.20 optimizer": those of one sign, largest first.
std::string list_of_points(const MeasuredStep& step, double sign) {
  std::vector<GpuPart> parts = all_parts();
  std::stable_sort(parts.begin(), parts.end(), [&](GpuPart a, GpuPart b) {
    return sign * step.points(a) > sign * step.points(b);
  });
  const double least = shown_share * std::abs(step.predicted_mfu - step.measured_mfu);
  std::vector<std::string> texts;
  for (const GpuPart part : parts) {
    const double points = sign * step.points(part);
    if (points <= 0 || points < least) continue;
    texts.push_back(fmt::format("{} {}", three_digits(100 * points), words_of(part)));
  }
  return join(texts);
}

/// "measured 41.2 % MFU (123 ms), predicted 52.0 % (97.4 ms): the missing points are …".
std::string answer(const MeasuredStep& step) {
  const auto both = [](double mfu, Seconds time, std::string_view unit) {
    const std::string ms = three_digits(time.count() * 1e3) + " ms";
    return mfu > 0 ? fmt::format("{} %{} ({})", three_digits(100 * mfu), unit, ms) : ms;
  };
  std::string text =
      fmt::format("measured {}, predicted {}", both(step.measured_mfu, step.measured, " MFU"),
                  both(step.predicted_mfu, step.predicted, ""));
  const double sign = step.measured_mfu <= step.predicted_mfu ? 1 : -1;
  const std::string cause = list_of_points(step, sign), against = list_of_points(step, -sign);
  if (!cause.empty()) {
    text += fmt::format(": the {} points are {}", sign > 0 ? "missing" : "gained", cause);
  }
  if (!cause.empty() && !against.empty()) {
    text += fmt::format("; {} {}", sign > 0 ? "won back:" : "lost again:", against);
  }
  return text;
}

report::Table table_of_parts(const MeasuredStep& step) {
  std::vector<std::string> names;
  std::vector<double> predicted, measured, difference;
  std::vector<report::TableCell> points;
  for (const GpuPart part : all_parts()) {
    const auto p = static_cast<std::size_t>(part);
    const Seconds before = step.predicted_parts[p], after = step.measured_parts[p];
    if (before == Seconds{} && after == Seconds{}) continue;
    names.emplace_back(words_of(part));
    predicted.push_back(before.count());
    measured.push_back(after.count());
    difference.push_back((after - before).count());
    const double share = step.points(part);
    points.push_back({fmt::format("{:+.3g}", -100 * share), report::exact(-share)});
  }
  report::Table table;
  table.title = "from the predicted step to the measured one";
  report::add_words(table, "part", "part", names);
  report::add_numbers(table, "s",
                      {{"predicted", "predicted_s", predicted},
                       {"measured", "measured_s", measured},
                       {"difference", "difference_s", difference}});
  report::add_column(table, {"MFU points", "mfu_points"}, std::move(points));
  return table;
}

report::Table table_of_shapes(const MeasuredStep& step, std::size_t most) {
  std::vector<std::string> shapes, passes, layers, calls;
  std::vector<double> predicted, measured, difference;
  const double none = std::nan("");
  for (std::size_t i = 0; i < std::min(most, step.shapes.size()); ++i) {
    const ShapeTimes& row = step.shapes[i];
    const bool planned = row.predicted_calls > 0, seen = row.measured_calls > 0;
    shapes.push_back(text_of(row.shape));
    passes.emplace_back(row.forward ? "forward" : "backward");
    layers.push_back(planned ? row.layer : "-");
    calls.push_back(fmt::format("{}/{}", row.predicted_calls, row.measured_calls));
    predicted.push_back(planned ? row.predicted.count() : none);
    measured.push_back(seen ? row.measured.count() : none);
    difference.push_back((row.measured - row.predicted).count());
  }
  report::Table table;
  table.title = "shapes with the largest differences: all calls of a step";
  report::add_words(table, "shape", "shape", shapes);
  report::add_words(table, "pass", "pass", passes);
  report::add_words(table, "first layer", "layer", layers);
  report::add_words(table, "calls", "calls", calls);
  report::add_numbers(table, "s",
                      {{"predicted", "predicted_s", predicted},
                       {"measured", "measured_s", measured},
                       {"difference", "difference_s", difference}});
  return table;
}

/// Largest differences first; what the plan does not have counts as 0.
report::Table table_of_modules(std::vector<experiment::ModuleTimes> modules, std::size_t most) {
  const auto difference_of = [](const experiment::ModuleTimes& row) {
    return row.measured - row.predicted.value_or(Seconds{});
  };
  std::stable_sort(modules.begin(), modules.end(),
                   [&](const experiment::ModuleTimes& a, const experiment::ModuleTimes& b) {
                     return std::abs(difference_of(a).count()) > std::abs(difference_of(b).count());
                   });
  modules.resize(std::min(most, modules.size()));
  std::vector<std::string> names;
  std::vector<double> predicted, measured, difference;
  for (const experiment::ModuleTimes& row : modules) {
    names.push_back(join(row.path, "/"));
    predicted.push_back(row.predicted ? row.predicted->count() : std::nan(""));
    measured.push_back(row.measured.count());
    difference.push_back(difference_of(row).count());
  }
  report::Table table;
  table.title = "modules with the largest differences: their kernels of a step, both passes";
  report::add_words(table, "module", "module", names);
  report::add_numbers(table, "s",
                      {{"predicted", "predicted_s", predicted},
                       {"measured", "measured_s", measured},
                       {"difference", "difference_s", difference}});
  return table;
}

struct GpuPartRow {
  GpuPart part{};
  Seconds predicted{}, measured{};
  double points = 0;
};
void fields(auto& visit, json::Of<GpuPartRow> auto& row) {
  visit("part", row.part);
  visit("predicted_s", row.predicted);
  visit("measured_s", row.measured);
  visit("mfu_points", row.points, report::any_number);
}

struct ShapeRow {
  ShapeTimes times{};
};
void fields(auto& visit, json::Of<ShapeRow> auto& row) {
  const ShapeTimes& times = row.times;
  visit("kind", times.shape.what);
  visit("extents", times.shape.extents, report::any_number);
  visit("pass", std::string(times.forward ? "forward" : "backward"));
  visit("layer", times.layer.empty() ? std::nullopt : std::optional(times.layer));
  visit("predicted_calls", times.predicted_calls, report::any_count);
  visit("measured_calls", times.measured_calls, report::any_count);
  visit("predicted_s", times.predicted);
  visit("measured_s", times.measured);
}

struct ModuleRow {
  experiment::ModuleTimes times{};
};
void fields(auto& visit, json::Of<ModuleRow> auto& row) {
  visit("path", join(row.times.path, "/"));
  visit("predicted_s", row.times.predicted);
  visit("measured_s", row.times.measured);
}

struct ImportRow {
  std::string trace{};
  report::SubjectRow subject{};
  std::string device{};
  MeasuredStep step{};
  std::vector<GpuPartRow> parts{};
  std::vector<ShapeRow> shapes{};
  std::vector<ModuleRow> modules{};
  std::optional<std::string> profile{};
  report::InputsText inputs{};
};
void fields(auto& visit, json::Of<ImportRow> auto& row) {
  visit("trace", row.trace);
  fields(visit, row.subject);
  visit("device", row.device);
  visit("steps", row.step.steps, report::from_one);
  visit("measured_step_time_s", row.step.measured, "the step of median length");
  visit("predicted_step_time_s", row.step.predicted);
  visit("measured_mfu", row.step.measured_mfu);
  visit("predicted_mfu", row.step.predicted_mfu);
  visit("parts", row.parts,
        "of the device; they add up to the two steps, and mfu_points to predicted less measured "
        "MFU");
  visit("shapes", row.shapes, "all calls of a shape and pass in a step, largest difference first");
  visit("modules", row.modules,
        "of Python, each without those that it calls; empty unless the trace has them");
  visit("unknown_shapes_s", row.step.unknown_shapes,
        "of measured calls that the plan does not have");
  visit("profile", row.profile);
  visit("kernels", row.step.profile.kernels.size(), report::any_count);
  visit("notes", row.step.notes);
  visit("version", report::version());
  visit("inputs", row.inputs);
}

/// The plan of the traced run: as asked, or data parallelism of one GPU.
experiment::Planned plan_of(const experiment::Experiment& experiment) {
  const experiment::Request& request = experiment.request;
  if (experiment.plan) return {*experiment.plan, experiment.preparation, {}};
  const bool one = devices_of(experiment.cluster, DeviceKind::gpu).size() == 1;
  if (request.strategies.empty() && request.layout_file.empty() && !one) {
    throw InputError("--strategy", "missing",
                     "accepted: the plan of the traced run, by --strategy with its degrees, "
                     "--layout or --plan");
  }
  const strategies::Strategy& chosen =
      !request.layout_file.empty()
          ? experiment::layout_strategy()
          : experiment::named_strategy(
                request, request.strategies.empty() ? "data" : request.strategies.front());
  experiment::Planned planned = experiment::make_plan(experiment, chosen);
  experiment::check_used(request, experiment.network, {&planned.plan, 1});
  return planned;
}

/// GPUs have the numbers of the job's ranks.
DeviceId traced_device(const Cluster& cluster, const experiment::KinetoTrace& trace,
                       const std::string& path) {
  const std::vector<DeviceId> gpus = devices_of(cluster, DeviceKind::gpu);
  const std::int64_t rank = trace.rank.value_or(0);
  if (rank >= 0 && rank < static_cast<std::int64_t>(gpus.size())) {
    return gpus[static_cast<std::size_t>(rank)];
  }
  throw InputError(path, fmt::format("the trace of rank {}", rank),
                   fmt::format("accepted: ranks 0 to {}, one for each GPU of '{}'", gpus.size() - 1,
                               cluster.name));
}

/// What speaks against the cluster: the trace is of another type of GPU, as far as types are known.
std::optional<std::string> other_gpu(const experiment::KinetoTrace& trace, const Cluster& cluster,
                                     DeviceId device) {
  const auto product = trace.products.find(trace.gpus.front());
  if (product == trace.products.end()) return std::nullopt;
  const std::string_view known = topologies::model_of_product(product->second);
  const std::string& model = cluster.model(device).name;
  if (known.empty() || known == model) return std::nullopt;
  return fmt::format("the trace is of '{}', that is {}, and compared with {}, a {}",
                     product->second, known, cluster[device].name, model);
}

/// The same of the number of GPUs in the job.
std::optional<std::string> other_size(const experiment::KinetoTrace& trace,
                                      const Cluster& cluster) {
  const std::size_t gpus = devices_of(cluster, DeviceKind::gpu).size();
  if (!trace.ranks || *trace.ranks == static_cast<std::int64_t>(gpus)) return std::nullopt;
  return fmt::format("the trace is of a job of {} ranks, and compared with a step of '{}', {} GPUs",
                     *trace.ranks, cluster.name, gpus);
}

void check_measured(const MeasuredStep& step, const Network& network, Precision precision,
                    const Cluster& cluster, const std::string& path) {
  if (step.measured_mfu <= experiment::highest_mfu(network, precision)) return;
  throw InputError(
      path,
      fmt::format("a step of {} ms, {} % MFU of {}", three_digits(step.measured.count() * 1e3),
                  three_digits(100 * step.measured_mfu), cluster.model(step.device).name),
      "accepted: network, batch, precision (tf32 where PyTorch has it on), cluster and "
      "plan of the traced run");
}

void add_notes(const MeasuredStep& step, const experiment::TraceSteps& trace,
               const std::optional<std::string>& profile, report::Document& document) {
  document.notes = step.notes;
  if (step.unknown_shapes > Seconds{}) {
    document.notes.push_back(
        fmt::format("{} ms of the measured step are calls of shapes that the plan does not have",
                    three_digits(step.unknown_shapes.count() * 1e3)));
  }
  if (step.steps < trace.annotated) {
    document.notes.push_back(
        fmt::format("{} of {} steps are complete: a step ends where the next one's first kernel "
                    "begins",
                    step.steps, trace.annotated));
  }
  document.notes.emplace_back(
      "parts: where kernels run at once, the first of the list counts; communication counts only "
      "while no kernel runs");
  if (profile) {
    document.notes.push_back(fmt::format("{} kernels written to {}; use them with --profile",
                                         step.profile.kernels.size(), shown_path(*profile)));
  }
}

}  // namespace

std::string import_schema() {
  return json::schema_of_file<ImportRow>("What parsim import --json prints");
}

Outcome run_import(const experiment::Arguments& arguments) {
  const std::vector<std::string> formats{"kineto"};
  if (arguments.words.at(0) != formats.front()) {
    experiment::refuse_word(arguments.words.at(0), "import", formats);
  }
  const std::string& path = arguments.words.at(1);
  experiment::Request request = request_of_one_plan(arguments);
  request.trace = path;
  const std::int64_t depth = arguments.number("--depth", 1, deepest).value_or(levels_by_default);
  std::optional<OutputFile> file;
  const std::optional<std::string> profile = arguments.text("-o");
  if (profile) file.emplace(*profile, "-o");

  const experiment::Experiment experiment(request);
  const experiment::KinetoTrace trace = experiment::read_kineto_trace(path);
  const DeviceId device = traced_device(experiment.cluster, trace, path);
  const experiment::TraceSteps steps = experiment::steps_of(trace);
  const experiment::Planned planned = plan_of(experiment);
  const experiment::Run run = experiment::run_plan(experiment, planned);
  MeasuredStep step =
      experiment::compare_with_trace(experiment, run, steps, device, shown_path(path));
  check_measured(step, experiment.network, planned.plan.precision, experiment.cluster,
                 shown_path(path));
  if (const auto other = other_gpu(trace, experiment.cluster, device)) step.notes.push_back(*other);
  if (const auto other = other_size(trace, experiment.cluster)) step.notes.push_back(*other);
  if (file) {
    if (step.profile.kernels.empty()) {
      throw InputError("-o", fmt::format("'{}' has no kernel of a shape that the plan has", path),
                       "accepted: the network, batch and plan of the traced run, and a trace with "
                       "record_shapes=True");
    }
    file->commit(to_json(step.profile));
  }

  Outcome outcome;
  report::Document& document = outcome.document;
  document.answer = {answer(step)};
  document.head = {fmt::format(
      "{} ({}) of {}, {}: the median of {} in {}", experiment.cluster[device].name,
      experiment.cluster.model(device).name, experiment.cluster.name, planned.plan.strategy,
      counted(static_cast<std::int64_t>(step.steps), "step"), shown_path(path))};
  const auto top = static_cast<std::size_t>(request.top.value_or(shapes_by_default));
  document.tables = {table_of_parts(step)};
  if (!step.shapes.empty()) document.tables.push_back(table_of_shapes(step, top));
  if (!step.modules.empty()) {
    document.tables.push_back(
        table_of_modules(grouped(step.modules, static_cast<std::size_t>(depth)), top));
  }
  document.warnings = experiment.warnings;
  add_notes(step, steps, profile, document);

  ImportRow row{path,
                report::subject_of(experiment, planned.plan),
                experiment.cluster[device].name,
                step,
                {},
                {},
                {},
                profile,
                {report::inputs_json(experiment)}};
  for (const GpuPart part : all_parts()) {
    const auto p = static_cast<std::size_t>(part);
    row.parts.push_back({part, step.predicted_parts[p], step.measured_parts[p], step.points(part)});
  }
  for (const ShapeTimes& times : step.shapes) row.shapes.push_back({times});
  for (const experiment::ModuleTimes& times : step.modules) row.modules.push_back({times});
  document.json = report::result_text(row);
  return outcome;
}

}  // namespace parsim::app
