// --report: the file is opened before the work starts and appears when the page is complete.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiment/files.hpp"
#include "experiment/options.hpp"
#include "report/page/page.hpp"

namespace parsim::report {

class ReportFile {
 public:
  /// Throws InputError if the file cannot be written.
  ReportFile(std::string path, bool with_timeline);

  [[nodiscard]] StrategySection section(const experiment::Experiment& experiment,
                                        const experiment::Run& run, const Plan& plan) const;
  /// Writes the page and adds its path to the notes of the document. Rows without a section get one
  /// with the reason why there is no plan.
  void write(const experiment::Experiment& experiment, Document& document,
             const std::vector<experiment::RunResult>& results,
             std::vector<StrategySection> sections, const experiment::Scaling* scaling);

 private:
  std::string path_;
  bool with_timeline_;
  std::unique_ptr<experiment::OutputFile> file_;
};

/// Nothing without --report. Throws InputError for --no-timeline without --report.
[[nodiscard]] std::optional<ReportFile> report_file(const experiment::Arguments& arguments);

}  // namespace parsim::report
