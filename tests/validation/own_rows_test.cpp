// Rows that users write by hand: spellings, names of cards, and rows that contradict each other.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text.hpp"
#include "experiment/run.hpp"
#include "strategies/strategies.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"
#include "topologies/topologies.hpp"
#include "validation/measurements.hpp"
#include "validation/predict_published.hpp"
#include "validation/published_calibration.hpp"
#include "validation/published_collective.hpp"
#include "validation/published_kernel.hpp"
#include "validation/published_machines.hpp"
#include "validation/published_plan.hpp"

namespace parsim::validation {
namespace {

Claim one_row(const std::string& columns, const std::string& fields) {
  return read_measurements(columns + "\n" + fields + "\n", "mine.csv", "mine").at(0);
}

Claim of_gpu(const std::string& gpu, const std::string& gpus = "1") {
  return one_row("model,gpu,n_gpus,batch_per_gpu,value,unit",
                 "resnet50," + gpu + "," + gpus + ",64,80,ms");
}

Claim step_of(const std::string& gpu, double milliseconds, const std::string& limit = "") {
  return one_row("model,gpu,n_gpus,batch_per_gpu,value,unit,power_limit",
                 fmt::format("alexnet,{},1,64,{},ms,{}", gpu, milliseconds, limit));
}

std::string warnings_of(const std::vector<Claim>& rows, const std::string& cluster) {
  experiment::Request request;
  request.network = "alexnet";
  request.cluster = cluster;
  request.batch = 64;
  request.fitted = fitted_steps(rows);
  return join(experiment::Experiment(request).warnings, "\n");
}

}  // namespace

TEST_CASE("own rows: after a GPU's name come its form, memory and power, and nothing else") {
  const std::pair<const char*, const char*> known[] = {
      {"NVIDIA H100 80GB HBM3", "h100-sxm5"},
      {"H100 SXM5 @ 500 W", "h100-sxm5"},
      {"h100-500w", "h100-sxm5"},
      {"H200 SXM5", "h200-sxm"},
      {"NVIDIA A100 80GB PCIe", "a100-pcie"},
      {"NVIDIA H100 PCIe", "h100-pcie"},
      {"NVIDIA A100-SXM4-80GB", "a100-sxm4-80"},
      {"A100-SXM4-80GB (assumed)", "a100-sxm4-80"},
      {"Tesla K80 (one GK210 die)", "k80"},
      {"Tesla P100 (PCIe box)", "p100-pcie"},
      {"NVIDIA GB200 SXM", "gb200"},
      {"gh200-96", "gh200"},
      {"L40S PCIe 48 GB GDDR6", "l40s"},
      {"AMD Instinct MI210", "mi210"},
      {"NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"},
      {"NVIDIA L4 Tensor Core GPU", "l4"}};
  for (const auto& [text, device] : known) {
    CAPTURE(text);
    CHECK(device_of(of_gpu(text)) == device);
  }
  const auto refused = [](const std::string& gpu) {
    return testing::refusal_of([&] { (void)device_of(of_gpu(gpu)); });
  };
  CHECK(refused("h100-foo") ==
        "mine:2:gpu: unknown word 'foo' after the GPU's name in 'h100-foo'; accepted: its form "
        "(SXM, PCIe), memory (80GB, HBM3) and power (500 W), and notes in brackets; did you mean "
        "'h100-pcie', 'h100-sxm5' or 'h100-nvl'?");
  for (const char* text : {"H100 SXM4", "H100-SXM5 PCIe", "H100-PCIe SXM5", "H200 NVL",
                           "A100-SXM4-40GB MIG 1g.5gb", "RTX 4090 D", "T4-foo"}) {
    CAPTURE(text);
    CHECK(refused(text).find("unknown word") != std::string::npos);
  }
  // A cluster does not make it right, unless the cards are the user's own.
  Claim named = of_gpu("h100-foo");
  named.what["cluster"] = "star:1,device=h100-sxm5";
  CHECK(testing::refusal_of([&] { (void)cluster_of(named); }).find("unknown word 'foo'") !=
        std::string::npos);
}

TEST_CASE("own rows: GPUs before the name are those of the row") {
  CHECK(device_of(of_gpu("8x NVIDIA H100 80GB HBM3", "8")) == "h100-sxm5");
  CHECK(device_of(of_gpu("8 x H100", "8")) == "h100-sxm5");
  CHECK(testing::refusal_of([] { (void)device_of(of_gpu("8x H100", "4")); }) ==
        "mine:2:gpu: '8x H100', but n_gpus is 4; accepted: n_gpus, or GPUs of a machine "
        "(gpus_per_node), before the name, or the name alone");
}

TEST_CASE("own rows: a network's name has no other words, but may be a call") {
  // Before, the longest of parsim's names that began the text: bloom-7b1 was BLOOM 176B.
  const auto named = [](const std::string& model) {
    std::string name;
    const std::string refused = testing::refusal_of([&] {
      return name = network_of(one_row("model,gpu,n_gpus,batch_per_gpu,value,unit",
                                       "\"" + model + "\",h100-sxm5,1,64,80,ms"));
    });
    return refused == "accepted" ? name : refused;
  };
  for (const auto& [text, name] :
       {std::pair{"ResNet-50 v1.5", "resnet50"},
        {"ResNet-101 v1.5", "resnet101"},
        {"ResNet-50 v1", "resnet50_v1"},
        {"resnext50_32x4d", "resnext50_32x4d"},
        {"VGG-A (11 layers)", "vgg11"},
        {"OverFeat[fast]", "overfeat"},
        {"googlenet-v1", "googlenet"},
        {"BLOOM 176B", "bloom"},
        {"GPT-3 175B", "gpt-3-175b"},
        {"meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"},
        {"llama-3-8b-hf", "llama-3-8b"},
        {"DeepSeek-V3-Base", "deepseek-v3"},
        {"llama-3-8b:layers=4", "llama-3-8b:layers=4"},
        {"gpt:layers=4,width=64,heads=4", "gpt:layers=4,hidden=64,heads=4"}}) {
    CAPTURE(text);
    CHECK(named(text) == name);
  }
  for (const auto& [text, word] : {std::pair{"bloom-7b1", "7"},
                                   {"deepseek-v3-lite", "lite"},
                                   {"Llama-3-8B half depth", "half"},
                                   {"llama-3-8b+lora", "lora"},
                                   {"gpt-3-175b (24 of 96 layers)", "24"},
                                   {"vgg16_bn", "bn"},
                                   {"resnet50d", "d"},
                                   {"resnet50x4", "x4"},
                                   {"resnext50_32x8d", "32"},
                                   {"mobilenet_v2_1.4", "1.4"},
                                   {"ResNet-50 (frozen)", "frozen"},
                                   {"ResNet-50 v1 v1.5", "v1.5"},
                                   {"ResNet-50 v1.5 forward only", "forward"}}) {
    CHECK(named(text) ==
          fmt::format("mine:2:model: unknown word '{}' after the network's name in '{}'; accepted: "
                      "a name of validation/aliases.toml or of 'parsim list' alone, or column "
                      "network, which also takes calls such as llama-3-8b:layers=4",
                      word, text));
  }
}

TEST_CASE("own rows: GPUs before the name do not lose the row its prediction") {
  // Before, the baseline, which is of one GPU, was refused, and the row with it.
  const auto value = [](const std::string& gpu) {
    const Prediction prediction = PublishedPredictor({})(of_gpu(gpu, "8"));
    CHECK(prediction.reason == "");
    CHECK(prediction.baseline.has_value());
    return prediction.value;
  };
  CHECK(value("8x V100-SXM2") == value("V100-SXM2"));
}

TEST_CASE("own rows: usual spellings of units and collectives are read") {
  const auto step = [](const std::string& value, const std::string& unit) {
    return one_row("model,gpu,n_gpus,batch_per_gpu,metric,value,unit",
                   "resnet50,t4,1,64,step time," + value + "," + unit);
  };
  for (const auto& [value, unit] : {std::pair{"80", "ms"},
                                    {"0.08", "s"},
                                    {"0.08", "seconds"},
                                    {"80000", "us"},
                                    {"80", "msec"}}) {
    CAPTURE(unit);
    const Claim claim = step(value, unit);
    CHECK(claim.unit == "ms");
    CHECK(claim.expected == testing::approx(80));
  }
  for (const char* unit : {"img/s", "images/sec", "images/s"}) {
    CHECK(one_row("model,value,unit", fmt::format("resnet50,300,{}", unit)).unit == "images/s");
  }
  CHECK(one_row("model,value,unit", "resnet50,300,samples/sec").unit == "samples/s");
  for (const char* name : {"allreduce", "all-reduce", "all_reduce", "AllReduce", "all reduce"}) {
    CAPTURE(name);
    const Claim claim = one_row("collective,gpu,n_gpus,size_bytes,time_us",
                                fmt::format("{},v100-sxm2,8,1048576,100", name));
    CHECK(claim.at("collective") == "all_reduce");
    CHECK(collective_of(claim) == CollectiveKind::all_reduce);
  }
  CHECK(one_row("collective,size_bytes,time_us", "reducescatter,8,1").at("collective") ==
        "reduce_scatter");
  CHECK(one_row("collective,n_gpus,data_MiB,time_us", "all-gather,4,1,9").at("size_bytes") ==
        fmt::format("{}", 4 * 1024 * 1024));
}

TEST_CASE("own rows: tokens, sequences and rates of one GPU become samples of all") {
  const auto rate = [](const std::string& value, const std::string& unit,
                       const std::string& more = "llama-3-8b,512", const std::string& gpus = "8") {
    return one_row("metric,model,seq_len,gpu,n_gpus,micro_batch,batch_per_gpu,value,unit",
                   fmt::format("throughput,{},a100,{},4,4,{},{}", more, gpus, value, unit));
  };
  for (const char* unit : {"tokens/s", "tok/s", "Tokens/sec", "tokens per second"}) {
    CAPTURE(unit);
    CHECK(rate("51200", unit).unit == "samples/s");
    CHECK(rate("51200", unit).expected == testing::approx(100));
  }
  CHECK(rate("102400", "tokens/s", "llama-3-8b,").expected == testing::approx(12.5));  // of 8,192
  for (const char* unit : {"tokens/s/GPU", "tokens/s per GPU", "tok/s/gpu", "tokens/s/device"}) {
    CAPTURE(unit);
    CHECK(rate("6400", unit).expected == testing::approx(100));
  }
  CHECK(rate("12.5", "samples/s/GPU").expected == testing::approx(100));
  CHECK(rate("100", "sequences/s").expected == testing::approx(100));
  CHECK(rate("100", "seq/s").unit == "samples/s");
  CHECK(one_row("metric,model,gpu,n_gpus,batch_per_gpu,value,unit",
                "images per second per GPU,resnet50,a100,8,64,300,images/s/GPU")
            .expected == testing::approx(2400));
  // Unknown lengths and numbers of GPUs leave a row out by name, also where it calibrates.
  const auto reason = [](const Claim& claim) {
    CHECK_THROWS_AS((void)fitted_steps({claim}), InputError);
    return PublishedPredictor({})(claim).reason;
  };
  CHECK(reason(rate("51200", "tokens/s", "resnet50,")) ==
        "mine:2:unit: 'tokens/s', and the tokens of a sample are not known; accepted: with column "
        "seq_len, or images/s or samples/s");
  CHECK(reason(rate("51200", "tokens/s/GPU", "llama-3-8b,512", "")) ==
        "mine:2:n_gpus: empty, but the unit is of one GPU; accepted: the number of GPUs");
}

TEST_CASE("own rows: a missing time names the columns that may have it") {
  CHECK(testing::refusal_of([] {
          (void)one_row("kind,gpu,n_gpus,collective,size_bytes,rate",
                        "collective,h100-sxm5,8,all_reduce,1024,");
        }) ==
        "mine.csv:2: no time; accepted: column time_us, time_us_outofplace or time_us_inplace");
}

TEST_CASE("own rows: kernels and single steps are of the card that the row describes") {
  const auto kernel = [](const std::string& more, const std::string& type, const char* shape) {
    return kernel_seconds(
        one_row("gpu,dtype,m,n,k,op_class,rows,cols,op,power_limit,"
                "gpu_memory_rate,time_us",
                "h100-sxm5," + type + "," + shape + "," + more + ",1"));
  };
  const char* product = "4096,4096,4096,,,,";
  const char* memory = ",,,elementwise,4096,65536,relu";
  CHECK(kernel("350 W,", "fp32", product) > 1.15 * kernel(",", "fp32", product));
  CHECK(kernel("350 W,", "bf16", product) > 1.15 * kernel(",", "bf16", product));
  CHECK(kernel(",1.675 TB/s", "bf16", memory) > 1.9 * kernel(",", "bf16", memory));
  const auto step = [](const std::string& limit) {
    const SingleStep single = single_step(
        one_row("model,batch,gpu,power_limit,total_ms", "vgg16,64,h100-sxm5," + limit + ",50"));
    return single.others + single.squares;
  };
  CHECK(step("350 W") > 1.1 * step(""));
}

TEST_CASE("own rows: rows that contradict each other get a warning with both factors") {
  const Training training(step_of("t4", 1));
  const double whole = 1e3 * training.step(1), longer = 1e3 * training.step(2);
  const std::string texts =
      warnings_of({step_of("t4", whole), step_of("t4", longer)}, "star:1,device=t4,rate=10GB/s");
  const std::string name = "mine:alexnet, t4, 1 n_gpus, batch_per_gpu 64 (line 2)";
  CHECK(texts == "measured rows of t4 disagree: kernels take 1 times as long as modelled by " +
                     name + ", and 2 times by " + name +
                     "; the median of 2 rows, 1.5, is used, "
                     "and intervals are wider");
  CHECK(warnings_of({step_of("t4", whole), step_of("t4", 1.1 * whole)},
                    "star:1,device=t4,rate=10GB/s") == "");
}

TEST_CASE("own rows: rows that contradict each other widen the interval, by hand") {
  const Training training(step_of("t4", 1));
  const auto interval = [&](std::initializer_list<double> factors) {
    experiment::Request request;
    request.network = "alexnet";
    request.cluster = "star:1,device=t4,rate=10GB/s";
    request.batch = 64;
    std::vector<Claim> rows;
    for (const double factor : factors) rows.push_back(step_of("t4", 1e3 * training.step(factor)));
    request.fitted = fitted_steps(rows);
    const experiment::Experiment run(request);
    const auto planned = experiment::make_plan(run, strategies::strategy("data", "test"));
    return experiment::run_plan(run, planned).result.interval;
  };
  const experiment::StepInterval one = interval({1.5}), alike = interval({1.4, 1.6}),
                                 apart = interval({1, 2.25});
  CHECK(alike.high == testing::approx(one.high).epsilon(0.01));
  // Kernels are the whole step; the median of 1 and 2.25 is 1.625: squares of ln(1 / 1.625) and
  // ln(2.25 / 1.625), their mean less that of two rows that just agree, ln(1.2) / 2.
  const double square = (0.4855 * 0.4855 + 0.3254 * 0.3254) / 2 - 0.0912 * 0.0912;
  const double wider = std::pow(std::log(apart.high), 2) - std::pow(std::log(one.high), 2);
  CHECK(wider == testing::approx(1.6449 * 1.6449 * square).epsilon(0.01));
  CHECK(apart.low < 0.8 * one.low);
}

TEST_CASE("own rows: other kernels, another kind of network or too much memory get a warning") {
  const auto warnings = [](const std::string& columns, const std::string& fields,
                           const std::string& network = "alexnet") {
    experiment::Request request;
    request.network = network;
    request.cluster = "star:1,device=v100-sxm2,rate=10GB/s";
    request.batch = 4;
    request.given = {"--precision"};
    request.fitted = fitted_steps({one_row("model,gpu,n_gpus,batch_per_gpu,value,unit" + columns,
                                           "alexnet,v100-sxm2,1," + fields)});
    return join(experiment::Experiment(request).warnings, "\n");
  };
  const auto says = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(warnings("", "64,40,ms").empty());
  CHECK(says(warnings(",framework", "64,40,ms,\"PyTorch, torch.compile\""),
             "predicted with --fusion compiled, and the run with --fusion none"));
  CHECK(says(warnings("", "8192,5000,ms"), "% of its GPU's memory; check its batch"));
  CHECK(
      says(warnings("", "64,40,ms", "gpt:layers=1,hidden=64,heads=2,seq_length=16,vocab_size=100"),
           "a step of no transformer, which says little of the kernels of a transformer"));
}

TEST_CASE("own rows: the samples of a GPU give the micro-batches, or contradict them") {
  const auto micro_batches = [](const std::string& columns, const std::string& fields) {
    return layout_of(one_row("model,gpu,n_gpus,value,unit,batch_per_gpu,micro_batch" + columns,
                             "gpt2,a100,8,10,s,8," + fields))
        .micro_batches;
  };
  CHECK(micro_batches("", "4") == 2);
  CHECK(micro_batches(",tp", "4,2") == 4);  // two GPUs are a replica of 16 samples
  CHECK(micro_batches(",grad_accum", "4,2") == 2);
  CHECK(testing::refusal_of([&] { (void)micro_batches("", "16"); }) ==
        "mine:2:micro_batch: 16, but a replica has 8 samples; accepted: a divisor of them");
  CHECK(testing::refusal_of([&] { (void)micro_batches(",grad_accum", "4,4"); }) ==
        "mine:2:batch_per_gpu: 8, but micro_batch x grad_accum x dp / n_gpus is 16; accepted: the "
        "same");
}

TEST_CASE("own rows: a row of another power limit than the card's gets a note") {
  const testing::TemporaryFolder folder;
  const std::string limited =
      folder.write("own.toml",
                   "generator = \"star:1,device=mine,rate=10GB/s\"\n[[device_types]]\n"
                   "name = \"mine\"\nbase = \"h100-sxm5\"\npower_limit = \"350 W\"\n");
  const std::string full = "star:1,device=h100-sxm5,rate=10GB/s";
  const Claim plain = step_of("h100-sxm5", 20), slow = step_of("h100-sxm5", 20, "350 W");
  CHECK(warnings_of({plain}, full) == "");
  CHECK(warnings_of({slow}, limited) == "");
  const std::string name = "mine:alexnet, h100-sxm5, 1 n_gpus, batch_per_gpu 64 (line 2): ";
  CHECK(warnings_of({plain}, limited) ==
        name +
            "measured on a card of 700 W, but mine of the run is limited to 350 W: if the row's "
            "was, too, it needs power_limit = 350 W");
  CHECK(warnings_of({slow}, full) ==
        name +
            "measured on a card limited to 350 W, but h100-sxm5 of the run has 700 W: a row "
            "without the limit fits better");
}

TEST_CASE("own rows: Infinity Fabric has its rate, and AMD's modules no PCIe") {
  const auto cluster = [](const std::string& gpu, const std::string& interconnect,
                          const std::string& machines = "1,8") {
    return cluster_of(
        one_row("model,gpu,nodes,n_gpus,batch_per_gpu,value,unit,interconnect",
                fmt::format("resnet50,{},{},64,80,ms,\"{}\"", gpu, machines, interconnect)));
  };
  const auto line_rate = [&](const std::string& gpu, const std::string& interconnect,
                             const std::string& machines = "1,8") {
    return cluster(gpu, interconnect, machines).links.front().line_rate.value;
  };
  for (const char* text : {"", "Infinity Fabric", "xGMI", "XGMI links"}) {
    CAPTURE(text);
    CHECK(line_rate("MI300X", text) == 448e9);
  }
  CHECK(line_rate("mi250", "Infinity Fabric 150 GB/s") == 150e9);
  CHECK(line_rate("mi250", "PCIe gen4") == 31.5e9);
  const Cluster two = cluster("mi300x", "Infinity Fabric 400 GB/s + NDR", "2,16");
  CHECK(std::any_of(two.links.begin(), two.links.end(),
                    [](const Link& link) { return link.line_rate.value == 400e9; }));
  CHECK(testing::refusal_of([&] { cluster("mi250", ""); }) ==
        "mine:2:interconnect: empty, but mi250 are modules on Infinity Fabric; accepted: the rate "
        "of a GPU in each direction, as in 'Infinity Fabric 150 GB/s', or PCIe");
  CHECK(testing::refusal_of([&] { cluster("mi210", "xGMI"); }) ==
        "mine:2:interconnect: 'xGMI', whose rate between mi210 is not known; accepted: the rate of "
        "a GPU in each direction, as in 'Infinity Fabric 150 GB/s', or PCIe");
}

TEST_CASE("own rows: without their machines or the network between these, rows are refused") {
  const auto machines = [](const std::string& columns, const std::string& fields) {
    const Claim claim = one_row("model,gpu,batch_per_gpu,value,unit" + columns,
                                "resnet50,h100-sxm5,64,80,ms" + fields);
    const Cluster cluster = cluster_of(claim);
    CHECK(machines_of(claim) == std::ssize(cluster.nodes));
    return machines_of(claim);
  };
  CHECK(machines(",n_gpus", ",8") == 1);
  CHECK(machines(",n_gpus,nodes", ",16,1") == 1);
  CHECK(machines(",n_gpus,nodes,interconnect", ",16,2,NVLink4 + 8x400 Gb/s") == 2);
  CHECK(machines(",n_gpus,gpus_per_node,interconnect", ",16,8,NVLink4 + 8x400 Gb/s") == 2);
  CHECK(machines(",n_gpus,placement,interconnect", ",16,8+8,NVLink4 + 8x400 Gb/s") == 2);
  CHECK(testing::refusal_of([&] { machines(",n_gpus", ",16"); }) ==
        "mine:2:nodes: empty, but n_gpus is 16; accepted: the number of machines that the GPUs are "
        "in (1 if they share one), or gpus_per_node");
  CHECK(testing::refusal_of([&] { machines(",n_gpus,nodes", ",16,2"); }) ==
        "mine:2:interconnect: empty, but the row has several machines; accepted: a text that names "
        "NVLink, NVSwitch, Infinity Fabric or PCIe, and between machines ports with their rate, as "
        "in 'NVLink4 + 8x400 Gb/s' or 'NVLink4 + 400 Gb/s per GPU'");
}

TEST_CASE("own rows: links that are assumed get a line for the file") {
  const testing::TemporaryFolder folder;
  folder.write("mine.csv",
               "model,gpu,n_gpus,batch_per_gpu,precision,value,unit,interconnect\n"
               "alexnet,l40s,2,64,fp32,150,ms,\nalexnet,l40s,4,64,fp32,160,ms,\n"
               "alexnet,l40s,4,64,fp32,160,ms,PCIe gen5\nalexnet,l40s,1,64,fp32,140,ms,\n"
               "alexnet,h100,8,64,fp32,20,ms,\nalexnet,mi300x,8,64,fp32,20,ms,\n"
               "alexnet,l40s,four,64,fp32,160,ms,\n");
  const testing::Finished finished = testing::run_program(
      PARSIM_PROGRAM, {"validate", "--published", "--from-scratch", "--data", "mine.csv"},
      folder.folder());
  CHECK(finished.exit_code == 0);
  CHECK((finished.out + finished.err)
            .find("mine.csv: 1 row without interconnect: taken as Infinity Fabric of 448 GB/s each "
                  "way between mi300x; 2 rows without interconnect: taken as PCIe of 31.5 GB/s "
                  "each way between l40s") != std::string::npos);
}

TEST_CASE("own rows: calibrating rows that count for no predicted row get a line") {
  const testing::TemporaryFolder folder;
  const std::string head = "model,gpu,n_gpus,batch_per_gpu,precision,framework,value,unit\n";
  folder.write("score.csv", head + "alexnet,t4,1,64,fp32,PyTorch,150,ms\n");
  folder.write("mine.csv", head + "alexnet,t4,1,32,fp32,PyTorch,80,ms\n" +
                               "alexnet,t4,1,32,fp32,pytorch,80,ms\n" +
                               "alexnet,a100,1,32,fp32,PyTorch,10,ms\n");
  const testing::Finished finished = testing::run_program(
      PARSIM_PROGRAM,
      {"validate", "--published", "--data", "score.csv", "--calibrate-with", "mine.csv"},
      folder.folder());
  CHECK(finished.exit_code == 0);
  CHECK((finished.out + finished.err)
            .find("mine: 2 of 3 calibrating rows count for no predicted row, such as "
                  "alexnet, t4, 1 n_gpus, fp32, pytorch, batch_per_gpu 32 (line 3): steps count "
                  "where gpu, precision and framework are spelled the same") != std::string::npos);
}

}  // namespace parsim::validation
