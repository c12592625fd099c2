#include "sim/nccl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "sim/nccl_tables.hpp"

namespace parsim::sim {

namespace {

// Constants without another source: NCCL 2.28.9, src/graph/tuning.cc; microseconds and GB/s. What
// depends on the version is in nccl_tables.cpp.
constexpr double nvls_inside = 25, nvls_net = 18, nvls_tree_net = 20.9;
/// PAT: a part of the network's hop for each doubling of the nodes, and a step for each rank.
constexpr double pat_base = 8, pat_hops_at_once = 3.5, pat_step = 2.8, pat_efficiency = 0.75;
/// No path over InfiniBand takes longer (the longest of the built-in clusters, and of machines that
/// published rows describe); Ethernet with TCP does.
constexpr double infiniband_path = 6;
/// No path inside a machine takes longer, over NVLink, PCIe switches or both sockets (the longest
/// of the built-in machines); what does is a network that only looks like a machine.
constexpr double machine_path = 2.5;
/// Share of its memory's rate at which a GPU empties a ring's buffers. Chosen on three machines
/// together: with it aiconfigurator's all-gathers of 256 MiB and more on 2, 4 and 8 GPUs have rates
/// on links within 2 % (A100), 10 % (H100) and 7 % (B200) of each other, and 2 GPUs are no longer
/// 20 to 45 % slower than 8.
constexpr double copy_share = 0.25;
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
/// GB/s of a multicast's channels, fastest first: src/graph/search.cc. Slower ones are no NVLink's.
constexpr double gpus_of_lists = 8;
constexpr std::array<std::array<double, 9>, 4> nvls_speeds{
    {{}, {}, {60, 50, 40, 30, 24, 20, 15, 12, 11}, {90, 80, 70, 60, 50, 40, 30, 24, 20}}};
/// Of trees with one GPU in a node, which serves parent and children over the same card.
constexpr double lone_tree_efficiency = 0.85;

/// Trees all-reduce middle sizes slower than they should: factor of the rate by log2(bytes / 64).
constexpr std::array<std::array<double, 23>, 3> tree_correction{
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}}};

constexpr double giga = 1e9, micro = 1e-6;
constexpr std::size_t nccl_algorithm_count = 5, nccl_protocol_count = 3;

std::size_t generation(const CommShape& shape) {
  if (shape.architecture >= 10) return 3;
  if (shape.architecture >= 9) return 2;
  return shape.architecture >= 8 ? 1 : 0;
}

std::size_t node_column(const CommShape& shape) {
  return static_cast<std::size_t>(std::min(shape.nodes, 3) - 1);
}

/// Steps of a ring among `ranks`, one after another.
double ring_steps(CollectiveKind kind, double ranks) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 2 * (ranks - 1);
    case CollectiveKind::broadcast:
      return ranks;
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
      return ranks - 1;
    case CollectiveKind::all_to_all:
      break;
  }
  throw BrokenInvariant("NCCL's model is of collectives that go round rings");
}

/// Whether NVSwitch can combine or copy its payload.
bool has_nvls(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
      return true;
    case CollectiveKind::broadcast:
    case CollectiveKind::all_to_all:
      return false;
  }
  throw BrokenInvariant("a collective kind outside its enum");
}

class NcclModel {
 public:
  NcclModel(CollectiveKind kind, const CommShape& shape, double bytes, NcclVersion version)
      : kind_(kind),
        shape_(shape),
        version_(version),
        tables_(nccl_tables(version)),
        bytes_(bytes),
        ranks_(shape.ranks),
        nodes_(shape.nodes),
        per_node_(std::ceil(static_cast<double>(shape.ranks) / shape.nodes)),
        steps_(ring_steps(kind, ranks_)) {}

  /// Whether the algorithm runs with some protocol.
  [[nodiscard]] bool exists(NcclAlgorithm a) const {
    if (a == NcclAlgorithm::ring) return true;
    if (version_ < first_with(a, nodes_ == 1)) return false;
    if (a == NcclAlgorithm::pat) return has_pat();
    if (a != NcclAlgorithm::nvls && kind_ != CollectiveKind::all_reduce) return false;
    if (a == NcclAlgorithm::tree) return true;
    return has_nvls(kind_) && generation(shape_) >= 2 && shape_.nvlink && shape_.switched &&
           per_node_ >= 2 && (a == NcclAlgorithm::nvls) == (nodes_ == 1) && nvls_bus() > 0;
  }
  [[nodiscard]] bool exists(NcclAlgorithm a, NcclProtocol p) const {
    const bool has_all = a == NcclAlgorithm::ring || a == NcclAlgorithm::tree;
    if (!exists(a) || (!has_all && p != NcclProtocol::simple)) return false;
    if (version_ < first_with(p)) return false;
    // LL128 needs stores of 128 bytes that arrive whole: NVLink, and one kind of GPU from Volta on.
    return p != NcclProtocol::ll128 ||
           (shape_.architecture >= 7 && shape_.nvlink && shape_.one_kind);
  }

