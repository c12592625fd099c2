#include "report/runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/json.hpp"
#include "experiment/communication.hpp"
#include "experiment/what_would_fit.hpp"
#include "report/degrees.hpp"
#include "report/result_text.hpp"
#include "report/scaling.hpp"

namespace parsim::report {

namespace {

constexpr double absent = std::numeric_limits<double>::quiet_NaN();

/// "2 x p100-pcie, 2 x v100-pcie", in the order of the devices.
std::string device_mix(const Cluster& cluster) {
  std::vector<std::pair<std::string, std::size_t>> counts;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    const std::string& model = cluster.model(DeviceId{i}).name;
    const auto known = std::find_if(counts.begin(), counts.end(),
                                    [&](const auto& count) { return count.first == model; });
    if (known == counts.end()) {
      counts.emplace_back(model, 1);
    } else {
      ++known->second;
    }
  }
  std::vector<std::string> words;
  for (const auto& [model, count] : counts) words.push_back(fmt::format("{} x {}", count, model));
  return join(words);
}

/// "fp32", or "bf16 with gradients in fp32".
std::string arithmetic_of(const experiment::Request& request) {
  const std::string_view kernels = to_text(request.precision);
  if (request.reduce_precision == storage_of(request.precision)) return std::string(kernels);
  return fmt::format("{} with gradients in {}", kernels, to_text(request.reduce_precision));
}

/// "modelled, not measured on these GPUs", or the shares and where the others come from.
std::string kernel_times(const experiment::RunResult& result) {
  std::vector<std::string> shares;
  bool measured = false;
  for (const Origin origin : origins) {
    const double share = result.cost_shares[static_cast<std::size_t>(origin)];
    if (share <= 0) continue;
    shares.push_back(
        fmt::format("{} % {}", three_digits(100 * share),
                    origin == Origin::published ? "measured by others" : to_text(origin)));
    measured |= origin == Origin::measured || origin == Origin::scaled;
  }
  if (shares.size() == 1) shares.front().erase(0, shares.front().find("% ") + 2);
  if (measured) return fmt::format("{} ({})", join(shares), result.cost_summary);
  return join(shares) + ", not measured on these GPUs";
}

/// "calibrated by mine:2 (kernels x 1.21, links between machines x 0.8)".
std::string calibration_line(const experiment::RunCalibration& calibration) {
  std::vector<std::string> rows;
  for (const experiment::FittedStep& step : calibration.by) {
    rows.push_back(fmt::format(
        "{} of {} (kernels x {}{})", step.name, step.set, three_digits(step.kernels),
        step.links ? fmt::format(", links between machines x {}", three_digits(*step.links)) : ""));
  }
  return fmt::format("calibrated by {}{}", join(rows, "; "),
                     calibration.every_gpu ? "" : "; other types of GPU are not calibrated");
}

std::vector<std::string> head(const experiment::Experiment& experiment,
                              const std::vector<experiment::RunResult>& results) {
  const experiment::Request& request = experiment.request;
  const std::size_t gpus = devices_of(experiment.cluster, DeviceKind::gpu).size();
  const bool chosen = !request.batch && !experiment.plan;
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{} on {} ({}), batch {}{}, {}, {}", experiment.network.name,
                              experiment.cluster.name, device_mix(experiment.cluster),
                              experiment.batch,
                              chosen ? fmt::format(" (default: 32 x {})", gpus) : "",
                              arithmetic_of(request), to_text(request.optimizer)));
  const auto made =
      std::find_if(results.begin(), results.end(),
                   [](const experiment::RunResult& result) { return result.error.empty(); });
  if (made != results.end()) {
    lines.push_back("kernel times: " + kernel_times(*made));
    if (!made->cost_accuracy.empty()) {
      lines.push_back("expected kernel error: " + made->cost_accuracy);
    }
  }
  sim::SimOptions sim = request.sim;
  const auto by = [&](sim::Engine engine) {
    return std::any_of(results.begin(), results.end(), [&](const experiment::RunResult& result) {
      return result.engine == engine;
    });
  };
  // A note names the rows if not all.
  if (by(sim::Engine::fast) && !by(sim::Engine::simgrid)) sim.engine = sim::Engine::fast;
  if (experiment.calibration) lines.push_back(calibration_line(*experiment.calibration));
  lines.push_back("network: " + experiment::communication_model(sim, experiment.cluster));
  const std::string communication = experiment::communication_line(experiment, results);
  if (!communication.empty()) lines.push_back(communication);
  return lines;
}

/// The largest peak of a device.
double peak_memory(const experiment::RunResult& result) {
  std::int64_t peak = 0;
  for (const experiment::DeviceResult& device : result.devices) {
    peak = std::max(peak, device.peak().value);
  }
  return static_cast<double>(peak);
}

