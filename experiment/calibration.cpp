#include "experiment/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/attention.hpp"
#include "sim/sim.hpp"

namespace parsim::experiment {

namespace {

double middle_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/// The rows that are nearest to the run: of its network, of its kind, or all.
std::vector<const FittedStep*> nearest(const std::vector<const FittedStep*>& rows,
                                       const Network& network) {
  const bool attends = attention_of(network).has_value();
  std::vector<const FittedStep*> same, alike;
  for (const FittedStep* row : rows) {
    if (row->network == network.name) same.push_back(row);
    if (row->attends == attends) alike.push_back(row);
  }
  if (!same.empty()) return same;
  return alike.empty() ? rows : alike;
}

/// Those with the samples of a GPU that the run has, else all.
std::vector<const FittedStep*> of_batch(const std::vector<const FittedStep*>& rows,
                                        double samples) {
  std::vector<const FittedStep*> same;
  for (const FittedStep* row : rows) {
    if (samples > 0 && std::abs(row->samples - samples) < 1e-6 * samples) same.push_back(row);
  }
  return same.empty() ? rows : same;
}

std::string named(const FittedStep& row) { return fmt::format("{}:{}", row.set, row.name); }

/// Repeated runs differ by some 2.5 % (validation/measurements/README.md), rows of several batches
/// by more.
constexpr double disagreement = 1.2;

/// The same of a collective: published runs of one size differ by less.
constexpr double collective_disagreement = 1.3;

/// Half-width of 90 % of the values around the one that is used, in logarithms, beyond that of two
/// that are just `alike`.
double half_width(const std::vector<double>& values, double used, double alike) {
  constexpr double deviations_to_95 = 1.6449;
  double square = 0;
  for (const double value : values) square += std::pow(std::log(value / used), 2);
  square = square / static_cast<double>(values.size()) - std::pow(std::log(alike) / 2, 2);
  return values.empty() ? 0 : deviations_to_95 * std::sqrt(std::max(0.0, square));
}

void note_disagreement(const std::string& device, const std::vector<const FittedStep*>& rows,
                       std::size_t medians, double used, bool wider,
                       std::vector<std::string>& notes) {
  const auto [least, most] = std::minmax_element(
      rows.begin(), rows.end(),
      [](const FittedStep* a, const FittedStep* b) { return a->kernels < b->kernels; });
  if ((*most)->kernels < disagreement * (*least)->kernels) return;
  notes.push_back(
      fmt::format("measured rows of {} disagree: kernels take {:.3g} times as long as modelled by "
                  "{}, and {:.3g} times by {}; the median of {}, {:.3g}, is used{}",
                  device, (*least)->kernels, named(**least), (*most)->kernels, named(**most),
                  counted(static_cast<std::int64_t>(medians), "row"), used,
                  wider ? ", and intervals are wider" : ""));
}

void note_power(const DeviceModel& model, const FittedStep& row, std::vector<std::string>& notes) {
  const std::optional<Watts>& own = model.upkeep.power;
  if (!row.power || !own || *row.power == *own) return;
  notes.push_back(
      *row.power < *own
          ? fmt::format("{}: measured on a card limited to {}, but {} of the run has {}: a row "
                        "without the limit fits better",
                        named(row), to_text(*row.power), model.name, to_text(*own))
          : fmt::format("{}: measured on a card of {}, but {} of the run is limited to {}: if the "
                        "row's was, too, it needs power_limit = {}",
                        named(row), to_text(*row.power), model.name, to_text(*own), to_text(*own)));
}

/// nearest() takes rows of another kind only where there are no others.
void note_kind(const Network& network, const FittedStep& row, std::vector<std::string>& notes) {
  const bool attends = attention_of(network).has_value();
  if (row.attends == attends) return;
  notes.push_back(fmt::format("{}: a step of {}, which says little of the kernels of {}",
                              named(row), row.attends ? "a transformer" : "no transformer",
                              attends ? "a transformer" : "other networks"));
}

std::string texts_of(const std::vector<FittedStep>& rows) {
  std::set<std::string> texts;
  for (const FittedStep& row : rows) {
    if (row.collective) texts.insert(fmt::format("collectives on {}", row.device));
    if (row.collective) continue;
    texts.insert(fmt::format("{} in {}", row.device, to_text(row.precision)));
  }
  return join(std::vector<std::string>(texts.begin(), texts.end()));
}

bool has_several_machines(const Cluster& cluster) {
  const std::vector<DeviceId> gpus = devices_of(cluster, DeviceKind::gpu);
  return std::any_of(gpus.begin(), gpus.end(),
                     [&](DeviceId gpu) { return cluster[gpu].node != cluster[gpus.front()].node; });
}

/// Rows of the same collective that contradict each other get a note. Returns those of them that
/// fit the launch.
std::vector<double> note_contradictions(const std::vector<FittedStep>& rows,
                                        std::vector<std::string>& notes) {
  std::map<std::string, std::vector<const FittedStep*>> alike;
  for (const FittedStep& row : rows) {
    if (row.collective) alike[row.run].push_back(&row);
  }
  std::vector<double> launches;
  for (const auto& [run, same] : alike) {
    const auto [least, most] = std::minmax_element(
        same.begin(), same.end(),
        [](const FittedStep* a, const FittedStep* b) { return a->measured < b->measured; });
    if ((*most)->measured < (*least)->measured * collective_disagreement) continue;
    notes.push_back(fmt::format(
        "measured rows of one collective disagree, {}: {} by {}, and {} by {}; medians are "
        "used",
        run, to_text((*least)->measured), named(**least), to_text((*most)->measured),
        named(**most)));
    for (const FittedStep* row : same) {
      if (row->launch) launches.push_back(row->launch->count());
    }
  }
  return launches;
}

/// A link's kind, unless it is guessed.
std::optional<LinkKind> given_kind(const Link& link) {
  return link.kind_guessed ? std::nullopt : link.kind;
}

std::vector<std::size_t> links_between_machines(const Cluster& cluster) {
  const auto node_of = [&](const Port& port) {
    const auto index = static_cast<std::size_t>(port.index);
    return port.kind == Port::Kind::device ? cluster.devices[index].node
                                           : cluster.switches[index].node;
  };
  std::vector<std::size_t> found;
  for (std::size_t l = 0; l < cluster.links.size(); ++l) {
    const NodeId a = node_of(cluster.links[l].a), b = node_of(cluster.links[l].b);
    if (a != b || !a.valid()) found.push_back(l);
  }
  return found;
}

/// Whether a share fitted on the row's links counts for those of a kind.
bool counts_for(const FittedStep& row, const std::optional<LinkKind>& kind) {
  return row.links && (!row.kind || !kind || *row.kind == *kind);
}

/// Each kind of links between machines takes the median over the rows that count for it. Rows that
/// count for none lose their share, and a kind without rows gets a note.
void set_links(const Cluster& cluster, RunCalibration& calibration) {
  calibration.links.assign(cluster.links.size(), 1.0);
  if (!has_several_machines(cluster)) return;
  std::map<std::optional<LinkKind>, std::vector<std::size_t>> kinds;
  for (const std::size_t l : links_between_machines(cluster)) {
    kinds[given_kind(cluster.links[l])].push_back(l);
  }
  std::vector<bool> used(calibration.by.size(), false);
  for (const auto& [kind, links] : kinds) {
    std::vector<double> shares;
    std::set<std::string_view> others;
    for (std::size_t i = 0; i < calibration.by.size(); ++i) {
      const FittedStep& row = calibration.by[i];
      if (counts_for(row, kind)) shares.push_back(*row.links);
      used[i] = used[i] || counts_for(row, kind);
      if (row.links && row.kind) others.insert(to_text(*row.kind));
    }
    if (!shares.empty()) {
      const double share = middle_of(shares);
      calibration.link_spread =
          std::max(calibration.link_spread, half_width(shares, share, collective_disagreement));
      for (const std::size_t l : links) calibration.links[l] = share;
    } else if (!others.empty()) {
      calibration.notes.push_back(fmt::format(
          "rows across machines were measured on {}, and their share of its rate is not used for "
          "{} "
          "of the run",
          join(std::vector<std::string>(others.begin(), others.end()), " and "), to_text(*kind)));
    }
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) calibration.by[i].links.reset();
  }
}

/// Adds what collectives on the cluster's GPUs say: the launch, and shares of links.
void add_collectives(const std::vector<FittedStep>& rows, const Cluster& cluster,
                     RunCalibration& calibration) {
  const bool several = has_several_machines(cluster);
  const auto applies = [&](const FittedStep& row) {
    const std::vector<DeviceId> gpus = devices_of(cluster, DeviceKind::gpu);
    return row.collective && std::any_of(gpus.begin(), gpus.end(), [&](DeviceId gpu) {
             const DeviceModel& model = cluster.model(gpu);
             return row.device == model.name || row.device == model.measured_type();
           });
  };
  const bool alike = std::any_of(rows.begin(), rows.end(), [&](const FittedStep& row) {
    return applies(row) && row.launch && row.between == several;
  });
  std::vector<double> launches;
  std::int64_t useless = 0;
  for (const FittedStep& row : rows) {
    if (!applies(row)) continue;
    const bool launch = row.launch && (!alike || row.between == several);
    const bool of_links = row.links && several;
    if (launch) launches.push_back(row.launch->count());
    useless += launch || of_links ? 0 : 1;
    if (launch || of_links) calibration.by.push_back(row);
  }
  if (!launches.empty()) calibration.launch = Seconds{middle_of(std::move(launches))};
  std::vector<double> contradicting = note_contradictions(calibration.by, calibration.notes);
  constexpr double least = 1e-6;  // s: what the model misses of a launch can be 0
  for (double& launch : contradicting) launch = std::max(launch, least);
  if (!contradicting.empty()) {
    calibration.launch_spread = half_width(
        contradicting, std::max(least, calibration.launch->count()), collective_disagreement);
  }
  if (useless == 0) return;
  calibration.notes.push_back(fmt::format(
      "{} of --calibrate-with fit nothing: the launch is fitted to up to 64 KiB, links between "
      "machines to 64 MiB and more, of runs on several machines that links bound",
      counted(useless, "collective")));
}

}  // namespace

