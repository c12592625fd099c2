#include "sim/nccl.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/errors.hpp"

namespace parsim {

namespace {

// All constants: NCCL 2.28.9, src/graph/tuning.cc; microseconds and GB/s, by protocol: LL, LL128,
// Simple.
using ByProtocol = std::array<double, 3>;
constexpr ByProtocol tree_base{6.8, 14.0, 8.4}, ring_base{6.6, 14.0, 8.4};
constexpr ByProtocol tree_nvlink{0.6, 1.25, 4.0}, ring_nvlink{0.6, 1.9, 3.4};
constexpr ByProtocol tree_pcie{1.0, 1.9, 4.0}, ring_pcie{1.0, 2.5, 5.7};
constexpr ByProtocol tree_net{5.0, 8.5, 14.0}, ring_net{2.7, 4.0, 14.0};
constexpr double nvls_inside = 25, nvls_net = 18, nvls_tree_net = 20.9;
/// No path over InfiniBand takes longer; Ethernet with TCP does.
constexpr double infiniband_path = 10;
/// CPU time per message between nodes (Intel); Simple sends three.
constexpr double net_overhead = 1.0;

// By generation (Volta and before, Ampere, Hopper, Blackwell), then nodes: 1, 2, more.
using ByNodes = std::array<double, 3>;
constexpr std::array<ByNodes, 4> ll_most{
    {{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}}};
constexpr std::array<ByNodes, 4> ring_ll128{
    {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {73.4, 34.6, 73.4}}};
constexpr std::array<ByNodes, 4> tree_ll128{
    {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
constexpr std::array<ByNodes, 4> tree_most{
    {{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
constexpr std::array<ByNodes, 4> nvls_tree_most{
    {{0, 0, 0}, {0, 0, 0}, {0, 57.7, 45.5}, {0, 96, 43.8}}};
constexpr std::array<double, 4> nvls_efficiency{0, 0, 0.85, 0.74};
constexpr double nvls_channels = 8;

/// Trees all-reduce middle sizes slower than they should: factor of the rate by log2(bytes / 64).
constexpr std::array<std::array<double, 23>, 3> tree_correction{
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}}};

constexpr double giga = 1e9, micro = 1e-6;

std::size_t generation(const CommShape& shape) {
  if (shape.architecture >= 10) return 3;
  if (shape.architecture >= 9) return 2;
  return shape.architecture >= 8 ? 1 : 0;
}

std::size_t node_column(const CommShape& shape) {
  return static_cast<std::size_t>(std::min(shape.nodes, 3) - 1);
}

class NcclModel {
 public:
  NcclModel(CollectiveKind kind, const CommShape& shape, double bytes)
      : kind_(kind),
        shape_(shape),
        bytes_(bytes),
        ranks_(shape.ranks),
        nodes_(shape.nodes),
        per_node_(std::ceil(static_cast<double>(shape.ranks) / shape.nodes)),
        steps_(kind == CollectiveKind::all_reduce  ? 2 * (ranks_ - 1)
               : kind == CollectiveKind::broadcast ? ranks_
                                                   : ranks_ - 1) {}

  [[nodiscard]] bool exists(NcclAlgorithm a, NcclProtocol p) const {
    // LL128 needs stores of 128 bytes that arrive whole: NVLink, and one kind of GPU from Volta on.
    const bool whole_lines = shape_.architecture >= 7 && shape_.nvlink && shape_.one_kind;
    if (p == NcclProtocol::ll128 && !whole_lines) return false;
    const bool sums = kind_ == CollectiveKind::all_reduce;
    const bool multicast = generation(shape_) >= 2 && shape_.nvlink && per_node_ > 2;
    switch (a) {
      case NcclAlgorithm::ring:
        return true;
      case NcclAlgorithm::tree:
        return sums;
      case NcclAlgorithm::nvls:
        return multicast && p == NcclProtocol::simple && nodes_ == 1 &&
               kind_ != CollectiveKind::broadcast;
      case NcclAlgorithm::nvls_tree:
        return multicast && p == NcclProtocol::simple && nodes_ > 1 && sums;
    }
    throw BrokenInvariant("an algorithm outside its enum");
  }

  /// Microseconds.
  [[nodiscard]] double latency(NcclAlgorithm a, NcclProtocol protocol) const {
    const auto p = static_cast<std::size_t>(protocol);
    const double ring_inside = (shape_.nvlink ? ring_nvlink : ring_pcie)[p];
    const double tree_inside = (shape_.nvlink ? tree_nvlink : tree_pcie)[p];
    const double slow = std::max(0.0, shape_.network_latency.count() / micro - infiniband_path);
    const double between = (per_node_ == 1 ? tree_net : ring_net)[p] + slow;
    const double levels = std::log2(nodes_);
    switch (a) {
      case NcclAlgorithm::ring: {
        const bool simple = protocol == NcclProtocol::simple;
        if (kind_ == CollectiveKind::broadcast) {
          const double inside = simple ? tree_inside : ring_inside;
          const double step = nodes_ > 1 ? std::max(inside, net_overhead) : inside;
          return ring_base[p] + (steps_ - (nodes_ - 1)) * step + (nodes_ - 1) * between;
        }
        const double overhead = nodes_ == 1 ? 0 : net_overhead * (simple ? 3 : 1);
        const double outside = (kind_ == CollectiveKind::all_reduce ? 2 : 1) * (nodes_ - 1);
        const double all =
            ring_base[p] + (steps_ - outside) * std::max(ring_inside, overhead) + outside * between;
        // "Plateau effect" of rings between nodes.
        const bool plateau = simple && nodes_ > 1 && bytes_ / (shape_.channels * ranks_) >= 64;
        return plateau ? all * (shape_.architecture >= 8 ? 1.4 : 1.9) : all;
      }
      case NcclAlgorithm::tree:
        return tree_base[p] + 2 * ((per_node_ - 1) * tree_inside + levels * (tree_net[p] + slow));
      case NcclAlgorithm::nvls:
        return nvls_inside + (nodes_ > 1 ? nvls_net + slow : 0);
      case NcclAlgorithm::nvls_tree:
        return nvls_inside + 2 * levels * (nvls_tree_net + slow);
    }
    throw BrokenInvariant("an algorithm outside its enum");
  }

  /// GB/s of payload.
  [[nodiscard]] double rate(NcclAlgorithm a, NcclProtocol p) const {
    const std::size_t row = generation(shape_), column = node_column(shape_);
    const double bus = shape_.rate / giga, inside = shape_.inside_rate / giga;
    const double channels = shape_.channels;
    const double per_step = ranks_ / steps_;  // rate of payload over rate of a ring
    const double ll = ll_most[nodes_ == 1 ? row : 0][column];
    // What the cards of a node can carry for a tree over nodes.
    const double between =
        nodes_ == 1 ? std::numeric_limits<double>::infinity() : bus * nodes_ / (2 * (nodes_ - 1));
    switch (a) {
      case NcclAlgorithm::ring:
        if (p == NcclProtocol::ll) return std::min(ll, bus / 2) * per_step;
        if (p == NcclProtocol::ll128) {
          return std::min(0.92 * bus, channels * ring_ll128[row][column]) * per_step;
        }
        return bus * per_step;
      case NcclAlgorithm::tree: {
        double tree =
            std::min(0.92 * std::min(inside, 2 * between), channels * tree_most[row][column]);
        if (p == NcclProtocol::ll) tree = std::min(tree / 3.8, ll);
        if (p == NcclProtocol::ll128) {
          tree = std::min(tree * (nodes_ == 1 ? 7.0 / 9 : 120.0 / 128),
                          channels * tree_ll128[row][column]);
        }
        return tree / 2 * corrected(p);
      }
      case NcclAlgorithm::nvls:
        return nvls_bus() * per_step;
      case NcclAlgorithm::nvls_tree:
        return std::min(
            std::min(nvls_bus(), nvls_channels * nvls_tree_most[row][column]) * per_step, between);
    }
    throw BrokenInvariant("an algorithm outside its enum");
  }

  /// Bytes on the links against those of a ring.
  [[nodiscard]] double traffic(NcclAlgorithm a) const {
    if (a == NcclAlgorithm::ring || kind_ != CollectiveKind::all_reduce) return 1;
    const double once = ranks_ / (2 * (ranks_ - 1));  // every rank sends its payload one time
    return nodes_ == 1 ? once : std::max(once, (nodes_ - 1) / nodes_ * ranks_ / (ranks_ - 1));
  }

 private:
  [[nodiscard]] double corrected(NcclProtocol p) const {
    const double step = std::log2(std::max(bytes_ / 64, 1e-9));
    const auto& table = tree_correction[static_cast<std::size_t>(p)];
    if (step < 0 || step >= static_cast<double>(table.size())) return 1;
    return table[static_cast<std::size_t>(step)];
  }

  /// A GPU's port carries eight channels of one speed of NCCL's list, and a ninth part is left.
  [[nodiscard]] double nvls_bus() const {
    const double port = shape_.inside_rate / giga / (nvls_channels + 1);
    double speed = 0;
    for (const double listed : {80.0, 60.0, 40.0, 30.0, 24.0, 20.0, 18.0, 15.0, 12.0}) {
      if (listed <= port) {
        speed = listed;
        break;
      }
    }
    const double part = kind_ == CollectiveKind::all_reduce
                            ? 2 * (nvls_channels - 1) / nvls_channels
                            : (per_node_ - 1) / per_node_;
    return nvls_channels * speed * nvls_efficiency[generation(shape_)] * part;
  }

  CollectiveKind kind_;
  const CommShape& shape_;
  double bytes_, ranks_, nodes_, per_node_, steps_;
};

}  // namespace

std::string_view to_text(NcclAlgorithm algorithm) {
  constexpr std::array<std::string_view, 4> words{"ring", "tree", "nvls", "nvls-tree"};
  return words[static_cast<std::size_t>(algorithm)];
}

std::string_view to_text(NcclProtocol protocol) {
  constexpr std::array<std::string_view, 3> words{"ll", "ll128", "simple"};
  return words[static_cast<std::size_t>(protocol)];
}

Seconds launch_time(Bytes payload, const LibraryTerms& terms) {
  return terms.offset + terms.per_root_byte * std::sqrt(static_cast<double>(payload.value));
}

CollectiveChoice choose_nccl(CollectiveKind kind, const CommShape& shape, Bytes payload,
                             const SimOptions& options) {
  ensure(shape.ranks > 1 && kind != CollectiveKind::all_to_all, "a collective of several ranks");
  const auto bytes = static_cast<double>(payload.value);
  const NcclModel model(kind, shape, bytes);
  CollectiveChoice best;
  double least = std::numeric_limits<double>::infinity();
  // What was asked for and does not exist here is left to the library, as NCCL does.
  for (const bool asked : {true, false}) {
    for (std::size_t i = 0; i < 4; ++i) {
      for (std::size_t k = 0; k < 3; ++k) {
        const auto a = static_cast<NcclAlgorithm>(i);
        const auto p = static_cast<NcclProtocol>(k);
        if (!model.exists(a, p)) continue;
        if (asked && options.algorithm.value_or(a) != a) continue;
        if (asked && options.protocol.value_or(p) != p) continue;
        const double rate = model.rate(a, p);
        if (rate <= 0) continue;
        const double wait = model.latency(a, p) * micro, flow = bytes / (rate * giga);
        if (wait + flow >= least) continue;
        least = wait + flow;
        best = {to_text(a), to_text(p), Seconds{wait}, Seconds{flow}, model.traffic(a)};
      }
    }
    if (std::isfinite(least)) break;
  }
  best.wait += launch_time(payload, options.terms);
  return best;
}

}  // namespace parsim
