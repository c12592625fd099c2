// Collectives that users measured themselves: nccl-tests' output, and what calibrates a run.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/text.hpp"
#include "experiment/run.hpp"
#include "report/context.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"
#include "validation/measurements.hpp"
#include "validation/published_calibration.hpp"
#include "validation/published_collective.hpp"

namespace parsim::validation {
namespace {

std::string ranks(int hosts, const std::string& gpu) {
  std::string text;
  for (int r = 0; r < 4 * hosts; ++r) {
    text += fmt::format("#  Rank  {} Group  0 Pid   1887 on   worker-{} device  {} [0x8d] {}\n", r,
                        r / 4, r % 4, gpu);
  }
  return text;
}

const std::string head =
    "#                                                    out-of-place             in-place\n"
    "#       size    count  type   redop    root     time   algbw   busbw #wrong     time\n"
    "#        (B)    (elements)                      (us)  (GB/s)  (GB/s)            (us)\n";

std::string output(int hosts, const std::string& gpu = "NVIDIA H100 80GB HBM3",
                   const std::string& program = "# Collective test starting: all_reduce_perf\n") {
  return program + "# nThread 1 nGpus 4 minBytes 1024 maxBytes 2048 step: 2(factor)\n#\n" +
         "# Using devices\n" + ranks(hosts, gpu) + head +
         "        1024     256   float     sum      -1    18.66    0.05    0.08       0    17.95\n"
         "worker-0:1:1 [0] NCCL INFO between\n"
         "        2048     512   float     sum      -1    19.66    0.10    0.15       0    17.95\n"
         "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 3.07\n";
}

Claim collective(std::int64_t bytes, double microseconds, int nodes = 1) {
  return read_measurements(
             fmt::format("collective,gpu,machine,nodes,n_gpus,interconnect,size_bytes,time_us\n"
                         "allreduce,v100-pcie,box,{},{},\"PCIe gen3, 25 Gb/s\",{},{}\n",
                         nodes, 2 * nodes, bytes, microseconds),
             "mine.csv", "mine")
      .at(0);
}

/// Without a launch.
double predicted(const Claim& claim) {
  sim::SimOptions options = library_options(claim);
  options.terms.offset = Seconds{0};
  return 1e6 * PublishedCollective(claim).simulated(options);
}

experiment::Request request_on(const std::string& cluster, const std::vector<Claim>& rows) {
  experiment::Request request;
  request.network = "alexnet";
  request.cluster = cluster;
  request.batch = 64;
  request.sim.collectives = sim::CollectiveCost::nccl;
  request.fitted = fitted_steps(rows);
  return request;
}

const std::string one_box = "star:2,device=v100-pcie,kind=pcie3";
const std::string two_boxes = "nodes:2x2,device=v100-pcie,intra-kind=pcie3,inter=3GB/s";

}  // namespace

TEST_CASE("own collectives: nccl-tests' output is a table") {
  const std::vector<Claim> rows = read_measurements(output(1), "run.txt", "run");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].quantity == "collective-time");
  CHECK(rows[0].expected == testing::approx(18.66));
  CHECK(rows[1].expected == testing::approx(19.66));
  CHECK(rows[1].at("line") == "14");
  for (const auto& [column, value] : {std::pair{"collective", "all_reduce"},
                                      {"gpu", "NVIDIA H100 80GB HBM3"},
                                      {"n_gpus", "4"},
                                      {"nodes", "1"},
                                      {"size_bytes", "1024"},
                                      {"unpredictable", ""}}) {
    CAPTURE(column);
    CHECK(rows[0].at(column) == value);
  }
  // Behind mpirun's marks, of several machines, and with the collective in the file's name.
  std::string marked = output(1);
  for (std::size_t at = 0; at < marked.size(); at = marked.find('\n', at) + 1) {
    marked.insert(at, "[1,0]<stdout>:");
  }
  CHECK(read_measurements(marked, "run.txt", "run").at(1).expected == testing::approx(19.66));
  const Claim two = read_measurements(output(2), "run.txt", "run").at(0);
  CHECK(two.at("n_gpus") == "8");
  CHECK(two.at("nodes") == "2");
  CHECK(two.at("unpredictable").find("several machines") == 0);
  CHECK(read_measurements(output(1, "NVIDIA H100 80GB HBM3", ""), "x/alltoall_perf.txt", "run")
            .at(0)
            .at("collective") == "all_to_all");
}

