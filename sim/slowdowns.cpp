#include "sim/slowdowns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numbers>
#include <utility>

#include "core/errors.hpp"
#include "core/random.hpp"

namespace parsim::sim {

namespace {

/// In (0, 1).
double uniform(std::uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; }

/// Another model whose kernels take so many times as long; messages keep their times.
class Scaled final : public CostModel {
 public:
  /// kernels   factor of compute() on every device
  /// devices   factors of compute() and memory(), by device; empty: 1
  Scaled(const CostModel& base, double kernels, std::vector<double> devices, std::string note)
      : base_(base), kernels_(kernels), devices_(std::move(devices)), note_(std::move(note)) {
    ensure(kernels > 0 &&
               std::all_of(devices_.begin(), devices_.end(), [](double f) { return f > 0; }),
           "a factor of times is positive");
    std::map<std::pair<std::int32_t, double>, std::int32_t> first;
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      const DeviceId device{d};
      alike_.push_back(
          first.try_emplace({base.alike(device), devices_[d]}, device.value).first->second);
    }
  }

  [[nodiscard]] Cost compute(const Network& network, LayerId layer, const Part& part, Pass pass,
                             DeviceId device, Precision precision) const override {
    return scaled(base_.compute(network, layer, part, pass, device, precision), kernels_, device);
  }
  [[nodiscard]] std::optional<LeastTime> least_time(const Network& network, LayerId layer,
                                                    std::int64_t samples, Pass pass,
                                                    DeviceId device,
                                                    Precision precision) const override {
    auto least = base_.least_time(network, layer, samples, pass, device, precision);
    if (!least) return std::nullopt;
    const double factor = kernels_ * (devices_.empty() ? 1 : devices_.at(device.index()));
    return LeastTime{least->fixed * factor, least->whole * factor};
  }
  [[nodiscard]] std::int32_t alike(DeviceId device) const override {
    return devices_.empty() ? base_.alike(device) : alike_.at(device.index());
  }
  [[nodiscard]] Cost memory(DeviceId device, Bytes touched) const override {
    return scaled(base_.memory(device, touched), 1, device);
  }
  [[nodiscard]] Cost update(DeviceId device, const OptimizerStep& step) const override {
    return scaled(base_.update(device, step), 1, device);
  }
  [[nodiscard]] Seconds transfer(DeviceId from, DeviceId to, Bytes payload) const override {
    return base_.transfer(from, to, payload);
  }
  [[nodiscard]] Seconds collective(CollectiveKind kind, std::span<const DeviceId> group,
                                   Bytes payload) const override {
    return base_.collective(kind, group, payload);
  }
  [[nodiscard]] std::optional<Seconds> communication(const ExecDag& dag, OpId id) const override {
    return base_.communication(dag, id);
  }
  [[nodiscard]] std::string summary() const override { return base_.summary() + note_; }
  [[nodiscard]] std::string accuracy(Precision precision) const override {
    return base_.accuracy(precision);
  }

 private:
  [[nodiscard]] Cost scaled(Cost cost, double factor, DeviceId device) const {
    cost.time *= devices_.empty() ? factor : factor * devices_.at(device.index());
    return cost;
  }

  const CostModel& base_;
  double kernels_;
  std::vector<double> devices_;
  std::vector<std::int32_t> alike_;  ///< by device: the first with the same times
  std::string note_;
};

template <class Id>
const SlowPeriods& periods_of(const std::vector<SlowPeriods>& list, Id id) {
  static const SlowPeriods never;
  return list.empty() || !id.valid() ? never : list.at(id.index());
}

}  // namespace

const SlowPeriods& Slowdowns::of(DeviceId device) const { return periods_of(devices, device); }
const SlowPeriods& Slowdowns::of(LinkId link) const { return periods_of(links, link); }

std::vector<RateChange> rate_changes(const Cluster& cluster, const Slowdowns& slowdowns) {
  std::vector<RateChange> changes;
  for (std::size_t i = 0; i < slowdowns.links.size(); ++i) {
    const LinkId link{i};
    const BytesPerSecond rate = cluster[link].rate;
    const std::vector<SlowPeriod>& periods = slowdowns.links[i].periods();
    for (std::size_t k = 0; k < periods.size(); ++k) {
      changes.push_back({periods[k].from, link, BytesPerSecond{rate.value / periods[k].factor}});
      const bool goes_on = k + 1 < periods.size() && periods[k + 1].from == periods[k].to;
      if (!goes_on && std::isfinite(periods[k].to.count())) {
        changes.push_back({periods[k].to, link, rate});
      }
    }
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const RateChange& a, const RateChange& b) { return a.date < b.date; });
  return changes;
}

double jitter_factor(const Jitter& jitter, OpId op) {
  if (jitter.relative <= 0) return 1;
  constexpr std::uint64_t step = splitmix64_step;
  const std::uint64_t key =
      splitmix64(jitter.seed * step + static_cast<std::uint64_t>(op.value) + 1);
  const double u = uniform(splitmix64(key + step)), v = uniform(splitmix64(key + 2 * step));
  // Box and Muller 1958.
  const double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
  const double variance = std::log1p(jitter.relative * jitter.relative);
  return std::exp(std::sqrt(variance) * normal - variance / 2);
}

std::unique_ptr<CostModel> make_scaled(const CostModel& base, double factor) {
  return std::make_unique<Scaled>(base, factor, std::vector<double>(),
                                  fmt::format("; kernels x {:.3g}", factor));
}

std::unique_ptr<CostModel> make_slowed(const CostModel& base, std::vector<double> factors) {
  const auto others =
      std::count_if(factors.begin(), factors.end(), [](double factor) { return factor != 1; });
  std::string note = fmt::format("; stragglers: {} of {} devices", others, factors.size());
  return std::make_unique<Scaled>(base, 1, std::move(factors), std::move(note));
}

}  // namespace parsim::sim
