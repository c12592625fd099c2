#include <fmt/format.h>

#include "core/json.hpp"
#include "validation/known_columns.hpp"
#include "validation/published_machines.hpp"
#include "validation/published_plan.hpp"
#include "validation/published_training.hpp"
#include "validation/validation.hpp"

namespace parsim::validation {

namespace {

std::int64_t batch_of(const Claim& claim) {
  if (has_layout(claim) && !has_layout_file(claim)) return layout_of(claim).batch();
  return count_column(claim, "global_batch",
                      count_column(claim, "batch_per_gpu", 32) * count_column(claim, "n_gpus", 1) *
                          count_column(claim, "grad_accum", 1));
}

/// The row's network without its vocabulary, which Megatron-LM pads to a multiple of 128 x tp
/// (--make-vocab-size-divisible-by): one model under plans of different degrees.
std::string network_in(const Claim& claim) {
  std::string call = network_of(claim);
  if (const std::size_t at = call.find("vocab_size="); at != std::string::npos) {
    const std::size_t end = call.find(',', at);
    call.erase(at, end == std::string::npos ? end : end + 1 - at);
  }
  const std::string model = column(claim, "model");
  return model.empty() || model == call ? call : fmt::format("{} ({})", model, call);
}

/// Seconds of a step from `value` in the claim's unit.
double seconds_of(const Claim& claim, double value) {
  return claim.unit == "ms" ? 1e-3 * value : static_cast<double>(batch_of(claim)) / value;
}

}  // namespace

std::optional<PlanRun> plan_run(const Claim& claim, const Prediction& prediction) {
  if (claim.quantity != "throughput") return std::nullopt;
  if (claim.ran ? !prediction.value : prediction.verdict.empty()) return std::nullopt;
  PlanRun run;
  const std::string length = column(claim, "seq_len");
  run.group =
      fmt::format("{}{}, {} x {}, {}, batch {}, {}, {}", network_in(claim),
                  length.empty() ? "" : fmt::format(" of {} tokens", length),
                  count_column(claim, "n_gpus", 1), device_of(claim), column(claim, "machine"),
                  batch_of(claim), to_text(precision_of(claim)), column(claim, "framework"));
  run.name = claim.name;
  for (const std::string_view name : plan_columns()) run.plan += column(claim, name) + "|";
  if (overlaps_products(claim)) run.plan += "tp-overlap|";
  run.fits = prediction.verdict != "over";
  if (claim.ran) {
    run.measured_s = seconds_of(claim, claim.expected);
    run.predicted_s = seconds_of(claim, *prediction.value);
  }
  return run;
}

}  // namespace parsim::validation
