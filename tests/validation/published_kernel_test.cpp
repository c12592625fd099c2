// Tables of kernels: each row is the price of one layer.
#include "validation/published_kernel.hpp"

#include <doctest/doctest.h>

#include "core/errors.hpp"
#include "core/network.hpp"
#include "sim/gemm_interpolation.hpp"
#include "sim/sim.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"
#include "topologies/topologies.hpp"
#include "validation/measurements.hpp"
#include "validation/predict_published.hpp"

namespace parsim::validation {
namespace {

Claim kernel_row(const std::string& columns, const std::string& fields) {
  return read_measurements(columns + "\n" + fields + "\n", "f.csv", "f").at(0);
}

double kernel_microseconds(const std::string& columns, const std::string& fields) {
  return 1e6 * kernel_seconds(kernel_row(columns, fields));
}

double product_on(const std::string& device, Precision precision, std::int64_t m, std::int64_t n,
                  std::int64_t k) {
  const sim::GemmInterpolation gemms(
      *sim::gemm_model_of(topologies::device_model(device, "test"), precision));
  return 1e6 * gemms.time(m, n, k, gemms.model().sustained).time.count();
}

/// Microseconds of one layer by the cost model.
double priced_layer(const std::string& device, LayerKind kind, const std::vector<Shape>& inputs,
                    std::int64_t samples, Pass pass, Precision precision) {
  const Cluster cluster = topologies::load_cluster("star:1,device=" + device, "test");
  Network network;
  std::vector<LayerId> read;
  for (const Shape& input : inputs) read.push_back(add_input(network, "in", input));
  const LayerId layer = add_layer(network, "layer", std::move(kind), read);
  const Part part{whole(network[layer].out, samples), {}};
  return 1e6 * sim::make_tile_costs(cluster)
                   ->compute(network, layer, part, pass, DeviceId{0}, precision)
                   .time.count();
}

TEST_CASE("published kernel: convolutions in groups, and with holes") {
  const std::string columns =
      "gpu,dtype,op_class,batch,c_in,c_out,r,stride,pad,in_size,groups,dilation,time_us";
  const Shape image = image_shape(256, 28, 28);
  const auto priced = [&](std::int64_t groups, std::int64_t dilation) {
    const Window window{3, 1, dilation, dilation, dilation};
    return priced_layer("v100-sxm2", Conv{256, {window, window}, groups, false}, {image}, 32,
                        Pass::forward, Precision::fp32);
  };
  const auto row = [&](const std::string& pad, const std::string& more) {
    return kernel_microseconds(columns,
                               "v100-sxm2,fp32,conv,32,256,256,3,1," + pad + ",28," + more + ",1");
  };
  CHECK(row("1", ",") == testing::approx(priced(1, 1)));
  CHECK(row("1", "256,1") == testing::approx(priced(256, 1)));
  CHECK(row("2", ",2") == testing::approx(priced(1, 2)));
  CHECK(priced(256, 1) < 0.5 * priced(1, 1));
  CHECK_THROWS_AS(static_cast<void>(row("1", "3,1")), InputError);
}

TEST_CASE("published kernel: a product is that of the card's model under sustained load") {
  const std::string columns = "gpu,dtype,m,n,k,time_us";
  CHECK(kernel_microseconds(columns, "h100-sxm5,bf16,2048,4096,8192,1") ==
        testing::approx(product_on("h100-sxm5", Precision::bf16, 2048, 4096, 8192)));
  // In FP8 the cast of x comes before: it reads 2 x 2 B and writes two copies of 1 B, in two
  // kernels (fp8 costs, by hand).
  const double cast = 6 * 2048.0 * 8192 / (0.75 * 3350e9) * 1e6 + 2 * 2.5;
  CHECK(kernel_microseconds(columns, "H100-SXM5,fp8,2048,4096,8192,1") ==
        testing::approx(cast + product_on("h100-sxm5", Precision::fp8, 2048, 4096, 8192)));
  CHECK(kernel_microseconds(columns, "h100-sxm5,fp8_block,2048,4096,8192,1") <
        kernel_microseconds(columns, "h100-sxm5,bf16,2048,4096,8192,1"));
}

TEST_CASE("published kernel: the rows of an operator table are layers, by hand") {
  const std::string columns =
      "gpu,op_class,op,batch,m,n,k,c_in,c_out,r,in_size,stride,pad,rows,cols,time_us";
  const auto on_v100 = [&](const std::string& fields) {
    return kernel_microseconds(columns, "V100-PCIe," + fields + ",1");
  };
  const auto layer = [](LayerKind kind, const std::vector<Shape>& inputs, std::int64_t samples) {
    return testing::approx(priced_layer("v100-pcie", std::move(kind), inputs, samples,
                                        Pass::forward, Precision::fp32));
  };
  const Shape row = vector_shape(512), tokens = {{{Dim::token, 1}, {Dim::channel, 512}}};
  CHECK(on_v100("linear,linear,,300,512,1000,,,,,,,,") ==
        layer(Dense{512, false}, {vector_shape(1000)}, 300));
  const Window window{3, 2, 1, 1, 1};
  CHECK(on_v100("conv,conv,8,,,,64,128,3,56,2,1,,") ==
        layer(Conv{128, {window, window}, 1, false}, {image_shape(64, 56, 56)}, 8));
  CHECK(
      on_v100("bmm,bmm,16,128,64,256,,,,,,,,") ==
      layer(MatMul{},
            {{{{Dim::token, 128}, {Dim::channel, 256}}}, {{{Dim::token, 256}, {Dim::channel, 64}}}},
            16));
  CHECK(on_v100("elementwise,add,,,,,,,,,,,4096,512") == layer(Combine{"add"}, {row, row}, 4096));
  CHECK(on_v100("elementwise,gelu,,,,,,,,,,,4096,512") == layer(Activation{"gelu"}, {row}, 4096));
  CHECK(on_v100("softmax,softmax,,,,,,,,,,,4096,512") == layer(Softmax{1}, {tokens}, 4096));
  CHECK(on_v100("ln,ln,,,,,,,,,,,4096,512") == layer(Norm{NormKind::layer}, {tokens}, 4096));
}

TEST_CASE("published kernel: attention forward and backward, by the library that the row names") {
  const std::string columns =
      "gpu,library,mode,causal,dtype,batch,seq,heads,kv_heads,head_dim,time_us";
  const auto on_a100 = [&](const std::string& library, const std::string& mode,
                           const std::string& rest) {
    return kernel_microseconds(columns, "a100-sxm4-80," + library + "," + mode + rest);
  };
  const std::string plain = ",0,fp16/bf16,4,4096,32,32,64,1";
  const Shape wide = {{{Dim::token, 4096}, {Dim::channel, 2048}}};
  const double forward = on_a100("FlashAttention-2", "fwd", plain);
  CHECK(forward ==
        testing::approx(priced_layer("a100-sxm4-80", Attention{32, 32, false}, {wide, wide, wide},
                                     4, Pass::forward, Precision::bf16)));
  const double backward = on_a100("FlashAttention-2", "bwd", plain);
  CHECK(on_a100("FlashAttention-2", "fwd_bwd", plain) == testing::approx(forward + backward));
  CHECK(on_a100("FlashAttention-1", "fwd", plain) > 1.5 * forward);
  CHECK(on_a100("FlashAttention-2", "fwd", ",1,bf16,4,4096,32,8,64,1") < 0.7 * forward);
}

TEST_CASE("published kernel: which time counts, and what is refused") {
  const std::string columns = "gpu,dtype,m,n,k,time_us,median_us,sustained_us";
  CHECK(kernel_row(columns, "a100-80,bf16,8,8,8,3,,").expected == 3);
  CHECK(kernel_row(columns, "a100-80,bf16,8,8,8,3,4,").expected == 4);
  const Claim sustained = kernel_row(columns, "a100-80,bf16,8,8,8,3,4,5");
  CHECK(sustained.expected == 5);
  CHECK(sustained.quantity == "kernel-time");
  CHECK(sustained.name == "a100-80, bf16, m 8, n 8, k 8 (line 2)");
  const Prediction found = PublishedPredictor({})(sustained);
  REQUIRE(found.value);
  CHECK(*found.value == testing::approx(product_on("a100-sxm4-80", Precision::bf16, 8, 8, 8)));
  const auto refusal = [&](const std::string& head, const std::string& fields) {
    return PublishedPredictor::not_expressible(kernel_row(head, fields));
  };
  CHECK(refusal(columns, "a100-80,int4,8,8,8,3,,") ==
        "f:2:dtype: 'int4'; accepted: fp32, tf32, fp32/tf32, fp16, bf16, fp16/bf16, fp8, fp8_e4m3 "
        "or fp8_block");
  CHECK(refusal(columns, "a100-80,bf16,8,,8,3,,") ==
        "f:2:n: no number; accepted: an extent of the kernel");
  CHECK(refusal(columns, "nonesuch,bf16,8,8,8,3,,").find("unknown gpu") != std::string::npos);
  CHECK(refusal("gpu,op_class,m,n,k,time_us", "t4,rnn,1,1,1,3") ==
        "f:2:op_class: 'rnn'; accepted: linear, bmm, conv, elementwise, softmax or ln");
  CHECK(refusal("gpu,dtype,mode,batch,seq,heads,head_dim,time_us", "a100-80,fp8,fwd,1,64,1,64,3")
            .find("attention in FP8") != std::string::npos);
}

TEST_CASE("published kernel: collectives by the tensor of a rank") {
  const std::string columns = "gpu,n_gpus,collective,data_MiB,time_us";
  CHECK(kernel_row(columns, "t4,4,all_reduce,16,3").at("size_bytes") == "16777216");
  const Claim gathered = kernel_row(columns, "t4,4,all_gather,16,3");
  CHECK(gathered.at("size_bytes") == "67108864");
  CHECK(gathered.quantity == "collective-time");
}

}  // namespace
}  // namespace parsim::validation
