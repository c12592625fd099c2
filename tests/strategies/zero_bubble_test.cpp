// Zero-bubble pipelines (ZB-H1, ZB-H2): their order by hand, and their bubble by the paper's table.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "strategies/price.hpp"
#include "strategies/slots_by_time.hpp"
#include "strategies/stages.hpp"
#include "tests/support/world.hpp"

namespace parsim::strategies {
namespace {

std::vector<std::vector<Slot>> pipeline(PipelineSchedule schedule, std::int32_t stages,
                                        std::int32_t micro_batches) {
  std::vector<std::vector<Slot>> all;
  for (std::int32_t s = 0; s < stages; ++s) {
    all.push_back(stage_slots(schedule, s, stages, micro_batches));
  }
  return all;
}

std::string text_of(const std::vector<Slot>& slots) {
  std::string text;
  for (const Slot& slot : slots) {
    text += std::string(text.empty() ? "" : " ") +
            std::array{"F", "B", "W"}[static_cast<std::size_t>(slot.direction)] +
            std::to_string(slot.micro_batch);
  }
  return text;
}

/// When the last slot ends, of lists of devices; by list and direction, what one takes, and what
/// sending to another stage takes.
int end_of_pipeline(const std::vector<std::vector<Slot>>& by_stage,
                    const std::vector<std::array<int, 3>>& times, int send = 0) {
  std::map<Slot, int> end;
  std::vector<std::size_t> next(by_stage.size());
  std::vector<int> free(by_stage.size());
  std::int32_t last = 0;
  for (const std::vector<Slot>& slots : by_stage) {
    for (const Slot& slot : slots) last = std::max(last, slot.stage);
  }
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t s = 0; s < by_stage.size(); ++s) {
      if (next[s] == by_stage[s].size()) continue;
      const Slot slot = by_stage[s][next[s]];
      Slot before{slot.stage, slot.micro_batch, Direction::forward};
      if (slot.direction == Direction::forward) --before.stage;
      if (slot.direction == Direction::weights) before.direction = Direction::backward;
      if (slot.direction == Direction::backward && slot.stage < last) {
        before = {slot.stage + 1, slot.micro_batch, Direction::backward};
      }
      if (before.stage >= 0 && !end.contains(before)) continue;
      const int sent = before.stage == slot.stage ? 0 : send;
      const int start = std::max(free[s], before.stage >= 0 ? end.at(before) + sent : 0);
      free[s] = end[slot] = start + times[s][static_cast<std::size_t>(slot.direction)];
      ++next[s];
      progress = true;
    }
  }
  for (std::size_t s = 0; s < by_stage.size(); ++s) REQUIRE(next[s] == by_stage[s].size());
  return *std::max_element(free.begin(), free.end());
}

int end_of_pipeline(const std::vector<std::vector<Slot>>& by_stage, std::array<int, 3> times,
                    int send = 0) {
  return end_of_pipeline(by_stage, std::vector(by_stage.size(), times), send);
}

/// By time, each stage keeping at most so many micro-batches.
std::vector<std::vector<Slot>> by_time(const std::vector<std::array<int, 3>>& times, int send,
                                       const std::vector<int>& most_kept,
                                       std::int32_t micro_batches) {
  std::vector<StageTimes> stages;
  for (std::size_t s = 0; s < times.size(); ++s) {
    const auto [forward, backward, weights] = times[s];
    stages.push_back(
        {Seconds{forward}, Seconds{backward}, Seconds{weights}, Seconds{send}, most_kept[s]});
  }
  return slots_by_time(stages, micro_batches);
}

/// The most micro-batches between their forward and their last slot, by stage.
std::vector<int> in_flight(const std::vector<std::vector<Slot>>& by_stage, Direction last) {
  std::vector<int> most;
  for (const std::vector<Slot>& slots : by_stage) {
    int now = 0;
    most.push_back(0);
    for (const Slot& slot : slots) {
      if (slot.direction == Direction::forward) ++now;
      if (slot.direction == last) --now;
      most.back() = std::max(most.back(), now);
    }
  }
  return most;
}

}  // namespace

