#include "experiment/nearest_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "experiment/trainer_file.hpp"
#include "strategies/blocks.hpp"
#include "strategies/degrees.hpp"
#include "strategies/layout.hpp"
#include "strategies/mixed_stages.hpp"
#include "strategies/price.hpp"

namespace parsim::experiment {

namespace {

/// What is tried at most of a plain plan and its changes, and of those of last resort together; a
/// search for degrees counts as several, for it takes as long.
constexpr std::size_t most_work = 12, most_of_last_resort = 24, work_of_search = 4;

struct PlainPlan {
  std::string strategy;                 ///< "layout": that of the request
  std::int32_t tp = 0, pp = 0, dp = 0;  ///< 0: the strategy's choice
  std::size_t changes = 3;              ///< as many are tried at once
  bool own = false;                     ///< with the other options of the refused plan
  bool last_resort = false;             ///< only where no other is accepted
  bool open = false;                    ///< without the options of `chosen_if_absent`
};
constexpr std::string_view of_request = "layout";
/// Options that say what a search chooses otherwise, next to the degrees.
constexpr std::string_view chosen_if_absent[] = {"--ep", "--etp", "--micro-batches"};

std::vector<PlainPlan> plain_plans(const Experiment& experiment, const Plan& refused) {
  std::vector<PlainPlan> plans;
  if (experiment.layout && !experiment.layout->plan) plans.push_back({std::string(of_request)});
  const std::size_t gpus = devices_of(experiment.cluster, DeviceKind::gpu).size();
  const bool blocks = !strategies::first_layers_of_blocks(experiment.network).empty();
  const strategies::Degrees own = strategies::degrees_of(experiment.network, refused);
  if (blocks && own.tp && own.pp && own.dp) {
    plans.push_back({"tensor", static_cast<std::int32_t>(*own.tp),
                     static_cast<std::int32_t>(*own.pp), static_cast<std::int32_t>(*own.dp)});
    plans.push_back(plans.back());
    plans.back().own = true;
  }
  plans.push_back({"data"});
  if (blocks) plans.push_back({"tensor"});
  const auto given = [&](auto flag) { return experiment.request.given.contains(flag); };
  if (blocks && std::any_of(std::begin(chosen_if_absent), std::end(chosen_if_absent), given))
    plans.push_back({.strategy = "tensor", .open = true});
  plans.push_back({"pipeline"});
  constexpr std::size_t most = 128;
  if (gpus > most || !blocks) return plans;
  const auto all = static_cast<std::int32_t>(gpus);
  for (std::int32_t tp = 1; tp <= all; tp *= 2) {
    for (std::int32_t pp = 1; tp * pp <= all; pp *= 2) {
      if (all % (tp * pp) != 0) continue;
      plans.push_back({"tensor", tp, pp, all / (tp * pp), 1, false, true});
    }
  }
  return plans;
}

/// Whether tensor parallelism would look for stages that differ. With --cp 1 it does not.
bool leaves_stages_open(const Experiment& experiment, const PlainPlan& plain) {
  return plain.strategy == "tensor" && !experiment.request.given.contains("--cp") &&
         strategies::has_mixed_stages(experiment.strategy_input());
}

/// An option that another plan is made with, as a user writes it.
struct OptionChange {
  std::string words;  ///< "without --zero-group", "--zero 2"
  std::function<void(strategies::StrategyInput&)> apply;
};

/// "--zero"
std::string_view flag_of(const OptionChange& change) {
  const std::string_view words = change.words;
  const std::string_view flag = words.substr(words.find("--"));
  return flag.substr(0, flag.find(' '));
}

bool has(const std::vector<OptionChange>& changes, std::string_view flag) {
  return std::any_of(changes.begin(), changes.end(),
                     [&](const OptionChange& change) { return flag_of(change) == flag; });
}

/// "--zero 2 or 3, with --dp 2": the words behind an option up to the next one.
std::string_view behind(std::string_view text, std::string_view option) {
  const std::string flag = std::string(option) + " ";
  const std::size_t at = text.find(flag);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = text.substr(at + flag.size());
  return rest.substr(0, rest.find("--"));
}

/// What a refusal says that would be accepted, as changes of options. Those that make another
/// training of it (number format of kernels, optimizer, batch) are the user's alone.
std::vector<OptionChange> changes_for(std::string_view accepted,
                                      const strategies::StrategyInput& input) {
  using strategies::StrategyInput;
  std::vector<OptionChange> changes;
  const auto says = [&](std::string_view words) {
    return accepted.find(words) != std::string_view::npos;
  };
  const auto add = [&](bool when, std::string words, std::function<void(StrategyInput&)> apply) {
    if (when) changes.push_back({std::move(words), std::move(apply)});
  };
  add(says("--zero-group") && !input.zero_group.all(), "without --zero-group",
      [](StrategyInput& in) { in.zero_group = {}; });
  add(says("no --sequence-parallel") && input.sequence_parallel, "without --sequence-parallel",
      [](StrategyInput& in) { in.sequence_parallel = in.tensor_overlap = false; });
  add(says("--sequence-parallel") && !says("no --sequence-parallel") && !input.sequence_parallel,
      "--sequence-parallel", [](StrategyInput& in) { in.sequence_parallel = true; });
  add(says("no --tp-overlap") && input.tensor_overlap, "without --tp-overlap",
      [](StrategyInput& in) { in.tensor_overlap = false; });
  add(says("no --vp") && input.virtual_pipeline > 1, "without --vp",
      [](StrategyInput& in) { in.virtual_pipeline = 1; });
  add(says("--cp 1") && input.context_parallel.value_or(1) > 1, "without --cp",
      [](StrategyInput& in) { in.context_parallel.reset(); });
  add(says("--ep 1") && input.expert_parallel != 1, "--ep 1",
      [](StrategyInput& in) { in.expert_parallel = 1; });
  add(says("--etp with") && input.tensor_parallel && input.expert_tensor_parallel, "without --etp",
      [](StrategyInput& in) { in.expert_tensor_parallel = in.tensor_parallel; });
  add(says("--sync ring"), "--sync ring", [](StrategyInput& in) { in.sync = Sync::Kind::ring; });
  add(says("--granularity block"), "--granularity block",
      [](StrategyInput& in) { in.granularity = strategies::Granularity::block; });
  const auto one_f_one_b = strategies::PipelineSchedule::one_f_one_b;
  add(says("--schedule 1f1b") && input.schedule != one_f_one_b, "--schedule 1f1b",
      [=](StrategyInput& in) { in.schedule = one_f_one_b; });
  for (const Precision sums : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    const std::string name(to_text(sums));
    add(behind(accepted, "--reduce-precision").starts_with(name) && input.reduce_precision != sums,
        "--reduce-precision " + name, [=](StrategyInput& in) { in.reduce_precision = sums; });
  }
  for (std::int32_t stage = 0; stage <= 3; ++stage) {
    const bool named = behind(accepted, "--zero").find(std::to_string(stage)) != std::string::npos;
    add((named || says("one of --zero")) && input.zero_stage != stage,
        stage == 0 ? "without --zero" : fmt::format("--zero {}", stage), [=](StrategyInput& in) {
          in.zero_stage = stage;
          if (stage == 0) in.zero_group = {};
        });
  }
  for (const auto kind : {strategies::Recompute::none, strategies::Recompute::selective,
                          strategies::Recompute::op, strategies::Recompute::full}) {
    const bool named = says("one of --recompute") ||
                       behind(accepted, "--recompute").find(to_text(kind)) != std::string::npos;
    add(named && input.recompute != kind, fmt::format("--recompute {}", to_text(kind)),
        [=](StrategyInput& in) {
          in.recompute = kind;
          in.recompute_every = 1;
        });
  }
  return changes;
}

/// What the refused plan has that a search chose, and no option.
std::vector<OptionChange> own_choices(const Experiment& experiment, const Plan& refused) {
  using strategies::StrategyInput;
  const strategies::Degrees degrees = strategies::degrees_of(experiment.network, refused);
  std::vector<OptionChange> choices;
  const auto add = [&](std::string words, std::function<void(StrategyInput&)> apply) {
    choices.push_back({std::move(words), std::move(apply)});
    if (experiment.request.given.contains(flag_of(choices.back()))) choices.pop_back();
  };
  const std::int64_t parts = refused.schedule.micro_batches;
  if (parts > 1) {
    add(fmt::format("--micro-batches {}", parts),
        [=](StrategyInput& in) { in.micro_batches = static_cast<std::int32_t>(parts); });
  }
  if (const std::int32_t stage = degrees.zero.value_or(0); stage > 0) {
    add(fmt::format("--zero {}", stage), [=](StrategyInput& in) { in.zero_stage = stage; });
    const ZeroGroup group = refused.layers.front().zero.group;
    if (!group.all()) {
      add(group.node ? "--zero-group node" : fmt::format("--zero-group {}", group.ranks),
          [=](StrategyInput& in) { in.zero_group = group; });
    }
  }
  if (const auto kind = degrees.recompute; kind && *kind != strategies::Recompute::none) {
    add(fmt::format("--recompute {}", to_text(*kind)),
        [=](StrategyInput& in) { in.recompute = *kind; });
  }
  if (degrees.sequence_parallel.value_or(false)) {
    add("--sequence-parallel", [](StrategyInput& in) { in.sequence_parallel = true; });
  }
  return choices;
}

template <class List>
bool lists(const List& list, std::string_view flag) {
  return std::find(std::begin(list), std::end(list), flag) != std::end(list);
}

/// The given options that must go for the plan, in the order of the help.
std::vector<std::string> left_out(const Request& request, const PlainPlan& plain) {
  constexpr std::string_view degrees[] = {"--tp", "--pp", "--dp"},
                             of_pipelines[] = {"--micro-batches", "--schedule", "--pipeline-sends"};
  std::vector<std::string> flags;
  if (plain.strategy == of_request) return flags;
  if (!request.layout_file.empty()) flags.emplace_back("--layout");
  if (!request.plan_file.empty()) flags.emplace_back("--plan");
  for (const Option& option : options()) {
    if (!request.given.contains(option.flag)) continue;
    const bool goes = !option.is_read_by(plain.strategy) ||
                      (plain.tp == 0 && lists(degrees, option.flag)) ||
                      (plain.tp == 1 && option.flag == "--tp-overlap") ||
                      (plain.open && lists(chosen_if_absent, option.flag)) ||
                      (plain.strategy == "data" && lists(of_pipelines, option.flag));
    if (goes) flags.emplace_back(option.flag);
  }
  return flags;
}

/// The given options that go with those that changes take away.
std::vector<std::string> left_out(const Request& request,
                                  const std::vector<OptionChange>& changes) {
  constexpr std::pair<std::string_view, std::string_view> needs[] = {
      {"without --zero", "--zero-group"},
      {"without --sequence-parallel", "--tp-overlap"},
      {"without --cp", "--cp-comm"},
      {"--sync ring", "--server"}};
  std::vector<std::string> flags;
  for (const OptionChange& change : changes) {
    for (const auto& [words, flag] : needs) {
      const bool goes = change.words == words && !has(changes, flag);
      if (goes && request.given.contains(flag)) flags.emplace_back(flag);
    }
  }
  return flags;
}

/// A plan, and options of the user's that it has no use for, which would be refused.
struct Made {
  Plan plan;
  std::vector<std::string> unused;
};

/// The options without which the same plan is made. Throws InputError if others are unused.
std::vector<std::string> unused_by(const Experiment& experiment, Request request,
                                   const Plan& plan) {
  constexpr std::string_view may_go[] = {"--schedule", "--pipeline-sends", "--zero-group",
                                         "--cp-comm"};
  std::vector<std::string> unused;
  while (true) {
    try {
      check_used(request, experiment.network, {&plan, 1});
      return unused;
    } catch (const InputError& error) {
      if (!lists(may_go, error.where) || request.given.erase(error.where) == 0) throw;
      unused.push_back(error.where);
    }
  }
}

std::optional<Made> made(const Experiment& experiment, const PlainPlan& plain,
                         const std::vector<OptionChange>& choices,
                         const std::vector<OptionChange>& changes,
                         strategies::StrategyInput& input) {
  input.shares = strategies::ShareRule::equal;
  input.poll = experiment.request.poll;
  input.tensor_parallel.reset();
  input.pipeline_parallel.reset();
  input.data_parallel.reset();
  if (plain.tp > 0) {
    input.tensor_parallel = plain.tp;
    input.pipeline_parallel = plain.pp;
    input.data_parallel = plain.dp;
  }
  if (leaves_stages_open(experiment, plain)) input.context_parallel = 1;
  Request request = experiment.request;
  for (const std::string& flag : left_out(request, plain)) {
    request.given.erase(flag);
    if (flag == "--micro-batches") input.micro_batches.reset();
    if (flag == "--ep") input.expert_parallel.reset();
    if (flag == "--etp") input.expert_tensor_parallel.reset();
  }
  for (const OptionChange& choice : choices) choice.apply(input);
  for (const OptionChange& change : changes) change.apply(input);
  if (!request.launcher.empty() && !request.given.contains("--pipeline-sends")) {
    input.pipeline_sends =
        sends_of_trainer(request.launcher, input.schedule_or_default(), input.virtual_pipeline);
  }
  const bool laid_out = plain.strategy == of_request;
  strategies::Layout layout;
  if (laid_out) {
    take_decisions(*experiment.layout, input);
    input.shares = strategies::ShareRule::equal;
    layout = experiment.layout->layout;
    for (strategies::LayoutStage& stage : layout.stages) stage.samples.clear();
  }
  try {
    Plan plan = strategies::with_memory_options(
        input, laid_out ? strategies::plan_layout(input, layout)
                        : strategies::strategy(plain.strategy, "--strategy").plan(input));
    strategies::check_zero_group(input, plan, "--zero-group");
    validate(plan, experiment.network, experiment.cluster, "nearest plan");
    // Would the options be refused?
    request.strategies = {plain.strategy};
    static_cast<strategies::StrategyOptions&>(request) = input;
    for (const std::string& flag : left_out(request, changes)) request.given.erase(flag);
    for (const OptionChange& change : changes) {
      if (change.words.starts_with("without ")) request.given.erase(flag_of(change));
    }
    std::vector<std::string> unused = unused_by(experiment, request, plan);
    return Made{std::move(plan), std::move(unused)};
  } catch (const InputError&) {  // no such plan for this input
    return std::nullopt;
  }
}

std::string options_of_plan(const Experiment& experiment, const PlainPlan& plain) {
  const Request& request = experiment.request;
  if (plain.strategy == of_request) {
    return fmt::format("--layout {} without its samples and shares", request.layout_file);
  }
  std::string text = "--strategy " + plain.strategy;
  if (plain.tp > 0) text += fmt::format(" --tp {} --pp {} --dp {}", plain.tp, plain.pp, plain.dp);
  if (leaves_stages_open(experiment, plain)) text += " --cp 1";
  if (plain.strategy == "data" && request.shares != strategies::ShareRule::equal) {
    text += " --shares equal";
  }
  for (const std::string& flag : left_out(request, plain)) text += " without " + flag;
  return text;
}

/// The plans that are accepted and fit, of plain plans and their changes.
class Search {
 public:
  Search(const Experiment& experiment, const Plan& refused, const Refusal& refusal,
         const AsRun& as_run)
      : experiment_(experiment),
        refusal_(refusal),
        as_run_(as_run),
        own_(own_choices(experiment, refused)),
        simulator_(sim::make_simulator(experiment.cluster, experiment.step_cost(),
                                       quick(experiment.step_options()))),
        simulate_(strategies::simulation(experiment.network, experiment.cluster,
                                         experiment.step_cost(), *simulator_)) {}

