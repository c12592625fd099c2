#include "report/document.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace parsim::report {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Document two_rows() {
  Table table;
  add_words(table, "name", "name", {"a", "b, \"c\" | <d>"});
  add_numbers(table, "s", {{"time", "time_s", {0.0123, 1.5}}});
  Document document;
  document.head = {"head"};
  document.tables = {table};
  document.notes = {"note_1"};
  document.json = "{}";
  return document;
}

TEST_CASE("document: three significant digits, rounded before the form is chosen") {
  const std::vector<std::pair<double, std::string>> cases = {{0.0, "0"},
                                                             {1.0, "1.00"},
                                                             {9.994, "9.99"},
                                                             {9.996, "10.0"},
                                                             {99.96, "100"},
                                                             {123456, "123456"},
                                                             {0.12345, "0.123"},
                                                             {0.0123456, "0.0123"},
                                                             {0.00099996, "0.00100"},
                                                             {0.00012345, "0.000123"},
                                                             {0.00001, "1.00e-05"},
                                                             {nan, "-"},
                                                             {-12.34, "-12.3"}};
  for (const auto& [value, text] : cases) CHECK(three_digits(value) == text);
}

TEST_CASE("document: exact numbers read back as the same number") {
  for (const double value : {0.1, 1.0 / 3.0, 25e9, 2.5e-300}) {
    CHECK(std::stod(exact(value)) == value);
  }
  CHECK(exact(nan).empty());
}

TEST_CASE("document: a column takes the prefix of its largest number, memory a binary one") {
  Table table;
  add_numbers(table, "s", {{"t", "t_s", {0.002, 0.5}}});
  add_numbers(table, "B", {{"m", "m_bytes", {1024.0 * 1024, nan}}});
  add_numbers(table, "B/s", {{"r", "r_bytes_per_s", {25e9, 1e3}}});
  add_numbers(table, "", {{"n", "n", {1e6, 1}}});
  std::vector<std::string> titles;
  for (const Column& column : table.columns) titles.push_back(column.title);
  CHECK(titles == std::vector<std::string>{"t [ms]", "m [MiB]", "r [GB/s]", "n"});
  CHECK(table.rows[0][0].text == "2.00");
  CHECK(table.rows[0][0].raw == "0.002");
  CHECK(table.rows[1][1].text == "-");
  CHECK(table.rows[1][1].raw.empty());
}

TEST_CASE("document: table aligns words left and numbers right, without trailing blanks") {
  CHECK(render_table(two_rows()) ==
        "head\n"
        "\n"
        "name          time [s]\n"
        "a               0.0123\n"
        "b, \"c\" | <d>      1.50\n"
        "\n"
        "note_1\n");
  CHECK(render_table(two_rows(), {.color = true}).find("\x1b[1mname") != std::string::npos);
}

TEST_CASE("document: columns go in their order where a terminal is narrow, never the others") {
  Table table;
  add_words(table, "name", "name", {"abc", "d"});
  for (const int drop : {2, 1, 3}) {
    add_words(table, fmt::format("drop{}", drop), "", {"x", "y"});
    table.columns.back().drop = drop;
  }
  Document document;
  document.tables = {table};
  const auto header = [&](std::size_t columns) {
    const std::string text = render_table(document, {.columns = columns});
    return text.substr(0, text.find('\n'));
  };
  CHECK(header(0) == "name  drop2  drop1  drop3");
  CHECK(header(25) == "name  drop2  drop1  drop3");
  CHECK(header(24) == "name  drop2  drop1");
  CHECK(header(17) == "name  drop1");
  CHECK(header(1) == "name");
  for (Column& column : document.tables[0].columns) column.drop *= Column::detail;
  CHECK(render_md(document).starts_with("| name |\n"));
}

TEST_CASE("document: a row is marked, and lines stand above others, with and without colour") {
  Document document = two_rows();
  document.answer = {"answer"};
  document.tables[0].winner = 0;
  document.tables[0].rules = {{1, "late"}};
  CHECK(render_table(document) ==
        "answer\n"
        "\n"
        "head\n"
        "\n"
        "  name          time [s]\n"
        "* a               0.0123\n"
        "  --- late -------------\n"
        "  b, \"c\" | <d>      1.50\n"
        "\n"
        "note_1\n");
  CHECK(render_table(document, {.color = true}).find("\x1b[32m* a ") != std::string::npos);
}

