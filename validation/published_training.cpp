#include "validation/published_training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <iterator>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/text.hpp"
#include "core/timeline.hpp"
#include "experiment/attention.hpp"
#include "experiment/calibration.hpp"
#include "experiment/layer_costs.hpp"
#include "experiment/layer_times.hpp"
#include "experiment/options.hpp"
#include "experiment/request.hpp"
#include "lowering/lower.hpp"
#include "lowering/memory.hpp"
#include "strategies/strategies.hpp"
#include "topologies/changes.hpp"
#include "validation/affirmed_words.hpp"
#include "validation/agreeing_columns.hpp"
#include "validation/parallelism_column.hpp"
#include "validation/published_machines.hpp"
#include "validation/published_plan.hpp"

namespace parsim::validation {

namespace {

/// Sets the memory of cards that are sold in several sizes. Small differences are a matter of
/// naming (16 GB, of which error correction takes one).
void set_memory(const Claim& claim, Cluster& cluster) {
  constexpr double another_size = 1.1;
  const auto gib = static_cast<double>(count_column(claim, "gpu_mem_gb", 0));
  for (const DeviceId gpu : devices_of(cluster, DeviceKind::gpu)) {
    Bytes& memory = cluster.devices[gpu.index()].memory;
    const Bytes given{std::llround(gib * 1024 * 1024 * 1024)};
    const auto [less, more] = std::minmax(given.value, memory.value);
    if (gib > 0 && static_cast<double>(more) > another_size * static_cast<double>(less)) {
      memory = given;
    }
  }
}

/// The part of a machine's description that is of its cards: "HBM2e 2.4 TB/s", "at 500 W".
struct Stated {
  std::optional<BytesPerSecond> memory_rate;
  std::optional<Watts> power;
};

/// Of a description between commas and brackets: numbers with a unit behind them. A rate is the
/// memory's after its name, watts are the card's unless they are of something else.
Stated stated(const std::string& machine) {
  Stated found;
  std::string part, before;
  const auto names = [](const std::string& text, std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return text.find(word) != std::string::npos; });
  };
  const auto read = [&] {
    for (std::size_t at = 0; at < part.size();) {
      const std::size_t begin = part.find_first_of("0123456789", at);
      if (begin == std::string::npos) break;
      const std::size_t end = std::min(part.find_first_not_of("0123456789.", begin), part.size());
      const std::size_t unit = std::min(part.find_first_not_of(' ', end), part.size());
      const std::string_view rest = std::string_view(part).substr(unit);
      const auto number = to_number<double>(part.substr(begin, end - begin));
      const bool memory = names(part.substr(0, begin), {"HBM", "GDDR"}) ||
                          (names(before, {"HBM", "GDDR"}) && begin < 2);
      if (number && memory && rest.starts_with("TB/s")) found.memory_rate = {*number * 1e12};
      if (number && memory && rest.starts_with("GB/s")) found.memory_rate = {*number * 1e9};
      const bool watts =
          rest.starts_with('W') &&
          (rest.size() == 1 || std::isalnum(static_cast<unsigned char>(rest[1])) == 0);
      const bool of_others =
          names(part, {"host", "Host", "rack", "CPU", "node", "server", "suppl"});
      if (number && watts && !of_others) found.power = Watts{*number};
      at = end;
    }
    before = part;
    part.clear();
  };
  for (const char c : machine) {
    if (c == ',' || c == ';' || c == '(' || c == ')') {
      read();
    } else {
      part += c;
    }
  }
  read();
  return found;
}

}  // namespace

