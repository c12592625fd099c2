// Model parallelism over filters for unequal devices (Moreno-Alvarez, Haut, Paoletti, Rico-Gallego
// 2021): every device has the whole batch and a share of the filters of every other convolution in
// proportion to its speed; the convolutions between sum over the channels a device has, and the
// sums are all-reduced. After the last one the activations are gathered on one device, which
// computes the rest.
//
// Where the paper's code measures speeds by hand, this takes them from the cost model, layer by
// layer, and refines shares where time is not linear in the share.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "strategies/model/roles.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"
#include "strategies/shares.hpp"

namespace parsim::strategies {

namespace {

using model::Group;
using model::How;
using model::Roles;
using model::Run;

/// Units by group, then by device.
using UnitShares = std::vector<std::vector<std::int64_t>>;

/// The part of a layer that a device with the first `units` of a group works on.
Part part_with(const StrategyInput& input, const Roles& roles, LayerId id, std::int64_t units) {
  const Layer& layer = input.network[id];
  const model::Role& role = roles.layers[id.index()];
  const Interval channels{0, units * role.runs[0].scale};
  Part part{whole(layer.out, input.batch), {}};
  if (role.how == How::partial_sums) {
    part.contraction = channels;
  } else {
    part.out[layer.out.region_axis(Dim::channel)] = channels;
  }
  return part;
}

/// By speeds given by hand, the same in all layers, as in the paper's runs.
UnitShares shares_by_given_speeds(const StrategyInput& input, const Roles& roles,
                                  const std::vector<DeviceId>& devices) {
  if (input.speeds.size() != devices.size()) {
    throw InputError(
        "--speeds",
        fmt::format("{} for {}", counted(static_cast<std::int64_t>(input.speeds.size()), "number"),
                    counted(static_cast<std::int64_t>(devices.size()), "device")),
        "accepted: one for each device, in their order");
  }
  const double sum = std::accumulate(input.speeds.begin(), input.speeds.end(), 0.0);
  const std::vector<DeviceId> listed = devices_of(input.cluster, DeviceKind::gpu);
  std::vector<double> speeds;
  for (const DeviceId device : devices) {
    const auto at = std::find(listed.begin(), listed.end(), device) - listed.begin();
    speeds.push_back(input.speeds[static_cast<std::size_t>(at)] / sum);
  }
  std::vector<std::size_t> each(devices.size());
  std::iota(each.begin(), each.end(), std::size_t{0});
  UnitShares shares;
  for (const Group& group : roles.groups) {
    shares.push_back(
        input.rounding == Rounding::released
            ? released_split(group.units, speeds)
            : finish_together(group.units, each, [&](std::size_t device, std::int64_t units) {
                return Seconds{static_cast<double>(units) / speeds[device]};
              }));
  }
  return shares;
}

/// Speed is that of the filter layer itself with the released rule, else that of all layers that
/// work on the same shares: no device waits for another between them.
UnitShares shares_by_speed(const StrategyInput& input, const Roles& roles,
                           const std::vector<DeviceId>& devices) {
  const std::vector<std::size_t> kinds = device_kinds(input.cluster, devices);
  const lowering::GradientFlow flow = lowering::gradient_flow(input.network);
  UnitShares shares;
  for (const Group& group : roles.groups) {
    const auto time = [&](std::size_t kind, std::int64_t units) {
      const auto like = std::find(kinds.begin(), kinds.end(), kind) - kinds.begin();
      const DeviceId device = devices[static_cast<std::size_t>(like)];
      const std::size_t layers = input.rounding == Rounding::released ? 1 : group.members.size();
      Seconds sum{0};
      for (std::size_t i = 0; i < layers; ++i) {
        const LayerId id = group.members[i];
        sum += layer_time(input, flow, id, part_with(input, roles, id, units), device);
      }
      return sum;
    };
    if (input.rounding == Rounding::largest_remainder) {
      shares.push_back(finish_together(group.units, kinds, time));
      continue;
    }
    std::vector<Seconds> times;
    for (const std::size_t kind : kinds) times.push_back(time(kind, group.units));
    shares.push_back(released_split(group.units, relative_speeds(times)));
  }
  return shares;
}

UnitShares equal_shares(const Roles& roles, std::size_t devices) {
  UnitShares shares;
  for (const Group& group : roles.groups) shares.push_back(even_split(group.units, devices));
  return shares;
}

/// Where the layers after the last filters are computed soonest; the first of equals.
DeviceId last_device(const StrategyInput& input, const Roles& roles,
                     const std::vector<DeviceId>& devices) {
  const std::vector<std::size_t> kinds = device_kinds(input.cluster, devices);
  const lowering::GradientFlow flow = lowering::gradient_flow(input.network);
  std::vector<Seconds> times(devices.size());
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const auto like = std::find(kinds.begin(), kinds.end(), kinds[d]) - kinds.begin();
    if (static_cast<std::size_t>(like) < d) {
      times[d] = times[static_cast<std::size_t>(like)];
      continue;
    }
    for (std::size_t l = 0; l < roles.layers.size(); ++l) {
      if (roles.layers[l].how != How::first_device) continue;
      const Part part{whole(input.network.layers[l].out, input.batch), {}};
      times[d] += layer_time(input, flow, LayerId{l}, part, devices[d]);
    }
  }
  return devices[static_cast<std::size_t>(std::min_element(times.begin(), times.end()) -
                                          times.begin())];
}

LayerPlan split(const StrategyInput& input, const model::Role& role,
                const std::vector<DeviceId>& devices, const UnitShares& shares, DeviceId last) {
  LayerPlan plan;
  if (role.how == How::first_device || devices.size() == 1) {
    plan.devices = {role.how == How::first_device ? last : devices[0]};
    return plan;
  }
  if (role.how == How::by_sample) return by_sample(input.batch, devices);
  if (role.how == How::everywhere) {
    plan.devices = devices;
    plan.cuts = {{Dim::replica, std::vector<std::int64_t>(devices.size(), 1)}};
    return plan;
  }
  Cut cut{role.how == How::partial_sums ? Dim::in_channel : Dim::channel, {}};
  for (const Run& run : role.runs) {
    for (std::size_t d = 0; d < devices.size(); ++d) {
      cut.sizes.push_back(shares[run.group][d] * run.scale);
      plan.devices.push_back(devices[d]);
    }
  }
  plan.cuts = {std::move(cut)};
  return plan;
}

Plan fill(const StrategyInput& input, const Roles& roles, const std::vector<DeviceId>& devices,
          const UnitShares& shares) {
  Plan plan = empty_plan(input, "model", devices);
  const DeviceId last = last_device(input, roles, devices);
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    plan.layers[l] = split(input, roles.layers[l], devices, shares, last);
    plan.layers[l].sync = chosen_sync(input);
  }
  plan.buckets = gradient_buckets(input);
  const auto count = [&](How how) {
    return std::count_if(roles.layers.begin(), roles.layers.end(),
                         [&](const model::Role& role) { return role.how == how; });
  };
  plan.notes.push_back(fmt::format(
      "{} layers cut by filters, {} by input channels with an all-reduce after each; the layers "
      "after them run on device {}",
      count(How::partitioned), count(How::partial_sums), last.value));
  const std::vector<Layer>& layers = input.network.layers;
  const bool branches = std::any_of(layers.begin(), layers.end(),
                                    [](const Layer& layer) { return layer.inputs.size() > 1; });
  const bool convolutions = std::any_of(layers.begin(), layers.end(), [](const Layer& layer) {
    return layer.kind.as<Conv>() != nullptr;
  });
  if (branches || !convolutions) {
    plan.notes.push_back(
        fmt::format("reconstruction: the paper describes chains of convolutions, not networks {}",
                    branches ? "with branches" : "without convolutions"));
  }
  if (!roles.groups.empty() && devices.size() > 1) {
    std::vector<std::string> sizes;
    for (const std::int64_t size : shares[0]) sizes.push_back(fmt::format("{}", size));
    plan.notes.push_back(fmt::format("filters of '{}' by device: {}",
                                     input.network[roles.groups[0].layer].name, join(sizes)));
  }
  return plan;
}

