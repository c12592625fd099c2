// Modules of a network: layers added up by the first parts of their names.
#include "report/show.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/layers.hpp"

namespace parsim::report {
namespace {

/// Names of both kinds, dense layers of 4 channels: 16 weights and 4 biases, 32 FLOP a sample.
Network named() {
  Network network;
  LayerId x = add_input(network, "in", vector_shape(4));
  for (const char* name : {"a.mlp.up", "a.mlp.down", "a.norm", "b.mlp.up", "/l1/l1.0/conv/Conv",
                           "/l1/l1.0/act", "/l1/l1.1/conv/Conv"}) {
    x = add_layer(network, name, Dense{4, true}, {x});
  }
  return network;
}

std::vector<std::string> texts(std::size_t depth) {
  std::vector<std::string> texts;
  for (const LayerRow& row : module_rows(named(), depth)) {
    texts.push_back(row.name + ": " + row.kind + ", " + std::to_string(row.parameters));
  }
  return texts;
}

TEST_CASE("show: by hand, modules of one and two levels") {
  CHECK(texts(1) == std::vector<std::string>{"in: input, 0", "a: 3 layers, 60",
                                             "b.mlp.up: dense, 20", "/l1: 3 layers, 60"});
  CHECK(texts(2) == std::vector<std::string>{"in: input, 0", "a.mlp: 2 layers, 40",
                                             "a.norm: dense, 20", "b.mlp.up: dense, 20",
                                             "/l1/l1.0: 2 layers, 40",
                                             "/l1/l1.1/conv/Conv: dense, 20"});
}

TEST_CASE("show: a parameter of an ONNX graph belongs to the module of its name") {
  Network network;
  LayerId x = add_input(network, "in", vector_shape(4));
  for (const char* name :
       {"blocks.1.rows.table", "/l1/l1.0/Conv", "/l1/l1.0/act", "/blocks.1/rows/Add",
        "/blocks.1/rows/Mul", "l1.0.table", "l1.10.table"}) {
    x = add_layer(network, name, Dense{4, true}, {x});
  }
  std::vector<std::string> rows;
  for (const LayerRow& row : module_rows(network, 2)) rows.push_back(row.name + ": " + row.kind);
  CHECK(rows == std::vector<std::string>{"in: input", "/blocks.1/rows: 3 layers",
                                         "/l1/l1.0: 3 layers", "l1.10.table: dense"});
}

TEST_CASE("show: modules add up to the network, and deep ones are its layers") {
  const Network network = named();
  const std::vector<LayerRow> layers = layer_rows(network);
  for (const std::size_t depth : {1, 2, 3, 9}) {
    std::int64_t parameters = 0;
    double flops = 0;
    for (const LayerRow& row : module_rows(network, depth)) {
      parameters += row.parameters;
      flops += row.forward_flops;
    }
    CHECK(parameters == parameter_count(network));
    CHECK(flops == forward_flops_per_sample(network).value);
  }
  CHECK(module_rows(network, 9).size() == layers.size());
}

}  // namespace
}  // namespace parsim::report
