#include "report/page/other_clusters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "core/errors.hpp"
#include "report/context.hpp"
#include "report/page/html.hpp"

namespace parsim::report {

namespace {

using experiment::WhatIf;

/// Difference to the plan that the same strategy finds for the cluster as it is: the best plan may
/// come from a longer search.
std::string change_of(const Page& page, Seconds step) {
  constexpr double measurable = 0.005;
  const double change = step / page.what_ifs.step - 1;
  return std::abs(change) < measurable ? "no measurable change" : signed_percent(change);
}

std::string step_text(const Page& page, const WhatIf& row) {
  if (row.unused) {
    return row.kind == WhatIf::Kind::one_more ? "no faster plan found"
                                              : "no change, the plan does not use them";
  }
  if (!row.result) return "no plan found that fits";
  return fmt::format("{} ({})", to_text(row.result->step_time),
                     change_of(page, row.result->step_time));
}

/// ", compared with the 7.41 s of tensor's plan for today's cluster", or "" if that is as fast
/// as the best plan.
std::string compared_with(const Page& page) {
  if (page.what_ifs.step == page.sections.front().result.step_time) return {};
  return fmt::format(", compared with the {} of {}'s plan for today's cluster",
                     to_text(page.what_ifs.step), page.what_ifs.strategy);
}

/// What costs and takes what: the cluster as it is, and the others that have both.
struct Choice {
  std::string name;
  Seconds step{};
  double cost = 0;  ///< per million samples
};

/// Those that no other is faster and cheaper than (Pareto).
std::string worth_considering(const std::vector<Choice>& choices) {
  std::vector<std::string> texts;
  for (const Choice& one : choices) {
    const auto beats = [&](const Choice& other) {
      return other.step <= one.step && other.cost <= one.cost &&
             (other.step < one.step || other.cost < one.cost);
    };
    if (std::any_of(choices.begin(), choices.end(), beats)) continue;
    texts.push_back(
        fmt::format("{} ({}, {})", one.name, to_text(one.step), three_digits(one.cost)));
  }
  return fmt::format("No row is both faster and cheaper than {}.", join(texts, " or "));
}

}  // namespace

std::string gain_of(Seconds step, Seconds with) {
  const double change = with / step - 1;
  return std::abs(change) < 5e-4 ? "no change" : signed_percent(change);
}

std::string degrees_in_words(const strategies::Degrees& degrees) {
  std::vector<std::string> parts;
  const bool mixed = !degrees.tp || !degrees.dp;
  const std::int64_t stages = degrees.pp.value_or(1);
  if (stages > 1) {
    parts.push_back(counted(stages, "pipeline stage") + (mixed ? " of different degrees" : ""));
  } else if (mixed) {
    parts.emplace_back("layers split in different ways");
  }
  if (degrees.dp.value_or(1) > 1) {
    parts.push_back(counted(*degrees.dp, "replica") + " with samples of their own");
  }
  if (degrees.tp.value_or(1) > 1) {
    parts.push_back(fmt::format("every layer shared by {} GPUs", *degrees.tp));
  }
  if (degrees.ep.value_or(1) > 1) {
    parts.push_back(fmt::format("experts divided among {} replicas", *degrees.ep));
  }
  if (parts.empty()) parts.emplace_back("all layers on one GPU");
  if (degrees.micro_batches > 1) parts.push_back(counted(degrees.micro_batches, "micro-batch"));
  if (degrees.zero.value_or(0) > 0) {
    const std::string group = strategies::zero_group_text(degrees).value_or("");
    parts.push_back(fmt::format("ZeRO stage {}{}", *degrees.zero,
                                group.empty()     ? ""
                                : group == "node" ? " within machines"
                                                  : " in groups of " + group));
  }
  if (degrees.recompute.value_or(strategies::Recompute::none) != strategies::Recompute::none) {
    parts.push_back(fmt::format("recomputation: {}", to_text(*degrees.recompute)));
  }
  return join(parts);
}

std::string half_memory_answer(const Page& page) {
  for (const WhatIf& row : page.what_ifs.rows) {
    if (row.kind != WhatIf::Kind::half_memory) continue;
    if (!row.result) {
      return fmt::format(
          "With half the memory in every GPU the strategy {} finds no plan that fits, not even "
          "with "
          "ZeRO and recomputation.",
          page.what_ifs.strategy);
    }
    return fmt::format(
        "With half the memory in every GPU this plan would not fit. The best one that the strategy "
        "{} then finds takes {}{}: {}.",
        page.what_ifs.strategy, step_text(page, row), compared_with(page),
        degrees_in_words(row.result->degrees));
  }
  return {};
}

std::string machines_answer(const Page& page) {
  std::vector<std::string> texts;
  for (const WhatIf& row : page.what_ifs.rows) {
    if (row.kind == WhatIf::Kind::half_memory) continue;
    texts.push_back(fmt::format("{}: {}", row.change, step_text(page, row)));
    if (const auto cost = row.result && !row.unused ? row.result->cost_per_million_samples()
                                                    : std::optional<double>{}) {
      texts.back() += fmt::format(" at {} per million samples", three_digits(*cost));
    }
  }
  if (texts.empty()) return {};
  std::stable_partition(texts.begin(), texts.end(),
                        [](const std::string& text) { return text.starts_with("one more"); });
  std::string out = join(texts, "; ");
  out.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(out.front())));
  return out + ". Each planned anew, for the same batch" + compared_with(page) + ".";
}

