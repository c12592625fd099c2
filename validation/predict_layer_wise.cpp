#include "validation/predict_layer_wise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/errors.hpp"
#include "strategies/layer_wise.hpp"
#include "strategies/layer_wise/tables.hpp"
#include "validation/paper_case.hpp"

namespace parsim::validation {

namespace {

using strategies::StrategyInput;
using strategies::layer_wise::Share;

StrategyInput paper_input(const PaperCase& at) {
  StrategyInput input = at.input();
  input.search_costs = strategies::SearchCosts::paper;
  return input;
}

/// Kernels are scaled by one factor per network so that one GPU runs at the published rate.
PaperCase calibrated_case(const Claim& claim, std::int64_t devices) {
  const auto one_device = static_cast<double>(whole_number(claim, "one_device"));
  const PaperCase alone(claim, 1);
  const StrategyInput one = paper_input(alone);
  const double uncalibrated =
      strategies::paper_price(one, strategies::plan_data(one)).step().count();
  const double published = static_cast<double>(one.batch) / one_device;
  PaperCase all(claim, devices);
  all.calibrate(published / uncalibrated);
  return all;
}

/// Samples per second by the paper's sum (equation 1) with rings.
double throughput(const Claim& claim, const std::string& strategy) {
  const PaperCase all = calibrated_case(claim, whole_number(claim, "devices"));
  const StrategyInput input = paper_input(all);
  const Plan plan = strategies::strategy(strategy, claim.set).plan(input);
  return static_cast<double>(input.batch) / strategies::paper_price(input, plan).step().count();
}

double best_other_throughput(const Claim& claim) {
  double best = 0;
  for (const char* other : {"data", "owt", "model-even"}) {
    best = std::max(best, throughput(claim, other));
  }
  return best;
}

// ------------------------------------------------------------------ abstract, figures 7 and 8

Prediction paper_throughput(const Claim& claim) {
  const double linear = static_cast<double>(whole_number(claim, "devices")) *
                        static_cast<double>(whole_number(claim, "one_device"));
  return {throughput(claim, claim.at("strategy")), linear, {}};
}

/// Throughput of layer-wise over that of the fastest of data, owt and model-even.
Prediction paper_gain(const Claim& claim) {
  return {throughput(claim, "layer-wise") / best_other_throughput(claim), std::nullopt, {}};
}

/// Throughput over that of one GPU.
Prediction paper_speed_up(const Claim& claim) {
  const std::string& name = claim.at("strategy");
  const double together =
      name == "best other" ? best_other_throughput(claim) : throughput(claim, name);
  return {together / static_cast<double>(whole_number(claim, "one_device")),
          static_cast<double>(whole_number(claim, "devices")),
          {}};
}

/// Estimated step time of layer-wise over that of figure 7's bar.
Prediction estimate_over_measured(const Claim& claim) {
  return {static_cast<double>(whole_number(claim, "bar")) / throughput(claim, "layer-wise"),
          std::nullopt,
          {}};
}

/// GiB per step as figure 8 counts them.
Prediction paper_volume_gib(const Claim& claim) {
  const PaperCase all(claim, whole_number(claim, "devices"));
  const StrategyInput input = paper_input(all);
  const Plan plan = strategies::strategy(claim.at("strategy"), claim.set).plan(input);
  const strategies::PaperVolume volume = strategies::paper_volume(input, plan);
  const bool once = claim.at("accounting") == "each output once";
  const Bytes bytes = once ? volume.activations_once : volume.total();
  return {static_cast<double>(bytes.value) / (1024.0 * 1024.0 * 1024.0), std::nullopt, {}};
}

// ------------------------------------------------------------------ figures 1 to 3

LayerId layer_of(const Claim& claim, const Network& network) {
  const std::string& name = claim.at("layer");
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    if (network.layers[l].name == name) return LayerId{l};
  }
  throw InputError(claim.set + ": " + claim.name, fmt::format("no layer '{}'", name),
                   "accepted: layers of the claim's network");
}

/// One part a GPU, cut along `dim` alone.
std::vector<Share> split_shares(const StrategyInput& input, LayerId layer, Dim dim) {
  const strategies::layer_wise::ClusterModel model(input, strategies::SearchCosts::paper);
  const std::vector<DeviceId>& devices = model.devices();
  strategies::layer_wise::Configuration configuration;
  const auto& dims = strategies::layer_wise::searched_dims;
  const auto axis =
      static_cast<std::size_t>(std::find(dims.begin(), dims.end(), dim) - dims.begin());
  configuration.degrees[axis] = static_cast<std::int64_t>(devices.size());
  const std::vector<double> equal(devices.size(), 1);
  const std::vector<Region> boxes =
      strategies::layer_wise::boxes(input.network, layer, configuration, input.batch, equal);
  std::vector<Share> shares;
  for (std::size_t k = 0; k < boxes.size(); ++k) shares.push_back({devices[k], boxes[k]});
  return shares;
}

Dim split_dim(const Claim& claim) {
  for (const Dim dim : strategies::layer_wise::searched_dims) {
    if (to_text(dim) == claim.at("split")) return dim;
  }
  throw InputError(claim.set + ": " + claim.name, fmt::format("split '{}'", claim.at("split")),
                   "accepted: sample, channel, depth, height, width");
}

/// Milliseconds of one layer that is cut along one dimension: forward, or forward and backward.
Prediction layer_compute(const Claim& claim) {
  const PaperCase at = calibrated_case(claim, whole_number(claim, "devices"));
  StrategyInput input = paper_input(at);
  if (claim.what.contains("batch")) input.batch = whole_number(claim, "batch");
  const LayerId layer = layer_of(claim, at.network());
  const std::vector<Share> shares = split_shares(input, layer, split_dim(claim));
  if (claim.at("passes") == "all") {
    const std::vector<bool> wanted = strategies::layer_wise::wanted_gradients(at.network());
    const bool data = strategies::layer_wise::wants_data(at.network(), layer, wanted);
    const Seconds time = strategies::layer_wise::compute_time(input, layer, shares, data);
    return {1e3 * time.count(), std::nullopt, {}};
  }
  Seconds longest{};
  for (const Share& share : shares) {
    longest = std::max(longest,
                       kernel_time(input.cost, at.network(), layer, {share.box, {}}, Pass::forward,
                                   share.device, input.precision, input.reduce_precision)
                           .time);
  }
  return {1e3 * longest.count(), std::nullopt, {}};
}

/// Milliseconds to sum a layer's gradients by the paper's server, all samples split.
Prediction layer_sync(const Claim& claim) {
  const PaperCase at(claim, whole_number(claim, "devices"));
  StrategyInput input = paper_input(at);
  input.sync = Sync::Kind::server;
  const LayerId layer = layer_of(claim, at.network());
  strategies::layer_wise::ClusterModel model(input, strategies::SearchCosts::paper);
  const Seconds time = strategies::layer_wise::sync_time(
      input, model,
      strategies::layer_wise::copies_of(input, layer, split_shares(input, layer, Dim::sample)));
  return {1e3 * time.count(), std::nullopt, {}};
}

/// MB that one GPU receives for one layer: of a summed gradient where samples are split, of its
/// input, which lies split by sample, where channels are.
Prediction layer_received(const Claim& claim) {
  const PaperCase at(claim, whole_number(claim, "devices"));
  const StrategyInput input = paper_input(at);
  const LayerId id = layer_of(claim, at.network());
  const Layer& layer = at.network()[id];
  std::int64_t bytes = 0;
  if (split_dim(claim) == Dim::sample) {
    for (const auto& part :
         strategies::layer_wise::copies_of(input, id, split_shares(input, id, Dim::sample))) {
      bytes += part.payload.value;
    }
  } else {
    const Share first = split_shares(input, id, split_dim(claim))[0];
    const Region need =
        input_region(layer.kind, input_shapes(at.network(), id), layer.out, 0, {first.box, {}});
    const Share held = split_shares(input, layer.inputs[0], Dim::sample)[0];
    bytes = (need.volume() - intersect(need, held.box).volume()) * element_bytes(input.precision);
  }
  return {static_cast<double>(bytes) / 1e6, std::nullopt, {}};
}

// ------------------------------------------------------------------ tables 3 and 5

/// Depth first through all configurations of all nodes: the baseline of table 3, but it leaves a
/// branch that cannot become cheaper than the best so far.
class DepthFirst {
 public:
  explicit DepthFirst(const strategies::layer_wise::Problem& problem)
      : problem_(problem), choice_(problem.costs.size(), 0), rest_(problem.costs.size() + 1, 0) {
    for (std::size_t n = problem.costs.size(); n-- > 0;) {
      rest_[n] = rest_[n + 1] + *std::min_element(problem.costs[n].begin(), problem.costs[n].end());
    }
  }
  double run() {
    visit(0, 0);
    return best_;
  }