void set_stated_rates(const Claim& claim, Cluster& cluster) {
  Stated given = stated(column(claim, "machine"));
  std::string gpu = column(claim, "gpu");  // "h100-500w"
  std::transform(gpu.begin(), gpu.end(), gpu.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (!given.power) given.power = stated(gpu).power;
  if (const std::string text = column(claim, "gpu_memory_rate"); !text.empty())
    given.memory_rate = parse_rate(text, location_of(claim, "gpu_memory_rate"));
  const std::string limit = column(claim, "power_limit");
  if (!limit.empty()) given.power = parse_power(limit, location_of(claim, "power_limit"));
  if (given.memory_rate && given.memory_rate->value <= 0) {
    throw InputError(location_of(claim, "machine"), "a memory rate of 0",
                     "accepted: a positive rate");
  }
  for (DeviceModel& model : cluster.models) {
    if (model.kind != DeviceKind::gpu) continue;
    if (given.memory_rate) model.memory_rate = *given.memory_rate;
    const Upkeep& own = model.upkeep;
    const bool lower =
        given.power && own.power && *given.power<*own.power&& * given.power> * own.idle();
    if (lower || !limit.empty()) {
      topologies::limit_power(model, *given.power,
                              location_of(claim, limit.empty() ? "machine" : "power_limit"));
    }
  }
}

namespace {

PeakMemory memory_of(const strategies::StrategyInput& input, const Plan& plan) {
  const std::vector<lowering::MemoryUse> uses =
      lowering::memory_use(input.network, input.cluster, plan);
  PeakMemory fullest;
  double most = -1;
  for (const DeviceId gpu : devices_of(input.cluster, DeviceKind::gpu)) {
    const Bytes needed = uses[gpu.index()].total(), memory = input.cluster[gpu].memory;
    const double part = static_cast<double>(needed.value) / static_cast<double>(memory.value);
    if (part <= most) continue;
    most = part;
    fullest = {needed, memory, input.headroom.verdict(needed, memory)};
  }
  return fullest;
}

Cluster training_cluster(const Claim& claim) {
  Cluster cluster = cluster_of(claim);
  set_memory(claim, cluster);
  set_stated_rates(claim, cluster);
  return cluster;
}

/// Of texts such as "2.8.3-CUDA-11.0.2" or "NCCL 2.0 MPI"; nothing for another library, or none.
std::optional<sim::NcclVersion> nccl_version_of(const Claim& claim) {
  std::string text = column(claim, "nccl_version");
  if (text.starts_with("NCCL ")) text.erase(0, 5);
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text.front())) == 0) return {};
  return experiment::parse_nccl_version(text.substr(0, text.find_first_not_of("0123456789.")),
                                        location_of(claim, "nccl_version"));
}

sim::SimOptions step_options(const Claim& claim, std::optional<Seconds> launch) {
  sim::SimOptions options = default_nccl_options(claim);
  options.terms.offset = launch;
  options.fusion = fusion_of(claim);
  if (const std::string text = column(claim, "attention_kernel"); !text.empty()) {
    options.attention_kernel = experiment::parse_spelling<sim::AttentionKernel>(
        text, location_of(claim, "attention_kernel"));
  }
  return options;
}

}  // namespace

sim::SimOptions default_nccl_options(const Claim& claim) {
  sim::SimOptions options;
  options.collectives = sim::CollectiveCost::nccl;
  options.nccl_version = nccl_version_of(claim);
  return options;
}

namespace {

/// How FP8 is scaled, by the column fp8_recipe or the precision's own words: Megatron-LM's names,
/// Megatron-Bridge's CS and DS (current and delayed scaling), torchao's tensorwise.
Precision fp8_recipe_of(const Claim& claim) {
  for (const char* name : {"fp8_recipe", "precision"}) {
    const auto has = [&](std::string_view word) { return column_contains(claim, name, word); };
    if (has("delayed") || has("-DS")) return Precision::fp8_delayed;
    if (has("block") || has("128")) return Precision::fp8_blockwise;
    if (has("rowwise") || has("MX")) {
      throw InputError(location_of(claim, name),
                       fmt::format("'{}' is not modelled", column(claim, name)),
                       "accepted: FP8 scaled by tensor (current or delayed) or by block");
    }
  }
  return Precision::fp8;
}

}  // namespace

Precision precision_of(const Claim& claim) {
  const std::string given = column(claim, "precision"), text = affirmed(given);
  const auto has = [&](std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return text.find(word) != text.npos; });
  };
  const bool fp8 = has({"fp8", "float8"}), tf32 = has({"tf32"}), bf16 = has({"bf16"}),
             fp16 = has({"fp16"}), fp32 = has({"fp32"}), mixed = has({"amp", "mixed"});
  // What is kept in a wider format next to that of kernels.
  const bool kept =
      mixed || has({"master", "accum", "grad", "reduc", "optim", "state", "weight", "param"});
  const int named = fp8 + tf32 + bf16 + fp16 + fp32;
  if (named > 1 && (!kept || tf32 || (bf16 && fp16))) {
    throw InputError(location_of(claim, "precision"),
                     fmt::format("'{}' names several precisions", given),
                     "accepted: that of kernels alone: FP32, TF32, FP16, BF16, FP8 or AMP (column "
                     "reduce_precision has that of gradients)");
  }
  if (fp8) return fp8_recipe_of(claim);
  if (tf32) return Precision::tf32;
  if (bf16) return Precision::bf16;
  if (fp16 || mixed) return Precision::fp16;
  if (given.empty() || fp32) return Precision::fp32;
  throw InputError(location_of(claim, "precision"), fmt::format("unknown precision '{}'", given),
                   "accepted: FP32, TF32, FP16, BF16, FP8, AMP, mixed, or nothing for FP32");
}