  void attempt(const PlainPlan& plain, const std::vector<OptionChange>& changes) {
    if (plain.last_resort && !found_.empty()) return;
    if (!plain.last_resort && changes.empty()) work_ = 0;
    if (work_ >= (plain.last_resort ? most_of_last_resort : most_work)) return;
    work_ += plain.strategy == "tensor" && plain.tp == 0 ? work_of_search : 1;
    ++tried_;
    strategies::StrategyInput input = experiment_.strategy_input();
    input.as_run = as_run_;
    input.accepts = [&](const Plan& plan) { return !refusal_(plan); };
    const std::optional<Made> one = made(experiment_, plain, choices_of(plain), changes, input);
    if (!one) return;
    std::optional<std::string> accepted = refusal_(one->plan);
    if (!accepted && strategies::fits(input, one->plan)) {
      found_.push_back({plain, changes, step_of(one->plan)});
      return;
    }
    if (changes.size() >= plain.changes || plain.strategy == of_request) return;
    for (OptionChange& change : changes_for(accepted.value_or(more_memory), input)) {
      if (has(changes, flag_of(change))) continue;
      std::vector<OptionChange> longer = changes;
      longer.push_back(std::move(change));
      attempt(plain, longer);
    }
  }

  /// The fastest that is there, too, if its strategy simulates finalists and knows what is
  /// accepted, as it does when a user asks for it.
  std::optional<NearestPlan> best() {
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Found& a, const Found& b) { return a.step < b.step; });
    for (const Found& one : found_) {
      strategies::StrategyInput input = experiment_.strategy_input();
      input.simulate = [&](const Plan& plan) { return step_of(plan); };
      input.as_run = as_run_;
      input.accepts = [&](const Plan& plan) { return !refusal_(plan); };
      const auto same = made(experiment_, one.plain, choices_of(one.plain), one.changes, input);
      if (!same || refusal_(same->plan) || !strategies::fits(input, same->plan)) continue;
      std::string words =
          options_of_plan(experiment_, one.plain) + words_of(one.plain, one.changes);
      for (const std::string& flag : same->unused) words += " without " + flag;
      return NearestPlan{std::move(words), step_of(same->plan), tried_};
    }
    return std::nullopt;
  }

