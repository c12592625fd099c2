// FSDP schedule: when to all-gather weights (ZeRO stage 3) and reduce-scatter gradients (stages 2
// and 3). A unit is a set of parameters with one all-gather and one reduce-scatter. A unit's
// weights are prefetched while the unit before it computes; its gradients are reduce-scattered
// while the next unit computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lowering/recompute.hpp"
#include "lowering/sync.hpp"

namespace parsim::lowering {

/// The units that each layer visit uses, each once.
using UnitsByVisit = std::vector<std::vector<std::size_t>>;

/// By layer, as far as any has one: the units whose parameters it uses.
using UnitsByLayer = std::vector<std::vector<std::size_t>>;

/// units   indices in `groups`; other groups are ignored
[[nodiscard]] UnitsByLayer units_by_layer(const std::vector<SyncGroup>& groups,
                                          std::span<const std::size_t> units);

/// The units whose parameters each visit uses, by visit.
[[nodiscard]] UnitsByVisit units_by_visit(std::span<const LayerVisit> visits,
                                          const UnitsByLayer& units);

/// The units whose gradients each visit adds to: those of backward visits only.
[[nodiscard]] UnitsByVisit filled_by_visit(std::span<const LayerVisit> visits,
                                           const UnitsByLayer& units);

/// Groups sharded at `zero_stage` or higher, one list for each set of devices: the groups of a list
/// share a memory limit.
[[nodiscard]] std::vector<std::vector<std::size_t>> groups_by_devices(
    const std::vector<SyncGroup>& groups, std::int32_t zero_stage);

/// Whether sharded gradients are reduce-scattered after every micro-batch. FSDP does so outside
/// no_sync (PyTorch, torch/distributed/fsdp: the hook after backward; Composer enters no_sync for
/// DDP only), and so do DeepSpeed's stages 2 and 3 (DeepSpeed issue 2252). In a pipeline, gradients
/// stay unsharded until the last micro-batch (torch/distributed/pipelining/stage.py,
/// backward_maybe_with_nosync), and where weight gradients have slots of their own.
[[nodiscard]] bool scatters_each_micro_batch(const Schedule& schedule);
/// Whether all gradients that workers sum among themselves are summed after every micro-batch
/// (ReduceEvery).
[[nodiscard]] bool sums_each_micro_batch(const Schedule& schedule);

/// Whether the layers are in several stages of a pipeline.
[[nodiscard]] bool has_stages(const Schedule& schedule);
/// Whether weights that ZeRO does not shard are gathered before a forward pass, a unit while the
/// unit before it computes, and not after the update: as in FSDP, which frees those of stage 2
/// after each backward pass, in a pipeline after the last one. Where it keeps whole gradients until
/// then, too (FSDP 1 in no_sync), it is of stage 1.
[[nodiscard]] bool gathers_before_forward(const SyncGroup& group, const Schedule& schedule);

/// An all-gather of a unit's weights.
struct WeightGather {
  std::size_t visit = 0;  ///< issued before this visit
  std::size_t unit = 0;
  std::vector<std::size_t> evicted;  ///< units whose gathered weights are freed for it
  friend bool operator==(const WeightGather&, const WeightGather&) = default;
};

/// The all-gathers that give every visit its units: in order of use, each while the unit before it
/// computes, with two units in memory, or more where one visit needs more. The least recently used
/// unit is evicted, but none that the pass uses again soon, with at most 10⁹ elements of other
/// units in between (DeepSpeed's stage3_max_reuse_distance): a tied table of a small network, a
/// block that is recomputed before its backward pass, which is one unit in FSDP. Nor one that the
/// pass uses at both ends, as FSDP's root and the unit of a tied table. It is gathered once a pass.
///
/// elements   by unit
/// resident   in: units in memory before the first visit, least recently used first; out: those
///            after the last visit
/// late       each is issued when its use begins, so that it follows the sums issued until then
///            (Schedule::late_gathers)
///
/// FSDP does this with prefetching and a limit of two units (Zhao et al. 2023, "PyTorch FSDP",
/// sections 3.3 and 3.4).
[[nodiscard]] std::vector<WeightGather> weight_gathers(const UnitsByVisit& needs,
                                                       const std::vector<std::int64_t>& elements,
                                                       std::vector<std::size_t>& resident,
                                                       bool late = false);
/// Takes out of `resident` what is freed when a pass of a micro-batch ends, and returns it: after
/// forward all but the last unit, which the backward pass begins with, after backward all. So does
/// FSDP (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, post_forward, post_backward;
/// _runtime_utils.py, _post_forward_reshard), where the root, or the head's unit, is not freed
/// after forward. Of divided experts, no unit is kept.
std::vector<std::size_t> freed_after(bool keeps_last, std::vector<std::size_t>& resident);
/// By unit: elements of the whole groups.
[[nodiscard]] std::vector<std::int64_t> elements_of(const std::vector<SyncGroup>& groups);

/// Peak bytes of gathered weights in a forward and a backward pass, with weight_gathers().
///
/// elements, bytes   by unit
[[nodiscard]] std::int64_t most_gathered(const UnitsByVisit& forward, const UnitsByVisit& backward,
                                         const std::vector<std::int64_t>& elements,
                                         const std::vector<std::int64_t>& bytes);

/// A unit whose first backward kernel waits until an earlier unit's gradients are reduce-scattered.
struct GradientBufferReuse {
  std::size_t visit = 0, unit = 0;
  std::size_t previous = 0;  ///< the unit whose buffer it takes
  friend bool operator==(const GradientBufferReuse&, const GradientBufferReuse&) = default;
};
/// Two units have unsharded gradients at a time: one is being computed, the one before it is being
/// reduce-scattered. A unit that is computed for longer (a tensor shared by two distant layers)
/// adds to these two: no later unit can wait for it.
///
/// filled   by visit: units whose gradients it adds to
[[nodiscard]] std::vector<GradientBufferReuse> gradient_buffer_reuses(const UnitsByVisit& filled);
/// Peak bytes of unsharded gradients.
[[nodiscard]] std::int64_t most_filled(const UnitsByVisit& filled,
                                       const std::vector<std::int64_t>& bytes);

}  // namespace parsim::lowering
