// Blocks of a dense layer are interchangeable: read by the same readers and reading the same, they
// may change places without changing any cost. Sorted by part they become one piece a device.
#include <algorithm>
#include <map>
#include <numeric>

#include "core/errors.hpp"
#include "strategies/hypergraph/blocks.hpp"
#include "strategies/hypergraph/model.hpp"

namespace parsim::strategies::hypergraph {

namespace {

/// Signature of a block: only blocks with equal signatures may be exchanged.
using Signature = std::vector<std::int64_t>;

class Gathering {
 public:
  Gathering(const Network& network, const Model& model) : network_(network), model_(model) {
    for (std::size_t r = 0; r < model.maker.size(); ++r) {
      if (r == 0 || model.maker[r] != model.maker[r - 1]) families_.emplace_back();
      family_of_.push_back(families_.size() - 1);
      families_.back().push_back(static_cast<std::int32_t>(r));
    }
    class_of_.resize(families_.size());
    std::iota(class_of_.begin(), class_of_.end(), std::size_t{0});
    visit([this](const auto& read) {
      if (read.aligned) class_of_[root(read.reader_family)] = root(read.source_family);
    });
    signatures_.resize(families_.size());
    for (std::size_t f = 0; f < families_.size(); ++f) signatures_[f].resize(families_[f].size());
    for (std::size_t l = 0; l < network.layers.size(); ++l) {
      for (const Block& block : model.blocks[l]) signature(block.row).push_back(block.size);
    }
    visit([this](const auto& read) {
      if (!read.aligned) distinguish(read);
    });
  }

  Parts sorted(const Parts& parts) {
    Parts result = parts;
    std::map<std::size_t, std::vector<std::size_t>> classes;
    for (std::size_t f = 0; f < families_.size(); ++f) classes[root(f)].push_back(f);
    for (const auto& [key, members] : classes) {
      const std::size_t n = families_[members[0]].size();
      std::map<Signature, std::vector<std::size_t>> alike;  // indices of interchangeable blocks
      for (std::size_t b = 0; b < n; ++b) {
        Signature all;
        for (const std::size_t f : members) {
          all.push_back(-1);  // between families
          all.insert(all.end(), signatures_[f][b].begin(), signatures_[f][b].end());
        }
        alike[all].push_back(b);
      }
      for (const auto& [signature, indices] : alike) {
        std::vector<Parts> homes;  // of a block in all families, for all samples
        for (const std::size_t b : indices) {
          Parts& home = homes.emplace_back();
          for (const std::size_t f : members) {
            for (std::size_t s = 0; s < model_.samples.size(); ++s)
              home.push_back(parts[at(model_.vertex(families_[f][b], s))]);
          }
        }
        std::sort(homes.begin(), homes.end());
        for (std::size_t i = 0; i < indices.size(); ++i) {
          std::size_t next = 0;
          for (const std::size_t f : members) {
            for (std::size_t s = 0; s < model_.samples.size(); ++s)
              result[at(model_.vertex(families_[f][indices[i]], s))] = homes[i][next++];
          }
        }
      }
    }
    return result;
  }

 private:
  /// A layer reads an operand: which blocks read which channels.
  struct Reading {
    const std::vector<Block>* readers;
    const std::vector<Block>* sources;
    std::vector<Interval> channels;  ///< of the operand, by reading block; empty: all
    std::vector<Interval> owned;     ///< by block of the operand
    bool aligned = false;
    std::size_t reader_family = 0, source_family = 0;
  };

  template <class Action>
  void visit(Action action) {
    for (std::size_t l = 0; l < network_.layers.size(); ++l) {
      const LayerId id{l};
      const Layer& layer = network_[id];
      const std::vector<Shape> inputs = input_shapes(network_, id);
      for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
        Reading read{&model_.blocks[l], &model_.blocks[layer.inputs[i].index()], {}, {}};
        if (read.readers->empty() || read.sources->empty()) continue;
        read.owned = channels_of(network_, layer.inputs[i], *read.sources);
        const std::vector<Interval> own = channels_of(network_, id, *read.readers);
        for (const Interval& interval : own) {
          Part part{whole(layer.out, 1), {}};
          if (!interval.empty()) part.out[layer.out.region_axis(Dim::channel)] = interval;
          const Region box = input_region(layer.kind, inputs, layer.out, i, part);
          const std::size_t axis = inputs[i].region_axis(Dim::channel);
          read.channels.push_back(axis == 0 || box.rank() <= axis ? Interval{} : box[axis]);
        }
        read.reader_family = family_of_[at((*read.readers)[0].row)];
        read.source_family = family_of_[at((*read.sources)[0].row)];
        read.aligned = is_aligned(read);
        action(read);
      }
    }
  }
  [[nodiscard]] bool is_aligned(const Reading& read) const {
    const auto all_of_family = [&](const std::vector<Block>& blocks, std::size_t family) {
      return blocks.size() == families_[family].size() &&
             std::all_of(blocks.begin(), blocks.end(),
                         [&](const Block& block) { return family_of_[at(block.row)] == family; });
    };
    if (read.readers->size() != read.sources->size() ||
        !all_of_family(*read.readers, read.reader_family) ||
        !all_of_family(*read.sources, read.source_family))
      return false;
    for (std::size_t b = 0; b < read.readers->size(); ++b) {
      const Interval own = read.owned[b], reads = read.channels[b];
      if (reads.empty() || own.empty() || reads.begin < own.begin || reads.end > own.end)
        return false;
    }
    return true;
  }
  void distinguish(const Reading& read) {
    // Response normalisation reads its neighbours: sorting blocks makes fewer borders, not more.
    if (read.reader_family == read.source_family) return;
    for (std::size_t b = 0; b < read.readers->size(); ++b) {
      Signature& mine = signature((*read.readers)[b].row);
      mine.push_back(read.channels[b].begin);
      mine.push_back(read.channels[b].end);
    }
    for (std::size_t b = 0; b < read.sources->size(); ++b) {
      std::int64_t first = -1, last = -1;
      for (std::size_t r = 0; r < read.readers->size(); ++r) {
        const bool reads =
            read.channels[r].empty() || !intersect(read.channels[r], read.owned[b]).empty();
        if (!reads) continue;
        if (first < 0) first = static_cast<std::int64_t>(r);
        last = static_cast<std::int64_t>(r);
      }
      Signature& mine = signature((*read.sources)[b].row);
      mine.push_back(first);
      mine.push_back(last);
    }
  }
  Signature& signature(std::int32_t row) {
    const std::size_t family = family_of_[at(row)];
    return signatures_[family][at(row - families_[family][0])];
  }
  std::size_t root(std::size_t family) const {
    while (class_of_[family] != family) family = class_of_[family];
    return family;
  }

  const Network& network_;
  const Model& model_;
  std::vector<std::vector<std::int32_t>> families_;  ///< rows made for one layer
  std::vector<std::size_t> family_of_;               ///< by row
  std::vector<std::size_t> class_of_;  ///< by family: union-find of those whose blocks go together
  std::vector<std::vector<Signature>> signatures_;  ///< by family and block
};

}  // namespace

Parts gathered(const Network& network, const Model& model, const Parts& parts) {
  Parts sorted = Gathering(network, model).sorted(parts);
  const bool no_worse =
      connectivity_cost(model.graph, sorted) <= connectivity_cost(model.graph, parts);
  return no_worse ? sorted : parts;
}

}  // namespace parsim::strategies::hypergraph
