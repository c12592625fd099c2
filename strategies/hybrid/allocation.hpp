// Which device computes which part of which replica: the allocation problem of GABRA (Akintoye et
// al. 2021/2022) in numbers, its closed-form step time, and a genetic search for good allocations.
//
// A RECONSTRUCTION: the papers' text was not available. Published and kept: parts of equal load, a
// genetic algorithm that allocates parts to devices, replicas on top. Encoding, operators,
// constants and the closed form are ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/units.hpp"

namespace parsim::strategies::hybrid {

/// A quantity that grows linearly with the samples at hand.
struct Affine {
  double fixed = 0, per_sample = 0;
  [[nodiscard]] double at(std::int64_t samples) const {
    return fixed + per_sample * static_cast<double>(samples);
  }
};

/// Latency and inverse bandwidth of the route between two devices.
struct LinkCost {
  double latency_s = 0, s_per_byte = 0;
};

struct Problem {
  std::size_t parts = 1, replicas = 1;
  std::int64_t micro_batches = 1;
  std::int64_t samples = 1;                 ///< of one micro-batch, over all replicas
  std::vector<std::size_t> kinds;           ///< by device
  std::vector<std::vector<Affine>> time_s;  ///< by part, kind: forward and backward
  std::vector<double> boundary_bytes;       ///< by part: a sample's, on to the next part
  std::vector<double> weight_bytes;         ///< by part
  std::vector<Affine> memory_bytes;         ///< by part
  std::vector<double> capacity_bytes;       ///< by device
  std::function<LinkCost(std::size_t, std::size_t)> link;  ///< between two different devices

  [[nodiscard]] std::size_t devices() const { return kinds.size(); }
};

/// By gene r · parts + i: the device of part i in replica r. A device may have several genes.
using Genes = std::vector<std::size_t>;

/// What an allocation costs: memory that is lacking first, then time.
struct Fitness {
  double lacking_bytes = 0;
  Seconds step{};
  [[nodiscard]] bool better_than(const Fitness& other) const {
    return lacking_bytes != other.lacking_bytes ? lacking_bytes < other.lacking_bytes
                                                : step < other.step;
  }
  friend bool operator==(const Fitness&, const Fitness&) = default;
};

/// Samples of a micro-batch by replica, in proportion to the speed of its slowest device.
[[nodiscard]] std::vector<std::int64_t> replica_shares(const Problem& problem, const Genes& genes);

/// Step time of M micro-batches, after AMP (Li et al. 2022, equations 4 and 5):
///
///     max_r [ (M−1) · bottleneck_r + max(bottleneck_r, Σ_i t_ir + Σ_i 2 (latency + a_ir / b)) ]
///           + max_i [ 2 (R−1) latency + 2 (R−1)/R · w_i / b_min(i) ]
///
/// t_ir         part i of replica r, for its share of a micro-batch
/// bottleneck   the longest of the replica's devices (the sum of the parts that a device has, of
/// all
///              replicas) and of its boundaries in one direction, which AMP leaves out
/// a_ir, w_i    bytes of the boundary behind the part and of its weights
/// b_min(i)     the slowest route between two devices that have part i
///
/// Checked: tests/strategies/hybrid_test.cpp, by hand and against a second implementation.
[[nodiscard]] Fitness fitness(const Problem& problem, const Genes& genes,
                              const std::vector<std::int64_t>& shares);
/// With replica_shares().
[[nodiscard]] Fitness fitness(const Problem& problem, const Genes& genes);

/// The longest parts on the fastest free devices, replica after replica of each part; ties by id.
[[nodiscard]] Genes greedy(const Problem& problem);

struct Found {
  Genes genes;
  Fitness fitness;
  std::vector<Fitness> best_by_generation;  ///< never gets worse
};

/// A genetic search from the greedy allocation, the two orders by id, `seeds` and random ones. The
/// same random seed gives the same allocation; never worse than any of those it starts from. Not
/// exact: of 1320 random instances of at most six genes it missed the optimum of one.
///
/// evaluations   of the fitness that may still be spent, counted down; the seeds are always tried.
///               Null: no bound but the search's own
[[nodiscard]] Found search(const Problem& problem, std::vector<Genes> seeds, std::uint64_t seed,
                           std::int64_t* evaluations = nullptr);

}  // namespace parsim::strategies::hybrid
