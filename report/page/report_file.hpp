// --report: a page or a LaTeX table, opened before the work starts, there when it is complete.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/files.hpp"
#include "experiment/options.hpp"
#include "report/page/page.hpp"

namespace parsim::report {

/// True if `--report` of this name is a LaTeX table.
[[nodiscard]] inline bool is_latex(std::string_view path) { return path.ends_with(".tex"); }

/// What a page holds, beyond what it always does.
struct PageOptions {
  std::string title;
  bool timelines = true;
  bool what_ifs = false;  ///< plans for other clusters
  bool quiet = false;     ///< no progress while these are made
};

class ReportFile {
 public:
  /// Throws InputError if the file cannot be written.
  ReportFile(std::string path, PageOptions options);

  /// Of the best plan so far also what would help it.
  [[nodiscard]] StrategySection section(const experiment::Experiment& experiment,
                                        const experiment::Run& run, const Plan& plan);
  /// Writes the file and adds its path to the notes of the document. Rows without a section get one
  /// with the reason why there is no plan.
  void write(const experiment::Experiment& experiment, Document& document,
             const std::vector<experiment::RunResult>& results,
             std::vector<StrategySection> sections, const experiment::Scaling* scaling);

 private:
  std::string path_;
  PageOptions options_;
  double best_ = std::numeric_limits<double>::infinity();  ///< by --objective, of plans that fit
  std::unique_ptr<OutputFile> file_;
};

/// Nothing without --report. Throws InputError for --no-timeline without a page.
[[nodiscard]] std::optional<ReportFile> report_file(const experiment::Arguments& arguments);

}  // namespace parsim::report
