#include "app/cli.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "strategies/strategies.hpp"

namespace parsim::app {
namespace {

using Words = std::vector<std::string>;

TEST_CASE("cli: values, repeated options, flags and positional arguments") {
  const CommandLine line = parse_command_line({"compare", "--strategy", "data", "--batch=8",
                                               "--strategy", "owt", "--json", "--network", "n"});
  CHECK(line.verb->name == "compare");
  CHECK(line.arguments.texts("--strategy") == Words{"data", "owt"});
  CHECK(line.arguments.text("--batch") == "8");
  CHECK(line.arguments.has("--json"));
  CHECK_FALSE(line.arguments.has("--cluster"));
  const CommandLine show = parse_command_line({"show", "network", "list"});
  CHECK(show.arguments.words == Words{"network", "list"});
}

TEST_CASE("cli: a value may look like an option, and an empty one is a value") {
  const CommandLine line = parse_command_line({"compare", "--batch", "-4", "--server", ""});
  CHECK(line.arguments.text("--batch") == "-4");
  CHECK(line.arguments.text("--server") == "");
}

TEST_CASE("cli: help and version are texts, not failures") {
  CHECK(parse_command_line({"--version"}).text.starts_with("parsim "));
  CHECK(parse_command_line({"--help"}).text.find("collective") != std::string::npos);
  const std::string help = parse_command_line({"simulate", "--help"}).text;
  CHECK(help.find("--micro-batches") != std::string::npos);
  CHECK(help.find("--sizes") == std::string::npos);
}

TEST_CASE("cli: every verb parses every option that the table gives it, by each of its names") {
  for (const Verb& verb : verbs()) {
    CAPTURE(verb.name);
    for (const bool by_long_name : {false, true}) {
      Words words = {std::string(verb.name)};
      for (const Word& word : verb.words) words.emplace_back(word.name);
      for (const experiment::Option* option : options_of(verb)) {
        if (by_long_name && option->rules.long_name.empty()) continue;
        words.emplace_back(by_long_name ? option->rules.long_name : option->flag);
        if (!option->placeholder().empty()) words.push_back("value of " + words.back());
      }
      const experiment::Arguments arguments = parse_command_line(words).arguments;
      for (const experiment::Option* option : options_of(verb)) {
        if (by_long_name && option->rules.long_name.empty()) continue;
        CAPTURE(option->flag);
        CHECK(arguments.has(option->flag));
        if (option->placeholder().empty()) continue;
        CHECK(arguments.text(option->flag) ==
              fmt::format("value of {}", by_long_name ? option->rules.long_name : option->flag));
      }
    }
  }
}

TEST_CASE("cli: the table names verbs and strategies that exist") {
  const auto split = [](std::string_view text) {
    std::istringstream in{std::string(text)};
    return Words{std::istream_iterator<std::string>(in), {}};
  };
  for (const experiment::Option& option : experiment::options()) {
    CAPTURE(option.flag);
    for (const std::string& verb : split(option.verbs)) {
      CHECK(std::any_of(verbs().begin(), verbs().end(),
                        [&](const Verb& known) { return known.name == verb; }));
    }
    for (const std::string& name : split(option.rules.strategies)) {
      if (name != "layout") CHECK_NOTHROW(static_cast<void>(strategies::strategy(name, "test")));
    }
  }
}

TEST_CASE("cli: help lists options in groups, those of papers last") {
  const std::string help = parse_command_line({"compare", "--help"}).text;
  std::size_t at = 0;
  for (const std::string_view group : spellings_of<experiment::OptionGroup>()) {
    if (group == "Collective" || group == "Validation" || group == "Sweep" || group == "Purchase") {
      continue;
    }
    CAPTURE(group);
    const std::size_t found = help.find("\n" + std::string(group) + ":\n");
    CHECK(found != std::string::npos);
    CHECK(found > at);
    at = found;
  }
  CHECK(help.find("--rounding largest-remainder|released") > at);
}

TEST_CASE("cli: the form of the report") {
  const auto format = [](const Words& words) {
    Words all = {"list", "networks"};
    all.insert(all.end(), words.begin(), words.end());
    return std::string(chosen_format(parse_command_line(all).arguments).name);
  };
  CHECK(format({}) == "table");
  CHECK(format({"--json"}) == "json");
  CHECK(format({"--format", "md"}) == "md");
  CHECK(format({"--format", "json", "--json"}) == "json");
  CHECK_THROWS_WITH_AS(format({"--format", "csv", "--json"}),
                       "--json: given together with --format csv; accepted: one of the two",
                       InputError);
  CHECK_THROWS_WITH_AS(format({"--format", "jsn"}),
                       "--format: 'jsn'; accepted: table, json, csv, md; did you mean 'json'?",
                       InputError);
}

}  // namespace
}  // namespace parsim::app
