#include "validation/agreeing_columns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "topologies/topologies.hpp"
#include "validation/known_columns.hpp"
#include "validation/measurements.hpp"
#include "validation/parallelism_column.hpp"
#include "validation/published_machines.hpp"
#include "validation/published_names.hpp"

namespace parsim::validation {

namespace {

/// Whether the table of devices has a model of this name, not only the user's cluster.
bool is_known(const std::string& name) {
  const auto& known = topologies::device_models();
  return std::any_of(known.begin(), known.end(),
                     [&](const DeviceModel& model) { return model.name == name; });
}

/// Whether the text says of column `ours` what an empty one does: "1" of a degree, "False" of
/// recomputation.
bool says_default(std::string_view ours, std::string_view text) {
  const auto is = [](std::string_view word, std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (is(ours, {"tp", "pp", "cp", "grad_accum"})) return text == "1";
  if (ours == "layout") return text.find_first_not_of("0123456789") == text.npos;  // of one stage
  return is(ours, {"zero_stage", "recompute"}) &&
         is(text, {"0", "no", "No", "none", "None", "false", "False", "off"});
}

}  // namespace

void check_gpu(const Claim& claim, const Cluster& cluster) {
  const std::string text = column(claim, "gpu");
  if (text.empty() || !column(claim, "layout_file").empty()) return;  // which names the devices
  std::vector<std::string> models;
  const std::vector<DeviceId> gpus = devices_of(cluster, DeviceKind::gpu);
  const bool own = std::any_of(gpus.begin(), gpus.end(),
                               [&](DeviceId gpu) { return !is_known(cluster.model(gpu).name); });
  if (own) return;
  const std::optional<std::string> named = known_gpu(claim);
  if (!named) return;
  for (const DeviceId gpu : gpus) {
    const std::string& name = cluster.model(gpu).name;
    if (name == *named) return;
    if (begins_with_name(AliasKind::device, name, text)) return;
    if (std::find(models.begin(), models.end(), name) == models.end()) models.push_back(name);
  }
  throw InputError(location_of(claim, "gpu"),
                   fmt::format("{}, but the cluster has {}", text, join(models)),
                   fmt::format("accepted: a GPU of the cluster ({})", cluster.name));
}

void check_column_names(const Claim& claim) {
  for (const OtherName& name : other_column_names()) {
    const std::string text = column(claim, name.other);
    const auto given = [&](std::string_view known) {
      return !column(claim, known).empty() || (known == "zero_stage" && zero_stage_of(claim));
    };
    if (text.empty() || says_default(name.ours.front(), text) ||
        std::any_of(name.ours.begin(), name.ours.end(), given)) {
      continue;
    }
    throw InputError(location_of(claim, name.other),
                     fmt::format("'{}' of a training step, in a column that is not read", text),
                     fmt::format("accepted: column {}", fmt::join(name.ours, " or ")));
  }
}

void check_data_parallelism(const Claim& claim, std::int64_t devices) {
  constexpr std::pair<std::string_view, std::string_view> columns[] = {{"tp", "1"},
                                                                       {"cp", "1"},
                                                                       {"pp", "1"},
                                                                       {"vp", "1"},
                                                                       {"ep", "1"},
                                                                       {"etp", "1"},
                                                                       {"grad_accum", "1"},
                                                                       {"zero_stage", "0"},
                                                                       {"recompute", "no"},
                                                                       {"layout", ""},
                                                                       {"recompute_every", "1"},
                                                                       {"sequence_parallel", "no"},
                                                                       {"pipeline_sends", ""}};
  const std::int32_t stage = zero_stage_of(claim).value_or(0);
  if (stage != 0 && column(claim, "zero_stage").empty()) {
    throw InputError(location_of(claim, "parallelism"),
                     fmt::format("'{}' is ZeRO stage {}, but without micro_batch the row is data "
                                 "parallelism",
                                 column(claim, "parallelism"), stage),
                     "accepted: with column micro_batch, the samples of a replica at once");
  }
  const auto refuse = [&](std::string_view name, std::string_view accepted) {
    throw InputError(
        location_of(claim, name),
        fmt::format("{}, but without micro_batch the row is data parallelism", column(claim, name)),
        fmt::format("accepted: {}, or with column micro_batch, the samples of a replica at once",
                    accepted.empty() ? "nothing" : accepted));
  };
  for (const auto& [name, value] : columns) {
    const std::string text = column(claim, name);
    const bool same = text.empty() || text == value || (value == "no" && text == "none");
    if (!same) refuse(name, value);
  }
  if (count_column(claim, "dp", devices) != devices) refuse("dp", fmt::format("{}", devices));
}

void check_batch(const Claim& claim, std::int64_t all) {
  const std::int64_t given = count_column(claim, "batch", all);
  if (given == all) return;
  throw InputError(location_of(claim, "batch"),
                   fmt::format("{}, but the other columns give {}", given, all),
                   "accepted: batch_per_gpu, or global_batch of all GPUs, and where micro_batch is "
                   "not all of a replica's samples grad_accum");
}

std::int64_t data_parallel_batch(const Claim& claim, std::int64_t devices) {
  const std::string each = column(claim, "batch_per_gpu");
  if (each.empty() && column(claim, "global_batch").empty()) {
    const std::string batch = column(claim, "batch");
    throw InputError(location_of(claim, batch.empty() ? "batch_per_gpu" : "batch"),
                     batch.empty() ? "a training step without its number of samples"
                                   : fmt::format("'{}' of a training step", batch),
                     "accepted: batch_per_gpu, or global_batch of all GPUs");
  }
  if (each.empty()) {
    const std::int64_t all = count_column(claim, "global_batch", 1);
    check_batch(claim, all);
    return all;
  }
  const std::int64_t of_one = count_column(claim, "batch_per_gpu", 1), batch = of_one * devices;
  if (count_column(claim, "batch", of_one) != of_one) check_batch(claim, batch);
  if (const std::int64_t other = count_column(claim, "global_batch", batch); other != batch) {
    throw InputError(
        location_of(claim, "global_batch"),
        fmt::format("{}, but {} GPUs with {} samples each have {}", other, devices, each, batch),
        "accepted: global_batch = batch_per_gpu x n_gpus");
  }
  return batch;
}

}  // namespace parsim::validation
