// Fuzz target: a layout of any text is refused with an InputError or makes a value.
#include "experiment/layout_file.hpp"
#include "networks/networks.hpp"
#include "tests/fuzz/target.hpp"
#include "topologies/topologies.hpp"

using namespace parsim;

void parsim::fuzz::run(const std::string& input) {
  static const Network network = networks::load_network(
      "gpt:layers=4,hidden=64,heads=4,vocab_size=256,seq_length=32", {}, "fuzz");
  static const Cluster cluster =
      topologies::load_cluster("nodes:2x2,device=t4,intra=10GB/s,inter=1GB/s", "fuzz");
  may_refuse([&] { (void)experiment::read_layout(input, "layout.toml", network, cluster); });
}