std::string other_clusters_of(const Page& page) {
  if (page.what_ifs.rows.empty()) return {};
  const auto here = page.sections.front().result.cost_per_million_samples();
  std::string out = fmt::format(
      "<h4>If the cluster were different</h4>\n<table><thead><tr><th>change, and the plan then<th "
      "class=n>step<th class=n>difference{}<tbody>\n",
      here ? "<th class=n>cost/M samples" : "");
  const auto baseline =
      std::find_if(page.sections.begin(), page.sections.end(), [&](const StrategySection& section) {
        return section.result.strategy == page.what_ifs.strategy && section.result.fits();
      });
  std::vector<Choice> choices;
  if (baseline != page.sections.end()) {
    const auto cost = baseline->result.cost_per_million_samples();
    if (cost) choices.push_back({"as it is", page.what_ifs.step, *cost});
    out += fmt::format(
        "<tr><td>as it is<br><span class=soft>{}</span><td class=n>{}<td class=n>-{}\n",
        html(strategies::short_text(baseline->result.degrees)), to_text(page.what_ifs.step),
        here ? "<td class=n>" + (cost ? three_digits(*cost) : "-") : "");
  }
  for (const WhatIf& row : page.what_ifs.rows) {
    const experiment::RunResult* const result = row.result && !row.unused ? &*row.result : nullptr;
    out += fmt::format(
        "<tr><td>{}<br><span class=soft>{}</span>", html(row.change),
        html(result != nullptr ? strategies::short_text(result->degrees) : step_text(page, row)));
    std::vector<std::string> numbers(2, "-");
    if (result != nullptr) {
      numbers = {to_text(result->step_time), change_of(page, result->step_time)};
    }
    if (here) {
      const auto cost =
          result != nullptr ? result->cost_per_million_samples() : std::optional<double>{};
      numbers.push_back(cost ? three_digits(*cost) : "-");
      if (cost && row.kind != WhatIf::Kind::half_memory)
        choices.push_back({row.change, result->step_time, *cost});
    }
    for (const std::string& number : numbers) out += "<td class=n>" + number;
    out += "\n";
  }
  // `best` searches other plans, too.
  return out +
         fmt::format(
             "</table>\n<p class=key>Planned anew by the strategy {}, whose plan for the cluster "
             "as it is takes {}, and simulated; differences are to that plan. The batch "
             "stays{}.</p>\n",
             html_name(page.what_ifs.strategy), to_text(page.what_ifs.step),
             page.what_ifs.strategy == "best"
                 ? ""
                 : "; 'best', which searches longer, may find faster plans") +
         (choices.size() < 2
              ? ""
              : fmt::format("<p class=key>{}</p>\n", html(worth_considering(choices))));
}

}  // namespace parsim::report
