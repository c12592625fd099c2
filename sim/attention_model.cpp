#include "sim/attention_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "core/csv.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
#include "sim/embedded.hpp"

namespace parsim::sim {

namespace {

std::vector<AttentionModel> read_attention_models() {
  constexpr std::string_view path = "sim/attention_models.csv";
  const auto files = sim_files();
  const auto file = std::find_if(files.begin(), files.end(),
                                 [&](const EmbeddedFile& one) { return one.path == path; });
  ensure(file != files.end(), "the models of attention are embedded");
  const CsvTable table = read_csv(file->text, std::string(path));
  std::vector<AttentionModel> all;
  for (const CsvTable::Row& row : table.rows) {
    const auto number = [&](std::string_view column) { return table.number(row, column); };
    all.push_back({table.at(row, "gpu"), table.at(row, "kernel"), number("architecture"),
                   number("level"), number("backward"), number("narrow"), number("forward_keys"),
                   number("backward_keys"), number("masked_keys"), number("mean_percent") / 100,
                   number("p90_percent") / 100});
  }
  return all;
}

}  // namespace

const std::vector<AttentionModel>& attention_models() {
  static const std::vector<AttentionModel> all = read_attention_models();
  return all;
}

AttentionRates attention_rates(const DeviceModel& device) {
  constexpr double hopper = 9.0;
  const double wanted = to_number<double>(device.architecture).value_or(hopper);
  AttentionRates nearest;
  double least = std::numeric_limits<double>::infinity();
  for (const AttentionModel& model : attention_models()) {
    if (model.device == device.name) return {&model, Origin::modelled};
    // Of one generation first: 8.9 is nearer to 8.0 than to 9.0.
    constexpr double another_generation = 10;
    const double distance =
        std::abs(model.architecture - wanted) +
        (std::floor(model.architecture) == std::floor(wanted) ? 0 : another_generation);
    if (distance >= least) continue;
    least = distance;
    nearest.model = &model;
  }
  ensure(nearest.model != nullptr, "the table of attention has rows");
  return nearest;
}

Seconds attention_time(const AttentionModel& model, const Kernel& kernel, double peak,
                       int multiprocessors) {
  constexpr double wide = 128, block = 128;
  const auto channels = static_cast<double>(kernel.n);
  // narrow(64) = (128 + x) / (2 · (64 + x)), solved for x.
  const double offset = wide * (1 - model.narrow) / (2 * model.narrow - 1);
  const double narrow =
      channels >= wide ? 1 : channels * (wide + offset) / (wide * (channels + offset));
  const double once = (kernel.backwards ? model.backward_keys : model.forward_keys) +
                      (kernel.masked ? model.masked_keys : 0);
  const double rate = peak * model.level * narrow * (kernel.backwards ? model.backward : 1);
  const double blocks =
      static_cast<double>(kernel.batches) * std::ceil(static_cast<double>(kernel.m) / block);
  const double idle = std::max(1.0, static_cast<double>(multiprocessors) / std::max(1.0, blocks));
  return Seconds{kernel.flops / rate * (kernel.keys + once) / kernel.keys * idle};
}

}  // namespace parsim::sim