// Qi et al. 2023, figure 3 (top): the first stage has each W right after its B, later stages as
// many slots later as stages are before them.
TEST_CASE("zero bubble: four stages and six micro-batches, by hand") {
  const auto slots = pipeline(PipelineSchedule::zero_bubble, 4, 6);
  CHECK(text_of(slots[0]) == "F0 F1 F2 F3 B0 W0 F4 B1 W1 F5 B2 W2 B3 W3 B4 W4 B5 W5");
  CHECK(text_of(slots[1]) == "F0 F1 F2 B0 F3 B1 W0 F4 B2 W1 F5 B3 W2 B4 W3 B5 W4 W5");
  CHECK(text_of(slots[3]) == "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 W3 W4 W5");
  CHECK(text_of(stage_slots(PipelineSchedule::zero_bubble, 0, 1, 2)) == "F0 B0 F1 B1");
}

// Table 1 of the paper: bubbles of (p - 1)(T_F + T_B + T_W) with 1F1B, (p - 1)(T_F + T_B - T_W)
// with ZB-H1, which keeps as many micro-batches as the first stage of 1F1B: p.
TEST_CASE("zero bubble: bubbles and micro-batches in flight as in the paper's table") {
  for (const std::array<int, 3> times :
       {std::array{1, 1, 1}, {3, 4, 2}, {10, 12, 8}, {2, 2, 1}, {1, 2, 1}}) {
    const auto [forward, backward, weights] = times;
    for (std::int32_t stages = 1; stages <= 8; ++stages) {
      for (const std::int32_t micro_batches : {stages, stages + 1, 2 * stages, 3 * stages + 1}) {
        CAPTURE(stages);
        CAPTURE(micro_batches);
        const auto plain = pipeline(PipelineSchedule::one_f_one_b, stages, micro_batches);
        const auto split = pipeline(PipelineSchedule::zero_bubble, stages, micro_batches);
        const int work = micro_batches * (forward + backward + weights);
        CHECK(end_of_pipeline(plain, {forward, backward + weights, 0}) ==
              work + (stages - 1) * (forward + backward + weights));
        if (stages == 1) continue;
        CHECK(end_of_pipeline(split, times) ==
              work + (stages - 1) * (forward + backward - weights));
        CHECK(in_flight(plain, Direction::backward)[0] == stages);
        CHECK(in_flight(split, Direction::weights) ==
              std::vector<int>(static_cast<std::size_t>(stages), stages));
      }
    }
  }
}

// Qi et al. 2023, figure 3 (bottom): so many more forward passes before the first backward one.
TEST_CASE("zero bubble: ZB-H2 of four stages and eight micro-batches, by hand") {
  const auto slots = pipeline(PipelineSchedule::zero_bubble_h2, 4, 8);
  CHECK(text_of(slots[0]) ==
        "F0 F1 F2 F3 F4 F5 F6 B0 W0 F7 B1 W1 B2 W2 B3 W3 B4 W4 B5 W5 B6 W6 B7 W7");
  CHECK(text_of(slots[2]) ==
        "F0 F1 F2 B0 F3 B1 F4 B2 W0 F5 B3 W1 F6 B4 W2 F7 B5 W3 B6 W4 B7 W5 W6 W7");
  CHECK(slots[3] == pipeline(PipelineSchedule::zero_bubble, 4, 8)[3]);
}

// Where a micro-batch is under way for as long as p stages work, stages of ZB-H1 wait for it; those
// of ZB-H2 have as many micro-batches again.
TEST_CASE("zero bubble: ZB-H2 takes as long as ZB-H1, and with slow sends less") {
  const std::array times{1, 1, 1};
  for (std::int32_t stages = 2; stages <= 8; ++stages) {
    for (const std::int32_t micro_batches : {2 * stages, 4 * stages, 7 * stages + 1}) {
      CAPTURE(stages);
      CAPTURE(micro_batches);
      const auto h1 = pipeline(PipelineSchedule::zero_bubble, stages, micro_batches);
      const auto h2 = pipeline(PipelineSchedule::zero_bubble_h2, stages, micro_batches);
      CHECK(end_of_pipeline(h2, times) == end_of_pipeline(h1, times));
      const std::vector<int> kept = in_flight(h2, Direction::weights);
      for (std::int32_t s = 0; s < stages; ++s) {
        CHECK(kept[static_cast<std::size_t>(s)] ==
              most_in_flight(PipelineSchedule::zero_bubble_h2, s, stages));
      }
      // There and back 2 (p - 1) sends of as long as a forward pass.
      const int filling = 3 * micro_batches + 2 * (stages - 1) * (1 + 1);
      CHECK(end_of_pipeline(h2, times, 1) <= filling);
      if (micro_batches >= 4 * stages) CHECK(end_of_pipeline(h1, times, 1) > filling);
    }
  }
}

