#include "app/predict_published.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "app/collective.hpp"
#include "app/options.hpp"
#include "app/published_machines.hpp"
#include "app/published_plan.hpp"
#include "app/published_training.hpp"
#include "core/errors.hpp"
#include "core/timeline.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/lower.hpp"
#include "strategies/strategies.hpp"
#include "topologies/topologies.hpp"
#include "validation/measurements.hpp"

namespace parsim {

namespace {

// ------------------------------------------------------------------ keys of what is fitted

std::string key_of(const Claim& claim, std::initializer_list<std::string_view> columns) {
  std::string key = claim.quantity;
  for (const std::string_view name : columns) key += "|" + column(claim, name);
  return key;
}

/// From the series itself to whatever is least unlike it.
std::vector<std::string> keys_of(const Claim& claim) {
  if (claim.quantity == "throughput") {
    return {key_of(claim, {"model", "batch_per_gpu", "gpu", "machine", "precision", "framework",
                           "parallelism", "notes"}),
            key_of(claim, {"model", "batch_per_gpu", "gpu", "machine", "precision", "framework"}),
            key_of(claim, {"model", "gpu", "precision", "framework"}),
            key_of(claim, {"gpu", "precision", "framework"})};
  }
  if (claim.quantity == "collective-time") {
    return {key_of(claim, {"machine", "gpu", "nodes", "n_gpus", "interconnect", "nccl_version",
                           "collective", "settings"})};
  }
  return {key_of(claim, {"gpu", "precision", "cudnn"}), key_of(claim, {"gpu", "precision"}),
          key_of(claim, {"gpu"})};
}

/// What the row's notes say after "unscored: ".
std::string reason_not_to_score(const Claim& claim) {
  constexpr std::string_view mark = "unscored: ";
  const std::string notes = column(claim, "notes");
  const std::size_t at = notes.find(mark);
  return at == std::string::npos ? "library not modelled" : notes.substr(at + mark.size());
}

/// Then no device's rate is a part of the whole.
bool shares_layers(const Claim& claim) {
  if (!has_layout(claim)) return false;
  if (has_layout_file(claim)) return true;
  const RunLayout layout = layout_of(claim);
  return layout.tensor > 1 || layout.pipeline > 1;
}

// ------------------------------------------------------------------ one step on one device

/// Forward and backward of one device: kernels only, no update.
struct SingleStep {
  double squares = 0;  ///< seconds in 3x3 convolutions of stride 1
  double others = 0;
  double flops = 0;  ///< forward
};

bool is_square_convolution(const LayerKind& kind) {
  const Conv* conv = kind.as<Conv>();
  return conv != nullptr && conv->groups == 1 &&
         std::all_of(conv->windows.begin(), conv->windows.end(), [](const Window& window) {
           return window.kernel == 3 && window.stride == 1 && window.dilation == 1;
         });
}

SingleStep single_step(const Claim& claim) {
  const Network network = load_network(network_of(claim), {}, claim.set);
  const Cluster cluster = load_cluster("star:1,device=" + device_of(claim), claim.set);
  const auto cost = make_tile_costs(cluster);
  StrategyInput input{network, cluster, *cost};
  input.batch = count_column(claim, "batch", 1);
  input.precision = precision_of(claim);
  const ExecDag dag = lower(network, cluster, plan_data(input));
  SingleStep sum;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpId id{i};
    if (dag.kind(id) != OpKind::compute) continue;
    const LayerId layer = dag.work(std::get<Compute>(dag.op(id)).work).layer;
    const double time = device_time(dag, id, *cost).time.count();
    (is_square_convolution(network[layer].kind) ? sum.squares : sum.others) += time;
  }
  sum.flops = forward_flops_per_sample(network).value * static_cast<double>(input.batch);
  return sum;
}

// ------------------------------------------------------------------ collectives

constexpr std::pair<std::string_view, CollectiveKind> collective_words[] = {
    {"all_reduce", CollectiveKind::all_reduce},
    {"all_gather", CollectiveKind::all_gather},
    {"reduce_scatter", CollectiveKind::reduce_scatter},
    {"broadcast", CollectiveKind::broadcast},
    {"reduce", CollectiveKind::broadcast},  // the same messages the other way round
    {"all_to_all", CollectiveKind::all_to_all}};

CollectiveKind kind_of(const Claim& claim) {
  return parse_word(column(claim, "collective"), claim.set + ":collective", collective_words);
}

constexpr std::pair<std::string_view, NcclAlgorithm> algorithm_words[] = {
    {"RING", NcclAlgorithm::ring},
    {"TREE", NcclAlgorithm::tree},
    {"NVLS", NcclAlgorithm::nvls},
    {"NVLSTREE", NcclAlgorithm::nvls_tree},
    {"PAT", NcclAlgorithm::pat}};
constexpr std::pair<std::string_view, NcclProtocol> protocol_words[] = {
    {"LL", NcclProtocol::ll}, {"LL128", NcclProtocol::ll128}, {"SIMPLE", NcclProtocol::simple}};

/// NCCL as the row's `settings` leave it: its environment variables, as in "NCCL_ALGO=RING".
SimOptions library_of(const Claim& claim) {
  const std::string text = column(claim, "settings"), place = claim.set + ":settings";
  SimOptions options = nccl_of_no_system();
  for (std::size_t at = text.find_first_not_of(' '); at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    std::string word = text.substr(at, end - at);
    std::transform(word.begin(), word.end(), word.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    const std::size_t equal = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equal);
    const std::string value = word.substr(std::min(equal + 1, word.size()));
    if (name == "NCCL_ALGO") {
      options.algorithm = parse_word(value, place, algorithm_words);
    } else if (name == "NCCL_PROTO") {
      options.protocol = parse_word(value, place, protocol_words);
    } else {
      throw InputError(
          place, fmt::format("unknown setting '{}'", word),
          "accepted: NCCL_ALGO=RING|TREE|NVLS|NVLSTREE|PAT, NCCL_PROTO=LL|LL128|SIMPLE");
    }
    at = text.find_first_not_of(' ', end);
  }
  return options;
}

/// A row's collective, ready to be timed.
class Exchanged {
 public:
  explicit Exchanged(const Claim& claim)
      : kind_(kind_of(claim)),
        cluster_(cluster_of(claim)),
        devices_(devices_of(cluster_, DeviceKind::gpu)) {
    // Whole elements for everybody: the smallest tables have less than one each.
    const auto grain = static_cast<std::int64_t>(4 * devices_.size());
    size_ = {(count_column(claim, "size_bytes", grain) + grain - 1) / grain * grain};
  }

