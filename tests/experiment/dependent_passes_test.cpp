// Chains of passes against the longest path through the parts of random plans.
#include "experiment/dependent_passes.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/random.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::experiment {
namespace {

/// A part of a layer: its share of the layer, and how long its passes take.
struct Timed {
  Part part;
  double share = 0, forward = 0, backward = 0;
  double ready = 0;  ///< when its forward pass ends
  double left = 0;   ///< from the begin of its backward pass to the end of all that depend on it
};

double fraction(Random& random) { return 0.001 * static_cast<double>(random.below(1000)); }

/// Of equal replicas the first: a part reads one of them.
std::vector<std::vector<Timed>> timed_parts(const Network& network, const Plan& plan,
                                            Random& random) {
  std::vector<std::vector<Timed>> all(network.layers.size());
  const auto seconds = [&] { return (random.below(4) == 0 ? 10 : 0) + fraction(random); };
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerId id{l};
    double sum = 0;
    for (const Cell& cell : cells(network, id, plan.layers[l], plan.batch)) {
      if (cell.replica > 0) continue;
      Timed& one = all[l].emplace_back(Timed{cell.part});
      one.share = static_cast<double>(cell.part.out.volume());
      if (!cell.part.contraction.empty()) {
        one.share *= static_cast<double>(cell.part.contraction.size());
      }
      one.forward = seconds();
      one.backward = seconds();
      sum += one.share;
    }
    for (Timed& one : all[l]) one.share /= sum;
  }
  return all;
}

/// The longest path: forward through all that a part reads, and back.
double longest_path(const Network& network, std::vector<std::vector<Timed>>& parts) {
  const auto reads = [&](std::size_t l, std::size_t input, const Part& part, const Timed& other) {
    const Region region = input_region(network.layers[l].kind, input_shapes(network, LayerId{l}),
                                       network.layers[l].out, input, part);
    return !intersect(region, other.part.out).empty();
  };
  for (std::size_t l = 0; l < parts.size(); ++l) {
    for (Timed& one : parts[l]) {
      for (std::size_t i = 0; i < network.layers[l].inputs.size(); ++i) {
        for (const Timed& other : parts[network.layers[l].inputs[i].index()]) {
          if (reads(l, i, one.part, other)) one.ready = std::max(one.ready, other.ready);
        }
      }
      one.ready += one.forward;
    }
  }
  // From the first layers on: what follows a backward pass is behind its inputs.
  double longest = 0;
  for (std::size_t l = 0; l < parts.size(); ++l) {
    for (Timed& one : parts[l]) {
      for (std::size_t i = 0; i < network.layers[l].inputs.size(); ++i) {
        for (const Timed& other : parts[network.layers[l].inputs[i].index()]) {
          if (reads(l, i, one.part, other)) one.left = std::max(one.left, other.left);
        }
      }
      one.left += one.backward;
      if (network.layers[l].kind.as<Loss>() != nullptr) {
        longest = std::max(longest, one.ready + one.left);
      }
    }
  }
  return longest;
}

std::vector<double> random_worth(const Network& network, Random& random) {
  std::vector<double> worth;
  for (std::size_t l = 0; l < network.layers.size(); ++l) worth.push_back(fraction(random));
  return worth;
}

}  // namespace

TEST_CASE("chain of passes: no longer than the longest path through a random plan") {
  const int plans = testing::long_tests() ? 300 : 30;
  int seen = 0;
  double on_chain = 0;
  for (const Network& network : testing::tiny_networks()) {
    const lowering::GradientFlow flow = lowering::gradient_flow(network);
    Random random(7);
    for (int seed = 1; seed <= plans; ++seed) {
      Plan plan = testing::random_plan(network, 4, 8, static_cast<std::uint64_t>(seed));
      auto parts = timed_parts(network, plan, random);
      const double longest = longest_path(network, parts);
      const Chain chain = longest_chain(network, flow, random_worth(network, random),
                                        random_worth(network, random));
      double sum = 0;
      for (std::size_t l = 0; l < parts.size(); ++l) {
        for (const Timed& one : parts[l]) {
          sum += one.share * (chain.forward[l] * one.forward + chain.backward[l] * one.backward);
        }
        on_chain += chain.forward[l];
      }
      CAPTURE(network.name);
      CAPTURE(seed);
      CHECK(sum <= longest * (1 + 1e-9));
      ++seen;
    }
  }
  MESSAGE(fmt::format("{} plans, {:.3g} layers on a chain", seen, on_chain / seen));
  CHECK(on_chain > 3.0 * seen);
}

TEST_CASE("chain of passes: branches, joined channels and slices, by hand") {
  Network network;
  const LayerId in = add_input(network, "in", vector_shape(8));
  const LayerId a = add_layer(network, "a", Dense{6, false}, {in});
  const LayerId a2 = add_layer(network, "a2", Activation{}, {a});
  const LayerId b = add_layer(network, "b", Dense{2, false}, {in});
  const LayerId both = add_layer(network, "both", Concat{0}, {a2, b});
  const LayerId relu = add_layer(network, "relu", Activation{}, {both});
  const LayerId c = add_layer(network, "c", Dense{8, false}, {relu});
  const LayerId d = add_layer(network, "d", Dense{8, false}, {both});
  const LayerId part = add_layer(network, "part", Slicing{0, 0, 4, 1}, {d});
  const LayerId e = add_layer(network, "e", Dense{8, false}, {part});
  const LayerId sum = add_layer(network, "sum", Combine{}, {c, e});
  const LayerId loss = add_layer(network, "loss", Loss{}, {sum});
  const lowering::GradientFlow flow = lowering::gradient_flow(network);
  std::vector<double> worth(network.layers.size(), 1), none(network.layers.size(), 0);

  // Through c: what an element of relu depends on is one of a2's in six of eight cases.
  worth[c.index()] = 5;
  Chain chain = longest_chain(network, flow, worth, none);
  for (const LayerId all : {loss, sum, c, relu, both}) CHECK(chain.forward[all.index()] == 1);
  for (const LayerId often : {a, a2}) CHECK(chain.forward[often.index()] == 0.75);
  CHECK(chain.forward[b.index()] == 0.25);
  for (const LayerId other : {d, part, e}) CHECK(chain.forward[other.index()] == 0);

  // Through e: of d only some channels are sure, which depend on all of a2.
  worth[c.index()] = 1;
  worth[e.index()] = 5;
  worth[b.index()] = 0.5;
  worth[both.index()] = 0;
  chain = longest_chain(network, flow, worth, none);
  for (const LayerId all : {loss, sum, e, part, a, a2}) CHECK(chain.forward[all.index()] == 1);
  for (const LayerId other : {b, c, d, relu, both}) CHECK(chain.forward[other.index()] == 0);
  CHECK(longest_chain(network, flow, none, worth).backward == chain.forward);
}

}  // namespace parsim::experiment
