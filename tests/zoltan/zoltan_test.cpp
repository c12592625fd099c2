// Our partitioner beside Zoltan's; built only with PARSIM_ZOLTAN.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "networks/networks.hpp"
#include "strategies/hypergraph/model.hpp"
#include "strategies/hypergraph/partition.hpp"

namespace parsim::hypergraph {
namespace {

/// A folder of this test's own, removed at the end.
struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "parsim-zoltan-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

int run_zoltan(const std::string& arguments) {
  return std::system(fmt::format("{} {}", PARSIM_ZOLTAN_PROGRAM, arguments).c_str());
}

Parts by_zoltan(const Hypergraph& graph, std::int32_t parts, int seed, const std::string& shares) {
  const Folder folder;
  const std::string in = folder.path / "graph.hgr", out = folder.path / "graph.part";
  std::ofstream file(in);
  write_hgr(file, graph);
  file.close();
  REQUIRE(run_zoltan(fmt::format("{} {} {} 0.05 {} {}", in, out, parts, seed, shares)) == 0);
  std::ifstream result(out);
  Parts found;
  for (std::int32_t part = 0; result >> part;) found.push_back(part);
  REQUIRE(found.size() == static_cast<std::size_t>(graph.vertices));
  return found;
}

/// The least cost among balanced partitions of a few seeds; nothing if none is balanced.
std::int64_t least_by_zoltan(const Hypergraph& graph, const PartitionOptions& options,
                             const std::string& shares = "") {
  std::int64_t least = -1;
  for (int seed = 1; seed <= 5; ++seed) {
    const Partition found =
        evaluated(graph, by_zoltan(graph, options.parts, seed, shares), options);
    if (found.balanced() && (least < 0 || found.cost < least)) least = found.cost;
  }
  return least;
}

Model model_f(const char* network) {
  ModelOptions options;
  options.detail = Detail::simple;
  return model_of(load_network(network, {}, "test"), options);
}

}  // namespace

TEST_CASE("zoltan: our partitions cost at most 1.10 of Zoltan's, model F") {
  for (const char* network : {"alexnet_grouped", "vgg16", "resnet50", "mobilenet_v1"}) {
    const Model model = model_f(network);
    for (const std::int32_t parts : {2, 4, 8}) {
      PartitionOptions options;
      options.parts = parts;
      const std::int64_t theirs = least_by_zoltan(model.graph, options);
      const Partition ours = partition(model.graph, options);
      MESSAGE(std::string(network)
              << " in " << parts << ": ours " << ours.cost << ", Zoltan's " << theirs);
      CHECK(ours.balanced());
      if (theirs > 0) CHECK(static_cast<double>(ours.cost) <= 1.10 * static_cast<double>(theirs));
    }
  }
}

TEST_CASE("zoltan: our partitions cost at most 1.10 of Zoltan's, model U") {
  for (const char* network : {"alexnet_grouped", "vgg16"}) {
    ModelOptions model_options;
    model_options.channel_blocks = model_options.sample_blocks = 16;
    model_options.samples = 256;
    const Model model = model_of(load_network(network, {}, "test"), model_options);
    PartitionOptions options;
    options.parts = 4;
    const std::int64_t theirs = least_by_zoltan(model.graph, options);
    const Partition ours = partition(model.graph, options);
    MESSAGE(std::string(network) << ": ours " << ours.cost << ", Zoltan's " << theirs);
    CHECK(ours.balanced());
    REQUIRE(theirs > 0);
    CHECK(static_cast<double>(ours.cost) <= 1.10 * static_cast<double>(theirs));
  }
}

TEST_CASE("zoltan: unequal shares are met, the same seed gives the same partition") {
  const Model model = model_f("alexnet_grouped");
  PartitionOptions options;
  options.parts = 4;
  options.shares = {4, 2, 1, 1};
  const Parts found = by_zoltan(model.graph, 4, 1, "4 2 1 1");
  CHECK(evaluated(model.graph, found, options).imbalance < 0.06);
  CHECK(by_zoltan(model.graph, 4, 1, "4 2 1 1") == found);
}

TEST_CASE("zoltan: wrong requests end with exit code 2") {
  for (const char* arguments :
       {"", "nowhere.hgr out.part 2", "nowhere.hgr out.part two", "a.hgr b.part 2 0.05 1 3"}) {
    CHECK(WEXITSTATUS(run_zoltan(fmt::format("{} 2>/dev/null", arguments))) == 2);
  }
}

}  // namespace parsim::hypergraph
