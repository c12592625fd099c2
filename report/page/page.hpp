// The report as one HTML page that needs nothing else: no library, no network, no script but for
// sorting and zooming.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiment/request.hpp"
#include "experiment/scaling.hpp"
#include "report/document.hpp"
#include "report/page/chapter.hpp"

namespace parsim {

struct Page {
  const Scene& scene;
  const Document& document;          ///< the report that goes to standard output
  std::vector<Chapter> chapters;     ///< in the order of the rows
  std::string best;                  ///< the strategy to open the page with; "" for the first
  const Scaling* scaling = nullptr;  ///< none unless asked for
};
[[nodiscard]] std::string render_page(const Page& page);

/// What every page begins with, up to the title inside the open <header>. `title` is text of HTML.
[[nodiscard]] std::string page_head(const std::string& title, bool timelines);
/// What every page ends with: the command as a shell reads it, `more` below it, and the scripts
/// that sort tables and zoom.
[[nodiscard]] std::string page_end(const std::vector<std::string>& command, bool timelines,
                                   const std::string& more = {});
/// What the colours of timelines mean.
[[nodiscard]] std::string_view timeline_key();

}  // namespace parsim
