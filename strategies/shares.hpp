// How unequal devices share what can be counted: samples of a batch, filters of a layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "lowering/gradient_flow.hpp"
#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// Relative speeds s_p = (1/t_p) / Σ_q (1/t_q) of devices that take t_p for the same work
/// (Moreno-Alvarez et al. 2021). A device that takes no time at all makes all speeds equal.
[[nodiscard]] std::vector<double> relative_speeds(const std::vector<Seconds>& times);

/// Filters by the rule of the code released with Moreno-Alvarez et al. 2021: floors of
/// extent · speed, the smallest raised to one, what is left to the largest share (the first of
/// equals). Where floors leave nothing over, that code never ends; here the smallest stays zero.
/// speeds   add up to one
[[nodiscard]] std::vector<std::int64_t> released_split(std::int64_t extent,
                                                       const std::vector<double>& speeds);

/// Time that a kind of device takes for `units` > 0; must not fall as units grow.
using ShareTime = std::function<Seconds(std::size_t kind, std::int64_t units)>;

/// Shares of `extent` units by speed, rounded by the largest remainder, where speed is that for the
/// whole extent; or, if the slowest device then ends earlier, those shares whose slowest device
/// ends as early as any shares' can (time need not be linear in the share). A device without units
/// takes no time.
///
/// kinds   by device; devices of one kind are equally fast
/// least   units that each device gets: 0 or 1; 0 where there are fewer units than devices
///
/// Checked against all splits: tests/strategies/shares_test.cpp.
[[nodiscard]] std::vector<std::int64_t> finish_together(std::int64_t extent,
                                                        const std::vector<std::size_t>& kinds,
                                                        const ShareTime& time,
                                                        std::int64_t least = 0);

/// By device: which device model it is, numbered from 0 in order of appearance.
[[nodiscard]] std::vector<std::size_t> device_kinds(const Cluster& cluster,
                                                    const std::vector<DeviceId>& devices);

/// What a micro-batch runs of a part of a layer, forward and backward: the kernels that lower()
/// would issue, without what recomputation repeats.
///
/// Checked: tests/strategies/planned_time_test.cpp, against simulated plans of one device.
[[nodiscard]] Seconds layer_time(const StrategyInput& input, const lowering::GradientFlow& flow,
                                 LayerId layer, const Part& part, DeviceId device);

/// By layer: a step's update of its parameters on a device that has one of `ways` equal shares of
/// each; tied parameters at their first layer. A bucket is one kernel, whose time its parameters
/// share by their size.
[[nodiscard]] std::vector<Seconds> update_times(const StrategyInput& input, DeviceId device,
                                                std::int64_t ways = 1);

/// Samples of a micro-batch that each replica gets, however slow it is: one, if the input asks for
/// a number of replicas; with fewer it would be another number.
[[nodiscard]] inline std::int64_t least_samples(const StrategyInput& input) {
  return input.data_parallel ? 1 : 0;
}

/// The samples of a micro-batch shared among devices that each compute the whole network, so that
/// they finish together; each gets `least`, see finish_together.
[[nodiscard]] std::vector<std::int64_t> sample_shares(const StrategyInput& input,
                                                      const std::vector<DeviceId>& devices,
                                                      std::int64_t samples, std::int64_t least = 0);

}  // namespace parsim::strategies
