// Files of sweeps: which points they list, what the ids depend on, how wrong ones are refused.
#include "experiment/sweep_file.hpp"

#include <doctest/doctest.h>

#include <new>
#include <set>
#include <string>
#include <vector>

#include "experiment/request.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::experiment {
namespace {

using testing::refusal_of;
using testing::with;
using Words = std::vector<std::string>;

const std::string good_sweep = R"([options]
cluster = "star:{gpus},device=v100-sxm2,rate={rate},latency=1us"
strategy = ["data", "owt"]

[axes]
network = ["lenet5", "alexnet"]
rate = ["10GB/s", "25GB/s", "50GB/s"]

[[zip]]
gpus = [2, 4]
batch = [64, 128]

[[skip]]
network = "alexnet"
rate = ["10GB/s", "50GB/s"]
)";

Sweep sweep_of(const std::string& text, const std::string& version = "1") {
  return read_sweep(text, "sweep.toml", version);
}
std::string refused(const std::string& text) {
  return refusal_of([&] { return sweep_of(text); });
}
std::vector<Words> commands(const Sweep& sweep) {
  std::vector<Words> all;
  for (const SweepPoint& point : sweep.points) all.push_back(sweep.arguments(point).command);
  return all;
}
std::set<std::string> ids(const Sweep& sweep) {
  std::set<std::string> all;
  for (const SweepPoint& point : sweep.points) all.insert(point.id);
  return all;
}

TEST_CASE("sweep file: points by hand") {
  const Sweep sweep = sweep_of(good_sweep);
  // 2 networks x 3 rates x 2 pairs, without 2 rates x 2 pairs of alexnet.
  CHECK(sweep.points.size() == 8);
  CHECK(sweep.skipped == 4);
  CHECK(sweep.repeated == 0);
  const std::vector<Words> all = commands(sweep);
  const auto command = [](const Words& network, const std::string& gpus, const std::string& rate,
                          const std::string& batch) {
    Words words = {"compare",
                   "--cluster",
                   "star:" + gpus + ",device=v100-sxm2,rate=" + rate + ",latency=1us",
                   "--strategy",
                   "data",
                   "--strategy",
                   "owt"};
    words.insert(words.end(), network.begin(), network.end());
    words.insert(words.end(), {"--batch", batch, "--no-timings"});
    return words;
  };
  // Axes in the order of the file, the last one changes fastest.
  CHECK(all[0] == command({"--network", "lenet5"}, "2", "10GB/s", "64"));
  CHECK(all[1] == command({"--network", "lenet5"}, "4", "10GB/s", "128"));
  CHECK(all[2] == command({"--network", "lenet5"}, "2", "25GB/s", "64"));
  CHECK(all[7] == command({"--network", "alexnet"}, "4", "25GB/s", "128"));
  for (const SweepPoint& point : sweep.points) {
    CHECK_NOTHROW(static_cast<void>(make_request(sweep.arguments(point))));
  }
}

TEST_CASE("sweep file: filters keep what [[only]] says and [[skip]] does not") {
  const std::string axes = "[axes]\nnetwork = [\"lenet5\"]\nbatch = [1, 2, 3, 4, 5]\n";
  CHECK(sweep_of(axes + "[[only]]\nbatch = [2, 3]\n[[only]]\nbatch = 5\n").points.size() == 3);
  CHECK(sweep_of(axes + "[[only]]\nbatch = [2, 3]\n[[skip]]\nbatch = 3\n").points.size() == 1);
}

TEST_CASE("sweep file: an option that is not given, several times given, or a flag") {
  const Sweep sweep = sweep_of(R"([axes]
network = ["gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=128"]
strategy = ["data", ["data", "tensor"], []]
sequence-parallel = [false, true]
tensor-parallel = [[], 2]
)");
  const std::vector<Words> all = commands(sweep);
  REQUIRE(all.size() == 12);
  const Words network = {"compare", "--network",
                         "gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=128"};
  const auto more = [&](const Words& words) {
    Words command = network;
    command.insert(command.end(), words.begin(), words.end());
    command.emplace_back("--no-timings");
    return command;
  };
  CHECK(all[0] == more({"--strategy", "data"}));
  CHECK(all[1] == more({"--strategy", "data", "--tp", "2"}));
  CHECK(all[7] ==
        more({"--strategy", "data", "--strategy", "tensor", "--sequence-parallel", "--tp", "2"}));
  CHECK(all[8] == more({}));
}

