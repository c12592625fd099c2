#include "report/result_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "report/degrees.hpp"
#include "report/result_text.hpp"
#include "report/runs.hpp"
#include "strategies/buckets.hpp"

namespace parsim::report {

namespace {

using R = const experiment::RunResult&;
constexpr double absent = std::numeric_limits<double>::quiet_NaN();

/// The order in which a narrow terminal goes without columns, the largest first.
enum Drop : int {
  never,
  also,
  throughput,
  exposed,
  peak = Column::detail,
  compute,
  idle,
  link,
  moved,
  utilization,
  energy
};

/// The largest peak of a device.
double peak_memory(R result) {
  std::int64_t most = 0;
  for (const experiment::DeviceResult& device : result.devices) {
    most = std::max(most, device.peak().value);
  }
  return static_cast<double>(most);
}

std::string link_text(R result) {
  if (!result.error.empty()) return "-";
  if (!result.bottleneck) return "none";
  const experiment::LinkUse& use = *result.bottleneck;
  return fmt::format("{} to {} {} %", use.from, use.to, three_digits(100 * use.utilisation));
}

/// "24 %": of the fullest device.
std::string memory_share(R result) {
  const experiment::DeviceResult* const device = result.fullest();
  if (device == nullptr) return "-";
  const double percent =
      100 * static_cast<double>(device->peak().value) / static_cast<double>(device->capacity.value);
  return percent < 1 ? "<1 %" : fmt::format("{:.0f} %", percent);
}

std::string mfu_text(R result) {
  if (!result.error.empty()) return "-";
  return three_digits(100 * result.flops.mfu(result.step_time)) + " %";
}

/// What the columns of degrees and memory do not say: "ep 8, sp, ZB-H1, tight".
std::string also_text(R result) {
  if (!result.error.empty()) return "";
  const strategies::Degrees& degrees = result.degrees;
  std::vector<std::string> parts;
  const auto add = [&](std::string_view name, const std::optional<std::int64_t>& number) {
    if (number.value_or(1) > 1) parts.push_back(fmt::format("{} {}", name, *number));
  };
  if (!degrees.tp || !degrees.dp) parts.emplace_back("mixed");
  add("ep", degrees.ep);
  if (degrees.etp && degrees.etp != degrees.tp)
    parts.push_back(fmt::format("etp {}", *degrees.etp));
  add("vp", degrees.vp);
  if (degrees.sequence_parallel.value_or(false)) parts.emplace_back("sp");
  if (degrees.tensor_overlap.value_or(false)) parts.emplace_back("tp-overlap");
  if (degrees.schedule == strategies::PipelineSchedule::zero_bubble) {
    parts.emplace_back("ZB-H1");
  }
  if (degrees.schedule == strategies::PipelineSchedule::zero_bubble_h2) {
    parts.emplace_back("ZB-H2");
  }
  if (degrees.ordered_by_time) parts.emplace_back("ZB by time");
  if (degrees.recompute.value_or(strategies::Recompute::none) != strategies::Recompute::none) {
    parts.push_back(fmt::format("recompute {}", to_text(*degrees.recompute)));
  }
  if (degrees.bucket) parts.push_back("bucket " + strategies::bucket_text(*degrees.bucket));
  if (result.verdict() == lowering::Verdict::tight) parts.emplace_back("tight");
  return join(parts);
}

class Columns {
 public:
  Columns(const std::vector<experiment::RunResult>& results, bool whole)
      : results_(&results), whole_(whole) {
    // The fastest step is in its own unit, and not "0.124" where another strategy takes seconds.
    for (R result : results) {
      if (result.error.empty()) fastest_ = std::fmin(fastest_, result.step_time.count());
    }
  }