  /// Microseconds.
  [[nodiscard]] double latency(NcclAlgorithm a, NcclProtocol protocol) const {
    const auto p = static_cast<std::size_t>(protocol);
    const double far = std::max(0.0, shape_.inside_latency.count() / micro - machine_path);
    const double ring_inside = (shape_.nvlink ? tables_.ring_nvlink : tables_.ring_pcie)[p] + far;
    const double tree_inside = (shape_.nvlink ? tables_.tree_nvlink : tables_.tree_pcie)[p] + far;
    const double slow = std::max(0.0, shape_.network_latency.count() / micro - infiniband_path);
    const double between = (per_node_ == 1 ? tables_.tree_net : tables_.ring_net)[p] + slow;
    const double levels = std::floor(std::log2(nodes_));
    switch (a) {
      case NcclAlgorithm::ring: {
        const bool simple = protocol == NcclProtocol::simple;
        if (kind_ == CollectiveKind::broadcast) {
          const double inside = simple ? tree_inside : ring_inside;
          const double step = nodes_ > 1 ? std::max(inside, net_overhead) : inside;
          return tables_.ring_base[p] + (steps_ - (nodes_ - 1)) * step + (nodes_ - 1) * between;
        }
        const double overhead = nodes_ == 1 ? 0 : net_overhead * (simple ? 3 : 1);
        const double outside = tables_.all_steps_outside && nodes_ > 1
                                   ? steps_
                                   : (kind_ == CollectiveKind::all_reduce ? 2 : 1) * (nodes_ - 1);
        const double all = tables_.ring_base[p] +
                           (steps_ - outside) * std::max(ring_inside, overhead) + outside * between;
        // "Plateau effect" of rings between nodes.
        const bool sums = kind_ == CollectiveKind::all_reduce;
        const bool plateau =
            sums && simple && nodes_ > 1 && bytes_ / (shape_.channels * ranks_) >= 64;
        return plateau ? all * (shape_.architecture >= 8 ? 1.4 : 1.9) : all;
      }
      case NcclAlgorithm::tree:
        return tables_.tree_base[p] +
               2 * ((per_node_ - 1) * tree_inside + levels * (tables_.tree_net[p] + slow));
      case NcclAlgorithm::nvls:
        return nvls_inside + far + (nodes_ > 1 ? nvls_net + slow : 0);
      case NcclAlgorithm::nvls_tree:
        return nvls_inside + far + 2 * levels * (nvls_tree_net + slow);
      case NcclAlgorithm::pat:
        // NCCL takes the hop of a tree, as for all groups with one GPU in a node.
        return pat_base + levels * (tables_.tree_net[p] / pat_hops_at_once + slow) +
               pat_step * ranks_;
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
        const double all = tables_.tree_most[column];
        const double most = std::isfinite(all) ? all : channels * tree_most[row][column];
        double tree = std::min(tables_.tree_part * std::min(inside, 2 * between), most);
        if (p == NcclProtocol::ll) tree = std::min(tree / 3.8, ll);
        if (p == NcclProtocol::ll128) {
          tree = std::min(tree * (nodes_ == 1 ? 7.0 / 9 : 120.0 / 128),
                          channels * tree_ll128[row][column]);
        }
        if (per_node_ == 1) tree *= lone_tree_efficiency;
        return tree / 2 * corrected(p);
      }
      case NcclAlgorithm::nvls:
        // A gather's or a scatter's rate is that of all its bytes already.
        return kind_ == CollectiveKind::all_reduce ? nvls_bus() * per_step : nvls_bus();
      case NcclAlgorithm::nvls_tree:
        return std::min(std::min(nvls_bus(), per_node_ * nvls_tree_most[row][column]) * per_step,
                        between);
      case NcclAlgorithm::pat:
        return pat_efficiency * bus;
    }
    throw BrokenInvariant("an algorithm outside its enum");
  }

  /// Of a ring with Simple: what the last step takes after links have carried all bytes. Links of
  /// the same ring are idle then. In NCCL's choice it has no part.
  [[nodiscard]] Seconds last_step(NcclAlgorithm a, NcclProtocol p) const {
    const bool waits = a == NcclAlgorithm::ring && p == NcclProtocol::simple &&
                       kind_ != CollectiveKind::broadcast && shape_.memory_rate > 0;
    return waits ? copy_time(bytes_ / ranks_, shape_.memory_rate) : Seconds{0};
  }

  /// Bytes on the links against those of a ring.
  [[nodiscard]] double traffic(NcclAlgorithm a) const {
    if (a == NcclAlgorithm::ring || kind_ != CollectiveKind::all_reduce) return 1;
    const double once = ranks_ / (2 * (ranks_ - 1));  // every rank sends its payload one time
    return nodes_ == 1 ? once : std::max(once, (nodes_ - 1) / nodes_ * ranks_ / (ranks_ - 1));
  }

 private:
  /// PAT is for nodes of one GPU each.
  [[nodiscard]] bool has_pat() const {
    const bool gathers =
        kind_ == CollectiveKind::all_gather || kind_ == CollectiveKind::reduce_scatter;
    return gathers && shape_.ranks <= shape_.nodes && shape_.architecture >= 6;
  }

  [[nodiscard]] double corrected(NcclProtocol p) const {
    const double step = std::log2(std::max(bytes_ / 64, 1e-9));
    const auto& table = tree_correction[static_cast<std::size_t>(p)];
    if (step < 0 || step >= static_cast<double>(table.size())) return 1;
    return table[static_cast<std::size_t>(step)];
  }

  /// One channel for each GPU of a node, whose port carries it twice, and the others' ports once.
  [[nodiscard]] double nvls_bus() const {
    const auto& listed = nvls_speeds[generation(shape_)];
    const double all = shape_.search_rate > 0 ? shape_.search_rate : shape_.inside_rate;
    const double port = all / giga / (per_node_ + 1);
    double speed = 0;
    for (const double one : listed) {
      if (speed == 0 && one <= port) speed = one;
    }
    // Lists are for machines of eight GPUs; racks with more share the port as evenly (guessed).
    if (speed == 0 && per_node_ > gpus_of_lists && !listed.empty() && listed.front() > 0)
      speed = port;
    if (speed == 0) return 0;
    const double others = (per_node_ - 1) / per_node_;
    const double part = kind_ == CollectiveKind::all_reduce ? 2 * others : others * others;
    return per_node_ * speed * nvls_efficiency[generation(shape_)] * part;
  }

  CollectiveKind kind_;
  const CommShape& shape_;
  NcclVersion version_;
  const NcclTables& tables_;
  double bytes_, ranks_, nodes_, per_node_, steps_;
};

}  // namespace

