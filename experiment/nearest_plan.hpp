// In place of a plan that something else refuses: the fastest of the plain ones that it accepts.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/units.hpp"
#include "experiment/run.hpp"

namespace parsim::experiment {

/// A plan, by the options that make it.
struct NearestPlan {
  /// "--strategy tensor --tp 2 --pp 1 --dp 4 without --zero-group", or "--layout a.toml without its
  /// samples". In place of the request's, with all that must go, so that the command is accepted.
  std::string options;
  Seconds step{};
  std::size_t tried = 0;  ///< plans that were compared
};

/// Nothing for a plan that is accepted; else what would be, in the words of a refusal: "no
/// --zero-group, or --launch megatron".
using Refusal = std::function<std::optional<std::string>(const Plan&)>;
/// The plan as it is run, by whose time plans are compared.
using AsRun = std::function<Plan(const Plan&)>;

/// Tries the request's layout with equal shares, tensor parallelism with the degrees of `refused`
/// (without and with what a search chose for it of micro-batches, ZeRO, recomputation and sequence
/// parallelism), data parallelism, tensor parallelism with degrees of its choice, also without the
/// request's --ep, --etp and --micro-batches, the pipeline, and where none of these is accepted, on
/// up to 128 GPUs, with every combination of degrees that are powers of two; with the request's
/// other options and equal shares. On mixed clusters --cp 1 keeps tensor parallelism from looking
/// for stages that differ, which takes long. Where the refusal of one of these plans names options,
/// it is tried with these, too, up to three in a row; and where a plan is accepted but does not fit
/// in memory, with more of ZeRO and recomputation. The work is bounded: of each of these plans some
/// twelve changes are tried. The plan of the shortest simulated step that is accepted and that fits
/// in memory, by the options from which a strategy that simulates its finalists makes it, too. Ties
/// go to the first of these, without changes first. Nothing if there is none.
[[nodiscard]] std::optional<NearestPlan> nearest_plan(const Experiment& experiment,
                                                      const Plan& refused, const Refusal& refusal,
                                                      const AsRun& as_run = {});

}  // namespace parsim::experiment
