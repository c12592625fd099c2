// The hash of an input changes with every file that is read because of it.
#include "experiment/read_files.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "experiment/files.hpp"
#include "tests/support/program.hpp"

namespace parsim::experiment {
namespace {

TEST_CASE("read files: the hash of one file is that of its content, of a name none") {
  const testing::TemporaryFolder folder;
  const std::string file = folder.write("a.json", "{}");
  CHECK(hash_of_files(file) == fnv1a64("{}"));
  CHECK(hash_of_files("resnet50").empty());
  CHECK(hash_of_files(folder.path("none.toml")).empty());
}

TEST_CASE("read files: what a file leads to counts") {
  const testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("job/conf/train"));
  int writes = 0;
  const auto changes = [&](const std::string& given, const std::string& behind) {
    const std::string before = hash_of_files(given);
    folder.write(behind, "another text " + std::to_string(++writes));
    return before != hash_of_files(given);
  };
  const std::string run = "torchrun pretrain_gpt.py --tensor-model-parallel-size 2\n";
  const std::string script = folder.write("job/run.sh", run);
  folder.write("job/hostfile", "n0 slots=2\n");
  CHECK(hash_of_files(folder.path("job")) == hash_of_files(script));
  CHECK(changes(script, "job/hostfile"));
  CHECK(changes(folder.path("job"), "job/hostfile"));
  folder.write("job/run.sh", run + "# more\n");
  CHECK(changes(folder.path("job"), "job/run.sh"));
  // FlagScale's experiment, with the files of its group.
  folder.write("job/conf/train.yaml", "defaults:\n  - _self_\n  - train: parallelism\n");
  folder.write("job/conf/train/parallelism.yaml", "tensor_model_parallel_size: 2\n");
  CHECK(changes(folder.path("job"), "job/conf/train/parallelism.yaml"));
  // A cluster file that imports another tool's description.
  const std::string cluster =
      folder.write("c.toml", "[[nodes]]\nname = \"n0\"\nimport = 'topo.txt,device=h100-sxm5'\n");
  folder.write("topo.txt", "GPU0 GPU1\n");
  CHECK(changes(cluster, "topo.txt"));
  CHECK_FALSE(changes(cluster, "other.txt"));
  const std::string json = folder.write(
      "c.json", "{\"nodes\": [{\"name\": \"n0\", \"import\": \"topo.txt,device=h100-sxm5\"}]}");
  CHECK(changes(json, "topo.txt"));
  // Measured rows on that cluster.
  const std::string rows = folder.write("rows.csv", "network,cluster,profile\na,c.toml,p.csv\n");
  folder.write("p.csv", "layer\n");
  CHECK(changes(rows, "p.csv"));
  folder.write("topo.txt", "GPU0\n");
  CHECK(changes(rows, "topo.txt"));
}

}  // namespace
}  // namespace parsim::experiment
