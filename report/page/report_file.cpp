#include "report/page/report_file.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "experiment/upkeep.hpp"
#include "report/runs.hpp"

namespace parsim::report {

ReportFile::ReportFile(std::string path, std::string title, bool with_timeline)
    : path_(std::move(path)),
      title_(std::move(title)),
      with_timeline_(with_timeline),
      file_(std::make_unique<OutputFile>(path_, "--report")) {}

StrategySection ReportFile::section(const experiment::Experiment& experiment,
                                    const experiment::Run& run, const Plan& plan) {
  StrategySection section = make_section(experiment.cluster, run, plan, with_timeline_);
  const double goal =
      experiment::goal_of(experiment.request.objective, run.result.step_time, run.result.upkeep);
  if (run.result.fits() && goal < best_ && !is_latex(path_)) {
    best_ = goal;
    section.helps = experiment::what_would_help(experiment, run);
  }
  return section;
}

void ReportFile::write(const experiment::Experiment& experiment, Document& document,
                       const std::vector<experiment::RunResult>& results,
                       std::vector<StrategySection> sections, const experiment::Scaling* scaling) {
  Page page{experiment, document, {}, title_, scaling};
  for (const experiment::RunResult& result : results) {
    const auto found = std::find_if(
        sections.begin(), sections.end(),
        [&](const StrategySection& section) { return section.result.strategy == result.strategy; });
    if (found == sections.end()) {
      page.sections.emplace_back();
    } else {
      page.sections.push_back(std::move(*found));
    }
    page.sections.back().result = result;
  }
  file_->commit(is_latex(path_) ? latex_table(document, results) : render_page(page));
  document.notes.push_back(fmt::format("report written to {}", shown_path(path_)));
}

std::optional<ReportFile> report_file(const experiment::Arguments& arguments) {
  const std::optional<std::string> path = arguments.text("--report");
  const bool page = path && !is_latex(*path);
  if (arguments.has("--no-timeline") && !page) {
    throw InputError("--no-timeline", "no page is written", "accepted: with the page of --report");
  }
  if (arguments.has("--title") && !page) {
    throw InputError("--title", "no page is written", "accepted: with the page of --report");
  }
  if (!path) return std::nullopt;
  return ReportFile(*path, arguments.text("--title").value_or(""),
                    page && !arguments.has("--no-timeline"));
}

}  // namespace parsim::report
