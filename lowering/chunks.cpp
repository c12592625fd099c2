#include "lowering/chunks.hpp"

#include <map>
#include <utility>

namespace parsim::lowering {

namespace {

constexpr std::size_t token_axis = 1;

}  // namespace

std::vector<Chunks> chunks_of(const Shape& out, const std::vector<Cell>& cells) {
  const std::size_t channel_axis = out.region_axis(Dim::channel);
  std::map<std::pair<std::int32_t, Region>, std::vector<std::size_t>> groups;
  for (std::size_t c = 0; c < cells.size(); ++c) {
    Region shared = cells[c].part.out;
    shared[channel_axis] = {};
    groups[{cells[c].replica, shared}].push_back(c);
  }
  std::vector<Chunks> all(cells.size());
  for (const auto& [key, members] : groups) {
    std::int64_t begin = key.second[token_axis].begin;
    std::vector<Interval> tokens;
    for (const std::int64_t size : even_split(key.second[token_axis].size(), members.size())) {
      if (size > 0) tokens.push_back({begin, begin + size});
      begin += size;
    }
    for (std::size_t m = 0; m < members.size(); ++m) all[members[m]] = {m, tokens};
  }
  return all;
}

Part part_of_chunk(const Cell& cell, Interval tokens) {
  Part part = cell.part;
  part.out[token_axis] = tokens;
  return part;
}

}  // namespace parsim::lowering
