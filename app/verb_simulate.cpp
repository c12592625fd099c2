#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "app/cli.hpp"
#include "app/measured_rows.hpp"
#include "app/verbs.hpp"
#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/json.hpp"
#include "core/vocabulary.hpp"
#include "experiment/communication.hpp"
#include "experiment/comparison.hpp"
#include "experiment/files.hpp"
#include "experiment/hardware.hpp"
#include "experiment/lower_bound.hpp"
#include "experiment/many_messages.hpp"
#include "experiment/nearest_plan.hpp"
#include "experiment/progress.hpp"
#include "experiment/run.hpp"
#include "experiment/trainer_file.hpp"
#include "experiment/trainer_run.hpp"
#include "experiment/whole_dag.hpp"
#include "lowering/lower.hpp"
#include "report/chakra.hpp"
#include "report/dot.hpp"
#include "report/hardware.hpp"
#include "report/page/report_file.hpp"
#include "report/page/step_drawing.hpp"
#include "report/runs.hpp"
#include "report/trace.hpp"
#include "sim/smpi.hpp"
#include "strategies/hypergraph/exchange.hpp"

namespace parsim::app {

namespace {

/// The one strategy that simulate and plan want.
const strategies::Strategy& only_strategy(const experiment::Request& request) {
  if (!request.layout_file.empty()) return experiment::layout_strategy();
  if (request.strategies.size() != 1) {
    throw InputError("--strategy",
                     request.strategies.empty()
                         ? std::string("missing")
                         : fmt::format("given {} times", request.strategies.size()),
                     fmt::format("accepted: one name (see 'parsim list strategies'); 'parsim "
                                 "compare' takes several"));
  }
  return experiment::named_strategy(request, request.strategies.front());
}

experiment::Planned chosen_plan(const experiment::Experiment& experiment,
                                const strategies::Strategy* strategy, bool quiet) {
  if (strategy == nullptr) return {*experiment.plan, experiment.preparation};
  experiment::Progress progress(1, quiet, experiment.request.poll);
  progress.next(strategy->name);
  experiment::Planned planned = experiment::make_plan(experiment, *strategy, &progress);
  experiment::check_used(experiment.request, experiment.network, {&planned.plan, 1});
  progress.warn(
      experiment::warning_of_many_messages(experiment.network, experiment.cluster, planned.plan));
  return planned;
}

/// The Chrome trace of a run, and of the measured step if there is one.
std::string trace_text(const experiment::Experiment& experiment, const Plan& plan,
                       const experiment::Run& run, const experiment::HardwareRows* rows) {
  const bool measured = rows != nullptr && !rows->timelines.empty() && run.result.measured;
  std::vector<lowering::MemoryUse> memory;
  for (const experiment::DeviceResult& device : run.result.devices) memory.push_back(device.memory);
  return report::chrome_trace(run.dag, experiment.cluster, run.timeline,
                              measured ? &rows->timelines.front() : nullptr, memory,
                              plan.framework);
}

}  // namespace

Outcome run_simulate(const experiment::Arguments& arguments) {
  experiment::Request request = experiment::make_request(arguments);
  fit_measured_steps(request);
  const experiment::HardwareRequest hardware = experiment::hardware_request(request);
  const strategies::Strategy* strategy =
      request.plan_file.empty() ? &only_strategy(request) : nullptr;
  std::optional<OutputFile> trace;
  const std::string path = arguments.text("--trace").value_or("");
  if (arguments.has("--trace")) trace.emplace(path, "--trace");
  std::optional<report::ReportFile> report = report::report_file(arguments);

  const experiment::Answer<Machine> here =
      request.hardware ? experiment::probe_hardware(hardware) : experiment::Answer<Machine>{};
  request.machine = here.value;
  if (request.hardware && !here.value && request.cluster.empty() && request.profile.empty() &&
      request.plan_file.empty()) {
    return {report::report_no_hardware(here.refusal), ExitCode::hardware};
  }
  const experiment::Experiment experiment(request);
  const experiment::Planned planned = chosen_plan(experiment, strategy, arguments.has("--quiet"));
  const bool whole = trace || report || request.hardware;
  if (request.hardware) experiment::check_whole_dag(experiment, planned.plan, "--hw");
  if (trace) experiment::check_whole_dag(experiment, planned.plan, "--trace");
  if (report) experiment::check_whole_dag(experiment, planned.plan, "--report");
  if (!request.beside.empty()) experiment::check_whole_dag(experiment, planned.plan, "--beside");
  experiment::Run run = experiment::run_plan(
      experiment, planned, whole ? experiment::Operations::all : experiment::Operations::folded);
  run.result.trainers = report::trainer_words(experiment.network, experiment.cluster, planned.plan);
  experiment::check_algorithm_used(experiment.request, {&run.result, 1});
  experiment::bound_steps(experiment, {&run.result, 1});
  if (!request.beside.empty()) {
    run.result.two_jobs = experiment::run_with_job(experiment, planned.plan, request.beside);
    if (std::string assumed = run.result.two_jobs->assumed(); !assumed.empty()) {
      run.result.notes.push_back(std::move(assumed));
    }
  }
  std::optional<experiment::HardwareRows> rows;
  if (request.hardware) {
    std::vector<experiment::RunResult> results{run.result};
    rows = experiment::measure_rows(hardware, here, results, {run.dag});
    run.result = results[0];
  }
  report::Document document = report::report_simulation(
      experiment, run.result, rows || chosen_format(arguments).name == "json");
  if (rows) report::add_hardware(document, {run.result}, *rows);
  if (trace) {
    const std::string text =
        path.ends_with(".svg") ? report::step_drawing(experiment.cluster, run)
                               : trace_text(experiment, planned.plan, run, rows ? &*rows : nullptr);
    trace->commit(path.ends_with(".gz") ? experiment::gzip(text) : text);
    document.notes.push_back(fmt::format("trace written to {}", shown_path(path)));
  }
  if (report) {
    report->write(experiment, document, {run.result},
                  {report->section(experiment, run, planned.plan)}, nullptr);
  }
  if (rows && !rows->refusal.empty()) return {std::move(document), ExitCode::hardware};
  return {std::move(document), run.result.fits() ? ExitCode::ok : ExitCode::does_not_fit};
}

namespace {

/// Folders for files that are written together: those that are new go again unless keep() says that
/// the files are there.
class NewFolders {
 public:
  NewFolders() = default;
  ~NewFolders() {
    std::error_code ignored;
    for (auto path = made_.rbegin(); path != made_.rend(); ++path) {
      std::filesystem::remove(*path, ignored);
    }
  }
  NewFolders(const NewFolders&) = delete;
  NewFolders& operator=(const NewFolders&) = delete;
  void make(const std::string& path, std::string_view where) {
    if (experiment::make_folder(path, where)) made_.push_back(path);
  }
  void keep() { made_.clear(); }

