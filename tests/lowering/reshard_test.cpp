#include "lowering/reshard.hpp"

#include <doctest/doctest.h>

#include "core/errors.hpp"
#include "tests/support/notation.hpp"

using namespace parsim;
using namespace parsim::lowering;

namespace {

constexpr std::size_t devices = 4;

Cluster four() { return testing::star_of(devices, "10 GB/s", "1 us"); }

/// Cells of a tensor of 8 samples × 8 channels × 8 rows, cut in four along axis 0, 1 or 2, one part
/// a device.
std::vector<Cell> cut_along(std::size_t axis) {
  std::vector<Cell> cells;
  for (std::int64_t d = 0; d < 4; ++d) {
    Region part{{0, 8}, {0, 8}, {0, 8}};
    part[axis] = {2 * d, 2 * d + 2};
    cells.push_back({DeviceId{static_cast<std::int32_t>(d)}, {part, {}}, 0, 0});
  }
  return cells;
}

std::vector<Cell> on_device(std::int32_t device) {
  return {{DeviceId{device}, {Region{{0, 8}, {0, 8}, {0, 8}}, {}}, 0, 0}};
}

std::vector<Need> needs_of(const std::vector<Cell>& cells) {
  std::vector<Need> needs;
  for (const Cell& cell : cells) needs.push_back({cell.device, cell.part.out, cell.replica});
  return needs;
}

std::vector<Need> all_needs_all() {
  std::vector<Need> needs;
  for (std::int32_t d = 0; d < 4; ++d)
    needs.push_back({DeviceId{d}, Region{{0, 8}, {0, 8}, {0, 8}}, 0});
  return needs;
}

/// Rows with one row of border on each side: what a 3-wide window needs.
std::vector<Need> with_border() {
  std::vector<Need> needs;
  for (std::int64_t d = 0; d < 4; ++d) {
    needs.push_back(
        {DeviceId{static_cast<std::int32_t>(d)},
         Region{{0, 8},
                {0, 8},
                {std::max<std::int64_t>(0, 2 * d - 1), std::min<std::int64_t>(8, 2 * d + 3)}},
         0});
  }
  return needs;
}

std::vector<Pattern> patterns(const std::vector<Movement>& movements) {
  std::vector<Pattern> found;
  for (const Movement& movement : movements) found.push_back(movement.pattern);
  return found;
}

}  // namespace

TEST_CASE("reshard: what is in place moves nothing, forward or backward") {
  TensorLayout tensor(cut_along(0));
  const auto needs = needs_of(cut_along(0));
  CHECK(tensor.bring(needs, four()).aligned);
  CHECK(tensor.arrivals().empty());
  CHECK(return_gradients(tensor, needs).direct);
}

TEST_CASE(
    "reshard: parts that all readers need whole are an all-gather, and a reduce-scatter back") {
  TensorLayout tensor(cut_along(1));
  (void)tensor.bring(all_needs_all(), four());
  REQUIRE(patterns(tensor.arrivals()) == std::vector<Pattern>{Pattern::all_gather});
  CHECK(tensor.arrivals()[0].regions[3] == Region{{0, 8}, {6, 8}, {0, 8}});
  const GradientReturn back = return_gradients(tensor, all_needs_all());
  CHECK_FALSE(back.direct);
  CHECK(patterns(back.movements) == std::vector<Pattern>{Pattern::reduce_scatter});
}

TEST_CASE("reshard: another axis is an all-to-all in both directions") {
  TensorLayout tensor(cut_along(0));
  const auto needs = needs_of(cut_along(1));
  (void)tensor.bring(needs, four());
  REQUIRE(patterns(tensor.arrivals()) == std::vector<Pattern>{Pattern::all_to_all});
  CHECK(patterns(return_gradients(tensor, needs).movements) ==
        std::vector<Pattern>{Pattern::all_to_all});
}

TEST_CASE("reshard: one part that all the others need is a broadcast") {
  TensorLayout tensor(on_device(2));
  (void)tensor.bring(all_needs_all(), four());
  REQUIRE(patterns(tensor.arrivals()) == std::vector<Pattern>{Pattern::broadcast});
  CHECK(tensor.arrivals()[0].devices[0] == DeviceId{2});
}

TEST_CASE("reshard: windows over a cut axis exchange halos of one row") {
  TensorLayout tensor(cut_along(2));
  (void)tensor.bring(with_border(), four());
  // Three borders, each crossed in both directions.
  CHECK(patterns(tensor.arrivals()) == std::vector<Pattern>(6, Pattern::halo));
  for (const Movement& movement : tensor.arrivals()) CHECK(movement.regions[0].volume() == 64);
  // Back: the same six, and every device keeps what it contributes to its own rows.
  const GradientReturn back = return_gradients(tensor, with_border());
  std::size_t local = 0, halo = 0;
  for (const Movement& movement : back.movements) {
    local += movement.pattern == Pattern::local_add ? 1 : 0;
    halo += movement.pattern == Pattern::halo ? 1 : 0;
  }
  CHECK(local == 4);
  CHECK(halo == 6);
}

