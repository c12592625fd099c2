#include "hw/convolutions.hpp"

#include <doctest/doctest.h>

#include "lowering/lower.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {
namespace {

using hw::Convolutions;
using hw::ConvShape;
using hw::Product;

TEST_CASE("convolutions: a network on one device asks for each product once") {
  const Network net = network_of(
      "x: image 3x8x8; c: conv 4 k3 p1; relu; d: conv 6 k3 s2 p1; flatten; dense 10; loss");
  const ExecDag dag = lower(net, star_of(1, "10 GB/s", "1us"), single_device_plan(net, 5));
  const Convolutions asked = hw::convolutions(dag);
  const auto shape = [](Product product, std::vector<std::int64_t> x, std::vector<std::int64_t> w,
                        std::vector<std::int64_t> y, std::int64_t stride, std::int64_t end) {
    return ConvShape{product,          Precision::fp32, std::move(x), std::move(w), std::move(y),
                     {stride, stride}, {1, 1},          {1, 1},       {end, end}};
  };
  // The image leads to no parameter: no gradient of it. Stride 2 does not reach the last border.
  const std::vector<ConvShape> expected{
      shape(Product::forward, {5, 3, 8, 8}, {4, 3, 3, 3}, {5, 4, 8, 8}, 1, 1),
      shape(Product::forward, {5, 4, 8, 8}, {6, 4, 3, 3}, {5, 6, 4, 4}, 2, 0),
      shape(Product::data, {5, 4, 8, 8}, {6, 4, 3, 3}, {5, 6, 4, 4}, 2, 0),
      shape(Product::weights, {5, 4, 8, 8}, {6, 4, 3, 3}, {5, 6, 4, 4}, 2, 0),
      shape(Product::weights, {5, 3, 8, 8}, {4, 3, 3, 3}, {5, 4, 8, 8}, 1, 1)};
  REQUIRE(asked.by_device.size() == 1);
  CHECK(asked.by_device[0].size() == expected.size());
  CHECK(asked.shapes == expected);
}

TEST_CASE("convolutions: of any plan, input, padding and window make the output") {
  std::size_t checked = 0;
  for (const Network& network : tiny_networks()) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const ExecDag dag =
          lower(network, star_of(4, "10 GB/s", "1us"), random_plan(network, 3, 8, seed));
      const Convolutions asked = hw::convolutions(dag);
      for (const ConvShape& shape : asked.shapes) {
        ++checked;
        CHECK(shape.x[0] == shape.y[0]);
        CHECK(shape.w[0] == shape.y[1]);
        CHECK(shape.x[1] % shape.w[1] == 0);  // groups
        for (std::size_t s = 0; s < shape.stride.size(); ++s) {
          const std::int64_t room = shape.x[s + 2] + shape.pad_begin[s] + shape.pad_end[s];
          const std::int64_t window = shape.dilation[s] * (shape.w[s + 2] - 1) + 1;
          CHECK((room - window) % shape.stride[s] == 0);
          CHECK(shape.y[s + 2] == (room - window) / shape.stride[s] + 1);
        }
      }
      for (const std::vector<std::size_t>& device : asked.by_device) {
        CHECK(std::is_sorted(device.begin(), device.end()));
        CHECK((device.empty() || device.back() < asked.shapes.size()));
      }
    }
  }
  CHECK(checked > 500);
}

}  // namespace
}  // namespace parsim::testing
