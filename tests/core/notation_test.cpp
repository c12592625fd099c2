// The notation that other tests trust.
#include "tests/support/notation.hpp"

#include <doctest/doctest.h>

#include <stdexcept>

#include "core/errors.hpp"

using namespace parsim;
using namespace parsim::testing;

TEST_CASE("notation: a DAG by hand") {
  const NotedDag noted = dag_of(R"(
    a: compute d0 3us
    b: transfer d0->d1 1 MB on tensor after a
    all-reduce d0,d1,d2 4MiB after a b; c: reduce-scatter d2,d0 12 B)");
  const ExecDag& dag = noted.dag;
  REQUIRE(dag.size() == 4);
  CHECK(noted["c"] == OpId{3});
  CHECK(std::get<Delay>(dag.op(noted["a"])).time == Seconds{3e-6});
  CHECK(dag.kind(noted["b"]) == OpKind::transfer);
  CHECK(dag.stream(noted["b"]) == Stream::tensor);
  CHECK(dag.payload(noted["b"]) == Bytes{1'000'000});
  CHECK(dag.predecessors(OpId{2}).size() == 2);
  CHECK(dag.stream(OpId{2}) == Stream::gradient);
  CHECK(dag.payload(OpId{2}) == Bytes{4 << 20});
  CHECK(dag.group(GroupId{dag.record(noted["c"]).device}) == std::vector{DeviceId{2}, DeviceId{0}});
  CHECK(dag.payload(noted["c"]) == Bytes{12});
  CHECK(dag.region(dag.shares(noted["c"]).regions[1]) == Region{{2, 3}});  // 3 numbers: 2 + 1
  CHECK_THROWS_AS(static_cast<void>(noted["d"]), std::out_of_range);
}

TEST_CASE("notation: a network by hand") {
  const Network network = network_of(R"(
    x: image 3x8x8
    conv 4 k3 p1 s2
    a: relu
    b: conv 4 k1 g2 (a)
    add (a b); max-pool 2; flatten; dense 10; loss)");
  REQUIRE(network.layers.size() == 9);
  CHECK(network[LayerId{1}].out == image_shape(4, 4, 4));
  CHECK(network[LayerId{3}].kind.as<Conv>()->groups == 2);
  CHECK(network[LayerId{4}].inputs == std::vector{LayerId{2}, LayerId{3}});
  CHECK(network[LayerId{5}].out == image_shape(4, 2, 2));
  CHECK(network[LayerId{7}].out == vector_shape(10));
  CHECK(network[LayerId{8}].kind.as<Loss>() != nullptr);
}

TEST_CASE("notation: a star by hand") {
  const DeviceModel fast = test_device("fast", "20 TFLOP/s"),
                    slow = test_device("slow", "5 TFLOP/s");
  const Cluster cluster = star_of({fast, slow, fast}, "25 GB/s", "1 us");
  CHECK(cluster.models == std::vector{fast, slow});
  CHECK(cluster.model(DeviceId{2}).name == "fast");
  CHECK(cluster.links.size() == 3);
  CHECK(cluster[LinkId{1}].rate == BytesPerSecond{25e9});
  CHECK_NOTHROW(validate(cluster, "star"));
}

TEST_CASE("notation: what is not understood is refused") {
  for (const char* text : {"a b: compute d0 1s", "compute x0 1s", "compute d0", "transfer d0 1MB",
                           "transfer d0->d1 3 B", "sing d0", "compute d0 1s on tensor",
                           "transfer d0->d1 1MB on telegraph"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(static_cast<void>(dag_of(text)), std::invalid_argument);
  }
  for (const char* text : {"relu", "x: vector", "x: image 3x4", "x: vector 3; sing",
                           "x: vector 3; relu (y)", "x: vector 3; dense four"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(static_cast<void>(network_of(text)), std::invalid_argument);
  }
  CHECK_THROWS_AS(static_cast<void>(dag_of("compute d0 1 parsec")), InputError);
}
