// The simulating executor and its cost models: a plan's DAG on a SimGrid model of the cluster.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/cost_model.hpp"
#include "core/executor.hpp"
#include "core/profile.hpp"

namespace parsim {

/// How collectives become flows.
///   hops   one flow per hop of each ring, all at once (default)
///   p2p    every message of the ring, one after another: the reference, for up to some hundred
///   devices
enum class Fidelity : std::uint8_t { hops, p2p };

/// Cost of a step of a collective beyond the links' own latency and rate.
///   ideal   latency and bandwidth only; checks by hand use it
enum class CollectiveCost : std::uint8_t { ideal };

struct SimOptions {
  Fidelity fidelity = Fidelity::hops;
  CollectiveCost collectives = CollectiveCost::ideal;
};

/// A SimGrid executor for the cluster. Both references must outlive it. Every run() simulates in a
/// forked child, so that results are the same bits whatever ran before. Throws SimulationError if
/// an operation never finished or the child died.
[[nodiscard]] std::unique_ptr<Executor> make_simgrid_executor(const Cluster& cluster,
                                                              const CostModel& cost,
                                                              const SimOptions& options);

/// The settings given to SimGrid, one "key:value" each, for reports. They are set in one function
/// only.
[[nodiscard]] std::vector<std::string> simgrid_settings();
/// "3.32".
[[nodiscard]] std::string simgrid_version();

/// Kernels by their shape: tiles, waves, split sums and Winograd's convolutions (sim/tiles.hpp),
/// the rest by memory rate. Devices without coefficients of their own (sim/coefficients.csv) borrow
/// those of the nearest relative and say "guessed". Holds a reference to the cluster.
[[nodiscard]] std::unique_ptr<CostModel> make_tile_costs(const Cluster& cluster);

/// A constant part of the peak per device and class of operation, whatever the shape; from the same
/// table. Holds a reference to the cluster.
[[nodiscard]] std::unique_ptr<CostModel> make_constant_efficiency(const Cluster& cluster);

/// The cost models of kernels by name; the first is the default.
struct CostSource {
  std::string name, summary;
  std::unique_ptr<CostModel> (*make)(const Cluster&);
};
[[nodiscard]] const std::vector<CostSource>& cost_sources();
/// Throws InputError with a "did you mean" for an unknown name. `where` is the flag or file.
[[nodiscard]] const CostSource& cost_source(std::string_view name, std::string_view where);

/// Times of a profile where it has them, else of its nearest shape scaled by `base`, else of
/// `base`. Messages are the profile's only if the cluster is its machine's. Holds a reference to
/// the cluster. Throws InputError if the profile measured none of the cluster's devices.
[[nodiscard]] std::unique_ptr<CostModel> make_profiled(const Cluster& cluster,
                                                       std::unique_ptr<CostModel> base,
                                                       const Profile& profile,
                                                       const std::string& where);

/// `base` with kernels that take `factor` times as long: calibrated by one number. Holds a
/// reference to the base.
[[nodiscard]] std::unique_ptr<CostModel> make_scaled(const CostModel& base, double factor);

}  // namespace parsim
