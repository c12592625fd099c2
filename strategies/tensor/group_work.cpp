#include "strategies/tensor/group_work.hpp"

#include <algorithm>
#include <utility>

namespace parsim::strategies::tensor {

bool held_whole(const std::vector<Cut>& cuts) {
  return cuts.empty() || cuts[0].dim == Dim::replica || cuts[0].dim == Dim::in_channel;
}

bool by_token(const std::vector<Cut>& cuts) { return !cuts.empty() && cuts[0].dim == Dim::token; }

Part part_of(const Network& network, LayerId id, const std::vector<Cut>& cuts, std::int64_t samples,
             std::int32_t zigzag) {
  LayerPlan plan{cuts, {DeviceId{0}}, {}, false, {}};  // of the first part alone, the largest
  plan.zigzag = zigzag;
  const std::vector<Cell> parts = cells(network, id, plan, samples);
  return parts.empty() ? Part{} : parts[0].part;
}

double exchange_time(const StrategyInput& input, const std::vector<std::vector<Consumer>>& readers,
                     const std::vector<std::vector<Cut>>& cuts, LayerId id, std::int64_t samples,
                     std::span<const DeviceId> group, std::int64_t parts) {
  const Layer& layer = input.network[id];
  if (group.size() < 2 || layer.kind.as<Input>() != nullptr) return 0;
  const std::vector<Cut>& own = cuts[id.index()];
  const Bytes payload{layer.out.elements() * samples * element_bytes(input.precision) / parts};
  bool parts_read = false, all_read = false, tokens_read = false;
  for (const Consumer& reader : readers[id.index()]) {
    if (input.network[reader.layer].kind.as<Loss>() != nullptr) continue;  // as it lies
    const Dim dim = cuts[reader.layer.index()][0].dim;
    if (dim == Dim::token && held_whole(own)) {
      tokens_read = true;
    } else if (!(dim == Dim::token && own[0].dim == Dim::token)) {
      (dim == Dim::replica ? all_read : parts_read) = true;
    }
  }
  double time = 0;
  const auto add = [&](CollectiveKind kind) {
    time += input.cost.collective(kind, group, payload).count();
  };
  const auto scatter_and_gather = [&] {
    add(CollectiveKind::reduce_scatter);
    add(CollectiveKind::all_gather);
  };
  if (own[0].dim == Dim::in_channel && tokens_read) scatter_and_gather();
  if (own[0].dim == Dim::in_channel && !tokens_read) add(CollectiveKind::all_reduce);
  if (held_whole(own) && parts_read) add(CollectiveKind::all_reduce);
  if (by_token(own) && (parts_read || all_read)) {
    scatter_and_gather();
    add(CollectiveKind::all_gather);  // again in backward
  }
  if (!by_token(own) && !held_whole(own) && all_read) add(CollectiveKind::all_gather);
  return time;
}

double ExposedExchange::next_to(double time, double exchange, bool product, bool held_whole) {
  if (chunks_ < 2) return exchange;
  double shown = exchange / chunks_;  // by the first chunk
  waiting_ += exchange - shown;
  if (product) waiting_ -= std::min(waiting_, time);
  if (product && held_whole) shown += std::exchange(waiting_, 0);
  return shown;
}

}  // namespace parsim::strategies::tensor
