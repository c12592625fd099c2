// Valid plans that no strategy would make: they meet the corners of lowering.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cluster.hpp"
#include "core/network.hpp"
#include "core/plan.hpp"

namespace parsim::testing {

/// One layer on one device for the whole batch; every layer the same.
[[nodiscard]] Plan single_device_plan(const Network& network, std::int64_t batch);

/// A plan of at most `gpus` devices with random grids (uneven, empty parts, halos, cut
/// contractions, replicas, repeated devices), stages, orders, buckets, synchronisation and
/// recomputation. Device `gpus` may be a parameter server. The same seed gives the same plan.
[[nodiscard]] Plan random_plan(const Network& network, std::size_t gpus, std::int64_t batch,
                               std::uint64_t seed);

/// A plan like those of random_plan, but all devices share most layers by sample, and sum their
/// gradients by rings.
[[nodiscard]] Plan random_replicated_plan(const Network& network, std::size_t gpus,
                                          std::int64_t batch, std::uint64_t seed);

/// A plan like those of random_plan, but a pipeline in interleaved 1F1B (interleaved_order): two or
/// four of groups of devices, each with two or three stages if there are enough layers. `batch` is
/// a multiple of four.
[[nodiscard]] Plan random_interleaved_plan(const Network& network, std::size_t gpus,
                                           std::int64_t batch, std::uint64_t seed);

/// Slots of a device of a pipeline whose devices have `chunks` stages each, by the tables of
/// Megatron-LM (get_schedule_table): the twin of strategies::device_slots.
[[nodiscard]] std::vector<Slot> interleaved_order(std::int32_t device, std::int32_t devices,
                                                  std::int32_t chunks, std::int32_t micro_batches);

/// The plan, but replicas of random layers split states: up to a stage of ZeRO each, where no
/// parameter server has them.
[[nodiscard]] Plan with_split_states(Plan plan, std::uint64_t seed);

}  // namespace parsim::testing
