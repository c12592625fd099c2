// What no law promises of a search, on random commands: that more memory, or an option less, makes
// no step longer. PARSIM_CASES=N tries N commands, PARSIM_FIRST_CASE=N begins with the N-th.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "app/cli.hpp"
#include "core/errors.hpp"
#include "experiment/run.hpp"
#include "tests/property/random_commands.hpp"
#include "tests/support/long_tests.hpp"

namespace parsim {
namespace {

using testing::RandomCommand;

/// What `best` finds for a command.
struct Found {
  double step = 0;  ///< s
  bool fits = false;
  Bytes peak{};  ///< of the fullest device
};

/// Nothing if the command is refused, as an option that cannot be followed is.
std::optional<Found> best_of(const std::vector<std::string>& words) {
  try {
    experiment::Request request =
        experiment::make_request(app::parse_command_line(words).arguments);
    request.sim.engine = sim::Engine::fast;
    const experiment::Experiment experiment(request);
    const experiment::RunResult result =
        experiment::run_plan(
            experiment, experiment::make_plan(experiment, strategies::strategy("best", "test")),
            experiment::Operations::folded)
            .result;
    const experiment::DeviceResult* fullest = result.fullest();
    return Found{result.step_time.count(), result.fits(),
                 fullest == nullptr ? Bytes{} : fullest->peak()};
  } catch (const InputError&) {
    return std::nullopt;
  }
}

std::vector<std::string> with(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// How often, and by how much, the less constrained of two searches found the slower plan.
struct Tally {
  std::int64_t pairs = 0, slower = 0, far = 0;  ///< far: by more than 1 %
  double worst = 0;

  void add(const Found& free, const Found& constrained) {
    ++pairs;
    CHECK(free.fits);
    const double excess = free.step / constrained.step - 1;
    far += excess > 0.01 ? 1 : 0;
    if (excess > 0.01) MESSAGE(fmt::format("{:.2g} % slower", 100 * excess));
    slower += excess > 1e-9 ? 1 : 0;
    worst = std::max(worst, excess);
  }
  [[nodiscard]] std::string text() const {
    return fmt::format("{} of {} slower, by {:.2g} % at most", slower, pairs, 100 * worst);
  }
};

/// Options that `best` chooses if they are not given.
std::vector<std::string> option_of_best(std::mt19937_64& random) {
  static const std::vector<std::vector<std::string>> all{{"--tp", "1"},
                                                         {"--tp", "2"},
                                                         {"--pp", "1"},
                                                         {"--pp", "2"},
                                                         {"--dp", "2"},
                                                         {"--micro-batches", "2"},
                                                         {"--micro-batches", "4"},
                                                         {"--zero", "0"},
                                                         {"--zero", "1"},
                                                         {"--zero", "3"},
                                                         {"--recompute", "none"},
                                                         {"--recompute", "full"},
                                                         {"--schedule", "gpipe"},
                                                         {"--schedule", "1f1b"},
                                                         {"--sync", "ring"},
                                                         {"--sync", "ps"},
                                                         {"--vp", "1"},
                                                         {"--shares", "equal"}};
  return all[random() % all.size()];
}

TEST_CASE("random cases: best is not slower with more memory or one option less") {
  const char* given = std::getenv("PARSIM_CASES");
  const char* from = std::getenv("PARSIM_FIRST_CASE");
  const std::int64_t cases = given != nullptr ? std::atoll(given) : testing::long_tests() ? 400 : 2;
  const std::int64_t first = from != nullptr ? std::atoll(from) : 0;
  Tally memory, options;
  for (std::int64_t number = first; number < first + cases; ++number) {
    std::mt19937_64 random(static_cast<std::uint64_t>(number));
    const std::vector<std::string> words =
        RandomCommand(static_cast<std::uint64_t>(number)).question_only("best");
    const std::optional<Found> free = best_of(words);
    if (!free || !free->fits) continue;
    CAPTURE(number);
    for (int i = 0; i < 2; ++i) {
      const std::vector<std::string> constrained = with(words, option_of_best(random));
      const std::string command = RandomCommand::line(constrained);
      CAPTURE(command);
      const std::optional<Found> found = best_of(constrained);
      if (found && found->fits) options.add(*free, *found);
    }
    // Between a quarter and all of what the fastest plan takes: less of it fits in other ways only.
    const double share = 0.25 + 0.75 * static_cast<double>(random() % 1000) / 1000;
    const auto bytes =
        static_cast<std::int64_t>(share * static_cast<double>(free->peak.value) / 0.9);
    const auto limited = [&](std::int64_t least) {
      return with(words, {"--override", fmt::format("devices.*.memory={}B", least)});
    };
    const std::string command = RandomCommand::line(limited(bytes));
    CAPTURE(command);
    const std::optional<Found> little = best_of(limited(bytes)),
                               more = best_of(limited(bytes * 5 / 4));
    if (little && little->fits && more) memory.add(*more, *little);
  }
  MESSAGE(fmt::format("more memory: {}; an option less: {}", memory.text(), options.text()));
  CHECK(options.pairs > 0);
  CHECK(20 * (memory.far + options.far) <= memory.pairs + options.pairs);
  CHECK(std::max(memory.worst, options.worst) <= 0.1);
}

// Of the plans that fit in more memory none had the second product cut by its inputs, so that no
// change could borrow that.
TEST_CASE("best: changes cut a layer as no start does") {
  const auto on_three = [](std::int64_t memory) {
    return best_of({"simulate", "--network", "mlp", "--cluster",
                    "ring:3,device=t4,rate=25GB/s,latency=29us", "--batch", "32", "--optimizer",
                    "sgd", "--override", fmt::format("devices.*.memory={}B", memory)});
  };
  const std::optional<Found> little = on_three(8'587'646), more = on_three(10'734'557);
  REQUIRE((little && more));
  CHECK(more->step <= little->step);
}

}  // namespace
}  // namespace parsim
