// Plans of tensor, pipeline and data parallelism together, and what they cost by a closed form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lowering/gradient_flow.hpp"
#include "strategies/pipeline_cut.hpp"
#include "strategies/strategies.hpp"
#include "strategies/tensor/context.hpp"

namespace parsim::strategies::tensor {

/// Tensor, pipeline and data parallel degrees.
struct ParallelDegrees {
  std::size_t tensor = 1, pipeline = 1, data = 1;
  std::int32_t micro_batches = 1;
  std::size_t chunks = 1;   ///< of the model that a device has, each a stage (device_slots)
  std::size_t experts = 1;  ///< replicas, or devices, that divide the experts (divide_experts)
  std::size_t context = 1;  ///< parts of the tokens (share_tokens)
  [[nodiscard]] std::size_t stages() const { return pipeline * chunks; }
  /// Devices of a replica of a stage.
  [[nodiscard]] std::size_t group() const { return tensor * context; }
  friend auto operator<=>(const ParallelDegrees&, const ParallelDegrees&) = default;
};

/// Degrees with everything that a plan needs. Device k of replica r of stage s is devices[(s · data
/// + r) · group + k]: those of a tensor-parallel group are neighbours, then those that divide the
/// tokens (LayerShare), then replicas, then stages (Narayanan et al. 2021, "Efficient Large-Scale
/// Language Model Training on GPU Clusters Using Megatron-LM", section 3). With several chunks
/// stage s is on the devices of stage s mod pipeline.
struct Arrangement {
  ParallelDegrees degrees;
  std::vector<DeviceId> devices;
  std::vector<std::int64_t> shares;  ///< samples of a micro-batch by replica
  PipelineCut cut;                   ///< its step: the closed form, gradients summed afterwards
};

/// Makes arrangements for one input; remembers what they share.
class Arranging {
 public:
  explicit Arranging(const StrategyInput& input);

  /// Replicas share a micro-batch by the speed of their slowest devices, and stages are cut so that
  /// the pipeline is fast (pipeline_cut).
  [[nodiscard]] Arrangement arrange(const ParallelDegrees& degrees, std::vector<DeviceId> devices);

  /// With stages cut for this order of micro-batches, which matters where devices have several.
  [[nodiscard]] Arrangement cut_for(Arrangement arrangement, PipelineSchedule schedule);

  [[nodiscard]] Plan plan_of(const Arrangement& arrangement);

  /// What cutting stages within blocks would gain (finer_cut_note).
  [[nodiscard]] std::string note_on_cut(const Arrangement& arrangement);

  /// What a step takes at least, roughly: stages cut anywhere, even within a layer, hand-overs and
  /// updates free. Much quicker than `arrange`.
  [[nodiscard]] double least_step(const ParallelDegrees& degrees,
                                  const std::vector<DeviceId>& devices);
  /// Of the device that computes longest with these stages, the kernels of all micro-batches: no
  /// step takes less.
  [[nodiscard]] double busiest(const Arrangement& arrangement);

 private:
  /// A device of each kind that a stage has, with the largest share of samples that it gets.
  using Loads = std::vector<std::pair<DeviceId, std::int64_t>>;

  const std::vector<std::vector<Cut>>& cuts(std::size_t degree);
  const std::vector<LayerShare>& shares_of_tokens(const ParallelDegrees& degrees);
  [[nodiscard]] double context_exchange(const Arrangement& a, std::size_t stage, LayerId id,
                                        std::int64_t samples) const;
  const std::vector<double>& gathered(std::size_t degree);
  Seconds time_on(DeviceId device, std::int64_t samples);
  std::vector<std::int64_t> shares(const ParallelDegrees& degrees,
                                   const std::vector<DeviceId>& devices);
  [[nodiscard]] Loads loads(const Arrangement& a, std::size_t stage) const;
  /// Of a micro-batch with so many samples, by layer.
  const std::vector<double>& kernels(const Arrangement& a, DeviceId device, std::int64_t samples);
  /// What a stage's groups exchange for their products with it, by layer.
  const std::vector<double>& exchanges(const Arrangement& a, std::size_t stage,
                                       std::int64_t samples);
  const std::vector<double>& until(const Arrangement& a, std::size_t stage);
  ChainCosts costs_of(const Arrangement& a);
  [[nodiscard]] PipelineCut interleaved(const ParallelDegrees& degrees, const ChainCosts& costs,
                                        PipelineSchedule schedule) const;
  [[nodiscard]] double expert_exchange(const Arrangement& a, std::size_t stage, LayerId id,
                                       std::int64_t samples);
  [[nodiscard]] double owners(const Arrangement& a, const Layer& layer) const;
  double sums_left_over(const Arrangement& a, const std::vector<std::vector<double>>& until);

  const StrategyInput& input_;
  lowering::GradientFlow flow_;
  std::vector<std::vector<Consumer>> readers_;
  std::vector<double> boundary_;    ///< by layer: a sample's bytes that cross from before it
  std::vector<std::size_t> units_;  ///< first layers at which stages may begin
  /// By tensor degree, then layer: its elements that every device of a group holds and needs.
  std::map<std::size_t, std::vector<double>> gathered_;
  std::map<std::size_t, std::vector<std::vector<Cut>>> cuts_;  ///< by tensor degree
  /// By tensor and context degree.
  std::map<std::pair<std::size_t, std::size_t>, std::vector<LayerShare>> token_shares_;
  using Key = std::vector<std::int64_t>;
  std::map<Key, std::vector<double>> until_;      ///< by what distinguishes stages
  std::map<Key, std::vector<double>> kernels_;    ///< by tensor, context, model, samples
  std::map<Key, std::vector<double>> exchanges_;  ///< by tensor, samples, devices of a group
  /// By model and samples: the whole network.
  std::map<std::pair<std::int32_t, std::int64_t>, Seconds> time_on_;
  /// By devices and payload: an all-to-all, which takes long to price among many devices.
  std::map<std::pair<std::vector<DeviceId>, Bytes>, Seconds> all_to_alls_;
  /// By model, tensor degree and micro-batches: all updates, a micro-batch's share.
  std::map<std::tuple<std::int32_t, std::size_t, std::int32_t>, double> updates_;
};

}  // namespace parsim::strategies::tensor
