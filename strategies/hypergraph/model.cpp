#include "strategies/hypergraph/model.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/errors.hpp"
#include "strategies/hypergraph/blocks.hpp"

namespace parsim::strategies::hypergraph {

namespace {

/// A vertex that needs a box of a tensor, for one sample.
struct Read {
  std::int32_t row = 0;
  Region box;
  bool returns_gradient = false;
};

/// The cells of the grid that the borders of all boxes make, in order.
std::vector<Region> grid_of(const std::vector<Region>& boxes) {
  std::vector<std::set<std::int64_t>> borders(boxes[0].rank());
  for (const Region& box : boxes) {
    for (std::size_t a = 0; a < borders.size(); ++a) borders[a].insert({box[a].begin, box[a].end});
  }
  std::vector<Region> cells{Region{}};
  for (const std::set<std::int64_t>& axis : borders) {
    std::vector<Region> longer;
    for (const Region& cell : cells) {
      for (auto end = std::next(axis.begin()); end != axis.end(); ++end) {
        Region next = cell;
        next.push_back({*std::prev(end), *end});
        longer.push_back(next);
      }
    }
    cells = std::move(longer);
  }
  return cells;
}

/// Cells of a grid, found by their channels: a joined tensor has thousands of blocks and as many
/// readers of single blocks.
class CellsByChannel {
 public:
  CellsByChannel(std::vector<Region> cells, std::size_t axis)
      : cells_(std::move(cells)), axis_(axis) {
    for (std::size_t i = 0; i < cells_.size(); ++i) from_[begin(cells_[i])].push_back(i);
  }
  [[nodiscard]] const std::vector<Region>& all() const { return cells_; }
  template <class Action>
  void within(const Region& box, Action action) const {
    const bool cut = axis_ < box.rank();
    auto channel = cut ? from_.lower_bound(box[axis_].begin) : from_.begin();
    for (; channel != from_.end() && (!cut || channel->first < box[axis_].end); ++channel) {
      for (const std::size_t i : channel->second) {
        if (box.contains(cells_[i])) action(i);
      }
    }
  }

 private:
  [[nodiscard]] std::int64_t begin(const Region& cell) const {
    return axis_ < cell.rank() ? cell[axis_].begin : 0;
  }
  std::vector<Region> cells_;
  std::size_t axis_;
  std::map<std::int64_t, std::vector<std::size_t>> from_;  ///< by first channel
};

class Maker {
 public:
  Maker(const Network& network, const ModelOptions& options)
      : network_(network),
        options_(options),
        blocks_(blocks_of(network, options.channel_blocks, options.channel_sizes)) {
    const std::int64_t parts = std::clamp<std::int64_t>(options.sample_blocks, 1,
                                                        std::max<std::int64_t>(1, options.samples));
    samples_ = options.sample_sizes.empty()
                   ? even_split(options.samples, static_cast<std::size_t>(parts))
                   : options.sample_sizes;
    ensure(std::accumulate(samples_.begin(), samples_.end(), std::int64_t{0}) == options.samples,
           "blocks of samples add up to the micro-batch");
    find_gradients();
  }

  Model run() {
    Builder builder(constraints());
    add_vertices(builder);
    add_activations(builder);
    add_parameters(builder);
    return {builder.build(), std::move(blocks_.of_layer), std::move(blocks_.maker),
            std::move(samples_)};
  }

 private:
  [[nodiscard]] bool is_input(LayerId id) const { return network_[id].kind.as<Input>() != nullptr; }
  [[nodiscard]] Vertex vertex(std::int32_t row, std::size_t s) const {
    return row * static_cast<std::int32_t>(samples_.size()) + static_cast<std::int32_t>(s);
  }
  [[nodiscard]] std::size_t rows() const { return blocks_.maker.size(); }
  /// Samples of a block over the whole step.
  [[nodiscard]] std::int64_t step_samples(std::size_t s) const {
    return samples_[s] * options_.micro_batches;
  }
  /// What each block of a layer computes for one sample.
  [[nodiscard]] std::vector<Part> parts_of_layer(LayerId id) const {
    const std::vector<Block>& blocks = blocks_.of_layer[id.index()];
    const std::vector<Interval> channels = channels_of(network_, id, blocks);
    std::vector<Part> parts;
    for (const Interval& interval : channels) {
      Part part{whole(network_[id].out, 1), {}};
      if (!interval.empty()) part.out[network_[id].out.region_axis(Dim::channel)] = interval;
      parts.push_back(part);
    }
    return parts;
  }

  void find_gradients() {
    const std::size_t count = network_.layers.size();
    wants_.assign(count, false);
    reaches_.assign(count, false);
    for (std::size_t l = 0; l < count; ++l) {
      wants_[l] = !network_.layers[l].parameters.empty();
      for (const LayerId input : network_.layers[l].inputs)
        wants_[l] = wants_[l] || wants_[input.index()];
    }
    for (std::size_t l = count; l-- > 0;) {
      reaches_[l] = reaches_[l] || network_.layers[l].kind.as<Loss>() != nullptr;
      if (!reaches_[l]) continue;
      for (const LayerId input : network_.layers[l].inputs) reaches_[input.index()] = true;
    }
  }

