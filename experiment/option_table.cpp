// The table of options. A new option is one row here and the member of a Request that it sets.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiment/option_member.hpp"
#include "experiment/recorded_values.hpp"

namespace parsim::experiment {

namespace {

using namespace option_member;  // NOLINT(google-build-using-namespace): private to the table

// Verbs.
constexpr std::string_view runs = "compare simulate";
constexpr std::string_view plans = "compare simulate plan explain import";
constexpr std::string_view cases = "compare simulate plan explain import validate calibrate";
constexpr std::string_view times = "compare simulate plan explain import collective";

using enum OptionGroup;

// Keeps batch x activations x 8 bytes within 64 bits.
constexpr std::int64_t largest_batch = 1'000'000'000;
// Each is an operation per layer and pass; more would only look like a hang.
constexpr std::int64_t most_parts = 65'536;
constexpr std::int64_t largest_budget = 1'000'000'000;
// Fewer say nothing of the spread.
constexpr std::int64_t fewest_runs = 5, most_runs = 10'000;

// clang-format off
constexpr Option table[] = {
    {"--network", "NAME|CALL|FILE", question, cases,
     "a built-in network or formula (see 'parsim list networks'), an ONNX file or a Hugging "
     "Face config.json",
     "network", recorded(file_member<&Request::network>, network_source)},
    {"--dim", "NAME=N", question, "compare simulate plan explain import show",
     "size of a symbolic dimension of the ONNX file, or seq_length=N of a config.json or a "
     "built-in language model",
     "dims", member<&Request::dims>, {.repeats = true}},
    {"--expert-imbalance", "X", question, cases,
     "tokens of the busiest expert over those of the average one (default: 1, as balanced)",
     "expert_imbalance", member<&Request::expert_imbalance>, {.most = 1 << 16}},
    {"--cluster", "NAME|CALL|FILE", question, times,
     "a built-in cluster, a generator call (see 'parsim list clusters') or a file: TOML, NCCL "
     "topology XML, nvidia-smi topo -m, SimGrid platform",
     "cluster", recorded(file_member<&Request::cluster>, cluster_source)},
    {"--override", "devices.NAME.KEY=VALUE", question, "compare simulate plan explain import show collective",
     "change a number of the cluster; also of nodes and links, with * in NAME (docs/money.md)",
     "overrides", member<&Request::overrides>, {.repeats = true}},
    {"--strategy", "NAME", question, cases, "parallelization strategy (see 'parsim list strategies')",
     "strategies", member<&Request::strategies>, {.repeats = true, .in_plan_file = true}},
    {"--plan", "FILE", question, plans,
     "simulate this plan instead of asking a strategy: of parsim, or what starts Megatron-LM "
     "(arguments in a script or YAML), FlagScale or accelerate (YAML), DeepSpeed (JSON) or torchtitan (TOML); "
     "'compare' adds it as a row and says what the best plan gains over it",
     "plan", file_member<&Request::plan_or_trainer_file>},
    {"--layout", "FILE", question, plans,
     "simulate the stages, devices and samples of this TOML or JSON file instead of asking a strategy; "
     "'compare' adds it as a row, as it does with --plan",
     "layout", file_member<&Request::layout_file>},
    {"--batch", "N", question, cases, "samples per step (default: 32 per GPU; language models: 1)",
     "batch", recorded(member<&Request::batch>, batch_chosen),
     {.in_plan_file = true, .most = largest_batch}},
    {"--precision", "", question, cases, "number format of a step; language models: bf16, or fp16",
     "precision", member<&Request::precision>, {.in_plan_file = true}},
    {"--reduce-precision", "fp32|fp16|bf16", question, cases,
     "number format in which gradients are communicated and summed (default: fp32, as Megatron-LM does with "
     "bf16 and PyTorch DDP with automatic mixed precision; DeepSpeed, --hw: that of the weights)",
     "reduce_precision", member<&Request::reduce_precision>, {.in_plan_file = true}},
    {"--optimizer", "", question, cases, "optimizer; language models: adam",
     "optimizer", member<&Request::optimizer>, {.in_plan_file = true}},
    {"--scaling", "N,N,...", question, "compare",
     "also run on the first N GPUs each, with as many samples per GPU",
     "scaling", member<&Request::scaling>},
    {"--top", "N", question, "explain import sweep",
     "list only the N layers with the most work; of 'import' the N shapes that differ most (default: "
     "10), of a sweep the N best rows",
     "top", member<&Request::top>, {.most = 1'000'000}},

    {"--tp", "N", plan, cases, "GPUs that share every layer (default: the best)",
     "tp", member<&Request::tensor_parallel>,
     {.long_name = "--tensor-parallel", .old_name = "--tensor", .strategies = "tensor best",
      .most = most_parts}},
    {"--pp", "N", plan, cases, "stages of the pipeline (default: the best)",
     "pp", member<&Request::pipeline_parallel>,
     {.long_name = "--pipeline-parallel", .strategies = "pipeline tensor best",
      .most = most_parts}},
    {"--dp", "N", plan, cases, "replicas of the whole network (default: the best)",
     "dp", member<&Request::data_parallel>,
     {.long_name = "--data-parallel", .strategies = "tensor best", .most = most_parts}},
    {"--vp", "N", plan, cases,
     "model chunks of each GPU of the pipeline, interleaved as in Megatron-LM "
     "(default: 1; best searches)",
     "vp", member<&Request::virtual_pipeline>,
     {.long_name = "--virtual-pipeline-parallel", .strategies = "tensor best", .most = most_parts}},
    {"--cp", "N", plan, cases,
     "parts of the tokens of every sample, each with GPUs of its own; --ep counts them (default: 1)",
     "cp", member<&Request::context_parallel>,
     {.long_name = "--context-parallel", .strategies = "tensor layout best", .most = most_parts}},
    {"--cp-comm", "", plan, cases,
     "with --cp, how attention gets the keys and values of all tokens, as Megatron-LM's "
     "--cp-comm-type: round a ring, gathered before, or heads for tokens in all-to-alls",
     "cp_comm", member<&Request::context_exchange>, {.strategies = "tensor layout best"}},
    {"--ep", "N", plan, cases,
     "neighbours (replicas, with --cp parts, with --etp 1 GPUs) that divide a mixture's experts "
     "among them, and send tokens to each other in all-to-alls (default: the best; 1 in layouts)",
     "ep", member<&Request::expert_parallel>,
     {.long_name = "--expert-parallel", .strategies = "data tensor layout best",
      .most = most_parts}},
    {"--etp", "N", plan, cases,
     "GPUs of a tensor-parallel group that split each expert: all (the default), or 1, with "
     "--sequence-parallel: they divide the experts, or have them all for their own tokens",
     "etp", member<&Request::expert_tensor_parallel>,
     {.long_name = "--expert-tensor-parallel", .strategies = "tensor layout best",
      .most = most_parts}},
    {"--sequence-parallel", "", plan, cases,
     "the GPUs of --tp also share by token what lies between the layers that they split: "
     "reduce-scatter and all-gather instead of all-reduce (best also tries it)",
     "sequence_parallel", member<&Request::sequence_parallel>,
     {.strategies = "tensor layout best"}},
    {"--tp-overlap", "", plan, cases,
     "with --sequence-parallel: gather and scatter tokens while products work on them in chunks (best also tries it)",
     "tp_overlap", member<&Request::tensor_overlap>, {.strategies = "tensor layout best"}},
    {"--parts", "N", plan, cases,
     "contiguous parts of the network, which need not have a device each (default: the best)",
     "parts", member<&Request::parts>, {.strategies = "hybrid best", .most = most_parts}},
    {"--granularity", "", plan, cases,
     "what a border between pipeline stages must not divide: a transformer's block, or a layer "
     "(default: block where there are blocks)",
     "granularity", recorded(member<&Request::granularity>, granularity_chosen),
     {.strategies = "pipeline tensor hybrid best"}},
    {"--micro-batches", "N", plan, cases,
     "split the batch into N micro-batches (default: the strategy's choice)",
     "micro_batches", member<&Request::micro_batches>, {.most = most_parts}},
    {"--schedule", "", plan, cases, "order of micro-batches (default: 1f1b; best also tries the zero-bubble ones)",
     "schedule", member<&Request::schedule>},
    {"--pipeline-sends", "", plan, cases,
     "whether a pipeline stage computes on while it sends, or waits, as DeepSpeed's and Megatron-LM's 1F1B do",
     "pipeline_sends", member<&Request::pipeline_sends>},
    {"--reduce-every", "", plan, cases,
     "when gradients of several micro-batches are reduced, without a pipeline: sharded ones after each, others "
     "once a step (auto); all after each (no no_sync, as torchtitan); or all once a step, kept whole until "
     "then (as accelerate's FSDP)", "reduce_every", member<&Request::reduce_every>},
    {"--sync", "", plan, cases,
     "sum gradients by ring all-reduce, on a parameter server, or whichever is faster", "sync", member<&Request::sync>},
    {"--server", "DEVICE", plan, cases, "the parameter server, with --sync ps (default: the first CPU, else GPU)",
     "server", member<&Request::server>},
    {"--bucket", "SIZE", plan, cases,
     "all-reduce gradients in buckets of this size, of whose weights --zero 3 gathers all at once; 0B: one per layer (default: 25 MiB; with --zero 3 a bucket for each block of a transformer, as FSDP; best chooses)",
     "bucket_bytes", member<&Request::bucket>},
    {"--shares", "", plan, cases, "how devices of unequal speed divide the batch",
     "shares", member<&Request::shares>, {.strategies = "data layout best"}},
    {"--budget", "N", plan, "compare simulate plan explain import validate calibrate buy",
     "plans that a search may evaluate; of 'buy' the money to spend, as in 400k",
     "budget", member<&Request::budget>,
     {.strategies = "hybrid hypergraph best", .most = largest_budget}},
    {"--objective", "", plan, plans,
     "what the first row and 'best' have the least of: step time, cost (needs prices) or energy "
     "(needs powers)",
     "objective", member<&Request::objective>},
    {"--seed", "N", plan, plans, "seed of random choices",
     "seed", member<&Request::seed>, {.strategies = "hybrid hypergraph best", .least = 0}},

    {"--zero", "0|1|2|3", memory, cases,
     "ZeRO stage: replicas shard optimizer states with 1, also gradients with 2, weights with 3 "
     "(default: 0; best searches)",
     "zero", member<&Request::zero_stage>, {.in_plan_file = true, .least = 0, .most = 3}},
    {"--zero-group", "node|N", memory, cases,
     "shard within groups of N replicas, or of those of one machine; groups hold copies and sum "
     "their shares of the gradients (default: all replicas are one group)",
     "zero_group", member<&Request::zero_group>, {.in_plan_file = true}},
    {"--recompute", "", memory, cases,
     "activations to drop and compute again in backward: attention scores with selective; within "
     "transformer blocks, norms and activation functions with pointwise, all but attention and "
     "every other matrix product with op, all with full; what lowers the peak most with optimal "
     "(default: none; best searches)",
     "recompute", member<&Request::recompute>, {.in_plan_file = true}},
    {"--recompute-every", "N", memory, cases,
     "recompute in every N-th transformer block only",
     "recompute_every", member<&Request::recompute_every>, {.in_plan_file = true}},
    {"--headroom", "SHARE|SIZE", memory, cases,
     "memory of each device kept free for CUDA, NCCL, libraries and fragmentation",
     "headroom", member<&Request::headroom>},

    {"--costs", "NAME", model, cases, "model of kernel times; 'parsim list costs' lists them",
     "costs", member<&Request::costs>},
    {"--fusion", "", model, cases,
     "kernels between matrix products and of the optimizer: one for each layer, those of "
     "torch.compile, or those of Megatron-LM; files of a trainer imply its own",
     "fusion", simulated<&sim::SimOptions::fusion>},
    {"--attention-kernel", "", model, cases,
     "fused attention that the trainer calls: FlashAttention-2 (xformers' kernel before Ampere), "
     "FlashAttention 1, its implementation in Triton, or xformers' kernel",
     "attention_kernel", simulated<&sim::SimOptions::attention_kernel>},
    {"--profile", "FILE", model, "compare simulate plan explain import validate",
     "measured times of kernels, from 'parsim calibrate', or of layers (CSV, or JSON of Sailor, Metis, Galvatron)",
     "profile", file_member<&Request::profile>},
    {"--calibrate-with", "FILE", model, "compare simulate explain import validate",
     "CSV file of measured steps, with the columns of --data, to which kernels and links between "
     "machines are fitted, or of collectives, also as nccl-tests prints them: small ones fit --collective-launch",
     "calibrate_with", recorded(member<&Request::calibrate_with>, calibrating_files),
     {.repeats = true}},
    {"--fidelity", "", model, times,
     "a collective is one flow per hop, with p2p each of its messages (--collectives ideal only), "
     "with macro a single flow; analytic uses formulas without contention",
     "fidelity", simulated<&sim::SimOptions::fidelity>},
    {"--engine", "", model, times,
     "SimGrid, a faster implementation of its flow model, or SimGrid unless that would be slow; "
     "searches always use the fast one",
     "engine", simulated<&sim::SimOptions::engine>},
    {"--no-symmetry", "", model, plans,
     "simulate every rank instead of one of each class of equal ranks; the result is the same",
     "symmetry", simulated<&sim::SimOptions::merge>, {.old_name = "--every-rank"}},
    {"--collectives", "", model, times,
     "cost of collectives and messages on top of the links': none, NCCL's protocols and "
     "launches, or from --collective-times (default: nccl)",
     "collectives", simulated<&sim::SimOptions::collectives>},
    {"--collective-times", "[KIND[,RANKS]:]FILE", model, times,
     "output of nccl-tests or CSV, with --collectives measured",
     "collective_times", recorded(member<&Request::collective_times>, collective_files), {.repeats = true}},
    {"--algorithm", "", model, times, "NCCL's algorithm (default: what NCCL chooses)",
     "algorithm", simulated<&sim::SimOptions::algorithm>},
    {"--protocol", "", model, times, "NCCL's protocol (default: what NCCL chooses)",
     "protocol", simulated<&sim::SimOptions::protocol>},
    {"--nccl-version", "MAJOR.MINOR", model, times,
     "the NCCL release whose algorithms and latencies apply (default: 2.28)",
     "nccl_version", simulated<&sim::SimOptions::nccl_version>},
    {"--collective-launch", "TIME", model, times,
     "what a small collective takes beyond NCCL's model, 0us or about 20us on most systems; "
     "measure it as the difference at one small size (default: by the kind of links)",
     "collective_launch", member<&Request::sim, &sim::SimOptions::terms, &sim::LibraryTerms::offset>},
    {"--launch-interval", "TIME", model, "compare simulate plan explain",
     "what a host takes to launch a kernel: 10us to 40us where PyTorch runs operator by operator; a step "
     "takes that for each of its kernels or longer (default: the profile's, or 0us: the host keeps up)",
     "launch_interval", member<&Request::sim, &sim::SimOptions::launch_interval>},
    {"--input-rate", "X", model, "compare simulate plan explain",
     "samples a second that the host of each machine reads and prepares; a step takes that for its batch or "
     "longer (default: 0, the hosts keep up)", "input_rate", member<&Request::input_rate>, {.least = 0, .most = 1'000'000'000'000}},

    {"--jitter", "SHARE", variation, runs,
     "also simulate with kernel times that vary: standard deviation over mean, 0.05 or 5%",
     "jitter", member<&Request::jitter>},
    {"--runs", "N", variation, runs, "steps to simulate with --jitter",
     "runs", member<&Request::runs>, {.least = fewest_runs, .most = most_runs}},
    {"--straggler", "NAME=FACTOR[@FROM[-TO]]", variation, runs,
     "slow a device or link down by a factor, for the whole step or a part of it, as in "
     "gpu3=2@2ms-5ms; strategies plan without knowing of it",
     "straggler", member<&Request::stragglers>, {.old_name = "--slow", .repeats = true}},
    {"--beside", "FILE", variation, "simulate",
     "also simulate the job of this plan on other devices at the same time, and what each loses", "beside",
     file_member<&Request::beside>},
    {"--interference", "PAIR=FACTOR", variation, runs,
     "slowdown of one kind of work while another runs on the same device: tensor/communication, memory/"
     "communication, communication/tensor or communication/memory (default: the profile's, or none)",
     "interference", recorded(member<&Request::interference>, interference_known), {.repeats = true}},
    {"--mtbf", "TIME", variation, "compare simulate explain",
     "mean time between failures of one GPU that stop the job, as in 50000h, unless the cluster file says "
     "it; with --checkpoint-write", "mtbf", member<&Request::failures, &FailureOptions::mtbf>},
    {"--checkpoint-write", "TIME|RATE", variation, "compare simulate explain",
     "also show the best interval between checkpoints and the share of the time that trains; a checkpoint "
     "stops the training that long, or as long as storage of this rate takes, as in 20GB/s",
     "checkpoint_write", member<&Request::failures, &FailureOptions::write>},
    {"--restart", "TIME", variation, "compare simulate explain",
     "with --checkpoint-write: from a failure to the next step, loading included (default: 10min)",
     "restart_s", member<&Request::failures, &FailureOptions::restart>},

    {"--hw", "", hardware, "compare simulate validate",
     "also run the plans on this machine and compare",
     "hw", member<&Request::hardware>},
    {"--hw-backend", "auto|cuda|cpu|host", hardware, "compare simulate validate calibrate",
     "run on GPUs, on this machine's cores (cpu) or on host threads that sleep instead of computing; "
     "auto picks GPUs only",
     "hw_backend", member<&Request::hw, &HardwareOptions::backend>},
    {"--hw-partition", "N,N,...", hardware, "compare simulate validate calibrate",
     "logical devices of N multiprocessors of one GPU each; with cpu, of N cores (default: all GPUs, "
     "or one device of all cores)",
     "hw_partition", member<&Request::hw, &HardwareOptions::partition>},
    {"--hw-measured", "FILE", hardware, "compare simulate validate",
     "compare with steps that 'parsim-hw run' measured elsewhere or earlier",
     "hw_measured", file_member<&Request::hw, &HardwareOptions::measured>},

    {"--size", "SIZE", collective, "collective", "payload (default: 100MiB)",
     "size", recorded(member<&Request::collective, &CollectiveOptions::size>, size_chosen)},
    {"--sizes", "FROM..TO", collective, "collective", "payloads from FROM to TO, doubling",
     "sizes", member<&Request::collective, &CollectiveOptions::sizes>},
    {"--devices", "N", collective, "collective", "use the first N GPUs (default: all)",
     "devices", member<&Request::collective, &CollectiveOptions::devices>, {.least = 2}},

    {"--papers", "", validation, "validate",
     "check the claims of the papers behind the strategies",
     "papers", member<&Request::validation, &ValidationOptions::papers>},
    {"--published", "", validation, "validate",
     "predict published measurements and show the errors",
     "published", member<&Request::validation, &ValidationOptions::published>},
    {"--data", "FILE", validation, "validate",
     "with --published: score the rows of this CSV file instead; built-in rows still calibrate",
     "data", recorded(member<&Request::validation, &ValidationOptions::data>, data_files),
     {.repeats = true}},
    {"--from-scratch", "", validation, "validate",
     "with --published: no row calibrates, as when nothing of a system is measured",
     "from_scratch", member<&Request::validation, &ValidationOptions::from_scratch>},
    {"--quick", "", validation, "validate",
     "with --published: skip rows that take more than about a second",
     "quick", member<&Request::validation, &ValidationOptions::quick>},

    {"--jobs", "N", work, "compare sweep", "work in N processes (default: 1)"},
    {"--time-limit", "TIME", work, "compare sweep",
     "stop then, with what is known, no what-ifs; of a sweep, begin no point later: call it again"},
    {"--shard", "I/N", sweep, "sweep",
     "compute only every N-th point from the I-th on (default: as the variables of Slurm, Open MPI "
     "or PMI say, else all)"},
    {"--dry-run", "", sweep, "sweep", "list the points and estimate the time"},
    {"--point-time-limit", "TIME", sweep, "sweep",
     "give a point up after that; the next call tries it again"},
    {"--merge", "", sweep, "sweep", "make one table of results files, or of folders with some"},
    {"--by", "COLUMN", sweep, "sweep", "what --top sorts by (default: step_time_s)"},
    {"--pareto", "COLUMN,COLUMN", sweep, "sweep",
     "with --merge: only rows that no other row beats in all of these columns"},
    {"--where", "COLUMN<=X", sweep, "sweep", "with --merge: only rows that meet it", "", {}, {.repeats = true}},

    {"--job", "FILE", purchase, "buy", "the training run, TOML or JSON (docs/money.md)"},
    {"--power", "POWER", purchase, "buy", "the most that machines draw which are kept or bought"},
    {"--years", "X", purchase, "buy", "how long machines are used (default: 4)"},
    {"--own", "NAME|CALL|FILE", purchase, "buy", "the cluster that is there, to keep or retire"},
    {"--offers", "FILE", purchase, "buy", "machines with prices; experiment/examples/offers.toml is an example"},

    {"-o", "FILE", output, "plan import calibrate rerun sweep",
     "write the plan or profile to this file; '-' is standard output, here and with other "
     "files, and the report then goes to standard error; of a sweep the folder of its results, "
     "with --merge a file that ends in .csv, .jsonl or .sqlite",
     "", {}, {.long_name = "--output"}},
    {"--dag", "FILE", output, "plan", "write the execution DAG to this file; as Graphviz if it ends in .dot"},
    {"--launch", "megatron|flagscale|deepspeed|torchtitan|accelerate", output, "plan",
     "with -o DIR: write the plan and what starts a trainer with it to this folder; flagscale carries "
     "stages of different degrees"},
    {"--smpi", "DIR", output, "plan",
     "write the step to this folder for SimGrid's 'smpirun -replay': platform, hostfile and a trace "
     "per rank; with --collectives ideal"},
    {"--hgr", "FILE", output, "plan",
     "write what 'hypergraph' partitions for hMETIS, KaHyPar and Mt-KaHyPar, or for PaToH if it ends in .u"},
    {"--chakra", "DIR", output, "plan",
     "write the simulated step to this folder as execution traces of MLCommons Chakra, one per rank"},
    {"--depth", "N", output, "show import",
     "of a network one row for each module: layers whose names have the same first N parts; of a "
     "trace modules to this level (default 2)"},
    {"--trace", "FILE", output, "simulate",
     "write a Chrome trace, with --hw of both timelines; gzipped if it ends in .gz; a drawing of memory "
     "and timeline if it ends in .svg"},
    {"--report", "FILE", output, "compare simulate validate sweep",
     "write an HTML page with drawings and tables, of a sweep with --merge; if it ends in .tex (not "
     "with 'validate' or 'sweep'), a LaTeX table"},
    {"--title", "TEXT", output, runs,
     "title of the page of --report (default: network and cluster)"},
    {"--no-timeline", "", output, runs,
     "leave the timelines out of the page, which makes it small"},
    {"--no-what-if", "", output, "compare",
     "leave out of the page what other memory or machines would bring, which takes searches of its own"},
    {"--no-timings", "", output, plans,
     "leave out wall-clock times, so that runs compare byte for byte",
     "", member<&Request::timings>},
    {"--wide", "", output, "compare",
     "all columns: also idle time, bytes moved and the busiest link",
     "", member<&Request::wide>},
    {"--devices", "", output, "simulate compare",
     "rows of devices: all, or with classes one of those that do and hold the same, with their count "
     "(default: all; in tables of more than 64 devices classes)",
     "", member<&Request::device_rows>},
    {"--columns", "NAME,NAME,...", output, "compare",
     "these columns of the table, in this order, by their titles without units or by their names in CSV",
     "", member<&Request::columns>},
    {"--format", "table|json|csv|md|dot|simgrid", output, "",
     "form of the result; dot and simgrid with 'show' only (default: table)"},
    {"--json", "", output, "", "the same as --format json"},
    {"--color", "auto|always|never", output, "", "colour the table (default: auto, only on a terminal)"},
    {"--quiet", "", output, "", "no progress and no warnings on standard error"},

    {"--speeds", "N,N,...", paper, cases, "relative speeds by which 'model' shares filters, a GPU each",
     "speeds", member<&Request::speeds>, {.strategies = "model best"}},
    {"--rounding", "", paper, cases, "how the shares of 'model' become whole filters",
     "rounding", member<&Request::rounding>, {.strategies = "model best"}},
    {"--search-costs", "", paper, cases,
     "what 'layer-wise' minimizes: our costs, its paper's, or those with transfers one after another",
     "search_costs", member<&Request::search_costs>, {.strategies = "layer-wise best"}},
    {"--partition", "FILE", paper, cases, "instead of searching, 'hypergraph' uses this partition of what --hgr wrote",
     "partition", file_member<&Request::partition>, {.strategies = "hypergraph"}},
    {"--degrees", "", paper, cases,
     "into how many parts 'layer-wise' may cut a layer: divisors of the number of GPUs, or any number",
     "degrees", member<&Request::degrees>, {.strategies = "layer-wise best"}},
};
// clang-format on

/// Whether a text of words separated by blanks has this one.
bool lists(std::string_view words, std::string_view word) {
  const Texts all = split_at(words, ' ');
  return std::find(all.begin(), all.end(), word) != all.end();
}

}  // namespace

std::span<const Option> options() { return table; }

bool Option::is_for(std::string_view verb) const { return verbs.empty() || lists(verbs, verb); }

bool Option::is_read_by(std::string_view strategy) const {
  return rules.strategies.empty() || lists(rules.strategies, strategy);
}

std::vector<std::string> Option::words() const {
  if (value.empty()) return member.spellings == nullptr ? Texts{} : member.spellings();
  const bool kinds = std::any_of(value.begin(), value.end(),
                                 [](char c) { return (c >= 'A' && c <= 'Z') || c == '='; });
  Texts words;
  for (std::size_t at = 0; !kinds && at < value.size();) {
    const std::size_t end = std::min(value.find('|', at), value.size());
    words.emplace_back(value.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::string Option::placeholder() const {
  return value.empty() ? join(words(), "|") : std::string(value);
}

std::string Option::explanation() const {
  std::string text(help);
  const bool said = help.find("(default") != std::string_view::npos;
  if (!said && member.fallback != nullptr) {
    if (const std::string fallback = member.fallback(); !fallback.empty()) {
      text += fmt::format(" (default: {})", fallback);
    }
  }
  return text;
}

bool Option::writes_file() const {
  return group == OptionGroup::output && (value == "FILE" || value == "DIR");
}

bool Option::is_in_plan_file() const {
  return rules.in_plan_file || group == OptionGroup::plan || group == OptionGroup::paper;
}

bool Option::is_recorded_with_plan() const {
  return !key.empty() && (group == OptionGroup::question || !is_in_plan_file());
}

}  // namespace parsim::experiment