std::vector<const FittedStep*> rows_of_kernels(std::vector<const FittedStep*> rows) {
  constexpr double alike = 0.05;  // repeated runs differ by more than shares this close
  double most = 0, fewest = std::numeric_limits<double>::infinity();
  for (const FittedStep* row : rows) most = std::max(most, row->share);
  std::erase_if(rows, [&](const FittedStep* row) { return row->share < most - alike; });
  for (const FittedStep* row : rows) fewest = std::min(fewest, row->gpus);
  std::erase_if(rows, [&](const FittedStep* row) { return row->gpus > fewest; });
  return rows;
}

RunCalibration calibration_of(const std::vector<FittedStep>& rows, const Network& network,
                              Precision precision, const Cluster& cluster, std::int64_t batch) {
  RunCalibration calibration;
  const double samples =
      static_cast<double>(batch) / static_cast<double>(devices_of(cluster, DeviceKind::gpu).size());
  calibration.kernels.assign(cluster.devices.size(), 1.0);
  calibration.every_gpu = true;
  std::vector<double> hosts, counts, missed;
  std::vector<std::string> wanted;
  for (std::size_t m = 0; m < cluster.models.size(); ++m) {
    const DeviceModel& model = cluster.models[m];
    std::vector<std::size_t> devices;
    for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
      if (&cluster.model(DeviceId{d}) == &model) devices.push_back(d);
    }
    if (model.kind != DeviceKind::gpu || devices.empty()) continue;
    wanted.push_back(model.name);
    std::vector<const FittedStep*> of_model;
    for (const std::string& name : {model.name, model.measured_type()}) {
      for (const FittedStep& row : rows) {
        const bool fits = !row.collective && row.precision == precision;
        if (fits && row.device == name) of_model.push_back(&row);
      }
      if (!of_model.empty()) break;  // its own rows before those of the type it is described from
    }
    if (of_model.empty()) {
      calibration.every_gpu = false;
      continue;
    }
    std::vector<double> factors;
    const std::vector<const FittedStep*> counting = nearest(of_model, network);
    for (const FittedStep* row : counting) {
      note_power(model, *row, calibration.notes);
      factors.push_back(row->kernels);
      if (row->fitted > Seconds{0}) missed.push_back(row->fitted / row->measured);
      if (row->host) hosts.push_back(*row->host);
      if (row->host) counts.push_back(row->devices);
      calibration.by.push_back(*row);
    }
    note_kind(network, *counting.front(), calibration.notes);
    std::vector<double> used;
    for (const FittedStep* row : rows_of_kernels(of_batch(counting, samples))) {
      used.push_back(row->kernels);
    }
    const double factor = middle_of(used);
    const double width = half_width(factors, factor, disagreement);
    calibration.kernel_spread = std::max(calibration.kernel_spread, width);
    note_disagreement(model.name, counting, used.size(), factor, width > 0, calibration.notes);
    for (const std::size_t d : devices) calibration.kernels[d] = factor;
  }
  add_collectives(rows, cluster, calibration);
  if (calibration.by.empty()) {
    throw InputError("--calibrate-with",
                     fmt::format("no row of {} in {}, only of {}", join(wanted, " or "),
                                 to_text(precision), texts_of(rows)),
                     "accepted: measured steps on the type of GPU and in the precision of the run");
  }
  set_links(cluster, calibration);
  // One fit has all rows of a job across machines: what it misses may be kernels or links.
  const double width = half_width(missed, 1, disagreement);
  calibration.kernel_spread = std::max(calibration.kernel_spread, width);
  calibration.link_spread = std::max(calibration.link_spread, width);
  if (!hosts.empty()) calibration.host = middle_of(hosts);
  if (!counts.empty()) calibration.devices = middle_of(counts);
  return calibration;
}