std::string link_text(const experiment::RunResult& result) {
  if (!result.error.empty()) return "-";
  if (!result.bottleneck) return "none";
  const experiment::LinkUse& use = *result.bottleneck;
  return fmt::format("{} to {} {} %", use.from, use.to, three_digits(100 * use.utilisation));
}

/// wide   for people, too, all columns, not only those that fit a terminal
Table result_table(const std::vector<experiment::RunResult>& results, bool wide) {
  const Audience details = wide ? Audience::everyone : Audience::programs;
  const auto numbers = [&](auto of) {
    std::vector<double> values;
    for (const experiment::RunResult& result : results) {
      values.push_back(result.error.empty() ? static_cast<double>(of(result)) : absent);
    }
    return values;
  };
  const auto words = [&](auto of) {
    std::vector<std::string> texts;
    for (const experiment::RunResult& result : results) texts.emplace_back(of(result));
    return texts;
  };
  using R = const experiment::RunResult&;
  // The fastest step is in its own unit, and not "0.124" where another strategy takes seconds.
  double fastest = absent;
  for (const experiment::RunResult& result : results) {
    if (result.error.empty()) fastest = std::fmin(fastest, result.step_time.count());
  }
  Table table;
  add_words(table, "strategy", "strategy", words([](R r) { return r.strategy; }));
  add_numbers(
      table, "s",
      {{"step", "step_time_s", numbers([](R r) { return r.step_time.count(); })},
       {"low", "interval_low_s", numbers([](R r) { return r.step_time.count() * r.interval.low; }),
        Audience::programs},
       {"high", "interval_high_s",
        numbers([](R r) { return r.step_time.count() * r.interval.high; }), Audience::programs}},
      fastest);
  std::vector<std::string> intervals;  // in the unit of the steps
  for (const std::vector<TableCell>& row : table.rows) {
    const bool known = !row.back().raw.empty();
    intervals.push_back(known ? fmt::format("{}-{}", row[row.size() - 2].text, row.back().text)
                              : std::string("-"));
  }
  add_words(table, "90 %", "interval", intervals, Audience::people);
  table.columns.back().is_number = true;
  add_numbers(table, "s",
              {{"compute", "mean_compute_s",
                numbers([](R r) { return experiment::mean_use(r).compute.count(); }), details},
               {"exposed comm.", "mean_exposed_communication_s",
                numbers([](R r) { return experiment::mean_use(r).exposed_communication.count(); })},
               {"idle", "mean_idle_s",
                numbers([](R r) { return experiment::mean_use(r).idle.count(); }), details}},
              fastest);
  add_numbers(table, "", {{"samples/s", "throughput_samples_per_s", numbers([](R r) {
                             return r.samples_per_second;
                           })}});
  add_numbers(table, "B",
              {{"moved", "bytes_moved", numbers([](R r) { return r.moved.value; }), details}});
  add_numbers(table, "B", {{"peak memory", "peak_memory_bytes", numbers(peak_memory)}});
  add_words(table, "memory", "memory", words([](R r) {
              return r.error.empty() ? experiment::memory_verdict(r) : std::string("-");
            }),
            Audience::people);
  add_words(table, "plan", "plan", words([](R r) {
              if (!r.error.empty()) return std::string("-");
              const std::string same =
                  r.same_plan_as.empty() ? "" : fmt::format(" (= {})", r.same_plan_as);
              return strategies::short_text(r.degrees) + same;
            }),
            Audience::people);
  if (wide) {
    add_words(table, "busiest link", "busiest_link_text", words(link_text), Audience::people);
  }
  const auto for_programs = [&](const std::string& key, auto of) {
    add_words(table, key, key, words(of), Audience::programs);
  };
  const auto for_numbers = [&](const std::string& key, auto of) {
    for_programs(key, of);
    table.columns.back().is_number = true;
  };
  for_numbers("probability_fastest", [](R r) {
    return r.probability_fastest ? exact(*r.probability_fastest) : std::string();
  });
  for_numbers("messages",
              [](R r) { return r.error.empty() ? fmt::format("{}", r.messages) : std::string(); });
  for_programs("engine",
               [](R r) { return r.engine ? std::string(to_text(*r.engine)) : std::string(); });
  for_programs("fits", [](R r) { return std::string(r.fits() ? "true" : "false"); });
  for_programs("verdict", [](R r) { return to_text(r.verdict()); });
  for_programs("busiest_link",
               [](R r) { return r.bottleneck ? r.bottleneck->link : std::string(); });
  for_numbers("busiest_link_utilisation",
              [](R r) { return r.bottleneck ? exact(r.bottleneck->utilisation) : std::string(); });
  // As in JSON, where `degrees` has the same.
  const auto degrees_of = [](const strategies::Degrees& degrees) {
    return nlohmann::ordered_json::parse(result_text(DegreesRow{degrees}));
  };
  const nlohmann::ordered_json keys = degrees_of({});
  for (const auto& [key, unused] : keys.items()) {
    for_numbers(key, [&key = key, &degrees_of](R r) {
      if (!r.error.empty()) return std::string();
      const nlohmann::ordered_json value = degrees_of(r.degrees)[key];
      return value.is_null()     ? std::string()
             : value.is_string() ? value.template get<std::string>()
                                 : value.dump();
    });
  }
  for_programs("plan_id", [](R r) { return r.plan_id; });
  for_programs("same_plan_as", [](R r) { return r.same_plan_as; });
  for_programs("error", [](R r) { return r.error; });
  return table;
}

}  // namespace