  /// Work of a layer's block for one sample.
  [[nodiscard]] double work(LayerId id, const Part& part) const {
    const Shape& out = network_[id].out;
    if (!options_.work.empty()) {
      return options_.work[id.index()] * static_cast<double>(part.out.volume()) /
             static_cast<double>(std::max<std::int64_t>(1, out.elements()));
    }
    bool gradient = false;
    for (const LayerId input : network_[id].inputs) gradient = gradient || wants_[input.index()];
    const double once =
        forward_flops(network_[id].kind, input_shapes(network_, id), out, part).value;
    return once * (gradient ? 3 : 2);
  }

  /// Which constraint each row's work counts for.
  std::vector<std::int32_t> work_groups(const std::vector<double>& row_work) {
    std::vector<std::int32_t> groups(rows(), 0);
    if (options_.balance != Balance::work_by_layers) return groups;
    std::vector<LayerId> working;
    for (std::size_t r = 0; r < rows(); ++r) {
      if (row_work[r] > 0 && (working.empty() || working.back() != blocks_.maker[r]))
        working.push_back(blocks_.maker[r]);
    }
    constexpr std::size_t most = 16;
    group_count_ = static_cast<std::int32_t>(std::clamp<std::size_t>(working.size(), 1, most));
    for (std::size_t r = 0; r < rows(); ++r) {
      const auto rank = static_cast<std::size_t>(
          std::upper_bound(working.begin(), working.end(), blocks_.maker[r]) - working.begin());
      const std::size_t index = rank == 0 ? 0 : rank - 1;
      groups[r] =
          static_cast<std::int32_t>(working.size() <= most ? index : index * most / working.size());
    }
    return groups;
  }

  [[nodiscard]] std::int32_t constraints() {
    row_work_.assign(rows(), 0);
    row_elements_.assign(rows(), 0);
    row_parameters_.assign(rows(), 0);
    for (std::size_t l = 0; l < network_.layers.size(); ++l) {
      const LayerId id{l};
      if (is_input(id)) continue;
      const std::vector<Part> parts = parts_of_layer(id);
      const std::vector<Shape> inputs = input_shapes(network_, id);
      for (std::size_t b = 0; b < parts.size(); ++b) {
        const auto row = static_cast<std::size_t>(blocks_.of_layer[l][b].row);
        row_work_[row] += work(id, parts[b]);
        row_elements_[row] += parts[b].out.volume();
        for (std::size_t p = 0; p < network_[id].parameters.size(); ++p) {
          row_parameters_[row] +=
              parameter_region(network_[id].kind, inputs, network_[id].out, p, parts[b]).volume();
        }
      }
    }
    groups_ = work_groups(row_work_);
    return options_.balance == Balance::work_and_memory ? 2 : group_count_;
  }

  void add_vertices(Builder& builder) {
    const double total = std::max(1e-300, std::accumulate(row_work_.begin(), row_work_.end(), 0.0));
    constexpr double scale = 1LL << 40;  // total work, small enough that sums do not overflow
    for (std::size_t r = 0; r < rows(); ++r) {
      for (std::size_t s = 0; s < samples_.size(); ++s) {
        const double share =
            static_cast<double>(samples_[s]) / static_cast<double>(options_.samples);
        const auto load =
            static_cast<std::int64_t>(std::llround(row_work_[r] / total * share * scale));
        std::vector<std::int64_t> weights;
        if (options_.balance == Balance::work_and_memory) {
          const std::int64_t states = options_.states * row_parameters_[r];
          weights = {load, states / static_cast<std::int64_t>(samples_.size()) +
                               row_elements_[r] * step_samples(s)};
        } else {
          weights.assign(static_cast<std::size_t>(group_count_), 0);
          weights[static_cast<std::size_t>(groups_[r])] = load;
        }
        builder.add_vertex(weights);
      }
    }
  }

  [[nodiscard]] std::vector<std::vector<Read>> reads() const {
    std::vector<std::vector<Read>> by_tensor(network_.layers.size());
    const bool exact = options_.detail == Detail::exact;
    for (std::size_t l = 0; l < network_.layers.size(); ++l) {
      const LayerId id{l};
      const Layer& layer = network_[id];
      if (is_input(id) || (!exact && layer.kind.as<Loss>() != nullptr)) continue;
      const auto* norm = layer.kind.as<Norm>();
      const bool alone = !exact && norm != nullptr && norm->kind == NormKind::local_response;
      const std::vector<Part> parts = parts_of_layer(id);
      const std::vector<Shape> inputs = input_shapes(network_, id);
      for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
        const LayerId from = layer.inputs[i];
        if (is_input(from)) continue;
        for (std::size_t b = 0; b < parts.size(); ++b) {
          Region box =
              alone ? parts[b].out : input_region(layer.kind, inputs, layer.out, i, parts[b]);
          if (box.empty()) continue;
          if (!exact) {  // whole channels
            const Region all = whole(inputs[i], 1);
            const std::size_t channel = inputs[i].region_axis(Dim::channel);
            for (std::size_t a = 1; a < box.rank(); ++a) {
              if (a != channel) box[a] = all[a];
            }
          }
          by_tensor[from.index()].push_back(
              {blocks_.of_layer[l][b].row, box, wants_[from.index()] && reaches_[l]});
        }
      }
    }
    return by_tensor;
  }

