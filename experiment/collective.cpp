#include "experiment/collective.hpp"

#include <fmt/format.h>

#include "core/errors.hpp"
#include "experiment/checks.hpp"

namespace parsim::experiment {

namespace {

constexpr std::int64_t element = element_bytes(Precision::fp32);

/// A network of one learned tensor: what a collective of no network in particular works on.
Network one_tensor(Shape shape) {
  Network network;
  network.name = "collective";
  (void)add_layer(network, "buffer", Learned{std::move(shape)}, {});
  return network;
}

/// devices   twice of their number of bytes may be sent, and must be counted
std::int64_t checked_elements(Bytes size, std::size_t devices) {
  constexpr std::int64_t most_sent = std::int64_t{1} << 62;
  const std::int64_t most = most_sent / (2 * static_cast<std::int64_t>(devices));
  if (size.value > most) {
    throw InputError("--size", fmt::format("{} B on {} devices", size.value, devices),
                     fmt::format("accepted: at most {} B", most));
  }
  if (size.value <= 0 || size.value % element != 0) {
    throw InputError("--size", fmt::format("{} B", size.value),
                     fmt::format("accepted: a positive multiple of {} B", element));
  }
  return size.value / element;
}

}  // namespace

ExecDag collective_dag(CollectiveKind kind, std::span<const DeviceId> devices, Bytes size) {
  const auto n = static_cast<std::int64_t>(devices.size());
  const bool exchange = kind == CollectiveKind::all_to_all;
  const std::int64_t elements = checked_elements(size, devices.size());
  // Row i of an all-to-all is what device i sends, column block j what j receives.
  const Shape shape =
      exchange ? Shape{{{Dim::other, n}, {Dim::other, elements}}} : vector_shape(elements);
  ExecDag dag(one_tensor(shape), 1, Precision::fp32, Optimizer::sgd);
  dag.strategy = "collective";

  const TensorId tensor = dag.intern(Tensor{Tensor::Kind::parameter, 0, -1});
  Region all;
  if (exchange) all.push_back({0, n});
  all.push_back({0, elements});
  const RegionId region = dag.intern(all);

  Shares shares;
  const std::vector<std::int64_t> sizes = even_split(elements, devices.size());
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t end = begin + sizes[static_cast<std::size_t>(i)];
    if (exchange) {
      shares.regions.push_back(dag.intern(Region{{i, i + 1}, {0, elements}}));
      shares.needs.push_back(dag.intern(Region{{0, n}, {begin, end}}));
    } else if (kind == CollectiveKind::all_gather || kind == CollectiveKind::reduce_scatter) {
      shares.regions.push_back(dag.intern(Region{{begin, end}}));
    }
    begin = end;
  }
  const GroupId group = dag.intern(std::vector<DeviceId>(devices.begin(), devices.end()));
  const Slice slice{tensor, Role::weight_gradient, 0, region};
  (void)dag.add(Collective{kind, group, slice, slice}, shares, Stream::gradient, {});
  return dag;
}

ExecDag send_receive_dag(std::span<const DeviceId> devices, Bytes size) {
  const std::int64_t elements = checked_elements(size, devices.size());
  ExecDag dag(one_tensor(vector_shape(elements)), 1, Precision::fp32, Optimizer::sgd);
  dag.strategy = "send-receive";
  const TensorId tensor = dag.intern(Tensor{Tensor::Kind::parameter, 0, -1});
  const RegionId region = dag.intern(Region{{0, elements}});
  const Slice sent{tensor, Role::weight_gradient, 0, region};
  const Slice received{tensor, Role::weight, 0, region};
  for (std::size_t i = 0; i < devices.size(); ++i) {
    (void)dag.add(Transfer{devices[i], devices[(i + 1) % devices.size()], sent, received, false},
                  Stream::tensor, {});
  }
  return dag;
}

CollectiveTime time_collective(const ExecDag& dag, Bytes size, double factor,
                               const Laboratory& laboratory) {
  const Timeline timeline = laboratory.executor.run(dag);
  CollectiveTime row;
  row.size = size;
  row.time = makespan(timeline);
  const Durations idle = durations(dag, laboratory.cluster, laboratory.cost);
  (void)check_bounds(bounds_of(dag, laboratory.cluster, idle.times, timeline), row.time);
  const auto bytes = static_cast<double>(size.value);
  row.algorithm_rate = {bytes / row.time.count()};
  row.bus_rate = row.algorithm_rate * factor;
  return row;
}

std::vector<Bytes> parse_sizes(const std::string& text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string::npos) {
    throw InputError("--sizes", fmt::format("'{}'", text), "accepted: FROM..TO, as in 8B..8GiB");
  }
  const Bytes first = parse_bytes(text.substr(0, dots), "--sizes");
  const Bytes last = parse_bytes(text.substr(dots + 2), "--sizes");
  if (first.value <= 0 || last < first) {
    throw InputError("--sizes", fmt::format("'{}'", text), "accepted: FROM..TO with 0 < FROM ≤ TO");
  }
  std::vector<Bytes> sizes = {first};
  while (sizes.back().value <= last.value / 2) sizes.push_back(sizes.back() * std::int64_t{2});
  return sizes;
}

}  // namespace parsim::experiment
