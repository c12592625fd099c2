// --report: the file is opened before the work starts and appears when the page is complete.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiment/files.hpp"
#include "experiment/options.hpp"
#include "report/page/page.hpp"

namespace parsim {

class ReportFile {
 public:
  /// Throws InputError if the file cannot be written.
  ReportFile(std::string path, bool with_timeline);

  [[nodiscard]] Chapter chapter(const Scene& scene, const Run& run, const Plan& plan) const;
  /// Writes the page and notes in the document that it is there. Rows without a chapter get one
  /// that says why there is no plan.
  void write(const Scene& scene, Document& document, const std::vector<RunResult>& results,
             std::vector<Chapter> chapters, const Scaling* scaling);

 private:
  std::string path_;
  bool with_timeline_;
  std::unique_ptr<OutputFile> file_;
};

/// Nothing if no report is asked for. Throws InputError for --no-timeline without --report.
[[nodiscard]] std::optional<ReportFile> report_file(const Arguments& arguments);

}  // namespace parsim
