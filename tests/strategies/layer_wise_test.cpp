// The layer-wise strategy: its configurations, its tables, its optimum on whole networks.
#include "strategies/layer_wise.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "core/errors.hpp"
#include "core/timeline.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/layer_wise/tables.hpp"
#include "strategies/lower.hpp"
#include "strategies/memory.hpp"
#include "strategies/price.hpp"
#include "tests/support/notation.hpp"
#include "topologies/topologies.hpp"

using namespace parsim;
using layer_wise::Configuration;
using layer_wise::configurations;
using layer_wise::Machine;
using layer_wise::Problem;
using layer_wise::Solution;
using layer_wise::Tables;
using layer_wise::TransferRule;

namespace {

struct World {
  Network network;
  Cluster cluster;
  std::unique_ptr<CostModel> cost = make_constant_efficiency(cluster);

  World(const std::string& name, const std::string& machines)
      : network(load_network(name, {}, "test")), cluster(load_cluster(machines, "test")) {}

  [[nodiscard]] StrategyInput input(std::int64_t batch,
                                    SearchCosts costs = SearchCosts::paper) const {
    StrategyInput in{network, cluster, *cost};
    in.batch = batch;
    in.search_costs = costs;
    return in;
  }
};

const char* const four_p100 = "star:4,device=p100-sxm2,rate=20GB/s,latency=1us";
const char* const two_p100 = "star:2,device=p100-sxm2,rate=20GB/s,latency=1us";

/// Every choice, depth first; the sum of what is chosen so far is carried along. `prune`: leave a
/// branch whose sum with the least that the other nodes cost by themselves is no better than the
/// best so far.
class Enumeration {
 public:
  Enumeration(const Problem& problem, bool prune) : problem_(problem), prune_(prune) {
    ending_.resize(problem.costs.size());
    for (const Problem::Edge& edge : problem.edges) ending_[edge.to].push_back(&edge);
    choice_.resize(problem.costs.size());
    rest_.assign(problem.costs.size() + 1, 0);
    for (std::size_t v = problem.costs.size(); v-- > 0;) {
      rest_[v] = rest_[v + 1] + *std::min_element(problem.costs[v].begin(), problem.costs[v].end());
    }
  }
  double least() {
    visit(0, 0);
    return least_;
  }
  [[nodiscard]] std::int64_t leaves() const { return leaves_; }

 private:
  void visit(std::size_t node, double sum) {
    const bool last = node + 1 == problem_.costs.size();
    for (std::size_t c = 0; c < problem_.costs[node].size(); ++c) {
      double cost = sum + problem_.costs[node][c];
      for (const Problem::Edge* edge : ending_[node]) {
        cost += edge->cost->values[choice_[edge->from] * edge->cost->columns + c];
      }
      if (prune_ && cost + rest_[node + 1] >= least_) continue;
      if (last) {
        ++leaves_;
        least_ = std::min(least_, cost);
      } else {
        choice_[node] = c;
        visit(node + 1, cost);
      }
    }
  }

  const Problem& problem_;
  bool prune_;
  std::vector<std::vector<const Problem::Edge*>> ending_;
  std::vector<std::size_t> choice_;
  std::vector<double> rest_;  ///< least node costs from a node on
  double least_ = std::numeric_limits<double>::infinity();
  std::int64_t leaves_ = 0;
};

const LayerPlan& plan_of(const World& world, const Plan& plan, const std::string& layer) {
  const auto at = std::find_if(world.network.layers.begin(), world.network.layers.end(),
                               [&](const Layer& l) { return l.name == layer; });
  REQUIRE(at != world.network.layers.end());
  return plan.layers[static_cast<std::size_t>(at - world.network.layers.begin())];
}

}  // namespace

TEST_CASE("layer-wise: 15, 70 and 210 configurations at 4, 16 and 64 devices") {
  const layer_wise::Degrees image{64, 64, 1, 64, 64};
  CHECK(configurations(image, 4).size() == 15);
  CHECK(configurations(image, 16).size() == 70);
  CHECK(configurations(image, 64).size() == 210);
  // Dense layers: sample and channel. 1; 2 twice; 4 three times.
  CHECK(configurations({64, 64, 1, 1, 1}, 4).size() == 6);
  // No degree beyond an extent: of the 15 those with h = 4 and those with h = 2 are missing, 1
  // and 4.
  CHECK(configurations({64, 64, 1, 1, 64}, 4).size() == 10);
  // Products divide 6: 1, 2, 3 or 6, and 6 in four ways.
  CHECK(configurations({64, 64, 1, 1, 1}, 6).size() == 1 + 2 + 2 + 4);
  CHECK(configurations(image, 4)[0] == Configuration{{4, 1, 1, 1, 1}});
}

