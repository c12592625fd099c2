#include "strategies/best/fewer_machines.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "lowering/gradient_flow.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/shares.hpp"

namespace parsim::strategies {

namespace {

/// How long devices' kernels take at least: as if they shared the batch exactly by their speed.
class LeastTimes {
 public:
  explicit LeastTimes(const StrategyInput& input)
      : input_(input), flow_(lowering::gradient_flow(input.network)) {}

  [[nodiscard]] Seconds of(const std::vector<DeviceId>& devices) {
    const auto count = static_cast<std::int64_t>(devices.size());
    const std::int64_t share = (input_.batch + count - 1) / count;
    double samples_per_second = 0;
    for (const DeviceId device : devices) {
      samples_per_second += static_cast<double>(share) / time_on(device, share).count();
    }
    return Seconds{static_cast<double>(input_.batch) / samples_per_second};
  }

 private:
  Seconds time_on(DeviceId device, std::int64_t samples) {
    const auto [at, fresh] = known_.try_emplace({input_.cluster[device].model, samples});
    for (std::size_t l = 0; fresh && l < input_.network.layers.size(); ++l) {
      const Part part{whole(input_.network.layers[l].out, samples), {}};
      at->second += layer_time(input_, flow_, LayerId{l}, part, device);
    }
    return at->second;
  }

  const StrategyInput& input_;
  lowering::GradientFlow flow_;
  std::map<std::pair<std::int32_t, std::int64_t>, Seconds> known_;  ///< by model and samples
};

}  // namespace

std::vector<std::vector<DeviceId>> fewer_machines(const StrategyInput& input, Seconds limit) {
  const auto classes = worker_classes(input);
  std::vector<std::vector<DeviceId>> subsets;
  LeastTimes least(input);
  // All but the last `fewer` machines of class `of`.
  const auto leave_out = [&](std::size_t of, std::size_t fewer) {
    std::vector<DeviceId> devices;
    for (std::size_t c = 0; c < classes.size(); ++c) {
      const std::size_t kept = classes[c].size() - (c == of ? fewer : 0);
      for (std::size_t m = 0; m < kept; ++m)
        devices.insert(devices.end(), classes[c][m].begin(), classes[c][m].end());
    }
    const bool known = std::find(subsets.begin(), subsets.end(), devices) != subsets.end();
    if (devices.empty() || known || least.of(devices) >= limit) return;
    subsets.push_back(std::move(devices));
  };
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const std::size_t machines = classes[c].size();
    leave_out(c, 1);
    leave_out(c, classes.size() > 1 ? machines : machines / 2);
  }
  return subsets;
}

}  // namespace parsim::strategies
