#include "experiment/precision.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"

namespace parsim::experiment {

void check_fp8(const Cluster& cluster, Precision precision, const std::string& where) {
  if (!multiplies_in_fp8(precision)) return;
  for (const DeviceModel& model : cluster.models) {
    if (model.kind != DeviceKind::gpu || model.fp8_peak.value > 0) continue;
    throw InputError(
        where,
        fmt::format("'{}' on {}, which does not multiply in FP8", to_text(precision), model.name),
        "accepted there: fp32, tf32, fp16, bf16; FP8 on GPUs with an fp8 rate in docs/cli.md "
        "(Ada, Hopper, Blackwell, MI300X)");
  }
}

Precision fastest_precision(const Cluster& cluster) {
  const auto peak = [&](Precision precision) {
    double sum = 0;
    for (const DeviceId gpu : devices_of(cluster, DeviceKind::gpu)) {
      sum += cluster.model(gpu).peak_at(precision).value;
    }
    return sum;
  };
  Precision fastest = Precision::fp32;
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    if (peak(precision) > peak(fastest)) fastest = precision;
  }
  return fastest;
}

std::vector<std::string> precision_warnings(const Cluster& cluster, Precision precision) {
  constexpr double much_faster = 2;
  std::vector<std::string> warnings;
  for (const DeviceModel& model : cluster.models) {
    if (model.kind != DeviceKind::gpu) continue;
    const FlopsPerSecond peak = model.peak_at(precision), fp16 = model.peak_at(Precision::fp16);
    if (peak.value <= 0) {
      warnings.push_back(fmt::format("{} has no {} arithmetic: its times are those of fp32",
                                     model.name, to_text(precision)));
    }
    if (precision == Precision::bf16 && fp16.value > much_faster * peak.value) {
      warnings.push_back(fmt::format("{} has no tensor cores for bf16: at most {}, with fp16 {}",
                                     model.name, to_text(peak), to_text(fp16)));
    }
  }
  return warnings;
}

std::vector<std::string> profile_warnings(const Profile& profile, const std::string& file,
                                          const Cluster& cluster, Precision precision) {
  std::vector<std::string> warnings;
  for (const DeviceModel& model : cluster.models) {
    const auto samples = [&](auto wanted) {
      return std::any_of(profile.kernels.begin(), profile.kernels.end(),
                         [&](const KernelSample& sample) {
                           return sample.device == model.name && wanted(sample.precision);
                         });
    };
    if (!samples([](Precision) { return true; })) continue;  // of another GPU, which is refused
    if (samples([&](Precision own) { return own == precision; })) continue;
    warnings.push_back(fmt::format("{}: no kernels of {} in {}: they take the model's times", file,
                                   model.name, to_text(precision)));
  }
  return warnings;
}

}  // namespace parsim::experiment
