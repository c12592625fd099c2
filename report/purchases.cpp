#include "report/purchases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "core/text.hpp"
#include "report/degrees.hpp"
#include "report/result_parts.hpp"
#include "report/result_text.hpp"
#include "report/runs.hpp"

namespace parsim::report {

using experiment::BuyRow;

struct PartOfPurchase {
  std::string name;
  std::int64_t count = 0;
};
void fields(auto& visit, json::Of<PartOfPurchase> auto& row) {
  visit("name", row.name, "of the offer; of own machines their GPUs");
  visit("count", row.count, any_count);
}

struct CandidateRow {
  BuyRow row{};
  std::vector<PartOfPurchase> keep{}, buy{}, rent{};
};
void fields(auto& visit, json::Of<CandidateRow> auto& candidate) {
  const BuyRow& row = candidate.row;
  const auto& interval = row.run.interval;
  visit("candidate", row.text);
  visit("keep", candidate.keep);
  visit("buy", candidate.buy);
  visit("rent", candidate.rent);
  visit("gpus", row.gpus, from_one);
  visit("purchase_price", row.price.value);
  visit("price_per_hour", row.per_hour.value, "without electricity and what runs share");
  visit("power_w", row.power ? std::optional(row.power->value) : std::nullopt,
        "the most; null of what is rented");
  visit("step_time_s", row.run.step_time);
  visit("interval_s",
        std::array{row.run.step_time * interval.low, row.run.step_time * interval.high});
  visit("run_time_s", row.time);
  visit("cost_per_run", row.cost.value);
  visit("cost_per_run_interval",
        std::array{row.cost_at(interval.low).value, row.cost_at(interval.high).value},
        "90 % of measured runs are expected in it");
  visit("energy_per_run_j", row.energy ? std::optional(row.energy->value) : std::nullopt);
  visit("probability_cheapest", row.probability);
  visit("cheapest_of_its_speed", row.cheapest, "no candidate is both cheaper and faster");
  visit("strategy", row.run.strategy);
  visit("degrees", DegreesRow{row.run.degrees}, degrees_meaning);
  visit("verdict", row.run.verdict());
}

struct OfferRow {
  experiment::Offer offer{};
};
void fields(auto& visit, json::Of<OfferRow> auto& row) {
  visit("name", row.offer.name);
  visit("date", row.offer.date);
  visit("label", row.offer.label);
  visit("source", row.offer.source);
}

struct BuyInputsRow {
  BuyInputs inputs{};
};
void fields(auto& visit, json::Of<BuyInputsRow> auto& row) {
  const auto given = [](const std::string& text) {
    return text.empty() ? std::nullopt : std::optional(text);
  };
  visit("budget", row.inputs.budget);
  visit("power", given(row.inputs.power));
  visit("years", row.inputs.years);
  visit("job", row.inputs.job);
  visit("own", given(row.inputs.own));
  visit("offers", given(row.inputs.offers));
}

struct BuyResults {
  std::vector<CandidateRow> candidates{};
  experiment::BuyAnswer answer{};
  std::vector<OfferRow> offers{};
  BuyInputsRow inputs{};
};
void fields(auto& visit, json::Of<BuyResults> auto& row) {
  visit("candidates", row.candidates, "that were simulated, the cheapest first");
  visit("enumerated", row.answer.candidates, any_count);
  visit("thinned", row.answer.thinned,
        "only counts that are 0, a power of two or the most possible");
  visit("hopeless", row.answer.hopeless, Rule(any_count, "by their lower bounds"));
  visit("do_not_fit", row.answer.unfit, any_count);
  visit("too_late", row.answer.late, any_count);
  visit("over_budget", row.answer.costly, Rule(any_count, "rents"));
  visit("estimated", row.answer.estimated, any_count);
  visit("offers", row.offers);
  visit("version", version());
  visit("inputs", row.inputs);
}

namespace {

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();
constexpr double joules_each = 3.6e6;  // of a kilowatt-hour

CandidateRow candidate_of(const BuyRow& row, const experiment::BuyRequest& request) {
  CandidateRow made{row, {}, {}, {}};
  if (request.own) {
    const auto groups = experiment::machine_groups(*request.own);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      made.keep.push_back({groups[g].text, row.purchase.kept[g]});
    }
  }
  for (std::size_t o = 0; o < request.offers.size(); ++o) {
    if (row.purchase.taken[o] == 0) continue;
    (request.offers[o].rent ? made.rent : made.buy)
        .push_back({request.offers[o].name, row.purchase.taken[o]});
  }
  return made;
}

std::string amount(double value) {
  return value >= 1e4 && value < 1e6 ? three_digits(value / 1e3) + "k"
         : value >= 1e6              ? three_digits(value / 1e6) + "M"
                                     : three_digits(value);
}

Table table_of(const std::vector<const BuyRow*>& rows, const std::string& title) {
  Table table;
  table.title = title;
  const auto words = [&](const std::string& heading, const std::string& key, auto of,
                         Audience audience = Audience::everyone) {
    std::vector<std::string> texts;
    for (const BuyRow* row : rows) texts.push_back(of(*row));
    add_words(table, heading, key, texts, audience);
    table.columns.back().is_number = audience != Audience::everyone;
  };
  const auto numbers = [&](const std::string& heading, const std::string& key, int drop, auto of,
                           Audience audience = Audience::everyone) {
    std::vector<double> values;
    double least = no_number;
    for (const BuyRow* row : rows) {
      values.push_back(of(*row));
      if (values.back() > 0) least = std::fmin(least, values.back());
    }
    add_numbers(table, "", {{heading, key, values, audience}}, least);
    table.columns.back().drop = drop;
  };
  using R = const BuyRow&;
  words("machines", "candidate", [](R row) { return row.text; });
  numbers("cost/run", "cost_per_run", 0, [](R row) { return row.cost.value; });
  words(
      "90 %", "",
      [](R row) {
        return fmt::format("{}-{}", amount(row.cost_at(row.run.interval.low).value),
                           amount(row.cost_at(row.run.interval.high).value));
      },
      Audience::people);
  numbers("hours", "run_time_h", 0, [](R row) { return row.time / hour; });
  numbers("kWh/run", "energy_per_run_kwh", 1,
          [](R row) { return row.energy ? row.energy->value / joules_each : no_number; });
  numbers("kW", "power_kw", 2,
          [](R row) { return row.power ? row.power->value / 1e3 : no_number; });
  words(
      "sure", "", [](R row) { return fmt::format("{:.0f} %", 100 * row.probability); },
      Audience::people);
  words("GPUs", "gpus", [](R row) { return fmt::format("{}", row.gpus); });
  table.columns.back().is_number = true;
  table.columns.back().drop = 3;
  numbers("bought for", "purchase_price", 4, [](R row) { return row.price.value; });
  const auto exactly = [&](const std::string& key, auto of) {
    numbers(key, key, 0, of, Audience::programs);
  };
  exactly("cost_per_run_low", [](R row) { return row.cost_at(row.run.interval.low).value; });
  exactly("cost_per_run_high", [](R row) { return row.cost_at(row.run.interval.high).value; });
  exactly("price_per_hour", [](R row) { return row.per_hour.value; });
  exactly("step_time_s", [](R row) { return row.run.step_time.count(); });
  exactly("probability_cheapest", [](R row) { return row.probability; });
  words(
      "plan", "strategy", [](R row) { return row.run.strategy; }, Audience::programs);
  table.columns.back().is_number = false;
  words(
      "", "cheapest_of_its_speed",
      [](R row) { return std::string(row.cheapest ? "true" : "false"); }, Audience::programs);
  table.columns.back().is_number = false;
  return table;
}

std::vector<const BuyRow*> those(const std::vector<BuyRow>& rows, auto wanted) {
  std::vector<const BuyRow*> some;
  for (const BuyRow& row : rows) {
    if (wanted(row)) some.push_back(&row);
  }
  return some;
}

std::vector<std::string> answer_of(const experiment::BuyAnswer& answer) {
  if (answer.rows.empty()) return {"No candidate runs the job within these limits."};
  const BuyRow& best = answer.rows.front();
  std::string second = fmt::format("      {} h a run", three_digits(best.time / hour));
  if (best.energy) second += fmt::format(", {} kWh", amount(best.energy->value / joules_each));
  second += fmt::format(", {} GPUs, {:.0f} % likely to be the cheapest", best.gpus,
                        100 * best.probability);
  return {fmt::format("Best: {}: {} a run (90 %: {}-{})", best.text, amount(best.cost.value),
                      amount(best.cost_at(best.run.interval.low).value),
                      amount(best.cost_at(best.run.interval.high).value)),
          std::move(second)};
}

/// "prices: example, 2016-04-05 to 2023-07-26 (offers.toml); parsim fetches none".
std::string prices_text(const std::vector<experiment::Offer>& offers, const std::string& file) {
  std::vector<std::string> dates, labels;
  for (const experiment::Offer& offer : offers) {
    dates.push_back(offer.date);
    if (std::find(labels.begin(), labels.end(), offer.label) == labels.end()) {
      labels.push_back(offer.label);
    }
  }
  const auto [first, last] = std::minmax_element(dates.begin(), dates.end());
  return fmt::format("prices: {}, of {}{} ({}); parsim fetches none", join(labels), *first,
                     *first == *last ? "" : " to " + *last, file);
}

}  // namespace

