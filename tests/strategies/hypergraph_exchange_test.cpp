// Files for other partitioners: what they cost there is what is moved here.
#include <doctest/doctest.h>

#include <set>
#include <sstream>

#include "core/dag_traffic.hpp"
#include "core/random.hpp"
#include "lowering/lower.hpp"
#include "networks/networks.hpp"
#include "strategies/hypergraph/coarsen.hpp"
#include "strategies/hypergraph/exchange.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/world.hpp"

namespace parsim::strategies::hypergraph {
namespace {

/// What a reader of the format makes of a file.
struct ReadGraph {
  std::vector<std::pair<std::int64_t, std::vector<std::size_t>>> nets;  ///< cost, pins from 0
  std::vector<std::int64_t> weights;
  std::vector<std::string> comments;

  /// Σ cost · (λ − 1).
  [[nodiscard]] std::int64_t cost(const Parts& parts) const {
    std::int64_t sum = 0;
    for (const auto& [cost, pins] : nets) {
      std::set<std::int32_t> touched;
      for (const std::size_t pin : pins) touched.insert(parts[pin]);
      sum += cost * (std::ssize(touched) - 1);
    }
    return sum;
  }
};

ReadGraph read_graph(const std::string& text, HypergraphFormat format) {
  ReadGraph graph;
  std::istringstream lines(text);
  std::vector<std::vector<std::int64_t>> rows;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('%')) {
      graph.comments.push_back(line);
      continue;
    }
    std::istringstream words(line);
    std::vector<std::int64_t>& row = rows.emplace_back();
    for (std::int64_t number = 0; words >> number;) row.push_back(number);
  }
  const bool patoh = format == HypergraphFormat::patoh;
  REQUIRE(!rows.empty());
  REQUIRE(rows[0].size() == (patoh ? 5 : 3));
  const auto nets = static_cast<std::size_t>(rows[0][patoh ? 2 : 0]);
  const auto vertices = static_cast<std::size_t>(rows[0][1]);
  CHECK(rows[0].back() == (patoh ? 3 : 11));
  std::int64_t pins = 0;
  for (std::size_t n = 1; n <= nets; ++n) {
    auto& [cost, list] = graph.nets.emplace_back();
    cost = rows[n][0];
    for (std::size_t i = 1; i < rows[n].size(); ++i) {
      list.push_back(static_cast<std::size_t>(rows[n][i]) - 1);
      ++pins;
    }
    CHECK(std::set<std::size_t>(list.begin(), list.end()).size() == list.size());
  }
  for (std::size_t row = nets + 1; row < rows.size(); ++row)
    graph.weights.insert(graph.weights.end(), rows[row].begin(), rows[row].end());
  CHECK(graph.weights.size() == vertices);
  if (patoh) {
    CHECK(rows[0][0] == 1);
    CHECK(rows[0][3] == pins);
    CHECK(rows.size() == nets + 2);
  } else {
    CHECK(rows.size() == nets + vertices + 1);
  }
  return graph;
}

Parts any_parts(std::int32_t vertices, std::int32_t parts, Random& random) {
  Parts result;
  for (Vertex v = 0; v < vertices; ++v)
    result.push_back(static_cast<std::int32_t>(random.below(static_cast<std::size_t>(parts))));
  return result;
}

}  // namespace

TEST_CASE("hypergraph files: by hand, in both formats") {
  // Net 0 -> {1, 2} of 6 elements, net 1 -> {1, 2} and net 2 -> {1, 2} of 9 each: one of 18.
  Builder builder(1);
  for (const std::int64_t weight : {10, 20, 30}) builder.add_vertex(std::vector{weight});
  builder.add_net(0, {1, 2}, 6);
  builder.add_net(1, {1, 2}, 9);
  builder.add_net(2, {1, 2}, 9);
  const Hypergraph graph = builder.build();
  const std::string head =
      "% a\n% costs in units of 6 elements a step, weights in units of 10\n"
      "% part 0: 0.7500 of the weight\n% part 1: 0.2500 of the weight\n";
  CHECK(hypergraph_text(graph, HypergraphFormat::hmetis, {3, 1}, {"a"}) ==
        head + "2 3 11\n1 1 2 3\n3 2 3\n1\n2\n3\n");
  CHECK(hypergraph_text(graph, HypergraphFormat::patoh, {3, 1}, {"a"}) ==
        head + "1 3 2 5 3\n1 1 2 3\n3 2 3\n1 2 3\n");
}