TEST_CASE("reshard: a window that skips the last row still gathers and scatters as one operation") {
  std::vector<Need> needs;
  for (std::int32_t d = 0; d < 4; ++d) {
    needs.push_back({DeviceId{d}, Region{{0, 8}, {0, 8}, {0, 7}}, 0});
  }
  TensorLayout tensor(cut_along(1));
  (void)tensor.bring(needs, four());
  REQUIRE(patterns(tensor.arrivals()) == std::vector<Pattern>{Pattern::all_gather});
  CHECK(tensor.arrivals()[0].regions[3] == Region{{0, 8}, {6, 8}, {0, 7}});
  const GradientReturn back = return_gradients(tensor, needs);
  REQUIRE(patterns(back.movements) == std::vector<Pattern>{Pattern::reduce_scatter});
  CHECK(back.movements[0].regions[3] == Region{{0, 8}, {6, 8}, {0, 7}});
}

TEST_CASE("reshard: a second reader of the same pieces moves nothing again") {
  TensorLayout tensor(cut_along(1));
  (void)tensor.bring(all_needs_all(), four());
  const auto again = tensor.bring(all_needs_all(), four());
  CHECK(tensor.arrivals().size() == 1);
  CHECK(again.by_need[0] ==
        std::vector<std::int32_t>{0, ~0});  // its own part, the rest from the arrival
}

TEST_CASE(
    "reshard: copies of one part that get different contributions are summed by an all-reduce") {
  std::vector<Cell> copies;
  for (std::int32_t d = 0; d < 4; ++d) {
    copies.push_back({DeviceId{d}, {Region{{0, 8}, {0, 8}, {0, 8}}, {2 * d, 2 * d + 2}}, 0, d});
  }
  TensorLayout tensor(copies);
  CHECK(patterns(return_gradients(tensor, all_needs_all()).movements) ==
        std::vector<Pattern>{Pattern::all_reduce});
}

TEST_CASE("reshard: replicas take the contributions of their own device, nothing travels") {
  std::vector<Cell> copies;
  std::vector<Need> readers;
  for (std::int32_t d = 0; d < 4; ++d) {
    copies.push_back({DeviceId{d}, {Region{{0, 8}, {0, 8}, {0, 8}}, {}}, d, 0});
    readers.push_back({DeviceId{d}, Region{{0, 8}, {0, 8}, {0, 8}}, d});
  }
  TensorLayout tensor(copies);
  (void)tensor.bring(readers, four());
  CHECK(tensor.arrivals().empty());
  CHECK(return_gradients(tensor, readers).direct);
}

TEST_CASE("reshard: readers' contributions move together where that moves less, by hand") {
  // As many copies of a part as devices, and on each device a reader that contributes to all of it.
  // Each sends its contribution to the other n-1 copies: n(n-1) parts. Added up in a ring all
  // together: 2(n-1). That is as much with two copies, and less with three.
  for (std::int32_t n = 2; n <= 4; ++n) {
    CAPTURE(n);
    std::vector<Cell> copies;
    const Region part{{0, 8}, {0, 8}, {0, 8}};
    for (std::int32_t d = 0; d < n; ++d) {
      copies.push_back({DeviceId{d}, {part, {d, d + 1}}, 0, d});
    }
    TensorLayout tensor(copies);
    std::vector<Returning> readers;
    std::vector<GradientReturn> apart;
    for (std::int32_t d = 0; d < n; ++d) {
      readers.push_back({{{DeviceId{d}, part, 0}}, nullptr});
      apart.push_back(return_gradients(tensor, readers.back().needs));
    }
    for (std::size_t r = 0; r < readers.size(); ++r) readers[r].back = &apart[r];
    const JointReturn joint = joint_return(tensor, readers);
    CHECK(joint.given.empty() == (n == 2));
    if (n > 2) CHECK(patterns(joint.back.movements) == std::vector<Pattern>{Pattern::all_reduce});
  }
}

TEST_CASE("reshard: a part is fetched from the reader's own node if a copy is there") {
  Cluster cluster = four();
  cluster.devices[3].node = cluster.devices[1].node;
  std::vector<Cell> copies{on_device(0)[0], on_device(1)[0]};
  copies[1].replica = 1;
  TensorLayout tensor(copies);
  (void)tensor.bring(std::vector<Need>{{DeviceId{3}, Region{{0, 8}, {0, 8}, {0, 8}}, 0}}, cluster);
  REQUIRE(tensor.arrivals().size() == 1);
  CHECK(tensor.arrivals()[0].devices == std::vector<DeviceId>{DeviceId{1}, DeviceId{3}});
}