  void add_activations(Builder& builder) const {
    const std::vector<std::vector<Read>> by_tensor = reads();
    for (std::size_t l = 0; l < by_tensor.size(); ++l) {
      if (by_tensor[l].empty()) continue;
      const std::vector<Block>& blocks = blocks_.of_layer[l];
      const std::vector<Part> owned = parts_of_layer(LayerId{l});
      // Distinct boxes only: 64 readers of the same whole tensor make one cell of the grid.
      std::set<Region> boxes;
      for (const Part& part : owned) boxes.insert(part.out);
      for (const Read& read : by_tensor[l]) boxes.insert(read.box);
      const CellsByChannel cells(grid_of({boxes.begin(), boxes.end()}),
                                 network_.layers[l].out.region_axis(Dim::channel));
      std::vector<std::int32_t> owner(cells.all().size(), -1);
      std::vector<std::vector<std::int32_t>> readers(owner.size()), returning(owner.size());
      for (std::size_t b = 0; b < owned.size(); ++b)
        cells.within(owned[b].out, [&](std::size_t cell) { owner[cell] = blocks[b].row; });
      for (const Read& read : by_tensor[l]) {
        cells.within(read.box, [&](std::size_t cell) {
          readers[cell].push_back(read.row);
          if (read.returns_gradient) returning[cell].push_back(read.row);
        });
      }
      for (std::size_t cell = 0; cell < owner.size(); ++cell) {
        if (owner[cell] < 0) continue;
        for (std::size_t s = 0; s < samples_.size(); ++s) {
          const std::int64_t elements = cells.all()[cell].volume() * step_samples(s);
          add_net(builder, owner[cell], readers[cell], s, elements);
          add_net(builder, owner[cell], returning[cell], s, elements);
        }
      }
    }
  }

  void add_net(Builder& builder, std::int32_t row, const std::vector<std::int32_t>& readers,
               std::size_t s, std::int64_t cost) const {
    std::vector<Vertex> pins;
    for (const std::int32_t reader : readers) pins.push_back(vertex(reader, s));
    builder.add_net(vertex(row, s), std::move(pins), cost);
  }

  /// λ replicas of a weight are summed and spread again: 2(λ−1) elements for each, by a ring or a
  /// tree.
  void add_parameters(Builder& builder) const {
    struct Use {
      std::int32_t row = 0;
      Region box;
    };
    std::vector<std::vector<Use>> uses(network_.parameters.size());
    for (std::size_t l = 0; l < network_.layers.size(); ++l) {
      const LayerId id{l};
      const Layer& layer = network_[id];
      if (layer.parameters.empty() || !reaches_[l]) continue;
      const std::vector<Part> parts = parts_of_layer(id);
      const std::vector<Shape> inputs = input_shapes(network_, id);
      for (std::size_t p = 0; p < layer.parameters.size(); ++p) {
        for (std::size_t b = 0; b < parts.size(); ++b) {
          const Region box = parameter_region(layer.kind, inputs, layer.out, p, parts[b]);
          if (!box.empty())
            uses[layer.parameters[p].index()].push_back({blocks_.of_layer[l][b].row, box});
        }
      }
    }
    for (const std::vector<Use>& all : uses) {
      if (all.empty()) continue;
      std::vector<Region> boxes;
      for (const Use& use : all) boxes.push_back(use.box);
      for (const Region& cell : grid_of(boxes)) {
        std::vector<Vertex> users;
        for (const Use& use : all) {
          for (std::size_t s = 0; use.box.contains(cell) && s < samples_.size(); ++s)
            users.push_back(vertex(use.row, s));
        }
        if (!users.empty()) builder.add_net(users[0], users, 2 * cell.volume());
      }
    }
  }

  const Network& network_;
  const ModelOptions& options_;
  Blocks blocks_;
  std::vector<std::int64_t> samples_;
  std::vector<bool> wants_, reaches_;
  std::vector<double> row_work_;
  std::vector<std::int64_t> row_elements_, row_parameters_;
  std::vector<std::int32_t> groups_;
  std::int32_t group_count_ = 1;
};

}  // namespace

Model model_of(const Network& network, const ModelOptions& options) {
  ensure(options.samples > 0 && options.channel_blocks > 0, "a model has samples and blocks");
  return Maker(network, options).run();
}

}  // namespace parsim::strategies::hypergraph
