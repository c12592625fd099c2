#include "core/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/cost_model.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"

namespace parsim {

Spread spread_of(std::vector<Seconds> times) {
  ensure(!times.empty(), "a spread has samples");
  std::sort(times.begin(), times.end());
  const std::size_t n = times.size();
  const auto at = [&](double share) {
    return times[static_cast<std::size_t>(std::llround(share * static_cast<double>(n - 1)))];
  };
  const Seconds middle = n % 2 == 1 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
  constexpr std::size_t least = 5;  // fewer say nothing of a spread
  return {middle, n < least ? middle : at(0.25), n < least ? middle : at(0.75),
          static_cast<std::int64_t>(n)};
}

std::string difference(const Machine& profile, const Machine& here) {
  if (profile.backend != here.backend) {
    return fmt::format("backend {}, here {}", profile.backend, here.backend);
  }
  if (profile.name != here.name) return fmt::format("{}, here {}", profile.name, here.name);
  const auto version_of = [](const Machine& machine, const std::string& name) -> std::string {
    for (const Version& version : machine.versions) {
      if (version.name == name) return version.version;
    }
    return "none";
  };
  for (const Machine* machine : {&profile, &here}) {
    for (const Version& version : machine->versions) {
      const std::string one = version_of(profile, version.name);
      const std::string other = version_of(here, version.name);
      if (one != other) return fmt::format("{} {}, here {}", version.name, one, other);
    }
  }
  return {};
}

Bytes touched_bytes(const ExecDag& dag, OpId id) {
  if (dag.kind(id) != OpKind::update) return dag.payload(id);
  return update_traffic(dag.payload(id).value / element_bytes(dag.precision), dag.optimizer,
                        dag.reduce_precision);
}

BytesPerSecond CommonMemory::rate() const {
  BytesPerSecond all{};
  for (const MemoryPart& part : parts) all.value += rate_together(part).value;
  return all;
}

bool CommonMemory::limits() const {
  return std::any_of(parts.begin(), parts.end(), [](const MemoryPart& part) {
    return part.together.low > part.alone.high && part.alone.median > Seconds{};
  });
}

Bytes message_traffic(const ExecDag& dag, OpId id) {
  const Bytes payload = dag.payload(id);
  const Op op = dag.op(id);
  if (const auto* transfer = std::get_if<Transfer>(&op)) return (transfer->add ? 3 : 2) * payload;
  const auto& collective = std::get<Collective>(op);
  const auto n = static_cast<std::int64_t>(dag.group(collective.group).size());
  switch (collective.kind) {
    case CollectiveKind::all_reduce:
      return 2 * n * payload;  // all members' buffers are read and written
    case CollectiveKind::reduce_scatter:
      return (n + 2) * payload;  // all members' buffers are read, and added to one each
    case CollectiveKind::all_gather:
    case CollectiveKind::broadcast:
      return 2 * (n - 1) * payload;
    case CollectiveKind::all_to_all:
      break;
  }
  return 2 * payload;
}

std::vector<DeviceId> movers(const ExecDag& dag, OpId id) {
  const OpRecord& record = dag.record(id);
  if (dag.kind(id) == OpKind::transfer) return {DeviceId{record.to}};
  return dag.group(GroupId{record.device});
}

namespace {

using Signature = std::vector<std::int64_t>;

void put_text(Signature& to, const std::string& text) {
  to.push_back(static_cast<std::int64_t>(text.size()));
  to.insert(to.end(), text.begin(), text.end());
}
void put_windows(Signature& to, const std::vector<Window>& windows) {
  for (const Window& w : windows) {
    to.insert(to.end(), {w.kernel, w.stride, w.dilation});
  }
}
/// The members of a kind that a kernel's time depends on and that its operands' extents do not say.
void put_kind(Signature& to, const LayerKind& kind) {
  to.push_back(static_cast<std::int64_t>(kind.value.index()));
  if (const auto* conv = kind.as<Conv>()) {
    put_windows(to, conv->windows);
    to.push_back(conv->groups);
    to.push_back(conv->bias ? 1 : 0);
  } else if (const auto* dense = kind.as<Dense>()) {
    to.push_back(dense->bias ? 1 : 0);
  } else if (const auto* pool = kind.as<Pool>()) {
    to.push_back(static_cast<std::int64_t>(pool->kind));
    put_windows(to, pool->windows);
  } else if (const auto* norm = kind.as<Norm>()) {
    to.insert(to.end(), {static_cast<std::int64_t>(norm->kind), norm->affine ? 1 : 0, norm->size});
  } else if (const auto* activation = kind.as<Activation>()) {
    put_text(to, activation->function);
  } else if (const auto* combine = kind.as<Combine>()) {
    put_text(to, combine->function);
  } else if (const auto* reduce = kind.as<Reduce>()) {
    put_text(to, reduce->function);
  } else if (const auto* rearrange = kind.as<Rearrange>()) {
    put_text(to, rearrange->what);
  } else if (const auto* experts = kind.as<ExpertDense>()) {
    to.push_back(experts->bias ? 1 : 0);
  } else if (const auto* attention = kind.as<Attention>()) {
    to.insert(to.end(), {attention->heads, attention->key_heads, attention->causal ? 1 : 0});
    if (attention->window > 0) to.push_back(attention->window);
  } else if (const auto* concat = kind.as<HeadConcat>()) {
    to.push_back(concat->heads);
  }
}
void put_extents(Signature& to, const Region& region) {
  to.push_back(static_cast<std::int64_t>(region.rank()));
  for (std::size_t a = 0; a < region.rank(); ++a) to.push_back(region[a].size());
}

}  // namespace

std::optional<Activity> kernel_activity(const ExecDag& dag, OpId id) {
  const OpRecord& record = dag.record(id);
  switch (dag.kind(id)) {
    case OpKind::update:
    case OpKind::local:
      return Activity::memory;
    case OpKind::transfer:
      if (record.device == record.to) return Activity::memory;
      return std::nullopt;
    case OpKind::collective:
    case OpKind::delay:
      return std::nullopt;
    case OpKind::compute:
      break;
  }
  const WorkId work{record.what};
  const LayerId layer = dag.work(work).layer;
  const LayerKind& kind = dag.network[layer].kind;
  const std::vector<Shape> shapes = input_shapes(dag.network, layer);
  if (forward_flops(kind, shapes, dag.network[layer].out, dag.part(work)).value <= 0) {
    return Activity::memory;
  }
  const auto* conv = kind.as<Conv>();
  const bool reuses_nothing =
      conv != nullptr && conv->groups > 1 && conv->groups == shapes[0].axes[0].extent;
  return reuses_nothing ? Activity::memory : Activity::tensor;
}

Interference interference_of(const std::vector<InterferenceSample>& samples) {
  Interference interference;
  for (std::size_t pair = 0; pair < interference_pairs.size(); ++pair) {
    std::vector<double> ratios;
    for (const InterferenceSample& sample : samples) {
      if (sample.pair != pair) continue;
      const bool slower = sample.during.low > sample.alone.high && sample.alone.median > Seconds{};
      ratios.push_back(slower ? sample.during.median / sample.alone.median : 1);
    }
    if (ratios.empty()) continue;
    std::sort(ratios.begin(), ratios.end());
    const std::size_t n = ratios.size();
    const double middle = (ratios[(n - 1) / 2] + ratios[n / 2]) / 2;
    interference.set(interference_pairs[pair].activity, interference_pairs[pair].during, middle);
  }
  return interference;
}

std::string to_text(const InterferencePair& pair) {
  return std::string(to_text(pair.activity)).append("/").append(to_text(pair.during));
}

std::string settings_of(const ExecDag& dag) {
  const Precision sums = dag.reduce_precision;
  return fmt::format(
      "batch {}, {}{}, {}", dag.batch, to_text(dag.precision),
      sums == storage_of(dag.precision) ? "" : fmt::format(" (sums in {})", to_text(sums)),
      to_text(dag.optimizer));
}

std::optional<double> compute_capability(const DeviceModel& model) {
  return to_number<double>(model.architecture);
}

std::vector<std::int64_t> kernel_signature(const LayerKind& kind, const std::vector<Shape>& inputs,
                                           const Shape& out, const Part& part, Pass pass,
                                           Precision precision) {
  // The passes that compute the same share their times.
  if (pass == Pass::recompute) pass = Pass::forward;
  Signature signature{static_cast<std::int64_t>(pass), static_cast<std::int64_t>(precision)};
  put_kind(signature, kind);
  put_extents(signature, part.out);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    put_extents(signature, input_region(kind, inputs, out, i, part));
  }
  signature.push_back(part.contraction.size());
  if (part.zigzag > 0) signature.push_back(-part.zigzag);
  if (const auto* experts = kind.as<ExpertDense>()) {
    constexpr double steps = 1e6;  // the busiest expert's part takes longer than an equal one
    signature.push_back(std::llround(steps * tokens_over_average(*experts, out, part)));
  }
  return signature;
}

}  // namespace parsim
