// Laws on random commands: a case is a seed, and what fails prints its command. PARSIM_CASES=N
// tries N cases, PARSIM_FIRST_CASE=N begins with the N-th.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "app/cli.hpp"
#include "core/dag_traffic.hpp"
#include "core/errors.hpp"
#include "core/json.hpp"
#include "experiment/run.hpp"
#include "report/document.hpp"
#include "strategies/blocks.hpp"
#include "strategies/degrees.hpp"
#include "tests/property/random_commands.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/program.hpp"

namespace parsim {
namespace {

using testing::RandomCommand;

std::int64_t number_of(const char* variable, std::int64_t usual) {
  const char* text = std::getenv(variable);
  return text == nullptr ? usual : std::atoll(text);
}
std::int64_t cases() { return number_of("PARSIM_CASES", testing::long_tests() ? 10'000 : 200); }

experiment::Request request_of(const std::vector<std::string>& words) {
  return experiment::make_request(app::parse_command_line(words).arguments);
}

/// A command that parsim accepts, with what it plans.
struct Case {
  std::vector<std::string> words;
  std::unique_ptr<experiment::Experiment> experiment;
  Plan plan;

  /// Draws until one is accepted: most devices, degrees and schedules do not fit together.
  explicit Case(std::int64_t number) {
    for (std::uint64_t draw = 0;; ++draw) {
      words = RandomCommand(static_cast<std::uint64_t>(number) * 1000 + draw).words();
      try {
        const experiment::Request request = request_of(words);
        experiment = std::make_unique<experiment::Experiment>(request);
        const strategies::Strategy& strategy =
            strategies::strategy(request.strategies.at(0), "test");
        plan = experiment::make_plan(*experiment, strategy).plan;
        experiment::check_used(request, experiment->network, std::vector{plan});
        return;
      } catch (const InputError&) {
        REQUIRE(draw < 900);
      }
    }
  }

  [[nodiscard]] experiment::Run run(
      const Plan& of, sim::Engine engine,
      experiment::Operations operations = experiment::Operations::all) {
    experiment->request.sim.engine = engine;
    return experiment::run_plan(*experiment, {of, {}, {}}, operations);
  }
};

/// Two devices that are linked alike to the same switch: exchanging them changes nothing but ids.
std::optional<std::pair<DeviceId, DeviceId>> twins(const Cluster& cluster) {
  const auto links_of = [&](std::size_t device) {
    std::vector<Link> found;
    for (Link link : cluster.links) {
      if (link.b == Port::of(DeviceId{device})) std::swap(link.a, link.b);
      if (link.a != Port::of(DeviceId{device})) continue;
      link.name.clear();
      link.a = {};
      found.push_back(link);
    }
    return found;
  };
  for (std::size_t a = 0; a < cluster.devices.size(); ++a) {
    for (std::size_t b = a + 1; b < cluster.devices.size(); ++b) {
      const bool same = cluster.devices[a].model == cluster.devices[b].model &&
                        cluster.devices[a].memory == cluster.devices[b].memory &&
                        cluster.devices[a].node == cluster.devices[b].node;
      const std::vector<Link> links = links_of(a);
      if (same && links.size() == 1 && links[0].b.kind == Port::Kind::switch_ &&
          links == links_of(b)) {
        return std::pair(DeviceId{a}, DeviceId{b});
      }
    }
  }
  return std::nullopt;
}

Plan exchanged(Plan plan, DeviceId a, DeviceId b) {
  const auto exchange = [&](DeviceId& device) {
    if (device == a) {
      device = b;
    } else if (device == b) {
      device = a;
    }
  };
  for (LayerPlan& layer : plan.layers) {
    for (DeviceId& device : layer.devices.edit()) exchange(device);
    exchange(layer.sync.server);
  }
  for (RankList& list : plan.schedule.rank_lists) {
    std::for_each(list.devices.begin(), list.devices.end(), exchange);
  }
  return plan;
}

/// Whether devices that share a layer have equal parts, as many share each layer, and none is a
/// parameter server. If not, rings go round and messages wait in the order of ids, and it matters
/// who sends to whom.
bool is_even(const Plan& plan) {
  return std::all_of(plan.layers.begin(), plan.layers.end(), [&](const LayerPlan& layer) {
    return layer.sync.kind != Sync::Kind::server &&
           layer.devices.size() == plan.layers[0].devices.size() &&
           std::all_of(layer.cuts.begin(), layer.cuts.end(), [](const Cut& cut) {
             return std::all_of(cut.sizes.begin(), cut.sizes.end(),
                                [&](std::int64_t size) { return size == cut.sizes[0]; });
           });
  });
}

double seconds(const experiment::Run& run) { return run.result.step_time.count(); }

/// Largest difference of two engines' steps, in parts of a step and in ns per operation of the
/// longest chain.
struct Disagreement {
  double relative = 0, per_operation_ns = 0;
};

void check_engines(Case& one, const experiment::Run& fast, Disagreement& worst) {
  const experiment::Run simgrid = one.run(one.plan, sim::Engine::simgrid);
  CHECK(simgrid.result.moved == fast.result.moved);
  CHECK(simgrid.timeline.hop_bytes == fast.timeline.hop_bytes);
  const double apart = std::abs(seconds(simgrid) - seconds(fast));
  const auto chain = static_cast<double>(fast.result.bounds.chain);
  CHECK(apart <= std::max(1e-6 * seconds(fast), 1e-9 * chain));
  worst.relative = std::max(worst.relative, apart / seconds(fast));
  worst.per_operation_ns = std::max(worst.per_operation_ns, apart * 1e9 / chain);
}

void check_bounds(const experiment::Run& run) {
  const experiment::Bounds& bounds = run.result.bounds;
  const double allowed = 1e-9 * static_cast<double>(bounds.chain) + 1e-9 * seconds(run);
  CHECK(seconds(run) >= bounds.critical_path.count() - allowed);
  CHECK(seconds(run) >= bounds.busiest_device.count() - allowed);
  CHECK(run.result.checks.starts_with("self-checks passed: "));
}

/// The device that computes; none for communication.
DeviceId kernel_of(const Op& op) {
  return std::visit(
      [](const auto& kind) {
        if constexpr (requires { kind.device; }) {
          return kind.device;
        } else {
          return DeviceId{};
        }
      },
      op);
}

/// What every device computes, waits for and idles adds up to the step, and it computes as long as
/// its kernels take, one after another.
void check_devices(const experiment::Run& run) {
  std::vector<double> kernels(run.result.devices.size());
  for (std::size_t i = 0; i < run.dag.size(); ++i) {
    const DeviceId device = kernel_of(run.dag.op(OpId{i}));
    const Span span = run.timeline.spans[i];
    if (span.end < span.start) FAIL("an operation ends before it starts");
    if (device.valid()) kernels[device.index()] += (span.end - span.start).count();
  }
  for (std::size_t d = 0; d < kernels.size(); ++d) {
    const DeviceUse& use = run.result.devices[d].use;
    const double sum = (use.compute + use.exposed_communication + use.idle).count();
    CHECK(std::abs(sum - seconds(run)) <= 1e-9 * seconds(run));
    CHECK(std::min({use.compute, use.exposed_communication, use.idle}) >= Seconds{-1e-12});
    CHECK(std::abs(use.compute.count() - kernels[d]) <= 1e-9 * seconds(run));
  }
}

/// The same command with names of devices and links in another order plans and takes the same.
void check_names(const Case& one, const experiment::Run& fast) {
  experiment::Experiment renamed(one.experiment->request);
  for (std::size_t i = 0; i < renamed.cluster.devices.size(); ++i) {
    renamed.cluster.devices[i].name = fmt::format("{}", 1000 - i);
  }
  for (std::size_t i = 0; i < renamed.cluster.links.size(); ++i) {
    renamed.cluster.links[i].name = fmt::format("l{}", 1000 - i);
  }
  const std::string name = one.experiment->request.strategies.at(0);
  Plan plan = experiment::make_plan(renamed, strategies::strategy(name, "test")).plan;
  plan.notes = one.plan.notes;  // they tell names
  CHECK(plan == one.plan);
  renamed.request.sim.engine = sim::Engine::fast;
  CHECK(experiment::run_plan(renamed, {plan, {}, {}}).timeline == fast.timeline);
}

std::string json_of(const std::vector<std::string>& words) {
  const app::CommandLine line = app::parse_command_line(words);
  const app::Outcome outcome = line.verb->run(line.arguments);
  const report::Format& form =
      outcome.format == nullptr ? app::chosen_format(line.arguments) : *outcome.format;
  return form.render(outcome.document, {});
}

/// `parsim rerun` of a result prints the result again.
void check_rerun(const Case& one, const testing::TemporaryFolder& folder) {
  std::vector<std::string> words = one.words;
  words.insert(words.end(), {"--no-timings", "--json"});
  const std::string result = json_of(words);
  CHECK(json_of({"rerun", folder.write("result.json", result)}) == result);
}

/// A plan's stages written as a layout are planned as the same plan. True if the plan has a layout:
/// whole blocks, the same degrees everywhere, tokens and experts whole.
bool check_layout(const Case& one, const testing::TemporaryFolder& folder) {
  const experiment::Experiment& with = *one.experiment;
  const strategies::Degrees degrees = strategies::degrees_of(with.network, one.plan);
  const auto stages = strategies::stages_of(with.network, one.plan);
  const auto whole = [](const std::optional<std::int64_t>& degree) {
    return degree.value_or(1) == 1;
  };
  if (!degrees.tp || !degrees.dp || !whole(degrees.vp) || !whole(degrees.cp) ||
      !whole(degrees.ep) || !is_even(one.plan) || with.request.strategies.at(0) != "tensor") {
    return false;
  }
  std::string text = fmt::format("micro_batches = {}\n", one.plan.schedule.micro_batches);
  const bool ordered = degrees.schedule && one.plan.schedule.micro_batches > 1;
  if (ordered) text += fmt::format("schedule = \"{}\"\n", to_text(*degrees.schedule));
  for (const strategies::StageSummary& stage : stages) {
    if (strategies::first_layers_of_blocks(with.network).empty()) {
      std::vector<std::string> names;
      for (const LayerId l : stage.layers) {
        const LayerKind& kind = with.network[l].kind;
        if (kind.as<Input>() == nullptr && kind.as<Loss>() == nullptr)
          names.push_back(with.network[l].name);
      }
      if (names.empty()) return false;
      text +=
          fmt::format("[[stages]]\nlayers = \"{}-{}\"\ngroups = [", names.front(), names.back());
    } else {
      if (!stage.blocks || stage.blocks->size() != 1) return false;
      const Interval blocks = stage.blocks->front();
      text +=
          fmt::format("[[stages]]\nblocks = \"{}-{}\"\ngroups = [", blocks.begin, blocks.end - 1);
    }
    for (std::size_t d = 0; d < stage.devices.size(); ++d) {
      const bool first = d % static_cast<std::size_t>(*degrees.tp) == 0;
      text += fmt::format("{}\"{}\"", first ? d == 0 ? "[" : "], [" : ", ",
                          with.cluster[stage.devices[d]].name);
    }
    text += "]]\n";
  }
  std::vector<std::string> words{"simulate", "--layout", folder.write("layout.toml", text)};
  for (std::size_t i = 1; i < one.words.size(); ++i) {
    const bool decided =
        std::set<std::string>{"--strategy", "--tp", "--pp", "--dp", "--micro-batches"}.contains(
            one.words[i]) ||
        (degrees.schedule && one.words[i] == "--schedule");
    if (decided) {
      ++i;
    } else {
      words.push_back(one.words[i]);
    }
  }
  const experiment::Experiment again(request_of(words));
  CAPTURE(text);
  CHECK(strategies::plan_id(with.network,
                            experiment::make_plan(again, experiment::layout_strategy()).plan) ==
        strategies::plan_id(with.network, one.plan));
  return true;
}

TEST_CASE("random cases: engines, bounds, devices' times, equal devices, and plans read back") {
  Disagreement worst;
  const testing::TemporaryFolder folder;
  std::int64_t swapped = 0, laid_out = 0, simulated = 0;
  double most_changed = 0;
  const std::int64_t first = number_of("PARSIM_FIRST_CASE", 0);
  for (std::int64_t number = first; number < first + cases(); ++number) {
    Case one(number);
    const std::string command = RandomCommand::line(one.words);
    CAPTURE(number);
    CAPTURE(command);
    const experiment::Run fast = one.run(one.plan, sim::Engine::fast);
    check_engines(one, fast, worst);
    check_bounds(fast);
    check_devices(fast);
    // Of equal replicas one stands for all.
    CHECK(seconds(one.run(one.plan, sim::Engine::fast, experiment::Operations::folded)) ==
          testing::approx(seconds(fast)).epsilon(1e-9));
    CHECK(plan_from_json(to_json(one.plan), "test") == one.plan);
    laid_out += check_layout(one, folder) ? 1 : 0;
    if (number % 4 == 0) {
      check_names(one, fast);
      check_rerun(one, folder);
    }
    if (const auto pair = twins(one.experiment->cluster)) {
      ++swapped;
      const Plan other = exchanged(one.plan, pair->first, pair->second);
      const double changed =
          std::abs(seconds(one.run(other, sim::Engine::fast)) / seconds(fast) - 1);
      CHECK(changed <= (is_even(one.plan) ? 1e-9 : 0.1));
      most_changed = std::max(most_changed, changed);
    }
    ++simulated;
  }
  MESSAGE(fmt::format(
      "{} cases, {} with exchanged devices (step up to {:.2g} % apart), {} layouts; engines at "
      "most {:.2g} of a step apart, "
      "{:.2g} ns for each operation of the longest chain",
      simulated, swapped, 100 * most_changed, laid_out, worst.relative, worst.per_operation_ns));
  CHECK(simulated == cases());
  CHECK(swapped * 4 > simulated);
  CHECK(laid_out * 50 >= simulated);
}

}  // namespace
}  // namespace parsim