Document report_purchases(const experiment::BuyRequest& request,
                          const experiment::BuyAnswer& answer, const BuyInputs& inputs) {
  Document document;
  document.answer = answer_of(answer);
  document.head = {fmt::format("{}; a run: {} samples; {} years, budget {}{}", answer.question,
                               request.job.samples, inputs.years, inputs.budget,
                               inputs.power.empty() ? "" : ", at most " + inputs.power)};
  if (!answer.rows.empty()) {
    document.tables.push_back(table_of(those(answer.rows, [](const BuyRow&) { return true; }), ""));
    document.tables.back().winner = 0;
    const auto front = those(answer.rows, [](const BuyRow& row) { return row.cheapest; });
    if (front.size() < answer.rows.size()) {
      document.tables.push_back(table_of(front, "No candidate is both cheaper and faster than"));
    }
    const auto own = those(answer.rows, [](const BuyRow& row) { return row.of_own; });
    if (!own.empty() && own != front)
      document.tables.push_back(table_of(own, "The same of what you own alone"));
  }
  std::string counts =
      fmt::format("{} candidates{}: {} hopeless by lower bounds, {} estimated", answer.candidates,
                  answer.thinned ? " (thinned)" : "", answer.hopeless, answer.estimated);
  if (answer.unfit > 0) counts += fmt::format(", {} do not fit in memory", answer.unfit);
  if (answer.unsearched > 0) {
    counts += fmt::format(
        ", {} do not fit with data parallelism, and other plans of them were not searched",
        answer.unsearched);
  }
  if (answer.late > 0) counts += fmt::format(", {} take too long", answer.late);
  if (answer.costly > 0) counts += fmt::format(", {} rents exceed the budget", answer.costly);
  document.notes.push_back(counts + fmt::format(", {} simulated", answer.rows.size()));
  if (answer.thinned) {
    document.notes.push_back("thinned: counts of machines that are 0, a power of two or the most");
  }
  document.notes.push_back(
      request.job.runs
          ? fmt::format("a purchase costs a run a {}th of its price; see docs/money.md",
                        *request.job.runs)
          : "a purchase costs a run its share of the years' hours; see docs/money.md");
  if (!request.offers.empty()) {
    document.notes.push_back(prices_text(request.offers, inputs.offers));
  }
  BuyResults results{{}, answer, {}, {inputs}};
  for (const BuyRow& row : answer.rows) results.candidates.push_back(candidate_of(row, request));
  for (const experiment::Offer& offer : request.offers) results.offers.push_back({offer});
  results.answer.rows.clear();
  document.json = result_text(results);
  return document;
}

std::string buy_schema() {
  return json::schema_of_file<BuyResults>("What parsim buy --json prints");
}

}  // namespace parsim::report
