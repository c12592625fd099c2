// The simulating executor and its cost models: a plan's DAG on a SimGrid model of the cluster.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/cost_model.hpp"
#include "core/executor.hpp"
#include "core/profile.hpp"
#include "core/spelling.hpp"
#include "sim/attention_kernel.hpp"
#include "sim/collective_tables.hpp"
#include "sim/fusion.hpp"
#include "sim/slowdowns.hpp"

namespace parsim::sim {

/// How transfers and collectives become flows. All-to-alls are pairwise messages at all fidelities.
///   p2p       every message of a ring, one after another: the reference, for up to some hundred
///             devices
///   hops      one flow per hop of each ring, all at once (default)
///   macro     one flow per ring, over all its links at once, of the bytes of its fullest hop: as
///             slow everywhere as where it is slowest
///   analytic  no flows: each takes its time on an idle network (sim/collectives.hpp, time_alone)
enum class Fidelity : std::uint8_t { hops, p2p, macro, analytic };
constexpr std::array<std::string_view, 4> spellings(Fidelity) {
  return {"hops", "p2p", "macro", "analytic"};
}

/// The simulator of the flows.
///   simgrid  SimGrid (default)
///   fast     our own max-min sharing (sim/fair_flows.hpp): the same model, checked against it
///   automatic  SimGrid, but fast where SimGrid 3.32, which searches a list of all flows whenever
///              one ends, would take more than about two seconds
/// Fidelity::analytic has no flows.
enum class Engine : std::uint8_t { simgrid, fast, automatic };
constexpr std::array<std::string_view, 3> spellings(Engine) { return {"simgrid", "fast", "auto"}; }

/// What a collective, or a message between GPUs, costs beyond the links' own latency and rate.
///   ideal     nothing; checks by hand use it
///   nccl      NCCL's choice of algorithm and protocol, its latencies and caps (sim/nccl.hpp)
///   measured  measured tables of sizes and times by kind and number of ranks; else as nccl
enum class CollectiveCost : std::uint8_t { ideal, nccl, measured };
constexpr std::array<std::string_view, 3> spellings(CollectiveCost) {
  return {"ideal", "nccl", "measured"};
}
enum class NcclAlgorithm : std::uint8_t { ring, tree, nvls, nvls_tree, pat };
constexpr std::array<std::string_view, 5> spellings(NcclAlgorithm) {
  return {"ring", "tree", "nvls", "nvls-tree", "pat"};
}
enum class NcclProtocol : std::uint8_t { ll, ll128, simple };
constexpr std::array<std::string_view, 3> spellings(NcclProtocol) {
  return {"ll", "ll128", "simple"};
}

/// NCCL's version: which algorithms exist and how long they take by its own model
/// (sim/nccl_tables.hpp).
struct NcclVersion {
  std::int32_t major = 2, minor = 28;
  friend auto operator<=>(const NcclVersion&, const NcclVersion&) = default;
};

/// Time of a collective beyond NCCL's own model, payload in bytes: offset + per_root_byte ·
/// √payload. The offset is mostly the launch by the host, the root what filling the pipeline costs.
/// What is not given depends on the kind of the links (core/link_kind.hpp): between machines if the
/// group spans several, else inside one. A root that is given was fitted to whole tables and counts
/// for all protocols, the links' not for LL.
struct LibraryTerms {
  std::optional<Seconds> offset{}, per_root_byte{};
  std::string without{};  ///< a system whose own measurements are left out
};

/// What hosts do before every step while their devices wait; it counts towards what their samples
/// take: `step`, and for each of a device's samples `per_sample` times the devices of its machine
/// that read beyond `devices`.
struct HostDelay {
  Seconds step{}, per_sample{};
  double devices = 1;
};

struct SimOptions {
  Fidelity fidelity = Fidelity::hops;
  CollectiveCost collectives = CollectiveCost::ideal;
  // Of nccl only:
  std::optional<NcclAlgorithm> algorithm{};
  std::optional<NcclProtocol> protocol{};
  std::optional<NcclVersion> nccl_version{};  ///< the newest known if unset
  LibraryTerms terms{};
  Engine engine = Engine::simgrid;
  Fusion fusion = Fusion::none;  ///< of the kernels between matrix products
  AttentionKernel attention_kernel = AttentionKernel::automatic;
  /// Of operations, flows and links that behave alike, one of each is simulated (sim/merge.hpp).
  /// With p2p, or with contention on devices (Slowdowns::has_contention()), all are simulated.
  bool merge = true;
  Slowdowns slowdowns{};
  /// Devices that are parts of one GPU, sorted: kernels move what goes between them, no library, so
  /// a message within one of these takes what its links take (of nccl and measured).
  std::vector<std::vector<DeviceId>> shared_gpus{};
  std::vector<CollectiveTable> tables{};  ///< of measured only
  /// The host of each device launches one kernel per interval (Cost::launches), by operations in id
  /// order, the first one before the step; an operation of several devices waits for the hosts of
  /// all of them. 0: all operations are launched at the start.
  Seconds launch_interval{};
  /// Samples a second that each machine's host prepares; 0: as many as its devices want. A step
  /// that would be shorter than the slowest host takes (ExecDag::reads) starts as much later: its
  /// devices wait for their samples.
  double input_rate = 0;
  HostDelay host_delay{};
  /// Steps follow one another without a wait, so that a host that is faster than its device is
  /// ahead of it all the time. False: hosts start each step with its first launch.
  bool steps_follow = false;
};

/// A simulator of the cluster. Both references must outlive it. With SimGrid every run() simulates
/// in a child (forked, or from a process with threads a program that is started), so that results
/// do not depend on earlier runs. Throws SimulationError
/// if an operation never finished or the child died.
[[nodiscard]] std::unique_ptr<Executor> make_simulator(const Cluster& cluster,
                                                       const CostModel& cost,
                                                       const SimOptions& options);
/// The same with SimGrid, even if the options name another engine.
[[nodiscard]] std::unique_ptr<Executor> make_simgrid_executor(const Cluster& cluster,
                                                              const CostModel& cost,
                                                              const SimOptions& options);

/// How a collective of so many bytes would run on an otherwise idle cluster.
struct CollectiveRun {
  std::string algorithm, protocol;
};
[[nodiscard]] CollectiveRun collective_run(CollectiveKind kind, std::span<const DeviceId> group,
                                           Bytes payload, const Cluster& cluster,
                                           const SimOptions& options);

/// Kernels that the host of each device launches in a step, messages among them.
[[nodiscard]] std::vector<double> launches(const ExecDag& dag, const CostModel& cost,
                                           std::size_t devices);

/// The settings given to SimGrid, one "key:value" each, for reports. They are set in one function
/// only.
[[nodiscard]] std::vector<std::string> simgrid_settings();
/// SimGrid on this machine, loaded if it is not yet.
struct SimgridFound {
  std::string version;  ///< "3.32"; empty if it cannot be loaded
  std::string failure;  ///< the loader's reason
};
[[nodiscard]] SimgridFound find_simgrid();
/// "simulated by SimGrid 3.32", for reports.
[[nodiscard]] std::string simulated_by(const SimOptions& options);

/// Kernels by their shape: tiles, waves, split-K and Winograd convolutions (sim/tiles.hpp; 16-bit
/// GEMMs of cards with a model of their own: sim/gemm_model.hpp), other kernels by memory
/// bandwidth. Devices without coefficients of their own (sim/coefficients.csv) use those of the
/// most similar device, labelled "guessed". Holds a reference to the cluster.
[[nodiscard]] std::unique_ptr<CostModel> make_tile_costs(const Cluster& cluster,
                                                         const SimOptions& options = {});

/// A constant fraction of the peak per device and kernel class, for all shapes, from the same
/// table. Holds a reference to the cluster.
[[nodiscard]] std::unique_ptr<CostModel> make_constant_efficiency(const Cluster& cluster,
                                                                  const SimOptions& options = {});

/// The cost models of kernels by name; the first is the default. The options determine the cost of
/// collectives.
struct CostSource {
  std::string name, summary;
  std::unique_ptr<CostModel> (*make)(const Cluster&, const SimOptions&);
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

/// The memories whose bandwidth several devices share, as the profile measured them, if the cluster
/// is the profile's machine.
[[nodiscard]] std::vector<CommonMemory> common_memory_of(const Profile& profile,
                                                         const Cluster& cluster);
/// SimOptions::shared_gpus of the profile's machine, if it is the cluster.
[[nodiscard]] std::vector<std::vector<DeviceId>> shared_gpus_of(const Profile& profile,
                                                                const Cluster& cluster);

}  // namespace parsim::sim