TEST_CASE("hypergraph files: the cost of a partition there is what its plan moves") {
  Random random(41);
  const testing::World world("hmp_mnist", "star:3,device=p100-sxm2,rate=10GB/s,latency=1us");
  for (const std::int32_t micro_batches : {1, 4}) {
    StrategyInput input = world.input(12);
    input.micro_batches = micro_batches;
    const Model model = exchanged_model(input);
    CHECK((model.samples.size() > 1) == (micro_batches == 1));
    for (const HypergraphFormat format : {HypergraphFormat::hmetis, HypergraphFormat::patoh}) {
      const std::string text = exchanged_text(input, format);
      const ReadGraph read = read_graph(text, format);
      REQUIRE(read.weights.size() == static_cast<std::size_t>(model.graph.vertices));
      std::istringstream unit(text.substr(text.find("in units of ") + 12));
      std::int64_t elements = 0;
      unit >> elements;
      for (int i = 0; i < 5; ++i) {
        const Parts parts = any_parts(model.graph.vertices, 3, random);
        CHECK(read.cost(parts) * elements == connectivity_cost(model.graph, parts));
      }
    }
    const Parts parts = any_parts(model.graph.vertices, 3, random);
    std::string given;
    for (const std::int32_t part : parts) given += std::to_string(part) + "\n";
    const Plan plan = plan_of_partition(input, given, "parts");
    validate(plan, world.network, world.cluster, "test");
    CHECK(plan.schedule.micro_batches == micro_batches);
    const Parts used = gathered(world.network, model, parts);
    CHECK(connectivity_cost(model.graph, used) <= connectivity_cost(model.graph, parts));
    CHECK(bytes_moved(lowering::lower(world.network, world.cluster, plan)) ==
          Bytes{4 * connectivity_cost(model.graph, used)});
  }
}

TEST_CASE("hypergraph files: partitions are read, and refused with their line") {
  CHECK(read_partition("0\n1\n 1\r\n0", "f", 4, 2) == Parts{0, 1, 1, 0});
  const auto refusal = [](const std::string& text, std::int32_t vertices, std::int32_t parts) {
    return testing::refusal_of([&] { (void)read_partition(text, "f", vertices, parts); });
  };
  CHECK(refusal("0\n2\n", 2, 2) == "f:2: part '2'; accepted: 0 to 1, a device each");
  CHECK(refusal("0\nx\n", 2, 2) == "f:2: part 'x'; accepted: 0 to 1, a device each");
  CHECK(refusal("-1\n", 1, 2).starts_with("f:1: part '-1'"));
  CHECK(refusal("0\n1\n", 3, 2).starts_with("f: 2 parts; accepted: one for each of the 3 vert"));
  CHECK(refusal("", 3, 2).starts_with("f: 0 parts"));
}

TEST_CASE("partitioner: vertices that are alike become one, and costs stay") {
  // Two towers of two filters each, read by both readers of the last layer.
  Builder builder(1);
  for (int v = 0; v < 6; ++v) builder.add_vertex(std::vector<std::int64_t>{1 + v});
  for (const Vertex v : {0, 1}) builder.add_net(v, {2, 3}, 5);
  for (const Vertex v : {2, 3}) builder.add_net(v, {4, 5}, 7);
  const Hypergraph graph = builder.build();
  const Coarsening merged = merge_alike(graph);
  CHECK(merged.cluster == std::vector<Vertex>{0, 0, 1, 1, 2, 2});
  CHECK(merged.graph.weights == std::vector<std::int64_t>{1 + 2, 3 + 4, 5 + 6});
  CHECK(connectivity_cost(merged.graph, {0, 1, 0}) == connectivity_cost(graph, {0, 0, 1, 1, 0, 0}));
}

TEST_CASE("partitioner: AlexNet's towers in two parts, without a start") {
  // By hand: towers apart, the third convolution reads both (2 x 43264 elements a sample), the
  // first dense layer on one side reads the other tower (2 x 4608), the second one it (2 x 4096).
  ModelOptions options;
  options.detail = Detail::simple;
  const Network network = networks::load_network("alexnet_grouped", {}, "test");
  PartitionOptions search;
  const Partition found = partition(model_of(network, options).graph, search);
  CHECK(found.balanced());
  CHECK(found.cost == 2 * 51968);
}

}  // namespace parsim::strategies::hypergraph
