// Options of a call, `name:key=value,…`. Its messages are checked where calls are:
// tests/topologies, tests/networks.
#include "core/call.hpp"

#include <doctest/doctest.h>

#include "core/text.hpp"
#include "tests/support/refusal.hpp"

namespace parsim {
namespace {

constexpr Option known[] = {
    {"size", "", "must be given"}, {"share", "0.5", "a rate"}, {"kind", "wide", "wide or narrow"}};

CallOptions called(const std::string& text) {
  const std::vector<std::string> parts = split_at(text, ',');
  return CallOptions("thing:" + text, "thing:", known, parts, "--thing");
}

TEST_CASE("call: values are those given, else the defaults") {
  const CallOptions options = called("size=3");
  CHECK(options.text() == "thing:size=3");
  CHECK(options.where("size") == "--thing:size");
  CHECK(options.integer("size", 1, 4) == 3);
  CHECK(options.rate("share") == 0.5);
  CHECK(options.either("kind", "wide", "narrow"));
  CHECK(options.find("size")->by_user);
  CHECK_FALSE(options.find("share")->by_user);
  CHECK_FALSE(called("kind=narrow,share=0").either("kind", "wide", "narrow"));
  CHECK(called("kind=narrow").integer_or("size", 7, 1, 4) == 7);
}

TEST_CASE("call: an option that is absent without a default is missed when asked for") {
  const CallOptions options = called("share=0.1");
  CHECK_FALSE(options.has("size"));
  CHECK(testing::refusal_of([&] { return options.integer("size", 1, 4); }) ==
        "--thing: 'thing:share=0.1' needs size=…; write thing:size=…");
}

TEST_CASE("call: a summary has every option with its default and meaning") {
  CHECK(summary_of(known) ==
        "options: size (must be given), share=0.5 (a rate), kind=wide (wide or narrow)");
}

}  // namespace
}  // namespace parsim
