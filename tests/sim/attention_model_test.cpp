#include "sim/attention_model.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/csv.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"

namespace parsim::sim {
namespace {

using namespace testing;

/// Forward, all keys, 4 heads of 128 channels, 1024 queries and keys, 32 blocks of queries.
Kernel attends() {
  Kernel kernel;
  kernel.kind = KernelClass::gemm;
  kernel.attends = true;
  kernel.m = 1024;
  kernel.n = 128;
  kernel.batches = 4;
  kernel.keys = 1024;
  kernel.flops = 4.0 * 4 * 1024 * 1024 * 128;
  return kernel;
}

TEST_CASE("attention model: level, width, once per block, mask and idle multiprocessors by hand") {
  AttentionModel model;
  model.level = 0.5;
  const double peak = 1e12;
  Kernel kernel = attends();
  const double ideal = kernel.flops / peak;
  const auto slower = [&](int multiprocessors = 32) {
    return attention_time(model, kernel, peak, multiprocessors).count() / ideal;
  };
  CHECK(slower() == testing::approx(2));
  CHECK(slower(64) == testing::approx(4));  // half of them have no block
  CHECK(slower(16) == testing::approx(2));
  kernel.m = 1;  // still a block a head
  CHECK(slower(64) == testing::approx(2 * 16));
  kernel.m = 1024;
  model.forward_keys = 256;
  CHECK(slower() == testing::approx(2 * 1.25));
  kernel.masked = true;
  model.masked_keys = 128;
  CHECK(slower() == testing::approx(2 * 1.375));
  kernel.windowed = true;
  CHECK(slower() == testing::approx(2 * 1.5));
  kernel.windowed = false;
  kernel.backwards = true;
  model.backward = 0.8;
  model.backward_keys = 512;
  CHECK(slower() == testing::approx(2 / 0.8 * 1.625));
  kernel = attends();
  model = {};
  model.narrow = 0.75;  // x = 64: narrow(64) = 192 / 256, narrow(32) = 32 · 192 / (128 · 96)
  kernel.n = 64;
  CHECK(slower() == testing::approx(1 / 0.75));
  kernel.n = 32;
  CHECK(slower() == testing::approx(2));
  kernel.n = 256;
  CHECK(slower() == testing::approx(1));
  model.narrow = 1.25;  // faster with 64 channels: widths are padded to a power of two
  kernel.n = 64;
  CHECK(slower() == testing::approx(1 / 1.25));
  kernel.n = 48;
  CHECK(slower() == testing::approx(64 / 48.0 / 1.25));
  kernel.n = 96;
  CHECK(slower() == testing::approx(128 / 96.0));
  kernel.n = 128;
  CHECK(slower() == testing::approx(1));
  model.narrow = 1;  // as fast with any width, without padding
  kernel.n = 96;
  CHECK(slower() == testing::approx(1));
  kernel.n = 128;
  model.masked = 0.8;
  CHECK(slower() == testing::approx(1));
  kernel.masked = true;
  CHECK(slower() == testing::approx(1.25));
}

struct Row {
  std::string mode;
  bool causal = false;
  double queries = 0, width = 0, tflops = 0;
};

/// TFLOP/s of a row by the model, counted as charts do: half of the scores with a causal mask.
double predicted(const AttentionModel& model, const Row& row, double peak) {
  Kernel kernel = attends();
  kernel.m = static_cast<std::int64_t>(row.queries);
  kernel.n = static_cast<std::int64_t>(row.width);
  kernel.batches = 1'000'000;  // no multiprocessor is idle
  kernel.masked = row.causal;
  kernel.keys = row.queries / (row.causal ? 2 : 1);
  double flops = 0, seconds = 0;
  const auto pass = [&](bool backwards, double count) {
    kernel.backwards = backwards;
    kernel.flops = count;
    flops += count;
    seconds += attention_time(model, kernel, peak, 1).count();
  };
  if (row.mode != "bwd") pass(false, 1e12);
  if (row.mode != "fwd") pass(true, 2.5e12);
  return flops / seconds / 1e12;
}

TEST_CASE("attention model: it meets the rows of each card as its table says") {
  const std::string rows_path = PARSIM_SOURCE_DIR "/sim/attention_rows.csv";
  const CsvTable table = read_csv(read_text(rows_path), rows_path);
  std::map<std::string, std::vector<Row>> rows;
  for (const CsvTable::Row& row : table.rows) {
    rows[table.at(row, "gpu")].push_back({table.at(row, "mode"), table.number(row, "causal") == 1,
                                          table.number(row, "seq"), table.number(row, "head_dim"),
                                          table.number(row, "tflops")});
  }
  const std::string models_path = PARSIM_SOURCE_DIR "/sim/attention_models.csv";
  const CsvTable models = read_csv(read_text(models_path), models_path);
  REQUIRE(models.rows.size() == attention_models().size());
  CHECK(rows.size() == models.rows.size());
  for (std::size_t i = 0; i < models.rows.size(); ++i) {
    const AttentionModel& model = attention_models()[i];
    CAPTURE(model.device);
    double sum = 0;
    for (const Row& row : rows.at(model.device)) {
      const double peak = models.number(models.rows[i], "peak");
      sum += std::abs(predicted(model, row, peak) / row.tflops - 1);
    }
    const double mean = sum / static_cast<double>(rows.at(model.device).size());
    MESSAGE(fmt::format("{}, {}: {} rows, mean {:.1f} %", model.device, model.kernel,
                        rows.at(model.device).size(), 100 * mean));
    CHECK(std::abs(mean - model.mean_error) < 0.001);  // the table is rounded to 0.1 %
    if (model.kernel == "FlashAttention-2") CHECK(mean < 0.03);
  }
}

TEST_CASE("attention model: a card's own row, else the nearest of its generation") {
  const auto of = [](const std::string& name, const std::string& architecture) {
    DeviceModel device;
    device.name = name;
    device.architecture = architecture;
    return attention_rates(device);
  };
  CHECK(of("h100-sxm5", "9.0").model->device == "h100-sxm5");
  CHECK(of("h100-sxm5", "9.0").origin == Origin::modelled);
  CHECK(of("h200-sxm", "9.0").model->device == "h100-sxm5");
  CHECK(of("h200-sxm", "9.0").origin == Origin::guessed);
  CHECK(of("rtx-3090", "8.6").model->device == "rtx-a5000");
  CHECK(of("l4", "8.9").model->device == "l40s");
  CHECK(of("t4", "7.5").model->kernel == "xformers");
  CHECK(of("v100-sxm2", "7.0").model->kernel == "xformers");
  CHECK(of("b300", "10.3").model->device == "b200-sxm");
  CHECK(of("mi300x", "").model->device == "h100-sxm5");
}

TEST_CASE("attention model: an older kernel has its rows, elsewhere a level by the automatic one") {
  const auto of = [](const std::string& name, const std::string& architecture,
                     AttentionKernel kernel) {
    DeviceModel device;
    device.name = name;
    device.architecture = architecture;
    return attention_rates(device, kernel);
  };
  const auto a100 = of("a100-sxm4-80", "8.0", AttentionKernel::flash1);
  CHECK(a100.model->kernel == "FlashAttention-1");
  CHECK(a100.origin == Origin::modelled);
  const auto h100 = of("h100-sxm5", "9.0", AttentionKernel::flash1);
  CHECK(h100.origin == Origin::modelled);

  // FlashAttention 1 on H100 was measured: what it would be given by the rule is near.
  const double there = of("a100-sxm4-80", "8.0", AttentionKernel::automatic).model->level;
  const double here = of("h100-sxm5", "9.0", AttentionKernel::automatic).model->level;
  CHECK(h100.model->level == testing::approx(a100.model->level * here / there).epsilon(0.01));
  const auto other = of("rtx-3090", "8.6", AttentionKernel::flash1);
  const double level = of("rtx-3090", "8.6", AttentionKernel::automatic).model->level;
  CHECK(other.origin == Origin::guessed);
  CHECK(other.model->level == testing::approx(a100.model->level * level / there));
  CHECK(other.model->masked == a100.model->masked);

  // No table has the one in Triton.
  for (const char* name : {"a100-sxm4-80", "h100-sxm5"}) {
    const auto triton = of(name, "8.0", AttentionKernel::triton);
    CHECK(triton.origin == Origin::guessed);
    CHECK(triton.model->level == of(name, "8.0", AttentionKernel::flash1).model->level);
  }

  for (const AttentionKernel kernel : {AttentionKernel::flash1, AttentionKernel::triton}) {
    CHECK(of("t4", "7.5", kernel).model->kernel == "xformers");
  }
  CHECK(of("rtx-3090", "8.6", AttentionKernel::xformers).model->kernel == "xformers");
}

}  // namespace
}  // namespace parsim::sim
