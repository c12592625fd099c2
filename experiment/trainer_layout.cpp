#include "experiment/trainer_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/trainer_file.hpp"
#include "strategies/blocks.hpp"
#include "strategies/price.hpp"

namespace parsim::experiment {

namespace {

/// By stage its first layer. What is before the first block goes with it, what is after the last
/// one with that; a stage without blocks has only the embedding or the head.
std::vector<std::size_t> first_layers(const Network& network,
                                      const std::vector<std::int64_t>& blocks) {
  const std::vector<std::int64_t> of_layer = strategies::blocks_of(network);
  std::vector<std::size_t> first;
  std::int64_t next = 0;
  for (const std::int64_t number : blocks) {
    const auto begin = std::find_if(of_layer.begin(), of_layer.end(),
                                    [&](std::int64_t block) { return block >= next; });
    first.push_back(first.empty() ? 0 : static_cast<std::size_t>(begin - of_layer.begin()));
    next += number;
  }
  return first;
}

}  // namespace

strategies::PipelineSends sends_of_trainer(std::string_view trainer,
                                           strategies::PipelineSchedule schedule,
                                           std::int64_t chunks) {
  const bool one_each = chunks == 1 && schedule == strategies::PipelineSchedule::one_f_one_b;
  const bool waits = trainer == "deepspeed" || (one_each && trainer != "accelerate");
  return waits ? strategies::PipelineSends::blocking : strategies::PipelineSends::overlapped;
}

sim::Fusion fusion_of_trainer(std::string_view trainer) {
  const bool own = trainer == "megatron" || trainer == "flagscale";
  return own ? sim::Fusion::megatron : sim::Fusion::none;
}

ReduceEvery reduced_by(std::string_view trainer, ReduceEvery planned) {
  if (trainer == "torchtitan") return ReduceEvery::micro_batch;
  if (trainer != "accelerate") return ReduceEvery::automatic;
  return planned == ReduceEvery::micro_batch ? planned : ReduceEvery::step;
}

bool overlaps_sums(std::string_view trainer, std::int32_t zero_stage, std::int64_t stages) {
  if (trainer == "deepspeed") return zero_stage > 0;
  if (trainer == "torchtitan") return stages == 1;
  return trainer != "accelerate" || zero_stage != 1;
}

std::int64_t replicas_of(const TrainerWords& words, std::string_view name, std::size_t devices,
                         const TrainerGroups& groups) {
  const auto one = static_cast<std::int64_t>(
      TrainerGroups{groups.tensor, groups.context, 1, groups.pipeline}.devices());
  const auto all = static_cast<std::int64_t>(devices);
  if (all >= one && all % one == 0) return all / one;
  throw InputError(
      words.where(name),
      fmt::format("{} of a replica (tp {} x cp {} x pp {}) on a cluster of {}", counted(one, "GPU"),
                  groups.tensor, groups.context, groups.pipeline, all),
      "accepted: degrees whose product divides the number of GPUs; a hostfile in the same folder "
      "leaves GPUs out");
}

strategies::Layout uniform_layout(const TrainerWords& words, const Network& network,
                                  const std::vector<std::int64_t>& blocks,
                                  const TrainerGroups& groups, std::int64_t chunks,
                                  const std::vector<DeviceId>& devices) {
  if (constexpr std::string_view name = "num-virtual-stages-per-pipeline-rank";
      chunks > 1 && groups.pipeline == 1 && words.has(name)) {
    words.refuse(name, "1 without a pipeline of two stages or more");
  }
  return strategies::even_layout(
      first_layers(network, blocks), static_cast<std::size_t>(groups.tensor * groups.context),
      static_cast<std::size_t>(groups.data), devices, static_cast<std::int32_t>(chunks));
}

strategies::Layout mesh_layout(const TrainerWords& words, std::string_view name,
                               const Network& network, const std::vector<std::int64_t>& blocks,
                               const std::vector<TrainerGroups>& groups,
                               const std::vector<DeviceId>& devices) {
  std::int64_t stages = 0;
  for (const TrainerGroups& one : groups) stages += one.pipeline;
  const std::int64_t all = std::ssize(strategies::first_layers_of_blocks(network));
  if (std::ssize(blocks) != stages ||
      std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0}) != all) {
    words.refuse(name,
                 fmt::format("numbers of blocks of {} stages that add up to {}", stages, all));
  }
  const std::vector<std::size_t> first = first_layers(network, blocks);
  strategies::Layout layout;
  auto next = devices.begin();
  for (const TrainerGroups& one : groups) {
    for (std::int64_t p = 0; p < one.pipeline; ++p) {
      strategies::LayoutStage& stage = layout.stages.emplace_back();
      stage.first = first[layout.stages.size() - 1];
      for (std::int64_t r = 0; r < one.data; ++r) {
        const auto end = next + one.tensor * one.context;
        stage.groups.emplace_back(next, end);
        next = end;
      }
    }
  }
  return layout;
}

