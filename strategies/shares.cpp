#include "strategies/shares.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "core/errors.hpp"
#include "lowering/sync.hpp"
#include "strategies/buckets.hpp"
#include "strategies/plan_support.hpp"

namespace parsim::strategies {

std::vector<double> relative_speeds(const std::vector<Seconds>& times) {
  std::vector<double> speeds;
  for (const Seconds time : times) {
    if (time.count() <= 0)
      return std::vector(times.size(), 1.0 / static_cast<double>(times.size()));
    speeds.push_back(1 / time.count());
  }
  const double total = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  for (double& speed : speeds) speed /= total;
  return speeds;
}

std::vector<std::int64_t> released_split(std::int64_t extent, const std::vector<double>& speeds) {
  ensure(!speeds.empty(), "a split has at least one part");
  // Typed by hand, 0.25 of 60 is 15; measured speeds must not make it 14.999… and the floor 14.
  constexpr double noise = 1e-9;
  std::vector<std::int64_t> sizes;
  for (const double speed : speeds) {
    const double ideal = static_cast<double>(extent) * speed;
    sizes.push_back(static_cast<std::int64_t>(std::floor(ideal * (1 + noise))));
  }
  const auto sum = [&] { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); };
  const auto smallest = std::min_element(sizes.begin(), sizes.end());
  if (*smallest < 1 && sum() < extent) *smallest = 1;
  const auto largest = std::max_element(sizes.begin(), sizes.end());
  *largest += extent - sum();
  return sizes;
}

namespace {

/// Times by (kind, units), measured once each.
class Measured {
 public:
  explicit Measured(const ShareTime& time) : time_(time) {}
  Seconds operator()(std::size_t kind, std::int64_t units) {
    if (units <= 0) return Seconds{0};
    const auto [at, fresh] = known_.try_emplace({kind, units});
    if (fresh) at->second = time_(kind, units);
    return at->second;
  }
  /// Most units that a device ends by `deadline`, at most `extent`.
  std::int64_t most(std::size_t kind, std::int64_t extent, Seconds deadline) {
    if ((*this)(kind, extent) <= deadline) return extent;
    std::int64_t can = 0, cannot = extent;
    while (cannot - can > 1) {
      const std::int64_t half = can + (cannot - can) / 2;
      ((*this)(kind, half) <= deadline ? can : cannot) = half;
    }
    return can;
  }

 private:
  const ShareTime& time_;
  std::map<std::pair<std::size_t, std::int64_t>, Seconds> known_;
};

Seconds slowest(const std::vector<std::int64_t>& sizes, const std::vector<std::size_t>& kinds,
                Measured& time) {
  Seconds latest{0};
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    latest = std::max(latest, time(kinds[p], sizes[p]));
  }
  return latest;
}

/// Shares whose slowest device ends as early as possible: every device takes what it can do by the
/// earliest deadline at which all samples are done.
std::vector<std::int64_t> earliest_end(std::int64_t extent, const std::vector<std::size_t>& kinds,
                                       Measured& time, Seconds enough) {
  std::vector<std::int64_t> count(*std::max_element(kinds.begin(), kinds.end()) + 1, 0);
  for (const std::size_t kind : kinds) ++count[kind];
  const auto done_by = [&](Seconds deadline) {
    std::int64_t done = 0;
    for (std::size_t kind = 0; kind < count.size(); ++kind) {
      if (count[kind] > 0) done += count[kind] * time.most(kind, extent, deadline);
    }
    return done;
  };
  Seconds early{0}, late = enough;
  constexpr int halvings = 60;  // more than the bits of a double's fraction
  for (int i = 0; i < halvings; ++i) {
    const Seconds middle = early + (late - early) / 2;
    (done_by(middle) >= extent ? late : early) = middle;
  }
  std::vector<std::int64_t> sizes;
  std::vector<std::size_t> by_end(kinds.size());
  for (const std::size_t kind : kinds) sizes.push_back(time.most(kind, extent, late));
  // What is too much comes off those that would end last; among equals off the higher index.
  std::iota(by_end.begin(), by_end.end(), std::size_t{0});
  std::sort(by_end.begin(), by_end.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(time(kinds[a], sizes[a]), a) > std::pair(time(kinds[b], sizes[b]), b);
  });
  std::int64_t surplus = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) - extent;
  for (std::size_t i = 0; surplus > 0; i = (i + 1) % by_end.size()) {
    if (sizes[by_end[i]] == 0) continue;
    --sizes[by_end[i]];
    --surplus;
  }
  return sizes;
}

