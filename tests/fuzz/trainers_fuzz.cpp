// Fuzz target: a trainer's script, YAML, TOML or JSON of any text is refused with an InputError or
// makes a layout.
#include "experiment/trainer_file.hpp"
#include "networks/networks.hpp"
#include "tests/fuzz/target.hpp"
#include "topologies/topologies.hpp"

using namespace parsim;

void parsim::fuzz::run(const std::string& input) {
  static const Network network = networks::load_network(
      "gpt:layers=4,hidden=64,heads=4,vocab_size=256,seq_length=32", {}, "fuzz");
  static const Cluster cluster =
      topologies::load_cluster("nodes:2x2,device=t4,intra=10GB/s,inter=1GB/s", "fuzz");
  for (const char* name : {"run.sh", "parallelism.yaml", "parallelism.toml", "ds_config.json"}) {
    may_refuse([&] {
      if (experiment::is_trainer_file(input, name))
        (void)experiment::read_trainer_file(input, name, network, cluster);
    });
  }
}