  void names() {
    add_words(table_, "strategy", "strategy", texts_of([](R r) { return r.strategy; }));
  }
  /// In the unit of the fastest step.
  void times(const std::string& title, const std::string& key, int drop, auto of) {
    add_numbers(table_, "s", {{title, key, numbers(of)}}, fastest_);
    table_.columns.back().drop = whole_ ? 0 : drop;
  }
  void numbers(const std::string& title, const std::string& key, const std::string& unit, int drop,
               auto of) {
    const std::vector<double> values = numbers(of);
    double largest = absent;
    for (const double value : values) largest = std::fmax(largest, value);
    add_numbers(table_, unit, {{title, key, values}}, largest);
    table_.columns.back().drop = whole_ ? 0 : drop;
  }
  /// Bare numbers. People do not see a column without any; without a key programs do not either.
  void known_numbers(const std::string& title, const std::string& key, int drop, auto of) {
    const std::vector<double> values = numbers(of);
    double least = absent;
    for (const double value : values) least = std::fmin(least, value);
    const bool any = !std::isnan(least);
    add_numbers(table_, "", {{title, key, values}}, least);
    Column& column = table_.columns.back();
    column.drop = whole_ ? 0 : drop;
    if (key.empty()) column.audience = Audience::people;
    if (any) return;
    column.audience = Audience::programs;
    if (key.empty()) drop_last_column();
  }
  /// For people. Left out if all are "-".
  void words(const std::string& title, bool is_number, int drop, auto of) {
    const std::vector<std::string> texts = texts_of(of);
    const auto says = [](const std::string& text) { return !text.empty() && text != "-"; };
    if (std::none_of(texts.begin(), texts.end(), says)) return;
    add_words(table_, title, title, texts, Audience::people);
    table_.columns.back().is_number = is_number;
    table_.columns.back().drop = whole_ ? 0 : drop;
  }
  void degree(const std::string& title, std::int64_t usual, auto member) {
    const auto other = [&](R r) { return r.error.empty() && (r.degrees.*member) != usual; };
    if (!whole_ && std::none_of(results_->begin(), results_->end(), other)) return;
    words(title, true, never, [member](R r) { return degree_text(r, r.degrees.*member); });
  }
  /// The stage of ZeRO, "3 node" and "3 by 4" within groups.
  void zero() {
    const auto shards = [](R r) { return r.error.empty() && r.degrees.zero != 0; };
    if (!whole_ && std::none_of(results_->begin(), results_->end(), shards)) return;
    words("zero", true, never, [](R r) {
      const auto group = r.error.empty() ? strategies::zero_group_text(r.degrees) : std::nullopt;
      return degree_text(r, r.degrees.zero) + (!group             ? ""
                                               : *group == "node" ? " node"
                                                                  : " by " + *group);
    });
  }
  /// Parts of the tokens, if a plan has several.
  void context() {
    const auto parts = [](R r) { return r.error.empty() && r.degrees.cp.value_or(1) > 1; };
    if (std::none_of(results_->begin(), results_->end(), parts)) return;
    words("cp", true, never, [](R r) { return degree_text(r, r.degrees.cp); });
  }
  void for_programs(const std::string& key, auto of) {
    add_words(table_, key, key, texts_of(of), Audience::programs);
  }
  void numbers_for_programs(const std::string& key, auto of) {
    for_programs(key, of);
    table_.columns.back().is_number = true;
  }
  void add_interval() {
    const auto bound = [&](auto member) {
      return numbers([&](R r) { return r.step_time.count() * r.interval.*member; });
    };
    add_numbers(
        table_, "s",
        {{"low", "interval_low_s", bound(&experiment::StepInterval::low), Audience::programs},
         {"high", "interval_high_s", bound(&experiment::StepInterval::high), Audience::programs}},
        fastest_);
    std::vector<std::string> intervals;  // in the unit of the steps
    for (const std::vector<TableCell>& row : table_.rows) {
      const bool known = !row.back().raw.empty();
      intervals.push_back(known ? fmt::format("{}-{}", row[row.size() - 2].text, row.back().text)
                                : std::string("-"));
    }
    add_words(table_, "90 %", "interval", intervals, Audience::people);
    table_.columns.back().is_number = true;
  }
  Table take() { return std::move(table_); }

 private:
  void drop_last_column() {
    table_.columns.pop_back();
    for (std::vector<TableCell>& row : table_.rows) row.pop_back();
  }
  static std::string degree_text(R result, const std::optional<std::int64_t>& number) {
    return result.error.empty() && number ? std::to_string(*number) : std::string("-");
  }
  static std::string degree_text(R result, std::int64_t number) {
    return degree_text(result, std::optional(number));
  }
  std::vector<double> numbers(auto of) const {
    std::vector<double> values;
    for (R result : *results_) {
      values.push_back(result.error.empty() ? static_cast<double>(of(result)) : absent);
    }
    return values;
  }
  std::vector<std::string> texts_of(auto of) const {
    std::vector<std::string> texts;
    for (R result : *results_) texts.emplace_back(of(result));
    return texts;
  }

