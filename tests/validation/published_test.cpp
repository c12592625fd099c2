// Predictions of published measurements, on small tables.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/errors.hpp"
#include "networks/networks.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"
#include "topologies/topologies.hpp"
#include "validation/measurements.hpp"
#include "validation/predict_published.hpp"
#include "validation/published_machines.hpp"

namespace parsim::validation {
namespace {

constexpr const char* training =
    "model,batch_per_gpu,gpu,machine,nodes,gpus_per_node,n_gpus,interconnect,precision,framework,"
    "parallelism,value,unit,split\n"
    "LeNet,64,Tesla P100-SXM2,box,1,1,1,none,FP32,F,DP,30000,images/s,calibrate\n"
    "LeNet,64,Tesla P100-SXM2,box,1,1,1,none,FP32,F,DP,30000,images/s,\n"
    "LeNet,64,Tesla P100-SXM2,box,1,4,4,PCIe gen3,FP32,F,DP,100000,images/s,validate\n"
    "LeNet,64,Tesla P100-SXM2,box,1,4,4,PCIe gen3,FP32,G,DP,100000,images/s,validate\n"
    "Nonesuch,64,Tesla P100-SXM2,box,1,4,4,PCIe gen3,FP32,F,DP,1,images/s,validate\n"
    "LeNet,64,Tesla P9,box,1,4,4,PCIe gen3,FP32,F,DP,1,images/s,validate\n"
    "LeNet,64,Tesla P100-SXM2,box,1,4,4,PCIe gen3,FP32,F,DP,1,images/s,unscored\n";

Claim row_of(const std::string& columns, const std::string& fields) {
  return read_measurements(columns + ",value,unit\n" + fields + ",1,images/s\n", "f.csv", "f")
      .at(0);
}

}  // namespace

TEST_CASE("published: a reason is suspected only where measurements rule out others, by hand") {
  ValidationRow row;
  row.claim.quantity = "throughput";
  row.claim.unit = "images/s";
  row.claim.what["framework"] = "Caffe";
  row.claim.expected = 400;
  row.predicted = 600;
  row.calibrated = row.baseline_measured = true;
  const auto reason = [&](double baseline) {
    row.baseline = baseline;
    return suspected_reason(row);
  };
  CHECK(reason(410) == "");  // of linear 98 %
  CHECK(reason(800).starts_with("measured, Caffe reaches 50 % of linear"));
  row.baseline_measured = false;  // a rate of one GPU that is predicted may be what is wrong
  CHECK(reason(800) == "");
  row.claim.what["nodes"] = "2";
  CHECK(reason(800).starts_with("between machines: "));
  row.calibrated = false;
  CHECK(reason(800) == "");
  row.calibrated = true;
  row.predicted = 200;
  CHECK(reason(800) == "");
}

TEST_CASE(
    "published: one device comes out as fitted, more are simulated, with devices x one as "
    "baseline") {
  const std::vector<Claim> claims = read_measurements(training, "t.csv", "t");
  const PublishedPredictor predictor(claims);
  const Prediction one = predictor(claims[1]);
  CHECK(one.value.value() == testing::approx(30000).epsilon(1e-6));
  CHECK(one.baseline.value() == testing::approx(30000));
  const Prediction four = predictor(claims[2]);
  CHECK(four.baseline.value() == testing::approx(120000));
  // 61,706 gradients of 4 bytes through PCIe cannot hide in 2 ms; nor can they take much of it.
  CHECK(*four.value < 120000);
  CHECK(*four.value > 90000);
  // Another framework has no row to fit: kernels as they are, whose one-device rate is the
  // baseline.
  const Prediction unfitted = predictor(claims[3]);
  CHECK(*unfitted.value < *unfitted.baseline);
  CHECK(*unfitted.value != testing::approx(*four.value).epsilon(0.01));
}

TEST_CASE("published: a row that cannot be predicted is named with its reason") {
  const std::vector<Claim> claims = read_measurements(training, "t.csv", "t");
  const PublishedPredictor predictor(claims);
  CHECK(predictor(claims[4]).reason.starts_with("t:6:model: unknown model 'Nonesuch'"));
  CHECK(predictor(claims[5]).reason.starts_with("t:7:gpu: unknown gpu 'Tesla P9'"));
  CHECK(predictor(claims[6]).reason == "library not modelled");
}

TEST_CASE("published: a card whose name only looks like one of ours is refused by name") {
  const auto device = [](const std::string& gpu) { return device_of(row_of("gpu", gpu)); };
  CHECK(device("L4") == "l4");
  CHECK(device("NVIDIA L40") == "l40");
  CHECK(device("L40S") == "l40s");
  CHECK(device("Tesla V100-SXM2-32GB") == "v100-sxm2-32");
  CHECK(device("GeForce RTX 2080 Ti") == "rtx-2080ti");
  CHECK(device("A10G") == "a10g");
  CHECK(device("NVIDIA H100 NVL") == "h100-nvl");
  CHECK(device("H100-SXM5-80GB") == "h100-sxm5");
  CHECK(device("A100-PCIE-40GB") == "a100-pcie-40");
  CHECK(device("A100-PCIE-80GB") == "a100-pcie");
  CHECK(device("GH200 480GB") == "gh200");
  CHECK(device("Quadro RTX 6000") == "quadro-rtx-6000");
  CHECK(device("NVIDIA RTX 6000 Ada") == "rtx-6000-ada");
  CHECK(device("AMD Radeon RX 7900 XTX") == "7900xtx");
  CHECK(device("AMD MI250") == "mi250");
  const auto refusal = [&](const std::string& gpu) -> std::string {
    try {
      return device(gpu);
    } catch (const InputError& error) {
      return error.what();
    }
  };
  CHECK(refusal("A10X") ==
        "f:2:gpu: unknown gpu 'A10X'; accepted: a name of validation/aliases.toml or of 'parsim "
        "list'; did you mean 'a10'?");
  CHECK(refusal("L400").find("did you mean 'l40'?") != std::string::npos);
  CHECK(refusal("GeForce RTX 2080 Super").starts_with("f:2:gpu: unknown gpu"));
}

TEST_CASE("published: a row's version of NCCL is obeyed, another library's name is none") {
  const std::string header =
      "gpu,nodes,gpus_per_node,n_gpus,interconnect,nccl_version,collective,size_bytes,"
      "time_us_outofplace\n";
  const auto time = [&](const std::string& version) {
    const auto claims =
        read_measurements(header + "V100-SXM2,2,8,16,NVLink + 4x100 Gb/s InfiniBand," + version +
                              ",all_reduce,1073741824,40000\n",
                          "c.csv", "c");
    const Prediction prediction = PublishedPredictor(claims)(claims[0]);
    return prediction.value ? fmt::format("{:.0f}", *prediction.value / 1e3) : prediction.reason;
  };
  // Rings of 2.3 carry 1.875 GiB over 50 GB/s; trees of 2.28 1 GiB over 0.92 of it.
  // InfiniBand's share of that and rings' last step are some 2 % each.
  CHECK(time("2.3.7") == "42");
  CHECK(time("NCCL 2.3 MPI") == "42");
  CHECK(time("2.18.6-cuda12") == "25");
  CHECK(time("") == "24");
  CHECK(time("OSU Allreduce") == "24");
  CHECK(time("1.3.4").starts_with("c:2:nccl_version: '1.3.4'; accepted: a version from 2.0 on"));
}

TEST_CASE("published: an unknown precision or unit is named, not taken for another") {
  const auto reason = [](const std::string& precision, const std::string& unit) {
    const auto claims = read_measurements(
        "model,batch_per_gpu,gpu,precision,value,unit\nLeNet,64,Tesla P100-SXM2," + precision +
            ",30000," + unit + "\n",
        "t.csv", "t");
    return PublishedPredictor(claims)(claims[0]).reason;
  };
  CHECK(reason("FP9", "images/s").starts_with("t:2:precision: unknown precision 'FP9'; accepted"));
  CHECK(reason("FP32", "h").starts_with("t:2:unit: unknown unit 'h'; accepted: images/s"));
  CHECK(reason("fp32", "ms").empty());
  CHECK(reason("fp16 mixed", "samples/s").empty());
  CHECK(reason("", "").empty());
}

TEST_CASE("published: one number per card and library, fitted on 3x3 convolutions") {
  constexpr const char* columns = "model,batch,gpu,precision,cudnn,total_ms,split\n";
  const auto table = [&](double total) {
    return read_measurements(
        columns + ("vgg11,4,GeForce GTX 1080 Ti,FP32,5110," + std::to_string(total)) +
            ",calibrate\n"
            "vgg11,4,GeForce GTX 1080 Ti,FP32,5110,40,\n"
            "alexnet,4,GeForce GTX 1080 Ti,FP32,5110,5,\n"
            "vgg11,4,GeForce GTX 1080 Ti,FP32,,40,\n",
        "s.csv", "s");
  };
  const auto fast_rows = table(30), slow_rows = table(60);
  const PublishedPredictor fast(fast_rows), slow(slow_rows);
  CHECK(fast(fast_rows[1]).value.value() == testing::approx(30));
  CHECK(slow(slow_rows[1]).value.value() == testing::approx(60));
  // Three of AlexNet's five convolutions are 3x3: it moves less than VGG does.
  const double ratio = *slow(slow_rows[2]).value / *fast(fast_rows[2]).value;
  CHECK(ratio > 1.05);
  CHECK(ratio < 1.9);
  CHECK(slow(slow_rows[3]).value.value() == testing::approx(60));  // the card's only fit
  // The naive prediction: the same FLOP/s, whatever the network.
  const double flops =
      forward_flops_per_sample(networks::load_network("alexnet", {}, "test")).value /
      forward_flops_per_sample(networks::load_network("vgg11", {}, "test")).value;
  CHECK(slow(slow_rows[2]).baseline.value() == testing::approx(60 * flops));
}

TEST_CASE("published: collectives are timed on the machine the row describes") {
  const auto claims = read_measurements(
      "gpu,nodes,gpus_per_node,n_gpus,interconnect,collective,size_bytes,time_us_outofplace\n"
      "A100-SXM4-80GB,1,8,8,NVSwitch(NVLink3),all_reduce,1073741824,8000\n",
      "c.csv", "c");
  const Prediction prediction = PublishedPredictor(claims)(claims[0]);
  // A ring moves 2 · 7/8 of 1 GiB at NVLink 3's share of 300 GB/s, and 28 us of cables. NCCL's
  // Simple waits 8.4 + 14 · 3.4 us instead, the last 1/8 of 1 GiB is taken out of buffers at 2039 /
  // 4 GB/s: 263.3 us, and a system without rows to fit adds offset and root of its kind of links.
  const LinkNumbers numbers = link_numbers(LinkKind::nvlink3);
  const double ring = 1073741824 * 1.75 / (300e3 * numbers.efficiency);
  CHECK(prediction.baseline.value() == testing::approx(ring + 28).epsilon(1e-3));
  CHECK(prediction.value.value() ==
        testing::approx(ring + 56 + 263.3 +
                        1e6 * (numbers.launch.count() + 32768 * numbers.per_root_byte.count()))
            .epsilon(1e-4));
}

TEST_CASE("published: an unknown interconnect is refused by name, not taken for PCIe") {
  const auto reason = [](const std::string& machine, const std::string& interconnect) {
    const auto claims = read_measurements(
        "gpu,nodes,gpus_per_node,n_gpus,interconnect,collective,size_bytes,time_us_outofplace\n"
        "A100-SXM4-80GB," +
            machine + ",\"" + interconnect + "\",all_reduce,1073741824,8000\n",
        "c.csv", "c");
    return PublishedPredictor(claims)(claims[0]).reason;
  };
  const std::string accepted =
      "accepted: a text that names NVLink, NVSwitch, Infinity Fabric or PCIe, and between machines "
      "ports with their rate, as in 'NVLink4 + 8x400 Gb/s' or 'NVLink4 + 400 Gb/s per GPU'";
  CHECK(reason("1,8,8", "NVLnk") ==
        "c:2:interconnect: 'NVLnk'; " + accepted + "; did you mean 'NVLink'?");
  CHECK(reason("1,8,8", "CAPI") == "c:2:interconnect: 'CAPI'; " + accepted);
  CHECK(reason("2,8,16", "NVLink + Slingshot") ==
        "c:2:interconnect: 'NVLink + Slingshot'; " + accepted);
  CHECK(reason("2,1,2", "Slingshot") == "c:2:interconnect: 'Slingshot'; " + accepted);
  for (const char* known : {"", "NVSwitch(NVLink3)", "pcie gen4"}) {
    CHECK(reason("1,8,8", known).empty());
  }
  CHECK(reason("2,8,16", "NVLink + InfiniBand HDR").empty());
  CHECK(reason("2,1,2", "100 Gb/s").empty());
}

TEST_CASE("published: what a source sets for the library is obeyed") {
  // Two machines with 50 GB/s of network each: a ring moves 2 · 15/16 of 1 GiB over them, 40.3 ms;
  // left alone, NCCL takes a tree, which moves the payload once per direction.
  const std::string header =
      "gpu,nodes,gpus_per_node,n_gpus,interconnect,collective,size_bytes,time_us_outofplace,"
      "settings\n";
  const std::string row =
      "A100-SXM4-40GB,2,8,16,NVSwitch + EFA 4x100 Gb/s,all_reduce,1073741824,47392,";
  const auto claims =
      read_measurements(header + row + "\n" + row + "NCCL_ALGO=Ring\n" + row +
                            "nccl_proto=simple NCCL_ALGO=RING\n" + row + "NCCL_ALG=RING\n",
                        "c.csv", "c");
  const PublishedPredictor predictor(claims);
  const double ring = predictor(claims[1]).value.value();
  CHECK(ring > 1073741824 * 1.875 / 50e3);
  CHECK(ring < 1.05 * 1073741824 * 1.875 / 50e3);
  CHECK(predictor(claims[0]).value.value() < 0.6 * ring);
  CHECK(predictor(claims[2]).value.value() == testing::approx(ring));  // Simple is what it takes
  CHECK(predictor(claims[3]).reason.starts_with("c:settings: unknown setting 'NCCL_ALG=RING'"));
}

TEST_CASE("published: a table's own rows fit its offset and square root") {
  // Two sizes and two terms: both are met.
  const auto claims = read_measurements(
      "gpu,nodes,gpus_per_node,n_gpus,interconnect,collective,size_bytes,time_us_outofplace,split\n"
      "A100-SXM4-80GB,1,8,8,NVSwitch,all_reduce,64,45.08,calibrate\n"
      "A100-SXM4-80GB,1,8,8,NVSwitch,all_reduce,1073741824,8342.9,calibrate\n"
      "A100-SXM4-80GB,1,8,8,NVSwitch,all_reduce,64,45.08,\n"
      "A100-SXM4-80GB,1,8,8,NVSwitch,all_reduce,1073741824,8342.9,\n",
      "c.csv", "c");
  const PublishedPredictor predictor(claims);
  for (const std::size_t i : {std::size_t{2}, std::size_t{3}}) {
    CHECK(predictor(claims[i]).value.value() == testing::approx(claims[i].expected).epsilon(1e-4));
  }
  Claim apart = claims[2];
  apart.what[std::string(uncalibrated)] = "yes";
  CHECK(predictor(apart).value.value() ==
        testing::approx(15 + 1e6 * link_numbers(LinkKind::nvlink3).launch.count()).epsilon(1e-3));
}

TEST_CASE("published: an alias counts for as many machines as a row has") {
  const auto cluster = [](const std::string& machine, int nodes, const char* interconnect = "") {
    return cluster_of(
        row_of("gpu,machine,nodes,gpus_per_node,n_gpus,interconnect",
               fmt::format("{},{},8,{},{}", machine, nodes, 8 * nodes, interconnect)));
  };
  for (const int nodes : {1, 2, 5}) {
    CAPTURE(nodes);
    const Cluster clouds = cluster("K80,AWS EC2 p2.8xlarge (8x K80)", nodes);
    CHECK(std::ssize(devices_of(clouds, DeviceKind::gpu)) == 8 * nodes);
    CHECK(clouds.devices.back().node == NodeId{static_cast<std::size_t>(nodes) - 1});
    const Cluster meshes = cluster("V100-SXM2,8x V100-SXM2-16GB node", nodes);
    CHECK(std::ssize(devices_of(meshes, DeviceKind::gpu)) == 8 * nodes);
    // Boards, sockets, PCIe switches and cards of the files, not one switch a machine.
    const auto inside = [](const Cluster& all) {
      return std::count_if(all.switches.begin(), all.switches.end(),
                           [](const Switch& one) { return one.node.valid(); });
    };
    CHECK(inside(clouds) >= 6 * nodes);
    CHECK(inside(meshes) >= 7 * nodes);
  }
  // A DGX-1 says nothing of a network: two are built from the row.
  const Cluster two = cluster("V100-SXM2,DGX-1 with V100", 2, "NVLink + EDR");
  CHECK(std::ssize(devices_of(two, DeviceKind::gpu)) == 16);
}

TEST_CASE("published: machines by their alias, else from what the row says") {
  const std::string columns = "gpu,machine,nodes,gpus_per_node,n_gpus,interconnect";
  const auto call = [&](const std::string& fields) {
    return cluster_call(row_of(columns, fields));
  };
  CHECK(call("Tesla P100-SXM2,NVIDIA DGX-1 (8x P100),1,2,2,x") == "dgx-p100");
  CHECK(call("A100-SXM4-40GB,mine,1,8,8,NVSwitch(NVLink3)") ==
        "star:8,device=a100-sxm4-40,rate=300GB/s,kind=nvlink3,latency=1us");
  CHECK(call("V100-PCIe-32GB,mine,1,4,4,PCIe Gen3 (one switch) without NVLink") ==
        "star:4,device=v100-pcie,rate=15.75GB/s,kind=pcie3,latency=500ns");
  CHECK(call("A100-SXM4-40GB,mine,2,8,16,NVSwitch + 8x HDR 200 Gb/s InfiniBand") ==
        "nodes:2x8,device=a100-sxm4-40,intra=300GB/s,intra-kind=nvlink3,inter=25GB/s,"
        "inter-kind=infiniband,nics=8,intra-latency=1us,"
        "inter-latency=2us");
  // EFA: 20 and 75 us from GPU to GPU, with 1 us in each machine. 32 cards of 12.5 GB/s are four
  // for each GPU.
  CHECK(call("H100-SXM5-80GB,mine,2,8,16,NVSwitch(NVLink4) + EFA 32x100 Gb/s") ==
        "nodes:2x8,device=h100-sxm5,intra=450GB/s,intra-kind=nvlink4,inter=50GB/s,inter-kind=efa,"
        "nics=8,intra-latency=1us,"
        "inter-latency=9us");
  CHECK(call("A100-SXM4-40GB,mine,2,8,16,NVSwitch + EFA 4x100 Gb/s") ==
        "nodes:2x8,device=a100-sxm4-40,intra=300GB/s,intra-kind=nvlink3,inter=12.5GB/s,"
        "inter-kind=efa,nics=4,intra-latency=1us,"
        "inter-latency=36.5us");
  // Nothing said: modules have NVLink, cards the slots of their generation.
  CHECK(call("A100-SXM4-40GB,mine,1,4,4,") ==
        "star:4,device=a100-sxm4-40,rate=300GB/s,kind=nvlink3,latency=1us");
  CHECK(call("V100-PCIe,mine,1,4,4,") ==
        "star:4,device=v100-pcie,rate=15.75GB/s,kind=pcie3,latency=500ns");
  CHECK(call("GeForce RTX 3090,mine,1,4,4,PCIe 4") ==
        "star:4,device=rtx-3090,rate=31.5GB/s,kind=pcie4-host,latency=500ns");
  CHECK(call("T4,AWS g4dn.12xlarge,2,4,8,PCIe gen3 + 50 Gb/s per node") ==
        "nodes:2x4,device=t4,intra=15.75GB/s,intra-kind=pcie3-host,inter=6.25GB/s,inter-kind=tcp,"
        "nics=1,intra-latency=500ns,inter-latency=2us");
  const auto gpus = [&](const std::string& fields) {
    return devices_of(cluster_of(row_of(columns, fields)), DeviceKind::gpu).size();
  };
  CHECK(gpus("Tesla P100-SXM2,NVIDIA DGX-1 (8x P100),1,2,2,x") == 2);
  CHECK(gpus("V100-SXM2,8x V100-SXM2-16GB node,2,8,16,x") == 16);
  CHECK(gpus("V100-SXM2,8x V100-SXM2-16GB node,2,4,8,NVLink + EDR") == 8);
}

TEST_CASE("published: --data makes one set named after the file, with the contract's keys") {
  const testing::TemporaryFolder folder;
  const std::string file = folder.write("mine.csv", training);
  const testing::Finished finished =
      testing::run_program(PARSIM_PROGRAM, {"validate", "--published", "--data", file, "--json"});
  CHECK(finished.exit_code == 0);
  const nlohmann::json result = nlohmann::json::parse(finished.out);
  REQUIRE(result["sets"].size() == 1);
  const nlohmann::json& set = result["sets"][0];
  CHECK(set["name"] == "mine");
  CHECK(set["rows"] == 3);
  for (const char* key : {"mean_error", "median_error", "max_error", "baseline_mean_error"}) {
    CHECK(set[key].is_number());
  }
  CHECK(set.contains("spearman"));
  REQUIRE(result["rows"].size() == 3);
  const nlohmann::json& row = result["rows"][0];
  CHECK(row["set"] == "mine");
  CHECK(row["unit"] == "images/s");
  const double expected = row["expected"], predicted = row["predicted"];
  CHECK(row["error"].get<double>() == testing::approx((predicted - expected) / expected));
  REQUIRE(result["unresolved"].size() == 3);
  CHECK(result["unresolved"][2]["reason"] == "library not modelled");
}

TEST_CASE("published: every row of an unknown unit is left out by name, calibrating ones, too") {
  const testing::TemporaryFolder folder;
  const auto rows = [&](const std::string& name, const std::string& unit) {
    std::string text = "model,gpu,n_gpus,batch_per_gpu,precision,metric,value,unit,split\n";
    for (const char* split : {"validate", "calibrate", "unscored"}) {
      text += fmt::format("resnet50,V100-SXM2-16,1,32,FP32,speed,330,{},{}\n", unit, split);
    }
    return folder.write(name + ".csv", text);
  };
  const std::string good = rows("good", "samples/s");
  for (const std::string unit : {"samples/min", "tokens/min", "samples/s/node", "min"}) {
    const std::string bad = rows("bad", unit);
    CAPTURE(unit);
    const nlohmann::json result = nlohmann::json::parse(
        testing::run_program(PARSIM_PROGRAM,
                             {"validate", "--published", "--from-scratch", "--data", good, "--data",
                              bad, "--calibrate-with", bad, "--json", "--quiet"})
            .out);
    CHECK(result["rows"].size() == 1);
    CHECK(result["sets"][0]["expressible"] == 3);
    CHECK(result["sets"][1]["expressible"] == 0);
    std::vector<std::string> reasons;  // of the rows that name the unit, of "bad"
    for (const nlohmann::json& row : result["unresolved"]) {
      if (row["set"] == "bad") reasons.push_back(row["reason"]);
    }
    const auto reason = [&](int line) {
      return fmt::format(
          "bad:{}:unit: unknown unit '{}'; accepted: images/s, samples/s, sequences/s, tokens/s "
          "(of "
          "one GPU with /GPU at the end), ms or s (of a step), or nothing for images/s",
          line, unit);
    };
    const std::string calibrates = "; calibrates nothing";
    CHECK(reasons == std::vector{reason(2), reason(4), reason(3) + calibrates,
                                 // Of --calibrate-with all but those marked for evaluation.
                                 reason(3) + calibrates});
  }
}

TEST_CASE("published: plans of one job are a group, with what following the prediction costs") {
  const testing::TemporaryFolder folder;
  std::string rows =
      "model,gpu,machine,nodes,gpus_per_node,n_gpus,interconnect,precision,parallelism,tp,dp,pp,"
      "micro_batch,grad_accum,network,value,unit,status,split\n";
  // The vocabulary is padded by degree, as Megatron-LM does: one job all the same. 10 ms for all,
  // and the plan that needs least time of a GPU measured the slowest.
  for (const auto& [degrees, words, milliseconds] :
       {std::tuple{"1,8,1,1,4", 128, "20"}, std::tuple{"2,4,1,1,8", 256, "10"},
        std::tuple{"4,2,1,1,16", 512, "10"}, std::tuple{"8,1,1,1,32", 1024, "10"}}) {
    rows += fmt::format(
        "GPT,A100-SXM4-80GB,box,1,8,8,NVSwitch,BF16,3D,{},"
        "\"gpt:layers=6,hidden=64,heads=8,seq_length=32,vocab_size={},dropout=0\",{},ms,measured,"
        "\n",
        degrees, words, milliseconds);
  }
  rows +=
      "GPT,A100-SXM4-80GB,box,1,8,8,NVSwitch,BF16,3D,1,1,8,1,32,"
      "\"gpt:layers=6,hidden=64,heads=8,seq_length=32,vocab_size=128,dropout=0\",,ms,OOM,\n";
  const std::string file = folder.write("mine.csv", rows);
  const std::string page = folder.path("page.html");
  const nlohmann::json result = nlohmann::json::parse(
      testing::run_program(PARSIM_PROGRAM,
                           {"validate", "--published", "--data", file, "--json", "--report", page})
          .out);
  CHECK(testing::read_text(page).find("<caption>choice of the best plan") != std::string::npos);
  REQUIRE(result["groups"].size() == 1);
  const nlohmann::json& group = result["groups"][0];
  CHECK(group["plans"] == 4);
  CHECK(group["regret"].get<double>() == testing::approx(1));
  CHECK(group["chosen"].get<std::string>().find("(line 2)") != std::string::npos);
  CHECK(group["best"].get<std::string>().find("(line 3)") != std::string::npos);
  CHECK(group["over_wrongly"] == 0);
  CHECK(group["fits_wrongly"] == 1);
  const nlohmann::json& set = result["sets"][0];
  CHECK(set["rows"] == 4);
  CHECK(set["all"] == 5);
  CHECK(result["rows"][0]["verdict"] == "fits");
  CHECK(result["unresolved"][0]["verdict"] == "fits");
  CHECK(result["unresolved"][0]["reason"].get<std::string>().starts_with("OOM; memory fits: "));
}

TEST_CASE("published: --data adds to the rows that calibrate, and each set says what did") {
  const testing::TemporaryFolder folder;
  // A card, library and script of which a built-in table has rows that calibrate, and one of which
  // none has.
  const std::string columns = "model,batch,gpu,precision,cudnn,total_ms\n";
  const std::string known =
      folder.write("known.csv", columns + "vgg16,16,GeForce GTX 1080 Ti,FP32,5110,130\n");
  const std::string unknown = folder.write("unknown.csv", columns + "vgg16,16,T4,FP32,9,130\n");
  const testing::Finished finished = testing::run_program(
      PARSIM_PROGRAM,
      {"validate", "--published", "--data", known, "--data", unknown, "--json", "--quiet"});
  REQUIRE(finished.exit_code == 0);
  const nlohmann::json result = nlohmann::json::parse(finished.out);
  REQUIRE(result["sets"].size() == 2);
  CHECK(result["sets"][0]["name"] == "known");
  REQUIRE(result["sets"][0]["calibrated_by"].size() == 1);
  CHECK(result["sets"][0]["calibrated_by"][0]["set"] == "single_gpu_cnn");
  CHECK(result["sets"][0]["uncalibrated"] == 0);
  CHECK(result["sets"][1]["name"] == "unknown");
  CHECK(result["sets"][1]["calibrated_by"].empty());
  CHECK(result["sets"][1]["uncalibrated"] == 1);
  // A step of several GPUs is none of one.
  const std::string several = folder.write(
      "several.csv", "model,batch,gpu,precision,cudnn,n_gpus,total_ms\nvgg16,16,T4,FP32,9,8,130\n");
  const testing::Finished refused = testing::run_program(
      PARSIM_PROGRAM, {"validate", "--published", "--data", several, "--json", "--quiet"});
  const nlohmann::json left = nlohmann::json::parse(refused.out)["unresolved"];
  REQUIRE(left.size() == 1);
  CHECK(left[0]["reason"].get<std::string>().find("8; accepted: 1 with total_ms") !=
        std::string::npos);
  const testing::Finished text = testing::run_program(
      PARSIM_PROGRAM, {"validate", "--published", "--data", unknown, "--quiet"});
  CHECK(text.out.find("unknown: not calibrated") != std::string::npos);
  CHECK(testing::run_program(PARSIM_PROGRAM,
                             {"validate", "--published", "--data", known, "--data", known})
            .exit_code == 2);
}

TEST_CASE("published: --from-scratch fits nothing, and rows say what bounds their step") {
  const testing::TemporaryFolder folder;
  const std::string columns =
      "model,batch_per_gpu,gpu,machine,nodes,gpus_per_node,n_gpus,interconnect,precision,"
      "framework,parallelism,value,unit,split\n";
  const std::string file = folder.write(
      "own.csv",
      columns +
          "ResNet-50,64,Tesla P100-SXM2,box,1,1,1,none,FP32,F,DP,100,images/s,calibrate\n"
          "ResNet-50,32,Tesla P100-SXM2,box,1,1,1,none,FP32,F,DP,100,images/s,validate\n");
  const auto row = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"validate", "--published", "--data", file, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = nlohmann::json::parse(testing::run_program(PARSIM_PROGRAM, arguments).out);
    REQUIRE(result["rows"].size() == 1);
    return result["rows"][0];
  };
  const nlohmann::json fitted = row({}), scratch = row({"--from-scratch"});
  CHECK(fitted["calibrated"] == true);
  CHECK(scratch["calibrated"] == false);
  // The calibrating run is slower than a P100 is by its data sheet.
  CHECK(fitted["predicted"].get<double>() < 0.8 * scratch["predicted"].get<double>());
  double all = 0;
  for (const auto& [name, share] : scratch["parts"].items()) all += share.get<double>();
  CHECK(std::abs(all - 1) < 1e-9);
  CHECK(scratch["parts"]["convolutions"] > 0.3);
  CHECK(scratch["parts"]["between"] == 0);
}