TEST_CASE("sweep file: an id depends on what is asked, not on how the file asks it") {
  const std::set<std::string> plain = ids(sweep_of(good_sweep));
  CHECK(plain.size() == 8);
  const auto moved = R"([axes]
rate = ["50GB/s", "25GB/s", "10GB/s"]
[[zip]]
batch = [128, 64]
gpus = [4, 2]
[options]
zero = 0
headroom = "6%"
strategy = ["data", "owt"]
cluster = "star:{gpus},device=v100-sxm2,rate={rate},latency=1us"
network = "lenet5"
)";
  // The default of --headroom and no text are one input; --zero 0 is not what "not given" means.
  const std::set<std::string> without_zero = ids(sweep_of(with(moved, "zero = 0\n", "")));
  CHECK(without_zero.size() == 6);
  for (const std::string& id : without_zero) CHECK(plain.contains(id));
  for (const std::string& id : ids(sweep_of(moved))) CHECK_FALSE(plain.contains(id));
  // Another version or another value is another point.
  for (const std::string& id : ids(sweep_of(good_sweep, "2"))) CHECK_FALSE(plain.contains(id));
  CHECK(sweep_of(good_sweep).id == sweep_of("# a comment\n" + good_sweep).id);
  CHECK(sweep_of(good_sweep).id != sweep_of(good_sweep, "2").id);
  CHECK(sweep_of(good_sweep).id != sweep_of(with(good_sweep, "128]", "129]")).id);
}

TEST_CASE("sweep file: an id depends on the content of files") {
  const testing::TemporaryFolder folder;
  const std::string file = folder.write("box.toml", "# one\n");
  const std::string text = "[options]\nnetwork = \"lenet5\"\ncluster = \"" + file + "\"\n";
  const std::string before = sweep_of(text).points.front().id;
  CHECK(sweep_of(text).points.front().id == before);
  folder.write("box.toml", "# two\n");
  CHECK(sweep_of(text).points.front().id != before);
}

TEST_CASE("sweep file: points with the inputs of an earlier one are left out") {
  const Sweep sweep =
      sweep_of("[axes]\nnetwork = [\"lenet5\"]\nheadroom = [\"6%\", \"0.06\", []]\n");
  CHECK(sweep.points.size() == 1);
  CHECK(sweep.repeated == 2);
}

TEST_CASE("sweep file: who numbers many points is asked every few thousand whether to go on") {
  std::string text = "[options]\nnetwork = \"lenet5\"\n[axes]\nbatch = [";
  for (int i = 1; i <= 10'000; ++i) text += std::to_string(i) + ",";
  int asked = 0;
  const Sweep sweep = read_sweep(text + "]\n", "sweep.toml", "1", [&] { ++asked; });
  CHECK(sweep.points.size() == 10'000);
  CHECK(asked == 2);
  CHECK_THROWS_AS((void)read_sweep(text + "]\n", "sweep.toml", "1", [] { throw std::bad_alloc(); }),
                  std::bad_alloc);
}

TEST_CASE("sweep file: refusals name file, line and key") {
  CHECK(refused(good_sweep) == "accepted");
  CHECK(refused(with(good_sweep, "network =", "netwrok =")) ==
        "sweep.toml:6:axes.netwrok: no option 'netwrok'; accepted: an option of 'parsim compare' "
        "without its dashes, or a variable that a text has in braces; did you mean 'network'?");
  CHECK(refused(with(good_sweep, "{rate}", "{speed}")) ==
        "sweep.toml:2:options.cluster: no variable 'speed'; accepted: in braces, a name of [axes], "
        "[[zip]] or [options] that is no option");
  CHECK(refused(with(good_sweep, "[64, 128]", "[64]")) ==
        "sweep.toml:11:zip.batch: 1 value, but 'gpus' has 2; accepted: lists of one length");
  CHECK(refused(with(good_sweep, "[64, 128]", "[64, -1]"))
            .starts_with("sweep.toml:11:zip.batch: --batch: '-1'"));
  CHECK(refused(with(good_sweep, "[64, 128]", "[64, 0.5]"))
            .starts_with("sweep.toml:11:zip.batch: a bare number; accepted: a quoted string"));
  CHECK(refused(with(good_sweep, "[64, 128]", "64"))
            .starts_with("sweep.toml:11:zip.batch: the number 64; accepted: a list"));
  CHECK(refused(with(good_sweep, "rate = [\"10GB/s\", \"50GB/s\"]", "rate = \"11GB/s\"")) ==
        "sweep.toml:15:skip.rate: 'rate' never is 11GB/s; accepted: values listed at "
        "sweep.toml:7:axes.rate");
  CHECK(refused(with(good_sweep, "[[skip]]", "[[skp]]"))
            .find("unknown key 'skp'; accepted: options, axes, zip, skip, only; did you mean "
                  "'skip'?") != std::string::npos);
  CHECK(refused(with(good_sweep, "gpus = [2, 4]", "network = [\"vgg16\", \"vgg19\"]"))
            .find("sweep.toml:10:zip.network: also at sweep.toml:6:axes.network") == 0);
  CHECK(refused(good_sweep + "[[skip]]\nnetwork = \"lenet5\"\n[[skip]]\nnetwork = \"alexnet\"\n") ==
        "sweep.toml: no point is left; accepted: filters that leave at least one");
  CHECK(refused("[options]\nhw = true\n").find("no option 'hw'") != std::string::npos);
  CHECK(refused("[options]\nprecision = \"fp31\"\n").find("did you mean 'fp32'?") !=
        std::string::npos);
}

}  // namespace
}  // namespace parsim::experiment
