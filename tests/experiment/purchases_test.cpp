// Candidates of 'parsim buy' against all counts tried one by one, and their costs by hand.
#include "experiment/purchases.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "experiment/buy.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/long_tests.hpp"
#include "topologies/cluster_file.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {
namespace {

/// One machine of two T4 of 70 W; all numbers on one line, for offers of the tests.
std::string offer(const std::string& name, const std::string& price, const std::string& more = "") {
  return "[[offers]]\nname = \"" + name + "\"\n" + price +
         "\ndevice = \"t4\"\ngpus = 2\nintra = \"10 GB/s\"\ninter = \"10 GB/s\"\nlatency = \"1 "
         "us\"\n"
         "date = \"2024-01-31\"\nlabel = \"test\"\nsource = \"made up\"\n" +
         more + "\n";
}

const std::string two_boxes =
    "switches = [\"network\"]\n[[nodes]]\nname = \"fast\"\ncount = 2\n"
    "devices = [{ model = \"v100-sxm2\", count = 2 }]\n[[nodes]]\nname = \"slow\"\n"
    "devices = [{ model = \"t4\", count = 2 }]\n[[links]]\na = \"*.gpu*\"\nb = \"network\"\n"
    "rate = \"10 GB/s\"\nlatency = \"1 us\"\n";

Cluster own_cluster() { return topologies::parse_cluster(two_boxes, "own.toml"); }

const std::string job_text =
    "samples = 6400\nelectricity = \"0.5 /kWh\"\n[options]\nnetwork = \"lenet5\"\nbatch = 64\n";

}  // namespace

TEST_CASE("purchases: all counts within budget and power, and no others") {
  const std::vector<Offer> offers =
      read_offers(offer("cheap", "price = \"10k\"") +
                      offer("dear", "price = \"25k\"", "power = \"400 W\"\nmost = 2") +
                      offer("cloud", "rent = \"1 /h\"", "most = 3"),
                  "offers.toml");
  const std::vector<MachineGroup> groups = machine_groups(own_cluster());
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].text == "2 x v100-sxm2");
  CHECK(groups[0].nodes.size() == 2);
  PurchaseLimits limits{.budget = {60e3}, .power = Watts{1000}, .years = 2};
  const Purchases found = purchases(groups, offers, limits);
  std::vector<Purchase> tried;
  for (std::int64_t v = 0; v <= 2; ++v) {
    for (std::int64_t t = 0; t <= 1; ++t) {
      for (std::int64_t cheap = 0; cheap <= 8; ++cheap) {
        for (std::int64_t dear = 0; dear <= 2; ++dear) {
          // 2 x 300 W, 2 x 70 W; 2 x 70 W and 400 W.
          const std::int64_t watts = 600 * v + 140 * t + 140 * cheap + 400 * dear;
          const bool fits = watts <= 1000 && 10 * cheap + 25 * dear <= 60;
          const bool any = v + t + cheap + dear > 0;
          if (fits && any) tried.push_back({{v, t}, {cheap, dear, 0}});
          // Two years of 8760 h at 1 an hour: 17.52k; three of them fit, alone.
          for (std::int64_t cloud = 1; cloud <= 3 && !any; ++cloud) {
            tried.push_back({{0, 0}, {0, 0, cloud}});
          }
        }
      }
    }
  }
  CHECK_FALSE(found.thinned);
  CHECK(found.all.size() == tried.size());
  for (const Purchase& one : tried) {
    CHECK(std::count(found.all.begin(), found.all.end(), one) == 1);
  }
  // Where machines cannot be joined, nothing is added to those that are kept.
  limits.joinable = false;
  std::erase_if(tried, [](const Purchase& one) {
    return one.kept != std::vector<std::int64_t>{0, 0} &&
           one.taken != std::vector<std::int64_t>{0, 0, 0};
  });
  CHECK(purchases(groups, offers, limits).all.size() == tried.size());
  // 20 cheap ones are 0, 1, 2, 4, 8, 16 or 20.
  const std::vector<Offer> many = read_offers(offer("cheap", "price = \"1k\"", "most = 20"), "o");
  const Purchases thin = purchases({}, many, {.budget = {1e6}, .most = 10});
  CHECK(thin.thinned);
  CHECK(thin.all.size() == 6);
  CHECK_THROWS_WITH_AS((void)purchases({}, many, {.budget = {1e6}, .most = 5}),
                       doctest::Contains("--offers: more than 5 candidates; accepted: fewer"),
                       InputError);
}