TEST_CASE("own collectives: what nccl-tests' output lacks is named") {
  const auto refused = [](const std::string& text) {
    return testing::refusal_of([&] { (void)read_measurements(text, "run.txt", "run"); });
  };
  CHECK(refused(output(1, "NVIDIA H100 80GB HBM3", "")) ==
        "run.txt: output of nccl-tests that does not name the collective; accepted: its line '# "
        "Collective test starting: all_reduce_perf', or a file named as the program, "
        "all_reduce_perf.txt");
  CHECK(refused("all_reduce_perf\n" + head + " 8 2 float sum -1 24.5 0.0 0.0 0 24.0\n") ==
        "run.txt: output of nccl-tests without its lines of ranks; accepted: lines as '#  Rank  0 "
        "Group  0 Pid 1 on host device  0 [0x07] NVIDIA H100 80GB HBM3', or a CSV table with the "
        "columns collective, size_bytes, time_us, gpu, n_gpus, nodes and interconnect");
  CHECK(testing::refusal_of(
            [] { (void)fitted_steps(read_measurements(output(2), "run.txt", "run")); }) ==
        "run:16: not predicted; several machines, whose network nccl-tests does not print: add a "
        "line such as '# interconnect NVLink4 + 8x400 Gb/s' to the file, or give the run a "
        "--cluster");
}

TEST_CASE("own collectives: several machines of nccl-tests are those of a line, or of the run") {
  const auto fitted = fitted_steps(
      read_measurements("# interconnect NVLink4 + 4x400 Gb/s\n" + output(2), "run.txt", "run"));
  REQUIRE(fitted.size() == 2);
  CHECK(fitted[0].between);
  CHECK(fitted[0].run == "all_reduce of 1.00 KiB on 8 GPUs of 2 machines");
  CHECK(fitted[0].launch);
  // Four GPUs of each of the run's machines, which have eight.
  const testing::TemporaryFolder folder;
  folder.write("run.txt", output(2));
  const auto simulate = [&](const std::string& cluster) {
    return testing::run_program(
        PARSIM_PROGRAM,
        {"simulate", "--network", "alexnet", "--cluster", cluster, "--batch", "64", "--strategy",
         "data", "--calibrate-with", "run.txt"},
        folder.folder());
  };
  for (const std::string machines : {"2", "4"}) {
    CAPTURE(machines);
    const testing::Finished finished = simulate(
        "nodes:" + machines + "x8,device=h100-sxm5,intra-kind=nvlink4,inter=50GB/s,nics=8");
    CHECK(finished.exit_code == 0);
    const std::string all = finished.out + finished.err;
    CHECK(
        all.find("run.txt: measured on 2 machines, whose network nccl-tests does not print: taken "
                 "as machines of nodes:") != std::string::npos);
    CHECK(all.find("(launch of a collective ") != std::string::npos);
  }
  const testing::Finished other = simulate("nodes:2x8,device=a100-sxm4-80,inter=50GB/s,nics=8");
  CHECK(other.exit_code == 2);
  CHECK(other.err.find("NVIDIA H100 80GB HBM3, but the cluster has a100-sxm4-80") !=
        std::string::npos);
}

TEST_CASE("own collectives: a small one gives the launch, measured less predicted, by hand") {
  const Claim small = collective(4096, 1);
  const double without = predicted(small);
  const auto launch = [&](double microseconds) {
    return fitted_steps({collective(4096, microseconds)}).at(0).launch->count();
  };
  CHECK(1e6 * launch(without + 12.5) == testing::approx(12.5));
  CHECK(launch(without / 2) == 0);  // not below 0
  CHECK(launch(without) == testing::approx(0));
  const experiment::Experiment run(request_on(one_box, {collective(4096, without + 12.5)}));
  CHECK(1e6 * run.request.sim.terms.offset->count() == testing::approx(12.5));
  CHECK(run.calibration->kernels[0] == 1);
  CHECK_FALSE(run.spreads().calibrated);
  const std::string line = join(report::short_source_lines(run, {}), "\n");
  CHECK(line.find("(launch of a collective 12.5 us); collectives take 12.5 us beyond NCCL's model; "
                  "kernels are not calibrated; 90 % intervals stay those of published steps "
                  "without a measured row") != std::string::npos);
  // Of several the median; on several machines rows from there count.
  const experiment::Experiment three(request_on(
      one_box, {collective(4096, without + 12.5), collective(8, predicted(collective(8, 1)) + 30),
                collective(8, predicted(collective(8, 1)) + 10)}));
  CHECK(1e6 * three.request.sim.terms.offset->count() == testing::approx(12.5));
  const Claim across = collective(4096, 1, 2);
  const experiment::Experiment two(request_on(
      two_boxes, {collective(4096, without + 12.5), collective(4096, predicted(across) + 40, 2)}));
  CHECK(1e6 * two.request.sim.terms.offset->count() == testing::approx(40));
}

