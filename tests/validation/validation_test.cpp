#include "validation/validation.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "core/errors.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::validation {
namespace {

constexpr const char* example = R"([[set]]
name = "s"
source = "Author 2020, table 1"
quantity = "q"
unit = "ms"
cluster = "c"
  [[set.claims]]
  case = "a"
  devices = [2, 4, 8]
  expected = [10, 20.5, 40]
  within = [0.1, 0.2]
  [[set.claims]]
  case = "b"
  expected = 5
  cluster = "other"
  reason = "because"
)";

std::string refusal(const std::string& text) {
  return testing::refusal_of([&] { return read_claims(text, "f.toml"); });
}

}  // namespace

TEST_CASE("claims: a list makes one claim per entry, a shorter promise leaves the rest without") {
  const std::vector<Claim> claims = read_claims(example, "f.toml");
  REQUIRE(claims.size() == 4);
  CHECK(claims[0].name == "a, devices 2");
  CHECK(claims[2].name == "a, devices 8");
  CHECK(claims[1].expected == 20.5);
  CHECK(claims[1].at("devices") == "4");
  CHECK(claims[1].within == 0.2);
  CHECK(!claims[2].within);
  CHECK(claims[0].at("cluster") == "c");
  CHECK(claims[3].at("cluster") == "other");
  CHECK(claims[3].reason == "because");
  CHECK(claims[3].source == "Author 2020, table 1");
  CHECK_THROWS_AS((void)claims[3].at("devices"), InputError);
}

TEST_CASE("claims: numbers of this project are not called published") {
  CHECK(read_claims(example, "f.toml")[0].origin == ClaimOrigin::published);
  std::string own = example;
  own.insert(own.find("quantity"), "origin = \"own\"\n");
  const std::vector<Claim> claims = read_claims(own, "f.toml");
  CHECK(claims[0].origin == ClaimOrigin::own);
  CHECK_FALSE(claims[0].what.contains("origin"));
  const Validation validation = validate_claims(claims, [](const Claim&) {
    return Prediction{1.0, {}, {}};
  });
  CHECK(validation.sets[0].origin == ClaimOrigin::own);
  own.replace(own.find("\"own\""), 5, "\"ours\"");
  CHECK(refusal(own) ==
        "f.toml:4: 'origin' is missing or wrong; accepted: \"published\" or \"own\"");
}

TEST_CASE("claims: a wrong file is refused with its line") {
  CHECK(refusal("[[set]]\nname = 3\n").starts_with("f.toml:"));
  CHECK(refusal("[[set]").starts_with("f.toml:1"));
  CHECK(refusal("x = 1\n").find("'x'") != std::string::npos);
  std::string uneven = example;
  uneven.replace(uneven.find("[2, 4, 8]"), 9, "[2, 4]");
  CHECK(refusal(uneven) ==
        "f.toml:9: 'devices' is missing or wrong; accepted: a list of 3 like "
        "'expected'");
}

TEST_CASE("validation: claims of a list that has nothing else to tell them apart are numbered") {
  const std::vector<Claim> claims = read_claims(
      "[[set]]\nname = \"s\"\nsource = \"p\"\nquantity = \"speedup\"\nunit = \"\"\n"
      "[[set.claims]]\ncase = \"both\"\nexpected = [1.5, 2.5]\n"
      "[[set.claims]]\ncase = \"alone\"\nexpected = 3\n",
      "f.toml");
  REQUIRE(claims.size() == 3);
  CHECK(claims[0].name == "both, 1");
  CHECK(claims[1].name == "both, 2");
  CHECK(claims[1].expected == 2.5);
  CHECK(claims[2].name == "alone");
}

TEST_CASE("validation: filters are predicted for each device of a claim, and for no other") {
  Claim claim;
  claim.quantity = "filters";
  claim.what = {{"speeds", "0.5 0.5"}, {"filters", "10"}, {"device", "2"}};
  const Prediction last = predict_claim(claim);
  REQUIRE(last.value);
  CHECK(*last.value == 5);
  claim.what["device"] = "3";
  CHECK(!predict_claim(claim).value);
  CHECK(predict_claim(claim).reason == "no such device");
}

