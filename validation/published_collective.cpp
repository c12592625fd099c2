#include "validation/published_collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "core/timeline.hpp"
#include "experiment/calibration.hpp"
#include "experiment/collective.hpp"
#include "experiment/options.hpp"
#include "validation/measurements.hpp"
#include "validation/published_machines.hpp"
#include "validation/published_training.hpp"

namespace parsim::validation {

namespace {

constexpr std::pair<std::string_view, CollectiveKind> collective_spellings[] = {
    {"all_reduce", CollectiveKind::all_reduce},
    {"all_gather", CollectiveKind::all_gather},
    {"reduce_scatter", CollectiveKind::reduce_scatter},
    {"broadcast", CollectiveKind::broadcast},
    {"reduce", CollectiveKind::broadcast},  // the same messages the other way round
    {"all_to_all", CollectiveKind::all_to_all},
    {"alltoall", CollectiveKind::all_to_all}};

/// The value that NCCL's environment variables spell in capitals and without dashes: "NVLSTREE".
template <class Enum>
Enum nccl_value(std::string_view text, const std::string& where) {
  std::vector<std::string> accepted;
  for (const std::string_view spelled : spellings_of<Enum>()) {
    std::string& word = accepted.emplace_back();
    for (const char c : spelled) {
      if (c != '-') word += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    if (word == text) return static_cast<Enum>(accepted.size() - 1);
  }
  experiment::refuse_word(text, where, accepted);
}

}  // namespace

std::optional<CollectiveKind> collective_of(const Claim& claim) {
  if (column(claim, "collective") == "send_receive") return std::nullopt;
  return experiment::parse_word(column(claim, "collective"), claim.set + ":collective",
                                collective_spellings);
}

sim::SimOptions library_options(const Claim& claim) {
  const std::string text = column(claim, "settings"), where = claim.set + ":settings";
  sim::SimOptions options = default_nccl_options(claim);
  options.terms.without = column(claim, "machine");
  for (const std::string_view setting : split_at_blanks(text)) {
    std::string word(setting);
    std::transform(word.begin(), word.end(), word.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    const std::size_t equal = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equal);
    const std::string value = word.substr(std::min(equal + 1, word.size()));
    if (name == "NCCL_ALGO") {
      options.algorithm = nccl_value<sim::NcclAlgorithm>(value, where);
    } else if (name == "NCCL_PROTO") {
      options.protocol = nccl_value<sim::NcclProtocol>(value, where);
    } else {
      throw InputError(
          where, fmt::format("unknown setting '{}'", word),
          "accepted: NCCL_ALGO=RING|TREE|NVLS|NVLSTREE|PAT, NCCL_PROTO=LL|LL128|SIMPLE");
    }
  }
  return options;
}

PublishedCollective::PublishedCollective(const Claim& claim)
    : kind_(collective_of(claim)),
      cluster_(cluster_of(claim)),
      devices_(devices_of(cluster_, DeviceKind::gpu)) {
  if (devices_.size() < 2) {
    throw InputError(location_of(claim, "n_gpus"), "a collective of one GPU",
                     "accepted: the number of GPUs that take part, 2 or more");
  }
  // Whole elements for every rank: the smallest rows have less than one element per rank.
  const auto grain = static_cast<std::int64_t>(4 * devices_.size());
  size_ = {(count_column(claim, "size_bytes", grain) + grain - 1) / grain * grain};
}

double PublishedCollective::estimated(const sim::SimOptions& options) const {
  // Cost models take the bytes that travel in all, which for an all-to-all are more than its size.
  const auto others = static_cast<std::int64_t>(devices_.size()) - 1;
  if (!kind_) {
    const auto cost = sim::make_tile_costs(cluster_, options);
    return cost->transfer(devices_.front(), devices_.back(), size_).count();
  }
  const Bytes payload = kind_ == CollectiveKind::all_to_all ? others * size_ : size_;
  return sim::make_tile_costs(cluster_, options)->collective(*kind_, devices_, payload).count();
}

std::vector<Claim> uncalibrated_collectives(const std::vector<Claim>& claims) {
  constexpr std::int64_t least_bytes = 64 * 1024 * 1024;
  std::vector<Claim> rows;
  for (const Claim& claim : claims) {
    if (claim.quantity != "collective-time" || split_of(claim) != Split::validate) continue;
    if (count_column(claim, "size_bytes", 1) < least_bytes) continue;
    Claim again = claim;
    again.set += "_uncalibrated";
    again.what[std::string(uncalibrated)] = "yes";
    rows.push_back(std::move(again));
  }
  return rows;
}

double PublishedCollective::naive() const {
  PublishedCollective plain = *this;
  for (Link& link : plain.cluster_.links) link.latency = std::min(link.latency, Seconds{2e-6});
  return plain.estimated({});
}

double PublishedCollective::simulated(const sim::SimOptions& options) const {
  const auto cost = sim::make_tile_costs(cluster_, options);
  const auto executor = sim::make_simgrid_executor(cluster_, *cost, options);
  const ExecDag dag = kind_ ? experiment::collective_dag(*kind_, devices_, size_)
                            : experiment::send_receive_dag(devices_, size_);
  return makespan(executor->run(dag)).count();
}

bool PublishedCollective::between() const {
  const NodeId machine = cluster_[devices_.front()].node;
  return std::any_of(devices_.begin(), devices_.end(),
                     [&](DeviceId gpu) { return cluster_[gpu].node != machine; });
}

PublishedCollective PublishedCollective::with_links(double part) const {
  PublishedCollective slower = *this;
  slower.cluster_ = experiment::with_links_between_machines(std::move(slower.cluster_), part);
  return slower;
}

experiment::StepParts PublishedCollective::parts(const sim::SimOptions& options,
                                                 double seconds) const {
  PublishedCollective empty = *this;
  empty.size_ = {static_cast<std::int64_t>(4 * devices_.size())};
  const double launch = std::min(1.0, empty.estimated(options) / seconds);
  experiment::StepParts parts{};
  parts[static_cast<std::size_t>(between() ? experiment::CostClass::between
                                           : experiment::CostClass::inside)] = 1 - launch;
  parts[static_cast<std::size_t>(experiment::CostClass::launches)] = launch;
  return parts;
}

sim::LibraryTerms fitted_terms(const std::vector<TermPoint>& points) {
  double aa = 0, ar = 0, rr = 0, ay = 0, ry = 0;
  for (const TermPoint& point : points) {
    const double a = 1 / point.measured, r = point.root / point.measured;
    const double y = 1 - point.modelled / point.measured;
    aa += a * a;
    ar += a * r;
    rr += r * r;
    ay += a * y;
    ry += r * y;
  }
  const double determinant = aa * rr - ar * ar;
  double offset = 0, root = 0;
  if (determinant > 1e-12 * aa * rr) {
    offset = (ay * rr - ry * ar) / determinant;
    root = (ry * aa - ay * ar) / determinant;
  }
  if (offset < 0 || root < 0 || determinant <= 1e-12 * aa * rr) {
    // On the border: the better of the two with one term only.
    const double only_offset = std::max(0.0, ay / aa), only_root = std::max(0.0, ry / rr);
    const auto gain = [](double x, double xx, double xy) { return 2 * x * xy - x * x * xx; };
    const bool by_offset = gain(only_offset, aa, ay) >= gain(only_root, rr, ry);
    offset = by_offset ? only_offset : 0;
    root = by_offset ? 0 : only_root;
  }
  return {Seconds{offset}, Seconds{root}, {}};
}

}  // namespace parsim::validation
