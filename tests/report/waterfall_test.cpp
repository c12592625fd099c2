#include "report/waterfall.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

namespace parsim::report {
namespace {

TEST_CASE("waterfall: parts of the step, their sum so far and their shares, by hand") {
  experiment::Waterfall parts{};
  parts[static_cast<std::size_t>(experiment::StepPart::peak)] = Seconds{1};
  parts[static_cast<std::size_t>(experiment::StepPart::optimizer)] = Seconds{0.5};
  parts[static_cast<std::size_t>(experiment::StepPart::bubbles)] = Seconds{2.5};
  const Table table = waterfall_table(parts, Seconds{4});
  REQUIRE(table.rows.size() == 3);
  const auto column = [&](std::size_t c) {
    std::vector<std::string> texts;
    for (const auto& row : table.rows) texts.push_back(row.at(c).text);
    return texts;
  };
  using Texts = std::vector<std::string>;
  CHECK(column(0) == Texts{"model FLOPs at the peak", "optimizer", "bubbles"});
  CHECK(column(1) == Texts{"1.00", "0.500", "2.50"});
  CHECK(column(2) == Texts{"1.00", "1.50", "4.00"});
  CHECK(column(3) == Texts{"25.0 %", "12.5 %", "62.5 %"});
}

TEST_CASE("waterfall: a part below 1e-12 of the step is rounding, and no row") {
  experiment::Waterfall parts{};
  parts[static_cast<std::size_t>(experiment::StepPart::peak)] = Seconds{1};
  for (const double part : {1e-12, -1e-12, 0.9e-12, -0.9e-12, 0.0}) {
    CAPTURE(part);
    parts[static_cast<std::size_t>(experiment::StepPart::bubbles)] = Seconds{part};
    CHECK(waterfall_table(parts, Seconds{1}).rows.size() == (std::abs(part) == 1e-12 ? 2 : 1));
  }
}

}  // namespace
}  // namespace parsim::report