 private:
  void visit(std::size_t node, double cost) {
    if (cost + rest_[node] >= best_) return;
    if (node == problem_.costs.size()) {
      best_ = cost;
      return;
    }
    for (std::size_t c = 0; c < problem_.costs[node].size(); ++c) {
      choice_[node] = c;
      double more = problem_.costs[node][c];
      for (const auto& edge : problem_.edges) {
        if (std::max(edge.from, edge.to) != node) continue;
        more += (*edge.cost)(choice_[edge.from], choice_[edge.to]);
      }
      visit(node + 1, cost + more);
    }
  }

  const strategies::layer_wise::Problem& problem_;
  std::vector<std::size_t> choice_;
  std::vector<double> rest_;  ///< least cost of the nodes from this one on
  double best_ = std::numeric_limits<double>::infinity();
};

/// Of the search itself: nodes it has at first, nodes that its eliminations leave, or the cost of
/// what it finds relative to the least by a depth-first search.
Prediction layer_search(const Claim& claim) {
  const PaperCase at(claim, whole_number(claim, "devices"));
  const StrategyInput input = paper_input(at);
  strategies::layer_wise::ClusterModel model(input, strategies::SearchCosts::paper);
  const strategies::layer_wise::Tables tables =
      make_tables(input, model, strategies::layer_wise::TransferRule::slowest_receiver, {});
  if (claim.at("value") == "nodes") return {static_cast<double>(tables.nodes.size()), {}, {}};
  const strategies::layer_wise::Problem problem = tables.problem(1, 0);
  const strategies::layer_wise::Solution found = solve(problem);
  if (claim.at("value") == "kernel") return {static_cast<double>(found.kernel), {}, {}};
  return {found.cost / DepthFirst(problem).run(), {}, {}};
}

/// Seconds on the authors' machine: nothing that a prediction could be compared with.
Prediction search_seconds(const Claim&) {
  return {std::nullopt, std::nullopt,
          "the authors' machine searched; 'search_time_s' of a run is what this one needs"};
}

/// Parts along one dimension of the layers from `from` to `to`: their mean, if they differ.
Prediction paper_degree(const Claim& claim) {
  const PaperCase at = calibrated_case(claim, whole_number(claim, "devices"));
  StrategyInput input = at.input();
  input.search_costs = claim.at("costs") == "paper-total" ? strategies::SearchCosts::paper_total
                                                          : strategies::SearchCosts::paper;
  const Plan plan = strategies::plan_layer_wise(input);
  double sum = 0, count = 0;
  bool inside = false;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const Layer& layer = at.network().layers[l];
    inside = inside || layer.name == claim.at("from");
    const bool counts = !layer.parameters.empty() || layer.kind.as<Pool>() != nullptr ||
                        layer.kind.as<Loss>() != nullptr;
    if (inside && counts) {
      double degree = 1;
      for (const Cut& cut : plan.layers[l].cuts) {
        if (to_text(cut.dim) == claim.at("dimension")) {
          degree = static_cast<double>(cut.sizes.size());
        }
      }
      sum += degree;
      ++count;
    }
    if (layer.name == claim.at("to")) break;
  }
  ensure(count > 0, "the claim's layers are layers of its network");
  return {sum / count, std::nullopt, {}};
}

struct LayerWisePredictor {
  std::string_view name;
  Prediction (*predict)(const Claim&);
};
constexpr LayerWisePredictor layer_wise_predictors[] = {
    {"paper-throughput", paper_throughput},
    {"paper-gain", paper_gain},
    {"paper-speed-up", paper_speed_up},
    {"paper-volume", paper_volume_gib},
    {"estimate-over-measured", estimate_over_measured},
    {"layer-compute", layer_compute},
    {"layer-sync", layer_sync},
    {"layer-received", layer_received},
    {"layer-search", layer_search},
    {"search-seconds", search_seconds},
    {"degree", paper_degree},
};

}  // namespace

std::optional<Prediction> predict_layer_wise(const Claim& claim) {
  for (const LayerWisePredictor& predictor : layer_wise_predictors) {
    if (predictor.name == claim.quantity) return predictor.predict(claim);
  }
  return std::nullopt;
}

}  // namespace parsim::validation