  const std::vector<experiment::RunResult>* results_;
  bool whole_;
  double fastest_ = absent;
  Table table_;
};

/// Cost and energy, for people where they are known.
void add_upkeep(Columns& columns, strategies::Objective objective) {
  columns.known_numbers("cost/M samples", "cost_per_million_samples",
                        objective == strategies::Objective::cost ? never : throughput,
                        [](R r) { return r.cost_per_million_samples().value_or(absent); });
  columns.known_numbers(
      "kWh/M samples", "", objective == strategies::Objective::energy ? never : energy,
      [](R r) { return r.energy_per_million_samples().value_or(absent) / 3.6e6; });
  columns.numbers_for_programs("energy_per_step_j", [](R r) {
    return r.upkeep.energy ? exact(r.upkeep.energy->value) : std::string();
  });
  columns.numbers_for_programs("energy_per_million_samples_j", [](R r) {
    const std::optional<double> energy = r.energy_per_million_samples();
    return energy ? exact(*energy) : std::string();
  });
}

void add_for_programs(Columns& columns, const std::vector<experiment::RunResult>& results) {
  columns.numbers_for_programs("probability_fastest", [](R r) {
    return r.probability_fastest ? exact(*r.probability_fastest) : std::string();
  });
  const auto of_flops = [&](const std::string& key, auto of) {
    columns.numbers_for_programs(
        key, [of](R r) { return r.error.empty() ? exact(of(r)) : std::string(); });
  };
  of_flops("mfu", [](R r) { return r.flops.mfu(r.step_time); });
  of_flops("hfu", [](R r) { return r.flops.hfu(r.step_time); });
  of_flops("model_flops", [](R r) { return r.flops.model.value; });
  columns.numbers_for_programs("lower_bound_s", [](R r) {
    return r.lower_bound ? exact(r.lower_bound->count()) : std::string();
  });
  columns.numbers_for_programs("gap", [](R r) {
    const std::optional<double> gap = r.gap();
    return gap ? exact(*gap) : std::string();
  });
  columns.numbers_for_programs("messages", [](R r) {
    return r.error.empty() ? fmt::format("{}", r.messages) : std::string();
  });
  columns.for_programs(
      "engine", [](R r) { return r.engine ? std::string(to_text(*r.engine)) : std::string(); });
  columns.for_programs("fits", [](R r) { return std::string(r.fits() ? "true" : "false"); });
  columns.for_programs("verdict", [](R r) {
    return r.error.empty() ? std::string(to_text(r.verdict())) : std::string();
  });
  columns.for_programs("busiest_link",
                       [](R r) { return r.bottleneck ? r.bottleneck->link : std::string(); });
  columns.numbers_for_programs("busiest_link_utilisation", [](R r) {
    return r.bottleneck ? exact(r.bottleneck->utilisation) : std::string();
  });
  // As in JSON, where `degrees` has the same.
  const auto degrees_of = [](const strategies::Degrees& degrees) {
    return nlohmann::ordered_json::parse(result_text(DegreesRow{degrees}));
  };
  const nlohmann::ordered_json keys = degrees_of({});
  for (const auto& [key, unused] : keys.items()) {
    columns.numbers_for_programs(key, [&key = key, &degrees_of](R r) {
      if (!r.error.empty()) return std::string();
      const nlohmann::ordered_json value = degrees_of(r.degrees)[key];
      return value.is_null()     ? std::string()
             : value.is_string() ? value.template get<std::string>()
                                 : value.dump();
    });
  }
  if (std::any_of(results.begin(), results.end(), [](R r) { return r.goodput.has_value(); })) {
    const auto of_goodput = [&](const std::string& key, auto of) {
      columns.numbers_for_programs(key,
                                   [of](R r) { return r.goodput ? exact(of(r)) : std::string(); });
    };
    of_goodput("goodput", [](R r) { return r.goodput->share; });
    of_goodput("goodput_samples_per_s",
               [](R r) { return r.goodput->share * r.samples_per_second; });
    of_goodput("checkpoint_interval_s", [](R r) { return r.goodput->interval.count(); });
  }
  if (std::any_of(results.begin(), results.end(), [](R r) { return r.trainers.has_value(); })) {
    columns.for_programs(
        "trainers", [](R r) { return join(r.trainers.value_or(std::vector<std::string>{}), " "); });
  }
  columns.for_programs("plan_id", [](R r) { return r.plan_id; });
  columns.for_programs("same_plan_as", [](R r) { return r.same_plan_as; });
  columns.for_programs("error", [](R r) { return r.error; });
}

}  // namespace

Table result_table(const std::vector<experiment::RunResult>& results, bool whole,
                   strategies::Objective objective) {
  Columns columns(results, whole);
  columns.names();
  columns.times("step", "step_time_s", never, [](R r) { return r.step_time.count(); });
  columns.add_interval();
  columns.degree("tp", 0, &strategies::Degrees::tp);
  columns.context();
  columns.degree("pp", 0, &strategies::Degrees::pp);
  columns.degree("dp", 0, &strategies::Degrees::dp);
  columns.degree("mb", 1, &strategies::Degrees::micro_batches);
  columns.zero();
  columns.numbers("samples/s", "throughput_samples_per_s", "", throughput,
                  [](R r) { return r.samples_per_second; });
  columns.words("memory", true, never, [](R r) { return memory_share(r); });
  columns.words("also", false, also, also_text);
  columns.times("compute", "mean_compute_s", compute,
                [](R r) { return experiment::mean_use(r).compute.count(); });
  columns.times("exposed comm.", "mean_exposed_communication_s", exposed,
                [](R r) { return experiment::mean_use(r).exposed_communication.count(); });
  columns.times("idle", "mean_idle_s", idle,
                [](R r) { return experiment::mean_use(r).idle.count(); });
  columns.words("MFU", true, utilization, mfu_text);
  columns.numbers("moved", "bytes_moved", "B", moved, [](R r) { return r.moved.value; });
  columns.numbers("peak memory", "peak_memory_bytes", "B", peak, peak_memory);
  columns.words("busiest link", false, link, link_text);
  add_upkeep(columns, objective);
  add_for_programs(columns, results);
  return columns.take();
}

PlanLines plan_lines(const experiment::RunResult& first, const Table& table) {
  const auto cell = [&](std::string_view key) {
    const auto column = std::find_if(table.columns.begin(), table.columns.end(),
                                     [&](const Column& one) { return one.key == key; });
    if (column == table.columns.end()) throw BrokenInvariant("a table of results without a step");
    return std::pair(table.rows.front()[static_cast<std::size_t>(column - table.columns.begin())],
                     column->title);
  };
  const auto [step, title] = cell("step_time_s");
  const std::size_t unit = title.find('[') + 1;  // "step [ms]"
  const experiment::DeviceResult& fullest = *first.fullest();
  return {
      fmt::format("{}, {} {} (90 %: {})", strategies::short_text(first.degrees), step.text,
                  title.substr(unit, title.size() - unit - 1), cell("interval").first.text),
      fmt::format("{} samples/s, {} % MFU, {} of {}", cell("throughput_samples_per_s").first.text,
                  three_digits(100 * first.flops.mfu(first.step_time)), to_text(fullest.peak()),
                  to_text(fullest.capacity))};
}

void add_question(Table& table, const experiment::Experiment& experiment) {
  const auto add = [&](const std::string& key, const std::string& text) {
    add_words(table, key, key, std::vector<std::string>(table.rows.size(), text),
              Audience::programs);
  };
  add("network", experiment.network.name);
  add("cluster", experiment.cluster.name);
  add("batch", std::to_string(experiment.batch));
  table.columns.back().is_number = true;
  add("precision", std::string(to_text(experiment.request.precision)));
  add("optimizer", std::string(to_text(experiment.request.optimizer)));
}

Table comparison_table(const std::vector<experiment::RunResult>& results) {
  return table_for(Audience::programs, result_table(results, false));
}

}  // namespace parsim::report
