// The report as one self-contained HTML page: no library, no network access, scripts only for
// sorting and zooming.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiment/experiment.hpp"
#include "experiment/scaling.hpp"
#include "experiment/what_if.hpp"
#include "report/document.hpp"
#include "report/page/section.hpp"

namespace parsim::report {

struct Page {
  const experiment::Experiment& experiment;
  const Document& document;                      ///< the report that goes to standard output
  std::vector<StrategySection> sections;         ///< in the order of the rows
  std::string title;                             ///< "": network and cluster
  const experiment::Scaling* scaling = nullptr;  ///< null without --scaling
  experiment::WhatIfs what_ifs{};
};
[[nodiscard]] std::string render_page(const Page& page);

/// The text of a file that is built in, by the end of its path: "style.css".
[[nodiscard]] std::string_view file_named(std::string_view end);
/// The beginning of every page, up to the title inside the open <header>. `title` is HTML.
[[nodiscard]] std::string page_head(const std::string& title, bool timelines,
                                    std::string_view more_style = {});
/// "parsim compare --network 'a b'": the words quoted for a shell.
[[nodiscard]] std::string command_text(const std::vector<std::string>& words);
/// Lines as a list of this class; "" for none.
[[nodiscard]] std::string list_of(const std::vector<std::string>& lines, std::string_view css);
/// The end of every page: the command quoted for a shell, `more` below it, and the scripts that
/// sort tables and zoom.
[[nodiscard]] std::string page_end(const std::vector<std::string>& command, bool timelines,
                                   const std::string& more = {});
/// The legend of timelines.
[[nodiscard]] std::string_view timeline_key();

}  // namespace parsim::report