TEST_CASE("own collectives: a launch is given or measured, on the run's cards") {
  experiment::Request request = request_on(one_box, {collective(4096, 100)});
  request.given.insert("--collective-launch");
  CHECK(testing::refusal_of([&] { experiment::Experiment{request}; }) ==
        "--calibrate-with: given with a small collective, together with --collective-launch; "
        "accepted: one of the two");
  CHECK(testing::refusal_of([] {
          experiment::Experiment{request_on("star:2,device=t4", {collective(4096, 100)})};
        }).find("--calibrate-with: no row of t4 in fp32, only of collectives on v100-pcie") == 0);
}

TEST_CASE("own collectives: large ones between machines give the links' share, others nothing") {
  const std::int64_t large = std::int64_t{256} << 20;
  const Claim across = collective(large, 1, 2);
  sim::SimOptions options = library_options(across);
  const double slow = 1e6 * PublishedCollective(across).with_links(0.5).simulated(options);
  const std::vector<Claim> rows = {collective(large, slow, 2), collective(1 << 20, 9000)};
  CHECK(fitted_steps(rows).at(0).links.value() == testing::approx(0.5).epsilon(0.01));
  const experiment::Experiment run(request_on(two_boxes, rows));
  CHECK(*std::min_element(run.calibration->links.begin(), run.calibration->links.end()) ==
        testing::approx(0.5).epsilon(0.01));
  CHECK(join(run.warnings).find("1 collective of --calibrate-with fit") != std::string::npos);
  CHECK_THROWS_AS(experiment::Experiment{request_on(one_box, {rows[1]})}, InputError);
}

TEST_CASE("own collectives: what NCCL's own limits bind says nothing of links") {
  // An all-reduce by NVLS on two H100 machines. Before, 10 % more time were links at 0.62 of their
  // rate, and steps that gather weights took 32 % longer.
  const std::string cluster = "nodes:2x8,device=h100-sxm5,intra=450GB/s,inter=50GB/s,nics=8";
  const auto row_of = [&](const std::string& what, double times) {
    const auto claim = [&](double us) {
      return read_measurements("collective,size_bytes,gpu,n_gpus,nodes,cluster,time_us\n" + what +
                                   ",1073741824,h100-sxm5,16,2,\"" + cluster + "\"," +
                                   fmt::format("{}", us) + "\n",
                               "mine.csv", "mine")
          .at(0);
    };
    return claim(times * predicted(claim(1)));
  };
  CHECK_FALSE(fitted_steps({row_of("all_reduce", 1.1)}).at(0).links.has_value());
  CHECK(fitted_steps({row_of("all_reduce", 0.9)}).at(0).links == 1.0);
  CHECK(fitted_steps({row_of("all_gather", 1.1)}).at(0).links.value() < 0.93);
  CHECK(fitted_steps({row_of("all_reduce", 4)}).at(0).links.value() < 0.25);
}

TEST_CASE("own collectives: times that no share of the links reaches get a warning") {
  const std::int64_t bytes = std::int64_t{1} << 28;
  const double whole = predicted(collective(bytes, 1, 2));
  const auto warnings = [&](double times) {
    experiment::RunCalibration calibration;
    calibration.by = fitted_steps({collective(bytes, times * whole, 2)});
    return join(experiment::calibration_warnings(calibration, sim::Fusion::none));
  };
  CHECK(warnings(1) == "");
  CHECK(warnings(2) == "");
  CHECK(warnings(0.3).find("what its links' whole rate takes; check its unit of time") !=
        std::string::npos);
  CHECK(warnings(100).ends_with("of their rate, where the fit ends; check the row's cluster"));
}

