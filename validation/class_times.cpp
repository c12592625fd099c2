#include "validation/class_times.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/text.hpp"

namespace parsim::validation {

namespace {

std::string class_of(const ExecDag& dag, OpId id) {
  switch (dag.kind(id)) {
    case OpKind::compute: {
      const Compute op = std::get<Compute>(dag.op(id));
      return std::string(kind_name(dag.network[dag.work(op.work).layer].kind));
    }
    case OpKind::update:
      return "update";
    case OpKind::local:
      return "copy";
    case OpKind::transfer:
      return "transfer";
    case OpKind::collective:
      return std::string(to_text(static_cast<CollectiveKind>(dag.record(id).sub)));
    case OpKind::delay:
      break;
  }
  return "delay";
}

}  // namespace

ClassTimes class_times(const ExecDag& dag, const Timeline& predicted, const Timeline& measured) {
  ClassTimes times;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    auto& [mine, theirs] = times[class_of(dag, OpId{i})];
    mine += predicted.spans[i].end - predicted.spans[i].start;
    theirs += measured.spans[i].end - measured.spans[i].start;
  }
  return times;
}

std::string largest_gap(const ClassTimes& times) {
  std::string worst;
  Seconds gap{};
  for (const auto& [name, both] : times) {
    const Seconds here{std::abs((both.first - both.second).count())};
    if (here <= gap) continue;
    gap = here;
    worst = fmt::format("{} ({})", name, signed_percent((both.first - both.second) / both.second));
  }
  return worst;
}

}  // namespace parsim::validation
