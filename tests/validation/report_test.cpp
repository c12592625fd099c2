// What 'validate' says of rows that were predicted, by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "report/page/validation_page.hpp"
#include "report/validation.hpp"
#include "tests/support/approx.hpp"

namespace parsim::report {
namespace {

using validation::ClaimOrigin;
using validation::ValidationRow;

ValidationRow row(const std::string& set, const std::string& name, double published,
                  double predicted, ClaimOrigin origin = ClaimOrigin::published) {
  ValidationRow row;
  row.claim.set = set;
  row.claim.name = name;
  row.claim.origin = origin;
  row.claim.quantity = "speedup";
  row.claim.expected = published;
  row.predicted = predicted;
  return row;
}

/// Rows with the sets that validate_claims() makes of them.
validation::Validation validated(const std::vector<ValidationRow>& rows) {
  std::vector<validation::Claim> claims;
  for (const ValidationRow& one : rows) claims.push_back(one.claim);
  return validation::validate_claims(claims, [&](const validation::Claim& claim) {
    const auto at = std::find_if(rows.begin(), rows.end(), [&](const ValidationRow& one) {
      return one.claim.set == claim.set && one.claim.name == claim.name;
    });
    validation::Prediction prediction;
    prediction.value = at->predicted;
    return prediction;
  });
}

std::vector<std::string> column(const Table& table, const std::string& key) {
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    if (table.columns[c].key != key) continue;
    std::vector<std::string> cells;
    for (const auto& row : table.rows) cells.push_back(row.at(c).text);
    return cells;
  }
  return {"no column " + key};
}

/// The numbers that follow `name` in a page, "cx=".
std::vector<double> numbers_after(const std::string& page, const std::string& name) {
  std::vector<double> numbers;
  for (std::size_t at = page.find(name); at != page.npos; at = page.find(name, at + 1)) {
    numbers.push_back(std::stod(page.substr(at + name.size(), 20)));
  }
  return numbers;
}

using Texts = std::vector<std::string>;

TEST_CASE("validation: errors of sets, then every row, what is our own after what is not") {
  const Document document = report_papers(
      validated({row("paper", "two", 2, 2.2), row("paper", "four", 4, 3),
                 row("paper", "ten", 10, 10), row("ours", "by hand", 5, 5.5, ClaimOrigin::own)}),
      {"{}"});
  REQUIRE(document.tables.size() == 4);
  CHECK(column(document.tables[0], "name") == Texts{"paper"});
  CHECK(column(document.tables[0], "rows") == Texts{"3"});
  CHECK(column(document.tables[0], "median_error") == Texts{"10.0 %"});  // of 10, 25 and 0
  CHECK(column(document.tables[0], "max_error") == Texts{"25.0 %"});
  CHECK(document.tables[1].title == "published and predicted");
  CHECK(column(document.tables[1], "case") == Texts{"two", "four", "ten"});
  CHECK(column(document.tables[1], "predicted") == Texts{"2.20", "3.00", "10.0"});
  CHECK(column(document.tables[1], "error") == Texts{"+10.0 %", "-25.0 %", "0.0 %"});
  CHECK(column(document.tables[2], "name") == Texts{"ours"});
  CHECK(column(document.tables[3], "case") == Texts{"by hand"});
}

TEST_CASE("validation page: what is not positive is drawn on even axes with a margin of 5 %") {
  // From 0 to 0.02: the axes go from -0.001 to 0.021, and the marks span 20 of their 22 parts.
  const Document document = report_papers(
      validated({row("paper", "one", 0.01, 0), row("paper", "two", 0.02, 0.02)}), {"{}"});
  const std::string page = render_validation_page(document, "", {"validate", "--papers"});
  const std::vector<double> x = numbers_after(page, "<circle cx="), y = numbers_after(page, " cy=");
  REQUIRE(x.size() == 2);
  REQUIRE(y.size() == 2);
  CHECK((y[0] - y[1]) / (x[1] - x[0]) == testing::approx(2).epsilon(0.01));
  // The diagonal goes from one end of the axes to the other.
  const std::vector<double> left = numbers_after(page, "<path class=ideal d=\"M");
  REQUIRE(left.size() == 1);
  const std::size_t line = page.find("<path class=ideal");
  const double right = numbers_after(page.substr(line, page.find('>', line) - line), "L").at(0);
  CHECK((x[1] - x[0]) / (right - left[0]) == testing::approx(10.0 / 22).epsilon(0.01));
}

}  // namespace
}  // namespace parsim::report