TEST_CASE("purchases: budgets beyond every count are budgets") {
  const std::vector<Offer> offers =
      read_offers(offer("dear", "price = \"25k\"", "power = \"400 W\"\nmost = 2"), "offers.toml");
  for (const double much : {1e9, 1e30, 1e300}) {
    CAPTURE(much);
    CHECK(purchases({}, offers, {.budget = {much}, .power = Watts{1e5}, .years = 2}).all.size() ==
          2);
    CHECK(purchases({}, offers, {.budget = {1e5}, .power = Watts{much}, .years = 2}).all.size() ==
          2);
  }
}

TEST_CASE("purchases: only machines that are equal stand in for each other") {
  const auto kept = [](const std::string& of_second, const std::string& rate) {
    const std::string text =
        "switches = [\"network\"]\n[[nodes]]\nname = \"a\"\ncount = 2\n"
        "devices = [{ model = \"t4\", count = 2 }]\n[[nodes]]\nname = \"b\"\n" +
        of_second +
        "devices = [{ model = \"t4\", count = 2 }]\n[[links]]\na = \"a*.gpu*\"\nb = \"network\"\n"
        "rate = \"10 GB/s\"\nlatency = \"1 us\"\n[[links]]\na = \"b*.gpu*\"\nb = \"network\"\n"
        "rate = \"" +
        rate + "\"\nlatency = \"1 us\"\n";
    const Cluster own = topologies::parse_cluster(text, "own.toml");
    const std::vector<MachineGroup> groups = machine_groups(own);
    std::vector<std::string> texts;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      std::vector<std::int64_t> counts(groups.size(), 0);
      counts[g] = 1;
      texts.push_back(text_of({counts, {}}, groups, {}));
    }
    return texts;
  };
  using Texts = std::vector<std::string>;
  const Texts unlike{"keep 1/2 (2 t4 like a0)", "keep 1/1 (2 t4 like b)"};
  CHECK(kept("", "10 GB/s") == Texts{"keep 1/3 (2 t4)"});
  CHECK(kept("", "11 GB/s") == unlike);
  CHECK(kept("mtbf = \"2000 h\"\n", "10 GB/s") == unlike);
}

TEST_CASE("purchases: clusters of what is kept and bought") {
  const Cluster own = own_cluster();
  const std::vector<MachineGroup> groups = machine_groups(own);
  const std::vector<Offer> offers =
      read_offers(offer("new", "price = \"10k\"", "nics = 2\npower = \"500 W\""), "offers.toml");
  const Purchase purchase{{1, 0}, {2}};
  CHECK(text_of(purchase, groups, offers) == "keep 1/2 (2 v100-sxm2), buy 2 new");
  const Cluster cluster = cluster_of(purchase, &own, groups, offers);
  std::vector<std::string> names;
  for (const Device& device : cluster.devices) names.push_back(device.name);
  CHECK(names == std::vector<std::string>{"fast0.gpu0", "fast0.gpu1", "new-0.gpu0", "new-0.gpu1",
                                          "new-1.gpu0", "new-1.gpu1"});
  CHECK_NOTHROW(validate(cluster, "test"));
  // A purchase alone is what the generator makes of the same numbers.
  const Cluster bought = cluster_of({{0, 0}, {2}}, &own, groups, offers);
  const Cluster generated = topologies::load_cluster(
      "nodes:2x2,device=t4,intra=10GB/s,inter=10GB/s,latency=1us,nics=2", "test");
  REQUIRE(bought.links.size() == generated.links.size());
  for (std::size_t i = 0; i < bought.links.size(); ++i) {
    CHECK(bought.links[i].rate == generated.links[i].rate);
    CHECK(bought.links[i].latency == generated.links[i].latency);
  }
}

