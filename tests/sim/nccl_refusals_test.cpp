#include <doctest/doctest.h>

#include "tests/sim/nccl_calls.hpp"

namespace parsim::sim {
namespace {

using namespace testing;

std::optional<NcclRefusal> refused(const std::string& call, CollectiveKind kind,
                                   const SimOptions& options) {
  const Cluster cluster = topologies::load_cluster(call, "test");
  PathCache paths(cluster);
  return nccl_refusal(kind, paths.shape(gpus_of(cluster)), options);
}

TEST_CASE("nccl: what cannot run is refused with what can") {
  using A = NcclAlgorithm;
  using P = NcclProtocol;
  const auto reason = [](const std::string& call, std::optional<A> a, std::optional<P> p = {},
                         CollectiveKind kind = all_reduce) {
    const auto refusal = refused(call, kind, nccl(a, p));
    if (!refusal) return std::string("runs");
    return std::string(refusal->flag) + ": " + refusal->reason + "; " + refusal->accepted;
  };
  const std::string rings_and_trees = "ring (ll, ll128, simple), tree (ll, ll128, simple)";
  const std::string no_nvls =
      "--algorithm: NCCL 2.28 has no nvls for all-reduce in this group; accepted: ";
  CHECK(reason(a100x8, A::nvls) == no_nvls + rings_and_trees);  // before Hopper
  CHECK(reason(h100x8, A::nvls) == "runs");
  CHECK(reason(h100x8, A::nvls, P::simple) == "runs");
  CHECK(reason(h100x8, A::nvls, P::ll) ==
        "--protocol: NCCL 2.28 has no nvls with ll for all-reduce in this group; accepted: " +
            rings_and_trees + ", nvls (simple)");
  CHECK(reason(h100x8, A::nvls_tree) ==  // one node
        "--algorithm: NCCL 2.28 has no nvls-tree for all-reduce in this group; accepted: " +
            rings_and_trees + ", nvls (simple)");
  CHECK(reason(h100x16, A::nvls).starts_with(no_nvls));  // two nodes
  CHECK(reason(h100x16, A::nvls_tree) == "runs");
  CHECK(reason("nvswitch:2,device=h100-sxm5,rate=370.8GB/s", A::nvls) == "runs");
  // One GPU in a node; ports below 99 GB/s; no NVLink.
  CHECK(reason("nodes:2x1,device=h100-sxm5,intra=370.8GB/s,inter=50GB/s", A::nvls_tree) != "runs");
  CHECK(reason("star:8,device=h100-sxm5,rate=25GB/s", A::nvls).starts_with(no_nvls));
  CHECK(reason("star:8,device=h100-pcie,rate=48GB/s", A::nvls).starts_with(no_nvls));
  CHECK(reason(h100x8, A::nvls, {}, CollectiveKind::broadcast) != "runs");
  CHECK(reason(a100x8, A::tree, {}, CollectiveKind::all_gather) ==
        "--algorithm: NCCL 2.28 has no tree for all-gather in this group; accepted: ring (ll, "
        "ll128, simple)");
  // PAT gathers and scatters, over nodes of one GPU each, from Pascal on.
  CHECK(reason(a100x8, A::pat) != "runs");
  CHECK(reason(lone_gpus(2), A::pat, {}, CollectiveKind::broadcast) != "runs");
  CHECK(reason("nodes:4x2,device=a100-pcie,intra=25GB/s,inter=12.5GB/s", A::pat, {},
               CollectiveKind::reduce_scatter) != "runs");
  CHECK(reason(a100x8, A::pat, {}, CollectiveKind::all_gather) != "runs");
  CHECK(reason("nodes:4x1,device=k80,inter=12.5GB/s", A::pat, {}, CollectiveKind::all_gather) !=
        "runs");
  CHECK(reason(lone_gpus(2), A::pat, {}, CollectiveKind::all_gather) == "runs");
  CHECK(reason(lone_gpus(2), A::pat, P::ll, CollectiveKind::all_gather) ==
        "--protocol: NCCL 2.28 has no pat with ll for all-gather in this group; accepted: ring "
        "(ll, simple), pat (simple)");
  CHECK(reason(a100x8, A::ring, {}, CollectiveKind::all_to_all) ==
        "--algorithm: an all-to-all is pairwise messages; accepted: neither --algorithm nor "
        "--protocol");
  // LL128 needs NVLink and GPUs of one kind from Volta on.
  const std::string pcie = "star:4,device=v100-pcie,rate=12GB/s";
  CHECK(reason(pcie, {}, P::ll128) ==
        "--protocol: NCCL 2.28 has no ll128 for all-reduce in this group; accepted: ring (ll, "
        "simple), tree (ll, simple)");
  CHECK(reason(pcie, A::tree, P::ll128) != "runs");
  CHECK(reason("dgx-p100", {}, P::ll128) != "runs");
  CHECK(reason("star:4,device=v100-sxm2*2+a100-sxm4-40*2,rate=100GB/s", {}, P::ll128) != "runs");
}

TEST_CASE("nccl: what a version does not have is refused") {
  const auto reason = [](const std::string& call, NcclAlgorithm a, std::optional<NcclProtocol> p,
                         std::int32_t minor) {
    SimOptions options = nccl(a, p);
    options.nccl_version = NcclVersion{2, minor};
    const auto refusal = refused(call, all_reduce, options);
    return refusal ? std::string(refusal->flag) + ": " + refusal->reason : std::string("runs");
  };
  CHECK(reason(h100x8, NcclAlgorithm::nvls, {}, 16) ==
        "--algorithm: NCCL 2.16 has no nvls for all-reduce in this group");
  CHECK(reason(h100x8, NcclAlgorithm::nvls, {}, 17) == "runs");
  CHECK(reason(h100x16, NcclAlgorithm::tree, {}, 3) ==
        "--algorithm: NCCL 2.3 has no tree for all-reduce in this group");
  CHECK(reason(h100x16, NcclAlgorithm::tree, {}, 4) == "runs");
  CHECK(reason("dgx-v100", NcclAlgorithm::tree, {}, 4) ==
        "--algorithm: NCCL 2.4 has no tree for all-reduce in this group");
  CHECK(reason("dgx-v100", NcclAlgorithm::tree, {}, 5) == "runs");
  CHECK(reason("dgx-v100", NcclAlgorithm::ring, NcclProtocol::ll128, 4) ==
        "--protocol: NCCL 2.4 has no ring with ll128 for all-reduce in this group");
}

TEST_CASE("nccl: exactly what is refused is left to the library") {
  for (const std::string& call :
       {std::string(a100x8), std::string(h100x8), std::string(h100x16),
        std::string("star:4,device=v100-pcie,rate=12GB/s"), std::string("dgx-p100"),
        std::string("k80-cloud-x2"), lone_gpus(4)}) {
    const Cluster cluster = topologies::load_cluster(call, "test");
    PathCache paths(cluster);
    const std::vector<DeviceId> group = gpus_of(cluster);
    for (const CollectiveKind kind : {all_reduce, CollectiveKind::all_gather,
                                      CollectiveKind::reduce_scatter, CollectiveKind::broadcast}) {
      for (std::size_t a = 0; a < 5; ++a) {
        for (std::size_t p = 0; p < 3; ++p) {
          const SimOptions options =
              nccl(static_cast<NcclAlgorithm>(a), static_cast<NcclProtocol>(p));
          const CollectiveChoice choice = choose(kind, group, Bytes{mega}, paths, options);
          const bool obeyed = choice.algorithm == to_text(*options.algorithm) &&
                              choice.protocol == to_text(*options.protocol);
          CAPTURE(call);
          CAPTURE(spelled(choice));
          const bool refused = nccl_refusal(kind, paths.shape(group), options).has_value();
          // Refused, the library may still happen to choose one of the two words, never both.
          CHECK(obeyed == !refused);
        }
      }
    }
  }
}

TEST_CASE("nccl: a mesh of links without a switch has no multicast") {
  Cluster mesh = topologies::load_cluster("nvswitch:4,device=h100-sxm5,rate=370.8GB/s", "test");
  mesh.links.clear();
  for (std::size_t a = 0; a < 4; ++a) {
    for (std::size_t b = a + 1; b < 4; ++b) {
      mesh.links.push_back({"link", Port::of(DeviceId{a}), Port::of(DeviceId{b}),
                            BytesPerSecond{150e9}, Seconds{1e-6}, -1});
    }
  }
  PathCache paths(mesh);
  const CommShape& shape = paths.shape(gpus_of(mesh));
  CHECK_FALSE(shape.switched);
  const auto refusal = nccl_refusal(all_reduce, shape, nccl(NcclAlgorithm::nvls));
  REQUIRE(refusal);
  CHECK(refusal->reason == "NCCL 2.28 has no nvls for all-reduce in this group");
}

}  // namespace
}  // namespace parsim::sim
