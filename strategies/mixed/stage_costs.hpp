// What a stage of blocks costs on a set of devices: time, memory, sends. Private to the search for
// mixed stages.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "lowering/structure.hpp"
#include "strategies/mixed/classes.hpp"

namespace parsim::strategies::mixed {

/// Replicas of a stage on devices of one class: `count` groups of `tensor` devices.
struct Member {
  std::size_t of_class = 0, tensor = 1, count = 1;
  std::vector<std::int64_t> samples{};  ///< of a micro-batch, by group
  [[nodiscard]] std::size_t devices() const { return tensor * count; }
  [[nodiscard]] std::int64_t most_samples() const {
    return *std::max_element(samples.begin(), samples.end());
  }
};

/// The devices of a stage, without saying which of their classes: members of different classes.
struct StageShape {
  std::vector<Member> members;
  [[nodiscard]] std::size_t replicas() const {
    std::size_t all = 0;
    for (const Member& member : members) all += member.count;
    return all;
  }
};

/// Prices of stages that begin and end between blocks, by the cost model alone. Times are seconds.
class StageCosts {
 public:
  StageCosts(const StrategyInput& input, const std::vector<DeviceClass>& classes);

  [[nodiscard]] std::size_t blocks() const { return first_.size(); }
  [[nodiscard]] const std::vector<std::size_t>& first_layers() const { return first_; }

  /// Bytes of a sample that cross from before a block to it or a later one.
  [[nodiscard]] double bytes_across(std::size_t block) const { return boundary_[first_[block]]; }
  /// Forward and backward of a micro-batch through all blocks, by a group.
  [[nodiscard]] double whole_time(std::size_t of_class, std::size_t tensor, std::int64_t samples) {
    return until(of_class, tensor, samples).back();
  }
  /// By first block and end, [begin * (blocks + 1) + end]: a micro-batch's forward and backward,
  /// its slowest member.
  [[nodiscard]] std::vector<double> times(const StageShape& shape);
  /// Likewise: of them the products that make weight gradients.
  [[nodiscard]] std::vector<double> weights(const StageShape& shape);
  /// Likewise: what a stage does after its last backward pass: updates, and sums of gradients as
  /// far as that pass, two thirds of a micro-batch's time, does not cover them.
  [[nodiscard]] std::vector<double> afterwards(const StageShape& shape);
  /// Sums of the gradients of parameters that both the first and the last stage use, as tied
  /// embeddings: after everything else.
  [[nodiscard]] double shared_sum(const StageShape& first, const StageShape& last);
  /// Likewise: for how many micro-batches in flight the member that is worst off has memory.
  [[nodiscard]] std::vector<std::int32_t> most_in_flight(const StageShape& shape,
                                                         std::int32_t micro_batches);
  /// Bytes that a device of a member needs for blocks begin to end: `once`, and `each` for every
  /// micro-batch in flight.
  struct Need {
    double once = 0, each = 0;
  };
  [[nodiscard]] Need need(const StageShape& shape, const Member& member, std::size_t begin,
                          std::size_t end, std::int32_t micro_batches);
  /// Handing a micro-batch from a stage to one that begins with `block`, one way: over the links
  /// that the devices of a machine share, and gathered within the groups that receive it.
  /// `neighbours`: whether both stages, of one class, are on one machine; by default, if they are
  /// small enough.
  struct Send {
    double time = 0;
    double on_links = 0;  ///< of it between machines
  };
  [[nodiscard]] Send send(const StageShape& from, const StageShape& to, std::size_t block,
                          std::optional<bool> neighbours = {});

 private:
  struct Parameters {
    std::vector<double> elements;  ///< a device's, of the first n blocks
    double twice = 0;              ///< of them those that both the first and the last block use
    double largest = 0;            ///< of one parameter
    double largest_block = 0;
  };
  struct Activations {
    std::vector<double> kept;      ///< bytes of a micro-batch, of the first n blocks
    std::vector<double> sent;      ///< by block: those freed if the next one is on other devices
    std::vector<double> dropped;   ///< by block: bytes that are made again
    std::vector<double> gradient;  ///< by block: the largest gradient and its input's
  };
  /// Seconds of a layer.
  struct LayerTimes {
    double both = 0;       ///< forward and backward
    double exchanged = 0;  ///< within a tensor-parallel group
    double forward = 0;    ///< once more, if recomputed
    double weights = 0;    ///< weight gradients of a product
  };
  /// Seconds of the first n blocks: all of forward and backward, and of it the weight gradients.
  struct Passes {
    std::vector<double> all, weights;
  };
  const std::vector<std::vector<Cut>>& cuts(std::size_t tensor);
  /// Whether a layer takes as long as the first that is like it, which has been priced before.
  [[nodiscard]] bool repeats(std::size_t layer, const std::vector<std::vector<Cut>>& split) const;
  const Passes& passes(std::size_t of_class, std::size_t tensor, std::int64_t samples);
  std::vector<double> by_range(const StageShape& shape, std::vector<double> Passes::*kind);
  const std::vector<double>& until(std::size_t of_class, std::size_t tensor, std::int64_t samples);
  const std::vector<double>& updates(std::size_t of_class, std::size_t tensor);
  const Parameters& parameters(std::size_t tensor);
  const Activations& activations(std::size_t tensor, std::int64_t samples);
  /// Seconds of summing a range's gradients: a constant and so many for each element of a device.
  std::pair<double, double> sums(const StageShape& shape);
  /// By group of a shape, a device; `used` counts those of each class that are spoken for.
  [[nodiscard]] std::vector<DeviceId> a_device_each(const StageShape& shape,
                                                    std::map<std::size_t, std::size_t>& used) const;
  /// Rings of a stage, one for each part of a layer, that sum over the same links at a time.
  [[nodiscard]] double rings_at_once(const StageShape& shape,
                                     const std::vector<DeviceId>& devices) const;
  [[nodiscard]] std::vector<DeviceId> group(std::size_t of_class, std::size_t tensor) const;
  [[nodiscard]] double machines_of(const Member& member) const;

  const StrategyInput& input_;
  const std::vector<DeviceClass>& classes_;
  lowering::Structure structure_;
  std::vector<std::size_t> first_;  ///< by block its first layer
  std::vector<std::size_t> block_;  ///< by layer
  std::vector<double> boundary_;    ///< by layer: a sample's bytes that cross from before it
  std::vector<bool> dropped_;       ///< by layer: recomputed
  /// By layer: of an element that stays, and that stays if another block is on other devices.
  std::vector<std::int64_t> bytes_, stays_;
  std::map<std::size_t, std::vector<std::vector<Cut>>> cuts_;
  std::map<std::tuple<std::size_t, std::size_t, std::int64_t>, Passes> passes_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<double>> updates_;
  std::map<std::size_t, Parameters> parameters_;
  std::map<std::pair<std::size_t, std::int64_t>, Activations> activations_;
};

}  // namespace parsim::strategies::mixed
