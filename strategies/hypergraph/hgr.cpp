// Reading and writing .hgr files, the format that partitioners share.
#include <fmt/format.h>

#include <istream>
#include <ostream>
#include <sstream>
#include <string>

#include "core/errors.hpp"
#include "strategies/hypergraph/hypergraph.hpp"

namespace parsim::hypergraph {

namespace {

/// Lines that are not comments, with their numbers.
class Lines {
 public:
  Lines(std::istream& in, std::string_view where) : in_(in), where_(where) {}

  [[nodiscard]] std::vector<std::int64_t> next(std::string_view what) {
    std::string line;
    do {
      ++number_;
      if (!std::getline(in_, line)) fail("the end of the file", what);
    } while (line.starts_with('%'));
    std::istringstream words(line);
    std::vector<std::int64_t> numbers;
    for (std::string word; words >> word;) {
      std::size_t used = 0;
      std::int64_t number = -1;
      if (word.size() < 19 && word.find_first_not_of("0123456789") == std::string::npos)
        number = std::stoll(word, &used);
      if (used != word.size()) fail(fmt::format("'{}'", word), "whole numbers from 0 to 10^18");
      numbers.push_back(number);
    }
    return numbers;
  }
  [[noreturn]] void fail(const std::string& found, std::string_view accepted) const {
    throw InputError(fmt::format("{}:{}", where_, number_), found, std::string(accepted));
  }

 private:
  std::istream& in_;
  std::string where_;
  std::size_t number_ = 0;
};

}  // namespace

void write_hgr(std::ostream& out, const Hypergraph& graph) {
  std::size_t nets = 0;
  for (const auto& sources : graph.sources) nets += sources.size();
  out << fmt::format("{} {} 11\n", nets, graph.vertices);
  for (std::size_t set = 0; set < graph.sources.size(); ++set) {
    for (const Source& source : graph.sources[set]) {
      out << fmt::format("{} {}", source.cost, source.vertex + 1);
      for (const Vertex v : graph.readers[set]) {
        if (v != source.vertex) out << fmt::format(" {}", v + 1);
      }
      out << "\n";
    }
  }
  for (Vertex v = 0; v < graph.vertices; ++v) {
    for (std::int32_t c = 0; c < graph.constraints; ++c)
      out << fmt::format("{}{}", c == 0 ? "" : " ", graph.weight(v, c));
    out << "\n";
  }
}

Hypergraph read_hgr(std::istream& in, std::string_view where) {
  Lines lines(in, where);
  const std::vector<std::int64_t> head = lines.next("a head line");
  constexpr std::int64_t most = 100'000'000;
  const bool known =
      head.size() == 2 ||
      (head.size() == 3 && (head[2] == 0 || head[2] == 1 || head[2] == 10 || head[2] == 11));
  if (!known || head[0] > most || head[1] > most)
    lines.fail("another head line",
               "numbers of nets and of vertices (at most 10^8), then 0, 1, 10 or 11");
  const bool net_costs = head.size() == 3 && head[2] % 10 == 1;
  const bool vertex_weights = head.size() == 3 && head[2] >= 10;
  struct Net {
    std::int64_t cost = 1;
    std::vector<Vertex> pins;
  };
  std::vector<Net> nets;
  for (std::int64_t n = 0; n < head[0]; ++n) {
    const std::vector<std::int64_t> numbers = lines.next("a line for each net");
    Net net;
    std::size_t first = 0;
    if (net_costs && !numbers.empty()) net.cost = numbers[first++];
    for (std::size_t i = first; i < numbers.size(); ++i) {
      if (numbers[i] < 1 || numbers[i] > head[1])
        lines.fail(fmt::format("pin {}", numbers[i]), fmt::format("1 to {}", head[1]));
      net.pins.push_back(static_cast<Vertex>(numbers[i] - 1));
    }
    if (net.pins.empty()) lines.fail("a net without pins", "one pin or more");
    nets.push_back(std::move(net));
  }
  std::vector<std::vector<std::int64_t>> weights;
  for (std::int64_t v = 0; v < head[1]; ++v) {
    weights.push_back(vertex_weights ? lines.next("a line for each vertex")
                                     : std::vector<std::int64_t>{1});
    if (weights.back().empty() || weights.back().size() != weights[0].size())
      lines.fail(
          fmt::format("{} weights", weights.back().size()),
          fmt::format("as many as the first vertex has, {}, and at least one", weights[0].size()));
  }
  Builder builder(weights.empty() ? 1 : static_cast<std::int32_t>(weights[0].size()));
  for (const auto& weight : weights) builder.add_vertex(weight);
  for (Net& net : nets) {
    const Vertex source = net.pins[0];
    net.pins.erase(net.pins.begin());
    builder.add_net(source, std::move(net.pins), net.cost);
  }
  return builder.build();
}

}  // namespace parsim::hypergraph
