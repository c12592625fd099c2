#include "experiment/what_if.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "experiment/comparison.hpp"
#include "tests/support/approx.hpp"

namespace parsim::experiment {
namespace {

const std::string nodes = "nodes:2x2,intra=100GB/s,inter=10GB/s,latency=1us,device=";

Request asked(const std::string& cluster, const std::vector<std::string>& strategies) {
  Request request;
  request.network = "mlp";
  request.cluster = cluster;
  request.batch = 96;
  request.strategies = strategies;
  return request;
}

WhatIfs of(const Request& request) {
  const Experiment experiment(request);
  return what_if(experiment, compare(experiment), true);
}

const WhatIf& row(const WhatIfs& all, const std::string& change) {
  const auto found = std::find_if(all.rows.begin(), all.rows.end(),
                                  [&](const WhatIf& one) { return one.change == change; });
  REQUIRE(found != all.rows.end());
  return *found;
}

double step(const Request& request) {
  return compare(Experiment(request)).front().step_time.count();
}

TEST_CASE("what if: one more machine is the cluster with three of them") {
  const WhatIfs all = of(asked(nodes + "v100-sxm2", {"data"}));
  CHECK(all.strategy == "data");
  REQUIRE(all.rows.size() == 2);  // one type: none is left out
  const WhatIf& more = row(all, "one more machine of 2 x v100-sxm2");
  std::string three = nodes;
  three.replace(three.find("2x2"), 3, "3x2");
  const double there = step(asked(three + "v100-sxm2", {"data"}));
  REQUIRE(more.result);
  CHECK(more.result->step_time.count() == testing::approx(there).epsilon(1e-6));
  CHECK(more.unused == (there >= all.step.count()));
}

TEST_CASE("what if: without the lesser type is the cluster of the other, with the same batch") {
  const WhatIfs all = of(asked(nodes + "p100-sxm2*2+v100-sxm2*2", {"data"}));
  REQUIRE(all.rows.size() == 4);
  const WhatIf& rest = row(all, "without the 2 x p100-sxm2");
  REQUIRE(rest.result);
  std::string one = nodes;
  one.replace(one.find("2x2"), 3, "1x2");
  CHECK(rest.result->step_time.count() ==
        testing::approx(step(asked(one + "v100-sxm2", {"data"}))).epsilon(1e-6));
}

TEST_CASE("what if: where half the memory holds no plan as it is, ZeRO makes one fit") {
  Request request = asked(nodes + "v100-sxm2", {"data"});
  request.network = "gpt:layers=2,hidden=512,heads=8,seq_length=64,vocab_size=1000";
  request.batch = 4;
  request.optimizer = Optimizer::adam;
  const auto with = [&](const std::string& memory) {
    request.overrides.clear();
    for (const char* gpu : {"n0.gpu0", "n0.gpu1", "n1.gpu0", "n1.gpu1"}) {
      request.overrides.push_back(std::string("devices.") + gpu + ".memory=" + memory);
    }
    return row(of(request), "half the memory in every GPU").result;
  };
  const auto plenty = with("16GiB");
  REQUIRE(plenty);
  CHECK(plenty->degrees.zero.value_or(0) == 0);
  // Seven eighths of that peak are missing a little, and Adam's states are half of it.
  const std::int64_t peak = plenty->fullest()->peak().value;
  const auto scarce = with(std::to_string(peak * 7 / 4) + "B");
  REQUIRE(scarce);
  CHECK(scarce->degrees.zero.value_or(0) > 0);
  CHECK(scarce->fits());
  request.zero_stage = 0;  // as the user says: nothing fits
  CHECK_FALSE(with(std::to_string(peak * 7 / 4) + "B"));
  request.zero_stage.reset();
  request.recompute = strategies::Recompute::none;
  const auto without = with(std::to_string(peak * 7 / 4) + "B");
  REQUIRE(without);
  CHECK(without->degrees.zero.value_or(0) > 0);
  CHECK(without->degrees.recompute.value_or(strategies::Recompute::none) ==
        strategies::Recompute::none);
}

TEST_CASE("what if: a machine that no link leaves cannot be joined by another") {
  const WhatIfs all = of(asked("star:2,device=v100-sxm2,rate=10GB/s", {"data"}));
  REQUIRE(all.rows.size() == 1);
  CHECK(all.rows[0].kind == WhatIf::Kind::half_memory);
}

TEST_CASE("what if: nothing is asked where no plan fits") {
  Request request = asked(nodes + "v100-sxm2", {"data"});
  request.overrides = {"devices.n0.gpu0.memory=1MiB"};
  CHECK(of(request).rows.empty());
}

}  // namespace
}  // namespace parsim::experiment
