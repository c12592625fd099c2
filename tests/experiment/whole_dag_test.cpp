// What is refused because a DAG of all devices would be too large.
#include "experiment/whole_dag.hpp"

#include <doctest/doctest.h>

#include <string>

#include "core/errors.hpp"
#include "experiment/comparison.hpp"
#include "experiment/run.hpp"
#include "lowering/lower.hpp"

namespace parsim::experiment {
namespace {

TEST_CASE("whole DAG: operations are counted as they would be made, and more are refused") {
  for (const char* strategy : {"data", "owt", "pipeline"}) {
    Request request;
    request.network = "lenet5";
    request.cluster = "star:4,device=v100-sxm2,rate=25GB/s,latency=1us";
    const Experiment experiment(request);
    const Plan plan = make_plan(experiment, named_strategy(request, strategy)).plan;
    const auto size = static_cast<std::int64_t>(
        lowering::lower(experiment.network, experiment.cluster, plan).size());
    CAPTURE(strategy);
    CHECK(whole_operations(experiment.network, experiment.cluster, experiment.step_cost(), plan) ==
          size);
    CHECK_NOTHROW(check_whole_dag(experiment, plan, "--dag", size));
    try {
      check_whole_dag(experiment, plan, "--dag", size - 1);
      FAIL("accepted");
    } catch (const InputError& refusal) {
      const std::string text = refusal.what();
      CHECK(text.find("--dag: needs all " + std::to_string(size) + " operations") == 0);
      CHECK(text.find("at most " + std::to_string(size - 1)) != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace parsim::experiment
