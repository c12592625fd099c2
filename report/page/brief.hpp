// The beginning of a page: what a reader decides by, before any table.
#pragma once

#include <string>

#include "report/page/page.hpp"

namespace parsim::report {

/// Seven answers in a sentence or two each: which plan, by how much, how surely, what bounds it,
/// whether it would fit half the memory, what would help, what to buy; five if it does not fit. ""
/// if no strategy has a plan.
[[nodiscard]] std::string brief_of(const Page& page);

/// What the GPUs of the type that computes most do longest, and what the average GPU does.
[[nodiscard]] std::string what_bounds(const StrategySection& section);

/// What faster hardware would bring to the first plan; "" if that was not asked.
[[nodiscard]] std::string help_of(const Page& page);
/// From the peak to the step of the first plan, compared with the next one.
[[nodiscard]] std::string why_of(const Page& page);

}  // namespace parsim::report
