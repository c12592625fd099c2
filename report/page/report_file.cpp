#include "report/page/report_file.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "report/runs.hpp"

namespace parsim::report {

ReportFile::ReportFile(std::string path, bool with_timeline)
    : path_(std::move(path)),
      with_timeline_(with_timeline),
      file_(std::make_unique<OutputFile>(path_, "--report")) {}

StrategySection ReportFile::section(const experiment::Experiment& experiment,
                                    const experiment::Run& run, const Plan& plan) const {
  return make_section(experiment.cluster, run, plan, with_timeline_);
}

void ReportFile::write(const experiment::Experiment& experiment, Document& document,
                       const std::vector<experiment::RunResult>& results,
                       std::vector<StrategySection> sections, const experiment::Scaling* scaling) {
  Page page{experiment, document, {}, scaling};
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
  if (!path) return std::nullopt;
  return ReportFile(*path, page && !arguments.has("--no-timeline"));
}

}  // namespace parsim::report
