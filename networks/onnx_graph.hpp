// An ONNX file as plain data: nodes in topological order, inputs with bound dimensions,
// initializers. Protobuf stays behind this header.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "networks/onnx_tensor.hpp"

namespace parsim::networks::onnx_reader {

struct GraphInput {
  std::string name;
  Element element = Element::real;
  Extents dims;              ///< all positive
  std::string batch_symbol;  ///< name of the first dimension in the file, "" if it is a number
};

struct Graph {
  std::string file;         ///< the path, for messages
  std::int64_t opset = 17;  ///< version of ONNX's own operators
  std::vector<GraphInput>
      inputs;  ///< what is fed; initializers that are listed as inputs are not here
  std::vector<std::string> outputs;
  std::map<std::string, Tensor> initializers;
  std::vector<Node> nodes;  ///< every node after the nodes it reads; ties in file order
};

/// "model.onnx: node 'conv1'".
[[nodiscard]] std::string location(const Graph& graph, const Node& node);

/// Reads a file and binds its symbolic dimensions. Weights need not be there (external data is not
/// opened).
///
/// dims   values of symbolic dimensions by name
///
/// Throws InputError, naming the offender, for a file that is missing, empty, truncated or not
/// ONNX, a graph without nodes or inputs, an unbound or unknown dimension, extents that are not
/// positive or too large, an input that nothing makes, two makers of one tensor, and a cycle.
[[nodiscard]] Graph load_graph(const std::string& path,
                               const std::map<std::string, std::int64_t>& dims);

}  // namespace parsim::networks::onnx_reader
