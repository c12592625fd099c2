// Networks by formula: gpt:layers=…,hidden=…,heads=….
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/vocabulary.hpp"
#include "networks/networks.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::networks {
namespace {

Network called(const std::string& options) {
  return load_network("gpt:" + options, {}, "--network");
}

TEST_CASE("gpt: parameters equal the published counts") {
  const std::vector<std::pair<std::string, std::int64_t>> counts{
      // GPT-2 small, medium and XL: GPT2LMHeadModel of transformers.
      {"layers=12,hidden=768,heads=12,vocab_size=50257,seq_length=1024", 124'439'808},
      {"layers=24,hidden=1024,heads=16", 354'823'168},
      {"layers=48,hidden=1600,heads=25", 1'557'611'200},
      // MPT as in llm-foundry's benchmarks (scripts/train/benchmarking/README.md, NumParams).
      {"layers=24,hidden=2048,heads=16,vocab_size=50368,seq_length=2048,dropout=0", 1'315'950'592},
      {"layers=32,hidden=4096,heads=32,vocab_size=50368,seq_length=2048,dropout=0", 6'658'859'008},
      {"layers=80,hidden=8192,heads=64,vocab_size=50368,seq_length=2048,dropout=0",
       64'862'437'376}};
  for (const auto& [options, count] : counts) {
    CAPTURE(options);
    const Network network = called(options);
    CHECK(network.name == "gpt:" + options);
    CHECK(parameter_count(network) == count);
    CHECK(network.warnings.empty());
  }
}

TEST_CASE("gpt: GPT-2 by its sizes is GPT-2 by its config.json, layer by layer") {
  Network by_formula = called("layers=24,hidden=1024,heads=16");
  const std::string file =
      std::string(PARSIM_SOURCE_DIR) + "/tests/networks/data/hugging_face/gpt2-medium.json";
  const Network by_file = load_network(file, {}, "--network");
  by_formula.name = by_file.name;
  CHECK(by_formula == by_file);
}

TEST_CASE("gpt: options change what they say, by hand") {
  // Hidden size 8, 2 blocks, vocabulary of 10, 4 tokens. A block: norms 2·16, dense layers 12·64
  // and their biases 3·8 + 8 + 32 + 8 = 72; embedding 80, positions 32, last norm 16.
  const std::string size = "layers=2,hidden=8,heads=4,vocab_size=10,seq_length=4";
  constexpr std::int64_t whole = 2 * (32 + 768 + 72) + 80 + 32 + 16;
  CHECK(parameter_count(called(size)) == whole);
  CHECK(parameter_count(called(size + ",bias=no")) == whole - 2 * 72);
  CHECK(parameter_count(called(size + ",positions=none")) == whole - 32);
  // Feed-forward 8·f + f·8 and f + 8 biases: f = 10 instead of 32.
  CHECK(parameter_count(called(size + ",ffn_hidden=10")) == whole - 2 * (2 * 8 * 22 + 22));
  // Keys and values of 2 heads of 2 channels: 8·4 and 4 biases each, instead of 8·8 and 8.
  CHECK(parameter_count(called(size + ",kv_heads=2")) == whole - 2 * 2 * (32 + 4));
  // Three experts of 2·8·32 and 32 + 8 biases instead of one, and a router of 8·3.
  CHECK(parameter_count(called(size + ",experts=3")) == whole + 2 * (2 * (512 + 40) + 24));
  CHECK(active_parameter_count(called(size + ",experts=3")) == whole + 2 * (512 + 40 + 24));
  CHECK(parameter_count(called(size + ",experts=3,shared_ffn_hidden=10")) ==
        whole + 2 * (2 * (512 + 40) + 24 + 2 * 8 * 10 + 18));
  const auto dropouts = [](const Network& network) {
    std::size_t count = 0;
    for (const Layer& layer : network.layers) count += layer.kind.as<Dropout>() != nullptr ? 1 : 0;
    return count;
  };
  CHECK(dropouts(called(size)) == 1 + 2 * 2);  // a fused kernel has its own
  CHECK(dropouts(called(size + ",attention=eager")) == 1 + 2 * 3);
  CHECK(dropouts(called(size + ",attention=eager,dropout=0.2")) == 1 + 2 * 3);
  CHECK(dropouts(called(size + ",dropout=0")) == 0);
}

TEST_CASE("gpt: the logits use the weights of the embedding") {
  const Network network = called("layers=1,hidden=8,heads=2");
  std::vector<ParameterId> tables;
  for (const Layer& layer : network.layers) {
    if (layer.name == "wte" || layer.name == "lm_head") tables.push_back(layer.parameters.at(0));
  }
  REQUIRE(tables.size() == 2);
  CHECK(tables[0] == tables[1]);
}

TEST_CASE("gpt: experts have slots for a hundredth to a hundred times the tokens they need") {
  for (const char* capacity : {"0.01", "1", "100"}) {
    CAPTURE(capacity);
    CHECK_NOTHROW((void)load_network(
        std::string("gpt:layers=1,hidden=64,heads=4,experts=4,capacity=") + capacity, {}, "test"));
  }
}

TEST_CASE("gpt: a wrong call is refused with what is accepted") {
  const std::string size = "layers=2,hidden=64,heads=4";
  const std::string example = "; write gpt:layers=24,hidden=1024,heads=16";
  const std::string keys =
      "accepted: layers, hidden, heads, seq_length, vocab_size, ffn_hidden, kv_heads, dropout, "
      "attention, bias, positions, experts, top_k, shared_ffn_hidden, capacity";
  const std::vector<std::pair<std::string, std::string>> refusals{
      {"gpt", ": 'gpt' needs layers, hidden, heads" + example},
      {"gpt:", ": 'gpt:' needs layers, hidden, heads" + example},
      {"gpt:hidden=64,layers=2", ": 'gpt:hidden=64,layers=2' needs heads" + example},
      {"gpt:layers", ": 'layers' is not of the form key=value; write gpt:key=value,…"},
      {"gpt:" + size + ",", ": '' is not of the form key=value; write gpt:key=value,…"},
      {"gpt:layers=2,hiden=64,heads=4",
       ": gpt has no option 'hiden'; " + keys + "; did you mean 'hidden'?"},
      {"gpt:" + size + ",colour=red", ": gpt has no option 'colour'; " + keys},
      {"gpt:" + size + ",heads=4", ":heads: 'heads' is given twice; accepted: each option once"},
      {"gpt:layers=2,hidden=64,heads=5",
       ":heads: 5 heads do not divide the hidden size of 64; accepted: a divisor of the hidden "
       "size"},
      {"gpt:" + size + ",kv_heads=3",
       ":kv_heads: 3 key/value heads do not divide 4 heads; accepted: a divisor of the number of "
       "heads"},
      {"gpt:" + size + ",kv_heads=8",
       ":kv_heads: 8 key/value heads do not divide 4 heads; accepted: a divisor of the number of "
       "heads"},
      {"gpt:layers=0,hidden=64,heads=4", ":layers: '0'; accepted: a whole number from 1 to 4096"},
      {"gpt:layers=4097,hidden=64,heads=4",
       ":layers: '4097'; accepted: a whole number from 1 to 4096"},
      {"gpt:layers=2,hidden=1e3,heads=4",
       ":hidden: '1e3'; accepted: a whole number from 1 to 262144"},
      {"gpt:" + size + ",vocab_size=99999999999999999999",
       ":vocab_size: '99999999999999999999'; accepted: a whole number from 1 to 268435456"},
      {"gpt:" + size + ",seq_length=",
       ":seq_length: ''; accepted: a whole number from 1 to 4194304"},
      {"gpt:" + size + ",dropout=1", ":dropout: '1'; accepted: a number from 0 to below 1"},
      {"gpt:" + size + ",dropout=nan", ":dropout: 'nan'; accepted: a number from 0 to below 1"},
      {"gpt:" + size + ",dropout=10%", ":dropout: '10%'; accepted: a number from 0 to below 1"},
      {"gpt:" + size + ",bias=maybe", ":bias: 'maybe'; accepted: yes, no"},
      {"gpt:" + size + ",positions=lerned",
       ":positions: 'lerned'; accepted: learned, none; did you mean 'learned'?"},
      {"gpt:" + size + ",experts=4,top_k=5", ":top_k: '5'; accepted: a whole number from 1 to 4"},
      {"gpt:" + size + ",top_k=1", ":top_k: no experts; accepted: with experts=N"},
      {"gpt:" + size + ",experts=4,capacity=0",
       ":capacity: '0'; accepted: a number from 0.01 to 100"},
      {"gpt:" + size + ",seq_length=4194304",
       ": 4 heads and 4194304 tokens give 7.04e+13 attention scores per sample; accepted: at most "
       "1.76e+13, as with a smaller seq_length (--dim, or in a formula)"},
      {"gtp:" + size, ": unknown network 'gtp:" + size +
                          "'; accepted: a name from `parsim list networks`, or the path of an "
                          ".onnx file or config.json; did you mean 'gpt'?"}};
  for (const auto& [call, message] : refusals) {
    CAPTURE(call);
    CHECK(testing::refusal_of([&] { return load_network(call, {}, "--network"); }) ==
          "--network" + message);
  }
}

TEST_CASE("gpt: earlier spellings are refused with the one that replaced them") {
  const std::pair<std::string, std::string> renamed[] = {
      {"width=64", "hidden"},    {"tokens=32", "seq_length"}, {"words=100", "vocab_size"},
      {"inner=8", "ffn_hidden"}, {"key_heads=2", "kv_heads"}, {"attention=maps", "eager"}};
  for (const auto& [option, now] : renamed) {
    CAPTURE(option);
    CHECK(testing::refusal_of([&] {
            return called("layers=2,hidden=64,heads=4," + option);
          }).ends_with("; did you mean '" + now + "'?"));
  }
}

TEST_CASE("gpt: dimensions are options of the call, not of --dim") {
  CHECK(testing::refusal_of([] {
          return load_network("gpt:layers=1,hidden=8,heads=2", {{"seq_length", 16}}, "--network");
        }) ==
        "--dim: the formula 'gpt:layers=1,hidden=8,heads=2' has no dimension 'seq_length'; "
        "accepted: with ONNX files, config.json and built-in language models");
}

TEST_CASE("gpt: the table of formulas calls by name and lists every option") {
  REQUIRE(network_formulas().size() == 1);
  const NetworkFormula& entry = network_formulas().front();
  CHECK(entry.name == "gpt");
  CHECK(entry.summary.find("kv_heads (key and value heads; default heads)") != std::string::npos);
  CHECK(entry.summary.find("vocab_size=50257") != std::string::npos);
}

TEST_CASE("gpt: a padded vocabulary is that of a network with so many words") {
  const std::string sizes = "layers=2,hidden=64,heads=4,seq_length=32,vocab_size=";
  Network padded = called(sizes + "1000");
  CHECK(vocabulary_of(padded) == 1000);
  pad_vocabulary(padded, 8);
  CHECK(padded == called(sizes + "1000"));
  pad_vocabulary(padded, 128 * 8);
  CHECK(vocabulary_of(padded) == 1024);
  padded.name = "gpt:" + sizes + "1024";
  CHECK(padded == called(sizes + "1024"));
  // Tables of its own for words and for scores.
  Network llama = load_network("llama-3-8b:layers=1", {}, "test");
  const std::int64_t before = parameter_count(llama);
  CHECK(vocabulary_of(llama) == 128'256);
  pad_vocabulary(llama, 1024);
  CHECK(parameter_count(llama) == before + 2 * (129'024 - 128'256) * 4096);
  Network images = load_network("resnet18", {}, "test");
  const Network unchanged = images;
  CHECK_FALSE(vocabulary_of(images).has_value());
  pad_vocabulary(images, 128);
  CHECK(images == unchanged);
}

}  // namespace
}  // namespace parsim::networks
