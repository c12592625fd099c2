// Fuzz target: whatever the text, each reader of layouts, trainers' files, sweeps, times of layers,
// offers, jobs, traces and a config.json refuses it with an InputError or makes a value.
#include "core/errors.hpp"
#include "core/files.hpp"
#include "experiment/layer_times.hpp"
#include "experiment/layout_file.hpp"
#include "experiment/offers.hpp"
#include "experiment/sweep_file.hpp"
#include "experiment/trace_steps.hpp"
#include "experiment/trainer_file.hpp"
#include "networks/networks.hpp"
#include "tests/fuzz/target.hpp"
#include "topologies/topologies.hpp"

using namespace parsim;

namespace {

template <class Read>
void may_refuse(const Read& read) {
  try {
    read();
  } catch (const InputError&) {
    // As it should be: the other outcome that is allowed.
  }
}

/// What is read as TOML, CSV or as a script. Everything that is no JSON comes here.
void read_text(const std::string& input, const Network& network, const Cluster& cluster) {
  for (const char* name : {"run.sh", "parallelism.yaml", "parallelism.toml"}) {
    may_refuse([&] {
      if (experiment::is_trainer_file(input, name))
        (void)experiment::read_trainer_file(input, name, network, cluster);
    });
  }
  may_refuse([&] { (void)experiment::read_layer_times(input, "layers.csv"); });
  may_refuse([&] { (void)experiment::read_offers(input, "offers.toml"); });
  // What may be an axis of millions is not tried, nor a path, whose file would be read.
  if (input.find('/') != std::string::npos || input.find("..") != std::string::npos) return;
  may_refuse([&] { (void)experiment::read_sweep(input, "sweep.toml", "1"); });
  may_refuse([&] { (void)experiment::read_job(input, "job.toml", "1"); });
}

void read_json(const std::string& input, const Network& network, const Cluster& cluster) {
  may_refuse([&] {
    if (experiment::is_trainer_file(input, "ds_config.json"))
      (void)experiment::read_trainer_file(input, "ds_config.json", network, cluster);
  });
  const MemoryFile file(input);
  may_refuse([&] { (void)networks::read_hugging_face(file.path(), {}); });
  may_refuse([&] {
    const experiment::TraceSteps steps =
        experiment::steps_of(experiment::read_kineto_trace(file.path()));
    if (!steps.steps.empty()) (void)steps.median();
  });
}

}  // namespace

void parsim::fuzz::run(const std::string& input) {
  static const Network network = networks::load_network(
      "gpt:layers=4,hidden=64,heads=4,vocab_size=256,seq_length=32", {}, "fuzz");
  static const Cluster cluster =
      topologies::load_cluster("nodes:2x2,device=t4,intra=10GB/s,inter=1GB/s", "fuzz");
  may_refuse([&] { (void)experiment::read_layout(input, "layout.toml", network, cluster); });
  const std::size_t first = input.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && input[first] == '{')
    read_json(input, network, cluster);
  else
    read_text(input, network, cluster);
}
