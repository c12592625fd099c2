#include "experiment/communication.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/files.hpp"
#include "core/text.hpp"
#include "experiment/files.hpp"
#include "sim/nccl.hpp"

namespace parsim::experiment {

CollectiveFile collective_file(const std::string& given) {
  constexpr std::string_view where = "--collective-times";
  const std::size_t colon = given.find(':');
  if (colon == std::string::npos || file_exists(given)) return {given, {}};
  const std::string prefix = given.substr(0, colon);
  const std::size_t comma = prefix.find(',');
  CollectiveFile file{given.substr(colon + 1), {}};
  file.hint.kind = parse_spelling<CollectiveKind>(prefix.substr(0, comma), where);
  if (comma != std::string::npos) {
    constexpr std::int64_t most = 1'000'000;
    file.hint.ranks =
        static_cast<std::int32_t>(parse_whole(prefix.substr(comma + 1), where, 2, most));
  }
  return file;
}

std::vector<sim::CollectiveTable> read_collective_times(const std::vector<std::string>& given) {
  std::vector<sim::CollectiveTable> all;
  for (const std::string& text : given) {
    const CollectiveFile file = collective_file(text);
    const std::string content = read_file(file.path, "--collective-times");
    sim::add_tables(all, sim::read_collective_tables(content, file.path, file.hint));
  }
  return all;
}

std::string assumed_machines(const sim::CommunicationSources& sources) {
  if (sources.assumed.empty()) return {};
  return fmt::format(
      "--collective-times does not say on how many machines {} was measured (columns nodes or "
      "gpus_per_node): taken as on these",
      join(sources.assumed));
}

std::vector<std::string> communication_warnings(const RunResult& result) {
  if (!result.communication) return {};
  const sim::CommunicationSources& sources = *result.communication;
  std::vector<std::string> warnings;
  if (!sources.lacking.empty()) {
    warnings.push_back(fmt::format("{}: no measured times of {}: NCCL's model instead",
                                   result.strategy, join(sources.lacking)));
  }
  if (const std::string assumed = assumed_machines(sources); !assumed.empty()) {
    warnings.push_back(fmt::format("{}: {}", result.strategy, assumed));
  }
  if (sources.refused > 0) {
    warnings.push_back(fmt::format("{}: {} of {} collectives do not obey {}: {}", result.strategy,
                                   sources.refused, sources.collectives, sources.flag,
                                   sources.reason));
  }
  return warnings;
}

namespace {

/// AMD's own library has NCCL's algorithms; no measurements of it are built in.
std::string library_name(const Cluster& cluster) {
  const bool amd = std::any_of(cluster.models.begin(), cluster.models.end(), [](const auto& model) {
    const std::string& type = model.measured_type();
    return type.starts_with("mi") && type.size() > 2 && type[2] >= '0' && type[2] <= '9';
  });
  return amd ? "RCCL (with constants borrowed from NCCL)" : "NCCL";
}

}  // namespace

std::string communication_model(const sim::SimOptions& options, const Cluster& cluster) {
  const std::string library = library_name(cluster);
  const auto collectives = [&]() -> std::string {
    // NCCL's cost model prices whole collectives, not their messages.
    if (options.fidelity == sim::Fidelity::p2p)
      return "point-to-point messages without NCCL's costs";
    const std::string version =
        options.nccl_version ? " " + sim::to_text(*options.nccl_version) : std::string();
    switch (options.collectives) {
      case sim::CollectiveCost::ideal:
        return "ideal collectives";
      case sim::CollectiveCost::nccl:
        return fmt::format("{} collectives", library + version);
      case sim::CollectiveCost::measured:
        return fmt::format("measured collectives, others by {}", library + version);
    }
    return {};
  };
  const std::string_view detail = options.fidelity == sim::Fidelity::hops    ? " hop by hop"
                                  : options.fidelity == sim::Fidelity::macro ? " as one flow each"
                                                                             : "";
  return fmt::format("{}{}, {}", collectives(), detail, sim::simulated_by(options));
}

std::string communication_line(const Experiment& experiment, std::span<const RunResult> results) {
  if (experiment.request.sim.collectives != sim::CollectiveCost::measured) return {};
  std::vector<std::string> strategies;
  for (const RunResult& result : results) {
    if (!result.communication) continue;
    const sim::CommunicationSources& sources = *result.communication;
    std::vector<std::string> parts;
    for (const auto& [share, origin] :
         {std::pair{sources.measured, "measured"}, std::pair{sources.library, "NCCL's model"},
          std::pair{sources.links, "links"}}) {
      if (share > 0) parts.push_back(fmt::format("{} % {}", three_digits(100 * share), origin));
    }
    if (parts.empty()) parts.emplace_back("none");
    strategies.push_back(fmt::format("{} {}", result.strategy, join(parts, " + ")));
  }
  return fmt::format("communication, by its time alone: {}", join(strategies));
}

void check_algorithm_used(const Request& request, std::span<const RunResult> results) {
  if (!request.sim.algorithm && !request.sim.protocol) return;
  const sim::CommunicationSources* refused = nullptr;
  for (const RunResult& result : results) {
    if (!result.communication) continue;
    if (result.communication->refused < result.communication->collectives) return;
    if (result.communication->refused > 0 && refused == nullptr) refused = &*result.communication;
  }
  if (refused != nullptr) throw InputError(refused->flag, refused->reason, refused->accepted);
  throw InputError(request.sim.algorithm ? "--algorithm" : "--protocol",
                   "unused: no plan has a collective",
                   "accepted: with a strategy and a cluster that need collectives");
}

}  // namespace parsim::experiment
