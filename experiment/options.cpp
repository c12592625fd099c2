#include "experiment/options.hpp"

#include <fmt/format.h>

#include "core/text.hpp"

namespace parsim {

namespace {

constexpr OptionSpec options[] = {
    {"--network", "NAME|CALL|FILE",
     "built-in network or formula (see 'parsim list networks'), an ONNX file or Hugging Face's "
     "config.json"},
    {"--dim", "NAME=N",
     "value of a symbolic dimension of the ONNX file, or seq_length=N of a config.json", true},
    {"--cluster", "NAME|CALL|FILE",
     "built-in cluster, generator call or file: TOML, NCCL's XML, nvidia-smi topo -m, SimGrid"},
    {"--override", "devices.NAME.memory=SIZE", "change one number of the cluster", true},
    {"--strategy", "NAME", "parallelization strategy (see 'parsim list strategies')", true},
    {"--plan", "FILE", "simulate this plan instead of asking a strategy"},
    {"--layout", "FILE",
     "run the stages, devices and samples that a TOML file names, instead of a strategy's "
     "('compare': as a further row)"},
    {"--batch", "N", "samples of one step over all devices (default: 32 x GPUs)"},
    {"--precision", "fp32|tf32|fp16|bf16", "number format of the training step (default: fp32)"},
    {"--reduce-precision", "fp32|fp16|bf16",
     "number format in which gradients add up and travel (default: fp32, as in Megatron-LM and "
     "DeepSpeed with bf16 and in PyTorch's DDP with automatic mixed precision; with --hw that of "
     "the weights)"},
    {"--optimizer", "sgd|momentum|adam", "decides the optimizer's memory (default: momentum)"},
    {"--sync", "ring|ps|auto", "how gradients are added up (default: auto)"},
    {"--server", "DEVICE", "the parameter server's device, with --sync ps"},
    {"--micro-batches", "N",
     "parts in which the whole batch comes, one after another (default: the strategy's choice)"},
    {"--schedule", "gpipe|1f1b", "order of a pipeline's micro-batches (default: 1f1b)"},
    {"--bucket", "SIZE", "gradients travel in buckets of this size, 0B: one per layer"},
    {"--shares", "equal|proportional", "how unequal devices share the batch of data parallelism"},
    {"--rounding", "largest-remainder|released", "how the shares of 'model' become whole filters"},
    {"--search-costs", "own|paper|paper-total",
     "what a search adds up: our costs, its paper's, or those with transfers one after another"},
    {"--degrees", "dividing|any",
     "parts of a layer in 'layer-wise': divisors of the number of GPUs, or any number"},
    {"--parts", "N",
     "contiguous parts of the network in 'hybrid', 'pipeline' and 'tensor' (default: the best)"},
    {"--tensor", "N", "GPUs that share every layer in 'tensor' (default: the best)"},
    {"--budget", "N", "plan evaluations that a search may spend"},
    {"--zero", "0|1|2|3",
     "save memory: replicas split the optimizer's states, from 2 on gradients, from 3 on weights "
     "(default: 0)"},
    {"--recompute", "none|attention|segments",
     "save memory: drop the maps of attention, or all activations but a few, and compute them "
     "again "
     "for backward (default: none)"},
    {"--headroom", "SHARE|SIZE",
     "memory of every device that plans leave free for CUDA, NCCL, libraries and fragmentation "
     "(default: 6%)"},
    {"--costs", "tiles|constant", "where the times of kernels come from (default: tiles)"},
    {"--fidelity", "p2p|hops|macro|analytic",
     "a collective is every message (with --collectives ideal only), one flow per hop, one flow in "
     "all, or, like transfers, a formula without contention (default: hops)"},
    {"--engine", "auto|simgrid|fast",
     "what moves flows: SimGrid, the same model many times faster, as searches do in any case, or "
     "SimGrid unless it would take long (default: auto)"},
    {"--every-rank", "",
     "simulate every device, also those that do the same as another at the same dates (default: "
     "one "
     "of each, with the same result)"},
    {"--collectives", "nccl|ideal|measured",
     "what collectives and messages between GPUs cost beyond the links: NCCL's protocols and "
     "launches, nothing, or what --collective-times says (default: nccl)"},
    {"--collective-times", "[KIND[,RANKS]:]FILE",
     "with --collectives measured: what a program of nccl-tests printed, or CSV", true},
    {"--algorithm", "ring|tree|nvls|nvls-tree|pat", "of collectives (default: the fastest)"},
    {"--protocol", "ll|ll128|simple", "of collectives (default: the fastest)"},
    {"--nccl-version", "MAJOR.MINOR",
     "whose algorithms and latencies collectives have, as in 2.18 (default: 2.28)"},
    {"--jitter", "PART",
     "also simulate with kernel times that vary: standard deviation over mean, 0.05 or 5%"},
    {"--runs", "N", "with --jitter: so many steps (default: 20)"},
    {"--slow", "NAME=FACTOR[@FROM[-TO]]",
     "a device or link so many times slower, for the whole step or from 2ms to 5ms; no strategy "
     "knows of it when it plans",
     true},
    {"--interference", "PAIR=FACTOR",
     "how many times as long one takes while the other runs on its device: tensor/communication, "
     "memory/communication, communication/tensor or communication/memory",
     true},
    {"--launch-interval", "TIME",
     "a device's host issues an operation each so often (default: the profile's, or at once)"},
    {"--profile", "FILE",
     "measured times instead of modelled ones: of kernels, by 'parsim calibrate', or of whole "
     "layers "
     "(.csv)"},
    {"--hw", "", "run the plans on the hardware of this machine, too, and compare"},
    {"--hw-backend", "auto|cuda|host",
     "what runs them: GPUs, or threads that only sleep (default: auto, which never picks host)"},
    {"--hw-partition", "N,N,...", "logical devices of so many multiprocessors on one GPU"},
    {"--hw-link", "RATE,LATENCY", "make messages as slow as over such a link, as in 10GB/s,5us"},
    {"--hw-measured", "FILE",
     "with --hw: steps that 'parsim-hw run' measured elsewhere or earlier, instead of running "
     "them"},
    {"--workspaces", "",
     "count cuDNN's workspaces into the memory; parsim-hw with CUDA plans them, no GPU needed"},
    {"--top", "N", "only the N layers with the most work"},
    {"--size", "SIZE", "payload of the collective (default: 100MiB)"},
    {"--sizes", "FROM..TO", "payloads from FROM to TO, doubling"},
    {"--devices", "N", "the first N GPUs of the cluster (default: all)"},
    {"--papers", "", "the claims of the papers behind the strategies"},
    {"--published", "", "published measurements, each simulated from scratch"},
    {"--data", "FILE",
     "with --published: score the rows of this CSV file; built-in rows go on calibrating what it "
     "does not",
     true},
    {"--quick", "", "with --published: leave out rows that take more than about a second each"},
    {"--seed", "N", "seed of everything random (default: 1)"},
    {"-o", "FILE",
     "write the plan to this file; as with other files to write, '-' is standard output, and the "
     "report then goes to standard error"},
    {"--dag", "FILE",
     "write the execution DAG to this file; for Graphviz if the name ends in .dot"},
    {"--trace", "FILE",
     "write a Chrome trace, with --hw of both timelines; compressed if the name ends in .gz"},
    {"--report", "FILE", "write a page with all drawings and tables, for any browser"},
    {"--no-timeline", "", "leave the timelines out of the page, which makes it small"},
    {"--scaling", "N,N,…", "also run on the first N GPUs each, with the same samples per GPU"},
    {"--no-timings", "", "leave out what a clock measured, so that runs compare byte for byte"},
    {"--wide", "", "all columns: also idle time, bytes moved and the busiest link"},
    {"--format", "table|json|csv|md|dot|simgrid",
     "form of the result (default: table); dot and simgrid: 'show' only"},
    {"--json", "", "the same as --format json"},
    {"--color", "auto|always|never", "colour the table (default: auto, only on a terminal)"},
    {"--quiet", "", "no progress and no warnings on standard error"},
};

}  // namespace

std::span<const OptionSpec> option_table() { return options; }

std::optional<std::string> Arguments::text(std::string_view flag) const {
  const auto found = values.find(flag);
  if (found == values.end()) return std::nullopt;
  return found->second.back();
}

std::vector<std::string> Arguments::texts(std::string_view flag) const {
  const auto found = values.find(flag);
  return found == values.end() ? std::vector<std::string>{} : found->second;
}

std::optional<std::int64_t> Arguments::number(std::string_view flag, std::int64_t least,
                                              std::int64_t most) const {
  const std::optional<std::string> given = text(flag);
  if (!given) return std::nullopt;
  return parse_whole(*given, flag, least, most);
}

std::string spelling_hint(std::string_view found, const std::vector<std::string>& known) {
  const std::string hint = did_you_mean(found, known);
  return hint.empty() ? hint : ";" + hint;
}

void refuse_word(std::string_view text, std::string_view where,
                 const std::vector<std::string>& accepted) {
  throw InputError(where, fmt::format("'{}'", text),
                   fmt::format("accepted: {}{}", join(accepted), spelling_hint(text, accepted)));
}

}  // namespace parsim