TEST_CASE("validation: errors of a set by hand") {
  const std::vector<Claim> claims = read_claims(example, "f.toml");
  const Validation validation = validate_claims(claims, [](const Claim& claim) -> Prediction {
    if (claim.name == "b") return {std::nullopt, std::nullopt, "no idea"};
    return {claim.expected * (claim.at("devices") == "2" ? 1.05 : 0.7), claim.expected / 2, {}};
  });
  REQUIRE(validation.sets.size() == 1);
  const ValidationSet& set = validation.sets[0];
  CHECK(set.rows == 3);
  CHECK(set.mean_error == testing::approx((0.05 + 0.3 + 0.3) / 3));
  CHECK(set.median_error == testing::approx(0.3));
  CHECK(set.max_error == testing::approx(0.3));
  CHECK(set.low_error == testing::approx(0.05));  // of three: the first and the last
  CHECK(set.high_error == testing::approx(0.3));
  CHECK(set.baseline_mean_error == testing::approx(0.5));  // half of what was measured
  CHECK(set.skill() == testing::approx(1 - 0.65 / 3 / 0.5));
  CHECK(set.spearman == testing::approx(1));
  REQUIRE(validation.unresolved.size() == 1);
  CHECK(validation.unresolved[0].reason == "no idea");
  CHECK(!validation.rows[0].promise_broken());
  CHECK(validation.rows[1].promise_broken());   // 30 % off, 20 % promised
  CHECK(!validation.rows[2].promise_broken());  // nothing promised
}

TEST_CASE("validation: memory is compared where a row says what was measured") {
  std::vector<Claim> claims(3);
  for (Claim& claim : claims) {
    claim.set = "s";
    claim.expected = 1;
  }
  claims[0].what["peak_memory_gib"] = "20";
  claims[1].what["peak_memory_gib"] = "";
  const Validation validation = validate_claims(claims, [](const Claim&) {
    Prediction prediction{1.0, {}, {}};
    prediction.peak_memory_gib = 15;
    prediction.verdict = "fits";
    return prediction;
  });
  CHECK(validation.rows[0].peak_memory_error() == -0.25);
  CHECK_FALSE(validation.rows[1].peak_memory_error());
  CHECK_FALSE(validation.rows[2].peak_memory_error());
  CHECK(validation.rows[0].verdict == "fits");
  CHECK(validation.sets[0].peak_memory_error == 0.25);
}

TEST_CASE("validation: rank correlation by hand, with ties") {
  CHECK(spearman({1, 2, 3}, {10, 20, 30}) == testing::approx(1));
  CHECK(spearman({1, 2, 3}, {3, 2, 1}) == testing::approx(-1));
  // Ranks 0, 1.5, 1.5, 3 and 0, 1, 2, 3: 4.5 / sqrt(4.5 · 5).
  CHECK(spearman({1, 2, 2, 3}, {1, 2, 3, 4}) == testing::approx(4.5 / std::sqrt(4.5 * 5)));
  CHECK(!spearman({1, 1}, {1, 2}));
}

TEST_CASE("validation: every paper's claims are read, and no case is named twice") {
  const std::vector<Claim> claims = paper_claims();
  CHECK(claims.size() > 100);
  std::set<std::pair<std::string, std::string>> names;
  for (const Claim& claim : claims) {
    CAPTURE(claim.name);
    CHECK(names.emplace(claim.set, claim.name).second);
    CHECK(claim.expected > 0);
    CHECK(!claim.source.empty());
  }
}

TEST_CASE("validation: collectives by machine, by hand") {
  const auto row = [](const std::string& machine, const char* bytes, double scratch,
                      double fitted) {
    ValidationRow one;
    one.claim.expected = 100;
    one.claim.what = {{"machine", machine}, {"size_bytes", bytes}};
    one.predicted = fitted;
    one.from_scratch = scratch;
    return one;
  };
  const std::vector<ValidationRow> rows = {row("a", "65536", 150, 110), row("a", "131072", 90, 100),
                                           row("b", "65536", 130, 80), row("a", "65535", 900, 900)};
  const std::vector<CollectiveSystem> systems = collective_systems(rows);
  REQUIRE(systems.size() == 3);
  CHECK(systems[0].machine == "a");
  CHECK(systems[0].rows == 2);
  CHECK(systems[0].mean == testing::approx(0.3));
  CHECK(systems[1].fitted_mean == testing::approx(0.2));
  CHECK(systems[2].machine == "all");
  CHECK(systems[2].median == testing::approx(0.3));
  CHECK(systems[2].fitted_mean == testing::approx(0.1));
  CHECK(collective_systems({}).empty());
}

}  // namespace parsim::validation