TEST_CASE("published: --quick leaves long simulations out and says so") {
  const testing::TemporaryFolder folder;
  const std::string file = folder.write(
      "long.csv",
      "model,gpu,machine,nodes,gpus_per_node,n_gpus,interconnect,precision,tp,dp,pp,micro_batch,"
      "grad_accum,network,value,unit\n"
      "GPT,A100-SXM4-80GB,box,64,8,512,NVSwitch + 8x200 Gb/s,BF16,8,8,8,1,512,"
      "\"gpt:layers=96,hidden=128,heads=8,seq_length=32,vocab_size=1024\",10,ms\n");
  const nlohmann::json result = nlohmann::json::parse(
      testing::run_program(PARSIM_PROGRAM,
                           {"validate", "--published", "--data", file, "--quick", "--json"})
          .out);
  CHECK(result["sets"][0]["rows"] == 0);
  CHECK(result["sets"][0]["expressible"] == 1);
  CHECK(result["unresolved"][0]["reason"] == "a long simulation, left out by --quick");
}

TEST_CASE("published: a set without a scored row has no errors, and its notes say why") {
  const testing::TemporaryFolder folder;
  const std::string file = folder.write("mine.csv",
                                        "model,gpu,value,unit,split,notes\n"
                                        "LeNet,K80,1,images/s,unscored,slow; unscored: too odd\n");
  const testing::Finished finished =
      testing::run_program(PARSIM_PROGRAM, {"validate", "--published", "--data", file, "--json"});
  const nlohmann::json result = nlohmann::json::parse(finished.out);
  CHECK(result["sets"][0]["rows"] == 0);
  CHECK(result["sets"][0]["mean_error"].is_null());
  CHECK(result["unresolved"][0]["reason"] == "too odd");
}