  /// On an otherwise idle cluster, by the cost model.
  [[nodiscard]] double estimated(const SimOptions& options) const {
    // Of an all-to-all, cost models are told what travels in all.
    const auto others = static_cast<std::int64_t>(devices_.size()) - 1;
    const Bytes payload = kind_ == CollectiveKind::all_to_all ? others * size_ : size_;
    return make_tile_costs(cluster_, options)->collective(kind_, devices_, payload).count();
  }
  /// Bytes over links, whatever a library and a network add to their latency.
  [[nodiscard]] double naive() const {
    Exchanged plain = *this;
    for (Link& link : plain.cluster_.links) link.latency = std::min(link.latency, Seconds{2e-6});
    return plain.estimated({});
  }
  [[nodiscard]] double simulated(const SimOptions& options) const {
    const auto cost = make_tile_costs(cluster_, options);
    const auto executor = make_simgrid_executor(cluster_, *cost, options);
    return makespan(executor->run(collective_dag(kind_, devices_, size_))).count();
  }
  [[nodiscard]] double root() const { return std::sqrt(static_cast<double>(size_.value)); }

 private:
  CollectiveKind kind_;
  Cluster cluster_;
  std::vector<DeviceId> devices_;
  Bytes size_;
};

/// A point that two terms are fitted to: what the library's own model says, and what was measured.
struct TermPoint {
  double modelled = 0, root = 0, measured = 0;
};

/// The terms with the least sum of squared relative errors, neither below zero.
LibraryTerms fitted_terms(const std::vector<TermPoint>& points) {
  double aa = 0, ar = 0, rr = 0, ay = 0, ry = 0;
  for (const TermPoint& point : points) {
    const double a = 1 / point.measured, r = point.root / point.measured;
    const double y = 1 - point.modelled / point.measured;
    aa += a * a;
    ar += a * r;
    rr += r * r;
    ay += a * y;
    ry += r * y;
  }
  const double determinant = aa * rr - ar * ar;
  double offset = 0, root = 0;
  if (determinant > 1e-12 * aa * rr) {
    offset = (ay * rr - ry * ar) / determinant;
    root = (ry * aa - ay * ar) / determinant;
  }
  if (offset < 0 || root < 0 || determinant <= 1e-12 * aa * rr) {
    // On the border: the better of the two with one term only.
    const double only_offset = std::max(0.0, ay / aa), only_root = std::max(0.0, ry / rr);
    const auto gain = [](double x, double xx, double xy) { return 2 * x * xy - x * x * xx; };
    const bool by_offset = gain(only_offset, aa, ay) >= gain(only_root, rr, ry);
    offset = by_offset ? only_offset : 0;
    root = by_offset ? 0 : only_root;
  }
  return {Seconds{offset}, Seconds{root}};
}

}  // namespace

PublishedPredictor::PublishedPredictor(const std::vector<Claim>& claims) {
  fit_kernels(claims);
  fit_terms(claims);
}

