// Tiny language models with mixtures of experts, and plans that divide the experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/dag_traffic.hpp"
#include "core/exec_dag.hpp"
#include "networks/networks.hpp"
#include "strategies/blocks.hpp"
#include "strategies/layout.hpp"
#include "strategies/price.hpp"

namespace parsim::testing {

/// A language model whose loss is of its first word: what the interpreter can compute.
[[nodiscard]] inline Network tiny_moe(const std::string& options, std::size_t layers = 2,
                                      const std::string& widths = "hidden=8,ffn_hidden=6") {
  Network net =
      networks::load_network("gpt:layers=" + std::to_string(layers) +
                                 ",heads=4,seq_length=4,vocab_size=6," + widths + "," + options,
                             {}, "test");
  net.layers.pop_back();
  const LayerId first =
      add_layer(net, "first", Slicing{0, 0, 1, 1}, {LayerId{net.layers.size() - 1}});
  add_layer(net, "loss", Loss{}, {add_layer(net, "vector", Flatten{}, {first})});
  return net;
}

struct ExpertDegrees {
  std::size_t tensor = 1, data = 1, pipeline = 1, experts = 1;
  bool whole = false;  ///< experts in tensor groups
};

/// The plan of so many devices; `input` gets what it asks for.
[[nodiscard]] inline Plan mixture_plan(strategies::StrategyInput& input,
                                       const ExpertDegrees& degrees) {
  input.expert_parallel = static_cast<std::int32_t>(degrees.experts);
  if (degrees.whole) input.expert_tensor_parallel = 1;
  std::vector<std::size_t> first = strategies::first_layers_of_blocks(input.network);
  first.resize(degrees.pipeline);
  std::vector<DeviceId> devices;
  for (std::size_t d = 0; d < degrees.tensor * degrees.data * degrees.pipeline; ++d) {
    devices.emplace_back(d);
  }
  const strategies::Layout layout =
      strategies::even_layout(first, degrees.tensor, degrees.data, devices);
  return strategies::with_memory_options(input, strategies::plan_layout(input, layout));
}

/// The all-to-alls of a plan's DAG and what they bring.
[[nodiscard]] inline std::pair<std::int64_t, std::int64_t> all_to_alls(const ExecDag& dag) {
  std::int64_t count = 0, bytes = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* collective = std::get_if<Collective>(&op);
    if (collective == nullptr || collective->kind != CollectiveKind::all_to_all) continue;
    ++count;
    bytes += bytes_received(dag, OpId{i}).value;
  }
  return {count, bytes};
}

}  // namespace parsim::testing
