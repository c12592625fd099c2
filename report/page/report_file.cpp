#include "report/page/report_file.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "experiment/upkeep.hpp"
#include "report/runs.hpp"

namespace parsim::report {

ReportFile::ReportFile(std::string path, PageOptions options)
    : path_(std::move(path)),
      options_(std::move(options)),
      file_(std::make_unique<OutputFile>(path_, "--report")) {}

StrategySection ReportFile::section(const experiment::Experiment& experiment,
                                    const experiment::Run& run, const Plan& plan) {
  StrategySection section = make_section(experiment.cluster, run, plan, options_.timelines);
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
  Page page{experiment, document, {}, options_.title, scaling, {}};
  if (options_.what_ifs) page.what_ifs = experiment::what_if(experiment, results, options_.quiet);
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
  for (const char* flag : {"--no-timeline", "--no-what-if", "--title"}) {
    if (page || !(arguments.has(flag) || arguments.text(flag))) continue;
    throw InputError(flag, "no page is written", "accepted: with the page of --report");
  }
  if (!path) return std::nullopt;
  return ReportFile(
      *path, {arguments.text("--title").value_or(""), page && !arguments.has("--no-timeline"),
              page && arguments.verb == "compare" && !arguments.has("--no-what-if") &&
                  !arguments.has("--time-limit"),
              arguments.has("--quiet")});
}

}  // namespace parsim::report
