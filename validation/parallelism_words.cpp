// The words that column `parallelism` of a measured step may have.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/errors.hpp"
#include "validation/affirmed_words.hpp"
#include "validation/parallelism_column.hpp"
#include "validation/published_machines.hpp"

namespace parsim::validation {

namespace {

/// Kinds of parallelism, and what is said of them.
constexpr std::string_view known_words[] = {
    // data parallelism
    "ddp", "dp", "data", "dataparallel", "distributeddataparallel", "distributed", "replica",
    "replicas", "replicate", "replicated", "sync", "synchronous", "all", "reduce", "allreduce",
    // ZeRO
    "fsdp", "fsdpv", "hsdp", "zero", "z", "stage", "deepspeed", "full", "fully", "fullyshard",
    "fullyshardeddataparallel", "shard", "shards", "sharded", "sharding", "hybrid", "grad", "op",
    "shardgradop", "fullshard", "hybridshard", "noshard", "over", "range",
    // other kinds
    "tp", "tensor", "tensorparallel", "model", "mp", "modelparallel", "pp", "pipeline", "pipelined",
    "pipelineparallel", "gpipe", "f", "b", "cp", "context", "contextparallel", "ulysses", "ring",
    "attention", "ep", "etp", "expert", "experts", "expertparallel", "sp", "sequence",
    "sequenceparallel", "vp", "virtual", "interleaved", "d", "parallel", "parallelism",
    // sizes
    "mbs", "gbs", "mb", "gb", "bs", "micro", "batch", "size", "degree", "factor", "way", "world",
    "node", "nodes", "machine", "machines", "gpu", "gpus", "rank", "ranks", "worker", "workers",
    // parameter servers of TensorFlow
    "parameter", "server", "servers", "variables", "cpu", "co", "located", "same", "instances",
    "cross", "add", "n", "cores",
    // software
    "pytorch", "torch", "torchtitan", "megatron", "lm", "tensorflow", "nccl", "jax", "horovod",
    "accelerate", "mixed", "precision", "offload", "offloading", "cpuoffload", "lora", "qlora",
    "nvme", "infinity",
    // what joins or denies words
    "x", "and", "with", "plus", "on", "in", "of", "the", "across", "w", "o", "or", "no", "non",
    "not", "none", "nor", "neither", "without", "never", "off", "disabled", "disable", "instead",
    "rather", "than", "unlike", "use", "using", "any", "only", "is", "are", "was", "set", "to",
    "false", "v", "after", "forward", "reshard"};

}  // namespace

void check_words(const Claim& claim) {
  const std::string given = column(claim, "parallelism"), text = affirmed(given);
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  for (auto begin = text.begin(); begin != text.end();) {
    if (!is_letter(*begin)) {
      ++begin;
      continue;
    }
    const auto end = std::find_if_not(begin, text.end(), is_letter);
    const bool joins = *begin == 'x' && begin != text.begin() &&
                       std::isdigit(static_cast<unsigned char>(*std::prev(begin))) != 0;
    const std::string word(joins ? std::next(begin) : begin, end);  // of "DP2xTP4" no "xTP"
    begin = end;
    if (word.empty()) continue;
    if (std::find(std::begin(known_words), std::end(known_words), word) != std::end(known_words)) {
      continue;
    }
    const std::vector<std::string> main{"ddp",  "dp",     "fsdp",     "hsdp",    "zero",
                                        "tp",   "pp",     "cp",       "ep",      "sp",
                                        "data", "tensor", "pipeline", "context", "expert"};
    throw InputError(location_of(claim, "parallelism"),
                     fmt::format("'{}', whose word '{}' is not known", given, word),
                     fmt::format("accepted: DDP, FSDP, FULL_SHARD, SHARD_GRAD_OP, HSDP, ZeRO-1 to "
                                 "3, TP, PP, CP, EP, with degrees{}",
                                 did_you_mean(word, main)));
  }
}

}  // namespace parsim::validation
