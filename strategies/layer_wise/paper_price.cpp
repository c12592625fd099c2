// The paper's price and volume of any plan, worked out box by box: slower than the search's tables
// and independent of them.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "strategies/layer_wise.hpp"
#include "strategies/layer_wise/tables.hpp"

namespace parsim::strategies {

namespace {

using layer_wise::ClusterModel;
using layer_wise::Copies;
using layer_wise::Share;

void refuse_other_plans(const StrategyInput& input, const Plan& plan) {
  const auto refuse = [](const std::string& found) {
    throw InputError("the layer-wise paper's price", found,
                     "plans of one micro-batch with cuts along sample, channel, depth, height and "
                     "width");
  };
  if (plan.schedule.micro_batches != 1) {
    refuse(fmt::format("{} micro-batches", plan.schedule.micro_batches));
  }
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    for (const Cut& cut : plan.layers[l].cuts) {
      const auto& dims = layer_wise::searched_dims;
      if (std::find(dims.begin(), dims.end(), cut.dim) != dims.end()) continue;
      refuse(
          fmt::format("layer '{}' cut along {}", input.network.layers[l].name, to_text(cut.dim)));
    }
  }
}

std::vector<Share> shares_of(const StrategyInput& input, const Plan& plan, LayerId layer) {
  std::vector<Share> shares;
  for (const Cell& cell : cells(input.network, layer, plan.layers[layer.index()], plan.batch)) {
    shares.push_back({cell.device, cell.part.out});
  }
  return shares;
}

/// What the receiving device of one part of a reader lacks.
struct Lack {
  std::size_t device = 0;  ///< position in the machine
  std::int64_t from_node = 0, from_others = 0;
};

/// Calls `use` with what the parts of each layer lack of each operand, edge by edge.
template <class Use>
void for_each_edge(const StrategyInput& input, const ClusterModel& model, const Plan& plan,
                   Use use) {
  const Network& network = input.network;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    const std::vector<Shape> inputs = input_shapes(network, LayerId{l});
    const std::vector<Share> readers = shares_of(input, plan, LayerId{l});
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      if (network[layer.inputs[i]].kind.as<Input>() != nullptr) continue;
      const std::vector<Share> holders = shares_of(input, plan, layer.inputs[i]);
      std::vector<Lack> lacks;
      for (const Share& reader : readers) {
        const Region need = input_region(layer.kind, inputs, layer.out, i, {reader.box, {}});
        Lack lack{model.position(reader.device), 0, 0};
        for (const Share& holder : holders) {
          if (holder.device == reader.device) continue;
          const bool near =
              model.nodes()[model.position(holder.device)] == model.nodes()[lack.device];
          (near ? lack.from_node : lack.from_others) += intersect(need, holder.box).volume();
        }
        lacks.push_back(lack);
      }
      use(lacks);
    }
  }
}

}  // namespace

PaperPrice paper_price(const StrategyInput& input, const Plan& plan) {
  refuse_other_plans(input, plan);
  ClusterModel model(input, SearchCosts::paper);
  const std::vector<bool> wanted = layer_wise::wanted_gradients(input.network);
  const double element = static_cast<double>(element_bytes(input.precision));
  PaperPrice price{};
  for (std::size_t l = 0; l < input.network.layers.size(); ++l) {
    const LayerId id{l};
    if (input.network[id].kind.as<Input>() != nullptr) continue;
    const std::vector<Share> shares = shares_of(input, plan, id);
    const bool data = layer_wise::wants_data(input.network, id, wanted);
    price.compute += layer_wise::compute_time(input, id, shares, data);
    price.sync += layer_wise::sync_time(input, model, layer_wise::copies_of(input, id, shares));
  }
  for_each_edge(input, model, plan, [&](const std::vector<Lack>& lacks) {
    double slowest = 0, total = 0;
    for (const Lack& lack : lacks) {
      const double time =
          element * (static_cast<double>(lack.from_node) * model.inside()[lack.device] +
                     static_cast<double>(lack.from_others) * model.outside()[lack.device]);
      slowest = std::max(slowest, time);
      total += time;
    }
    price.transfer +=
        Seconds{2 * (input.search_costs == SearchCosts::paper_total ? total : slowest)};
  });
  return price;
}

PaperVolume paper_volume(const StrategyInput& input, const Plan& plan) {
  refuse_other_plans(input, plan);
  const ClusterModel model(input, SearchCosts::paper);
  const std::int64_t element = element_bytes(input.precision);
  PaperVolume volume;
  for (std::size_t l = 0; l < input.network.layers.size(); ++l) {
    const LayerId id{l};
    const Layer& layer = input.network[id];
    if (layer.kind.as<Input>() != nullptr) continue;
    for (const Copies& part : layer_wise::copies_of(input, id, shares_of(input, plan, id))) {
      const auto copies = static_cast<std::int64_t>(part.devices.size());
      if (copies > 1) volume.weights += part.payload * (2 * copies);
    }
    const std::vector<Cut>& cuts = plan.layers[l].cuts;
    const bool by_channel = std::any_of(cuts.begin(), cuts.end(), [](const Cut& cut) {
      return cut.dim == Dim::channel && cut.sizes.size() > 1;
    });
    const bool element_wise =
        layer.kind.as<Activation>() != nullptr || layer.kind.as<Dropout>() != nullptr ||
        layer.kind.as<Norm>() != nullptr || layer.kind.as<Combine>() != nullptr;
    if (by_channel && !element_wise) {
      volume.activations_once += Bytes{layer.out.elements() * plan.batch * element};
    }
  }
  for_each_edge(input, model, plan, [&](const std::vector<Lack>& lacks) {
    for (const Lack& lack : lacks) {
      volume.activations += Bytes{2 * element * (lack.from_node + lack.from_others)};
    }
  });
  return volume;
}

std::string configuration_text(const LayerPlan& plan) {
  std::string text;
  for (const Cut& cut : plan.cuts) {
    if (cut.sizes.size() < 2) continue;
    const char letter = cut.dim == Dim::sample ? 'n' : to_text(cut.dim)[0];
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", letter, cut.sizes.size());
  }
  return text.empty() ? "n=1" : text;
}

}  // namespace parsim::strategies
