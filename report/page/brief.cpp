#include "report/page/brief.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "core/errors.hpp"
#include "experiment/what_would_fit.hpp"
#include "report/context.hpp"
#include "report/page/bars.hpp"
#include "report/page/certainty.hpp"
#include "report/page/html.hpp"
#include "report/page/other_clusters.hpp"
#include "report/waterfall.hpp"

namespace parsim::report {

namespace {

using Result = const experiment::RunResult&;

std::string percent(double share) {
  if (share < 5e-4) return "0 %";
  return share < 0.0995 || (share > 0.9945 && share < 0.9995)
             ? fmt::format("{:.1f} %", 100 * share)
             : fmt::format("{:.0f} %", 100 * share);
}

/// The plan as a sentence begins.
std::string plan_in_words(Result result) {
  std::string text = degrees_in_words(result.degrees);
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text;
}

/// " Of 40 blocks 38 are on a100-sxm4-40, 2 on v100-sxm2.": where a pipeline of whole blocks has
/// stages on several types of device, each on one; else empty.
std::string blocks_by_type(const Page& page, Result best) {
  std::map<std::string, std::int64_t> by_model;
  std::int64_t all = 0;
  for (const strategies::StageSummary& stage : best.stages) {
    const Cluster& cluster = page.experiment.cluster;
    if (!stage.blocks || stage.devices.empty()) return {};
    const std::string& model = cluster.model(stage.devices.front()).name;
    for (const DeviceId device : stage.devices) {
      if (cluster.model(device).name != model) return {};
    }
    for (const Interval& blocks : *stage.blocks) {
      by_model[model] += blocks.size();
      all += blocks.size();
    }
  }
  if (by_model.size() < 2) return {};
  std::vector<std::pair<std::string, std::int64_t>> types(by_model.begin(), by_model.end());
  std::stable_sort(types.begin(), types.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> words;
  for (const auto& [model, blocks] : types) {
    words.push_back(fmt::format("{} {} on {}", blocks, blocks == 1 ? "is" : "are", model));
  }
  return fmt::format(" Of {} blocks {}.", all, join(words));
}

/// The devices of all stages.
std::vector<DeviceId> devices_of_plan(Result result) {
  std::vector<DeviceId> devices;
  for (const strategies::StageSummary& stage : result.stages) {
    devices.insert(devices.end(), stage.devices.begin(), stage.devices.end());
  }
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  return devices;
}

/// " Not used: 24 x v100-sxm2.", or "".
std::string unused(const Page& page, const std::vector<DeviceId>& used) {
  std::vector<DeviceId> others = devices_of(page.experiment.cluster, DeviceKind::gpu);
  std::erase_if(others, [&](DeviceId device) {
    return std::binary_search(used.begin(), used.end(), device);
  });
  if (others.empty()) return {};
  return fmt::format(" Not used: {}.", device_mix(page.experiment.cluster, others));
}

std::string which(const Page& page, Result best) {
  const std::vector<DeviceId> devices = devices_of_plan(best);
  return fmt::format("{}, on {}.{}{} Found by the strategy '{}'.", plan_in_words(best),
                     device_mix(page.experiment.cluster, devices), blocks_by_type(page, best),
                     unused(page, devices), best.strategy);
}

/// "hybrid 9.82 s (+28 %)".
std::string step_and_difference(Result plan, Result best) {
  return fmt::format("{} {} ({})", plan.strategy, to_text(plan.step_time),
                     gain_of(best.step_time, plan.step_time));
}

std::string by_how_much(const Page& page, Result best) {
  const std::vector<const experiment::RunResult*> plans = fitting(page);
  std::vector<std::string> sentences;
  if (plans.size() < 2) {
    sentences.emplace_back(page.sections.size() > 1
                               ? "It is the only plan here that fits in memory."
                               : "No other plan was asked for.");
  } else {
    Result next = *plans[1];
    const double more = next.step_time / best.step_time - 1;
    const std::string same = same_stages(best, next);
    const std::string name = next.strategy + same;
    sentences.push_back(std::abs(more) < 5e-4
                            ? fmt::format("As fast as the next plan, {}.", name)
                            : fmt::format("The step of the next plan, {}, is {} {} ({}).", name,
                                          percent(std::abs(more)), more > 0 ? "longer" : "shorter",
                                          to_text(next.step_time)));
    if (same.empty()) {
      sentences.push_back(fmt::format("That is: {}, on {}.", plan_in_words(next),
                                      device_mix(page.experiment.cluster, devices_of_plan(next))));
    }
    std::vector<std::string> others;
    for (std::size_t i = 2; i < plans.size(); ++i) {
      others.push_back(step_and_difference(*plans[i], best));
    }
    if (!others.empty()) sentences.push_back("The others: " + join(others) + ".");
  }
  std::vector<std::string> misfits;
  for (const StrategySection& section : page.sections) {
    if (section.result.error.empty() && !section.result.fits()) {
      misfits.push_back(section.result.strategy);
    }
  }
  if (!misfits.empty()) sentences.push_back("Do not fit in memory: " + join(misfits) + ".");
  return join(sentences, " ");
}

std::string how_surely(const Page& page, Result best) {
  std::string out = who_is_fastest(fitting(page));
  out += fmt::format("90 % of measured steps are expected between {} and {}.",
                     to_text(best.step_time * best.interval.low),
                     to_text(best.step_time * best.interval.high));
  const std::vector<std::string> sources = source_lines(page.experiment, {best});
  if (!sources.empty() && sources.front().starts_with("kernel times: ")) {
    out += " Kernel times" + sources.front().substr(12) + ".";
  }
  return out;
}

/// Mean shares of the step of the GPUs of a type that take part.
struct TypeUse {
  std::string model;
  double compute = 0, exposed = 0, idle = 0;
};

/// By type, the one that computes most first.
std::vector<TypeUse> use_by_type(Result best) {
  std::map<std::string, std::vector<const DeviceUse*>> types;
  for (const experiment::DeviceResult& device : best.devices) {
    if (device.kind != DeviceKind::gpu || device.use.compute <= Seconds{}) continue;
    types[device.model].push_back(&device.use);
  }
  std::vector<TypeUse> means;
  for (const auto& [model, uses] : types) {
    TypeUse mean{model};
    const auto part = 1 / static_cast<double>(uses.size());
    for (const DeviceUse* use : uses) {
      mean.compute += part * (use->compute / best.step_time);
      mean.exposed += part * (use->exposed_communication / best.step_time);
      mean.idle += part * (use->idle / best.step_time);
    }
    means.push_back(std::move(mean));
  }
  std::stable_sort(means.begin(), means.end(),
                   [](const TypeUse& a, const TypeUse& b) { return a.compute > b.compute; });
  return means;
}

/// What the type that computes most does longest: "Computing on the a100-sxm4-40: they compute 76 %
/// of the step, the v100-sxm2 28 %; the others wait for them."
std::string bound_of(const std::vector<TypeUse>& types, bool others_wait) {
  constexpr double alike = 0.05;
  const TypeUse& busiest = types.front();
  std::vector<std::string> shares;
  for (const TypeUse& type : types) {
    shares.push_back(fmt::format("the {} {}{}", type.model, shares.empty() ? "compute " : "",
                                 percent(type.compute) + (shares.empty() ? " of the step" : "")));
  }
  const bool computing = busiest.compute >= std::max(busiest.exposed, busiest.idle);
  if (computing && types.size() > 1 && busiest.compute - types[1].compute > alike) {
    shares.front() = fmt::format("they compute {} of the step", percent(busiest.compute));
    return fmt::format("Computing on the {}: {}{}.", busiest.model, join(shares),
                       others_wait ? "; the others wait for them" : "");
  }
  return fmt::format("{}{}.",
                     computing                         ? "Computing on the GPUs"
                     : busiest.exposed >= busiest.idle ? "Communication"
                                                       : "Waiting for other GPUs",
                     types.size() > 1 ? ": " + join(shares) : "");
}

}  // namespace

std::string what_bounds(const StrategySection& section) {
  Result best = section.result;
  using experiment::StepPart;
  const auto part = [&](StepPart which) {
    return section.parts[static_cast<std::size_t>(which)] / best.step_time;
  };
  constexpr double little = 0.005;
  const double imbalance = part(StepPart::imbalance);
  std::vector<std::string> waits;  // parts of the idle time
  const auto wait = [&](double share, std::string_view words) {
    if (share >= little) waits.push_back(fmt::format("{} {}", percent(share), words));
  };
  wait(part(StepPart::bubbles), "pipeline bubbles");
  wait(imbalance, "for GPUs with more work");
  wait(part(StepPart::delays), "for the host");
  const std::vector<TypeUse> types = use_by_type(best);
  const DeviceUse use = experiment::mean_use_of_working(best);
  std::string out =
      (types.empty() ? "" : bound_of(types, imbalance >= little) + " ") +
      fmt::format(
          "The average GPU that takes part computes {}, communicates without computing {} and "
          "waits {}{}.",
          percent(use.compute / best.step_time),
          percent(use.exposed_communication / best.step_time), percent(use.idle / best.step_time),
          waits.empty() ? "" : " (" + join(waits) + ")");
  if (best.bottleneck) {
    out += fmt::format(" The busiest link is used {} of the time.",
                       percent(best.bottleneck->utilisation));
  }
  return out;
}

namespace {

/// Whether the plan would fit if the GPUs had this part of their memory.
bool fits_in(Result result, double part) {
  return std::all_of(
      result.devices.begin(), result.devices.end(), [&](const experiment::DeviceResult& device) {
        const double share = device.kind == DeviceKind::gpu ? part : 1.0;
        const Bytes memory{
            static_cast<std::int64_t>(share * static_cast<double>(device.capacity.value))};
        return device.headroom.verdict(device.peak(), memory) != lowering::Verdict::over;
      });
}

std::string with_half_the_memory(const Page& page, Result best) {
  std::string out;
  if (const experiment::DeviceResult* fullest = best.fullest()) {
    const Bytes usable = fullest->headroom.usable(fullest->capacity);
    out =
        usable >= fullest->peak()
            ? fmt::format("The fullest GPU, {}, uses {} of {}; {} are left below the limit of {}. ",
                          fullest->name, to_text(fullest->peak()), to_text(fullest->capacity),
                          to_text(usable - fullest->peak()), to_text(usable))
            : fmt::format("The fullest GPU, {}, needs {} of {}. ", fullest->name,
                          to_text(fullest->peak()), to_text(fullest->capacity));
  }
  constexpr double half = 0.5;
  if (fits_in(best, half)) return out + "It would fit in half the memory, too.";
  const std::string anew = half_memory_answer(page);
  if (!anew.empty()) return out + anew;
  for (const StrategySection& section : page.sections) {
    Result result = section.result;
    if (!result.error.empty() || !fits_in(result, half)) continue;
    return out + fmt::format(
                     "With half the memory the best of these plans that fits is {} ({}, {} "
                     "longer).",
                     result.strategy, to_text(result.step_time),
                     percent(result.step_time / best.step_time - 1));
  }
  const std::string advice = experiment::what_would_fit(page.experiment, half);
  return out + "With half the memory none of these plans fits" +
         (advice.empty() ? "." : "; the strategy " + advice + ".");
}

std::string what_helps(const StrategySection& section) {
  constexpr std::size_t most = 3;
  constexpr double little = 0.995;
  std::vector<std::string> helps;
  for (const experiment::Help& help : section.helps) {
    if (helps.size() == most || help.step > little * section.result.step_time) break;
    helps.push_back(fmt::format("{}: {} ({})", help.change, to_text(help.step),
                                gain_of(section.result.step_time, help.step)));
  }
  if (section.helps.empty()) {
    return "Not asked: this run has too many operations to simulate again.";
  }
  if (helps.empty()) return "Neither faster GPUs nor faster links alone, with the same plan.";
  return fmt::format("With the same plan {}{}.", join(helps, "; "),
                     helps.size() < section.helps.size() ? "; other changes bring less" : "");
}

std::string what_to_buy(const Page& page) {
  const std::string machines = machines_answer(page);
  const bool priced = page.sections.front().result.cost_per_million_samples().has_value();
  return machines + (machines.empty() ? "" : " ") +
         (priced ? "'parsim buy' ranks what a budget buys or rents."
                 : "With prices, 'parsim buy' ranks purchases.");
}

/// The next plan that fits and is not equally fast, or null.
const StrategySection* next_plan(const Page& page) {
  const auto next =
      std::find_if(page.sections.begin(), page.sections.end(), [&](const StrategySection& other) {
        return other.result.fits() &&
               other.result.step_time != page.sections.front().result.step_time;
      });
  return next == page.sections.end() || page.sections.front().result.step_time == Seconds{}
             ? nullptr
             : &*next;
}

/// A bar for each part of the step, where the last one ended; the times of the next plan beside.
std::string draw_waterfall(const Page& page) {
  const StrategySection& first = page.sections.front();
  const StrategySection* const next = next_plan(page);
  const Seconds step = first.result.step_time;
  std::string out = next == nullptr ? "<div class=bars>\n" : "<div class=\"bars two\">\n";
  if (next != nullptr) {
    out += fmt::format(
        "<span></span><span class=\"n soft\">{}</span><span class=\"n soft\">next: {}"
        "</span><span></span>\n",
        html_name(first.result.strategy), html_name(next->result.strategy));
  }
  double until = 0;
  for (std::size_t p = 0; p < first.parts.size(); ++p) {
    const double share = first.parts[p] / step;
    const double other = next == nullptr ? 0 : next->parts[p] / step;
    if (std::abs(share) < 5e-4 && std::abs(other) < 5e-4) continue;
    using experiment::StepPart;
    const auto part = static_cast<StepPart>(p);
    const bool waits =
        part == StepPart::delays || part == StepPart::imbalance || part == StepPart::bubbles;
    const double from = std::clamp(std::min(until, until + share), 0.0, 1.0);
    out +=
        fmt::format("<b>{}</b><span class=n>{}</span>", part_words(part), to_text(first.parts[p]));
    if (next != nullptr)
      out += fmt::format("<span class=\"n soft\">{}</span>", to_text(next->parts[p]));
    out +=
        fmt::format("<svg class=bar><title>{:.1f} %</title><rect class={} x={} width={} /></svg>\n",
                    100 * share,
                    part == StepPart::exposed_sends ? "x"
                    : waits                         ? "i"
                                                    : "c",
                    width_percent(from), width_percent(std::min(std::abs(share), 1.0 - from)));
    until += share;
  }
  return out + "</div>\n<p class=key>" + std::string(time_key) +
         "; means of the GPUs that compute, which add up to the step.</p>\n";
}

}  // namespace

std::string brief_of(const Page& page) {
  const StrategySection& first = page.sections.front();
  Result best = first.result;
  if (!best.error.empty()) return {};
  std::string out = "<dl class=brief>\n";
  const auto row = [&](std::string_view question, const std::string& answer) {
    out += fmt::format("<dt>{}<dd>{}\n", question, html(unbroken(answer)));
  };
  row(best.fits() ? "Which plan" : "The fastest plan, which does not fit", which(page, best));
  row("By how much", by_how_much(page, best));
  row("How sure", how_surely(page, best));
  row("What bounds it", what_bounds(first));
  row("With half the memory", with_half_the_memory(page, best));
  if (best.fits()) {
    row("What would help", what_helps(first));
    row("What to buy", what_to_buy(page));
  }
  return out + "</dl>\n";
}

std::string help_of(const Page& page) {
  const StrategySection& first = page.sections.front();
  if (first.helps.empty()) return {};
  std::string out =
      "<h4>What would help</h4>\n<table><thead><tr><th>change<th class=n>step<th class=n>difference"
      "<tbody>\n";
  for (const experiment::Help& help : first.helps) {
    out += fmt::format("<tr><td>{}<td class=n>{}<td class=n>{}\n", html(help.change),
                       to_text(help.step), gain_of(first.result.step_time, help.step));
  }
  return out +
         "</table>\n<p class=key>Each simulated with the same plan; another plan may then be "
         "better "
         "still.</p>\n";
}

std::string why_of(const Page& page) {
  const StrategySection& first = page.sections.front();
  if (!first.result.error.empty()) return {};
  return fmt::format("<h2>Why it takes {}: from the peak to the step</h2>\n{}",
                     to_text(first.result.step_time), draw_waterfall(page));
}

}  // namespace parsim::report
