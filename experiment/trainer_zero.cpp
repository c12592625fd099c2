// Where DeepSpeed's ZeRO moves or keeps something else than a plan's.
#include <fmt/format.h>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/trainer_layout.hpp"

namespace parsim::experiment {

namespace {

/// Of a whole number, which JSON may write as "5e8". None if it is left open, or not a number.
std::optional<double> elements_at(const TrainerWords& words, std::string_view key) {
  return words.has(key) ? to_number<double>(words.text(key).value_or("")) : std::nullopt;
}

/// stage_1_and_2.py, average_tensor: reduces each part to its owner only if both settings say so.
/// stage3.py, __reduce_and_partition_ipg_grads: all-reduces only without reduce_scatter.
void note_all_reduces(const TrainerWords& words, LayoutFile& file) {
  constexpr std::string_view scatter_at = "zero_optimization.reduce_scatter",
                             multi_at = "zero_optimization.use_multi_rank_bucket_allreduce";
  const bool scatters = !words.has(scatter_at) || words.is_on(scatter_at);
  const bool multi = !words.has(multi_at) || words.is_on(multi_at);
  if (scatters && (file.zero_stage == 3 || !multi)) return;
  std::string where = words.file();
  if (!scatters) {
    where = words.where(scatter_at);
  } else if (words.has(multi_at)) {
    where = words.where(multi_at);
  }
  file.notes.push_back(
      fmt::format("{}: DeepSpeed all-reduces gradients{}; this step has reduce-scatters, which "
                  "move half the bytes, and is too short",
                  where, scatters ? ", unless \"use_multi_rank_bucket_allreduce\" is false" : ""));
}

/// parameter_offload.py, mark_persistent_parameters: stage 3 keeps small tensors whole.
void check_persistence(const TrainerWords& words, const Network& network) {
  constexpr std::string_view key = "zero_optimization.stage3_param_persistence_threshold";
  constexpr double tolerated = 0.05;  // guessed; of all parameters
  const std::optional<double> most = elements_at(words, key);
  if (!most) return;
  std::int64_t whole = 0;
  for (const Parameter& parameter : network.parameters) {
    if (static_cast<double>(parameter.elements()) <= *most) whole += parameter.elements();
  }
  const double share = static_cast<double>(whole) / static_cast<double>(parameter_count(network));
  if (share <= tolerated) return;
  throw InputError(
      words.where(key),
      fmt::format("{} elements, which leaves {:.0f} % of the parameters whole on "
                  "each GPU",
                  *words.text(key), 100 * share),
      fmt::format("accepted: {:.0f} % at most; stage 2 leaves all whole", 100 * tolerated));
}

/// stage3.py, reduce_independent_p_g_buckets_and_remove_grads: sums begin with a full bucket.
void note_one_bucket(const TrainerWords& words, const Network& network, LayoutFile& file) {
  constexpr std::string_view key = "zero_optimization.reduce_bucket_size";
  constexpr double usual = 5e8;
  const bool open = words.has(key) && words.text(key) == "auto";
  const double elements = elements_at(words, key).value_or(usual);
  if (open || elements < static_cast<double>(parameter_count(network))) return;
  file.notes.push_back(fmt::format(
      "{}: a bucket of {:.3g} elements holds all gradients: DeepSpeed sums them after the backward "
      "pass; they overlap with it in this step, which is too short",
      words.has(key) ? words.where(key) : words.file(), elements));
}

/// partitioned_param_coordinator.py, __params_to_release: weights stay where few elements of others
/// come before their next use, in the backward pass as well.
void note_reuse(const TrainerWords& words, const Network& network, LayoutFile& file) {
  constexpr std::string_view key = "zero_optimization.stage3_max_reuse_distance";
  constexpr double usual = 1e9, small = 0.05;  // the latter guessed, of all parameters
  const double kept = elements_at(words, key).value_or(usual) / 2;  // there and back
  const double share = kept / static_cast<double>(parameter_count(network));
  if (share < small) return;
  file.notes.push_back(
      fmt::format("{}: DeepSpeed keeps {} from the forward to the backward pass "
                  "(stage3_max_reuse_distance); this step gathers them twice, so it is too long, "
                  "and takes too little memory",
                  words.has(key) ? words.where(key) : words.file(),
                  share >= 1 ? std::string("all weights")
                             : fmt::format("the last {:.0f} % of the weights", 100 * share)));
}

constexpr std::string_view accumulated_at = "data_types.grad_accum_dtype";

/// runtime/engine.py, get_data_types: by default as the weights.
bool accumulates_in_fp32(const TrainerWords& words) {
  const std::string type = words.text(accumulated_at).value_or("");
  return type == "fp32" || type == "float32";
}

/// Where gradients add up in another precision than they travel in. Throws InputError without ZeRO,
/// where DeepSpeed does.
void note_accumulation(const TrainerWords& words, LayoutFile& file) {
  if (!accumulates_in_fp32(words)) return;
  // engine.py, _do_optimizer_sanity_check: an "unsupported mix".
  if (file.zero_stage == 0 && file.precision && file.precision != Precision::fp32) {
    words.refuse(accumulated_at,
                 fmt::format("{}, as the weights, or ZeRO", to_text(*file.precision)));
  }
  if (!file.reduce_precision || element_bytes(*file.reduce_precision) == 4) return;
  file.notes.push_back(fmt::format(
      "{}: gradients accumulate in {} here, which takes less memory than in {}",
      words.where(accumulated_at), to_text(*file.reduce_precision), *words.text(accumulated_at)));
}

}  // namespace

void check_deepspeed_zero(const TrainerWords& words, const Network& network, std::int64_t replicas,
                          bool overlaps, LayoutFile& file) {
  note_accumulation(words, file);
  if (replicas == 1 || file.zero_stage == 0) return;
  note_all_reduces(words, file);
  if (file.zero_stage != 3) return;
  check_persistence(words, network);
  note_reuse(words, network, file);
  if (overlaps) note_one_bucket(words, network, file);
}

}  // namespace parsim::experiment
