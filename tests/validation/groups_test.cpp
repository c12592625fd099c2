#include "validation/groups.hpp"

#include <doctest/doctest.h>

#include "tests/support/approx.hpp"

namespace parsim::validation {
namespace {

PlanRun run(const std::string& name, double measured, double predicted, bool fits = true) {
  return {"job", name, name, measured, predicted, fits};
}

}  // namespace

TEST_CASE("groups: regret is what following the prediction costs, by hand") {
  // c is predicted to be the fastest and takes 12 s; a, the best, takes 10.
  const std::vector<PlanRun> runs = {run("a", 10, 9), run("b", 11, 14), run("c", 12, 8),
                                     run("d", 20, 21)};
  const std::vector<PlanGroup> groups = plan_groups(runs);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].group == "job");
  CHECK(groups[0].plans == 4);
  CHECK(groups[0].chosen == "c");
  CHECK(groups[0].best == "a");
  CHECK(groups[0].regret.value() == testing::approx(0.2));
  // Ranks 1 2 3 4 against 2 3 1 4: 1 − 6 · (1 + 1 + 4) / (4 · 15).
  CHECK(groups[0].spearman.value() == testing::approx(0.4));
  CHECK(groups[0].over_wrongly == 0);
  CHECK(groups[0].fits_wrongly == 0);
}

TEST_CASE("groups: what is predicted not to fit is not chosen, and both mistakes are counted") {
  std::vector<PlanRun> runs = {run("a", 10, 9, false), run("b", 11, 14), run("c", 12, 13),
                               run("d", 20, 21)};
  runs.push_back({"job", "e", "e", std::nullopt, std::nullopt, true});
  runs.push_back({"job", "f", "f", std::nullopt, std::nullopt, false});
  const PlanGroup group = plan_groups(runs).at(0);
  CHECK(group.plans == 4);
  CHECK(group.chosen == "c");
  CHECK(group.regret.value() == testing::approx(0.2));  // the best one of all is a
  CHECK(group.over_wrongly == 1);
  CHECK(group.fits_wrongly == 1);
  for (PlanRun& one : runs) one.fits = false;
  CHECK(plan_groups(runs).at(0).chosen.empty());
  CHECK_FALSE(plan_groups(runs).at(0).regret.has_value());
}

TEST_CASE("groups: equal predictions are one choice, which counts as its slowest run") {
  const std::vector<PlanRun> runs = {run("a", 10, 9), run("b", 15, 9), run("c", 12, 9.1),
                                     run("d", 20, 21)};
  CHECK(plan_groups(runs).at(0).chosen == "b");
  CHECK(plan_groups(runs).at(0).regret.value() == testing::approx(0.5));
}

TEST_CASE("groups: fewer than four plans are no group, however many runs there are") {
  std::vector<PlanRun> runs = {run("a", 10, 9), run("b", 11, 14), run("c", 12, 8)};
  PlanRun again = run("a again", 10.1, 9);
  again.plan = "a";
  runs.push_back(again);
  CHECK(plan_groups(runs).empty());
  PlanRun elsewhere = run("d", 20, 21);
  elsewhere.group = "another job";
  runs.push_back(elsewhere);
  CHECK(plan_groups(runs).empty());
  runs.back().group = "job";
  CHECK(plan_groups(runs).size() == 1);
}

}  // namespace parsim::validation
