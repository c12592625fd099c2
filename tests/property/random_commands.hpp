// Command lines of `parsim simulate`, drawn by a seed: small networks, clusters of every kind,
// strategies and options. A law that a case breaks can be seen again by its command.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace parsim::testing {

class RandomCommand {
 public:
  explicit RandomCommand(std::uint64_t seed) : random_(seed) {}

  [[nodiscard]] std::vector<std::string> words() {
    words_ = {"simulate"};
    const std::string chosen = one_of(strategies());
    const std::string net = chosen == "hypergraph" ? one_of({"mlp", "lenet5"}) : network();
    const bool blocks = net.starts_with("gpt:");
    const bool stages = chosen == "pipeline" || chosen == "tensor";
    add("--network", net);
    add("--cluster", cluster());
    add("--strategy", chosen);
    question();
    if (chosen == "hybrid" || chosen == "hypergraph") add("--budget", "8");
    if (chosen == "tensor") degrees();
    if (stages && chance(2)) add("--micro-batches", one_of({"1", "2", "4"}));
    if (stages && chance(3)) add("--schedule", one_of({"gpipe", "1f1b", "zero-bubble"}));
    if (stages && chance(5)) add("--pipeline-sends", "blocking");
    if (chance(4)) add("--sync", one_of({"ring", "ps", "auto"}));
    if (chance(3)) add("--bucket", one_of({"0B", "100KiB", "1MiB", "100MiB"}));
    if (chance(4)) add("--zero", one_of({"1", "2", "3"}));
    if (!blocks && chance(6)) add("--recompute", "optimal");
    if (blocks && chance(3)) add("--recompute", one_of({"selective", "pointwise", "op", "full"}));
    simulation();
    return words_;
  }

  /// A network, a cluster and what a user must say, for a strategy that chooses all else.
  [[nodiscard]] std::vector<std::string> question_only(const std::string& strategy) {
    words_ = {"simulate"};
    add("--network", network());
    add("--cluster", cluster());
    add("--strategy", strategy);
    question();
    return words_;
  }

  /// What a shell reads.
  [[nodiscard]] static std::string line(const std::vector<std::string>& words) {
    return fmt::format("parsim '{}'", fmt::join(words, "' '"));
  }

 private:
  [[nodiscard]] static std::vector<std::string> strategies() {
    return {"data",   "data",   "data",       "model-even", "model-even", "model",  "model",
            "owt",    "owt",    "pipeline",   "pipeline",   "pipeline",   "tensor", "tensor",
            "tensor", "tensor", "layer-wise", "layer-wise", "hypergraph", "hybrid"};
  }

  std::string network() {
    const std::size_t which = below(16);
    if (which == 0) return "alexnet";
    if (which < 5) return "mlp";
    if (which < 9) return "lenet5";
    return fmt::format("gpt:layers={},hidden={},heads=4,seq_length={},vocab_size={}{}",
                       1 + below(4), 64 * (1 + below(4)), 32 << below(3), 100 + below(900),
                       chance(4) ? ",experts=4,top_k=2" : "");
  }

  std::string rate(std::size_t most) { return fmt::format("{}GB/s", 1 + below(most)); }
  std::string device() {
    return one_of({"p100-sxm2", "v100-sxm2", "t4", "a100-sxm4-80", "h100-sxm5", "rtx-3090"});
  }
  /// One type, or two.
  std::string devices(std::size_t count) {
    if (count < 2 || !chance(3)) return device();
    const std::size_t first = 1 + below(count - 1);
    return fmt::format("{}*{}+{}*{}", device(), first, device(), count - first);
  }

  std::string cluster() {
    const std::string latency = fmt::format("latency={}us", below(40));
    switch (below(9)) {
      case 0:
      case 1: {
        const std::size_t n = 1 + below(6);
        return fmt::format("star:{},device={},rate={},{}", n, devices(n), rate(200), latency);
      }
      case 2:
      case 3:
      case 4: {
        const std::size_t n = 1 + below(3), m = 1 + below(4);
        return fmt::format("nodes:{}x{},device={},intra={},inter={},{}", n, m, devices(n * m),
                           rate(300), rate(25), latency);
      }
      case 5:
        return fmt::format("ring:{},device={},rate={},{}", 3 + below(3), device(), rate(50),
                           latency);
      case 6:
        return fmt::format("torus:2x{},device={},rate={},{}", 2 + below(2), device(), rate(50),
                           latency);
      case 7:
        return fmt::format("dragonfly:2x2x{},device={},rate={},global-rate={},{}", 1 + below(2),
                           device(), rate(50), rate(20), latency);
      default: {
        const std::size_t n = 2 + below(5);
        return fmt::format("pcie-tree:{},device={},rate={},{}", n, devices(n), rate(20), latency);
      }
    }
  }

  void question() {
    add("--batch", fmt::format("{}", 4 * (1 + below(16))));
    if (chance(2)) add("--precision", one_of({"fp32", "fp16", "bf16"}));
    if (chance(4)) add("--reduce-precision", one_of({"fp32", "bf16"}));
    if (chance(2)) add("--optimizer", one_of({"sgd", "momentum", "adam"}));
  }

  void degrees() {
    if (chance(2)) add("--tp", one_of({"1", "2", "4"}));
    if (chance(2)) add("--pp", one_of({"1", "2", "3"}));
    if (chance(4)) add("--dp", one_of({"1", "2"}));
    if (chance(4)) words_.emplace_back("--sequence-parallel");
    if (chance(6)) add("--vp", "2");
    if (chance(6)) add("--cp", "2");
    if (chance(6)) add("--ep", "2");
  }

  void simulation() {
    if (chance(2)) add("--collectives", "ideal");
    if (chance(4)) add("--fidelity", one_of({"macro", "p2p", "analytic"}));
    if (chance(4)) add("--fusion", one_of({"compiled", "megatron"}));
    if (chance(6)) add("--launch-interval", fmt::format("{}us", 1 + below(20)));
    if (chance(6)) add("--interference", "tensor/communication=1.2");
  }

  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }
  bool chance(std::size_t one_in) { return below(one_in) == 0; }
  std::string one_of(const std::vector<std::string>& texts) { return texts[below(texts.size())]; }
  void add(const std::string& flag, const std::string& value) {
    words_.push_back(flag);
    words_.push_back(value);
  }

  std::mt19937_64 random_;
  std::vector<std::string> words_;
};

}  // namespace parsim::testing