std::string to_text(NcclVersion version) {
  return fmt::format("{}.{}", version.major, version.minor);
}

Seconds copy_time(double bytes, double memory_rate) {
  return Seconds{memory_rate > 0 ? bytes / (copy_share * memory_rate) : 0};
}

FixedCosts fixed_costs(const LibraryTerms& terms, std::optional<LinkKind> kind) {
  FixedCosts costs;
  if (kind) {
    const LinkNumbers numbers = link_numbers(*kind, terms.without);
    costs = {numbers.launch, numbers.per_root_byte, false};
  }
  return {terms.offset.value_or(costs.offset), terms.per_root_byte.value_or(costs.per_root_byte),
          terms.per_root_byte.has_value()};
}

Seconds launch_time(Bytes payload, const FixedCosts& costs, NcclProtocol protocol) {
  if (!costs.fitted && protocol == NcclProtocol::ll) return costs.offset;
  return costs.offset + costs.per_root_byte * std::sqrt(static_cast<double>(payload.value));
}

NcclProtocol message_protocol(Bytes payload) {
  constexpr std::int64_t most_ll = 16384;
  return payload.value <= most_ll ? NcclProtocol::ll : NcclProtocol::simple;
}

Seconds covered_latency(bool inside) {
  return Seconds{(inside ? machine_path : infiniband_path) * micro};
}

