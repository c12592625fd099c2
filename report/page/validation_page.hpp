// The page of validate --report: predicted against measured, errors by set and by class of
// operations. Self-contained, in the style of the other page.
#pragma once

#include <string>
#include <vector>

#include "report/document.hpp"
#include "report/page/section.hpp"

namespace parsim::report {

/// The timelines of a step, predicted and measured.
struct BothTimelines {
  std::string name;  ///< network and strategy
  Bars bars;         ///< side_by_side
};
[[nodiscard]] std::string draw_both(const std::vector<BothTimelines>& steps,
                                    const Cluster& cluster);

/// The page of a validation's report.
///
/// document    the report on standard output; its JSON has the rows that are drawn
/// timelines   of draw_both(), or ""
/// command     as typed, without the program
[[nodiscard]] std::string render_validation_page(const Document& document,
                                                 const std::string& timelines,
                                                 const std::vector<std::string>& command);

}  // namespace parsim::report
