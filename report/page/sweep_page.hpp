// The page of sweep --merge --report: the best point, what it changes with, and what failed.
// Self-contained, in the style of the other pages.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/document.hpp"
#include "report/sweep_rows.hpp"
#include "report/sweep_summary.hpp"

namespace parsim::report {

struct SweepPage {
  SweepRows& rows;
  const SweepSummary& summary;
  const Document& document;            ///< what goes to standard output
  std::vector<std::string> where;      ///< conditions, as given
  std::vector<std::string> pareto;     ///< columns of --pareto; empty: none
  std::size_t top = 10;                ///< rows listed
  std::vector<std::string> command{};  ///< as typed, without the program
};
[[nodiscard]] std::string render_sweep_page(const SweepPage& page);

/// The best value for each pair of values of two axes, as a coloured table; a sweep with one axis
/// has one row. Cells without a good row say why, their titles in full. Of an axis with many
/// values the best are drawn.
[[nodiscard]] std::string draw_heat_map(const SweepSummary& summary, std::size_t down,
                                        std::size_t across);
/// The axes that matter most, at most `most`: by how far the best of their values are apart.
[[nodiscard]] std::vector<std::size_t> main_axes(const SweepSummary& summary, std::size_t most);

/// Rows by two columns of the summary, those of the front numbered from 1 and joined by a line.
///
/// front   as SweepSummary::front() has it
[[nodiscard]] std::string draw_front(const SweepSummary& summary, std::size_t across,
                                     std::size_t up, const std::vector<std::size_t>& front);

}  // namespace parsim::report
