#include "tests/support/reference.hpp"

#include <algorithm>

namespace parsim::testing {
namespace {

bool is_batch_norm(const LayerKind& kind) {
  const auto* norm = kind.as<Norm>();
  return norm != nullptr && norm->kind == NormKind::batch;
}

/// The layer with its operands, for the whole output or for one group of statistics.
PartInput part_input(const Network& network, LayerId id, const std::vector<Shape>& shapes,
                     const Region& region, const Step& step, const std::vector<Block>& parameters,
                     std::int64_t batch, const std::vector<std::int32_t>& zigzag) {
  const Layer& layer = network[id];
  PartInput input{layer.kind, shapes, layer.out, {region, {}}, {}, {}, 0, batch, {}, id.value};
  if (!zigzag.empty()) input.part.zigzag = zigzag[id.index()];
  for (const LayerId producer : layer.inputs) {
    const Block& whole_operand = step.activations[producer.index()];
    // The statistics of batch normalisation are those of the block it is given.
    input.activations.push_back(is_batch_norm(layer.kind) ? whole_operand.piece(region)
                                                          : whole_operand);
  }
  for (const ParameterId parameter : layer.parameters) {
    input.parameters.push_back(parameters[parameter.index()]);
  }
  return input;
}

std::vector<Region> parts_of(const Network& network, LayerId id, const StatisticGroups& groups,
                             std::int64_t batch) {
  const bool grouped = is_batch_norm(network[id].kind) && !groups.empty();
  if (grouped && !groups[id.index()].empty()) return groups[id.index()];
  return {whole(network[id].out, batch)};
}

}  // namespace

StatisticGroups statistic_groups(const Network& network, const Plan& plan) {
  StatisticGroups groups(network.layers.size());
  const std::int64_t samples = plan.batch / plan.schedule.micro_batches;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    if (!is_batch_norm(network.layers[l].kind)) continue;
    for (const Cell& cell : cells(network, LayerId{l}, plan.layers[l], samples)) {
      if (cell.replica > 0) continue;
      for (std::int64_t m = 0; m < plan.schedule.micro_batches; ++m) {
        Region region = cell.part.out;
        region[0] = {region[0].begin + m * samples, region[0].end + m * samples};
        groups[l].push_back(region);
      }
    }
  }
  return groups;
}

std::vector<bool> leads_to_parameters(const Network& network) {
  std::vector<bool> leads;
  for (const Layer& layer : network.layers) {
    bool any = !layer.parameters.empty();
    for (const LayerId producer : layer.inputs) any = any || leads[producer.index()];
    leads.push_back(any);
  }
  return leads;
}

std::vector<Block> initial_parameters(const Network& network) {
  std::vector<Block> parameters;
  for (std::size_t p = 0; p < network.parameters.size(); ++p) {
    parameters.push_back(
        initial_parameter(static_cast<std::int64_t>(p), network.parameters[p].extents));
  }
  return parameters;
}

Step train_step(const Network& network, std::int64_t batch, const StatisticGroups& groups,
                const std::vector<Block>& parameters, const std::vector<std::int32_t>& zigzag) {
  Step step;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerId id{l};
    const Layer& layer = network[id];
    const Region all = whole(layer.out, batch);
    step.gradients.emplace_back(all);
    if (layer.kind.as<Input>() != nullptr) {
      step.activations.push_back(data_block(id.value, layer.out, all, 0));
      continue;
    }
    step.activations.emplace_back(all);
    const std::vector<Shape> shapes = input_shapes(network, id);
    for (const Region& region : parts_of(network, id, groups, batch)) {
      step.activations[l].paste(
          forward(part_input(network, id, shapes, region, step, parameters, batch, zigzag)));
    }
    if (layer.kind.as<Loss>() == nullptr) continue;
    for (const double loss : step.activations[l].values()) {
      step.loss += loss / static_cast<double>(batch * layer.out.elements());
    }
  }
  const std::vector<bool> trains = leads_to_parameters(network);
  for (const Block& parameter : parameters) step.weight_gradients.emplace_back(parameter.box());
  for (std::size_t l = network.layers.size(); l-- > 0;) {
    const LayerId id{l};
    const Layer& layer = network[id];
    if (layer.kind.as<Input>() != nullptr) continue;
    const std::vector<Shape> shapes = input_shapes(network, id);
    for (const Region& region : parts_of(network, id, groups, batch)) {
      const PartGradients contribution =
          backward(part_input(network, id, shapes, region, step, parameters, batch, zigzag),
                   step.gradients[l].piece(region));
      for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
        if (!trains[layer.inputs[i].index()]) continue;
        step.gradients[layer.inputs[i].index()].add(contribution.activations[i]);
      }
      for (std::size_t p = 0; p < layer.parameters.size(); ++p) {
        step.weight_gradients[layer.parameters[p].index()].add(contribution.parameters[p]);
      }
    }
  }
  step.weights = parameters;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    for (std::size_t e = 0; e < parameters[p].values().size(); ++e) {
      step.weights[p].values()[e] -= learning_rate * step.weight_gradients[p].values()[e];
    }
  }
  return step;
}

}  // namespace parsim::testing