// PyTorch's ScheduleInterleavedZeroBubble of two devices with two stages each and four
// micro-batches.
TEST_CASE("zero bubble: by time, two stages by hand") {
  const std::vector<std::array<int, 3>> times{{1, 1, 1}, {1, 1, 1}};
  const auto slots = by_time(times, 0, {2, 2}, 4);
  CHECK(text_of(slots[0]) == "F0 F1 B0 W0 F2 B1 W1 F3 B2 W2 B3 W3");
  CHECK(text_of(slots[1]) == "F0 B0 F1 B1 W0 F2 B2 W1 F3 B3 W2 W3");
  // With memory for more no forward pass waits for weight gradients.
  CHECK(text_of(by_time(times, 0, {4, 4}, 4)[0]) == "F0 F1 F2 B0 F3 B1 W0 B2 W1 B3 W2 W3");
}

TEST_CASE("zero bubble: by time with the memory of ZB-H1 and ZB-H2 about as long as these") {
  for (const std::array<int, 3> times : {std::array{1, 1, 1}, {3, 4, 2}, {2, 2, 1}}) {
    for (const int send : {0, 1, 3}) {
      for (const PipelineSchedule fixed :
           {PipelineSchedule::zero_bubble, PipelineSchedule::zero_bubble_h2}) {
        const auto pattern = pipeline(fixed, 4, 12);
        const std::vector<int> kept = in_flight(pattern, Direction::weights);
        const auto slots = by_time(std::vector(4, times), send, kept, 12);
        const std::vector<int> keeps = in_flight(slots, Direction::weights);
        for (std::size_t s = 0; s < 4; ++s) CHECK(keeps[s] <= kept[s]);
        CHECK(end_of_pipeline(slots, times, send) <= 1.05 * end_of_pipeline(pattern, times, send));
      }
    }
  }
}

TEST_CASE("zero bubble: by time unequal stages with memory to spare wait less than in ZB-H2") {
  const std::vector<std::array<int, 3>> times{{5, 6, 4}, {5, 6, 4}, {4, 5, 3}, {4, 5, 3}};
  const auto fixed = pipeline(PipelineSchedule::zero_bubble_h2, 4, 16);
  const int work = 16 * 15;
  CHECK(end_of_pipeline(fixed, times, 4) - work >= 20);
  const auto slots = by_time(times, 4, {12, 12, 10, 10}, 16);
  CHECK(in_flight(slots, Direction::weights)[0] > 2 * 4 - 1);
  CHECK(end_of_pipeline(slots, times, 4) - work <= 10);
}

TEST_CASE("zero bubble: model chunks in the orders of ZB-H1 and ZB-H2, by hand") {
  const auto text = [](PipelineSchedule schedule, std::int32_t device) {
    std::string all;
    for (const Slot& slot : device_slots(schedule, device, 2, 2, 4)) {
      all += text_of({slot}) + (slot.stage < 2 ? " " : "' ");
    }
    return all;
  };
  CHECK(text(PipelineSchedule::zero_bubble, 0) ==
        "F0 F1 F0' F1' B0' W0' F2 B1' W1' F3 B0 W0 F2' B1 W1 F3' B2' W2' B3' W3' B2 W2 B3 W3 ");
  CHECK(text(PipelineSchedule::zero_bubble, 1) ==
        "F0 F1 F0' B0' F1' B1' W0' F2 B0 W1' F3 B1 W0 F2' B2' W1 F3' B3' W2' B2 W3' B3 W2 W3 ");
  CHECK(text(PipelineSchedule::zero_bubble_h2, 1) == text(PipelineSchedule::zero_bubble, 1));
  CHECK(text(PipelineSchedule::zero_bubble_h2, 0).starts_with("F0 F1 F0' F1' F2 B0' W0' "));
}

