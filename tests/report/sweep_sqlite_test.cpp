// Results of a sweep as a database, by SQLite's description of its files.
#include "report/sweep_sqlite.hpp"

#include <doctest/doctest.h>

#include <string>

#include "core/errors.hpp"
#include "report/sweep_rows.hpp"
#include "tests/support/program.hpp"

namespace parsim::report {
namespace {

/// A number whose highest byte comes first.
std::size_t number(const std::string& file, std::size_t at, std::size_t bytes) {
  std::size_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    value = 256 * value + static_cast<unsigned char>(file.at(at + i));
  }
  return value;
}

TEST_CASE("sweep: a database is a whole file of SQLite with every row") {
  const testing::TemporaryFolder folder;
  const std::string results = folder.write(
      "results.1-of-1.jsonl",
      R"({"sweep":"s","version":"v","points":2,"columns":["network"]})"
      "\n"
      R"({"point":0,"id":"first","nondeterministic":false,"inputs":{"network":"one"},"results":[)"
      R"({"strategy":"data","step_time_s":1.5,"fits":true,"error":null}],"error":null})"
      "\n"
      R"({"point":1,"id":"second","nondeterministic":false,"inputs":{"network":"two"},"results":[],)"
      R"("error":"no plan"})"
      "\n");
  SweepRows rows({results});
  if (!has_sqlite()) {
    CHECK_THROWS_AS(static_cast<void>(sqlite_of(rows)), InputError);
    return;
  }
  const std::string file = sqlite_of(rows);
  REQUIRE(file.size() > 100);
  CHECK(file.substr(0, 16) == std::string("SQLite format 3\0", 16));
  const std::size_t page_bytes = number(file, 16, 2), pages = number(file, 28, 4);
  CHECK(page_bytes * pages == file.size());
  CHECK(pages == 3);  // of what tables there are, and one for each of the two
  // The last page is that of the rows: a leaf of a table (13) with one cell for each.
  const std::size_t last = (pages - 1) * page_bytes;
  CHECK(number(file, last, 1) == 13);
  CHECK(number(file, last + 3, 2) == 2);
  for (const char* word : {"first", "second", "one", "two", "data", "no plan"}) {
    CAPTURE(word);
    CHECK(file.find(word, last) != std::string::npos);
  }
  CHECK(sqlite_of(rows) == file);
}

}  // namespace
}  // namespace parsim::report