void PublishedPredictor::fit_terms(const std::vector<Claim>& claims) {
  std::map<std::string, std::vector<TermPoint>> points;
  for (const Claim& claim : claims) {
    if (split_of(claim) != Split::calibrate || claim.quantity != "collective-time") continue;
    try {
      const Exchanged run(claim);
      SimOptions bare = library_of(claim);
      bare.terms = {Seconds{0}, Seconds{0}};
      points[keys_of(claim).front()].push_back(
          {run.estimated(bare), run.root(), claim.expected * 1e-6});
    } catch (const InputError&) {
      continue;
    }
  }
  for (const auto& [key, list] : points) {
    const LibraryTerms terms = fitted_terms(list);
    terms_[key] = {terms.offset.count(), terms.per_root_byte.count()};
  }
}

void PublishedPredictor::fit_kernels(const std::vector<Claim>& claims) {
  for (const Claim& claim : claims) {
    if (split_of(claim) != Split::calibrate) continue;
    Fit fit;
    try {
      if (claim.quantity == "throughput") {
        const Training training(claim);
        const double seconds =
            claim.unit == "ms" ? 1e-3 * claim.expected : training.samples() / claim.expected;
        fit.factor = fitted_factor(training, seconds);
        fit.one_device =
            training.samples() / seconds / static_cast<double>(count_column(claim, "n_gpus", 1));
      } else if (claim.quantity == "step-time") {
        const SingleStep step = single_step(claim);
        if (step.squares <= 0) continue;
        const double left = claim.expected * 1e-3 - step.others;
        fit.factor = std::max(0.05, left / step.squares);
        fit.one_device = step.flops / claim.expected;
      } else {
        continue;
      }
    } catch (const InputError&) {
      continue;  // nothing to learn from a row that nobody understands; validate rows say so
    }
    for (const std::string& key : keys_of(claim)) fits_[key].push_back(fit);
  }
}

Prediction PublishedPredictor::operator()(const Claim& claim) const {
  if (split_of(claim) == Split::unscored) {
    return {std::nullopt, std::nullopt, reason_not_to_score(claim)};
  }
  try {
    if (claim.quantity == "throughput") return throughput(claim);
    if (claim.quantity == "step-time") return step_time(claim);
    return collective_time(claim);
  } catch (const InputError& error) {
    return {std::nullopt, std::nullopt, error.what()};
  }
}

Prediction PublishedPredictor::throughput(const Claim& claim) const {
  const Training training(claim);
  double factor = 1;
  std::optional<double> one_device;
  for (const std::string& key : keys_of(claim)) {
    const auto found = fits_.find(key);
    if (found == fits_.end()) continue;
    std::vector<double> factors;
    for (const Fit& fit : found->second) factors.push_back(fit.factor);
    factor = median(factors);
    if (key == keys_of(claim).front()) one_device = found->second.front().one_device;
    break;
  }
  const double value = in_unit_of(claim, training.samples(), training.step(factor));
  if (shares_layers(claim)) return {value, std::nullopt, {}};
  const double devices = static_cast<double>(count_column(claim, "n_gpus", 1));
  if (!one_device) {
    Claim alone = claim;
    alone.what["n_gpus"] = alone.what["nodes"] = alone.what["gpus_per_node"] = "1";
    alone.what["dp"] = alone.what["global_batch"] = alone.what["placement"] = "";
    const Training one(alone);
    one_device = one.samples() / one.step(factor);
  }
  const double seconds = training.samples() / (devices * *one_device);
  return {value, in_unit_of(claim, training.samples(), seconds), {}};
}

Prediction PublishedPredictor::collective_time(const Claim& claim) const {
  const Exchanged run(claim);
  SimOptions options = library_of(claim);
  const auto found = terms_.find(keys_of(claim).front());
  if (found != terms_.end() && column(claim, uncalibrated).empty()) {
    options.terms = {Seconds{found->second.first}, Seconds{found->second.second}};
  }
  return {run.simulated(options) * 1e6, run.naive() * 1e6, {}};
}

Prediction PublishedPredictor::step_time(const Claim& claim) const {
  if (!column(claim, "layer").empty()) {
    return {std::nullopt, std::nullopt, "a single layer, not a network"};
  }
  const SingleStep step = single_step(claim);
  for (const std::string& key : keys_of(claim)) {
    const auto found = fits_.find(key);
    if (found == fits_.end()) continue;
    std::vector<double> factors, rates;
    for (const Fit& fit : found->second) {
      factors.push_back(fit.factor);
      rates.push_back(fit.one_device);
    }
    return {(step.others + median(factors) * step.squares) * 1e3, step.flops / median(rates), {}};
  }
  return {(step.others + step.squares) * 1e3, std::nullopt, {}};
}

}  // namespace parsim
