// A plan as bytes for another process (core/packed.hpp).
#pragma once

#include <tuple>

#include "core/packed.hpp"
#include "core/plan.hpp"

namespace parsim {

auto packed_parts(PackedAs<Cut> auto& value) {
  auto& [dim, sizes] = value;
  return std::tie(dim, sizes);
}

auto packed_parts(PackedAs<ZeroSharding> auto& value) {
  auto& [stage, shares, group] = value;
  return std::tie(stage, shares, group);
}

auto packed_parts(PackedAs<LayerPlan> auto& value) {
  auto& [cuts, devices, zero, recompute, sync, joined, regather, zigzag, ring, overlap, apart,
         token_parts] = value;
  return std::tie(cuts, devices, zero, recompute, sync, joined, regather, zigzag, ring, overlap,
                  apart, token_parts);
}

auto packed_parts(PackedAs<RankList> auto& value) {
  auto& [devices, slots] = value;
  return std::tie(devices, slots);
}

auto packed_parts(PackedAs<Schedule> auto& value) {
  auto& [micro_batches, stage_of_layer, rank_lists, blocking_sends, split_backward, reduce_every,
         late_gathers] = value;
  return std::tie(micro_batches, stage_of_layer, rank_lists, blocking_sends, split_backward,
                  reduce_every, late_gathers);
}

auto packed_parts(PackedAs<Plan> auto& value) {
  auto& [strategy, network, cluster, dims, network_fingerprint, batch, precision, reduce_precision,
         optimizer, framework, layers, schedule, buckets, notes] = value;
  return std::tie(strategy, network, cluster, dims, network_fingerprint, batch, precision,
                  reduce_precision, optimizer, framework, layers, schedule, buckets, notes);
}

}  // namespace parsim