 private:
  struct Found {
    PlainPlan plain;
    std::vector<OptionChange> changes;
    Seconds step{};
  };

  static sim::SimOptions quick(sim::SimOptions options) {
    options.engine = sim::Engine::fast;
    return options;
  }
  [[nodiscard]] std::vector<OptionChange> choices_of(const PlainPlan& plain) const {
    return plain.own ? own_ : std::vector<OptionChange>{};
  }
  [[nodiscard]] Seconds step_of(const Plan& plan) const {
    return simulate_(as_run_ ? as_run_(plan) : plan);
  }
  /// Choices of the refused plan that no change takes back, then the changes.
  [[nodiscard]] std::string words_of(const PlainPlan& plain,
                                     const std::vector<OptionChange>& changes) const {
    std::string words;
    const bool no_group =  // which goes with it
        std::any_of(changes.begin(), changes.end(),
                    [](const OptionChange& change) { return change.words == "without --zero"; });
    if (plain.own) {
      for (const OptionChange& choice : own_) {
        const bool gone = no_group && flag_of(choice) == "--zero-group";
        if (!has(changes, flag_of(choice)) && !gone) words += " " + choice.words;
      }
    }
    for (const OptionChange& change : changes) {
      const bool takes_back =
          change.words.starts_with("without ") && plain.own && has(own_, flag_of(change));
      if (!takes_back) words += " " + change.words;
    }
    for (const auto& flag : left_out(experiment_.request, changes)) words += " without " + flag;
    return words;
  }

  static constexpr const char* more_memory = "--zero 1, 2 or 3, --recompute full";

  const Experiment& experiment_;
  const Refusal& refusal_;
  const AsRun& as_run_;
  std::vector<OptionChange> own_;
  std::unique_ptr<Executor> simulator_;
  std::function<Seconds(const Plan&)> simulate_;
  std::vector<Found> found_;
  std::size_t tried_ = 0, work_ = 0;
};

}  // namespace

std::optional<NearestPlan> nearest_plan(const Experiment& experiment, const Plan& refused,
                                        const Refusal& refusal, const AsRun& as_run) {
  Search search(experiment, refused, refusal, as_run);
  for (const PlainPlan& plain : plain_plans(experiment, refused)) search.attempt(plain, {});
  return search.best();
}

}  // namespace parsim::experiment
