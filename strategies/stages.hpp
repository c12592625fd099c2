// What pipelines share: cutting a chain into stages of equal load, and the order in which stages
// work on micro-batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// First element of every stage of a chain cut into contiguous, non-empty stages so that the
/// largest load is as small as possible; among equals the earlier cut. Dynamic programming over
/// (stages, elements), O(stages · elements²).
///
/// until   by stage, then n: load of the first n elements if that stage took them; rises with n
///
/// Checked against all cuts: tests/strategies/stages_test.cpp.
[[nodiscard]] std::vector<std::size_t> chain_split(const std::vector<std::vector<double>>& until);

/// The same, but of all cuts whose largest load is at most (1 + slack) times the least possible,
/// one with the least sum of `begin_cost` over the elements at which later stages begin.
[[nodiscard]] std::vector<std::size_t> chain_split(const std::vector<std::vector<double>>& until,
                                                   const std::vector<double>& begin_cost,
                                                   double slack);
/// The same, with stages that begin at the first layers of units only (blocks.hpp).
[[nodiscard]] std::vector<std::size_t> chain_split(const std::vector<std::vector<double>>& until,
                                                   const std::vector<double>& begin_cost,
                                                   double slack,
                                                   const std::vector<std::size_t>& units);

/// By layer, bytes of a sample that cross from before it to it or a later layer, of the outputs for
/// which `counts` returns true.
[[nodiscard]] std::vector<double> boundary_bytes(
    const Network& network, Precision precision,
    const std::function<bool(LayerId)>& counts = [](LayerId) { return true; });

/// Slots of a stage: all forwards then all backwards (GPipe, Huang et al. 2019); alternating
/// after a warm-up that fills the stages behind it (1F1B: PipeDream-Flush, Narayanan et al. 2021,
/// section 2.2); or that with backward split in two (ZB-H1: Qi et al. 2023, "Zero Bubble Pipeline
/// Parallelism", section 2.2): the weight gradients of micro-batch n come after backward of
/// n + stage, so that every stage has as many micro-batches in flight as the first one of 1F1B.
/// With T_F, T_B and T_W of forward and the halves of backward and at least as many micro-batches
/// as stages, equal stages are idle for
///
///     (stages - 1) · (T_F + T_B - T_W)      if T_W is no longer than T_F and T_B
///
/// instead of 1F1B's (stages - 1) · (T_F + T_B + T_W). ZB-H2 (the same, section 2.3) has twice as
/// many micro-batches in flight, 2 · (stages - stage) - 1 after the warm-up, so that a stage does
/// not wait for what is under way; its authors let stages begin a step at different times, which
/// saves a fill that a single step has. A single stage has nothing to fill.
[[nodiscard]] std::vector<Slot> stage_slots(PipelineSchedule schedule, std::int32_t stage,
                                            std::int32_t stages, std::int32_t micro_batches);

/// Micro-batches of which a stage keeps something at a time, of many; not of GPipe, which keeps
/// all.
[[nodiscard]] constexpr std::int32_t most_in_flight(PipelineSchedule schedule, std::int32_t stage,
                                                    std::int32_t stages) {
  if (schedule == PipelineSchedule::zero_bubble) return stages;
  if (schedule == PipelineSchedule::zero_bubble_h2) return 2 * stages - stage - 1;
  return stages - stage;
}

/// The same of the slots of a rank list, in any order.
///
/// splits   whether they end with weight gradients (Schedule::split_backward)
[[nodiscard]] std::int32_t most_in_flight(const RankList& list, bool splits);

/// Slots of a device that has `chunks` stages of a pipeline, stages device, device + devices, ...:
/// with one, its stage_slots. With several, which Megatron-LM calls model chunks, interleaved 1F1B
/// (Narayanan et al. 2021, section 2.2): `devices` micro-batches go through a chunk, then they go
/// through the next one; backward in the same order from the last chunk to the first. Forward and
/// backward alternate after
///
///     (devices - device - 1) · 2 + (chunks - 1) · devices
///
/// forward passes, as in Megatron-LM's forward_backward_pipelining_with_interleaving; ZB-H1 has
/// half of the first summand, ZB-H2 all, and the weight gradients of a backward pass come `device`
/// passes later (PyTorch's ScheduleInterleavedZeroBubble, for ZB-H1). `schedule` and
/// `micro_batches` are as expect_interleavable wants them.
[[nodiscard]] std::vector<Slot> device_slots(PipelineSchedule schedule, std::int32_t device,
                                             std::int32_t devices, std::int32_t chunks,
                                             std::int32_t micro_batches);

/// ZB-H1 or ZB-H2.
[[nodiscard]] constexpr bool is_zero_bubble(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::zero_bubble || schedule == PipelineSchedule::zero_bubble_h2;
}
/// Whether a pipeline of so many stages has slots for weight gradients (Schedule::split_backward).
[[nodiscard]] constexpr bool splits_backward(PipelineSchedule schedule, std::size_t stages) {
  return is_zero_bubble(schedule) && stages > 1;
}

/// Which part of 1F1B's time ZB-H1 takes, with equal stages, and forward and the halves of backward
/// that take equally long: (m + (p - 1) / 3v) / (m + (p - 1) / v), with v model chunks a device.
/// See device_slots.
[[nodiscard]] constexpr double zero_bubble_gain(std::size_t devices, std::size_t chunks,
                                                std::int32_t micro_batches) {
  const auto work = static_cast<double>(micro_batches);
  const double fills = static_cast<double>(devices - 1) / static_cast<double>(chunks);
  return (work + fills / 3) / (work + fills);
}

/// A plan's stages in the order of a schedule: nothing if one micro-batch or stage leaves nothing
/// to order, or if the plan's own order is none of 1F1B, ZB-H1 and ZB-H2 of as many stages
/// for each rank list.
[[nodiscard]] std::optional<Plan> reordered(const Plan& plan, PipelineSchedule schedule);

/// The slots of all stages in an order in which they can be worked through one by one: any subset
/// of the stages, taken from it in this order, never waits for itself.
[[nodiscard]] std::vector<Slot> all_slots(PipelineSchedule schedule, std::int32_t stages,
                                          std::int32_t micro_batches);

/// Each is an operation per layer and pass.
constexpr std::int64_t most_micro_batches = 4096;
/// Numbers of micro-batches worth a look: divisors of the batch near powers of two, later of four,
/// up to sixteen a stage. The bubble is small from four a stage on (GPipe, section 2.3), but every
/// micro-batch launches its kernels anew.
[[nodiscard]] std::set<std::int32_t> numbers_of_micro_batches(std::int64_t batch,
                                                              std::size_t stages);

/// The number of contiguous parts that the user asked for; nothing if the strategy may choose.
/// Throws InputError in its name if they are less than one, or more than devices or layers.
/// `parts` is what the strategy calls them.
[[nodiscard]] std::optional<std::size_t> parts_asked(std::optional<std::int32_t> asked,
                                                     const StrategyInput& input,
                                                     std::size_t devices, std::string_view strategy,
                                                     std::string_view parts);

/// Throws InputError in the name of `strategy` if the batch is not a multiple of the micro-batches.
void expect_whole_micro_batches(std::int64_t batch, std::int32_t micro_batches,
                                std::string_view strategy);

}  // namespace parsim::strategies
