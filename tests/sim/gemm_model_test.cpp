#include <doctest/doctest.h>
#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/csv.hpp"
#include "core/layers.hpp"
#include "sim/gemm_interpolation.hpp"
#include "sim/sim.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"
#include "topologies/topologies.hpp"

namespace parsim::sim {
namespace {

using namespace testing;

constexpr PowerLimit unthrottled{0, 1};

/// Ten multiprocessors that add a step to a 256 x 128 tile, or to any other, in 1 us.
GemmModel simple_model() {
  GemmModel model;
  model.multiprocessors = 10;
  model.peak = 10 * 2 * 256 * 128 / 1e-6;
  model.memory_rate = 1e18;
  model.relative = {128 * 128 / 32768.0, 128 * 64 / 32768.0, 64 * 64 / 32768.0, 64 * 32 / 32768.0};
  model.exponent = 1;
  return model;
}

double microseconds(const GemmModel& model, std::int64_t m, std::int64_t n, std::int64_t k,
                    std::int64_t batches = 1, const PowerLimit& power = unthrottled) {
  return gemm_time(model, m, n, k, batches, power).count() * 1e6;
}

TEST_CASE("GEMM model: waves, splits, prologue and batches by hand") {
  GemmModel model = simple_model();
  CHECK(microseconds(model, 2560, 128, 1000) == testing::approx(1000));
  // Eleven tiles are two waves; split by 8 they are nine waves of depth 125.
  CHECK(microseconds(model, 2561, 128, 1000) == testing::approx(1125));
  CHECK(microseconds(model, 128, 2561, 1000) == testing::approx(1125));
  CHECK(microseconds(model, 256, 128, 100, 10) == testing::approx(100));
  CHECK(microseconds(model, 256, 128, 100, 11) == testing::approx(200));
  model.prologue = 50;
  CHECK(microseconds(model, 2560, 128, 1000) == testing::approx(1050));
  model.split_overhead = 1;  // seconds: never split
  CHECK(microseconds(model, 2561, 128, 1000) == testing::approx(2100));
  model.smooth = 0.5;  // between 1.1 and 2 waves
  CHECK(microseconds(model, 2561, 128, 1000) == testing::approx(1.55 * 1050));
  model.overhead = 3e-6;
  CHECK(microseconds(model, 2560, 128, 1000) == testing::approx(1053));
}

TEST_CASE("GEMM model: memory, cache and power by hand") {
  GemmModel model = simple_model();
  model.split_overhead = 1;
  // 2 B * (2560 * 100 + 128 * 100 + 2560 * 128) = 1,192,960 B, and 100 us of arithmetic.
  model.memory_rate = 1192960 / 100e-6;
  CHECK(microseconds(model, 2560, 128, 100) == testing::approx(200));
  model.exponent = 2;
  CHECK(microseconds(model, 2560, 128, 100) == testing::approx(100 * std::sqrt(2.0)));
  model.exponent = 1;
  // Six copies of the weights fill the cache: (1 + 1) / (3 + 1) of the time from memory.
  model.cache_gain = 3;
  model.cache = 2.0 * (2560 * 100 + 6 * 128 * 100 + 2560 * 128);
  CHECK(microseconds(model, 2560, 128, 100) == testing::approx(150));
  const PowerLimit half_way{0.2, 2.0 * 2560 * 128 * 100};
  CHECK(microseconds(model, 2560, 128, 100, 1, half_way) == testing::approx(1.1 * 150));
}

TEST_CASE("GEMM model: no product beats the card, and more of it never takes less time") {
  CHECK(rc::check([] {
    const GemmModel model = gemm_models()[*rc::gen::inRange<std::size_t>(0, gemm_models().size())];
    const PowerLimit power = *rc::gen::element(model.burst, model.sustained);
    const auto extent = [] { return *rc::gen::inRange<std::int64_t>(1, 20000); };
    const std::int64_t m = extent(), n = extent(), k = extent(),
                       batches = *rc::gen::inRange<std::int64_t>(1, 20);
    const double time = gemm_time(model, m, n, k, batches, power).count();
    const double flops = 2.0 * static_cast<double>(m * n) * static_cast<double>(k * batches);
    RC_ASSERT(time >= model.overhead + flops / model.peak);
    RC_ASSERT(gemm_time(model, m + extent(), n, k, batches, power).count() >= time);
    RC_ASSERT(gemm_time(model, m, n + extent(), k, batches, power).count() >= time);
    RC_ASSERT(gemm_time(model, m, n, k, batches + extent(), power).count() >= time);
  }));
}

struct MeasuredGemm {
  std::int64_t m = 0, n = 0, k = 0;
  double median = 0, sustained = NAN;  ///< seconds
  double series = 0, spread = 0;
  bool held_out = false;
};

using CardAndFormat = std::pair<std::string, std::string>;

CardAndFormat key_of(const GemmModel& model) { return {model.device, model.format}; }

void add_measured_gemms(const std::string& path, bool fp8,
                        std::map<CardAndFormat, std::vector<MeasuredGemm>>& rows) {
  const CsvTable table = read_csv(read_text(path), path);
  for (const CsvTable::Row& row : table.rows) {
    const auto number = [&](const char* column) { return table.number(row, column); };
    const auto extent = [&](const char* column) {
      return static_cast<std::int64_t>(number(column));
    };
    rows[{table.at(row, "gpu"), fp8 ? table.at(row, "dtype") : "bf16"}].push_back(
        {extent("m"), extent("n"), extent("k"), number("median_us") * 1e-6,
         table.at(row, "sustained_us").empty() ? NAN : number("sustained_us") * 1e-6,
         number("n_series"), number("spread"), number("held_out") == 1});
  }
}

/// The published rows.
std::map<CardAndFormat, std::vector<MeasuredGemm>> measured_gemms() {
  std::map<CardAndFormat, std::vector<MeasuredGemm>> rows;
  add_measured_gemms(PARSIM_SOURCE_DIR "/sim/gemm_rows.csv", false, rows);
  add_measured_gemms(PARSIM_SOURCE_DIR "/sim/fp8_gemm_rows.csv", true, rows);
  return rows;
}

/// A product as it was measured: in FP8 with the cast of its left operand.
double measured_seconds(const GemmModel& model, const GemmInterpolation& corrected,
                        const MeasuredGemm& row, const PowerLimit& power) {
  return (corrected.time(row.m, row.n, row.k, power).time + measured_cast(model, row.m, row.k))
      .count();
}

constexpr double judged_from = 20e-6;  // shorter kernels are mostly launch

/// As numpy's: linear between order statistics.
double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  const double at = part * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

TEST_CASE("GEMM model: corrected, it meets held-out measurements of each card as its table says") {
  const auto measured = measured_gemms();
  CHECK(measured.size() == gemm_models().size());
  for (const GemmModel& model : gemm_models()) {
    CAPTURE(model.device);
    CAPTURE(model.format);
    std::set<std::pair<std::int64_t, std::int64_t>> held_out, fitted;
    const GemmInterpolation corrected(model);
    std::vector<double> errors, uncorrected, spreads;
    int rows = 0;
    for (const MeasuredGemm& row : measured.at(key_of(model))) {
      (row.held_out ? held_out : fitted).insert({row.n, row.k});
      if (!row.held_out) ++rows;
      if (!row.held_out || row.median < judged_from || row.series < 2) continue;
      const double time = measured_seconds(model, corrected, row, model.burst);
      errors.push_back(std::abs(time / row.median - 1));
      const Seconds alone = gemm_time(model, row.m, row.n, row.k, 1, model.burst) +
                            measured_cast(model, row.m, row.k);
      uncorrected.push_back(std::abs(alone.count() / row.median - 1));
      spreads.push_back(row.spread - 1);
    }
    for (const auto& weights : held_out) CHECK_FALSE(fitted.contains(weights));
    CHECK(rows == model.rows);
    CHECK(static_cast<int>(errors.size()) == model.held_out_rows);
    const double p90 = quantile(errors, 0.9);
    MESSAGE(fmt::format(
        "{} {}: {} held-out shapes, mean {:.1f} % (uncorrected {:.1f} %), p90 {:.1f} %, "
        "spread {:.0f} %",
        model.device, model.format, errors.size(), 100 * mean(errors), 100 * mean(uncorrected),
        100 * p90, 100 * quantile(spreads, 0.5)));
    // The table is rounded to 0.1 %, the spread to 1 %.
    CHECK(std::abs(mean(errors) - model.held_out_mean) < 0.00051);
    CHECK(std::abs(p90 - model.held_out_p90) < 0.00051);
    CHECK(std::abs(quantile(spreads, 0.5) - model.spread) < 0.0051);
    // Kernels with scales of blocks, and all of the L40S in FP8, change more from shape to shape.
    const bool uneven =
        model.format == "fp8_block" || (model.format == "fp8" && model.device == "l40s");
    CHECK(mean(errors) < (uneven ? 0.13 : 0.06));
    CHECK(p90 < (uneven ? 0.4 : 0.12));
  }
}

TEST_CASE("GEMM model: the sustained times of a card are nearer than those of single runs") {
  int cards = 0;
  const auto measured = measured_gemms();
  for (const GemmModel& model : gemm_models()) {
    if (model.sustained_from != model.device) continue;
    ++cards;
    const GemmInterpolation corrected(model);
    std::vector<double> sustained, burst;
    for (const MeasuredGemm& row : measured.at(key_of(model))) {
      if (!row.held_out || row.median < judged_from || std::isnan(row.sustained)) continue;
      const auto error = [&](const PowerLimit& power) {
        return std::abs(measured_seconds(model, corrected, row, power) / row.sustained - 1);
      };
      sustained.push_back(error(model.sustained));
      burst.push_back(error(model.burst));
    }
    CAPTURE(model.device);
    MESSAGE(fmt::format("{}: {} held-out sustained times, mean {:.1f} %, as single runs {:.1f} %",
                        model.device, sustained.size(), 100 * mean(sustained), 100 * mean(burst)));
    CHECK(mean(sustained) < mean(burst));
    CHECK(mean(sustained) < 0.09);
  }
  CHECK(cards == 5);  // three in bf16, two in FP8
}

TEST_CASE("GEMM model: the catalogue's data sheets are those that the efficiencies refer to") {
  for (const GemmModel& model : gemm_models()) {
    const DeviceModel device = topologies::device_model(model.device, "test");
    CAPTURE(model.device);
    using P = Precision;
    for (const P precision : model.format == "bf16"  ? std::vector{P::fp16, P::bf16}
                             : model.format == "fp8" ? std::vector{P::fp8, P::fp8_delayed}
                                                     : std::vector{P::fp8_blockwise}) {
      const auto own = gemm_model_of(device, precision);
      REQUIRE(own);
      CHECK(own->peak == testing::approx(model.peak));
      CHECK(own->memory_rate == testing::approx(model.memory_rate));
      CHECK(own->multiprocessors == model.multiprocessors);
      CHECK_FALSE(own->borrowed);
    }
    CHECK_FALSE(gemm_model_of(device, Precision::tf32));
  }
}

TEST_CASE("GEMM model: cards of one chip have its products at their own memory rate") {
  const auto time = [](const std::string& name, std::int64_t m, std::int64_t n, std::int64_t k) {
    const auto model = gemm_model_of(topologies::device_model(name, "test"), Precision::bf16);
    REQUIRE(model);
    return microseconds(*model, m, n, k, 1, model->burst);
  };
  for (const std::string name : {"a100-sxm4-40", "a100-pcie", "a100-pcie-40"}) {
    CAPTURE(name);
    CHECK(time(name, 8192, 8192, 8192) ==
          testing::approx(time("a100-sxm4-80", 8192, 8192, 8192)).epsilon(0.01));
    // 16 rows only read the weights: 1555 of 2039 GB/s.
    const double slower = time(name, 16, 16384, 16384) / time("a100-sxm4-80", 16, 16384, 16384);
    const double rates = 2039 / (topologies::device_model(name, "test").memory_rate.value * 1e-9);
    CHECK(slower == testing::approx(rates).epsilon(0.05));
  }
  CHECK(time("gh200", 8192, 8192, 8192) ==
        testing::approx(time("h100-sxm5", 8192, 8192, 8192)).epsilon(0.01));
  CHECK(time("gh200", 16, 16384, 16384) / time("h100-sxm5", 16, 16384, 16384) ==
        testing::approx(3350.0 / 4000).epsilon(0.05));
}

TEST_CASE("GEMM model: cards without measurements have those of their chip or generation") {
  const auto check = [](const char* card, const char* measured, bool borrowed) {
    CAPTURE(card);
    for (const Precision precision : {Precision::fp16, Precision::bf16}) {
      const auto model = gemm_model_of(topologies::device_model(card, "test"), precision);
      REQUIRE(model);
      CHECK(model->device == measured);
      CHECK(model->borrowed == borrowed);
    }
  };
  for (const char* card : {"h100-pcie", "h100-nvl", "gh200"}) check(card, "h100-sxm5", false);
  check("rtx-6000-ada", "l40s", false);
  check("b300", "b200-sxm", true);
  check("gb300", "gb200", true);
  check("h20", "h100-sxm5", true);
  for (const char* card : {"a30", "a10", "rtx-3090", "a40"}) check(card, "a100-sxm4-80", true);
  for (const char* card : {"l4", "rtx-4090", "rtx-pro-6000"}) check(card, "l40s", true);
  for (const char* card : {"v100-sxm2", "t4", "rtx-2080ti", "mi300x"}) {
    CHECK_FALSE(gemm_model_of(topologies::device_model(card, "test"), Precision::fp16));
  }
}

TEST_CASE("GEMM model: what a borrowing card throttles and waits for, by hand") {
  const auto model_of = [](const char* card) {
    return *gemm_model_of(topologies::device_model(card, "test"), Precision::bf16);
  };
  const GemmModel a100 = model_of("a100-sxm4-80"), l40s = model_of("l40s");
  // 71 TFLOP/s in 350 W: 0.26 of the A100's FLOP/s per watt, so 0.73 of its 1.14 times: never.
  const GemmModel geforce = model_of("rtx-3090");
  CHECK(geforce.sustained.share == 0);
  // Its multiprocessors are 0.30 times as fast: 0.866 of 2.89 TFLOP/s.
  CHECK(geforce.prologue / a100.prologue == testing::approx(71.0 / 82 / (312.0 / 108)));
  // 181 TFLOP/s in 300 W: 0.583 of the L40S's, and 0.836 times its 1.47.
  const double l40 = (1 + l40s.sustained.share) * std::cbrt(181 / 362.0 * 350 / 300) - 1;
  CHECK(model_of("l40").sustained.share == testing::approx(l40));
  // More FLOP/s per watt than the lender, whose throttling is all that was measured.
  CHECK(model_of("l4").sustained.share == l40s.sustained.share);
}

TEST_CASE("GEMM model: of one chip, the card of higher rates is never slower") {
  const std::pair<const char*, const char*> pairs[] = {
      {"rtx-6000-ada", "l40s"},  {"h100-sxm5", "h100-nvl"},
      {"h100-nvl", "h100-pcie"}, {"b300", "b200-sxm"},
      {"gb300", "gb200"},        {"gh200", "h100-sxm5"},
      {"l40s", "l40"},           {"a100-sxm4-80", "a100-sxm4-40"}};
  for (const auto& [faster, slower] : pairs) {
    CAPTURE(faster);
    CAPTURE(slower);
    const auto interpolation = [](const char* card) {
      return GemmInterpolation(
          *gemm_model_of(topologies::device_model(card, "test"), Precision::bf16));
    };
    const GemmInterpolation fast = interpolation(faster), slow = interpolation(slower);
    for (const std::int64_t m : {2048, 4000, 8192, 32768}) {
      for (const std::int64_t n : {1024, 4096, 14336}) {
        for (const std::int64_t k : {1024, 4096, 16384}) {
          CAPTURE(m);
          CAPTURE(n);
          CAPTURE(k);
          CHECK(fast.time(m, n, k, fast.model().sustained).time <=
                slow.time(m, n, k, slow.model().sustained).time);
        }
      }
    }
  }
}

TEST_CASE("GEMM model: a card that is described from another has its products at its own rates") {
  DeviceModel own = topologies::device_model("h100-sxm5", "test");
  own.base = own.name;
  own.name = "mine";
  const auto time = [&] {
    const auto model = gemm_model_of(own, Precision::bf16);
    REQUIRE(model);
    return microseconds(*model, 8192, 8192, 8192, 1, model->burst);
  };
  const double known = time();
  for (FlopsPerSecond& peak : own.peak) peak = peak * 0.8;
  CHECK(time() == testing::approx(known / 0.8).epsilon(0.01));
}

TEST_CASE("GEMM model: waves are steep on an A100 and smooth on an H100") {
  // Measured on 4096 x 4096 weights: 768 rows 108 us, 769 rows 218 us on an A100.
  const auto step = [](const std::string& device) {
    for (const GemmModel& model : gemm_models()) {
      if (model.device != device) continue;
      return microseconds(model, 769, 4096, 4096, 1, model.burst) /
             microseconds(model, 768, 4096, 4096, 1, model.burst);
    }
    return std::nan("");
  };
  CHECK(step("a100-sxm4-80") > 1.3);
  CHECK(step("h100-sxm5") < 1.15);
}

/// A dense layer, its origin and time on a device.
struct Priced {
  Origin origin = Origin::guessed;
  double seconds = 0;
};
Priced dense_layer(const std::string& device, Precision precision, std::int64_t units, Pass pass) {
  const Cluster cluster =
      topologies::load_cluster("star:1,device=" + device + ",rate=10GB/s,latency=1us", "test");
  Network network;
  const LayerId in = add_input(network, "in", vector_shape(4096));
  const LayerId layer = add_layer(network, "dense", Dense{units, false}, {in});
  const Cost cost = make_tile_costs(cluster)->compute(
      network, layer, {whole(network[layer].out, 2048), {}}, pass, DeviceId{0}, precision);
  return {cost.origin, cost.time.count()};
}

TEST_CASE("GEMM model: products near measured ones are so labelled, others modelled or guessed") {
  CHECK(dense_layer("a100-sxm4-80", Precision::bf16, 4096, Pass::forward).origin ==
        Origin::published);
  CHECK(dense_layer("h100-sxm5", Precision::fp16, 4096, Pass::backward).origin ==
        Origin::published);
  CHECK(dense_layer("h100-sxm5", Precision::fp16, 30000000, Pass::forward).origin ==
        Origin::modelled);
  CHECK(dense_layer("a100-sxm4-80", Precision::tf32, 4096, Pass::forward).origin ==
        Origin::modelled);
  // The chip of the A100-80, whose rows are another card's.
  CHECK(dense_layer("a100-sxm4-40", Precision::bf16, 4096, Pass::forward).origin ==
        Origin::modelled);
  CHECK(dense_layer("a10", Precision::bf16, 4096, Pass::forward).origin == Origin::guessed);
  // Both gradients are products of the extents of the forward one.
  const double forward = dense_layer("a100-sxm4-80", Precision::bf16, 4096, Pass::forward).seconds;
  const double backward =
      dense_layer("a100-sxm4-80", Precision::bf16, 4096, Pass::backward).seconds;
  CHECK(backward > 1.8 * forward);
  CHECK(backward < 2.2 * forward);
}

TEST_CASE("GEMM model: a width that is no multiple of a tile costs the whole tiles") {
  const auto time = [](std::int64_t units) {
    return dense_layer("a100-sxm4-80", Precision::bf16, units, Pass::forward).seconds;
  };
  // 16 x 27 tiles of 128 x 128 are four waves on 108 multiprocessors; one column more, five.
  CHECK(time(27 * 128 + 8) > 1.1 * time(27 * 128));
}

TEST_CASE("GEMM model: reports name the cards, their error and where it comes from") {
  const Cluster a100 = topologies::load_cluster("star:1,device=a100-sxm4-80", "test");
  const auto on_a100 = make_tile_costs(a100);
  CHECK(on_a100->accuracy(Precision::bf16).starts_with("GEMMs: a100-sxm4-80 "));
  CHECK(on_a100->accuracy(Precision::fp32).starts_with("a100-sxm4-80 8.2 %"));
  CHECK(on_a100->accuracy(Precision::tf32).starts_with("a100-sxm4-80 4.8 %"));
  CHECK(on_a100->summary().starts_with("16-bit GEMMs on a100-sxm4-80 by "));
  const Cluster v100 = topologies::load_cluster("star:1,device=v100-sxm2", "test");
  CHECK(make_tile_costs(v100)->summary().starts_with("GEMMs and convolutions by a tile model"));
}

}  // namespace
}  // namespace parsim::sim
