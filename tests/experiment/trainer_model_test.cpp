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

const std::string eight_blocks_of_64 =
    "gpt:layers=8,hidden=64,heads=4,seq_length=32,vocab_size=256";

TEST_CASE("trainer model: a model of other size than the network is said") {
  const Network network = networks::load_network(eight_blocks_of_64, {}, "test");
  const auto said = [&](const std::string& text, const std::string& file = "run.sh") {
    return other_model(file == "run.sh" ? read_words(text, file) : read_tables(text, file), network)
        .value_or("");
  };
  const std::string run =
      "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 "
      "--global-batch-size 8 --num-layers 8 --hidden-size 64 --seq-length ";
  CHECK(said(run + "32").empty());
  const std::string ours = ", but network '" + eight_blocks_of_64 + "' has ";
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

std::string said_of(const std::string& network, const std::string& sizes, const std::string& more) {
  const std::string text =
      "torchrun pretrain_gpt.py --micro-batch-size 1 --global-batch-size 8 " + sizes + " " + more;
  const Network loaded = networks::load_network(network, {}, "test");
  const std::string line = other_model(read_words(text, "run.sh"), loaded).value_or("");
  const std::string begin = "run.sh sets ", middle = ", but network '" + network + "' has ",
                    end = ": the step is the network's (see --network and --dim)";
  if (line.empty()) return "";
  REQUIRE(line.starts_with(begin));
  REQUIRE(line.ends_with(end));
  const std::size_t at = line.find(middle);
  REQUIRE(at != std::string::npos);
  return line.substr(begin.size(), at - begin.size()) + " | " +
         line.substr(at + middle.size(), line.size() - end.size() - at - middle.size());
}

TEST_CASE("trainer model: without window-size a script attends to all tokens") {
  const std::string file =
      std::string(PARSIM_SOURCE_DIR) + "/tests/networks/data/hugging_face/mistral-7b.json";
  const Network network = networks::load_network(file, {{"seq_length", 8192}}, "test");
  const std::string line =
      other_model(read_words("x --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
                             "--seq-length 8192 --swiglu --ffn-hidden-size 14336 "
                             "--group-query-attention --num-query-groups 8 "
                             "--untie-embeddings-and-output-weights",
                             "run.sh"),
                  network)
          .value_or("");
  CAPTURE(line);
  CHECK(line.find("no window-size") != std::string::npos);
  CHECK(line.find("4096 tokens") != std::string::npos);
}

TEST_CASE("trainer model: feed-forwards, key heads, gates and embeddings are compared, too") {
  const std::string sizes = "--num-layers 4 --hidden-size 4096 --num-attention-heads 32",
                    untied = "--untie-embeddings-and-output-weights ",
                    grouped = "--group-query-attention --num-query-groups 8 ",
                    ffn = "--swiglu --ffn-hidden-size 14336 ";
  const auto said = [&](const std::string& more) {
    return said_of("llama-3-8b:layers=4", sizes, more);
  };
  CHECK(said(untied + grouped + ffn).empty());
  CHECK(said(untied + grouped + "--swiglu --ffn-hidden-size 1024") ==
        "ffn-hidden-size 1024 | 14336");
  CHECK(said(untied + grouped + "--swiglu") ==  // 8/3 of 4096, in multiples of 64
        "ffn-hidden-size 10880 (default) | 14336");
  CHECK(said(untied + grouped + "--ffn-hidden-size 14336") == "no swiglu | a gated feed-forward");
  CHECK(said(untied + ffn) == "no group-query-attention | 8 key heads");
  CHECK(said(untied + ffn + "--num-query-groups 8") == "no group-query-attention | 8 key heads");
  CHECK(said(untied + ffn + "--group-query-attention") == "num-query-groups 1 (default) | 8");
  CHECK(said(untied + grouped + ffn + "--kv-channels 64") == "kv-channels 64 | 128");
  CHECK(said(grouped + ffn) == "no untie-embeddings-and-output-weights | untied embeddings");
  CHECK(said(untied + grouped + ffn + "--num-experts 8") == "num-experts 8 | no experts");
  // What may be given elsewhere says nothing, and neither does a file without a model.
  for (const char* more : {"$MODEL_ARGS", "\"$@\"", "--lr 1 $MORE", "--bf16 ${MORE[@]}"}) {
    CHECK(said(more).empty());
  }
  CHECK_FALSE(said("--data-path $DATA").empty());
  CHECK(said("--use-checkpoint-args").empty());
  CHECK(said_of("llama-3-8b:layers=4", "", "").empty());
  CHECK(said_of("llama-3-8b:layers=4", "--num-layers 4 --hidden-size 4096", "").empty());
  CHECK(said("\nif [ $UNTIE ]; then\nX=\"" + untied + "\"\nfi\n torchrun p.py " + sizes + " $X " +
             grouped + ffn)
            .empty());
  // Scores that are kept have the same heads.
  const std::string eager =
                        "gpt:layers=2,hidden=64,heads=4,kv_heads=2,seq_length=32,attention=eager",
                    small = "--num-layers 2 --hidden-size 64 --num-attention-heads ";
  CHECK(said_of(eager, small + "4", "--group-query-attention --num-query-groups 2").empty());
  CHECK(said_of(eager, small + "8", "") == "num-attention-heads 8 | 4");
  CHECK(said_of(eager, small + "4", untied) ==
        "no group-query-attention, untie-embeddings-and-output-weights | 2 key heads, tied "
        "embeddings");
  CHECK(said_of(eager, small + "4", "--group-query-attention --num-query-groups 2 --swiglu") ==
        "a gated feed-forward (swiglu), ffn-hidden-size 128 (default) | one without gate, 256");
}

TEST_CASE("trainer model: experts are compared, too") {
  const std::string sizes =
      "--num-layers 4 --hidden-size 4096 --num-attention-heads 32 --swiglu --group-query-attention "
      "--num-query-groups 8 --untie-embeddings-and-output-weights";
  const auto said = [&](const std::string& more) {
    return said_of("mixtral-8x7b:layers=4", sizes, more);
  };
  const std::string ffn = "--ffn-hidden-size 14336 ", experts = "--num-experts 8 ";
  CHECK(said(ffn + experts).empty());  // two experts by default
  CHECK(said("--moe-ffn-hidden-size 14336 " + experts).empty());
  CHECK(said(ffn + experts + "--moe-router-topk 2 --moe-layer-freq 1").empty());
  CHECK(said(ffn) == "no num-experts | 8");
  CHECK(said(ffn + "--num-experts 16 --moe-router-topk 1") ==
        "num-experts 16, moe-router-topk 1 | 8, 2");
  CHECK(said(ffn + experts + "--moe-ffn-hidden-size 1000") == "moe-ffn-hidden-size 1000 | 14336");
  CHECK(said(experts) == "moe-ffn-hidden-size 10880 (default) | 14336");
  CHECK(said(ffn + experts + "--moe-shared-expert-intermediate-size 1024") ==
        "moe-shared-expert-intermediate-size 1024 | no shared expert");
  CHECK(said(ffn + experts + "--moe-layer-freq 2") ==
        "moe-layer-freq 2 | experts in 4 of 4 blocks");
  // Lists of Python, as in scripts for DeepSeek's models.
  for (const std::string all : {"'([1]*4)'", "'[1]*2+[1,1]'", "'([1] * 2) * 2'", "'$PATTERN'"}) {
    CAPTURE(all);
    CHECK(said(ffn + experts + "--moe-layer-freq " + all).empty());
  }
  for (const std::string fewer : {"([0]*1+[1]*3)", "([0]*1+[1]*3)*1", "[1]*5"}) {
    CHECK(said(ffn + experts + "--moe-layer-freq '" + fewer + "'") ==
          "moe-layer-freq " + fewer + " | experts in 4 of 4 blocks");
  }
  CHECK(said(ffn + experts + "--vocab-size 32000").empty());
  CHECK(said(ffn + experts + "--padded-vocab-size 32000 --make-vocab-size-divisible-by 1").empty());
  CHECK(said(ffn + experts + "--vocab-size 256000") == "vocab-size 256000 | 32000");
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
  const Network network = networks::load_network(eight_blocks_of_64, {}, "test");
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
