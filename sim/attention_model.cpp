#include "sim/attention_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include "core/csv.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
#include "sim/embedded_table.hpp"

namespace parsim::sim {

namespace {

std::vector<AttentionModel> read_attention_models() {
  const CsvTable table = embedded_table("sim/attention_models.csv");
  std::vector<AttentionModel> all;
  for (const CsvTable::Row& row : table.rows) {
    const auto number = [&](std::string_view column) { return table.number(row, column); };
    all.push_back({table.at(row, "gpu"), table.at(row, "kernel"), number("architecture"),
                   number("level"), number("backward"), number("narrow"), number("masked"),
                   number("forward_keys"), number("backward_keys"), number("masked_keys"),
                   number("mean_percent") / 100, number("p90_percent") / 100});
  }
  return all;
}

}  // namespace

const std::vector<AttentionModel>& attention_models() {
  static const std::vector<AttentionModel> all = read_attention_models();
  return all;
}

namespace {

constexpr std::string_view reference = "a100-sxm4-80";

/// As the table calls a kernel that is none of the automatic ones, from Ampere on.
std::string_view name_of(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::automatic:
      return "FlashAttention-2";
    case AttentionKernel::flash1:
    case AttentionKernel::triton:
      return "FlashAttention-1";
    case AttentionKernel::xformers:
      return "xformers";
  }
  throw BrokenInvariant("an attention kernel outside its enum");
}

/// A row of a card and one of those kernels.
const AttentionModel* find(std::string_view device, std::string_view kernel) {
  const std::string both = std::string(device) + " with " + std::string(kernel);
  for (const AttentionModel& model : attention_models()) {
    if (model.device == both || (model.device == device && model.kernel == kernel)) return &model;
  }
  return nullptr;
}

/// A row that the automatic choice leaves alone.
bool is_optional(const AttentionModel& model) {
  return model.kernel == name_of(AttentionKernel::flash1);
}

AttentionRates automatic_rates(const DeviceModel& device) {
  constexpr double hopper = 9.0;
  const double wanted = to_number<double>(device.architecture).value_or(hopper);
  AttentionRates nearest;
  double least = std::numeric_limits<double>::infinity();
  for (const AttentionModel& model : attention_models()) {
    if (is_optional(model)) continue;
    if (model.device == device.measured_type()) return {model, Origin::modelled};
    // Of one generation first: 8.9 is nearer to 8.0 than to 9.0.
    constexpr double another_generation = 10;
    const double distance =
        std::abs(model.architecture - wanted) +
        (std::floor(model.architecture) == std::floor(wanted) ? 0 : another_generation);
    if (distance >= least) continue;
    least = distance;
    nearest.model = model;
  }
  ensure(nearest.model.has_value(), "the table of attention has rows");
  return nearest;
}

}  // namespace

AttentionRates attention_rates(const DeviceModel& device, AttentionKernel kernel) {
  AttentionRates automatic = automatic_rates(device);
  const std::string_view older = name_of(AttentionKernel::xformers);
  if (kernel == AttentionKernel::automatic || automatic.model->kernel == older) return automatic;
  if (const AttentionModel* own = find(device.measured_type(), name_of(kernel))) {
    return {*own, kernel == AttentionKernel::triton ? Origin::guessed : Origin::modelled};
  }
  const AttentionModel* there = find(reference, name_of(AttentionKernel::automatic));
  const AttentionModel* curve = find(reference, name_of(kernel));
  ensure(there != nullptr && curve != nullptr, "every kernel was measured on the reference");
  AttentionModel scaled = *curve;
  scaled.level *= automatic.model->level / there->level;
  return {scaled, Origin::guessed};
}

namespace {

/// Part of the rate that heads of so many channels reach.
double narrow_rate(const AttentionModel& model, std::int64_t width) {
  constexpr double wide = 128, half = 64;
  const auto channels = static_cast<double>(width);
  if (model.narrow > 1) {
    const auto padded = static_cast<double>(std::bit_ceil(static_cast<std::uint64_t>(width)));
    return channels / padded * (padded <= half ? model.narrow : 1);
  }
  if (channels >= wide) return 1;
  // narrow(64) = (128 + x) / (2 · (64 + x)), solved for x.
  const double offset = wide * (1 - model.narrow) / (2 * model.narrow - 1);
  return channels * (wide + offset) / (wide * (channels + offset));
}

/// The largest part of the rate that a part of a head reaches, for what it keeps of its scores: a
/// part of c channels computes the scores of all of them.
double most_narrow_rate(const AttentionModel& model, std::int64_t width) {
  double most = 0;
  for (std::int64_t c = 1; c <= width; ++c) {
    const auto part = static_cast<double>(c), whole = static_cast<double>(width);
    most = std::max(most, narrow_rate(model, c) * 2 * part / (whole + part));
  }
  return most;
}

/// FLOP/s of long sequences with the widest heads.
double rate_of(const AttentionModel& model, const Kernel& kernel, double peak) {
  return peak * model.level * (kernel.backwards ? model.backward : 1) *
         (kernel.masked ? model.masked : 1);
}

/// Keys that cost as much as what each block of queries does once.
double once_of(const AttentionModel& model, const Kernel& kernel) {
  const double borders = kernel.windowed ? 2 : kernel.masked ? 1 : 0;
  return (kernel.backwards ? model.backward_keys : model.forward_keys) +
         borders * model.masked_keys;
}

}  // namespace

Seconds least_attention_time(const AttentionModel& model, const Kernel& kernel, double most_keys,
                             double peak) {
  // Most steps of a ring have no mask. They do more often what is done once for a block of queries.
  // The first tokens of a window see no end of it.
  Kernel open = kernel, least = kernel;
  least.windowed = false;
  open.masked = open.windowed = false;
  const double rate = std::max(rate_of(model, kernel, peak), rate_of(model, open, peak));
  return Seconds{kernel.flops / (rate * most_narrow_rate(model, kernel.n)) *
                 (1 + once_of(model, least) / std::max(1.0, most_keys))};
}

Seconds attention_time(const AttentionModel& model, const Kernel& kernel, double peak,
                       int multiprocessors) {
  constexpr double block = 128;
  const double once = once_of(model, kernel);
  const double rate = rate_of(model, kernel, peak) * narrow_rate(model, kernel.n);
  const double blocks =
      static_cast<double>(kernel.batches) * std::ceil(static_cast<double>(kernel.m) / block);
  const double idle = std::max(1.0, static_cast<double>(multiprocessors) / std::max(1.0, blocks));
  return Seconds{kernel.flops / rate * (kernel.keys + once) / kernel.keys * idle};
}

}  // namespace parsim::sim