TEST_CASE("published: a description of one's own gives the numbers of the machine of that name") {
  struct Machine {
    const char *file, *columns;
  };
  for (const auto& [file, columns] :
       {Machine{"dgx-p100", "P100-SXM2,NVIDIA DGX-1 (8x P100),1,8,8"},
        Machine{"dgx-v100", "V100-SXM2,DGX-1 with V100,1,8,8"},
        Machine{"k80-cloud", "K80,AWS EC2 p2.8xlarge,1,8,8"},
        Machine{"k80-cloud-x2", "K80,AWS EC2 p2.8xlarge,2,8,16"},
        Machine{"v100-mesh-x2", "V100-SXM2,8x V100-SXM2-16GB node,2,8,16"}}) {
    CAPTURE(file);
    std::ifstream in(fmt::format("{}/topologies/clusters/{}.toml", PARSIM_SOURCE_DIR, file));
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::string name = fmt::format("name = \"{}\"", file);
    REQUIRE(text.find(name) != std::string::npos);
    text.replace(text.find(name), name.size(), "name = \"mine\"");
    const std::string path =
        (std::filesystem::temp_directory_path() / fmt::format("parsim-own-{}.toml", file)).string();
    std::ofstream(path) << text;
    const std::string head = "model,gpu,machine,nodes,gpus_per_node,n_gpus,batch_per_gpu";
    const PublishedPredictor predictor({});
    const auto predicted = [&](const Claim& claim) { return predictor(claim).value; };
    const auto by_name = predicted(row_of(head, fmt::format("AlexNet,{},32", columns)));
    const auto own =
        predicted(row_of(head + ",cluster", fmt::format("AlexNet,{},32,{}", columns, path)));
    CHECK(by_name);
    CHECK(by_name == own);
    std::filesystem::remove(path);
  }
}

}  // namespace parsim::validation