Table comparison_table(const std::vector<experiment::RunResult>& results) {
  return table_for(Audience::programs, result_table(results, false));
}

std::optional<Table> jitter_table(const experiment::Experiment& experiment,
                                  const std::vector<experiment::RunResult>& results) {
  if (experiment.request.jitter <= 0) return std::nullopt;
  std::vector<std::string> names;
  std::vector<double> median, low, high;
  for (const experiment::RunResult& result : results) {
    names.push_back(result.strategy);
    const bool known = result.jittered.has_value();
    median.push_back(known ? result.jittered->median.count() : absent);
    low.push_back(known ? result.jittered->low.count() : absent);
    high.push_back(known ? result.jittered->high.count() : absent);
  }
  Table table;
  table.title = fmt::format("{} steps with random kernel times (log-normal, {} %, seed {})",
                            experiment.request.runs, three_digits(100 * experiment.request.jitter),
                            experiment.request.seed);
  add_words(table, "strategy", "strategy", names);
  add_numbers(table, "s",
              {{"median step", "median_s", std::move(median)},
               {"lower quartile", "lower_quartile_s", std::move(low)},
               {"upper quartile", "upper_quartile_s", std::move(high)}});
  return table;
}

namespace {

Table device_table(const experiment::RunResult& result) {
  const auto numbers = [&](auto of) {
    std::vector<double> values;
    for (const experiment::DeviceResult& device : result.devices) {
      values.push_back(static_cast<double>(of(device)));
    }
    return values;
  };
  const auto words = [&](auto of) {
    std::vector<std::string> texts;
    for (const experiment::DeviceResult& device : result.devices) texts.push_back(of(device));
    return texts;
  };
  using D = const experiment::DeviceResult&;
  Table table;
  add_words(table, "device", "name", words([](D d) { return d.name; }));
  add_words(table, "model", "model", words([](D d) { return d.model; }));
  add_numbers(table, "s",
              {{"compute", "compute_s", numbers([](D d) { return d.use.compute.count(); })},
               {"exposed comm.", "exposed_communication_s",
                numbers([](D d) { return d.use.exposed_communication.count(); })},
               {"idle", "idle_s", numbers([](D d) { return d.use.idle.count(); })}});
  add_numbers(
      table, "B",
      {{"weights", "weights_bytes", numbers([](D d) { return d.memory.weights.value; })},
       {"gradients", "gradients_bytes", numbers([](D d) { return d.memory.gradients.value; })},
       {"optimizer", "optimizer_state_bytes",
        numbers([](D d) { return d.memory.optimizer_state.value; })},
       {"activations", "activations_bytes",
        numbers([](D d) { return d.memory.activations.value; })},
       {"buffers", "communication_bytes",
        numbers([](D d) { return d.memory.communication.value; })}});
  add_numbers(table, "B",
              {{"peak", "peak_memory_bytes", numbers([](D d) { return d.peak().value; })}});
  add_numbers(table, "B",
              {{"capacity", "memory_bytes", numbers([](D d) { return d.capacity.value; })}});
  return table;
}

/// Names the rows that the fast engine simulated in place of SimGrid.
std::string engine_note(const sim::SimOptions& sim,
                        const std::vector<experiment::RunResult>& results) {
  std::vector<std::string> fast;
  for (const experiment::RunResult& result : results) {
    if (sim.engine == sim::Engine::automatic && result.engine == sim::Engine::fast) {
      fast.push_back(result.strategy);
    }
  }
  if (fast.empty()) return {};
  return fmt::format(
      "{}: simulated by the fast engine (equal to SimGrid within 1 ns per operation; "
      "--engine simgrid for SimGrid itself)",
      join(fast));
}

void append_notes(Document& document, const experiment::Experiment& experiment,
                  const std::vector<experiment::RunResult>& results) {
  for (const experiment::RunResult& result : results) {
    const std::string prefix = results.size() > 1 ? result.strategy + ": " : "";
    // Of several strategies only the one without a method of its own explains itself; JSON has all.
    if (results.size() == 1 || result.strategy == "best") {
      for (const std::string& note : result.notes) document.notes.push_back(prefix + note);
    }
    if (!result.error.empty()) document.notes.push_back(prefix + "no plan: " + result.error);
  }
  for (const std::string& note : experiment.request.notes) document.notes.push_back(note);
  std::string engines = engine_note(experiment.request.sim, results);
  if (!engines.empty()) document.notes.push_back(std::move(engines));
  document.warnings = experiment.warnings;
  for (const experiment::RunResult& result : results) {
    for (std::string& warning : experiment::communication_warnings(result)) {
      document.warnings.push_back(std::move(warning));
    }
  }
}

/// "fastest that fits: owt", and the fastest of the other strategies if that is `best`.
std::string winner(const std::vector<experiment::RunResult>& sorted, const std::string& best) {
  const auto first =
      std::find_if(sorted.begin(), sorted.end(),
                   [](const experiment::RunResult& result) { return result.fits(); });
  if (first == sorted.end()) return "no plan fits in memory";
  const bool other = first->strategy != best && !best.empty();
  return fmt::format("fastest that fits: {}{}", first->strategy,
                     other ? fmt::format(", then {}", best) : "");
}

/// "statistical tie: data (62 %), owt (31 %) …" where several plans may be the fastest, else "".
/// Equal plans are one, with the name of the first.
std::string ties(const std::vector<experiment::RunResult>& sorted) {
  constexpr double may_be = 0.05;  // 90 % intervals leave as much on either side
  std::vector<std::string> names;
  const experiment::RunResult* last = nullptr;
  for (const experiment::RunResult& result : sorted) {
    if (result.probability_fastest.value_or(0) < may_be) continue;
    const bool again =
        last != nullptr && last->step_time == result.step_time && last->parts == result.parts;
    last = &result;
    if (again) continue;
    names.push_back(
        fmt::format("{} ({:.0f} %)", result.strategy, 100 * *result.probability_fastest));
  }
  if (names.size() < 2) return {};
  return fmt::format("statistical tie: {} (probability of being the fastest)", join(names));
}

/// "" if one fits.
std::string advice_for(const experiment::Experiment& experiment,
                       const std::vector<experiment::RunResult>& results) {
  const bool fits = std::any_of(results.begin(), results.end(),
                                [](const experiment::RunResult& result) { return result.fits(); });
  return fits ? "" : experiment::what_would_fit(experiment);
}

}  // namespace