TEST_CASE("own collectives: rows of one collective that contradict each other get a warning") {
  const double without = predicted(collective(4096, 1));
  const auto run = [&](std::initializer_list<double> launches) {
    std::vector<Claim> rows;
    for (const double launch : launches) rows.push_back(collective(4096, without + launch));
    return std::make_unique<experiment::Experiment>(request_on(one_box, rows));
  };
  const auto apart = run({10, 90});
  CHECK(apart->warnings.back() ==
        fmt::format("measured rows of one collective disagree, all_reduce of 4.00 KiB on 2 GPUs: "
                    "{} by {}, and {} by {}; medians are used",
                    to_text(Seconds{1e-6 * (without + 10)}), "mine:" + collective(4096, 1).name,
                    to_text(Seconds{1e-6 * (without + 90)}), "mine:" + collective(4096, 1).name));
  CHECK(apart->spreads().launches > 0.5);
  CHECK(apart->spreads().kernels == 0);
  const auto alike = run({10, 11});
  CHECK(join(alike->warnings).find("disagree") == std::string::npos);
  CHECK(alike->spreads().launches == 0);
  // Of links between machines, whose shares 0.5 and 0.25 are around a median of 0.375.
  const std::int64_t large = std::int64_t{256} << 20;
  const PublishedCollective across(collective(large, 1, 2));
  const sim::SimOptions options = library_options(collective(large, 1, 2));
  const auto slow = [&](double share) {
    return collective(large, 1e6 * across.with_links(share).simulated(options), 2);
  };
  const experiment::Experiment links(request_on(two_boxes, {slow(0.5), slow(0.25)}));
  CHECK(join(links.warnings, "\n").find("all_reduce of 256 MiB on 4 GPUs of 2 machines") !=
        std::string::npos);
  const double square = (0.2877 * 0.2877 + 0.4055 * 0.4055) / 2 - 0.1312 * 0.1312;
  CHECK(links.spreads().links == testing::approx(1.6449 * std::sqrt(square)).epsilon(0.02));
}

TEST_CASE("own collectives: a step of the same file is fitted with the launch") {
  Claim step = read_measurements(
                   "model,gpu,nodes,n_gpus,interconnect,batch_per_gpu,value,unit\n"
                   "alexnet,v100-pcie,1,2,PCIe gen3,1024,1,ms\n",
                   "mine.csv", "mine")
                   .at(0);
  const Seconds launch{0.02};
  step.expected = 1e3 * Training(step, launch).step(1.3);
  const Claim small = collective(4096, 1);
  const auto fitted = fitted_steps({step, collective(4096, predicted(small) + 20000)});
  CHECK(fitted.at(0).kernels == testing::approx(1.3).epsilon(0.01));
  CHECK(fitted_steps({step}).at(0).kernels > 1.31);
}

TEST_CASE("own collectives: rows marked for evaluation never calibrate") {
  const testing::TemporaryFolder folder;
  const auto simulate = [&](const std::string& rows) {
    folder.write("mine.csv", "model,gpu,n_gpus,batch_per_gpu,value,unit,split\n" + rows);
    return testing::run_program(
        PARSIM_PROGRAM,
        {"simulate", "--network", "alexnet", "--cluster", "star:1,device=t4", "--batch", "64",
         "--strategy", "data", "--calibrate-with", "mine.csv"},
        folder.folder());
  };
  const testing::Finished some = simulate(
      "alexnet,t4,1,64,150,ms,calibrate\nalexnet,t4,1,64,900,ms,validate\n"
      "alexnet,t4,1,64,150,ms,\n");
  CHECK(some.exit_code == 0);
  CHECK(some.out.find("(line 3)") == std::string::npos);
  CHECK(some.out.find("(line 4) of mine") != std::string::npos);
  CHECK((some.out + some.err)
            .find("mine.csv: 1 row marked validate or unscored, never used to calibrate") !=
        std::string::npos);
  CHECK((some.out + some.err).find("columns not read") == std::string::npos);
  const testing::Finished none = simulate("alexnet,t4,1,64,150,ms,validate\n");
  CHECK(none.exit_code == 2);
  CHECK(none.err ==
        "parsim: mine.csv: only 1 row marked validate or unscored; accepted: rows whose column "
        "split is calibrate, or empty\n");
}

}  // namespace parsim::validation
