// Estimates of steps with many micro-batches from few of them.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/errors.hpp"
#include "lowering/memory.hpp"
#include "strategies/estimated_below.hpp"
#include "strategies/price.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/world.hpp"

namespace parsim::strategies {
namespace {

using testing::World;

bool same(const std::vector<lowering::MemoryUse>& a, const std::vector<lowering::MemoryUse>& b) {
  bool equal = a.size() == b.size();
  for (std::size_t d = 0; equal && d < a.size(); ++d) equal = a[d].total() == b[d].total();
  return equal;
}

struct Repeated {
  std::int32_t stages = 1, chunks = 1, zero_stage = 0;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  bool mixed = false;
};

}  // namespace

TEST_CASE("estimated step: with many micro-batches as the whole walk, within two per cent") {
  constexpr PipelineSchedule one_f_one_b = PipelineSchedule::one_f_one_b;
  const std::string network = "gpt:layers=24,hidden=256,heads=8,seq_length=128,vocab_size=1024";
  const World alike(network, "star:4,device=a100-sxm4-80,rate=25GB/s,latency=5us");
  const World mixed(network, "star:4,device=a100-sxm4-80*2+v100-sxm2-32*2,rate=10GB/s,latency=5us");
  for (const Repeated& one :
       {Repeated{1, 1, 3}, Repeated{4, 2, 0}, Repeated{4, 1, 0, PipelineSchedule::zero_bubble},
        Repeated{4, 1, 0, PipelineSchedule::gpipe}, Repeated{4, 1, 0, one_f_one_b, true},
        Repeated{4, 2, 0, one_f_one_b, true}, Repeated{4, 2, 0, PipelineSchedule::zero_bubble},
        Repeated{4, 1, 0, PipelineSchedule::zero_bubble_h2, true},
        Repeated{4, 2, 0, PipelineSchedule::zero_bubble_h2, true}}) {
    StrategyInput input = (one.mixed ? mixed : alike).input(256);
    input.tensor_parallel = 1;
    input.pipeline_parallel = one.stages;
    input.virtual_pipeline = one.chunks;
    input.schedule = one.schedule;
    input.zero_stage = one.zero_stage;
    input.optimizer = Optimizer::adam;
    input.micro_batches = 64;
    const Plan plan = with_memory_options(input, plan_tensor(input));
    CAPTURE(one.stages);
    CAPTURE(one.chunks);
    CAPTURE(one.mixed);
    CAPTURE(to_text(one.schedule));
    lowering::Estimator estimator(input.step());
    const Seconds whole = estimator.step_time(plan);
    const Seconds estimate = estimated_step(estimator, plan);
    CHECK(estimate.count() == testing::approx(whole.count()).epsilon(0.02));
    CHECK((estimate == whole) == (one.schedule == PipelineSchedule::gpipe));  // else extrapolated
    CHECK(same(estimated_memory(estimator, plan), estimator.memory(plan)));
    CHECK(estimated_step(estimator, plan, 0.5 * estimate) >= 0.5 * estimate);
    for (const double share : {0.3, 0.9, 1 - 1e-7, 1 + 1e-7, 1.1, 5.0}) {
      CAPTURE(share);
      lowering::Estimator another(input.step());  // which remembers no step
      const Seconds below = estimated_below(another, plan, share * estimate);
      CHECK((share > 1 ? below == estimate : below >= share * estimate));
    }
    CHECK(estimated_below(estimator, plan, lowering::Estimator::unlimited) == estimate);
    CHECK(same(memory_use(input, plan), estimator.memory(plan)));
  }
}

TEST_CASE("simulated step: of many micro-batches from some of them, within half a per cent") {
  const std::string network = "gpt:layers=8,hidden=256,heads=8,seq_length=128,vocab_size=1024";
  const World alike(network, "star:4,device=a100-sxm4-80,rate=25GB/s,latency=5us");
  const World mixed(network, "star:4,device=a100-sxm4-80*2+v100-sxm2-32*2,rate=10GB/s,latency=5us");
  for (const World* world : {&alike, &mixed}) {
    StrategyInput input = world->simulated(256);
    input.pipeline_parallel = 2;
    input.data_parallel = 2;
    input.zero_stage = 1;
    input.optimizer = Optimizer::adam;
    input.micro_batches = 64;
    const Plan plan = with_memory_options(input, plan_tensor(input));
    std::vector<std::int32_t> simulated;
    input.simulate = [&, simulate = input.simulate](const Plan& one) {
      simulated.push_back(one.schedule.micro_batches);
      return simulate(one);
    };
    const Seconds whole = simulated_step(input, plan);
    CHECK(simulated == std::vector<std::int32_t>{64});
    simulated.clear();
    const Seconds extrapolated = simulated_step(input, plan, 1000);
    CHECK(simulated == std::vector<std::int32_t>{6, 8});
    CHECK(extrapolated.count() == testing::approx(whole.count()).epsilon(0.005));
  }
}

// Messages of the next micro-batch's forward pass are issued before those between stages that use
// the same links earlier.
TEST_CASE("estimated step: the messages of many layers' groups delay no stage") {
  const World world("gpt:layers=16,hidden=8192,heads=64,seq_length=2048",
                    "nvswitch:8,device=h100-sxm5,rate=370GB/s");
  StrategyInput input = world.simulated(8);
  input.precision = Precision::bf16;
  input.tensor_parallel = 4;
  input.pipeline_parallel = input.micro_batches = 2;
  input.sequence_parallel = input.tensor_overlap = true;
  const Plan plan = plan_tensor(input);
  lowering::Estimator estimator(input.step());
  CHECK(estimator.step_time(plan).count() ==
        testing::approx(input.simulate(plan).count()).epsilon(0.01));
}

}  // namespace parsim::strategies
