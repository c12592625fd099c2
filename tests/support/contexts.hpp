// Plans that divide tokens among devices, and experts among those and replicas.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "networks/networks.hpp"
#include "strategies/blocks.hpp"
#include "strategies/layout.hpp"
#include "strategies/price.hpp"

namespace parsim::testing {

/// A language model of 8 tokens, small enough for the interpreter.
[[nodiscard]] inline Network eight_tokens(const std::string& options, std::size_t layers = 2) {
  return networks::load_network(
      fmt::format("gpt:layers={},hidden=8,heads=4,seq_length=8,vocab_size=5,ffn_hidden=6,{}",
                  layers, options),
      {}, "test");
}

struct TokenDegrees {
  std::size_t tensor = 1, context = 2, data = 1, pipeline = 1, experts = 1;
  bool whole = false;  ///< experts in tensor groups
  std::int32_t chunks = 1;

  [[nodiscard]] std::string text() const {
    return fmt::format("tp {} cp {} dp {} pp {} ep {}{} vp {}", tensor, context, data, pipeline,
                       experts, whole ? " etp 1" : "", chunks);
  }
};

/// The plan of so many devices; `input` gets what it asks for.
[[nodiscard]] inline Plan token_plan(strategies::StrategyInput& input,
                                     const TokenDegrees& degrees) {
  input.context_parallel = static_cast<std::int32_t>(degrees.context);
  input.expert_parallel = static_cast<std::int32_t>(degrees.experts);
  input.expert_tensor_parallel = degrees.whole ? 1 : static_cast<std::int32_t>(degrees.tensor);
  input.virtual_pipeline = degrees.chunks;
  std::vector<std::size_t> first = strategies::first_layers_of_blocks(input.network);
  first.resize(degrees.pipeline * static_cast<std::size_t>(degrees.chunks));
  first[0] = 0;
  const std::size_t group = degrees.tensor * degrees.context;
  std::vector<DeviceId> devices;
  for (std::size_t d = 0; d < group * degrees.data * degrees.pipeline; ++d) devices.emplace_back(d);
  const strategies::Layout layout =
      strategies::even_layout(first, group, degrees.data, devices, degrees.chunks);
  return strategies::with_memory_options(input, strategies::plan_layout(input, layout));
}

}  // namespace parsim::testing