Precision reduce_precision_of(const Claim& claim) {
  constexpr std::pair<std::string_view, Precision> words[] = {
      {"FP32", Precision::fp32}, {"FP16", Precision::fp16}, {"BF16", Precision::bf16}};
  const std::string text = column(claim, "reduce_precision");
  std::string large = text;
  std::transform(text.begin(), text.end(), large.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (const auto& [word, precision] : words) {
    if (large == word) return precision;
  }
  // InternEvo reduces gradients as they are (reduce_tensor of internlm/solver/optimizer/utils.py);
  // Megatron-Bridge's performance scripts set grad_reduce_in_fp32 = False (scripts/performance/
  // configs).
  const bool as_computed = column_contains(claim, "framework", "InternEvo") ||
                           column_contains(claim, "framework", "Megatron-Bridge");
  if (text.empty() && as_computed) {
    const Precision own = precision_of(claim);
    if (multiplies_in_fp8(own)) return Precision::bf16;
    if (element_bytes(own) == 2) return own;
  }
  if (text.empty()) return Precision::fp32;
  return experiment::parse_word(text, location_of(claim, "reduce_precision"), words);
}

sim::Fusion fusion_of(const Claim& claim) {
  const std::string text = column(claim, "fusion");
  if (!text.empty()) {
    return experiment::parse_spelling<sim::Fusion>(text, location_of(claim, "fusion"));
  }
  // Version 1 fuses only if asked to (megatron/arguments.py of v1.1.5: --bias-gelu-fusion,
  // --bias-dropout-fusion, --scaled-upper-triang-masked-softmax-fusion), later ones unless asked
  // not to.
  if (column_contains(claim, "framework", "Megatron-LM 1.")) return sim::Fusion::none;
  if (trained_by_megatron(claim)) return sim::Fusion::megatron;
  const std::vector<std::string> items = split_at(affirmed(column(claim, "framework")), ',');
  const bool compiled = column_contains(claim, "framework", "compile") ||
                        std::find(items.begin(), items.end(), " fused") != items.end();
  return compiled ? sim::Fusion::compiled : sim::Fusion::none;
}

namespace {

/// Whether SGD's momentum is given as 0, which keeps no state.
bool has_no_momentum(const std::string& text) {
  const bool of_sgd = text.starts_with("sgd") || text.starts_with("momentum");
  const std::size_t at = text.find("momentum");
  if (!of_sgd || at == text.npos) return false;
  const std::size_t number =
      text.find_first_not_of(" =:(", at + std::string_view("momentum").size());
  if (number == text.npos) return false;
  const std::size_t end = text.find_first_not_of("0123456789.", number);
  const auto value = to_number<double>(text.substr(number, end - number));
  return value == 0.0;
}

/// Column `optimizer`, by its first words; or, of old tables, what `workload_detail` names. LAMB
/// keeps what Adam does, LARS what momentum does. Nothing where the row has none.
std::optional<Optimizer> optimizer_of(const Claim& claim) {
  constexpr std::pair<std::string_view, Optimizer> known[] = {
      {"adam", Optimizer::adam},     {"adamw", Optimizer::adam},        {"lamb", Optimizer::adam},
      {"lars", Optimizer::momentum}, {"momentum", Optimizer::momentum}, {"sgd", Optimizer::sgd}};
  const std::string given = column(claim, "optimizer"), text = affirmed(given);
  const auto has = [&](std::string_view part) { return text.find(part) != text.npos; };
  std::string word = text.substr(0, text.find_first_of(" ,(+"));
  const bool in_bytes = has("8bit") || has("8-bit") || has("4bit") || has("4-bit");
  if (has_no_momentum(text))
    word = "sgd";
  else if (word == "sgd" && (has("momentum") || has("nesterov")))
    return Optimizer::momentum;
  for (const auto& [name, optimizer] : known) {
    if (word == name && !in_bytes) return optimizer;
  }
  if (!given.empty()) {
    throw InputError(location_of(claim, "optimizer"), fmt::format("'{}'", given),
                     "accepted: Adam, AdamW, LAMB, LARS, SGD momentum, or SGD (without momentum)");
  }
  if (column_contains(claim, "workload_detail", "SGD")) return Optimizer::sgd;
  return std::nullopt;
}

/// llm-foundry (modeling_mpt.py, loss_fn "fused_crossentropy" by default) and InternEvo
/// (internlm/model/ops/cross_entropy.py) have losses of flash-attn's and apex's kind, which make no
/// FP32 copies of scores; their gradients are sharded.
Framework memory_as(const Claim& claim, sim::Fusion fusion) {
  const bool in_place = column_contains(claim, "framework", "llm-foundry") ||
                        column_contains(claim, "framework", "InternEvo");
  if (column_contains(claim, "framework", "DeepSpeed") && fusion == sim::Fusion::megatron) {
    return Framework::megatron_deepspeed;
  }
  return in_place ? Framework::megatron : sim::framework_of(fusion);
}

}  // namespace

Training::Training(const Claim& claim, std::optional<Seconds> launch)
    : cluster_(training_cluster(claim)),
      options_(step_options(claim, launch)),
      tiles_(sim::make_tile_costs(cluster_, options_)) {
  check_unit(claim);
  check_column_names(claim);
  check_parallelism(claim);
  const Network network = experiment::on_devices(load_network_of(claim), network_of(claim),
                                                 dims_of(claim), cluster_, std::nullopt)
                              .network;
  if (const std::string file = column(claim, "profile"); !file.empty()) {
    const std::string where = location_of(claim, "profile");
    const std::vector<experiment::LayerTime> times = experiment::layer_times_of(
        read_file(file, where), file, network, cluster_, precision_of(claim));
    tiles_ = experiment::make_layer_costs(times, network, cluster_, std::move(tiles_),
                                          reduce_precision_of(claim), options_, file);
  }
  strategies::StrategyInput input{network, cluster_, *tiles_};
  input.precision = precision_of(claim);
  input.reduce_precision = reduce_precision_of(claim);
  input.framework = memory_as(claim, options_.fusion);
  input.sync = Sync::Kind::ring;
  if (const std::optional<Optimizer> own = optimizer_of(claim)) input.optimizer = *own;
  if (has_layout(claim)) {
    if (column(claim, "optimizer").empty()) input.optimizer = Optimizer::adam;
    plan_ = published_plan(claim, input);
    batch_ = plan_.batch;
    memory_ = memory_of(input, plan_);
    dag_ = lowering::lower_folded(network, cluster_, *tiles_, plan_).dag;
    return;
  }
  const auto devices = static_cast<std::int64_t>(devices_of(cluster_, DeviceKind::gpu).size());
  check_data_parallelism(claim, devices);
  batch_ = data_parallel_batch(claim, devices);
  input.batch = batch_;
  input.bucket = bucket_of(claim, input.reduce_precision);
  plan_ = strategies::plan_data(input);
  memory_ = memory_of(input, plan_);
  dag_ = lowering::lower_folded(network, cluster_, *tiles_, plan_).dag;
}

double Training::simulated(double kernels, double links, double host,
                           experiment::StepParts* parts) const {
  sim::SimOptions options = options_;
  options.host_delay.step = Seconds{host};
  options.engine = sim::Engine::automatic;
  const auto time = [&](const Cluster& cluster, const CostModel& tiles) {
    const auto cost = sim::make_scaled(tiles, kernels);
    const auto simulator = sim::make_simulator(cluster, *cost, options);
    const auto seen = [&](const ExecDag& dag, const Timeline& timeline) {
      if (parts != nullptr) *parts = experiment::step_parts(dag, timeline, *cost, cluster);
      return makespan(timeline).count();
    };
    if (!dag_.fold) return seen(dag_, simulator->run(dag_));
    if (const auto timeline = simulator->run_folded(dag_)) return seen(dag_, *timeline);
    const lowering::PlanRun run =
        lowering::run_folded(dag_.network, cluster, *cost, plan_, *simulator);
    return seen(run.lowered.dag, run.timeline);
  };
  if (links == 1) return time(cluster_, *tiles_);
  const Cluster changed = experiment::with_links_between_machines(cluster_, links);
  return time(changed, *sim::make_tile_costs(changed, options_));
}

void check_unit(const Claim& claim) {
  constexpr std::string_view known[] = {"", "images/s", "samples/s", "ms"};
  if (std::find(std::begin(known), std::end(known), claim.unit) != std::end(known)) return;
  throw InputError(
      location_of(claim, "unit"), fmt::format("unknown unit '{}'", claim.unit),
      "accepted: images/s, samples/s, sequences/s, tokens/s (of one GPU with /GPU at the end), "
      "ms or s (of a step), or nothing for images/s");
}

double simulation_length(const Claim& claim) {
  if (claim.quantity != "throughput" || !has_layout(claim) || has_layout_file(claim)) return 0;
  const RunLayout run = layout_of(claim);
  const auto layers = static_cast<double>(load_network_of(claim).layers.size());
  return layers * static_cast<double>(run.micro_batches) *
         static_cast<double>(run.data * run.group());
}

double in_unit_of(const Claim& claim, double samples, double seconds) {
  return claim.unit == "ms" ? 1e3 * seconds : samples / seconds;
}

double fitted_factor(const Training& training, double wanted) {
  double before = 0.5, factor = 1;
  double time_before = training.step(before);
  for (int i = 0; i < 4; ++i) {
    const double time = training.step(factor);
    if (std::abs(time - wanted) <= 1e-6 * wanted || time == time_before) break;
    const double next = factor + (wanted - time) * (factor - before) / (time - time_before);
    before = factor;
    time_before = time;
    factor = std::clamp(next, 1 / largest_factor, largest_factor);
  }
  return factor;
}

}  // namespace parsim::validation
