#include "core/network.hpp"

#include <doctest/doctest.h>

#include "core/errors.hpp"
#include "tests/support/notation.hpp"

using namespace parsim;
using parsim::testing::network_of;

TEST_CASE("network: layers derive their shapes and create their parameters") {
  Network network;
  network.name = "tiny";
  const LayerId x = add_input(network, "x", image_shape(3, 8, 8));
  const LayerId conv = add_layer(network, "conv", Conv{4, {2, {3, 1, 1, 1, 1}}, 1, true}, {x});
  const LayerId flat = add_layer(network, "flat", Flatten{}, {conv});
  const LayerId fc = add_layer(network, "fc", Dense{10, false}, {flat});
  CHECK(network[conv].out == image_shape(4, 8, 8));
  CHECK(network[fc].out == vector_shape(10));
  CHECK(network[fc].inputs == std::vector{flat});
  CHECK(network.parameters == std::vector<Parameter>{{"conv.weights", {4, 3, 3, 3}},
                                                     {"conv.bias", {4}},
                                                     {"fc.weights", {10, 256}}});
  CHECK(network[conv].parameters == std::vector{ParameterId{0}, ParameterId{1}});
  // 4*27 + 4 + 10*256
  CHECK(parameter_count(network) == 2672);
  // 2 * (4*8*8 outputs * 27 + 10 * 256)
  CHECK(forward_flops_per_sample(network) == Flops{18944});
  CHECK(input_shapes(network, fc) == std::vector{vector_shape(256)});
}

TEST_CASE("network: tied weights count once") {
  Network network;
  network.name = "tied";
  const LayerId x = add_input(network, "x", vector_shape(6));
  const LayerId a = add_layer(network, "a", Dense{6, true}, {x});
  const LayerId b = add_layer(network, "b", Dense{6, true}, {a}, network[a].parameters);
  CHECK(network[b].parameters == network[a].parameters);
  CHECK(parameter_count(network) == 6 * 6 + 6);
  CHECK_THROWS_WITH_AS(add_layer(network, "c", Dense{7, true}, {x}, network[a].parameters),
                       "tied: layer 'c': shared parameter 'a.weights' has other extents; [7, 6]",
                       InputError);
  CHECK_THROWS_AS(add_layer(network, "d", Dense{6, true}, {x}, {ParameterId{0}}), BrokenInvariant);
}

TEST_CASE("network: a layer comes after its inputs") {
  Network network;
  CHECK_THROWS_AS(add_layer(network, "a", Activation{}, {LayerId{0}}), BrokenInvariant);
}

TEST_CASE("network: consumers know the operand they read") {
  const Network network = network_of("x: vector 4; a: relu; b: add (a x); c: add (a a)");
  using Readers = std::vector<std::vector<Consumer>>;
  CHECK(consumers(network) == Readers{{{LayerId{1}, 0}, {LayerId{2}, 1}},
                                      {{LayerId{2}, 0}, {LayerId{3}, 0}, {LayerId{3}, 1}},
                                      {},
                                      {}});
}

TEST_CASE("network: a layer that does not fit is refused with network and layer") {
  Network network;
  network.name = "tiny";
  const LayerId x = add_input(network, "x", vector_shape(6));
  CHECK_THROWS_WITH_AS(add_layer(network, "c", Concat{3}, {x}),
                       "tiny: layer 'c': concat along axis 3 of shape 6; the axis exists",
                       InputError);
  CHECK_THROWS_WITH_AS(add_layer(network, "c", Concat{0}, std::vector(513, x)),
                       "tiny: layer 'c': one tensor more than 512 times as an operand; accepted: "
                       "at most 512 times",
                       InputError);
  CHECK(network.layers.size() == 1);
  CHECK(network.parameters.empty());
  CHECK(network[add_layer(network, "c", Concat{0}, std::vector(512, x))].out == vector_shape(3072));
}
