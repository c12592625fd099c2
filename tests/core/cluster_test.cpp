#include "core/cluster.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "core/errors.hpp"
#include "tests/support/refusal.hpp"

namespace parsim {
namespace {

DeviceModel model(std::string name, DeviceKind kind) {
  DeviceModel made;
  made.name = std::move(name);
  made.kind = kind;
  made.peak.fill({1e12});
  made.memory_rate = {1e11};
  made.memory = {1 << 30};
  return made;
}

/// Two GPUs and a CPU, each on one of two switches that are joined.
///
///     gpu0 — left — right — gpu1
///                     |
///                    cpu
Cluster small() {
  Cluster cluster;
  cluster.name = "small";
  cluster.models = {model("gpu", DeviceKind::gpu), model("cpu", DeviceKind::cpu)};
  cluster.nodes = {{"box"}};
  const NodeId box{0};
  cluster.devices = {{"gpu0", 0, box, {1}}, {"gpu1", 0, box, {1}}, {"cpu", 1, box, {1}}};
  cluster.switches = {{"left", box}, {"right", {}}};
  const Port left = Port::of(SwitchId{0}), right = Port::of(SwitchId{1});
  const auto device = [](std::int32_t i) { return Port::of(DeviceId{i}); };
  cluster.links = {{"l0", device(0), left, {1e9}, Seconds{0}},
                   {"l1", device(1), right, {1e9}, Seconds{1e-6}},
                   {"l2", right, device(2), {1e9}, Seconds{0}},
                   {"trunk", left, right, {1e9}, Seconds{0}}};
  return cluster;
}

std::string refusal(const std::function<void(Cluster&)>& spoil) {
  Cluster cluster = small();
  spoil(cluster);
  return testing::refusal_of([&] { validate(cluster, "file.toml"); });
}

TEST_CASE("cluster: the words of the labels") {
  CHECK(to_text(Label::measured) == "measured");
  CHECK(to_text(Label::data_sheet) == "data sheet");
  CHECK(to_text(Label::guessed) == "guessed");
}

TEST_CASE("cluster: devices of a kind, in id order") {
  const Cluster cluster = small();
  CHECK(devices_of(cluster, DeviceKind::gpu) == std::vector{DeviceId{0}, DeviceId{1}});
  CHECK(devices_of(cluster, DeviceKind::cpu) == std::vector{DeviceId{2}});
}

TEST_CASE("cluster: a sound one is accepted") {
  CHECK(refusal([](Cluster&) {}) == "accepted");
}

TEST_CASE("cluster: devices that are all wired to each other need no switch") {
  Cluster cluster = small();
  cluster.switches.clear();
  const auto device = [](std::int32_t i) { return Port::of(DeviceId{i}); };
  cluster.links = {{"a", device(0), device(1), {1e9}, Seconds{0}},
                   {"b", device(1), device(2), {1e9}, Seconds{0}}};
  // gpu1 stands between the other two and does not forward.
  CHECK_THROWS_WITH_AS(validate(cluster, "f"),
                       "f: device 'gpu0' cannot reach device 'cpu'; join them by a link, or by "
                       "links to switches that are joined (a device forwards nothing for others)",
                       InputError);
  cluster.links.push_back({"c", device(2), device(0), {1e9}, Seconds{0}});
  CHECK_NOTHROW(validate(cluster, "f"));
}

TEST_CASE("cluster: what is wrong is named") {
  const auto says = [](const std::string& rest) { return "file.toml: " + rest; };
  CHECK(refusal([](Cluster& c) { c.devices.clear(); }) ==
        says("cluster 'small' has no devices; at least one device"));
  CHECK(refusal([](Cluster& c) { c.devices[1].name.clear(); }) ==
        says("device number 2 has an empty name; every name needs at least one character"));
  CHECK(refusal([](Cluster& c) { c.switches[0].name = "gpu1"; }) ==
        says("switch name 'gpu1' occurs twice; names must be unique"));
  CHECK(refusal([](Cluster& c) { c.links[1].name = "l0"; }) ==
        says("link name 'l0' occurs twice; names must be unique"));
  CHECK(refusal([](Cluster& c) { c.nodes.push_back({"box"}); }) ==
        says("node name 'box' occurs twice; names must be unique"));
  CHECK(refusal([](Cluster& c) { c.models[1].name = "gpu"; }) ==
        says("device type name 'gpu' occurs twice; names must be unique"));
  CHECK(refusal([](Cluster& c) { c.models[0].peak[2] = {0}; }) ==
        says("device type 'gpu' has a number that is not positive; peaks, memory rate and memory "
             "must be positive"));
  CHECK(refusal([](Cluster& c) { c.devices[0].model = 2; }) ==
        says("device 'gpu0' has no device type; every device needs the index of a device type"));
  CHECK(refusal([](Cluster& c) { c.devices[0].node = {}; }) ==
        says("device 'gpu0' is in no node; every device stands in a node"));
  CHECK(refusal([](Cluster& c) { c.devices[2].memory = {0}; }) ==
        says("device 'cpu' has no memory; memory must be positive"));
  CHECK(refusal([](Cluster& c) { c.switches[0].node = NodeId{3}; }) ==
        says("switch 'left' is in a node that is missing; a switch stands in a node of the "
             "cluster, or in none"));
  CHECK(refusal([](Cluster& c) { c.links[0].b.index = 2; }) ==
        says("link 'l0' ends nowhere; both ends must be devices or switches of the cluster"));
  CHECK(refusal([](Cluster& c) { c.links[3].b = c.links[3].a; }) ==
        says("link 'trunk' leads back to where it starts; the ends of a link must differ"));
  CHECK(refusal([](Cluster& c) { c.links[3].rate = {0}; }) ==
        says("link 'trunk' has rate 0 B/s; rates must be positive and finite"));
  CHECK(refusal([](Cluster& c) { c.links[3].latency = Seconds{-1}; }) ==
        says("link 'trunk' has latency -1 s; latencies must not be negative, and finite"));
  CHECK(refusal([](Cluster& c) { c.links[3].provenance = 0; }) ==
        says("link 'trunk' has a source that is missing; the source must be one of the cluster's"));
  CHECK(refusal([](Cluster& c) { c.links.pop_back(); }) ==
        says("device 'gpu0' cannot reach device 'gpu1'; join them by a link, or by links to "
             "switches that are joined (a device forwards nothing for others)"));
}

}  // namespace
}  // namespace parsim
