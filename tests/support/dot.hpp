// Reads a graph in the DOT language as far as report/dot.cpp writes it, to see that nothing in a
// name breaks out of its quotes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace parsim::testing {

struct DotText {
  std::string name;                 ///< of the graph
  std::vector<std::string> labels;  ///< of boxes, edges and subgraphs, in order
  std::size_t boxes = 0, edges = 0, subgraphs = 0;
  std::string error;  ///< empty if the text is a graph
};
[[nodiscard]] DotText parse_dot(std::string_view text);

}  // namespace parsim::testing
