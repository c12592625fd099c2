// The reports of simulate and compare.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiment/experiment.hpp"
#include "experiment/run.hpp"
#include "experiment/scaling.hpp"
#include "report/document.hpp"
#include "report/launch.hpp"
#include "report/result_text.hpp"

namespace parsim::report {

/// "0.1.0".
[[nodiscard]] std::string version();
/// Of the repository that it was built from, with ".dirty" if files differed; empty if unknown.
[[nodiscard]] std::string commit();
/// "0.1.0+c5f74e9315aa": of two builds that may answer differently.
[[nodiscard]] std::string build_version();

/// One strategy in detail: its row, then the devices. `with_json`: of 100,000 devices JSON takes
/// longer than all else.
[[nodiscard]] Document report_simulation(const experiment::Experiment& experiment,
                                         const experiment::RunResult& result,
                                         bool with_json = true);
/// Why a comparison lacks rows: "interrupted", "stopped by --time-limit 10 s"; and whose.
struct Missing {
  std::string reason;
  std::vector<std::string> strategies{};  ///< none: the comparison is complete
};
/// All strategies as rows, in the order given. `best`: name of the fastest that fits, or "";
/// `scaling`: null without --scaling.
[[nodiscard]] Document report_comparison(const experiment::Experiment& experiment,
                                         const std::vector<experiment::RunResult>& results,
                                         const std::string& best,
                                         const experiment::Scaling* scaling,
                                         const Missing& missing = {});

/// One line about a row that is known while others are not.
[[nodiscard]] std::string known_line(const experiment::RunResult& result);

/// The columns of report_comparison's table that are for programs.
[[nodiscard]] Table comparison_table(const std::vector<experiment::RunResult>& results);

/// Steps with --jitter, one row per strategy.
[[nodiscard]] std::optional<Table> jitter_table(const experiment::Experiment& experiment,
                                                const std::vector<experiment::RunResult>& results);

/// What two jobs lose to each other; nothing without --beside.
[[nodiscard]] std::optional<Table> two_jobs_table(const experiment::RunResult& result);
/// What failures cost, one row per strategy; nothing without --checkpoint-write.
[[nodiscard]] std::optional<Table> goodput_table(const std::vector<experiment::RunResult>& results);

/// The first table in LaTeX, for a paper; needs booktabs. `results`: those of the rows.
[[nodiscard]] std::string latex_table(const Document& document,
                                      const std::vector<experiment::RunResult>& results);

/// JSON of the contract: one result, or {"results": […], "best": …}. `advice`: what would fit if
/// nothing does; else "".
[[nodiscard]] std::string simulation_json(const experiment::Experiment& experiment,
                                          const experiment::RunResult& result,
                                          const std::string& advice);
[[nodiscard]] std::string comparison_json(const experiment::Experiment& experiment,
                                          const std::vector<experiment::RunResult>& results,
                                          const std::string& best,
                                          const experiment::Scaling* scaling,
                                          const std::string& advice, const Missing& missing);
/// The question's notes, for a row of this strategy: those of a trainer's file only for its own.
[[nodiscard]] std::vector<std::string> question_notes(const experiment::Experiment& experiment,
                                                      std::string_view strategy);
/// The inputs of verbs that load no Experiment.
[[nodiscard]] InputsText inputs_of(const experiment::Request& request);
/// All inputs of a result, as JSON.
[[nodiscard]] std::string inputs_json(const experiment::Experiment& experiment);
/// Files that start a trainer with a plan, and the step that it is predicted to take.
struct LaunchResult {
  Trainer trainer = Trainer::megatron;
  std::string folder;
  Launch launch;
  Seconds step{};                    ///< of what the files carry
  std::optional<Seconds> planned{};  ///< the plan's own, if it is another
  std::string planned_with{};        ///< what it has instead
  std::string lacks{};               ///< "needs 2.10 GiB more (gpu3)" of a plan that does not fit
};
/// What the README of the folder says below the command: the predicted step, and what the files
/// leave out.
[[nodiscard]] std::string prediction_text(const LaunchResult& launch);
/// What a plan was written to; "" if not.
struct PlanFiles {
  std::string plan, dag, hgr;
  std::string smpi;    ///< a folder
  std::string chakra;  ///< a folder
  std::size_t smpi_ranks = 0, smpi_hosts = 0;
  std::string chakra_text{};  ///< what is in it
  std::optional<LaunchResult> launch{};
  [[nodiscard]] bool any() const {
    return !plan.empty() || !dag.empty() || !hgr.empty() || !smpi.empty() || !chakra.empty();
  }
};
/// The plan of a strategy, and the files it was written to. Without files the JSON is the plan
/// itself, else a summary.
[[nodiscard]] Document report_plan(const experiment::Experiment& experiment,
                                   const experiment::Planned& planned, const PlanFiles& files);
[[nodiscard]] std::string plan_summary_json(const experiment::Experiment& experiment,
                                            const experiment::Planned& planned,
                                            const PlanFiles& files);

/// JSON Schemas of the three.
[[nodiscard]] std::string simulate_schema();
[[nodiscard]] std::string compare_schema();
[[nodiscard]] std::string plan_summary_schema();

/// "gpu0, gpu1" or "gpu0 … gpu7 (8)": the devices of a layer, each once.
[[nodiscard]] std::string devices_text(const LayerPlan& layer, const Cluster& cluster);

}  // namespace parsim::report
