// What calibrating rows give back of factors that are known, because the rows are made with them.
#include "validation/published_calibration.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "core/text.hpp"
#include "experiment/run.hpp"
#include "networks/networks.hpp"
#include "strategies/strategies.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"
#include "topologies/topologies.hpp"
#include "validation/measurements.hpp"
#include "validation/predict_published.hpp"
#include "validation/published_machines.hpp"

namespace parsim::validation {
namespace {

constexpr double true_kernels = 1.6, true_links = 0.5;

/// AlexNet in data parallelism: 244 MB of gradients, over 25 Gbit/s between machines.
Claim row(int nodes, int gpus, int batch, const std::string& split, const std::string& model) {
  const std::string text = fmt::format(
      "model,batch_per_gpu,gpu,machine,nodes,gpus_per_node,n_gpus,interconnect,precision,framework,"
      "value,unit,split\n"
      "{},{},V100-PCIe,box,{},{},{},\"PCIe gen3, 25 Gb/s\",FP32,F,1,ms,{}\n",
      model, batch, nodes, gpus, nodes * gpus, split);
  return read_measurements(text, "f.csv", "f").at(0);
}

/// The same with the time that the machine takes whose factors are known.
Claim measured(int nodes, int gpus, int batch, const std::string& split = "calibrate",
               const std::string& model = "AlexNet") {
  Claim claim = row(nodes, gpus, batch, split, model);
  claim.expected = 1e3 * Training(claim).step(true_kernels, true_links);
  return claim;
}

double error_of(const PublishedPredictor& predictor, const Claim& claim) {
  return *predictor(claim).value / claim.expected - 1;
}

}  // namespace

TEST_CASE("calibration: links between machines are slowed, those within are not") {
  const Claim one = row(1, 2, 64, "", "AlexNet"), two = row(2, 2, 64, "", "AlexNet");
  CHECK(Training(one).step(1, 0.5) == testing::approx(Training(one).step(1)));
  CHECK(Training(two).step(1, 0.5) > 1.3 * Training(two).step(1));
  const Cluster cluster = cluster_of(two),
                slow = experiment::with_links_between_machines(cluster, 0.5);
  std::size_t slower = 0;
  for (std::size_t l = 0; l < cluster.links.size(); ++l) {
    slower += slow.links[l].rate.value < cluster.links[l].rate.value ? 1 : 0;
  }
  CHECK(slower == 2);  // a port each
}

TEST_CASE("calibration: a row on one GPU fits kernels, one across machines links") {
  const Claim apart = measured(4, 2, 32, "validate");
  const std::vector<Claim> claims = {measured(1, 1, 64), measured(2, 2, 64), apart};
  const PublishedPredictor predictor(claims);
  CHECK(std::abs(error_of(predictor, apart)) < 0.005);
  for (const Calibration& calibration : predictor(apart).calibrated_by) {
    CHECK(calibration.set == "f");
    CHECK(calibration.kernels.value() == testing::approx(true_kernels).epsilon(0.005));
  }
}

TEST_CASE("calibration: two rows across machines separate kernels and links") {
  const Claim small = measured(2, 2, 16), large = measured(2, 2, 512);
  const Training a(small), b(large);
  const MeasuredStep steps[] = {{&a, 1e-3 * small.expected}, {&b, 1e-3 * large.expected}};
  const StepTerms terms = fitted_step_terms(steps, std::nullopt);
  CHECK(terms.kernels == testing::approx(true_kernels).epsilon(0.02));
  CHECK(terms.links == testing::approx(true_links).epsilon(0.02));
  const double known = fitted_step_terms(steps, true_kernels).links;
  CHECK(known == testing::approx(true_links).epsilon(0.005));
}

TEST_CASE("calibration: links are fitted where cards are no faster than their slots") {
  // Four cards of 12.5 GB/s, each behind links of 12.5 GB/s within the machine.
  const auto with_cards = [](int batch) {
    Claim claim = row(2, 4, batch, "calibrate", "AlexNet");
    claim.what["gpu"] = "A100-SXM4-80GB";
    claim.what["interconnect"] = "NVSwitch + 4x100 Gb/s";
    claim.expected = 1e3 * Training(claim).step(true_kernels, true_links);
    return claim;
  };
  const Claim small = with_cards(16), large = with_cards(1024);
  const Training a(small), b(large);
  const MeasuredStep steps[] = {{&a, 1e-3 * small.expected}, {&b, 1e-3 * large.expected}};
  const StepTerms terms = fitted_step_terms(steps, std::nullopt);
  CHECK(terms.kernels == testing::approx(true_kernels).epsilon(0.02));
  CHECK(terms.links == testing::approx(true_links).epsilon(0.03));
  // What is faster than modelled does not make links faster than their rate.
  const MeasuredStep fast{&a, 0.7 * a.step(1)};
  const StepTerms faster = fitted_step_terms({&fast, 1}, std::nullopt);
  CHECK(faster.links == testing::approx(1));
  CHECK(faster.kernels < 1);
}

TEST_CASE("calibration: one row across machines does not attribute everything to kernels") {
  const Claim across = measured(2, 2, 64), alone = measured(1, 1, 64, "validate");
  const Training training(across);
  const double seconds = 1e-3 * across.expected;
  const MeasuredStep step{&training, seconds};
  const StepTerms terms = fitted_step_terms({&step, 1}, std::nullopt);
  CHECK(training.step(terms.kernels, terms.links) == testing::approx(seconds).epsilon(0.003));
  CHECK(terms.kernels > 1);
  CHECK(terms.links < 1);
  // With kernels alone, a row on one GPU is predicted several times too slow.
  const double by_kernels = fitted_factor(training, seconds) / true_kernels;
  CHECK(by_kernels > 1.5);
  const std::vector<Claim> claims = {across, alone};
  const double error = error_of(PublishedPredictor(claims), alone);
  CHECK(std::abs(error) < 0.5 * (by_kernels - 1));
}

TEST_CASE("calibration: a row that links bound says little of kernels, faster or slower") {
  // Before, links could not be faster, so that kernels took over all that was missing.
  const Claim across = row(2, 2, 16, "calibrate", "AlexNet");
  const Training training(across);
  REQUIRE(kernel_share(training, {}) < 0.5);
  for (const double faster : {0.95, 0.85}) {
    const MeasuredStep fast{&training, faster * training.step(1)};
    const StepTerms terms = fitted_step_terms({&fast, 1}, std::nullopt);
    CHECK(terms.links == testing::approx(1));
    CHECK(terms.kernels < 1);
    CHECK(terms.kernels > faster);
  }
  // On one machine its links have no factor, and the kernels took over everything.
  Claim cards = row(1, 4, 16, "calibrate", "AlexNet");
  const Training within(cards);
  REQUIRE(kernel_share(within, {}) < 0.5);
  for (const double times : {0.9, 1.15}) {
    cards.expected = 1e3 * times * within.step(1);
    const experiment::FittedStep fitted = fitted_steps({cards}).at(0);
    const double exact = fitted_factor(within, 1e-3 * cards.expected);
    CHECK((fitted.kernels < 1) == (times < 1));
    CHECK(std::abs(std::log(fitted.kernels)) < 0.7 * std::abs(std::log(exact)));
    CHECK(1e3 * fitted.measured.count() == testing::approx(cards.expected));
    CHECK(fitted.fitted.count() == testing::approx(within.step(fitted.kernels)));
  }
  // One GPU has no links.
  const Claim one = measured(1, 1, 64);
  CHECK(fitted_steps({one})[0].kernels == testing::approx(true_kernels).epsilon(0.001));
}

TEST_CASE("calibration: an inexplicable row stays within the bound of factors") {
  const Claim across = row(2, 2, 64, "calibrate", "AlexNet");
  const Training training(across);
  const MeasuredStep step{&training, 100 * training.step(1)};
  const StepTerms terms = fitted_step_terms({&step, 1}, std::nullopt);
  CHECK(terms.kernels <= 5.0001);
  CHECK(terms.links >= 0.1999);
}

TEST_CASE("calibration: of several rows the one that hardly communicates counts") {
  // Four GPUs without NVLink take three times as long as their links explain: not the kernels.
  Claim four = measured(1, 4, 16);
  four.expected *= 3;
  const Claim one = measured(1, 1, 64), apart = measured(1, 1, 128, "validate");
  const std::vector<Claim> claims = {four, one, apart};
  const PublishedPredictor predictor(claims);
  CHECK(std::abs(error_of(predictor, apart)) < 0.005);
  REQUIRE(predictor(apart).calibrated_by.size() == 1);
  CHECK(predictor(apart).calibrated_by[0].name == one.name);
}

TEST_CASE("calibration: several GPUs say what a host adds, one does not") {
  Claim four = measured(1, 4, 64), apart = measured(2, 4, 64, "validate");
  const Claim one = measured(1, 1, 64), two = measured(1, 2, 64, "validate");
  const auto predicted = [](const std::vector<Claim>& rows, const Claim& claim) {
    return *PublishedPredictor(rows)(claim).value;
  };
  CHECK(predicted({one, four, apart}, apart) == testing::approx(predicted({one, apart}, apart)));
  four.expected *= 2;
  Claim again = four;
  again.what["split"] = "validate";
  const std::vector<Claim> rows = {one, four, two, apart, again};
  CHECK(predicted(rows, again) == testing::approx(four.expected).epsilon(0.005));
  const double each = four.expected / 2 / 3;  // ms, for three further GPUs
  CHECK(predicted(rows, two) == testing::approx(two.expected + each).epsilon(0.005));
  CHECK(predicted(rows, apart) ==
        testing::approx(predicted({one, apart}, apart) + 3 * each).epsilon(0.005));
  const Prediction whole = PublishedPredictor(rows)(again);
  REQUIRE(whole.calibrated_by.size() == 2);
  CHECK(whole.calibrated_by[1].host.value() == testing::approx(1e-3 * each / 64).epsilon(0.005));
  CHECK(whole.calibrated_by[1].kernels == whole.calibrated_by[0].kernels);
  // Its kernels wait: that is no computing.
  const auto gaps = static_cast<std::size_t>(experiment::CostClass::gaps);
  CHECK((*whole.parts)[gaps] == testing::approx(0.5).epsilon(0.05));
  // A host never makes a step faster.
  four.expected /= 4;
  CHECK(predicted({one, four, two}, two) == testing::approx(predicted({one, two}, two)));
}

TEST_CASE("calibration: rows of others are used only without own ones") {
  const std::vector<Claim> others = {measured(1, 1, 64)};
  const Claim apart = measured(1, 1, 32, "validate");
  const PublishedPredictor borrowed({apart}, others);
  CHECK(std::abs(error_of(borrowed, apart)) < 0.01);
  CHECK(borrowed(apart).calibrated_by.size() == 1);
  Claim own = measured(1, 1, 64);
  own.expected *= 2;
  CHECK(error_of(PublishedPredictor({apart, own}, others), apart) > 0.8);
  CHECK(PublishedPredictor({apart})(apart).calibrated_by.empty());
}

TEST_CASE("calibration: a user's own step comes out as measured, and decides others of its card") {
  const std::vector<Claim> rows = {measured(1, 1, 64), measured(2, 2, 64)};
  const std::vector<experiment::FittedStep> fitted = fitted_steps(rows);
  REQUIRE(fitted.size() == 2);
  CHECK(fitted[0].device == "v100-pcie");
  CHECK(fitted[0].kernels == testing::approx(true_kernels).epsilon(0.005));
  CHECK_FALSE(fitted[0].links);
  CHECK(fitted[1].links.value() == testing::approx(true_links).epsilon(0.02));
  const auto experiment_of = [&](const std::string& cluster, Precision precision) {
    experiment::Request request;
    request.network = "alexnet";
    request.cluster = cluster;
    request.batch = 64;
    request.precision = precision;
    request.fitted = fitted;
    return std::make_unique<experiment::Experiment>(request);
  };
  const auto alone = experiment_of("star:1,device=v100-pcie", Precision::fp32);
  CHECK(alone->calibration->by.size() == 2);
  CHECK(alone->calibration->every_gpu);
  CHECK(alone->spreads().calibrated);
  const experiment::Planned planned =
      experiment::make_plan(*alone, strategies::strategy("data", "test"));
  const experiment::RunResult result = experiment::run_plan(*alone, planned).result;
  CHECK(1e3 * result.step_time.count() == testing::approx(rows[0].expected).epsilon(0.005));
  // Half of the GPUs have a row.
  const auto mixed = experiment_of("star:2,device=v100-pcie*1+t4*1,rate=10GB/s", Precision::fp32);
  CHECK(mixed->calibration->kernels[0] == testing::approx(true_kernels).epsilon(0.005));
  CHECK(mixed->calibration->kernels[1] == 1);
  CHECK_FALSE(mixed->spreads().calibrated);
  CHECK(testing::refusal_of([&] { experiment_of("star:1,device=t4", Precision::fp16); }) ==
        "--calibrate-with: no row of t4 in fp16, only of v100-pcie in fp32; accepted: measured "
        "steps on the type of GPU and in the precision of the run");
}

TEST_CASE("calibration: a step far off the model, or above the peak, gets a warning") {
  const auto run = [](double times) {
    Claim row = measured(1, 1, 64);
    row.expected *= times;
    experiment::Request request;
    request.network = "alexnet";
    request.cluster = "star:1,device=v100-pcie";
    request.batch = 64;
    request.fitted = fitted_steps({row});
    const experiment::Experiment experiment(request);
    const auto planned = experiment::make_plan(experiment, strategies::strategy("data", "test"));
    std::vector<std::string> texts = experiment.warnings;
    const experiment::RunResult result = experiment::run_plan(experiment, planned).result;
    texts.insert(texts.end(), result.notes.begin(), result.notes.end());
    return join(texts);
  };
  for (const double times : {1.0, 2.0}) CHECK(run(times).find("check ") == std::string::npos);
  for (const double times : {0.001, 1000.0}) {
    const std::string texts = run(times);
    CHECK(texts.find(
              "times as long as modelled, where the fit ends, and the row is missed; check ") !=
          std::string::npos);
    CHECK((texts.find("or a row of --calibrate-with is off") != std::string::npos) == (times < 1));
  }
}

TEST_CASE("calibration: a user's rows on one and on several GPUs fit what a host adds") {
  Claim four = measured(1, 4, 64);
  four.expected *= 2;
  const std::vector<experiment::FittedStep> fitted = fitted_steps({measured(1, 1, 64), four});
  const double each = 1e-3 * four.expected / 2 / 3 / 64;
  CHECK_FALSE(fitted[0].host);
  CHECK(fitted[1].host.value() == testing::approx(each).epsilon(0.005));
  CHECK(fitted[1].kernels == fitted[0].kernels);
  experiment::Request request;
  request.network = "alexnet";
  request.fitted = fitted;
  const auto step = [&](const std::string& cluster, std::int64_t batch) {
    request.cluster = cluster;
    request.batch = batch;
    const experiment::Experiment experiment(request);
    const auto planned = experiment::make_plan(experiment, strategies::strategy("data", "test"));
    return experiment::run_plan(experiment, planned).result.step_time.count();
  };
  CHECK(1e3 * step(cluster_call(four), 4 * 64) == testing::approx(four.expected).epsilon(0.02));
  const double two_machines = step("nodes:2x4,device=v100-pcie,intra-kind=pcie3,inter=1GB/s", 512);
  request.fitted = {fitted[0]};
  CHECK(two_machines - step("nodes:2x4,device=v100-pcie,intra-kind=pcie3,inter=1GB/s", 512) ==
        testing::approx(3 * 64 * each).epsilon(0.005));
}

TEST_CASE("calibration: what a host adds is fitted to all rows of a job together") {
  const auto slower = [](int nodes, int gpus, double times) {
    Claim claim = row(nodes, gpus, 64, "calibrate", "AlexNet");
    claim.expected = 1e3 * Training(claim).step(true_kernels) * times;
    return claim;
  };
  const auto run = [](const std::vector<Claim>& rows, const Claim& claim) {
    experiment::Request request;
    request.network = "alexnet";
    request.cluster = cluster_call(claim);
    request.batch = 64 * std::stoll(claim.what.at("n_gpus"));
    request.fitted = fitted_steps(rows);
    const experiment::Experiment experiment(request);
    const auto planned = experiment::make_plan(experiment, strategies::strategy("data", "test"));
    const auto result = experiment::run_plan(experiment, planned).result;
    return std::pair(1e3 * result.step_time.count() / claim.expected, experiment.warnings.size());
  };
  const Claim one = slower(1, 1, 1), two = slower(1, 2, 1.11), eight = slower(1, 8, 1.11);
  const Claim across = slower(2, 8, 1.11);
  // From two GPUs alone eight would be 1.6 times too slow.
  for (const auto& [rows, claim] : {std::pair{std::vector{one, two, eight}, eight},
                                    {std::vector{one, two, across}, across},
                                    {std::vector{one, two, eight, across}, across}}) {
    const auto [ratio, warnings] = run(rows, claim);
    CHECK(ratio == testing::approx(1).epsilon(0.1));
    CHECK(warnings == 0);
  }
  // Rows that contradict each other, and a wrong unit, are no host.
  const Claim slow = slower(1, 8, 2), slowest = slower(1, 8, 80);
  CHECK(run({one, eight, slow}, slow).second == 2);
  CHECK(run({one, slowest}, slowest).second == 1);
}

TEST_CASE("calibration: validate and simulate predict a run alike from the same rows") {
  const auto slower = [](int nodes, int gpus, int batch, double times) {
    Claim claim = row(nodes, gpus, batch, "calibrate", "AlexNet");
    claim.expected = 1e3 * Training(claim).step(true_kernels) * times;
    return claim;
  };
  const Claim one = slower(1, 1, 64, 1), two = slower(1, 2, 64, 1.2), eight = slower(1, 8, 64, 1.2),
              across = slower(2, 8, 64, 1.3), small = slower(1, 1, 16, 1.4);
  // Before, validate took the median of what each row alone says of hosts.
  for (const std::vector<Claim>& rows : {std::vector{one, two, eight},
                                         {one, two},
                                         {one, two, across},
                                         {one, two, eight, across},
                                         {eight},
                                         {eight, across},
                                         {across},
                                         {one, small},
                                         {two, eight}}) {
    for (Claim asked : {one, two, eight, across, slower(2, 2, 64, 1)}) {
      experiment::Request request;
      request.network = "alexnet";
      request.cluster = cluster_call(asked);
      request.batch = 64 * std::stoll(asked.what.at("n_gpus"));
      request.sim.collectives = sim::CollectiveCost::nccl;
      request.fitted = fitted_steps(rows);
      const experiment::Experiment experiment(request);
      const auto planned = experiment::make_plan(experiment, strategies::strategy("data", "test"));
      const auto result = experiment::run_plan(experiment, planned).result;
      asked.what["split"] = "validate";
      std::vector<Claim> claims = rows;
      claims.push_back(asked);
      CAPTURE(rows.size());
      CAPTURE(asked.name);
      CHECK(PublishedPredictor(claims)(asked).value.value() ==
            testing::approx(1e3 * result.step_time.count()).epsilon(0.01));
    }
  }
}

TEST_CASE("calibration: rows that name their cluster fit the links between its machines, too") {
  const auto named = [](int nodes, double slower) {
    Claim claim = row(nodes, 2, 64, "calibrate", "AlexNet");
    const std::string cluster =
        fmt::format("nodes:{}x2,device=v100-pcie,intra-kind=pcie3,inter=3GB/s", nodes);
    claim.what["cluster"] = cluster;
    claim.what.erase("nodes");
    CHECK(machines_of(claim) == nodes);
    claim.expected = 1e3 * Training(claim).step(1, 1) * slower;
    return claim;
  };
  const auto fitted = fitted_steps({named(1, 1), named(2, 1.5)});
  CHECK(fitted[0].kernels == testing::approx(1).epsilon(0.01));
  CHECK_FALSE(fitted[0].links);
  CHECK(fitted[1].kernels == testing::approx(1).epsilon(0.01));
  REQUIRE(fitted[1].links);
  CHECK(*fitted[1].links < 0.8);
  CHECK_FALSE(fitted[1].host);
  // At the end of the fit a line says so.
  const auto most = fitted_steps({named(1, 1), named(2, 20)});
  const experiment::RunCalibration calibration{{most[1]}, {1}, {}};
  const std::vector<std::string> lines =
      experiment::calibration_warnings(calibration, sim::Fusion::none);
  REQUIRE(lines.size() == 1);
  CHECK(
      lines[0].ends_with("links between machines reach 0.2 of their rate, where the fit ends; "
                         "check the row's cluster"));
}

TEST_CASE("calibration: rows across machines that disagree get warnings and wider intervals") {
  // Before, the fit of both was compared with itself.
  const auto checked = [](const std::vector<double>& factors) {
    std::vector<Claim> rows = {measured(1, 1, 16)};
    for (const double factor : factors) {
      rows.push_back(measured(2, 2, 16));
      rows.back().expected *= factor;
    }
    const Network network = load_network_of(rows[0]);
    const Cluster cluster = cluster_of(rows[1]);
    const auto calibration =
        experiment::calibration_of(fitted_steps(rows), network, Precision::fp32, cluster);
    std::size_t disagree = 0;
    for (const std::string& line :
         experiment::calibration_warnings(calibration, sim::Fusion::none)) {
      disagree += line.find("the fit to all rows of its job gives") != std::string::npos;
    }
    CHECK((calibration.link_spread > 0) == (disagree > 0));
    CHECK(calibration.kernel_spread == testing::approx(calibration.link_spread));
    return disagree;
  };
  CHECK(checked({1}) == 0);
  CHECK(checked({1, 1.05}) == 0);
  CHECK(checked({1, 2.5}) == 2);
  CHECK(checked({0.3}) == 1);  // faster than the links' whole rate
}

TEST_CASE("calibration: rows of the same network count before rows of its kind") {
  experiment::FittedStep mine, other, transformer;
  for (experiment::FittedStep* step : {&mine, &other, &transformer}) step->device = "t4";
  mine.network = "alexnet";
  mine.kernels = 1.5;
  other.network = "vgg16";
  other.kernels = 2;
  transformer.attends = true;
  transformer.kernels = 3;
  const Cluster cluster = topologies::load_cluster("star:2,device=t4,rate=10GB/s", "test");
  const auto factor = [&](const std::vector<experiment::FittedStep>& rows) {
    const Network network = networks::load_network("alexnet", {}, "test");
    return experiment::calibration_of(rows, network, Precision::fp32, cluster).kernels[1];
  };
  CHECK(factor({transformer, other, mine}) == 1.5);
  CHECK(factor({transformer, other}) == 2);
  CHECK(factor({transformer}) == 3);
}

TEST_CASE("calibration: a described card takes its own rows, or those of its base") {
  const testing::TemporaryFolder folder;
  const std::string file =
      folder.write("own.toml",
                   "generator = \"star:2,device=mine,rate=10GB/s\"\n"
                   "[[device_types]]\nname = \"mine\"\nbase = \"t4\"\nmemory = \"8 GiB\"\n");
  const Cluster cluster = topologies::load_cluster(file, "test");
  const Network network = networks::load_network("alexnet", {}, "test");
  experiment::FittedStep base, own;
  base.network = own.network = "alexnet";
  base.device = "t4";
  base.kernels = 2;
  own.device = "mine";
  own.kernels = 1.5;
  const auto factor = [&](const std::vector<experiment::FittedStep>& rows) {
    return experiment::calibration_of(rows, network, Precision::fp32, cluster).kernels[0];
  };
  CHECK(factor({base}) == 2);
  CHECK(factor({base, own}) == 1.5);
  // A row's card is one of its cluster file.
  for (const char* gpu : {"mine", ""}) {
    const Claim claim =
        read_measurements("model,cluster,gpu,n_gpus,batch_per_gpu,value,unit\nalexnet," + file +
                              "," + gpu + ",2,32,100,ms\n",
                          "f.csv", "f")
            .at(0);
    CHECK(device_of(claim) == "mine");
  }
}

TEST_CASE("calibration: rows correct the costs that they were predicted with, and no others") {
  experiment::FittedStep row;
  row.name = "row 1";
  row.device = "t4";
  row.network = "alexnet";
  experiment::Request request;
  request.network = "alexnet";
  request.cluster = "star:2,device=t4,rate=10GB/s";
  const auto refusal = [&](const std::string& of_row, const std::string& costs,
                           const std::string& profile) {
    row.profile = of_row;
    request.fitted = {row};
    const experiment::RunCalibration calibration{request.fitted, {1, 1}, {}};
    try {
      experiment::check_calibrated_costs(calibration, costs, profile, {});
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal("", "tiles", "").empty());
  CHECK(refusal("x/p.csv", "tiles", "x/p.csv").empty());
  CHECK(refusal("", "constant", "") ==
        "--calibrate-with: rows correct the costs 'tiles', not 'constant'; accepted: one of the "
        "two");
  CHECK(refusal("", "tiles", "p.json") ==
        "--calibrate-with: given together with --profile, whose times the row 'row 1' does not "
        "correct; accepted: one of the two, or rows whose column profile names that file, of layer "
        "times");
  CHECK(refusal("p.csv", "tiles", "") ==
        "--calibrate-with: the row 'row 1' corrects the times of p.csv; accepted: together with "
        "--profile p.csv");
  row.profile.clear();
  request.fitted = {row};
  request.costs = "constant";
  CHECK_THROWS_AS(experiment::Experiment{request}, InputError);
  request.costs = "tiles";
  CHECK_NOTHROW(experiment::Experiment{request});
  request.sim.launch_interval = Seconds{3e-5};
  CHECK_THROWS_AS(experiment::Experiment{request}, InputError);
}

TEST_CASE("calibration: a factor where the fit ends is named though it is rounded") {
  for (const double factor : {std::nextafter(0.2, 1.0), std::nextafter(5.0, 1.0)}) {
    experiment::FittedStep step;
    step.kernels = factor;
    const auto lines = experiment::calibration_warnings({{step}, {1}, {}}, sim::Fusion::none);
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].find("where the fit ends") != std::string::npos);
  }
}

}  // namespace parsim::validation