// As without chunks, of passes that are shorter by their number.
TEST_CASE("zero bubble: the bubble with model chunks is (p - 1)(T_F + T_B - T_W) of a chunk") {
  for (const std::array<int, 3> times : {std::array{1, 1, 1}, {3, 4, 2}, {10, 12, 8}, {2, 2, 1}}) {
    const auto [forward, backward, weights] = times;
    for (const std::int32_t devices : {2, 3, 4, 8}) {
      for (const std::int32_t chunks : {2, 3}) {
        for (const std::int32_t micro_batches : {devices, 4 * devices}) {
          CAPTURE(devices);
          CAPTURE(chunks);
          CAPTURE(micro_batches);
          for (const auto schedule :
               {PipelineSchedule::zero_bubble, PipelineSchedule::zero_bubble_h2}) {
            std::vector<std::vector<Slot>> by_device;
            for (std::int32_t d = 0; d < devices; ++d) {
              by_device.push_back(device_slots(schedule, d, devices, chunks, micro_batches));
            }
            CHECK(end_of_pipeline(by_device, times) ==
                  chunks * micro_batches * (forward + backward + weights) +
                      (devices - 1) * (forward + backward - weights));
          }
        }
      }
    }
  }
}

// A group's all-gather of gradients once stood before its collectives of forward passes that come
// first, which then waited for gradients that they do not need.
TEST_CASE("zero bubble: with tensor-parallel groups no slower than 1F1B") {
  const testing::World world(
      "gpt:layers=3,hidden=1024,heads=8,seq_length=512,vocab_size=512,attention=fused",
      "nodes:3x4,device=v100-sxm2,intra=60GB/s,inter=12GB/s");
  StrategyInput input = world.simulated(16);
  input.micro_batches = 16;
  input.tensor_parallel = 4;
  input.pipeline_parallel = 3;
  const auto step = [&](PipelineSchedule schedule) {
    input.schedule = schedule;
    return simulated_price(input, plan_tensor(input)).step;
  };
  CHECK(step(PipelineSchedule::zero_bubble) < step(PipelineSchedule::one_f_one_b));
}

TEST_CASE("zero bubble: a plan in another order is the plan that was asked for in that order") {
  const testing::World world("gpt:layers=4,hidden=64,heads=2,seq_length=32,vocab_size=96",
                             "nvswitch:4,device=v100-sxm2,rate=130GB/s");
  StrategyInput input = world.input(16);
  input.micro_batches = 4;
  input.pipeline_parallel = 2;
  const auto planned = [&](PipelineSchedule schedule) {
    input.schedule = schedule;
    return plan_tensor(input);
  };
  const Plan plain = planned(PipelineSchedule::one_f_one_b);
  Plan split = planned(PipelineSchedule::zero_bubble);
  split.layers = plain.layers;  // borders may differ
  split.schedule.stage_of_layer = plain.schedule.stage_of_layer;
  split.schedule.rank_lists.resize(plain.schedule.rank_lists.size());
  CHECK(reordered(plain, PipelineSchedule::zero_bubble) == split);
  CHECK(reordered(split, PipelineSchedule::one_f_one_b) == plain);
  const std::optional<Plan> more = reordered(plain, PipelineSchedule::zero_bubble_h2);
  REQUIRE(more);
  CHECK(more->schedule.rank_lists[0].slots ==
        stage_slots(PipelineSchedule::zero_bubble_h2, 0, 2, 4));
  CHECK(reordered(*more, PipelineSchedule::zero_bubble) == split);
  CHECK_FALSE(reordered(planned(PipelineSchedule::gpipe), PipelineSchedule::zero_bubble));
  input.micro_batches = 1;
  CHECK_FALSE(reordered(planned(PipelineSchedule::one_f_one_b), PipelineSchedule::zero_bubble));
  input.pipeline_parallel = 1;
  input.micro_batches = 4;
  CHECK_FALSE(reordered(planned(PipelineSchedule::one_f_one_b), PipelineSchedule::zero_bubble));
}

}  // namespace parsim::strategies