 private:
  std::vector<std::string> made_;
};

void add_smpi(const sim::SmpiReplay& replay, const std::string& folder, NewFolders& folders,
              std::vector<FileContent>& files) {
  folders.make(folder, "--smpi");
  const auto write = [&](const std::string& name, const std::string& content) {
    files.push_back({OutputFile(folder + "/" + name, "--smpi"), content});
  };
  std::string names;
  for (std::size_t r = 0; r < replay.traces.size(); ++r) {
    const std::string name = fmt::format("rank{}.txt", r);
    write(name, replay.traces[r]);
    names += name + '\n';
  }
  write("platform.xml", replay.platform);
  write("hostfile", replay.hostfile);
  write("traces.txt", names);
}

/// "parsim.RANK.et" and the groups of ranks, as ASTRA-sim wants them.
std::string add_chakra(const report::ChakraTraces& traces, const std::string& folder,
                       NewFolders& folders, std::vector<FileContent>& files) {
  folders.make(folder, "--chakra");
  for (std::size_t r = 0; r < traces.ranks.size(); ++r) {
    files.push_back(
        {OutputFile(fmt::format("{}/parsim.{}.et", folder, r), "--chakra"), traces.ranks[r]});
  }
  files.push_back({OutputFile(folder + "/comm_group.json", "--chakra"), traces.groups});
  return fmt::format(
      "Chakra traces of {} written to {}: {} computations, {} sends, {} receives, {} parts of "
      "collectives",
      counted(std::ssize(traces.ranks), "rank"), shown_path(folder), traces.computes, traces.sends,
      traces.receives, traces.collectives);
}

std::optional<report::Trainer> trainer_of(const experiment::Arguments& arguments) {
  const std::optional<std::string> name = arguments.text("--launch");
  if (!name) return std::nullopt;
  const std::optional<report::Trainer> trainer = from_text<report::Trainer>(*name);
  if (!trainer) {
    std::vector<std::string> known;
    for (const std::string_view word : spellings_of<report::Trainer>()) known.emplace_back(word);
    experiment::refuse_word(*name, "--launch", known);
  }
  if (arguments.text("-o").value_or("").empty() || arguments.text("-o") == "-") {
    throw InputError("--launch", "without a folder for its files", "accepted: with -o DIR");
  }
  return trainer;
}

/// The plan as the trainer runs it.
Plan carried_by(report::Trainer trainer, const experiment::Experiment& experiment,
                const Plan& plan) {
  return experiment::run_by(to_text(trainer), experiment, plan);
}

/// The trainer's files. Of a plan that it cannot run, the refusal names the fastest of some that
/// it can.
///
/// step   of the plan as the trainer would run it
report::Launch launch_or_nearest(report::Trainer trainer, const experiment::Experiment& experiment,
                                 const Plan& plan, const std::function<Seconds()>& step) {
  report::check_training(trainer, plan.precision, plan.optimizer);
  const auto files = [&](const Plan& any) {
    return report::launch_files(trainer, experiment.network, experiment.cluster, any,
                                experiment.request.sim.fusion == sim::Fusion::compiled);
  };
  try {
    return files(plan);
  } catch (const InputError& refusal) {
    const auto accepted = [&](const Plan& other) -> std::optional<std::string> {
      try {
        (void)files(other);
        return std::nullopt;
      } catch (const InputError& again) {
        return again.accepted;
      }
    };
    const auto as_run = [&](const Plan& any) { return carried_by(trainer, experiment, any); };
    const auto nearest = experiment::nearest_plan(experiment, plan, accepted, as_run);
    if (!nearest) throw;
    throw InputError(
        refusal.where, refusal.found,
        fmt::format("{}; of {} tried, the fastest that it can run: {}, {} instead "
                    "of {}, both as it sends between stages",
                    refusal.accepted, counted(static_cast<std::int64_t>(nearest->tried), "plan"),
                    nearest->options, to_text(nearest->step), to_text(step())));
  }
}

report::LaunchResult launched(report::Trainer trainer, const std::string& folder,
                              const experiment::Experiment& experiment, const Plan& plan) {
  const auto run = [&](const Plan& any) {
    return experiment::run_plan(experiment, {any, {}, {}}, experiment::Operations::folded).result;
  };
  const auto as_run = [&] { return run(carried_by(trainer, experiment, plan)).step_time; };
  report::Launch files = launch_or_nearest(trainer, experiment, plan, as_run);
  const sim::Fusion fusion = experiment.request.sim.fusion;
  if (fusion != experiment::fusion_of_trainer(to_text(trainer)) &&
      (trainer != report::Trainer::torchtitan || fusion != sim::Fusion::compiled)) {
    files.not_carried.push_back(
        fmt::format("--fusion {}: the trainer, or its script, decides", to_text(fusion)));
  }
  const experiment::RunResult own = run(plan);
  report::LaunchResult result{trainer, folder, std::move(files)};
  const Plan carried = carried_by(trainer, experiment, plan);
  experiment::RunResult as_carried = carried == plan ? own : run(carried);
  std::vector<std::string> planned_with;
  if (as_carried.step_time != own.step_time) {
    const bool pipelines =
        trainer != report::Trainer::accelerate && trainer != report::Trainer::deepspeed;
    const bool groups = own.degrees.tp.value_or(1) > 1;
    planned_with.push_back(
        fmt::format("the gradient buckets{} of the plan", pipelines ? " and sends"
                                                          : groups  ? " and divided scores"
                                                                    : ""));
  }
  const std::int64_t words = vocabulary_of(experiment.network).value_or(0);
  if (words % result.launch.words_multiple != 0) {
    as_carried = experiment::run_padded(experiment, carried, result.launch.words_multiple);
    planned_with.push_back(fmt::format("a vocabulary of {} words", words));
  }
  result.step = as_carried.step_time;
  if (result.step != own.step_time) result.planned = own.step_time;
  result.planned_with = join(planned_with, " and ");
  if (!as_carried.fits()) result.lacks = experiment::memory_verdict(as_carried);
  for (report::LaunchFile& file : result.launch.files) {
    if (file.name == "README.md") file.text += report::prediction_text(result);
  }
  return result;
}

/// With the plan in the same folder.
void add_launch(const report::LaunchResult& result, const std::string& plan_path,
                const std::string& plan, NewFolders& folders, std::vector<FileContent>& files) {
  folders.make(result.folder, "-o");
  // --plan could not tell whose files count.
  for (const std::string_view name : experiment::trainer_files) {
    const std::string path = fmt::format("{}/{}", result.folder, name);
    const bool own = std::any_of(result.launch.files.begin(), result.launch.files.end(),
                                 [&](const report::LaunchFile& file) { return file.name == name; });
    if (own || !std::filesystem::exists(path)) continue;
    throw InputError("-o", fmt::format("'{}' is there, of another trainer", path),
                     "accepted: another folder, or one without it");
  }
  const std::string readme = result.folder + "/README.md";
  const bool ours = experiment::file_exists(readme) &&
                    read_file(readme, "-o").find("written by parsim") != std::string::npos;
  for (const report::LaunchFile& file : result.launch.files) {
    const std::string path = result.folder + "/" + file.name;
    if (!ours && std::filesystem::exists(path)) {
      throw InputError("-o", fmt::format("'{}' is there, not written by parsim", path),
                       "accepted: another folder, or one without it");
    }
    for (std::size_t at = file.name.find('/'); at != std::string::npos;
         at = file.name.find('/', at + 1)) {
      folders.make(result.folder + "/" + file.name.substr(0, at), "-o");
    }
    files.push_back({OutputFile(path, "-o", file.runs), file.text});
  }
  files.push_back({OutputFile(plan_path, "-o"), plan});
}

}  // namespace

Outcome run_plan_verb(const experiment::Arguments& arguments) {
  experiment::Request request = experiment::make_request(arguments);
  const strategies::Strategy* strategy =
      request.plan_file.empty() ? &only_strategy(request) : nullptr;
  report::PlanFiles files{arguments.text("-o").value_or(""), arguments.text("--dag").value_or(""),
                          arguments.text("--hgr").value_or(""),
                          arguments.text("--smpi").value_or(""),
                          arguments.text("--chakra").value_or("")};
  for (const std::string_view flag : {"-o", "--dag", "--hgr", "--chakra"}) {
    if (arguments.text(flag) == "") {
      throw InputError(flag, "the name is empty", "accepted: the name of a file to write");
    }
  }
  const std::optional<report::Trainer> trainer = trainer_of(arguments);
  if (trainer) {
    files.plan += "/plan.json";
    // A search that may choose has no use for plans that the trainer's files cannot say.
    if (!request.schedule) request.schedule = strategies::PipelineSchedule::one_f_one_b;
    // What accelerate's FSDP and DeepSpeed do, see report/launch_accelerate.cpp.
    const bool open = !request.given.contains("--reduce-precision") && strategy != nullptr &&
                      strategy->plan == strategies::plan_best && request.zero_stage.value_or(1) > 0;
    if (trainer == report::Trainer::accelerate && open) {
      // Without --precision the network decides, see choose_for_language_model.
      request.reduce_precision =
          storage_of(request.given.contains("--precision")
                         ? request.precision
                         : experiment::Experiment(request).request.precision);
    }
    request.launcher = to_text(*trainer);
    request.accepts = [to = *trainer](const Network& network, const Cluster& cluster,
                                      const Plan& plan) {
      return report::can_launch(to, network, cluster, plan);
    };
    if (!request.given.contains("--reduce-every")) {
      request.reduce_every = experiment::reduced_by(to_text(*trainer), ReduceEvery::automatic);
    }
    if (!request.given.contains("--fusion")) {
      // Asynchronous tensor parallelism of torchtitan compiles the model.
      const bool compiles = trainer == report::Trainer::torchtitan && request.tensor_overlap;
      request.sim.fusion =
          compiles ? sim::Fusion::compiled : experiment::fusion_of_trainer(to_text(*trainer));
    }
    if (!request.given.contains("--pipeline-sends")) {
      request.pipeline_sends = experiment::sends_of_trainer(to_text(*trainer), *request.schedule,
                                                            request.virtual_pipeline);
    }
  }
  if (arguments.has("--hgr") && (strategy == nullptr || strategy->name != "hypergraph")) {
    throw InputError("--hgr",
                     strategy == nullptr ? "together with --plan"
                                         : fmt::format("with strategy '{}'", strategy->name),
                     "accepted: with --strategy hypergraph");
  }
  std::optional<OutputFile> plan_file;
  std::optional<OutputFile> dag_file;
  std::optional<OutputFile> hgr_file;
  if (arguments.has("-o") && !trainer) plan_file.emplace(files.plan, "-o");
  if (arguments.has("--dag")) dag_file.emplace(files.dag, "--dag");
  if (arguments.has("--hgr")) hgr_file.emplace(files.hgr, "--hgr");

  const experiment::Experiment experiment(request);
  const sim::SimOptions options = experiment.step_options();
  if (arguments.has("--smpi")) {
    sim::check_smpi(options);
    // Now, not after a long search; writing makes it again.
    NewFolders().make(files.smpi, "--smpi");
  }
  if (arguments.has("--chakra")) NewFolders().make(files.chakra, "--chakra");
  if (trainer) {
    report::check_training(*trainer, experiment.request.precision, experiment.request.optimizer);
  }
  experiment::Planned planned = chosen_plan(experiment, strategy, arguments.has("--quiet"));
  planned.plan.network_fingerprint = fingerprint(experiment.network);
  for (const std::string_view flag : {"--dag", "--smpi", "--chakra"}) {
    if (arguments.has(flag)) experiment::check_whole_dag(experiment, planned.plan, flag);
  }
  const ExecDag dag = dag_file || arguments.has("--smpi")
                          ? lowering::lower(experiment.network, experiment.cluster, planned.plan)
                          : ExecDag{};
  std::string dag_text;
  if (dag_file) {
    dag_text = files.dag.ends_with(".dot") ? report::dot_of(dag, experiment.cluster) : to_json(dag);
  }
  NewFolders folders;
  std::vector<FileContent> written;  // all or none, whichever fails
  if (arguments.has("--smpi")) {
    const sim::SmpiReplay replay =
        sim::smpi_replay(dag, experiment.cluster, experiment.step_cost(), options);
    files.smpi_ranks = replay.traces.size();
    files.smpi_hosts = replay.hosts;
    add_smpi(replay, files.smpi, folders, written);
  }
  if (arguments.has("--chakra")) {
    const experiment::Run run = experiment::run_plan(experiment, planned);
    files.chakra_text = add_chakra(report::chakra_traces(run.dag, experiment.cluster, run.timeline),
                                   files.chakra, folders, written);
  }
  if (trainer) {
    files.launch = launched(*trainer, *arguments.text("-o"), experiment, planned.plan);
  }
  std::string plan_text = to_json(planned.plan);
  if (trainer) add_launch(*files.launch, files.plan, plan_text, folders, written);
  if (plan_file) written.push_back({std::move(*plan_file), plan_text});
  if (dag_file) written.push_back({std::move(*dag_file), std::move(dag_text)});
  if (hgr_file) {
    using strategies::hypergraph::HypergraphFormat;
    const bool patoh = files.hgr.ends_with(".u");
    written.push_back(
        {std::move(*hgr_file), strategies::hypergraph::exchanged_text(
                                   experiment.strategy_input(),
                                   patoh ? HypergraphFormat::patoh : HypergraphFormat::hmetis)});
  }
  keep_inputs(arguments, written);
  commit_all(written);
  folders.keep();
  Outcome outcome{report::report_plan(experiment, planned, files)};
  outcome.file = std::move(plan_text);
  return outcome;
}

}  // namespace parsim::app