TEST_CASE("buy: costs of a run by hand, bought, rented and kept") {
  const auto asked = [](const std::string& job) {
    BuyRequest request{.job = read_job(job, "job.toml", "test"),
                       .offers = read_offers(offer("box", "price = \"17520\"", "most = 1") +
                                                 offer("cloud", "rent = \"3 /h\"", "most = 1"),
                                             "offers.toml"),
                       .own = own_cluster(),
                       .limits = {.budget = {60e3}, .power = {}, .years = 2},
                       .quiet = true};
    return buy(request);
  };
  const BuyAnswer answer = asked(job_text);
  REQUIRE(!answer.rows.empty());
  CHECK(answer.candidates == 12);  // 3 x 2 x 2 less nothing at all, and the rented one
  double probability = 0;
  bool rented = false, alone = false;
  for (const BuyRow& row : answer.rows) {
    CAPTURE(row.text);
    // 100 steps. 17520 over 2 x 8760 h is 1 an hour.
    const Seconds time = 100 * row.run.step_time;
    CHECK(row.time.count() == testing::approx(time.count()));
    const bool buys = row.purchase.taken[0] == 1;
    CHECK(row.per_hour.value == testing::approx(row.rented ? 3 : buys ? 1 : 0));
    const double kwh = 100 * row.run.upkeep.energy->value / 3.6e6;
    const double electricity = row.rented ? 0 : 0.5 * kwh;
    CHECK(row.cost.value == testing::approx(row.per_hour.value * (time / hour) + electricity));
    CHECK(row.energy->value == testing::approx(3.6e6 * kwh));
    probability += row.probability;
    rented = rented || row.rented;
    alone = alone || row.of_own;
    // No row is cheaper and faster than one that says so.
    for (const BuyRow& other : answer.rows) {
      if (!row.cheapest) continue;
      CHECK_FALSE((other.cost < row.cost && other.time < row.time));
    }
  }
  CHECK(alone);  // some part of what is there is listed in any case
  CHECK(probability >= 0.99);
  for (std::size_t i = 1; i < answer.rows.size(); ++i) {
    CHECK(answer.rows[i - 1].cost.value <= answer.rows[i].cost.value);
  }
  // With ten runs the box costs each 1752, however long a run takes.
  for (const BuyRow& row : asked("runs = 10\n" + job_text).rows) {
    CHECK(row.fixed.value == testing::approx(row.purchase.taken[0] == 1 ? 1752 : 0));
    CHECK(row.cost_at(2).value - row.cost.value ==
          testing::approx(row.cost.value - row.fixed.value));
  }
}

TEST_CASE("buy: machines far beyond a sample for each GPU are not asked once more are no faster") {
  // Machines of 64 T4, batch 4.
  const auto offers = [](const std::string& most) {
    std::string text = offer("box", "price = \"1k\"", "most = " + most);
    text.replace(text.find("gpus = 2"), 8, "gpus = 64");
    return read_offers(text, "offers.toml");
  };
  const PurchaseLimits limits{.budget = {1e9}, .power = {}, .years = 2};
  CHECK_FALSE(purchases({}, offers("64"), limits).thinned);
  CHECK(purchases({}, offers("150"), limits).thinned);  // 150 candidates with 724,800 GPUs
  const BuyAnswer answer =
      buy({.job = read_job("samples = 6400\n[options]\nnetwork = \"mlp\"\nbatch = 4\n", "job.toml",
                           "test"),
           .offers = offers("150"),
           .own = {},
           .limits = limits,
           .quiet = true});
  CHECK(answer.candidates == 9);
  // Up to 512 GPUs all are, then 1,024 and perhaps 2,048, but not 4,096 to 9,600.
  CHECK(answer.estimated <= 6);
  CHECK(answer.estimated + answer.hopeless == 9);
  REQUIRE(!answer.rows.empty());
  CHECK(answer.rows[0].gpus == 64);
}

TEST_CASE("buy: replicas accumulate gradients where a GPU's samples do not fit at once") {
  // With many machines some are not searched.
  const bool many = testing::long_tests();
  const auto answer = [&](const std::string& options) {
    return buy({.job = read_job("samples = 6400\n[options]\nnetwork = "
                                "\"gpt:layers=4,hidden=1024,heads=16,seq_length=1024,"
                                "vocab_size=1000\"\nbatch = " +
                                    std::string(many ? "8192" : "1024") + "\n" + options,
                                "job.toml", "test"),
                .offers = read_offers(
                    offer("box", "price = \"1k\"", many ? "most = 60" : "most = 8"), "offers.toml"),
                .own = {},
                .limits = {.budget = {many ? 60e3 : 8e3}, .power = {}, .years = 2},
                .quiet = true});
  };
  const BuyAnswer any = answer("");
  CHECK(any.unfit + any.unsearched == 0);
  // Plans of `data` alone do not fit on the smaller ones, of which thirty are searched for nothing.
  const BuyAnswer data = answer("strategy = \"data\"\n");
  CHECK(data.unfit > 0);
  CHECK((data.unsearched > 0) == many);
  const auto fewest = [](const BuyAnswer& of) {
    std::size_t gpus = 1000;
    for (const BuyRow& row : of.rows) gpus = std::min(gpus, row.gpus);
    return gpus;
  };
  CHECK(fewest(any) == 2);
  CHECK(fewest(data) > (many ? 60U : 8U));
}