/// All devices, then the devices without the slowest kinds; at least two. Devices that are far too
/// slow delay all others, however few filters they have.
std::vector<std::vector<DeviceId>> choices_of_devices(const StrategyInput& input,
                                                      const std::vector<DeviceId>& devices) {
  const std::vector<std::size_t> kinds = device_kinds(input.cluster, devices);
  const lowering::GradientFlow flow = lowering::gradient_flow(input.network);
  const std::size_t count = *std::max_element(kinds.begin(), kinds.end()) + 1;
  std::vector<std::pair<Seconds, std::size_t>> by_time(count);
  for (std::size_t kind = 0; kind < count; ++kind) {
    const auto like = std::find(kinds.begin(), kinds.end(), kind) - kinds.begin();
    by_time[kind].second = kind;
    for (std::size_t l = 0; l < input.network.layers.size(); ++l) {
      const Part part{whole(input.network.layers[l].out, input.batch), {}};
      by_time[kind].first +=
          layer_time(input, flow, LayerId{l}, part, devices[static_cast<std::size_t>(like)]);
    }
  }
  std::sort(by_time.rbegin(), by_time.rend());  // slowest first
  std::vector<std::vector<DeviceId>> choices{devices};
  std::vector<bool> dropped(count, false);
  for (std::size_t i = 0; i + 1 < count; ++i) {
    dropped[by_time[i].second] = true;
    std::vector<DeviceId> rest;
    for (std::size_t d = 0; d < devices.size(); ++d) {
      if (!dropped[kinds[d]]) rest.push_back(devices[d]);
    }
    if (rest.size() >= 2) choices.push_back(std::move(rest));
  }
  return choices;
}

}  // namespace

Plan plan_model(const StrategyInput& input) {
  const std::vector<DeviceId> devices = workers(input);
  const Roles roles = model::decide_roles(input.network);
  if (!input.speeds.empty())
    return fill(input, roles, devices, shares_by_given_speeds(input, roles, devices));
  if (input.rounding == Rounding::released) {  // as it is, for better or worse
    return fill(input, roles, devices, shares_by_speed(input, roles, devices));
  }
  std::vector<Plan> plans;
  for (const std::vector<DeviceId>& some : choices_of_devices(input, devices)) {
    plans.push_back(fill(input, roles, some, shares_by_speed(input, roles, some)));
    if (some.size() == devices.size()) continue;
    plans.back().notes.push_back(fmt::format(
        "not used: {}, without which the step is shorter, or fits",
        counted(static_cast<std::int64_t>(devices.size() - some.size()), "slower device")));
  }
  const UnitShares equal = equal_shares(roles, devices.size());
  if (equal != shares_by_speed(input, roles, devices)) {
    plans.push_back(fill(input, roles, devices, equal));
    plans.back().notes.emplace_back(
        "equal shares: communication dominates, so shares by speed are no faster");
  }
  return plans[best_by_simulation(input, plans)];
}

}  // namespace parsim::strategies