Spreads run_spreads(const std::optional<RunCalibration>& calibration) {
  Spreads spread = spreads(calibration && calibration->every_gpu);
  if (!calibration) return spread;
  spread.kernels = calibration->kernel_spread;
  spread.links = calibration->link_spread;
  spread.launches = calibration->launch_spread;
  return spread;
}

void check_calibrated_costs(const RunCalibration& calibration, const std::string& costs,
                            const std::string& profile, Seconds launch_interval) {
  const auto refuse = [](const std::string& found, const std::string& accepted) {
    throw InputError("--calibrate-with", found, "accepted: " + accepted);
  };
  const bool steps = std::any_of(calibration.by.begin(), calibration.by.end(),
                                 [](const FittedStep& row) { return !row.collective; });
  if (!steps) return;
  const std::string usual = sim::cost_sources().front().name;
  if (costs != usual) {
    refuse(fmt::format("rows correct the costs '{}', not '{}'", usual, costs), "one of the two");
  }
  if (launch_interval > Seconds{0}) {
    refuse("given together with --launch-interval, but rows are predicted without it",
           "one of the two");
  }
  for (const FittedStep& row : calibration.by) {
    std::error_code none;
    if (row.collective) continue;
    if (row.profile == profile || std::filesystem::equivalent(row.profile, profile, none)) continue;
    if (profile.empty()) {
      refuse(fmt::format("the row '{}' corrects the times of {}", row.name, row.profile),
             fmt::format("together with --profile {}", row.profile));
    }
    refuse(fmt::format("given together with --profile, whose times the row '{}' does not correct",
                       row.name),
           "one of the two, or rows whose column profile names that file, of layer times");
  }
}

