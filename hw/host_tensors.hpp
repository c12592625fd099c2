// The tensors of a DAG's devices in the host's memory: what engines whose kernels run on the CPU
// have in common (hw/kernels.hpp says what an engine is).
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hw/kernels_moves.hpp"
#include "hw/remote_slices.hpp"

namespace parsim::hw {

template <class T>
class HostTensors {
 public:
  using Scalar = T;

  /// mine            the one device whose tensors this process has; else it has all of them
  /// for_libraries   tensors lie as library_layout() says; else row-major
  explicit HostTensors(const ExecDag& dag, std::optional<DeviceId> mine = {},
                       bool for_libraries = false)
      : dag_(dag),
        stores_(parsim::hw::stores(dag)),
        received_(received_gradients(dag)),
        mine_(mine),
        for_libraries_(for_libraries) {
    samples_ = dag.batch / stores_.micro_batches;
    std::erase_if(stores_.all, [&](const auto& entry) { return !runs(entry.first.device); });
    for (const auto& [key, store] : stores_.all) {
      memory_[key].resize(static_cast<std::size_t>(store.box.volume()));
    }
  }

  [[nodiscard]] View<T> view(const StoreKey& key) {
    const auto found = stores_.all.find(key);
    ensure(found != stores_.all.end(), "a kernel's tensor is among the DAG's stores");
    return dense_view(memory_.at(key).data(), found->second.box,
                      for_libraries_ ? library_layout(dag_, key) : Layout::row_major);
  }
  [[nodiscard]] View<T> view_of(const TensorSlice& slice) {
    for (const auto& [mirrored, view] : mirrors_) {
      if (mirrored.key == slice.key && mirrored.region.contains(slice.region)) return view;
    }
    return view(slice.key);
  }
  [[nodiscard]] View<T> state(const StoreKey& key) {
    return memory_.contains(key) ? view(key) : View<T>{};
  }
  [[nodiscard]] T* scratch(std::int64_t count) {
    scratch_.push_back(std::make_unique<T[]>(static_cast<std::size_t>(count)));
    return scratch_.back().get();
  }
  /// Every tensor keeps its place.
  [[nodiscard]] bool gives_back(const StoreKey&) const { return false; }
  [[nodiscard]] bool is_apart() const { return mine_.has_value(); }
  [[nodiscard]] bool runs(DeviceId device) const { return !mine_ || *mine_ == device; }
  /// Recorded for take_rivalry().
  [[nodiscard]] bool has_rivals(const StoreKey& key) {
    const bool found = std::binary_search(received_.begin(), received_.end(), key);
    rivalry_ = rivalry_ || found;
    return found;
  }
  [[nodiscard]] T rate() const { return static_cast<T>(learning_rate); }
  [[nodiscard]] std::int64_t samples() const { return samples_; }

  [[nodiscard]] const Stores& stores() const { return stores_; }
  /// Whether has_rivals() returned true since the last call.
  [[nodiscard]] bool take_rivalry() { return std::exchange(rivalry_, false); }
  /// Data and weights as before the step, everything else zero.
  ///
  /// exact   weights of the tests; else of steady_amplitude()
  void reset(bool exact = true) {
    for (auto& [key, values] : memory_) {
      std::fill(values.begin(), values.end(), T{0});
      auto fill = fill_of(dag_, key, stores_.all.at(key).box, samples_, view(key));
      if (!fill) continue;
      if (fill->stream == 2 && !exact) fill->amplitude = steady_amplitude(dag_, key);
      const auto count = static_cast<std::uint32_t>(values.size());
      for (std::uint32_t i = 0; i < count; ++i) (*fill)(i);
    }
  }
  /// What begins every step as zero: gradients and partial sums.
  void zero() {
    for (auto& [key, values] : memory_) {
      if (key.role != Role::gradient && key.role != Role::partial_sum &&
          key.role != Role::weight_gradient) {
        continue;
      }
      std::fill(values.begin(), values.end(), T{0});
    }
  }
  /// Receive buffers for remote slices; until the next call, views of those slices are of the
  /// buffers.
  [[nodiscard]] std::vector<View<T>> mirror(const std::vector<RemoteSlice>& remote_slices) {
    mirrors_.clear();
    std::vector<View<T>> views;
    for (const RemoteSlice& remote_slice : remote_slices) {
      const Region& region = remote_slice.slice.region;
      views.push_back(dense_view(scratch(region.volume()), region, false));
      mirrors_.emplace_back(remote_slice.slice, views.back());
    }
    return views;
  }
  /// What a device holds of a region, row-major.
  [[nodiscard]] std::vector<double> values(const StoreKey& key, const Region& region) {
    const View<T> tensor = view(key);
    Loops loops;
    for (std::size_t a = 0; a < region.rank(); ++a) {
      loops.over(a, narrow(region[a].begin), static_cast<std::uint32_t>(region[a].size()));
    }
    std::vector<double> all;
    for (std::uint32_t i = 0; i < loops.size(); ++i) {
      all.push_back(static_cast<double>(tensor(loops.index(i))));
    }
    return all;
  }

 private:
  const ExecDag& dag_;
  Stores stores_;
  std::int64_t samples_ = 1;
  std::map<StoreKey, std::vector<T>> memory_;
  std::vector<std::unique_ptr<T[]>> scratch_;
  std::vector<StoreKey> received_;  ///< weight gradients that transfers add to, sorted
  bool rivalry_ = false;
  std::optional<DeviceId> mine_;
  bool for_libraries_;
  std::vector<std::pair<TensorSlice, View<T>>> mirrors_;
};

}  // namespace parsim::hw