void set_batch(const TrainerWords& words, std::string_view name, std::optional<std::int64_t> batch,
               std::int64_t samples, LayoutFile& file) {
  if (batch && *batch % samples != 0) {
    throw InputError(
        words.where(name),
        fmt::format("{} samples in micro-batches of {} over all replicas", *batch, samples),
        "accepted: a multiple");
  }
  constexpr std::int64_t most = 65'536;
  if (batch && *batch / samples > most) {
    throw InputError(words.where(name), fmt::format("{} micro-batches", *batch / samples),
                     fmt::format("accepted: {} at most", most));
  }
  file.batch = batch.value_or(samples);
  file.micro_batches = static_cast<std::int32_t>(*file.batch / samples);
}

Bytes usual_bucket(std::string_view trainer, std::int32_t zero_stage, const TrainerGroups& groups,
                   Precision reduced) {
  if (!overlaps_sums(trainer, zero_stage, groups.pipeline)) return after_backward;
  const bool deepspeed = trainer == "deepspeed", gathers = zero_stage == 3;
  const bool fsdp = (trainer == "torchtitan" || trainer == "accelerate") && zero_stage >= 2;
  if (fsdp || (gathers && !deepspeed)) return strategies::bucket_of_block;
  const bool ddp = (trainer == "megatron" || trainer == "flagscale") && zero_stage < 2;
  const std::int64_t replicas = groups.data * groups.context;
  if (replicas == 1 || (!deepspeed && !ddp)) return strategies::ddp_bucket;
  const std::int64_t elements = deepspeed && gathers ? deepspeed_prefetch
                                : deepspeed
                                    ? 500'000'000
                                    : std::max<std::int64_t>(40'000'000, 1'000'000 * replicas);
  return {elements * groups.tensor * element_bytes(reduced)};
}

void set_bucket(const TrainerWords& words, const BucketWords& how, std::string_view trainer,
                const TrainerGroups& groups, LayoutFile& file) {
  const bool gathers = file.zero_stage == 3;
  if (!how.overlaps && gathers) {
    file.notes.push_back(
        fmt::format("{}: sums of gradients and gathers of weights do not overlap with kernels "
                    "there; they do in "
                    "this step, which is too short",
                    how.at));
  } else if (!how.overlaps) {
    file.bucket = after_backward;
    return;
  }
  if (gathers && trainer != "deepspeed") return;  // by blocks
  const Precision reduced = file.reduce_precision.value_or(Precision::bf16);
  const std::int64_t each = element_bytes(reduced) * groups.tensor;
  if (!words.has(how.name)) {
    file.usual_bucket = usual_bucket(trainer, file.zero_stage.value_or(0), groups, reduced);
  } else if (words.text(how.name) == "auto") {
    if (how.automatic) file.usual_bucket = Bytes{*how.automatic * each};
  } else {
    const auto elements = to_number<double>(words.text(how.name).value_or(""));  // "5e8" in JSON
    constexpr double most = 1e12;
    const int least = gathers ? 0 : 1;  // without prefetches, module by module
    if (!elements || *elements < least || *elements > most) {
      words.refuse(how.name, fmt::format("{} to 1e12 elements", least));
    }
    (gathers ? file.usual_bucket : file.bucket) =
        Bytes{static_cast<std::int64_t>(*elements) * each};
  }
}

}  // namespace parsim::experiment
