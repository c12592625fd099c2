#include "core/csv.hpp"

#include <doctest/doctest.h>

#include "core/errors.hpp"
#include "tests/support/refusal.hpp"

namespace parsim {
namespace {

TEST_CASE("csv: quotes, doubled quotes, lines within quotes, comments and both line ends") {
  const CsvTable table = read_csv(
      "# a comment\nname,value,note\r\n\"a, b\",1.5,\"said \"\"so\"\"\"\n\n# more\nc,,\"two\n"
      "lines\"\nd,2,last",
      "t.csv");
  CHECK(table.columns == std::vector<std::string>{"name", "value", "note"});
  REQUIRE(table.rows.size() == 3);
  CHECK(table.rows[0].fields == std::vector<std::string>{"a, b", "1.5", "said \"so\""});
  CHECK(table.rows[1].fields == std::vector<std::string>{"c", "", "two\nlines"});
  CHECK(table.rows[2].fields == std::vector<std::string>{"d", "2", "last"});
  CHECK(table.rows[0].line == 3);
  CHECK(table.rows[1].line == 6);
  CHECK(table.rows[2].line == 8);
  CHECK(table.at(table.rows[2], "note") == "last");
  CHECK(table.at(table.rows[2], "absent").empty());
  CHECK(table.has("value"));
  CHECK_FALSE(table.has("absent"));
  CHECK(table.number(table.rows[0], "value") == 1.5);
}

TEST_CASE("csv: a byte order mark belongs to no column") {
  const CsvTable table = read_csv("\xEF\xBB\xBFmodel,gpu\nalexnet,t4\n", "f.csv");
  CHECK(table.columns == std::vector<std::string>{"model", "gpu"});
}

TEST_CASE("csv: numbers are 0 or of a size that sums and quotients leave finite") {
  for (const char* text : {"inf", "-inf", "1e308", "1.1e24", "9e-19", "1e-320"}) {
    CAPTURE(text);
    const CsvTable table = read_csv(std::string("a\n") + text + "\n", "t.csv");
    CHECK(testing::refusal_of([&] { return table.number(table.rows[0], "a"); }) ==
          "t.csv:2:a: '" + std::string(text) + "'; accepted: 0, or a number of 1e-18 to 1e+24");
  }
  const CsvTable table = read_csv("a,b,c\n0,-1e24,1e-18\n", "t.csv");
  CHECK(table.number(table.rows[0], "a") == 0);
  CHECK(table.number(table.rows[0], "b") == -1e24);
  CHECK(table.number(table.rows[0], "c") == 1e-18);
}

TEST_CASE("csv: errors name the line") {
  const auto read = [](std::string_view text) { (void)read_csv(text, "t.csv"); };
  CHECK_THROWS_WITH_AS(read("a,b\n1,2\n3\n"), "t.csv:3: 1 fields; accepted: 2, as in the head line",
                       InputError);
  CHECK_THROWS_WITH_AS(read("a,b\n1,\"2\n3\n"), "t.csv:2: a quote that is never closed",
                       InputError);
  CHECK_THROWS_WITH_AS(
      read("a,b\n\"1\"x,2\n"),
      "t.csv:2: text after a closed quote; accepted: a comma or the end of the line", InputError);
  CHECK_THROWS_WITH_AS(read("a,b,a\n"), "t.csv:1: two columns named 'a'", InputError);
  CHECK_THROWS_WITH_AS(read("# nothing\n"),
                       "t.csv: an empty table; accepted: a head line with names, then rows",
                       InputError);
  const CsvTable table = read_csv("a,b\n1,two\n", "t.csv");
  CHECK_THROWS_WITH_AS((void)table.number(table.rows[0], "b"),
                       "t.csv:2:b: 'two'; accepted: a number", InputError);
}

}  // namespace
}  // namespace parsim
