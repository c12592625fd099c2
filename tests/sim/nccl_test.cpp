#include "sim/nccl.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <cmath>

#include "core/timeline.hpp"
#include "tests/sim/nccl_calls.hpp"
#include "tests/sim/small_dags.hpp"
#include "tests/support/approx.hpp"

namespace parsim::sim {
namespace {

using namespace testing;

/// GB/s as nccl-tests counts them.
double bus_rate(const CollectiveChoice& choice, double bytes, double ranks) {
  return bytes / (choice.wait + choice.least).count() * 2 * (ranks - 1) / ranks / 1e9;
}

TEST_CASE("nccl: rates at large sizes by hand, as NCCL's own model gives them") {
  // 8 V100 in a cube mesh, 6 rings of 20 GB/s: latency 8.4 + 14 · 3.4 us, 128 MiB at 120 · 8/14
  // GB/s, and the last eighth out of buffers at 900 / 4 GB/s.
  const CollectiveChoice v100 = chosen("cube-mesh:8,device=v100-sxm2", all_reduce, 128 * mega);
  CHECK(spelled(v100) == "ring simple");
  CHECK(v100.wait.count() == testing::approx(56e-6));
  CHECK(bus_rate(v100, 128.0 * mega, 8) == testing::approx(112.5).epsilon(1e-3));
  const CollectiveChoice a100 = chosen(a100x8, all_reduce, 8LL * giga);
  CHECK(spelled(a100) == "ring simple");
  CHECK(bus_rate(a100, 8.0 * giga, 8) == testing::approx(229.7).epsilon(1e-3));
  // Multicast: 8 channels of 40 GB/s, 0.85 · 7/8 · 2: 476 GB/s, 25 us.
  const CollectiveChoice h100 = chosen(h100x8, all_reduce, 2LL * giga);
  CHECK(spelled(h100) == "nvls simple");
  CHECK(bus_rate(h100, 2.0 * giga, 8) == testing::approx(474.5).epsilon(1e-3));
  CHECK(h100.traffic == testing::approx(8.0 / 14));
  // Two machines: a tree over multicasts, capped at 8 channels of 57.7 GB/s; 25 + 2 · 20.9 us.
  const CollectiveChoice two = chosen(h100x16, all_reduce, 16LL * giga);
  CHECK(spelled(two) == "nvls-tree simple");
  CHECK(bus_rate(two, 16.0 * giga, 16) == testing::approx(461.2).epsilon(1e-3));
}

TEST_CASE("nccl: small sizes take the protocol with the least latency, by hand") {
  // NVLink, 8 GPUs: a ring's 14 steps of LL take 6.6 + 14 · 0.6 us, a tree 6.8 + 2 · 7 · 0.6 us.
  const CollectiveChoice ring = chosen(a100x8, all_reduce, 64);
  CHECK(spelled(ring) == "ring ll");
  CHECK(ring.wait.count() == testing::approx(15.0e-6));
  const auto wait = [&](NcclAlgorithm a, NcclProtocol p, const char* call = a100x8) {
    return chosen(call, all_reduce, 64, nccl(a, p)).wait.count() * 1e6;
  };
  CHECK(wait(NcclAlgorithm::tree, NcclProtocol::ll) == testing::approx(15.2));
  CHECK(wait(NcclAlgorithm::ring, NcclProtocol::ll128) == testing::approx(14 + 14 * 1.9));
  // Two machines: a tree climbs one level, 2 · (7 · 0.6 + 5.0); a ring passes 30 steps, of which 2
  // leave a machine, none under the 1 us of the network's CPU.
  CHECK(wait(NcclAlgorithm::tree, NcclProtocol::ll, h100x16) ==
        testing::approx(6.8 + 2 * (7 * 0.6 + 5.0)));
  CHECK(chosen(h100x16, CollectiveKind::all_gather, 64, nccl(NcclAlgorithm::ring, NcclProtocol::ll))
                .wait.count() *
            1e6 ==
        testing::approx(6.6 + 14 * 1.0 + 1 * 2.7));
  // Three machines: NCCL counts whole levels, so one.
  CHECK(wait(NcclAlgorithm::tree, NcclProtocol::ll,
             "nodes:3x8,device=h100-sxm5,intra=370.8GB/s,inter=50GB/s,nics=8,latency=1us") ==
        testing::approx(6.8 + 2 * (7 * 0.6 + 5.0)));
  // PCIe has no LL128; what does not exist is left to the library.
  const CollectiveChoice pcie = chosen("star:4,device=v100-pcie,rate=12GB/s", all_reduce, 64,
                                       nccl(std::nullopt, NcclProtocol::ll128));
  CHECK(spelled(pcie) == "ring ll");
  CHECK(pcie.wait.count() == testing::approx((6.6 + 6 * 1.0) * 1e-6));
}

TEST_CASE("nccl: of the rings between nodes only an all-reduce's has the plateau, by hand") {
  // Two machines of eight: 28 of 30 steps stay inside, or 14 of 15.
  const auto wait = [](CollectiveKind kind, std::int64_t bytes) {
    const SimOptions options = nccl(NcclAlgorithm::ring, NcclProtocol::simple);
    return chosen(h100x16, kind, bytes, options).wait.count() * 1e6;
  };
  CHECK(wait(all_reduce, giga) == testing::approx(1.4 * (8.4 + 28 * 3.4 + 2 * 14)));
  CHECK(wait(all_reduce, 64) == testing::approx(8.4 + 28 * 3.4 + 2 * 14));
  CHECK(wait(CollectiveKind::all_gather, giga) == testing::approx(8.4 + 14 * 3.4 + 14));
  CHECK(wait(CollectiveKind::reduce_scatter, giga) == testing::approx(8.4 + 14 * 3.4 + 14));
}

TEST_CASE("nccl: a multicast's channels are its node's GPUs, by hand") {
  // Hopper's 370.8 GB/s carry n + 1 channels: of 60 GB/s up to five GPUs, 50 with six, 40 with
  // eight. An all-reduce moves 2 (n − 1) / n of their sum and counts n / 2 (n − 1) of it as
  // payload; at 0.85 that leaves 0.85 n · speed.
  const auto rate = [](std::int64_t n, CollectiveKind kind) {
    const std::string call = "nvswitch:" + std::to_string(n) + ",device=h100-sxm5,rate=370.8GB/s";
    const CollectiveChoice choice = chosen(call, kind, giga, nccl(NcclAlgorithm::nvls));
    CHECK(choice.algorithm == "nvls");
    return giga / choice.least.count() / 1e9;
  };
  CHECK(rate(2, all_reduce) == testing::approx(0.85 * 2 * 60));
  CHECK(rate(4, all_reduce) == testing::approx(0.85 * 4 * 60));
  CHECK(rate(6, all_reduce) == testing::approx(0.85 * 6 * 50));
  CHECK(rate(8, all_reduce) == testing::approx(0.85 * 8 * 40));
  // A gather or a scatter: 7/8 of the channels, of which 7/8 come from others.
  CHECK(rate(8, CollectiveKind::all_gather) == testing::approx(0.85 * 8 * 40 * 49 / 64));
  CHECK(rate(4, CollectiveKind::reduce_scatter) == testing::approx(0.85 * 4 * 60 * 9 / 16));
  // A port sends a payload and what its own channel sums of it: none is faster than that.
  for (std::int64_t n = 2; n <= 8; ++n) {
    CHECK(rate(n, all_reduce) * static_cast<double>(n + 1) / static_cast<double>(n) <= 370.8);
  }
  // Four are served as well by a ring: 370.8 · 4/6 against 204 GB/s.
  CHECK(spelled(chosen("nvswitch:4,device=h100-sxm5,rate=370.8GB/s", all_reduce, giga)) ==
        "ring simple");
}

TEST_CASE("nccl: a tree whose parent and children share a card is slower, by hand") {
  // Half of 0.92 · 0.85 · 12.5 GB/s, and 8.4 + 2 · 2 · 14 us.
  const CollectiveChoice tree =
      chosen(lone_gpus(4), all_reduce, giga, nccl(NcclAlgorithm::tree, NcclProtocol::simple));
  CHECK(tree.wait.count() == testing::approx(64.4e-6));
  CHECK(giga / tree.least.count() / 1e9 == testing::approx(0.92 * 0.85 * 12.5 / 2));
}

TEST_CASE("nccl: PAT gathers middle sizes where every node has one GPU, by hand") {
  // 8 us, 14 / 3.5 us for each doubling of the nodes, 2.8 us for each rank; the payload at three
  // quarters of a ring's 12.5 GB/s.
  const auto pat = [](int nodes, CollectiveKind kind, std::int64_t bytes) {
    return chosen(lone_gpus(nodes), kind, bytes, nccl(NcclAlgorithm::pat));
  };
  for (const CollectiveKind kind : {CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
    for (const auto& [nodes, wait] : {std::pair{2, 17.6}, {8, 42.4}, {16, 68.8}}) {
      CAPTURE(nodes);
      const CollectiveChoice choice = pat(nodes, kind, 1'500'000);
      CHECK(spelled(choice) == "pat simple");
      CHECK(choice.wait.count() == testing::approx(wait * 1e-6));
      CHECK(choice.least.count() == testing::approx(160e-6));
      CHECK(choice.traffic == 1);
    }
    // Eight nodes. A ring of LL waits 6.6 + 7 · 5 us and takes 6.25 · 8/7 GB/s, PAT 0.8 us more and
    // 9.375 GB/s: even at 24 kB. A ring of Simple waits 8.4 + 7 · 14 us and takes 12.5 · 8/7 GB/s:
    // even at 1.745 MB.
    const auto fastest = [&](int nodes, std::int64_t bytes) {
      return spelled(chosen(lone_gpus(nodes), kind, bytes));
    };
    CHECK(fastest(8, 23'900) == "ring ll");
    CHECK(fastest(8, 24'100) == "pat simple");
    CHECK(fastest(8, 1'745'000) == "pat simple");
    CHECK(fastest(8, 1'746'000) == "ring simple");
    // Two nodes: 6.6 + 5 us and 12.5 GB/s for LL's ring, so never PAT.
    for (const std::int64_t bytes : {std::int64_t{8}, mega / 16, mega, giga}) {
      CHECK(fastest(2, bytes).starts_with("ring"));
    }
    // 16: LL's 6.6 + 15 · 5 us are more than PAT's 68.8.
    CHECK(fastest(16, 8) == "pat simple");
    CHECK(fastest(16, giga) == "ring simple");
  }
  // Its longer hops count as often as it doubles.
  CHECK(chosen("nodes:8x1,device=a100-pcie,intra=100GB/s,inter=12.5GB/s,latency=10us",
               CollectiveKind::all_gather, 64, nccl(NcclAlgorithm::pat))
                .wait.count() *
            1e6 ==
        testing::approx(42.4 + 3 * (40 - 6)));
}

TEST_CASE("nccl: a path inside a machine counts beyond 2.5 us, at every hop, by hand") {
  using A = NcclAlgorithm;
  using P = NcclProtocol;
  const auto wait = [](const char* call, A a, P p, CollectiveKind kind = all_reduce) {
    return chosen(call, kind, 64, nccl(a, p)).wait.count() * 1e6;
  };
  // A path crosses two links: 20 us, 17.5 more than NCCL's constants cover.
  constexpr const char* far = "star:8,device=v100-sxm2,rate=25GB/s,latency=10us";
  CHECK(wait(far, A::ring, P::ll) == testing::approx(6.6 + 14 * (0.6 + 17.5)));
  CHECK(wait(far, A::ring, P::simple) == testing::approx(8.4 + 14 * (3.4 + 17.5)));
  CHECK(wait(far, A::tree, P::ll) == testing::approx(6.8 + 2 * 7 * (0.6 + 17.5)));
  CHECK(wait(far, A::ring, P::ll, CollectiveKind::all_gather) ==
        testing::approx(6.6 + 7 * (0.6 + 17.5)));
  CHECK(wait(far, A::ring, P::ll, CollectiveKind::broadcast) ==
        testing::approx(6.6 + 8 * (0.6 + 17.5)));
  CHECK(wait("nvswitch:8,device=h100-sxm5,rate=370.8GB/s,latency=10us", A::nvls, P::simple) ==
        testing::approx(25 + 17.5));
  // Two machines: 28 of the 30 steps stay inside, the links between the machines are as slow.
  CHECK(wait("nodes:2x8,device=v100-sxm2,intra=100GB/s,inter=10GB/s,latency=10us", A::tree, P::ll) >
        6.8 + 2 * 7 * (0.6 + 17.5));
  // As far as the longest path of a real machine nothing changes.
  for (const char* near : {"star:8,device=v100-sxm2,rate=25GB/s,latency=1us",
                           "star:8,device=v100-sxm2,rate=25GB/s,latency=1250ns"}) {
    CHECK(wait(near, A::ring, P::ll) == testing::approx(6.6 + 14 * 0.6));
  }
}

TEST_CASE("nccl: a message waits as one hop of a ring does, by hand") {
  const LibraryTerms none{Seconds{0}, Seconds{0}, {}};
  const auto wait = [&](const MessagePath& path, std::int64_t bytes, const LibraryTerms& terms) {
    return message_wait(path, Bytes{bytes}, terms).count() * 1e6;
  };
  const MessagePath nvlink{true, true, Seconds{1e-6}, {}}, pcie{true, false, Seconds{1e-6}, {}};
  const MessagePath net{false, true, Seconds{2e-6}, {}};
  // LL up to 16 KiB, Simple above.
  CHECK(wait(nvlink, 16384, none) == testing::approx(6.6 + 0.6));
  CHECK(wait(nvlink, 16385, none) == testing::approx(8.4 + 3.4));
  CHECK(wait(pcie, 64, none) == testing::approx(6.6 + 1.0));
  CHECK(wait(pcie, mega, none) == testing::approx(8.4 + 5.7));
  CHECK(wait(net, 64, none) == testing::approx(6.6 + 5.0));
  CHECK(wait(net, mega, none) == testing::approx(8.4 + 14.0));
  // Paths of 20 us: 17.5 more than a machine's, 14 more than InfiniBand's. √1048576 = 1024.
  CHECK(wait({true, true, Seconds{20e-6}, {}}, 64, none) == testing::approx(6.6 + 0.6 + 17.5));
  CHECK(wait({false, true, Seconds{20e-6}, {}}, 64, none) == testing::approx(6.6 + 5.0 + 14));
  const LibraryTerms some{Seconds{20e-6}, Seconds{0.008e-6}, {}};
  CHECK(wait(nvlink, mega, some) == testing::approx(8.4 + 3.4 + 20 + 8.192));
  CHECK(wait(nvlink, 64, some) == testing::approx(6.6 + 0.6 + 20 + 0.064));
  // What is not given is that of the kind, whose root LL does not have, and nothing without a kind.
  const double launch = 1e6 * link_numbers(LinkKind::nvlink4).launch.count();
  CHECK(wait({true, true, Seconds{1e-6}, LinkKind::nvlink4}, 64, {}) ==
        testing::approx(6.6 + 0.6 + launch));
  CHECK(wait(nvlink, mega, {}) == testing::approx(8.4 + 3.4));
  const LinkNumbers kind = link_numbers(LinkKind::nvlink4);
  CHECK(
      wait({true, true, Seconds{1e-6}, LinkKind::nvlink4}, mega, {}) ==
      testing::approx(8.4 + 3.4 + 1e6 * (kind.launch.count() + 1024 * kind.per_root_byte.count())));
}

TEST_CASE("nccl: a transfer between GPUs takes the library's wait, others their route's") {
  const Cluster cluster = topologies::load_cluster("dgx-v100", "test");
  const DeviceId cpu = devices_of(cluster, DeviceKind::cpu).front();
  const std::vector<DeviceId> gpus = gpus_of(cluster);
  PathCache paths(cluster);
  SimOptions options = nccl();
  const auto flow = [&](DeviceId from, DeviceId to) {
    return (Bytes{mega} / paths.between(from, to).rate).count();
  };
  const auto check = [&](DeviceId from, DeviceId to, double wait) {
    const double wanted = wait + flow(from, to);
    const auto cost = make_tile_costs(cluster, options);
    CHECK(cost->transfer(from, to, Bytes{mega}).count() == testing::approx(wanted).epsilon(1e-9));
    for (const Engine engine : {Engine::fast, Engine::simgrid}) {
      options.engine = engine;
      ExecDag dag = bare_dag();
      const OpId op = add_transfer(dag, from.value, to.value, mega);
      const Timeline timeline = make_simulator(cluster, *cost, options)->run(dag);
      CHECK(length(timeline, op).count() == testing::approx(wanted).epsilon(1e-6));
    }
  };
  check(gpus[0], gpus[1], (8.4 + 3.4) * 1e-6);
  check(gpus[0], cpu, paths.between(gpus[0], cpu).latency.count());
  options.collectives = CollectiveCost::ideal;
  check(gpus[0], gpus[1], paths.between(gpus[0], gpus[1]).latency.count());
}

TEST_CASE("nccl: a star of seconds takes seconds") {
  // 14 steps of 2 s each, whichever the library chooses.
  constexpr const char* call = "star:8,device=v100-sxm2,rate=25GB/s,latency=1s";
  for (const std::int64_t bytes : {std::int64_t{64}, mega}) {
    const double wait = chosen(call, all_reduce, bytes).wait.count();
    CHECK(wait > 14 * 2.0 * 0.9999);
    CHECK(wait < 14 * 2.0 * 1.0001);
  }
}

/// Two machines with 8 V100 and four cards of 12 GB/s each.
constexpr const char* v100x16 = "nodes:2x8,device=v100-sxm2,intra=120GB/s,inter=12GB/s,nics=4";

SimOptions of_version(std::int32_t minor) {
  SimOptions options = nccl();
  options.nccl_version = NcclVersion{2, minor};
  return options;
}

TEST_CASE("nccl: the version decides which algorithms there are") {
  const auto taken = [](const char* call, std::int32_t minor) {
    return spelled(chosen(call, all_reduce, 8LL * giga, of_version(minor)));
  };
  CHECK(taken(v100x16, 3) == "ring simple");
  CHECK(taken(v100x16, 4) == "tree simple");
  CHECK(taken(h100x8, 16) == "ring simple");
  CHECK(taken(h100x8, 17) == "nvls simple");
  CHECK(taken(h100x16, 17) == "ring simple");
  CHECK(taken(h100x16, 18) == "nvls-tree simple");
  const auto gathers = [](std::int32_t minor) {
    return spelled(chosen(lone_gpus(16), CollectiveKind::all_gather, 64 * 1024, of_version(minor)));
  };
  CHECK(gathers(22).starts_with("ring "));
  CHECK(gathers(23) == "pat simple");
  // LL128 came with 2.5; trees within a node, too.
  for (const std::int64_t bytes : {std::int64_t{1} << 16, std::int64_t{1} << 20}) {
    CHECK(spelled(chosen("dgx-v100", all_reduce, bytes, of_version(4))).find("128") ==
          std::string::npos);
    CHECK(spelled(chosen("dgx-v100", all_reduce, bytes, of_version(4))).starts_with("ring "));
  }
  CHECK(spelled(chosen("dgx-v100", all_reduce, 1 << 20, of_version(28))).find("128") !=
        std::string::npos);
}

TEST_CASE("nccl: the version's own caps and latencies, by hand") {
  // 2.5 lets a tree over nodes have 70 GB/s, half of it payload, where links give twice 48 x 0.9;
  // it waits 2 · (7 · 28 + 50) us. In 2.28, twice 48 x 0.92 fit, 8.4 + 2 · (7 · 4 + 14) us.
  const CollectiveChoice old = chosen(v100x16, all_reduce, 8LL * giga, of_version(5));
  CHECK(spelled(old) == "tree simple");
  CHECK(old.wait.count() == testing::approx(492e-6));
  CHECK(old.least.count() == testing::approx(8.0 * giga / 35e9));
  const CollectiveChoice now = chosen(v100x16, all_reduce, 8LL * giga);
  CHECK(now.wait.count() == testing::approx(92.4e-6));
  CHECK(now.least.count() == testing::approx(8.0 * giga / (0.92 * 48e9)));
  // In 2.6 and before, all steps of a ring over nodes were taken for the network's: 8.4 + 30 · 6.6.
  SimOptions ring = of_version(6);
  ring.algorithm = NcclAlgorithm::ring;
  ring.protocol = NcclProtocol::simple;
  const double bytes = 64;
  CHECK(chosen(v100x16, CollectiveKind::all_gather, static_cast<std::int64_t>(bytes), ring)
            .wait.count() == testing::approx((8.4 + 15 * 6.6) * 1e-6));
  // The newest is what one gets without asking.
  CHECK(chosen(v100x16, all_reduce, mega, of_version(28)).wait ==
        chosen(v100x16, all_reduce, mega).wait);
}

TEST_CASE("nccl: an offset and a square root come on top") {
  SimOptions options = nccl();
  options.terms = {Seconds{20e-6}, Seconds{0.016e-6}, {}};
  const double bare = chosen(a100x8, all_reduce, mega).wait.count();
  // √1048576 = 1024: 20 + 16.384 us.
  CHECK(1e6 * (chosen(a100x8, all_reduce, mega, options).wait.count() - bare) ==
        testing::approx(36.384));
}

TEST_CASE("nccl: where the choice goes from LL128 to Simple, prices meet") {
  for (const std::string call :
       {"nodes:2x8,device=h100-sxm5,intra=450GB/s,inter=50GB/s,nics=8,intra-kind=nvlink4,"
        "inter-kind=infiniband",
        "nodes:4x8,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s,nics=8,intra-kind=nvlink3,"
        "inter-kind=infiniband"}) {
    for (const CollectiveKind kind : {CollectiveKind::reduce_scatter, CollectiveKind::all_gather}) {
      CAPTURE(call);
      std::string last;
      double before = 0;
      int changes = 0;
      for (double bytes = 8e6; bytes < 2e9; bytes *= 1.01) {
        const CollectiveChoice now = chosen(call, kind, static_cast<std::int64_t>(bytes), nccl());
        const double time = (now.wait + now.least).count();
        CAPTURE(bytes);
        if (before > 0) CHECK(time < 1.08 * before);
        if (!last.empty() && spelled(now) != last) ++changes;
        last = spelled(now);
        before = time;
      }
      CHECK(changes > 0);
    }
  }
}

TEST_CASE("nccl: the last step of a ring empties buffers while links wait, by hand") {
  // Two GPUs, 1 GB: each sends half over 200 GB/s, then takes its half out of buffers, at a quarter
  // of 2039 GB/s.
  const auto options = nccl(NcclAlgorithm::ring, NcclProtocol::simple);
  const std::string pair = "star:2,device=a100-sxm4-80,rate=200GB/s";
  const double least =
      chosen(pair, CollectiveKind::all_gather, 1'000'000'000, options).least.count();
  CHECK(1e6 * least == testing::approx(1e6 * (0.5 / 200 + 0.5 / (0.25 * 2039))).epsilon(1e-4));
  // So does an all-to-all with the part that stays.
  const double near = chosen(pair, CollectiveKind::all_to_all, 40'000, options).wait.count();
  CHECK(1e6 * near == testing::approx(8.4 + 3.4 + 1e6 * 20'000 / (0.25 * 2039e9)).epsilon(0.01));
}

TEST_CASE("nccl: a rack of 72 GPUs is one NVLink domain with multicasts") {
  const CollectiveChoice rack = chosen("gb200-nvl72", all_reduce, std::int64_t{1} << 30, nccl());
  CHECK(spelled(rack) == "nvls simple");
  // 72 channels of 40.1 · 18 / 73 GB/s each, twice 71/72 of which NCCL takes 0.74; of payload
  // 72 / 142.
  const double rate = 72 * (40.1 * 18 / 73) * 0.74 * 2 * 71 / 72 * 72 / 142;
  CHECK(1e6 * rack.least.count() == testing::approx((std::int64_t{1} << 30) / rate / 1e3));
}

TEST_CASE("nccl: ideal stays ideal, and so do groups with a CPU") {
  CHECK(spelled(chosen(a100x8, all_reduce, mega, {})) == "ring ideal");
  CHECK(spelled(chosen(a100x8, CollectiveKind::all_to_all, mega, {})) == "pairwise ideal");
  const Cluster cluster = topologies::load_cluster("dgx-v100", "test");
  PathCache paths(cluster);
  std::vector<DeviceId> all;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) all.emplace_back(i);
  CHECK(spelled(choose(all_reduce, all, Bytes{mega}, paths, nccl())) == "ring ideal");
}

TEST_CASE("nccl: the simulator takes what the estimate says on an idle cluster") {
  // Eight nodes of one GPU gather 1 MiB with PAT.
  for (const std::string& call :
       {std::string("dgx-v100"), std::string(a100x8), std::string(h100x8), std::string(h100x16),
        std::string("k80-cloud-x2"), lone_gpus(8)}) {
    const Cluster cluster = topologies::load_cluster(call, "test");
    const std::vector<DeviceId> group = gpus_of(cluster);
    for (const std::int64_t bytes :
         {std::int64_t{4096}, mega, std::int64_t{4} * mega, std::int64_t{giga}}) {
      for (const CollectiveKind kind :
           {all_reduce, CollectiveKind::broadcast, CollectiveKind::all_gather}) {
        CAPTURE(call);
        CAPTURE(bytes);
        const SimOptions options = nccl();
        const auto cost = make_tile_costs(cluster, options);
        ExecDag dag = bare_dag();
        const auto ranks = static_cast<std::int64_t>(group.size());
        const std::vector<std::int64_t> shares(group.size(), bytes / ranks);
        const OpId op = add_collective(dag, kind, group, shares);
        const Timeline timeline = make_simgrid_executor(cluster, *cost, options)->run(dag);
        const double estimate = cost->collective(kind, group, Bytes{bytes}).count();
        const double simulated = length(timeline, op).count();
        CHECK(simulated >= estimate * (1 - 1e-9) - 2e-9);  // it merges events closer than 1 ns
        CHECK(simulated <= estimate * 1.1);
        // The bytes carried and those reduced in the network are the bytes of a ring.
        double delivered = timeline.bytes_reduced_in_network;
        for (std::size_t i = 0; i < cluster.links.size(); ++i) {
          for (const bool backwards : {false, true}) {
            const Port& end = backwards ? cluster.links[i].a : cluster.links[i].b;
            if (end.kind == Port::Kind::device) {
              delivered += timeline.hop_bytes[Hop{LinkId{i}, backwards}.index()];
            }
          }
        }
        const double others = static_cast<double>(group.size()) - 1;
        const double rings = kind == all_reduce ? 2 * others : others;
        // Flows have whole bytes: rounded once per ring and hop.
        const double rounded = 8 * static_cast<double>(group.size());
        CHECK(std::abs(delivered - rings * static_cast<double>(bytes)) <=
              rounded + 1e-9 * rings * static_cast<double>(bytes));
      }
    }
  }
}

TEST_CASE("nccl: no ring beats its bandwidth, and what is chosen is never slower than a ring") {
  const std::vector<std::string> calls{lone_gpus(8),
                                       "dgx-v100",
                                       a100x8,
                                       h100x8,
                                       h100x16,
                                       "k80-cloud-x2",
                                       "star:4,device=v100-pcie,rate=12GB/s"};
  std::vector<Cluster> clusters;
  for (const std::string& call : calls) clusters.push_back(topologies::load_cluster(call, "test"));
  CHECK(rc::check([&] {
    const Cluster& cluster = clusters[*rc::gen::inRange<std::size_t>(0, clusters.size())];
    std::vector<DeviceId> group = gpus_of(cluster);
    group.resize(*rc::gen::inRange<std::size_t>(2, group.size() + 1));
    const Bytes payload{*rc::gen::inRange<std::int64_t>(1, std::int64_t{1} << 34)};
    const auto kind = *rc::gen::element(all_reduce, CollectiveKind::all_gather,
                                        CollectiveKind::reduce_scatter, CollectiveKind::broadcast);
    PathCache paths(cluster);
    const auto time = [&](const SimOptions& options) {
      return collective_time(kind, group, payload, paths, options).count();
    };
    const double ring = time(nccl(NcclAlgorithm::ring));
    Cluster instant = cluster;
    for (Link& link : instant.links) link.latency = Seconds{0};
    PathCache instant_paths(instant);
    const double bound = collective_time(kind, group, payload, instant_paths).count();
    RC_ASSERT(ring >= bound * (1 - 1e-9));
    const CollectiveChoice best = choose(kind, group, payload, paths, nccl());
    const CollectiveChoice forced = choose(kind, group, payload, paths, nccl(NcclAlgorithm::ring));
    RC_ASSERT(best.wait + best.least <= (forced.wait + forced.least) * (1 + 1e-12));
  }));
}

}  // namespace
}  // namespace parsim::sim
