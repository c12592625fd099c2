// Ranks that look alike but are not: parts of other sizes or of other work, devices in another
// order, an output that only some keep. Folded DAGs of random plans of such ranks are the whole
// ones, operation by operation.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/layers.hpp"
#include "tests/lowering/compare_folded.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {
namespace {

/// Every layer by some dimension over ranks of groups of devices, which share the samples. Most
/// layers as ranks that are alike would have them.
class UnlikeRanks {
 public:
  UnlikeRanks(const Network& network, std::size_t groups, std::size_t ranks, std::uint64_t seed)
      : network_(network), groups_(groups), ranks_(ranks), random_(seed) {}

  Plan next() {
    Plan plan;
    plan.strategy = "by hand";
    plan.network = network_.name;
    plan.schedule.micro_batches = chance(2) ? 1 : 2;
    samples_ = static_cast<std::int64_t>(groups_ * ranks_ * 2);
    plan.batch = samples_ * plan.schedule.micro_batches;
    odd_ = 1 + below(3) * 4;
    usual_ = std::array{Dim::channel, Dim::in_channel, Dim::token, Dim::height}[below(4)];
    std::vector<std::size_t> order(ranks_);
    for (std::size_t r = 0; r < ranks_; ++r) order[r] = r;
    for (std::size_t l = 0; l < network_.layers.size(); ++l)
      plan.layers.push_back(layer(LayerId{l}, order));
    plan.schedule.stage_of_layer.assign(network_.layers.size(), 0);
    std::vector<Slot> slots;
    for (std::int32_t m = 0; m < plan.schedule.micro_batches; ++m) {
      slots.push_back({0, m, Direction::forward});
      slots.push_back({0, m, Direction::backward});
    }
    const bool alone = chance(4);  // a list of slots for every device
    for (std::size_t d = 0; d < groups_ * ranks_; ++d) {
      if (d == 0 || alone) plan.schedule.rank_lists.push_back({{}, slots});
      plan.schedule.rank_lists.back().devices.emplace_back(d);
    }
    return plan;
  }

 private:
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }
  bool chance(std::size_t one_in) { return below(one_in) == 0; }
  bool seldom() { return chance(odd_ * 4); }

  LayerPlan layer(LayerId id, std::vector<std::size_t> order) {
    std::vector<std::pair<Dim, std::int64_t>> dims;
    const std::vector<Shape> inputs = input_shapes(network_, id);
    for (const Dim dim : cuttable_dims(network_[id].kind, inputs, network_[id].out)) {
      if (dim == Dim::sample || dim == Dim::replica) continue;
      const std::int64_t extent = dim == Dim::in_channel
                                      ? contraction_extent(network_[id].kind, inputs)
                                      : network_[id].out.extent(dim);
      if (extent >= static_cast<std::int64_t>(ranks_)) dims.emplace_back(dim, extent);
    }
    LayerPlan plan;
    if (dims.empty() || chance(8)) {
      plan.cuts = {{Dim::sample, even_split(samples_, groups_ * ranks_)}};
    } else {
      // Often along the plan's own dimension, so that few messages go from layer to layer.
      const auto own = std::find_if(dims.begin(), dims.end(),
                                    [&](const auto& choice) { return choice.first == usual_; });
      const auto [dim, extent] = own != dims.end() && !chance(6) ? *own : dims[below(dims.size())];
      std::vector<std::int64_t> sizes = even_split(extent, ranks_);
      if (seldom()) {
        const std::size_t from = below(ranks_);
        const std::int64_t moved = chance(4) ? sizes[from] : 1;
        sizes[from] -= moved;
        sizes[below(ranks_)] += moved;
      }
      plan.cuts = {{Dim::sample, even_split(samples_, groups_)}, {dim, std::move(sizes)}};
    }
    if (seldom()) std::swap(order[below(ranks_)], order[below(ranks_)]);
    const bool one_group = chance(4);  // has its ranks in another order than the other groups
    for (std::size_t g = 0; g < groups_; ++g) {
      for (std::size_t r = 0; r < ranks_; ++r)
        plan.devices.emplace_back(g * ranks_ + (one_group && g > 0 ? r : order[r]));
    }
    ways_of(id, plan);
    plan.recompute = chance(5);
    if (chance(6)) plan.zero = {static_cast<std::int32_t>(1 + below(3)), {}};
    return plan;
  }

  /// Messages from rank to rank, as products that overlap and rings of attention send them.
  void ways_of(LayerId id, LayerPlan& plan) {
    if (plan.cuts.size() < 2) return;
    const Cut& cut = plan.cuts[1];
    const std::int64_t tokens = network_[id].out.extent(Dim::token);
    const bool even_chunks = tokens % static_cast<std::int64_t>(2 * ranks_) == 0;
    const auto* attention = network_[id].kind.as<Attention>();
    const bool by_channel = cut.dim == Dim::channel || cut.dim == Dim::in_channel;
    const auto dims =
        cuttable_dims(network_[id].kind, input_shapes(network_, id), network_[id].out);
    const bool has_tokens = std::find(dims.begin(), dims.end(), Dim::token) != dims.end();
    if (network_[id].kind.as<Dense>() != nullptr && by_channel && has_tokens)
      plan.overlap = chance(2);
    if (attention == nullptr || cut.dim != Dim::token) return;
    if (attention->causal && even_chunks && chance(2))
      plan.zigzag = static_cast<std::int32_t>(ranks_);
    const bool even = std::set<std::int64_t>(cut.sizes.begin(), cut.sizes.end()).size() == 1;
    plan.ring = even && attention->window == 0 &&
                network_[network_[id].inputs[1]].out.extent(Dim::token) == tokens && chance(2);
  }

  const Network& network_;
  std::size_t groups_, ranks_;
  std::mt19937_64 random_;
  std::int64_t samples_ = 1;
  std::size_t odd_ = 1;
  Dim usual_ = Dim::channel;
};

TEST_CASE("folded: ranks that are alike but for a few layers, operation by operation") {
  FoldedCounts counts;
  std::uint64_t seed = 0;
  std::vector<Network> networks = tiny_networks();
  networks.push_back(networks::load_network(
      "gpt:layers=2,hidden=24,heads=6,seq_length=12,vocab_size=36", {}, "test"));
  for (const auto& [groups, ranks, fabric] :
       {std::tuple{2, 2, "nodes:2x2,device=v100-sxm2,intra=50GB/s,inter=10GB/s,nics=2"},
        {1, 4, "nvswitch:4,device=v100-sxm2"},
        {2, 3, "star:6,device=v100-sxm2,rate=10GB/s,latency=1us"}}) {
    for (const Network& network : networks) {
      const World world(network, topologies::load_cluster(fabric, "test"));
      UnlikeRanks plans(network, static_cast<std::size_t>(groups), static_cast<std::size_t>(ranks),
                        ++seed);
      for (int i = 0; i < (long_tests() ? 400 : 8); ++i) {
        CAPTURE(network.name);
        CAPTURE(fabric);
        CAPTURE(i);
        compare_with_whole(world, *world.cost, plans.next(), i % 2 == 0, counts, {},
                           i % 4 == 3 ? sim::Fidelity::analytic : sim::Fidelity::hops);
      }
    }
  }
  MESSAGE(counts.plans << " plans, " << counts.folded << " folded, of them by ranks: "
                       << counts.ranks << ", with messages between ranks: " << counts.between_ranks
                       << ", of several classes: " << counts.several_classes);
  CHECK(counts.ranks > (long_tests() ? 500U : 10U));
}

}  // namespace
}  // namespace parsim::testing
