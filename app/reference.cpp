#include "app/reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "app/cli.hpp"
#include "core/errors.hpp"
#include "core/exit_codes.hpp"
#include "experiment/options.hpp"
#include "networks/networks.hpp"
#include "report/document.hpp"
#include "report/runs.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "topologies/topologies.hpp"

namespace parsim::app {

namespace {

/// A table of Markdown, row by row.
class Rows {
 public:
  Rows(std::string& out, const std::vector<std::string>& titles) : out_(out) {
    row(titles);
    out_ += "|" + repeated(" --- |", titles.size()) + "\n";
  }
  ~Rows() { out_ += "\n"; }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  void row(const std::vector<std::string>& cells) {
    out_ += "|";
    for (const std::string& cell : cells) out_ += " " + safe(cell) + " |";
    out_ += "\n";
  }

 private:
  static std::string repeated(std::string_view text, std::size_t count) {
    std::string all;
    for (std::size_t i = 0; i < count; ++i) all += text;
    return all;
  }
  static std::string safe(const std::string& cell) {
    std::string text;
    for (const char c : cell) text += c == '|' ? std::string("\\|") : std::string(1, c);
    return text;
  }

  std::string& out_;
};

std::string code(std::string_view text) { return fmt::format("`{}`", text); }

void add_command_line(std::string& out) {
  out += "## Verbs\n\n";
  {
    Rows rows(out, {"verb", "what it does", "example"});
    for (const Verb& verb : verbs()) {
      std::string name(verb.name);
      for (const Word& word : verb.words) name += fmt::format(" {}", word.name);
      rows.row({code(name), std::string(verb.summary), code(verb.example)});
    }
  }
  out += "## Options\n\n";
  for (std::size_t g = 0; g < spellings_of<experiment::OptionGroup>().size(); ++g) {
    out += fmt::format("### {}\n\n", spellings_of<experiment::OptionGroup>()[g]);
    Rows rows(out, {"option", "meaning", "with"});
    for (const experiment::Option& option : experiment::options()) {
      if (option.group != static_cast<experiment::OptionGroup>(g)) continue;
      std::string name(option.flag);
      if (!option.rules.long_name.empty()) name += fmt::format(", {}", option.rules.long_name);
      const std::string placeholder = option.placeholder();
      if (!placeholder.empty()) name += " " + placeholder;
      rows.row({code(name),
                option.explanation() + (option.rules.repeats ? "; may be repeated" : ""),
                verbs_of(option)});
    }
  }
  out += "## Output formats\n\n";
  Rows rows(out, {"`--format`", "what it is"});
  for (const report::Format& format : report::formats()) {
    rows.row({code(format.name),
              fmt::format("{}{}", format.summary, format.is_drawing ? " (show only)" : "")});
  }
}

void add_exit_codes(std::string& out) {
  static constexpr std::pair<int, const char*> meanings[] = {
      {ExitCode::ok, "done"},
      {ExitCode::bug, "a bug in parsim"},
      {ExitCode::usage, "wrong usage or bad input"},
      {ExitCode::hardware, "the hardware failed, or there is none; the report is complete"},
      {ExitCode::unfinished,
       "the simulation did not finish; of `compare` that of a row, and the report has the others"},
      {ExitCode::does_not_fit,
       "done, but no plan fits in memory, or no row of a sweep is as asked; the report is "
       "complete"},
  };
  out += "## Exit codes\n\n";
  Rows rows(out, {"code", "meaning"});
  for (const auto& [number, meaning] : meanings) rows.row({fmt::format("{}", number), meaning});
  rows.row({"130, 143", "SIGINT or SIGTERM; `compare` has printed the rows that were known"});
}

void add_strategies(std::string& out) {
  out += "## Strategies\n\n";
  Rows rows(out, {"strategy", "what it does", "options of its own"});
  for (const strategies::Strategy& one : strategies::all()) {
    std::vector<std::string> own;
    for (const experiment::Option& option : experiment::options()) {
      const bool reads = !option.rules.strategies.empty() && option.is_read_by(one.name);
      if (reads) own.push_back(code(option.flag));
    }
    rows.row({code(one.name), one.summary, join(own)});
  }
}

void add_networks(std::string& out) {
  out +=
      "## Networks\n\nParameters and multiply-accumulates of convolutions, dense layers and "
      "products, for one sample forward.\n\n";
  {
    Rows rows(out, {"network", "what it is", "layers", "parameters", "GMAC"});
    for (const networks::NetworkEntry& entry : networks::all()) {
      const Network network = entry.build();
      rows.row({code(entry.name), entry.summary, fmt::format("{}", network.layers.size()),
                fmt::format("{}", parameter_count(network)),
                three_digits(forward_flops_per_sample(network).value / 2e9)});
    }
  }
  out += "By formula, of any size:\n\n";
  Rows formulas(out, {"network", "what it is"});
  for (const networks::NetworkFormula& formula : networks::network_formulas()) {
    formulas.row({code(formula.name), formula.summary});
  }
}

void add_clusters(std::string& out) {
  out += "## Clusters\n\nMachines by name, then generators, which take options.\n\n";
  Rows rows(out, {"cluster", "what it is"});
  for (const topologies::ClusterEntry& entry : topologies::clusters())
    rows.row({code(entry.name), entry.summary});
}

void add_devices(std::string& out) {
  out +=
      "## Devices\n\nDense peaks. The label is that of the worst-founded number; `parsim show "
      "cluster` names every source.\n\n";
  Rows rows(out,
            {"device", "fp32", "tf32", "fp16", "bf16", "fp8", "memory", "memory rate", "numbers"});
  for (const DeviceModel& model : topologies::device_models()) {
    Label worst = Label::measured;
    for (const Provenance& one : model.provenance) worst = std::max(worst, one.label);
    const auto peak = [&](Precision precision) { return to_text(model.peak_at(precision)); };
    rows.row({code(model.name), peak(Precision::fp32), peak(Precision::tf32), peak(Precision::fp16),
              peak(Precision::bf16), model.fp8_peak.value > 0 ? peak(Precision::fp8) : "–",
              to_text(model.memory), to_text(model.memory_rate), std::string(to_text(worst))});
  }
}

struct Reference {
  std::string text{};
};
void fields(auto& visit, json::Of<Reference> auto& reference) {
  visit("text", reference.text, "Markdown");
}

}  // namespace

std::string reference_markdown() {
  std::string out =
      "# The command line\n\nWritten by `parsim reference` from the program's own tables.\n\n"
      "Quantities carry their unit: `25GB/s`, `\"100 Gbit/s\"`, `\"936 ns\"`, `\"80 GiB\"`. A bare "
      "number is refused. k, M, G are powers of ten, Ki, Mi, Gi of two. Rates are per direction, "
      "latencies per link. Keys of JSON carry SI units (`step_time_s`). An output file named `-` "
      "is "
      "standard output; the report then goes to standard error.\n\n";
  add_command_line(out);
  add_exit_codes(out);
  add_strategies(out);
  add_networks(out);
  add_clusters(out);
  add_devices(out);
  out += "## Cost sources\n\n";
  {
    Rows rows(out, {"`--costs`", "what it is"});
    for (const sim::CostSource& source : sim::cost_sources())
      rows.row({code(source.name), source.summary});
  }
  out += "## JSON Schemas\n\n";
  for (const std::string& name : schema_names()) out += fmt::format("`parsim schema {}`\n", name);
  return out;
}

std::string reference_schema() {
  return json::schema_of_file<Reference>("What parsim reference --json prints");
}

Outcome run_reference(const experiment::Arguments& /*arguments*/) {
  Outcome outcome;
  outcome.document.plain = reference_markdown();
  outcome.document.json = report::result_text(Reference{outcome.document.plain});
  return outcome;
}

}  // namespace parsim::app
