// How groups of devices cut layers, those of unlike groups reconciled. Private to strategies/.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "strategies/strategies.hpp"
#include "strategies/tensor/split.hpp"

namespace parsim::strategies {

/// A cut of a layer by how the devices of a group share it, all along one dimension. Groups of one
/// device cut nothing.
struct GroupCuts {
  Dim dim = Dim::replica;
  std::map<tensor::DeviceUnits, std::vector<std::int64_t>> sizes;
  /// Devices of the largest group.
  [[nodiscard]] std::size_t most() const;
  /// The cut for all groups: every part of every group is some of its parts.
  [[nodiscard]] Cut finest() const;
  /// By part of the finest cut, which member of a group has it.
  [[nodiscard]] std::vector<std::size_t> members(const tensor::DeviceUnits& units) const;
};

class GroupSplits {
 public:
  explicit GroupSplits(const StrategyInput& input) : input_(input) {}
  /// By layer, for the groups of a stage. A layer that they would cut along different dimensions
  /// is computed by all devices, and those that share a parameter with it.
  const std::vector<GroupCuts>& of(std::set<tensor::DeviceUnits> groups);
  /// What was decided so.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  void all_compute(std::vector<GroupCuts>& all, std::vector<bool>& marked);

  const StrategyInput& input_;
  std::map<std::set<tensor::DeviceUnits>, std::vector<GroupCuts>> cuts_;
  std::vector<std::string> notes_;
};

}  // namespace parsim::strategies