TEST_CASE("buy: files of jobs and offers are refused with place, found and accepted") {
  const auto refusal = [](auto read) {
    try {
      (void)read();
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto of_offers = [&](const std::string& text) {
    return refusal([&] { return read_offers(text, "offers.toml"); });
  };
  const auto of_job = [&](const std::string& text) {
    return refusal([&] { return read_job(text, "job.toml", "test"); });
  };
  CHECK(of_offers(offer("a", "")).find("no price; accepted: price = \"199k\" to buy it") !=
        std::string::npos);
  CHECK(of_offers(offer("a", "rent = \"3\"")) ==
        "offers.toml:3:offers.rent: '3' is no price; accepted: '2.5 /h', or of a purchase '30k / "
        "4 years'");
  CHECK(of_offers(offer("a", "price = \"3k\"") + offer("a", "price = \"3k\""))
            .find("the name 'a' occurs twice; accepted: unique names") != std::string::npos);
  CHECK(of_offers(offer("a", "price = \"3k\"", "nics = 3")).find("offers.toml:12:offers.nics") ==
        0);
  std::string impossible = offer("a", "price = \"3k\"");
  impossible.replace(impossible.find("2024-01-31"), 10, "2023-02-29");
  CHECK(of_offers(impossible).find("offers.date: '2023-02-29'; accepted: year, month and day") !=
        std::string::npos);
  CHECK(of_job("samples = 10\n").find("job.toml: no 'samples' or no [options]; accepted:") == 0);
  CHECK(of_job("samples = 10\n[options]\nnetwork = \"lenet5\"\n")
            .find("no network or no batch; accepted: both") != std::string::npos);
  CHECK(of_job("electricity = \"3\"\n" + job_text.substr(0, job_text.find("elec")) +
               "[options]\nnetwork = \"lenet5\"\nbatch = 8\n") ==
        "job.toml:1:electricity: '3'; accepted: \"0.25 /kWh\"");
  CHECK(of_job(job_text + "tp = 2\n").find("--tp, which 'buy' chooses for each candidate") !=
        std::string::npos);
  CHECK(of_job(job_text + "override = \"devices.*.memory=1MiB\"\n")
            .find("--override, which is about one cluster; accepted: network") !=
        std::string::npos);
  CHECK(of_job(job_text + "micro-batches = 2\n").find("--micro-batches, which 'buy' chooses") !=
        std::string::npos);
  for (const char* option : {"mtbf = \"10h\"", "jitter = \"5%\""}) {
    CHECK(of_job(job_text + option + "\n").find(", which 'buy' does not simulate; accepted: net") !=
          std::string::npos);
  }
  // What no strategy of 'buy' reads, as 'compare' refuses it.
  for (const char* option :
       {"speeds = \"1,2\"", "rounding = \"released\"", "search-costs = \"paper\"",
        "degrees = \"any\"", "partition = \"none.txt\"", "parts = 2", "seed = 4", "budget = 5"}) {
    CAPTURE(option);
    CHECK(of_job(job_text + option + "\n")
              .find(": unused by every strategy asked for; accepted: with strategy ") !=
          std::string::npos);
  }
  CHECK(of_job(job_text + "schedule = \"gpipe\"\nstrategy = \"data\"\n")
            .find("--schedule: unused by strategy 'data'; accepted:") != std::string::npos);
  CHECK(of_job(job_text + "schedule = \"gpipe\"\n") == "accepted");
  CHECK(of_job(job_text + "cp-comm = \"a2a\"\n").find("--cp-comm: unused without --cp") !=
        std::string::npos);
  CHECK(of_job(job_text + "strategy = \"best\"\n").find("strategy 'best'; accepted: data") !=
        std::string::npos);
  CHECK(of_job(job_text + "cluster = \"dgx-v100\"\n")
            .find("a cluster; accepted: machines of --own and --offers") != std::string::npos);
}

}  // namespace parsim::experiment
