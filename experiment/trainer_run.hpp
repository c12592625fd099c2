// A plan as a trainer runs it, where that is not as the plan says.
#pragma once

#include <string>
#include <string_view>

#include "core/plan.hpp"
#include "experiment/experiment.hpp"
#include "experiment/run.hpp"

namespace parsim::experiment {

/// What a trainer does where no option says otherwise: when it reduces gradients, whose kernels run
/// between matrix products.
void follow_trainer(const LayoutFile& file, Request& request);

/// Throws InputError if the replicas of a trainer would get unequal numbers of samples.
void check_replicas(const LayoutFile& file, std::int64_t micro_batches, std::int64_t batch);

/// A plan's file: with --fusion its memory is that of the framework whose kernels run. Throws
/// InputError as plan_from_json.
[[nodiscard]] Plan plan_of_file(const std::string& text, const std::string& file,
                                const Request& request);

/// The kernels are those of the plan's framework, unless --fusion or --launch decides.
void follow_framework(const Plan& plan, Request& request);

[[nodiscard]] Plan with_habits(const Network& network, Plan plan, const GroupHabits& habits);

/// With the trainer's buckets of gradients, loss and its way to send between stages. `trainer`: as
/// --launch names it.
[[nodiscard]] Plan run_by(std::string_view trainer, const Experiment& experiment, const Plan& plan);

/// A run of a trainer that pads the vocabulary to a multiple of so many words.
[[nodiscard]] RunResult run_padded(const Experiment& experiment, const Plan& plan,
                                   std::int64_t multiple);

/// A plan that is compared with that of a trainer's file: sums of gradients begin after the
/// backward pass where the trainer does not overlap them. Without such a file, or with --bucket, as
/// it is.
[[nodiscard]] Plan compared(const Experiment& experiment, Plan plan);

/// By whose step and memory searches choose: of Request::launcher if there is one, else as
/// compared.
[[nodiscard]] Plan searched(const Experiment& experiment, const Plan& plan);

}  // namespace parsim::experiment
