#include <fmt/format.h>

#include "app/verbs.hpp"
#include "networks/networks.hpp"
#include "report/result_text.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "topologies/topologies.hpp"

namespace parsim::app {

namespace {

struct Entry {
  std::string name, summary;
};
void fields(auto& visit, json::Of<Entry> auto& entry) {
  visit("name", entry.name);
  visit("summary", entry.summary);
}

template <class Catalogue>
std::vector<Entry> entries(const Catalogue& catalogue) {
  std::vector<Entry> list;
  for (const auto& item : catalogue) list.push_back({item.name, item.summary});
  return list;
}

/// "other names: ddp (data), fsdp (data with --zero 3)".
std::string other_names() {
  std::vector<std::string> names;
  for (const strategies::StrategyAlias& alias : strategies::strategy_aliases()) {
    names.push_back(
        fmt::format("{} ({}{})", alias.name, alias.strategy,
                    alias.zero_stage ? fmt::format(" with --zero {}", *alias.zero_stage) : ""));
  }
  return "other names: " + join(names);
}

std::vector<Entry> network_entries() {
  std::vector<Entry> list = entries(networks::all());
  for (Entry& formula : entries(networks::network_formulas())) list.push_back(std::move(formula));
  return list;
}

std::vector<Entry> device_entries() {
  std::vector<Entry> list;
  for (const DeviceModel& model : topologies::device_models()) {
    list.push_back({model.name, fmt::format("{}, {} fp32, memory {} at {}",
                                            model.kind == DeviceKind::gpu ? "GPU" : "CPU",
                                            to_text(model.peak_at(Precision::fp32)),
                                            to_text(model.memory), to_text(model.memory_rate))});
  }
  return list;
}

}  // namespace

std::string list_schema() {
  return json::schema_of_file<std::vector<Entry>>("What parsim list --json prints");
}

Outcome run_list(const experiment::Arguments& arguments) {
  using List = std::vector<Entry> (*)();
  const std::pair<std::string_view, List> lists[] = {
      {"strategies", [] { return entries(strategies::all()); }},    {"networks", network_entries},
      {"clusters", [] { return entries(topologies::clusters()); }}, {"devices", device_entries},
      {"costs", [] { return entries(sim::cost_sources()); }},
  };
  const std::vector<Entry> list = experiment::parse_word(arguments.words.at(0), "list", lists)();
  std::vector<std::string> names;
  std::vector<std::string> summaries;
  for (const Entry& entry : list) {
    names.push_back(entry.name);
    summaries.push_back(entry.summary);
  }
  Outcome outcome;
  report::Table table;
  report::add_words(table, "name", "name", names);
  report::add_words(table, "summary", "summary", summaries);
  outcome.document.tables = {std::move(table)};
  if (arguments.words.at(0) == "strategies") outcome.document.notes = {other_names()};
  outcome.document.json = report::result_text(list);
  return outcome;
}

}  // namespace parsim::app
