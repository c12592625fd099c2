// What a trainer's file says of its model, against the network.
#include "experiment/trainer_model.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "core/errors.hpp"
#include "core/vocabulary.hpp"
#include "experiment/comparison.hpp"
#include "experiment/experiment.hpp"
#include "experiment/run.hpp"
#include "experiment/trainer_file.hpp"
#include "networks/networks.hpp"
#include "tests/support/program.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {
namespace {

const std::string eight_blocks = "gpt:layers=8,hidden=64,heads=4,seq_length=32,vocab_size=256";

TEST_CASE("trainer model: a model of other size than the network is said") {
  const Network network = networks::load_network(eight_blocks, {}, "test");
  const auto said = [&](const std::string& text, const std::string& file = "run.sh") {
    return other_model(file == "run.sh" ? read_words(text, file) : read_tables(text, file), network)
        .value_or("");
  };
  const std::string run =
      "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 "
      "--global-batch-size 8 --num-layers 8 --hidden-size 64 --seq-length ";
  CHECK(said(run + "32").empty());
  const std::string ours = ", but network '" + eight_blocks + "' has ";
  CHECK(said(run + "16 --num-attention-heads 8") ==
        "run.sh sets num-attention-heads 8, seq-length 16" + ours +
            "4, 32: the step is the network's (see --network and --dim)");
  // What a script may not give says nothing.
  CHECK(said("if [ $LONG ]; then\nL=64\nfi\n" + run + "$L").empty());
  CHECK(said("[training]\nseq_len = 64\n[parallelism]\ntensor_parallel_degree = 2\n", "t.toml") ==
        "t.toml sets training.seq_len 64" + ours +
            "32: the step is the network's (see --network and --dim)");
  const Cluster cluster =
      topologies::load_cluster("nodes:1x8,device=a100-sxm4-80,intra=300GB/s", "test");
  const LayoutFile read = read_trainer_file(run + "16", "run.sh", network, cluster);
  CHECK(read.notes.back() == said(run + "16"));
}

TEST_CASE("trainer model: Megatron-LM's padding of the vocabulary is simulated, and said") {
  const testing::TemporaryFolder folder;
  const std::string sizes = "gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=";
  const auto read = [&](const std::string& words, const std::string& more) {
    Request request;
    request.network = sizes + words;
    request.cluster = "nodes:1x2,device=a100-sxm4-80,intra=300GB/s";
    request.layout_file =
        folder.write("run.sh",
                     "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 "
                     "--global-batch-size 8 --bf16 --optimizer adam " +
                         more);
    return Experiment(request);
  };
  const Experiment padded = read("1000", "");  // to a multiple of 128 · 2
  CHECK(vocabulary_of(padded.network) == 1024);
  const auto said = [](const Experiment& experiment) {
    return std::any_of(experiment.request.notes.begin(), experiment.request.notes.end(),
                       [](const std::string& note) {
                         return note.ends_with(
                             "run.sh: Megatron-LM pads the vocabulary of 1000 "
                             "words to 1024 (make-vocab-size-divisible-by)");
                       });
  };
  CHECK(said(padded));
  const Experiment fewer = read("1000", "--make-vocab-size-divisible-by 4");
  CHECK(vocabulary_of(fewer.network) == 1000);
  CHECK_FALSE(said(fewer));
  const auto step = [](const Experiment& experiment) {
    return run_plan(experiment, make_plan(experiment, layout_strategy())).result.step_time;
  };
  CHECK(step(padded) == step(read("1024", "")));
  // A plan of it is read with as many words.
  const Plan plan = make_plan(padded, layout_strategy()).plan;
  Network again = networks::load_network(sizes + "1000", {}, "test");
  pad_words(again, plan);
  CHECK(again == padded.network);
}

TEST_CASE("trainer model: NeMo's configuration is refused by name") {
  const Network network = networks::load_network(eight_blocks, {}, "test");
  const Cluster cluster =
      topologies::load_cluster("nodes:1x8,device=a100-sxm4-80,intra=300GB/s", "test");
  const std::string text = "trainer:\n  precision: bf16\nmodel:\n  tensor_model_parallel_size: 4\n";
  CHECK_THROWS_WITH_AS(static_cast<void>(read_trainer_file(text, "nemo.yaml", network, cluster)),
                       "nemo.yaml: a configuration of NeMo, with other names than Megatron-LM's; "
                       "accepted: arguments of Megatron-LM, or a file of another trainer",
                       InputError);
}

TEST_CASE("trainer model: null, in any of YAML's words, is not given") {
  const auto has = [](const std::string& value) {
    return read_words("language_model:\n  fp8: " + value + "\n  bf16: true\n", "m.yaml").has("fp8");
  };
  for (const char* null : {"null", "Null", "NULL", "~", "", "  # none"}) CHECK_FALSE(has(null));
  CHECK(has("hybrid"));
  CHECK_FALSE(read_words("bf16: true\nfp8:", "m.yaml").has("fp8"));
  CHECK(read_words("fp8:\n  - a\n  - b\n", "m.yaml").texts("fp8").size() == 2);
}

}  // namespace
}  // namespace parsim::experiment