TEST_CASE("document: numbers that are compared with one have its unit and decimals") {
  Table table;
  add_numbers(table, "s", {{"t", "t_s", {0.1237, 9.5, -1e-9, nan}}}, 0.1237);
  CHECK(table.columns[0].title == "t [ms]");
  std::vector<std::string> texts;
  for (const auto& row : table.rows) texts.push_back(row[0].text);
  CHECK(texts == std::vector<std::string>{"124", "9500", "0", "-"});
  add_numbers(table, "s", {{"t", "t_s", {1.237, 2, 0, 30}}}, 1.237);
  CHECK(table.rows[1][1].text == "2.00");
  CHECK(table.rows[3][1].text == "30.00");
}

TEST_CASE("document: csv has keys and exact numbers, and quotes what needs it") {
  CHECK(render_csv(two_rows(), {.color = true}) ==
        "name,time_s\n"
        "a,0.0123\n"
        "\"b, \"\"c\"\" | <d>\",1.5\n");
  // RFC 4180: line breaks of any system.
  Document breaks;
  breaks.tables.emplace_back();
  add_words(breaks.tables[0], "name", "name", {"a\rb", "a\nb", "a b"});
  CHECK(render_csv(breaks) == "name\n\"a\rb\"\n\"a\nb\"\na b\n");
}

TEST_CASE("document: no cell of csv is a formula of a spreadsheet, and numbers stay numbers") {
  Document names;
  names.tables.emplace_back();
  add_words(names.tables[0], "name", "name",
            {"=1+1", "=cmd|'/C calc'!A1", "+a", "-a", "@SUM(1,2)", "\t=1", "\r=1", "-1.5e-3", "-",
             "a=1", ""});
  CHECK(render_csv(names) ==
        "name\n'=1+1\n'=cmd|'/C calc'!A1\n'+a\n'-a\n\"'@SUM(1,2)\"\n'\t=1\n\"'\r=1\"\n"
        "-1.5e-3\n-\na=1\n\n");
}

TEST_CASE("document: Markdown escapes what names could smuggle in") {
  CHECK(render_md(two_rows()) ==
        "head\n\n"
        "| name | time \\[s] |\n"
        "| --- | ---: |\n"
        "| a | 0.0123 |\n"
        "| b, \"c\" \\| \\<d> | 1.50 |\n"
        "\n"
        "- note\\_1\n");
}

TEST_CASE("document: control characters never reach a terminal") {
  CHECK(printable("a\x1b[31mb\tc\x7f\n") == "a?[31mb?c??");
  CHECK(printable("a\xc2\x9b"
                  "b\xc2") == "a??b\xc2");
  CHECK(printable("µ ≥") == "µ ≥");
  Document document;
  Table table;
  table.columns = {{"a\x1b]0;b\x07\n", "key", false}};
  table.rows.push_back({TableCell::word("c")});
  document.tables.push_back(table);
  CHECK(render_table(document, {}) == "a?]0;b??\nc\n");
}

TEST_CASE("document: on a terminal lines go on below, at spaces and indented") {
  Document document;
  document.notes = {"a note that is longer than the terminal is wide",
                    "  an indented one of more words than fit",
                    "a-word-that-is-longer-than-the-terminal and more", "short", ""};
  CHECK(render_table(document, {.columns = 20}) ==
        "a note that is longer than the terminal is wide\n"
        "  an indented one of more words than fit\n"
        "a-word-that-is-longer-than-the-terminal and more\nshort\n\n");
  CHECK(render_table(document, {.columns = 20, .wraps = true}) ==
        "a note that is\n    longer than the\n    terminal is wide\n"
        "  an indented one of\n      more words\n      than fit\n"
        "a-word-that-is-longer-than-the-terminal\n    and more\nshort\n\n");
}

}  // namespace

TEST_CASE("document: a text without tables is the same in every format for people") {
  Document document;
  document.plain = "# Reference\n";
  document.tables.emplace_back();
  for (const auto render : {render_table, render_md, render_csv}) {
    CHECK(render(document, {}) == document.plain);
  }
}

}  // namespace parsim::report