std::vector<std::string> calibration_warnings(const RunCalibration& calibration,
                                              sim::Fusion fusion) {
  constexpr double most = 5;                 // where the fit of a run ends
  constexpr Seconds longest_launch{500e-6};  // of the systems of core/measured_links.cpp: 86 us
  std::vector<std::string> warnings = calibration.notes;
  for (const FittedStep& row : calibration.by) {
    if (row.launch.value_or(Seconds{}) > longest_launch) {
      warnings.push_back(
          fmt::format("{}: a launch of {}, more than any measured system takes; "
                      "check its unit of time and its size",
                      named(row), to_text(*row.launch)));
    }
    const bool slowest = row.links && *row.links < 1.001 / most;
    if (slowest) {
      warnings.push_back(fmt::format(
          "{}:{}: links between machines reach {:.3g} of their rate, where the fit ends; check the "
          "row's cluster",
          row.set, row.name, *row.links));
    }
    if (row.collective && row.fitted > row.measured * collective_disagreement) {
      warnings.push_back(
          fmt::format("{}: {} is less than {}, what its links' whole rate takes; check its unit of "
                      "time and its "
                      "interconnect",
                      named(row), to_text(row.measured), to_text(row.fitted)));
    }
    if (row.collective) continue;
    const double ratio = row.fitted > Seconds{0} ? row.fitted / row.measured : 1;
    if (std::max(ratio, 1 / ratio) > disagreement && !slowest) {
      warnings.push_back(
          fmt::format("{}: {} measured, but the fit to all rows of its job gives {}: the rows "
                      "disagree, or its interconnect or unit of time is wrong; intervals are "
                      "wider",
                      named(row), to_text(row.measured), to_text(row.fitted)));
    }
    if (row.memory > 1) {
      warnings.push_back(
          fmt::format("{}: as predicted it needs {:.0f} % of its GPU's memory; check "
                      "its batch, zero_stage, recompute, tp and pp",
                      named(row), 100 * row.memory));
    }
    if (row.fusion != fusion) {
      warnings.push_back(fmt::format("{}: predicted with --fusion {}, and the run with --fusion {}",
                                     named(row), to_text(row.fusion), to_text(fusion)));
    }
    constexpr double rounding = 1.001;  // the fit sums logarithms
    if (row.kernels > rounding / most && row.kernels < most / rounding) continue;
    warnings.push_back(
        fmt::format("{}:{}: kernels of {} take {:.3g} times as long as modelled, where the fit "
                    "ends, and the row "
                    "is missed; check its unit of time, batch, precision and GPU",
                    row.set, row.name, row.device, row.kernels));
  }
  return warnings;
}

Cluster with_links_between_machines(Cluster cluster, double part) {
  for (const std::size_t l : links_between_machines(cluster)) cluster.links[l].rate.value *= part;
  return cluster;
}

Cluster with_link_shares(Cluster cluster, const std::vector<double>& shares) {
  for (std::size_t l = 0; l < shares.size(); ++l) cluster.links[l].rate.value *= shares[l];
  return cluster;
}

std::optional<LinkKind> kind_between_machines(const Cluster& cluster) {
  std::set<std::optional<LinkKind>> kinds;
  for (const std::size_t l : links_between_machines(cluster)) {
    kinds.insert(given_kind(cluster.links[l]));
  }
  return kinds.size() == 1 ? *kinds.begin() : std::nullopt;
}

}  // namespace parsim::experiment
