// Tables in other projects' columns. The rows are invented.
#include "validation/table_formats.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "core/errors.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"
#include "validation/measurements.hpp"
#include "validation/predict_published.hpp"
#include "validation/published_kernel.hpp"
#include "validation/published_machines.hpp"
#include "validation/published_training.hpp"

namespace parsim::validation {
namespace {

std::vector<Claim> format_rows(const std::string& columns, const std::string& fields) {
  return read_measurements(columns + "\n" + fields + "\n", "f.csv", "f");
}

Claim format_row(const std::string& columns, const std::string& fields) {
  return format_rows(columns, fields).at(0);
}

std::string format_reason(const Claim& claim) {
  CHECK(PublishedPredictor({})(claim).reason == PublishedPredictor::not_expressible(claim));
  return PublishedPredictor::not_expressible(claim);
}

const std::string deepbench_columns =
    "gpu,precision,kernel,M,N,K,conv_W,conv_H,conv_C,conv_N,conv_K,conv_R,conv_S,pad_h,pad_w,"
    "stride_v,stride_h,rnn_hidden,fwd_ms,bwd_inputs_ms,bwd_params_ms";
const std::string plain_kernel_columns =
    "gpu,op_class,batch,m,n,k,c_in,c_out,r,in_size,stride,pad,mode,time_us";

TEST_CASE("table formats: DeepBench's products are read column by column") {
  const std::vector<Claim> all =
      format_rows(deepbench_columns, "V100-SXM2,FP32,gemm,1760,64,2048,,,,,,,,,,,,,0.2,,");
  REQUIRE(all.size() == 1);
  CHECK(all[0].expected == testing::approx(200));
  CHECK(all[0].unit == "us");
  CHECK(all[0].name == "V100-SXM2, FP32, m 64, n 1760, k 2048, mode fwd (line 2)");
  CHECK(
      kernel_seconds(all[0]) ==
      kernel_seconds(format_row(plain_kernel_columns, "V100-SXM2,linear,,64,1760,2048,,,,,,,,1")));
}

TEST_CASE("table formats: DeepBench's convolutions have three times, and sides of their own") {
  const std::string head = "V100-SXM2,FP32,conv2d,,,,";
  const std::vector<Claim> square =
      format_rows(deepbench_columns, head + "56,56,64,8,128,3,3,1,1,1,1,,1,2,3");
  REQUIRE(square.size() == 3);
  const char* const modes[] = {"fwd", "bwd_data", "bwd_weights"};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(square[i].expected == testing::approx(1e3 * static_cast<double>(i + 1)));
    CHECK(kernel_seconds(square[i]) ==
          kernel_seconds(
              format_row(plain_kernel_columns,
                         std::string("V100-SXM2,conv,8,,,,64,128,3,56,1,1,") + modes[i] + ",1")));
  }
  CHECK(square[0].name != square[1].name);
  // A filter of 5 x 20 with stride 2 makes 39 x 41 outputs of 5 · 20 · 1 products; 20 x 5 on the
  // transposed image does as many.
  const double tall =
      kernel_seconds(format_row(deepbench_columns, head + "100,81,1,16,32,5,20,0,0,2,2,,1,,"));
  const double wide =
      kernel_seconds(format_row(deepbench_columns, head + "81,100,1,16,32,20,5,0,0,2,2,,1,,"));
  CHECK(tall == testing::approx(wide));
  CHECK(format_rows(deepbench_columns, head + "100,81,1,16,32,5,20,0,0,2,2,,1,,2").size() == 2);
}

TEST_CASE("table formats: what of DeepBench cannot be predicted is said") {
  CHECK(format_reason(
            format_row(deepbench_columns, "V100-SXM2,FP32,rnn LSTM,,,,,,,,,,,,,,,512,1,,")) ==
        "rnn LSTM: no layer of parsim");
  CHECK(
      format_reason(format_row(
          deepbench_columns, "P100-PCIe,\"FP16 storage, FP32 math\",gemm,8,8,8,,,,,,,,,,,,,1,,")) ==
      "operands in FP16 with arithmetic in FP32");
  CHECK(testing::refusal_of([] {
          static_cast<void>(
              format_rows(deepbench_columns, "V100-SXM2,FP32,gemm,8,8,8,,,,,,,,,,,,,,,"));
        }) == "f.csv:2:fwd_ms: ''; accepted: a number");
}

TEST_CASE("table formats: a best rate is the time of its product, in FP8 without the cast") {
  const std::string columns = "accelerator,dtype,best_tflops,best_m,best_n,best_k";
  const Claim best = format_row(columns, "NVIDIA H100 SXM,bf16,500,1000,2000,5000");
  CHECK(best.expected == testing::approx(40));  // 2 · 10^10 FLOP at 500 TFLOP/s, us
  CHECK(format_reason(best).empty());
  const double alone =
      kernel_seconds(format_row(columns, "NVIDIA H100 SXM,fp8_e4m3,1,2048,4096,8192"));
  const double with =
      kernel_seconds(format_row("gpu,dtype,m,n,k,time_us", "H100,fp8,2048,4096,8192,1"));
  // The cast of fp8 costs on a Hopper: reads twice, writes two copies, in two kernels.
  const double cast = 6 * 2048.0 * 8192 / (0.75 * 3350e9) + 2 * 2.5e-6;
  CHECK(with == testing::approx(alone + cast));
  CHECK(format_reason(format_row(columns, "Intel Gaudi 2,bf16,400,8,8,8")).find("unknown gpu") !=
        std::string::npos);
}

TEST_CASE("table formats: experts' messages are an all-to-all of what leaves a GPU") {
  const std::string columns =
      "gpu,mode,nodes,ep_gpus,tokens_per_gpu,hidden,topk,experts,dispatch_us,combine_us";
  // Two of four experts on two GPUs: both on one with probability 1/3, so 5/3 GPUs a token.
  const std::vector<Claim> normal = format_rows(columns, "h100-sxm5,normal,1,2,300,128,2,4,10,20");
  REQUIRE(normal.size() == 2);
  CHECK(normal[0].at("size_bytes") == "66000");   // 300 · 5/3 · (128 + 4)
  CHECK(normal[1].at("size_bytes") == "128000");  // 300 · 5/3 · 256
  CHECK(normal[0].expected == 10);
  CHECK(normal[1].expected == 20);
  CHECK(normal[0].quantity == "collective-time");
  CHECK(format_reason(normal[0]).empty());
  const Claim low = format_row(columns, "h100-sxm5,low latency,1,2,300,128,2,4,10,20");
  CHECK(low.at("size_bytes") == "79200");  // 300 · 2 · (128 + 4)
  CHECK(format_reason(format_row(columns, "h100-sxm5,normal,2,16,300,128,2,16,10,20")) ==
        "several machines, and no column interconnect");
  CHECK(format_reason(format_row(columns + ",interconnect",
                                 "h100-sxm5,normal,2,16,300,128,2,16,10,20,NVLink4 + 8x400 Gb/s"))
            .empty());
}

TEST_CASE("table formats: a token has no more experts than there are") {
  const std::string columns =
      "gpu,mode,nodes,ep_gpus,tokens_per_gpu,hidden,topk,experts,dispatch_us,combine_us";
  const auto refused = [&](const std::string& fields) {
    return testing::refusal_of([&] { static_cast<void>(format_rows(columns, fields)); });
  };
  CHECK(refused("t4,normal,1,2,300,128,5,4,10,20").starts_with("f:2:topk: "));
  CHECK(refused("t4,normal,1,2,300,128,2,1e9,10,20").starts_with("f:2:experts: "));
  // All experts: every GPU.
  CHECK(format_row(columns, "t4,normal,1,2,300,128,4,4,10,20").at("size_bytes") == "79200");
}

TEST_CASE("table formats: messages between two GPUs, by their rate in GiB/s") {
  const std::string columns = "gpu,precision,size_MiB,bandwidth";
  const Claim message = format_row(columns, "a100-sxm4-40,fp16,\"512\r\",200");
  CHECK(message.expected == testing::approx(2500));  // 0.5 GiB at 200 GiB/s, us
  CHECK(message.at("size_bytes") == "536870912");
  const Prediction found = PublishedPredictor({})(message);
  REQUIRE(found.value);
  CHECK(*found.value > 1700);  // 300 GB/s
  CHECK(*found.value < 3000);
  CHECK(testing::refusal_of([&] { static_cast<void>(format_row(columns, "t4,fp16,x,200")); }) ==
        "f:2:size_MiB: 'x'; accepted: a positive number");
}

TEST_CASE("table formats: Sailor's operators are parts of blocks, by hand") {
  const std::string columns = "gpu,model,precision,micro_batch,tp,op,fwd_us,bwd_us";
  const auto extents = [&](const std::string& op, const std::string& of) {
    std::string text;
    const Claim claim = format_row(columns, "v100-sxm2,OPT-350,fp16,2,2," + op + ",3,4");
    for (const char* name : {"batch", "m", "n", "k", "rows", "cols"}) {
      if (!column(claim, name).empty()) text += column(claim, name) + " ";
    }
    CHECK(column(claim, "op_class") == of);
    return text;
  };
  CHECK(extents("enc-attention-qkv", "linear") == "4096 1536 1024 ");
  CHECK(extents("enc-MLP-GEMM-1", "linear") == "4096 2048 1024 ");
  CHECK(extents("enc-attention-score", "bmm") == "16 2048 2048 64 ");
  CHECK(extents("enc-attention-context", "bmm") == "16 2048 64 2048 ");
  CHECK(extents("enc-attention-softmax", "softmax") == "32768 2048 ");
  CHECK(extents("enc-MLP-gelu", "elementwise") == "4096 2048 ");
  CHECK(extents("final-layernorm", "ln") == "4096 1024 ");

  const std::vector<Claim> dense =
      format_rows(columns, "v100-sxm2,OPT-350,fp32,2,2,enc-attention-dense,3,4");
  REQUIRE(dense.size() == 2);
  CHECK(format_reason(dense[0]) == "enc-attention-dense: includes an all-reduce");
  CHECK(format_reason(dense[1]).empty());
  CHECK(dense[1].at("mode") == "bwd_data");
  CHECK(dense[1].expected == 4);
  CHECK(format_reason(format_row(columns, "v100-sxm2,OPT-350,fp16,2,1,gpt-post-process,3,4")) ==
        "gpt-post-process: several layers, or of unknown extents");
  CHECK(format_reason(format_row(columns, "v100-sxm2,OPT-1,fp16,2,1,enc-MLP-gelu,3,4")) ==
        "model 'OPT-1' of unknown extents");
  // TF32 where the card has it.
  const auto product = [&](const std::string& gpu, const std::string& type) {
    return kernel_seconds(
        format_row("gpu,dtype,m,n,k,time_us", gpu + "," + type + ",4096,1024,512,1"));
  };
  for (const auto& [gpu, type] :
       {std::pair("a100-sxm4-40", "tf32"), std::pair("v100-sxm2", "fp32")}) {
    const Claim forward =
        format_row(columns, std::string(gpu) + ",OPT-350,fp32,2,2,enc-attention-dense,3,4");
    CHECK(kernel_seconds(forward) == testing::approx(product(gpu, type)));
  }
}

TEST_CASE("table formats: Sailor's stages count the embedding and the head") {
  const std::string columns =
      "model,gpu,nodes,gpus_per_node,n_gpus,interconnect,precision,framework,value,unit,pp,dp,tp,"
      "micro_batch,grad_accum,global_batch,layers_per_stage,stage_replica_gpus";
  const Claim run =
      format_row(columns,
                 "OPT-350M,GH-96x8,2,4.0,8,NVLink,FP32,Megatron-DeepSpeed,0.5,s,2,1,4,1,4,4,"
                 "12-14,x");
  CHECK(run.expected == 500);
  CHECK(run.unit == "ms");
  CHECK(run.at("layout") == "11/13");
  CHECK(format_reason(run).empty());
  CHECK(simulation_length(run) > 0);
  CHECK(format_reason(format_row(
            columns,
            "OPT-350M,RTX-3090x2; Titan-RTXx2,2,2.0,4,PCIe,FP32,x,0.5,s,2,1,2,1,4,4,12-14,x")) ==
        "unlike GPUs need the columns cluster and layout_file, as in validation/mixed");
}

TEST_CASE("table formats: only training runs have a length") {
  const Claim one = format_row("gpu,model,precision,micro_batch,tp,op,fwd_us,bwd_us",
                               "v100-sxm2,OPT-350,fp16,2,2,enc-MLP-gelu,3,4");
  CHECK(simulation_length(one) == 0);  // it was refused: 1 GPU is no multiple of tp
}

TEST_CASE("table formats: rows that cannot be predicted are counted by reason, not by line") {
  const testing::TemporaryFolder folder;
  const std::string file = folder.write("bench.csv", deepbench_columns + R"(
V100-SXM2,FP32,rnn GRU,,,,,,,,,,,,,,,512,1,2,
Knights,FP32,gemm,1760,64,2048,,,,,,,,,,,,,0.2,,
Knights,FP32,gemm,1760,64,2048,,,,,,,,,,,,,0.3,,
V100-SXM2,FP32,gemm,1760,64,2048,,,,,,,,,,,,,0.2,,
)");
  const testing::Finished found = testing::run_program(
      PARSIM_PROGRAM, {"validate", "--published", "--from-scratch", "--data", file, "--quiet"});
  CHECK(found.out.find("not predicted: 2 rows: bench: rnn GRU: no layer of parsim") !=
        std::string::npos);
  CHECK(found.out.find("not predicted: 2 rows: bench:gpu: unknown gpu 'Knights'") !=
        std::string::npos);
  CHECK(found.out.find("bench       1            1    5") != std::string::npos);
}

}  // namespace
}  // namespace parsim::validation