/// Shares that end as early as possible where each device has a unit: what would get none gets
/// one, which takes longer than all that the others do, and these share the rest.
std::vector<std::int64_t> with_one_each(std::int64_t extent, const std::vector<std::size_t>& kinds,
                                        const ShareTime& time) {
  std::vector<std::int64_t> sizes(kinds.size(), 1);
  std::vector<std::size_t> sharing(kinds.size());
  std::iota(sharing.begin(), sharing.end(), std::size_t{0});
  for (bool none = true; std::exchange(none, false);) {
    std::vector<std::size_t> of;
    for (const std::size_t device : sharing) of.push_back(kinds[device]);
    const auto single = static_cast<std::int64_t>(kinds.size() - sharing.size());
    const std::vector<std::int64_t> shares = finish_together(extent - single, of, time);
    std::vector<std::size_t> left;
    for (std::size_t i = 0; i < sharing.size(); ++i) {
      sizes[sharing[i]] = std::max<std::int64_t>(1, shares[i]);
      if (shares[i] > 0) left.push_back(sharing[i]);
    }
    none = left.size() < sharing.size();
    sharing = std::move(left);
  }
  return sizes;
}

}  // namespace

std::vector<std::int64_t> finish_together(std::int64_t extent,
                                          const std::vector<std::size_t>& kinds,
                                          const ShareTime& time, std::int64_t least) {
  ensure(!kinds.empty(), "shares need a device");
  if (least > 0 && extent >= std::ssize(kinds)) return with_one_each(extent, kinds, time);
  if (kinds.size() == 1 || extent == 0) {
    std::vector<std::int64_t> sizes(kinds.size(), 0);
    sizes[0] = extent;
    return sizes;
  }
  Measured measured(time);
  std::vector<Seconds> whole;
  for (const std::size_t kind : kinds) whole.push_back(measured(kind, extent));
  std::vector<std::int64_t> by_speed = proportional_split(extent, relative_speeds(whole));
  const Seconds end = slowest(by_speed, kinds, measured);
  std::vector<std::int64_t> refined = earliest_end(extent, kinds, measured, end);
  constexpr double rounding_noise = 1e-12;  // of sums of doubles
  // Times that fall as units grow, as measured ones may, mislead the search for the earliest end.
  const bool whole_extent =
      std::accumulate(refined.begin(), refined.end(), std::int64_t{0}) == extent;
  const bool better =
      whole_extent && slowest(refined, kinds, measured) < end * (1 - rounding_noise);
  return better ? refined : by_speed;
}

std::vector<std::size_t> device_kinds(const Cluster& cluster,
                                      const std::vector<DeviceId>& devices) {
  std::map<std::int32_t, std::size_t> kind_of;
  std::vector<std::size_t> kinds;
  for (const DeviceId device : devices) {
    kinds.push_back(kind_of.try_emplace(cluster[device].model, kind_of.size()).first->second);
  }
  return kinds;
}

Seconds layer_time(const StrategyInput& input, const lowering::GradientFlow& flow, LayerId layer,
                   const Part& part, DeviceId device) {
  if (input.prices != nullptr) {
    if (const auto known = input.prices->layer_time(layer, part, device)) return *known;
  }
  Seconds time{0};
  for (const Pass pass : lowering::passes_of(input.network, flow, layer)) {
    time += kernel_time(input.cost, input.network, layer, part, pass, device, input.precision,
                        input.reduce_precision)
                .time;
  }
  return time;
}

std::vector<Seconds> update_times(const StrategyInput& input, DeviceId device, std::int64_t ways) {
  const Network& network = input.network;
  std::vector<Seconds> times(network.layers.size());
  const lowering::GradientFlow flow = lowering::gradient_flow(network);
  const std::vector<std::vector<LayerId>> users = lowering::users_of_parameters(network);
  for (const std::vector<ParameterId>& bucket : gradient_buckets(input)) {
    bool updated = false;
    std::int64_t elements = 0;
    for (const ParameterId id : bucket) {
      elements += network[id].elements();
      for (const LayerId user : users[id.index()]) {
        updated = updated || flow.reaches_loss[user.index()];
      }
    }
    if (!updated || elements == 0) continue;
    const OptimizerStep step{elements / ways, input.optimizer, input.precision,
                             input.reduce_precision};
    const Seconds each = input.cost.update(device, step).time / static_cast<double>(elements);
    for (const ParameterId id : bucket) {
      times[users[id.index()].front().index()] +=
          each * static_cast<double>(network[id].elements());
    }
  }
  return times;
}

std::vector<std::int64_t> sample_shares(const StrategyInput& input,
                                        const std::vector<DeviceId>& devices, std::int64_t samples,
                                        std::int64_t least) {
  const std::vector<std::size_t> kinds = device_kinds(input.cluster, devices);
  const lowering::GradientFlow flow = lowering::gradient_flow(input.network);
  const auto time_of = [&](std::size_t kind, std::int64_t units) {
    const auto like = std::find(kinds.begin(), kinds.end(), kind) - kinds.begin();
    Seconds time{0};
    for (std::size_t l = 0; l < input.network.layers.size(); ++l) {
      const Part part{whole(input.network.layers[l].out, units), {}};
      time += layer_time(input, flow, LayerId{l}, part, devices[static_cast<std::size_t>(like)]);
    }
    return time;
  };
  return finish_together(samples, kinds, time_of, least);
}

}  // namespace parsim::strategies
