// Between partitions of a model and plans.
#include <algorithm>
#include <map>
#include <numeric>

#include "core/errors.hpp"
#include "strategies/hypergraph/blocks.hpp"
#include "strategies/hypergraph/model.hpp"

namespace parsim::strategies::hypergraph {

namespace {

/// Joins neighbouring lines of equal devices and adds up their sizes.
void join_equal(std::vector<std::vector<DeviceId>>& lines, std::vector<std::int64_t>& sizes) {
  std::size_t kept = 0;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i] == lines[kept]) {
      sizes[kept] += sizes[i];
    } else {
      lines[++kept] = lines[i];
      sizes[kept] = sizes[i];
    }
  }
  lines.resize(kept + 1);
  sizes.resize(kept + 1);
}

std::vector<std::vector<DeviceId>> transposed(const std::vector<std::vector<DeviceId>>& lines) {
  std::vector<std::vector<DeviceId>> result(lines[0].size());
  for (const std::vector<DeviceId>& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) result[i].push_back(line[i]);
  }
  return result;
}

/// Whether neighbouring blocks together read no more than alone: a slice with a step would read
/// what it skips between them.
bool may_join(const Layer& layer) {
  const auto* slicing = layer.kind.as<Slicing>();
  return slicing == nullptr || slicing->step == 1;
}

LayerPlan layer_of(const Layer& layer, const Model& model, const std::vector<Block>& blocks,
                   const Parts& parts, const std::vector<DeviceId>& devices) {
  std::vector<std::vector<DeviceId>> columns;  // by block of channels, then of samples
  std::vector<std::int64_t> channels, samples = model.samples;
  for (const Block& block : blocks) {
    std::vector<DeviceId>& column = columns.emplace_back();
    for (std::size_t s = 0; s < samples.size(); ++s)
      column.push_back(devices[at(parts[at(model.vertex(block.row, s))])]);
    channels.push_back(block.size);
  }
  if (may_join(layer)) join_equal(columns, channels);
  std::vector<std::vector<DeviceId>> rows = transposed(columns);
  join_equal(rows, samples);
  LayerPlan plan;
  if (samples.size() > 1) plan.cuts.push_back({Dim::sample, samples});
  if (channels.size() > 1) plan.cuts.push_back({Dim::channel, channels});
  for (const std::vector<DeviceId>& row : rows) plan.devices.append(row);
  return plan;
}

/// Common length of two intervals as fractions of their extents.
double overlap(Interval a, std::int64_t a_extent, Interval b, std::int64_t b_extent) {
  const auto share = [](std::int64_t x, std::int64_t extent) {
    return static_cast<double>(x) / static_cast<double>(std::max<std::int64_t>(1, extent));
  };
  return std::min(share(a.end, a_extent), share(b.end, b_extent)) -
         std::max(share(a.begin, a_extent), share(b.begin, b_extent));
}

}  // namespace

std::vector<LayerPlan> layers_of(const Network& network, const Model& model, const Parts& parts,
                                 const std::vector<DeviceId>& devices) {
  std::vector<LayerPlan> layers(network.layers.size());
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (!model.blocks[l].empty())
      layers[l] = layer_of(network.layers[l], model, model.blocks[l], parts, devices);
  }
  // Every reader loads the training data itself: inputs are assigned to the device where the first
  // reader is.
  const auto readers = consumers(network);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (!model.blocks[l].empty()) continue;
    const auto reader = std::find_if(readers[l].begin(), readers[l].end(), [&](const Consumer& c) {
      return !model.blocks[c.layer.index()].empty();
    });
    layers[l].devices = {reader == readers[l].end() ? devices[0]
                                                    : layers[reader->layer.index()].devices[0]};
  }
  return layers;
}

Parts parts_of(const Network& network, const Model& model, const Plan& plan,
               const std::vector<DeviceId>& devices) {
  const std::int64_t plan_samples = plan.batch / plan.schedule.micro_batches;
  const std::int64_t model_samples =
      std::accumulate(model.samples.begin(), model.samples.end(), std::int64_t{0});
  std::map<DeviceId, std::int32_t> part_of;
  for (std::size_t p = 0; p < devices.size(); ++p)
    part_of.emplace(devices[p], static_cast<std::int32_t>(p));
  Parts parts(at(model.graph.vertices), 0);
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerId id{l};
    const std::vector<Block>& blocks = model.blocks[l];
    if (blocks.empty() || model.maker[at(blocks[0].row)] != id) continue;
    const std::vector<Interval> channels = channels_of(network, id, blocks);
    const std::size_t axis = network[id].out.region_axis(Dim::channel);
    const std::vector<Cell> cells = parsim::cells(network, id, plan.layers[l], plan_samples);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      std::int64_t first = 0;
      for (std::size_t s = 0; s < model.samples.size(); ++s) {
        const Interval samples{first, first + model.samples[s]};
        first = samples.end;
        std::vector<double> shares(devices.size(), 0.0);
        for (const Cell& cell : cells) {
          const auto part = part_of.find(cell.device);
          double share = overlap(samples, model_samples, cell.part.out[0], plan_samples);
          if (!channels[b].empty()) {
            const std::int64_t extent = network[id].out.extent(Dim::channel);
            share = std::max(0.0, share) *
                    std::max(0.0, overlap(channels[b], extent, cell.part.out[axis], extent));
          }
          if (share > 0) shares[part == part_of.end() ? 0 : at(part->second)] += share;
        }
        parts[at(model.vertex(blocks[b].row, s))] = static_cast<std::int32_t>(
            std::max_element(shares.begin(), shares.end()) - shares.begin());
      }
    }
  }
  return parts;
}

}  // namespace parsim::strategies::hypergraph
