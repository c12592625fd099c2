#include "lowering/gradient_flow.hpp"

#include <algorithm>

namespace parsim::lowering {

GradientFlow gradient_flow(const Network& network) {
  const std::size_t count = network.layers.size();
  GradientFlow flow;
  for (std::vector<bool>* facts :
       {&flow.source, &flow.reaches_loss, &flow.wants, &flow.passes_on, &flow.two_kernels}) {
    facts->assign(count, false);
  }
  for (std::size_t l = count; l-- > 0;) {
    if (network.layers[l].kind.as<Loss>() != nullptr) flow.reaches_loss[l] = true;
    if (!flow.reaches_loss[l]) continue;
    for (const LayerId input : network.layers[l].inputs) flow.reaches_loss[input.index()] = true;
  }
  for (std::size_t l = 0; l < count; ++l) {
    const Layer& layer = network.layers[l];
    const auto wanted = [&](LayerId input) { return flow.wants[input.index()]; };
    const bool behind = std::any_of(layer.inputs.begin(), layer.inputs.end(), wanted);
    flow.source[l] = layer.kind.as<Input>() != nullptr;
    flow.wants[l] = flow.reaches_loss[l] && (behind || !layer.parameters.empty());
    flow.passes_on[l] = flow.reaches_loss[l] && behind;
    flow.two_kernels[l] = layer.kind.as<Conv>() != nullptr || layer.kind.as<Dense>() != nullptr ||
                          layer.kind.as<ExpertDense>() != nullptr ||
                          layer.kind.as<Embedding>() != nullptr ||
                          layer.kind.as<Learned>() != nullptr;
  }
  return flow;
}

std::vector<Pass> passes_of(const Network& network, const GradientFlow& flow, LayerId layer) {
  const std::size_t l = layer.index();
  if (flow.source[l]) return {};
  if (!flow.wants[l]) return {Pass::forward};
  if (!flow.two_kernels[l]) return {Pass::forward, Pass::backward};
  std::vector<Pass> passes{Pass::forward};
  if (flow.passes_on[l]) passes.push_back(Pass::backward_data);
  if (!network[layer].parameters.empty()) passes.push_back(Pass::backward_weights);
  return passes;
}

}  // namespace parsim::lowering
