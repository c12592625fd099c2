#include "sim/operator_rates.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "core/errors.hpp"
#include "sim/embedded_table.hpp"

namespace parsim::sim {

namespace {

constexpr std::array<std::string_view, operators> operator_names{"other",
                                                                 "activation",
                                                                 "add",
                                                                 "mul",
                                                                 "copy",
                                                                 "dropout",
                                                                 "bias",
                                                                 "sum_rows",
                                                                 "batch_norm",
                                                                 "layer_norm",
                                                                 "rms_norm",
                                                                 "group_norm",
                                                                 "softmax",
                                                                 "cross_entropy",
                                                                 "embedding",
                                                                 "max_pool",
                                                                 "avg_pool",
                                                                 "global_avg_pool",
                                                                 "cat",
                                                                 "transpose",
                                                                 "sgd",
                                                                 "depthwise_forward",
                                                                 "depthwise_data",
                                                                 "depthwise_weights",
                                                                 "depthwise_other_forward",
                                                                 "depthwise_other_data",
                                                                 "depthwise_other_weights"};

/// By operator, then forward and backward.
using OperatorRates = std::array<std::array<std::optional<OperatorRate>, 2>, operators>;

OperatorRates read_operator_rates() {
  const CsvTable table = embedded_table("sim/operator_rates.csv");
  OperatorRates rates;
  for (const CsvTable::Row& row : table.rows) {
    const auto name =
        std::find(operator_names.begin(), operator_names.end(), table.at(row, "operator"));
    ensure(name != operator_names.end(), "sim/operator_rates.csv names operators of the enum");
    auto& both = rates[static_cast<std::size_t>(name - operator_names.begin())];
    both[table.at(row, "pass") == "backward" ? 1 : 0] =
        OperatorRate{table.number(row, "overhead_us") * 1e-6, table.number(row, "memory_share"),
                     table.number(row, "step_ps") * 1e-12};
  }
  return rates;
}

}  // namespace

const OperatorRate* operator_rate(Operator op, bool backwards) {
  static const OperatorRates rates = read_operator_rates();
  const auto& rate = rates[static_cast<std::size_t>(op)][backwards ? 1 : 0];
  return rate ? &*rate : nullptr;
}

Seconds operator_time(const OperatorRate& rate, const Kernel& kernel, std::int64_t element_bytes,
                      double memory, std::int64_t multiprocessors) {
  const double by_memory = kernel.bytes(element_bytes) / (rate.memory_share * memory);
  const double by_steps = kernel.steps * rate.step / static_cast<double>(multiprocessors);
  return Seconds{rate.overhead * kernel.launches + std::max(by_memory, by_steps)};
}

}  // namespace parsim::sim