Seconds message_wait(const MessagePath& path, Bytes payload, const LibraryTerms& terms) {
  const auto p = static_cast<std::size_t>(message_protocol(payload));
  const NcclTables& now = nccl_tables(NcclVersion{});
  const ByProtocol& hop = !path.inside  ? now.tree_net
                          : path.nvlink ? now.ring_nvlink
                                        : now.ring_pcie;
  const Seconds far = std::max(Seconds{0}, path.latency - covered_latency(path.inside));
  return Seconds{(now.ring_base[p] + hop[p]) * micro} + far +
         launch_time(payload, fixed_costs(terms, path.kind), message_protocol(payload));
}

std::optional<NcclRefusal> nccl_refusal(CollectiveKind kind, const CommShape& shape,
                                        const SimOptions& options) {
  if (!options.algorithm && !options.protocol) return std::nullopt;
  const std::string_view flag = options.algorithm ? "--algorithm" : "--protocol";
  if (kind == CollectiveKind::all_to_all) {
    if (!options.algorithm && options.protocol == NcclProtocol::simple) return std::nullopt;
    return NcclRefusal{flag, "an all-to-all is pairwise messages",
                       "accepted: neither --algorithm nor --protocol"};
  }
  if (!shape.gpus) {
    return NcclRefusal{flag, "a group with a CPU does not use NCCL", "accepted: groups of GPUs"};
  }
  const NcclVersion version = options.nccl_version.value_or(NcclVersion{});
  const NcclModel model(kind, shape, 1, version);
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < nccl_algorithm_count; ++i) {
    const auto a = static_cast<NcclAlgorithm>(i);
    const bool asked = options.algorithm.value_or(a) == a;
    std::vector<std::string> protocols;
    for (std::size_t k = 0; k < nccl_protocol_count; ++k) {
      const auto p = static_cast<NcclProtocol>(k);
      if (!model.exists(a, p)) continue;
      if (asked && options.protocol.value_or(p) == p) return std::nullopt;
      protocols.emplace_back(to_text(p));
    }
    if (!protocols.empty()) runs.push_back(fmt::format("{} ({})", to_text(a), join(protocols)));
  }
  const bool by_algorithm = options.algorithm && !model.exists(*options.algorithm);
  std::string what(by_algorithm ? to_text(*options.algorithm) : to_text(*options.protocol));
  if (options.algorithm && !by_algorithm) {
    what = fmt::format("{} with {}", to_text(*options.algorithm), what);
  }
  return NcclRefusal{by_algorithm ? "--algorithm" : "--protocol",
                     fmt::format("NCCL {} has no {} for {} in this group", to_text(version), what,
                                 parsim::to_text(kind)),
                     fmt::format("accepted: {}", join(runs))};
}

CollectiveChoice choose_nccl(CollectiveKind kind, const CommShape& shape, Bytes payload,
                             const SimOptions& options) {
  ensure(shape.ranks > 1 && kind != CollectiveKind::all_to_all, "a collective of several ranks");
  const auto bytes = static_cast<double>(payload.value);
  const NcclModel model(kind, shape, bytes, options.nccl_version.value_or(NcclVersion{}));
  const FixedCosts costs = fixed_costs(options.terms, shape.kind);
  CollectiveChoice best;
  double least = std::numeric_limits<double>::infinity();
  // A requested algorithm that does not exist here is left to the library, as in NCCL.
  for (const bool asked : {true, false}) {
    for (std::size_t i = 0; i < nccl_algorithm_count; ++i) {
      for (std::size_t k = 0; k < nccl_protocol_count; ++k) {
        const auto a = static_cast<NcclAlgorithm>(i);
        const auto p = static_cast<NcclProtocol>(k);
        if (!model.exists(a, p)) continue;
        if (asked && options.algorithm.value_or(a) != a) continue;
        if (asked && options.protocol.value_or(p) != p) continue;
        const double rate = model.rate(a, p);
        const double wait = model.latency(a, p) * micro, flow = bytes / (rate * giga);
        if (wait + flow >= least) continue;
        least = wait + flow;
        best = {to_text(a), to_text(p), Seconds{wait}, Seconds{flow}, model.traffic(a)};
        const Seconds launch = launch_time(payload, costs, p);
        best.wait += launch;
        best.least += model.last_step(a, p);
      }
    }
    if (std::isfinite(least)) break;
  }
  return best;
}

}  // namespace parsim::sim
