// What Megatron-LM refuses of mixtures of experts.
#include <doctest/doctest.h>

#include <string>

#include "experiment/experiment.hpp"
#include "experiment/trainer_file.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::experiment {

TEST_CASE("trainer mixture: tensor-parallel groups need sequence parallelism") {
  Request request;
  request.network = "mixtral-8x7b:layers=4";
  request.cluster = "nodes:1x8,device=h100-sxm5";
  const Experiment experiment(request);
  const auto refused = [&](const std::string& more) {
    return testing::refusal_of([&] {
      (void)read_trainer_file("train --micro-batch-size 1 --num-experts 8 " + more + "\n", "run.sh",
                              experiment.network, experiment.cluster);
    });
  };
  CHECK(refused("--tensor-model-parallel-size 2").ends_with("with --sequence-parallel"));
  CHECK(refused("--tensor-model-parallel-size 2 --sequence-parallel") == "accepted");
  CHECK(refused("--expert-model-parallel-size 4") == "accepted");
}

}  // namespace parsim::experiment
