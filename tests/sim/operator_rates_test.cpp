#include "sim/operator_rates.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/csv.hpp"
#include "core/files.hpp"
#include "core/layers.hpp"
#include "core/text.hpp"
#include "sim/sim.hpp"
#include "tests/support/approx.hpp"
#include "topologies/topologies.hpp"

namespace parsim::sim {
namespace {

TEST_CASE("operator rates: overhead, then the longer of bytes and steps") {
  const OperatorRate rate{2e-6, 0.5, 1e-12};
  Kernel kernel;
  kernel.elements = 1e6;
  kernel.steps = 1e6;
  kernel.launches = 3;
  // 4 MB at half of 1 TB/s, or a million steps over 100 multiprocessors.
  CHECK(operator_time(rate, kernel, 4, 1e12, 100).count() == testing::approx(6e-6 + 8e-6));
  kernel.steps = 1e9;
  CHECK(operator_time(rate, kernel, 4, 1e12, 100).count() == testing::approx(6e-6 + 1e-5));
}

TEST_CASE("operator rates: the table has every operator forward, and norms backward") {
  CHECK(operator_rate(Operator::other, false) == nullptr);
  for (std::size_t op = 1; op < operators; ++op) {
    CAPTURE(op);
    const OperatorRate* rate = operator_rate(static_cast<Operator>(op), false);
    REQUIRE(rate != nullptr);
    CHECK((rate->overhead > 0 && rate->overhead < 1e-4));
    CHECK((rate->memory_share > 0 && rate->memory_share < 1));
  }
  for (const Operator op : {Operator::batch_norm, Operator::layer_norm, Operator::max_pool,
                            Operator::activation, Operator::cross_entropy, Operator::embedding}) {
    CHECK(operator_rate(op, true) != nullptr);
  }
}

/// A timed operator of validation/records: one layer and what of it ran.
struct Timed {
  LayerKind kind;
  Shape in;
  std::int64_t samples = 1;
  Pass pass = Pass::forward;
};

std::map<std::string, std::int64_t> numbers(const std::string& words) {
  std::map<std::string, std::int64_t> all;
  for (const std::string& pair : split_at(words, ';')) {
    const std::size_t at = pair.find('=');
    all[pair.substr(0, at)] = *to_number<std::int64_t>(pair.substr(at + 1));
  }
  return all;
}

/// Nothing for operators that no layer is.
std::optional<Timed> timed(const std::string& op, const std::string& pass,
                           const std::string& words) {
  const auto shape = numbers(words);
  const auto of = [&](const char* name) { return shape.at(name); };
  Timed one;
  one.pass = pass == "forward"   ? Pass::forward
             : pass == "weights" ? Pass::backward_weights
                                 : Pass::backward_data;
  if (shape.contains("c") && shape.contains("h")) {
    one.in = image_shape(of("c"), of("h"), of("w"));
    one.samples = of("n");
  } else if (shape.contains("rows")) {
    one.in = vector_shape(of("width"));
    one.samples = of("rows");
  } else if (shape.contains("size")) {
    one.in = vector_shape(1024);
    one.samples = of("size") / 1024;
  }
  if (op == "conv") {
    const std::int64_t r = of("r"), s = of("s"), stride = of("stride");
    one.kind =
        Conv{of("k"), {{r, stride, r / 2, r / 2}, {s, stride, s / 2, s / 2}}, of("groups"), false};
  } else if (op == "product") {
    one.kind = Dense{of("n"), false};
    one.in = vector_shape(of("k"));
    one.samples = of("m");
  } else if (op == "batch_norm") {
    one.kind = Norm{};
  } else if (op == "layer_norm") {
    one.kind = Norm{NormKind::layer, true, 0};
  } else if (op == "max_pool" || op == "avg_pool") {
    const std::int64_t r = of("r"), pad = r % 2 == 1 ? r / 2 : 0;
    one.kind = Pool{op == "max_pool" ? PoolKind::max : PoolKind::average,
                    {{r, of("stride"), pad, pad}, {r, of("stride"), pad, pad}}};
  } else if (op == "relu" || op == "gelu" || op == "silu") {
    one.kind = Activation{op};
  } else if (op == "softmax") {
    one.kind = Softmax{};
  } else {
    return std::nullopt;
  }
  return one;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// The fit counts bytes, steps and products in Python; this prices the same rows as steps are.
TEST_CASE("operator rates: prices of single layers are near the times of the records") {
  for (const std::string card : {"h100-sxm5", "h200-sxm"}) {
    const std::string path = PARSIM_SOURCE_DIR "/validation/records/" + card + "/pytorch_ops.txt";
    const CsvTable table = read_csv(read_file(path, path), path);
    const Cluster cluster =
        topologies::load_cluster("star:1,device=" + card + ",rate=10GB/s,latency=1us", "test");
    const auto costs = make_tile_costs(cluster);
    std::map<std::string, std::vector<double>> errors, ratios;
    for (const CsvTable::Row& row : table.rows) {
      const double seconds = table.number(row, "median_s");
      if (seconds < 20e-6) continue;
      const auto one = timed(table.at(row, "op"), table.at(row, "pass"), table.at(row, "shape"));
      if (!one) continue;
      Network network;
      const LayerId in = add_input(network, "in", one->in);
      const LayerId layer = add_layer(network, "layer", one->kind, std::vector{in});
      const std::string words = table.at(row, "precision");
      const Precision precision = words == "fp32"   ? Precision::fp32
                                  : words == "tf32" ? Precision::tf32
                                                    : Precision::bf16;
      const Part part{whole(network[layer].out, one->samples), {}};
      const double price =
          costs->compute(network, layer, part, one->pass, DeviceId{0}, precision).time.count();
      const std::string key = table.at(row, "op") + " " + words;
      errors[key].push_back(std::abs(price / seconds - 1));
      ratios[key].push_back(price / seconds);
    }
    CHECK(errors.size() > 12);
    for (const auto& [key, list] : errors) {
      CAPTURE(card);
      CAPTURE(key);
      CAPTURE(list.size());
      MESSAGE(card, " ", key, ": ", list.size(), " rows, median error ", median(list));
      if (list.size() < 25) continue;
      CHECK(median(list) < 0.35);
      CHECK(std::abs(std::log(median(ratios[key]))) < 0.4);
    }
  }
}

}  // namespace
}  // namespace parsim::sim