TEST_CASE(
    "layer-wise: element-wise layers share their producer's configuration, as the paper "
    "counts layers") {
  const auto searched = [](const char* name) {
    std::size_t count = 0;
    const Network network = load_network(name, {}, "test");
    for (const layer_wise::Node& node : layer_wise::nodes_of(network, 128, 4)) {
      const LayerKind& kind = network[node.layers[0]].kind;
      // The paper counts neither the view nor the loss.
      if (kind.as<Flatten>() == nullptr && kind.as<Loss>() == nullptr) ++count;
    }
    return count;
  };
  CHECK(searched("alexnet_one_tower") == 11);  // table 3
  CHECK(searched("vgg16") == 21);              // table 3
}

TEST_CASE("layer-wise: the tables add up to the price that is worked out box by box") {
  for (const char* machines :
       {four_p100, "nodes:2x3,device=p100-sxm2,intra=20GB/s,inter=5GB/s,latency=1us"}) {
    for (const char* name : {"lenet5", "googlenet", "alexnet_grouped"}) {
      for (const Sync::Kind sync : {Sync::Kind::ring, Sync::Kind::server}) {
        CAPTURE(name);
        CAPTURE(machines);
        const World world(name, machines);
        StrategyInput input = world.input(48);
        input.sync = sync;
        Machine machine(input, SearchCosts::paper);
        const Tables tables = make_tables(input, machine, TransferRule::slowest_receiver, {});
        const Solution solution = solve(tables.problem(1, 0));
        const Plan plan = plan_layer_wise(input);
        CHECK(paper_price(input, plan).step().count() ==
              doctest::Approx(solution.cost).epsilon(1e-9));
      }
    }
  }
}

TEST_CASE("layer-wise: LeNet-5 on 2 and 4 devices and AlexNet on 2 have brute force's optimum") {
  struct Case {
    const char *network, *machines;
    bool prune;
    std::int64_t strategies;
  };
  // Free choices at 2 devices: convolutions and pools 5, dense layers and the view 3, the loss 2;
  // at 4: 15, 6 and 3. Times 6 for the view and 3 for the loss that is the 1.1e7 of conv, pool and
  // dense layers; without pruning it takes the benchmark.
  for (const Case& c :
       {Case{"lenet5", two_p100, false, 5 * 5 * 5 * 5 * 3 * 3 * 3 * 3 * 2},
        Case{"lenet5", four_p100, true, 0}, Case{"alexnet_one_tower", two_p100, true, 0}}) {
    CAPTURE(c.network);
    CAPTURE(c.machines);
    const World world(c.network, c.machines);
    const StrategyInput input = world.input(64);
    Machine machine(input, SearchCosts::paper);
    for (const TransferRule rule : {TransferRule::slowest_receiver, TransferRule::total}) {
      const Problem problem = make_tables(input, machine, rule, {}).problem(1, 0);
      Enumeration all(problem, c.prune);
      CHECK(solve(problem).cost == doctest::Approx(all.least()).epsilon(1e-12));
      if (!c.prune) CHECK(all.leaves() == c.strategies);
    }
  }
}

TEST_CASE("layer-wise: VGG-16 on 4 P100 has the pattern of the paper's table 5") {
  const World world("vgg16", four_p100);
  const StrategyInput input = world.input(128);
  const Plan plan = plan_layer_wise(input);
  for (const char* conv : {"conv1_1", "conv2_2", "conv3_3", "conv4_1"}) {
    CAPTURE(conv);
    CHECK(configuration_text(plan_of(world, plan, conv)) == "n=4");
  }
  CHECK(configuration_text(plan_of(world, plan, "fc6")) == "c=4");
  CHECK(configuration_text(plan_of(world, plan, "fc7")) == "c=4");
  MESSAGE("conv5_1 ", configuration_text(plan_of(world, plan, "conv5_1")), " fc8 ",
          configuration_text(plan_of(world, plan, "fc8")), " loss ",
          configuration_text(plan_of(world, plan, "loss")));
  const double own = paper_price(input, plan).step().count();
  const double owt = paper_price(input, plan_owt(input)).step().count();
  const double data = paper_price(input, plan_data(input)).step().count();
  const double model = paper_price(input, plan_model_even(input)).step().count();
  CHECK(own <= owt);
  CHECK(owt < data);
  CHECK(own < model);
}
