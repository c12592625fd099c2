#include "strategies/tensor/degrees.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "strategies/blocks.hpp"
#include "strategies/experts.hpp"
#include "strategies/stages.hpp"

namespace parsim::strategies::tensor {

namespace {

/// Groups share a layer over the fastest links only: within a machine, or few devices.
constexpr std::size_t most_tensor_degree = 8;

std::size_t largest_machine(const StrategyInput& input, const std::vector<DeviceId>& devices) {
  std::vector<std::size_t> count(input.cluster.nodes.size());
  for (const DeviceId device : devices) ++count[input.cluster[device].node.index()];
  return *std::max_element(count.begin(), count.end());
}

/// "--tp 5 --pp 3": the degrees that the input asks for.
std::string asked_degrees(const StrategyInput& input) {
  std::vector<std::string> asked;
  const auto add = [&](std::string_view flag, const std::optional<std::int32_t>& number) {
    if (number) asked.push_back(fmt::format("{} {}", flag, *number));
  };
  add("--tp", input.tensor_parallel);
  add("--pp", input.pipeline_parallel);
  add("--dp", input.data_parallel);
  add("--cp", input.context_parallel);
  add("--ep", input.expert_parallel);
  add("--etp", input.expert_tensor_parallel);
  if (input.virtual_pipeline > 1) add("--vp", input.virtual_pipeline);
  return join(asked, " ");
}

[[noreturn]] void refuse(const StrategyInput& input, const std::string& found,
                         const std::string& accepted) {
  throw InputError("strategy 'tensor'", asked_degrees(input) + found, "accepted: " + accepted);
}

/// Throws for the first condition that the degrees fail which the input asks for; those that it
/// leaves open are as small as can be.
[[noreturn]] void refuse(const StrategyInput& input, const std::vector<DeviceId>& devices) {
  const auto number = [](const std::optional<std::int32_t>& asked) {
    return static_cast<std::size_t>(asked.value_or(1));
  };
  const std::size_t tensor = number(input.tensor_parallel);
  const std::size_t context = number(input.context_parallel);
  const std::size_t replicas = number(input.data_parallel);
  const auto chunks = static_cast<std::size_t>(input.virtual_pipeline);
  const std::size_t stages =
      chunks > 1 && !input.pipeline_parallel ? 2 : number(input.pipeline_parallel);
  const std::size_t each = tensor * context, needed = each * stages * replicas;
  if (needed > devices.size()) {
    refuse(input,
           fmt::format(" need {} of {} devices{}", needed, devices.size(),
                       chunks > 1 && !input.pipeline_parallel ? " for two stages or more" : ""),
           fmt::format("degrees whose product is at most {}", devices.size()));
  }
  if (!has_heads_for(input, tensor, context)) {
    std::int64_t heads = 0;
    for (const Layer& layer : input.network.layers) {
      if (const auto* attention = layer.kind.as<Attention>()) heads = attention->key_heads;
    }
    refuse(input,
           fmt::format(" with --cp-comm a2a: {} does not divide {}", each,
                       counted(heads, "key/value head")),
           "--tp times --cp divides the key/value heads");
  }
  if (!splits_experts_as_asked(input, tensor, context)) {
    refuse(input, fmt::format(" on {} devices", devices.size()),
           "--etp that is --tp, or 1 if each device has slots of every expert");
  }
  const std::size_t groups = in_groups(input, devices, tensor, context).size() / each;
  if (groups < stages * replicas) {
    refuse(input,
           fmt::format(" need {} groups of {} devices of a machine, and there are {}",
                       stages * replicas, each, groups),
           fmt::format("--pp times --dp of at most {}, or other groups", groups));
  }
  const std::size_t units = units_of(input.network, input.granularity).size();
  const std::size_t layers = input.network.layers.size();
  if (units < stages * chunks) {
    const std::size_t blocks = first_layers_of_blocks(input.network).size();
    const bool by_layer = units == layers;
    refuse(input,
           fmt::format(" make {} stages of {}", stages * chunks,
                       by_layer ? counted(static_cast<std::int64_t>(layers), "layer")
                                : counted(static_cast<std::int64_t>(blocks), "block") +
                                      (units > blocks ? ", embedding and head" : "")),
           fmt::format("at most {} stages{}{}", units, chunks > 1 ? ", --pp times --vp" : "",
                       by_layer ? "" : fmt::format(", or {} with --granularity layer", layers)));
  }
  if (input.expert_parallel) {
    StrategyInput any = input;
    any.expert_parallel.reset();
    std::set<std::size_t> ways;
    for (const ParallelDegrees& one : all_degrees(any, devices)) ways.insert(one.experts);
    refuse(input,
           fmt::format(": the experts cannot be divided among {}",
                       counted(*input.expert_parallel, "neighbour")),
           fmt::format("--ep {}", fmt::join(ways, ", ")));
  }
  refuse(input,
         fmt::format(" on {} devices with {}", devices.size(),
                     input.micro_batches ? counted(*input.micro_batches, "micro-batch")
                                         : fmt::format("batch {}", input.batch)),
         "with --vp two stages or more, and a batch that divides into a multiple of them as "
         "micro-batches");
}

/// Numbers of micro-batches worth a look, as long as every replica has a sample: those of
/// pipelines, and, because smaller ones need less memory, every half of them down to one sample
/// each. Of model chunks only multiples of the stages.
std::set<std::int32_t> numbers_of(const StrategyInput& input, std::size_t stages,
                                  std::size_t replicas) {
  const auto count = static_cast<std::int32_t>(stages);
  const bool interleaved = input.virtual_pipeline > 1;
  const auto possible = [&](std::int32_t number) { return !interleaved || number % count == 0; };
  if (input.micro_batches && !possible(*input.micro_batches)) return {};
  if (input.micro_batches) return {*input.micro_batches};
  std::set<std::int32_t> numbers = numbers_of_micro_batches(input.batch, stages);
  for (std::int32_t more = count; interleaved && more <= 16 * count; more *= 2) {
    if (input.batch % more == 0) numbers.insert(more);
  }
  const auto each = static_cast<std::int64_t>(replicas);
  for (std::int64_t more = 2; more <= std::min(input.batch / each, most_micro_batches); more *= 2) {
    if (input.batch % more == 0) numbers.insert(static_cast<std::int32_t>(more));
  }
  std::erase_if(numbers, [&](std::int32_t number) { return !possible(number); });
  return numbers;
}

/// Model chunks of a device: as many as asked for, or, where stages are of blocks and not in GPipe,
/// powers of two, if they may be chosen; each chunk has a unit.
std::vector<std::size_t> chunk_numbers(const StrategyInput& input, std::size_t stages,
                                       std::size_t units) {
  constexpr std::size_t most_chunks = 8;
  const auto asked = static_cast<std::size_t>(input.virtual_pipeline);
  if (asked > 1 && (stages < 2 || stages * asked > units)) return {};
  if (asked > 1) return {asked};
  std::vector<std::size_t> numbers{1};
  const bool blocks = units != input.network.layers.size();
  const bool ordered = input.schedule == PipelineSchedule::gpipe;
  if (!input.searches_chunks || stages < 2 || !blocks || ordered) return numbers;
  for (std::size_t number = 2; number <= most_chunks && number * stages <= units; number *= 2) {
    numbers.push_back(number);
  }
  return numbers;
}

std::set<std::int32_t> divisors_of(std::int64_t batch) {
  std::set<std::int32_t> divisors;
  for (std::int64_t number = 1; number <= std::min(batch, most_micro_batches); ++number) {
    if (batch % number == 0) divisors.insert(static_cast<std::int32_t>(number));
  }
  return divisors;
}

}  // namespace

std::vector<DeviceId> in_groups(const StrategyInput& input, const std::vector<DeviceId>& devices,
                                std::size_t tensor, std::size_t context) {
  const std::size_t largest = largest_machine(input, devices);
  if (tensor > largest) return devices;
  const std::size_t degree = tensor * context > largest ? tensor : tensor * context;
  std::map<NodeId, std::vector<DeviceId>> of_machine;
  std::vector<DeviceId> grouped;
  for (const DeviceId device : devices) {
    std::vector<DeviceId>& group = of_machine[input.cluster[device].node];
    group.push_back(device);
    if (group.size() < degree) continue;
    grouped.insert(grouped.end(), group.begin(), group.end());
    group.clear();
  }
  return grouped;
}

std::vector<std::vector<DeviceId>> device_orders(const StrategyInput& input,
                                                 const std::vector<DeviceId>& devices) {
  std::vector<std::vector<DeviceId>> orders{devices};
  const auto speed = [&](DeviceId device) {
    return input.cluster.model(device).peak_at(input.precision).value;
  };
  for (const bool fastest_first : {true, false}) {
    std::vector<DeviceId> order = devices;
    std::stable_sort(order.begin(), order.end(), [&](DeviceId a, DeviceId b) {
      return fastest_first ? speed(a) > speed(b) : speed(a) < speed(b);
    });
    const bool known = std::find(orders.begin(), orders.end(), order) != orders.end();
    if (!known) orders.push_back(std::move(order));
  }
  return orders;
}

std::vector<ParallelDegrees> all_degrees(const StrategyInput& input,
                                         const std::vector<DeviceId>& devices) {
  const std::size_t most = std::max(most_tensor_degree, largest_machine(input, devices));
  const std::size_t units = units_of(input.network, input.granularity).size();
  const std::size_t count = devices.size();
  std::vector<ParallelDegrees> all;
  const auto worth_a_look = [](std::size_t number, const std::optional<std::int32_t>& asked,
                               std::size_t of) {
    return asked ? number == static_cast<std::size_t>(*asked) : of % number == 0;
  };
  for (std::size_t ways = 1; ways <= count; ++ways) {
    if (!worth_a_look(ways, input.tensor_parallel, count) ||
        (!input.tensor_parallel && ways > most))
      continue;
    const auto context = static_cast<std::size_t>(input.context_parallel.value_or(1));
    if (!has_heads_for(input, ways, context) || !splits_experts_as_asked(input, ways, context))
      continue;
    const std::size_t groups = in_groups(input, devices, ways, context).size() / (ways * context);
    const auto chunks = static_cast<std::size_t>(input.virtual_pipeline);
    const std::size_t fewest = chunks > 1 ? 2 : 1;
    for (std::size_t stages = fewest; stages <= std::min(groups, units / chunks); ++stages) {
      if (!worth_a_look(stages, input.pipeline_parallel, groups)) continue;
      const std::size_t most_replicas = groups / stages;
      const auto replicas = static_cast<std::size_t>(
          input.data_parallel.value_or(static_cast<std::int32_t>(most_replicas)));
      if (replicas > most_replicas) continue;
      const std::set<std::int32_t> numbers = numbers_of(input, stages, replicas);
      for (const std::int32_t number : numbers) {
        const bool feeds_all = input.batch / number >= static_cast<std::int64_t>(replicas);
        if (feeds_all || number == *numbers.begin())
          for (const std::size_t experts : expert_degrees(input, replicas, ways, context))
            all.push_back({ways, stages, replicas, number, chunks, experts, context});
      }
    }
  }
  if (all.empty()) refuse(input, devices);
  return all;
}

std::vector<ParallelDegrees> every_degrees(const StrategyInput& input,
                                           const std::vector<DeviceId>& devices) {
  constexpr std::size_t few_devices = 16, few_divisors = 16;
  const std::size_t units = units_of(input.network, input.granularity).size();
  const std::size_t count = devices.size();
  const std::set<std::int32_t> divisors = divisors_of(input.batch);
  const bool all_divisors = !input.micro_batches && divisors.size() <= few_divisors;
  const auto tried = [&](std::size_t number, const std::optional<std::int32_t>& asked,
                         std::size_t of) {
    if (asked) return number == static_cast<std::size_t>(*asked);
    return count <= few_devices || of % number == 0;
  };
  const std::size_t most = std::max(most_tensor_degree, largest_machine(input, devices));
  struct Shape {
    std::size_t ways, context, stages, chunks, groups;
  };
  std::vector<Shape> shapes;
  const std::vector<std::size_t> contexts = context_degrees(input, count);
  std::vector<ParallelDegrees> every;
  for (std::size_t ways = 1; ways <= count; ++ways) {
    if (!tried(ways, input.tensor_parallel, count)) continue;
    if (!input.tensor_parallel && ways > most) break;
    for (const std::size_t context : contexts) {
      if (!has_heads_for(input, ways, context) || !splits_experts_as_asked(input, ways, context))
        continue;
      const std::size_t groups = in_groups(input, devices, ways, context).size() / (ways * context);
      for (std::size_t stages = 1; stages <= std::min(groups, units); ++stages) {
        if (!tried(stages, input.pipeline_parallel, groups)) continue;
        for (const std::size_t chunks : chunk_numbers(input, stages, units))
          shapes.push_back({ways, context, stages, chunks, groups});
      }
    }
  }
  for (const auto& [ways, context, stages, chunks, groups] : shapes) {
    for (std::size_t replicas = 1; replicas <= groups / stages; ++replicas) {
      const bool whole = replicas == groups / stages;
      const bool wanted = input.data_parallel
                              ? replicas == static_cast<std::size_t>(*input.data_parallel)
                              : whole || count <= few_devices;
      if (!wanted) continue;
      for (const std::int32_t number :
           all_divisors ? divisors : numbers_of(input, stages, replicas)) {
        const bool feeds_all = input.batch / number >= static_cast<std::int64_t>(replicas);
        const bool in_turns = chunks == 1 || static_cast<std::size_t>(number) % stages == 0;
        if (!feeds_all || !in_turns) continue;
        for (const std::size_t experts : expert_degrees(input, replicas, ways, context))
          every.push_back({ways, stages, replicas, number, chunks, experts, context});
      }
    }
  }
  return every;
}

std::string note_of(const ParallelDegrees& degrees) {
  const auto chunks = static_cast<std::int64_t>(degrees.chunks);
  return fmt::format(
      "tensor {}{} x pipeline {} x data {}{}, {}{}", degrees.tensor,
      degrees.context > 1 ? fmt::format(" x context {}", degrees.context) : "", degrees.pipeline,
      degrees.data, degrees.experts > 1 ? fmt::format(" (experts {})", degrees.experts) : "",
      counted(degrees.micro_batches, "micro-batch"),
      chunks > 1 ? fmt::format(", {} a device", counted(chunks, "model chunk")) : "");
}

}  // namespace parsim::strategies::tensor