Document report_simulation(const experiment::Experiment& experiment,
                           const experiment::RunResult& result) {
  Document document;
  document.head = head(experiment, {result});
  document.tables = {result_table({result}, true), device_table(result)};
  if (auto table = jitter_table(experiment, {result})) document.tables.push_back(std::move(*table));
  document.notes = {"compute, exposed comm. and idle of a strategy are means over the GPUs",
                    result.checks};
  const std::string advice = advice_for(experiment, {result});
  if (!advice.empty()) document.notes.push_back(advice);
  append_notes(document, experiment, {result});
  document.json = simulation_json(experiment, result, advice);
  return document;
}

Document report_comparison(const experiment::Experiment& experiment,
                           const std::vector<experiment::RunResult>& results,
                           const std::string& best, const experiment::Scaling* scaling) {
  Document document;
  document.head = head(experiment, results);
  document.tables = {result_table(results, experiment.request.wide)};
  if (auto table = jitter_table(experiment, results)) document.tables.push_back(std::move(*table));
  if (scaling != nullptr) document.tables.push_back(scaling_table(*scaling));
  document.notes = {"compute, exposed comm. and idle are means over the GPUs"};
  document.notes.push_back(winner(results, best));
  if (std::string line = ties(results); !line.empty()) document.notes.push_back(std::move(line));
  const std::string advice = advice_for(experiment, results);
  if (!advice.empty()) document.notes.push_back(advice);
  const auto simulated =
      std::count_if(results.begin(), results.end(),
                    [](const experiment::RunResult& r) { return r.error.empty(); });
  document.notes.push_back(
      fmt::format("self-checks passed in {} simulation{}", simulated, simulated == 1 ? "" : "s"));
  append_notes(document, experiment, results);
  if (results.size() > 1) {
    document.notes.push_back("to see why a plan was chosen: parsim explain --strategy NAME");
  }
  document.json = comparison_json(experiment, results, best, scaling, advice);
  return document;
}

}  // namespace parsim::report
