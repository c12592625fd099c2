// Verbs that predict nothing: completion, doctor, rerun.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/cli.hpp"
#include "app/completion.hpp"
#include "app/embedded.hpp"
#include "app/verbs.hpp"
#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/text.hpp"
#include "experiment/files.hpp"
#include "experiment/read_files.hpp"
#include "report/runs.hpp"
#include "sim/sim.hpp"

namespace parsim::app {

namespace {

using Json = nlohmann::ordered_json;

/// "Package: g++" with "Status: install ok installed", from the package manager's own list.
bool is_installed(const std::string& list, const std::string& package) {
  const std::string head = "\nPackage: " + package + "\n";
  const std::size_t at = ("\n" + list).find(head);
  if (at == std::string::npos) return false;
  const std::size_t status = list.find("Status: ", at);
  const std::size_t line_end = list.find('\n', status);
  return status != std::string::npos &&
         list.substr(status, line_end - status).ends_with(" installed");
}

struct Finding {
  std::string what, state, needed_for, package;
};
void fields(auto& visit, json::Of<Finding> auto& finding) {
  visit("what", finding.what);
  visit("state", finding.state);
  visit("needed_for", finding.needed_for);
  visit("package", finding.package);
}

struct Completion {
  std::string shell{}, text{};
};
void fields(auto& visit, json::Of<Completion> auto& completion) {
  visit("for", completion.shell);
  visit("text", completion.text);
}

/// The packages of cmake/packages.txt and whether they are there.
std::vector<Finding> package_findings() {
  const std::string status_file = "/var/lib/dpkg/status";
  std::vector<Finding> findings;
  if (!experiment::file_exists(status_file)) {
    return {{"packages", "unknown", "building", "not a Debian system: see cmake/packages.txt"}};
  }
  const std::string list = read_file(status_file, status_file);
  std::string_view wanted;
  for (const EmbeddedFile& file : app_files()) {
    if (file.path.ends_with("packages.txt")) wanted = file.text;
  }
  for (const std::string& line : split_at(wanted, '\n')) {
    const std::size_t space = line.find(' ');
    if (line.empty() || line[0] == '#' || space == std::string::npos) continue;
    const std::string group = line.substr(0, space), package = line.substr(space + 1);
    const std::string use = group == "program" ? "building and running"
                            : group == "test"  ? "./test"
                            : group == "all"   ? "./test --all"
                                               : "./test (" + group + ")";
    findings.push_back(
        {package, is_installed(list, package) ? "installed" : "missing", use, package});
  }
  return findings;
}

bool has_gpu_driver() { return experiment::file_exists("/proc/driver/nvidia/version"); }

/// What the user of this machine can do.
std::string abilities(const sim::SimgridFound& simgrid) {
  const bool engine = !simgrid.version.empty(), gpu = has_gpu_driver();
  return fmt::format("SimGrid {}, GPU {}: you can compare and simulate{}{}", engine ? "yes" : "no",
                     gpu ? "yes" : "no", engine ? "" : " with --engine fast",
                     gpu ? ", and measure on this machine with --hw and calibrate" : "");
}

std::vector<Finding> findings(const sim::SimgridFound& simgrid) {
  std::vector<Finding> all = {
      {"parsim", report::version(), "", ""},
      {"SimGrid",
       simgrid.version.empty() ? "cannot be loaded: " + simgrid.failure
                               : simgrid.version + ", can be loaded",
       "simulating, but by --engine fast", "libsimgrid-dev"},
      {"NVIDIA driver", has_gpu_driver() ? "installed" : "missing", "--hw", ""},
  };
  for (Finding& finding : package_findings()) all.push_back(std::move(finding));
  return all;
}

/// What records the inputs of a result: itself, or compare's first row. Null: nothing does.
const Json* record_of(const Json& result) {
  const auto records = [](const Json& json) {
    return json.is_object() && json.contains("inputs") && json["inputs"].is_object();
  };
  if (records(result)) return &result;
  const bool has_rows = result.is_object() && result.contains("results") &&
                        result["results"].is_array() && !result["results"].empty();
  return has_rows && records(result["results"].front()) ? &result["results"].front() : nullptr;
}

void check_unchanged(const Json& inputs, const std::string& path) {
  std::vector<Json> sources;
  for (const Json& input : inputs) {
    if (input.is_object()) sources.push_back(input);
    if (input.is_array()) sources.insert(sources.end(), input.begin(), input.end());
  }
  for (const Json& source : sources) {
    if (!source.is_object() || !source.contains("given") || !source["given"].is_string()) continue;
    if (!source.contains("fnv1a64") || !source["fnv1a64"].is_string()) continue;
    const std::string given = source["given"], was = source["fnv1a64"];
    std::string now = experiment::hash_of_files(given);
    if (now.empty()) now = experiment::fnv1a64(read_file(given, path));  // says what is amiss
    if (now != was) {
      throw InputError(path,
                       fmt::format("'{}' has changed since: {} then, {} now", given, was, now),
                       "accepted: the file as it was");
    }
  }
}

}  // namespace

std::string completion_schema() {
  return json::schema_of_file<Completion>("What parsim completion --json prints");
}
std::string doctor_schema() {
  return json::schema_of_file<std::vector<Finding>>("What parsim doctor --json prints");
}

Outcome run_completion(const experiment::Arguments& arguments) {
  using Script = std::string (*)();
  const std::pair<std::string_view, Script> scripts[] = {{"bash", bash_completion}};
  Outcome outcome;
  outcome.document.plain = experiment::parse_word(arguments.words.at(0), "completion", scripts)();
  outcome.document.tables.emplace_back();
  outcome.document.json =
      report::result_text(Completion{arguments.words.at(0), outcome.document.plain});
  return outcome;
}

Outcome run_doctor(const experiment::Arguments& /*arguments*/) {
  const sim::SimgridFound simgrid = sim::find_simgrid();
  const std::vector<Finding> found = findings(simgrid);
  std::vector<std::string> what, state, needed, package, missing;
  for (const Finding& finding : found) {
    what.push_back(finding.what);
    state.push_back(finding.state);
    needed.push_back(finding.needed_for);
    package.push_back(finding.package);
    if (finding.state == "missing" && !finding.package.empty()) missing.push_back(finding.package);
  }
  report::Table table;
  report::add_words(table, "what", "what", what);
  report::add_words(table, "state", "state", state);
  report::add_words(table, "needed for", "needed_for", needed);
  report::add_words(table, "package", "package", package);
  Outcome outcome;
  outcome.document.answer = {abilities(simgrid)};
  outcome.document.tables = {std::move(table)};
  outcome.document.notes = {missing.empty() ? "no package is missing"
                                            : "to install what is missing: apt-get install " +
                                                  join(missing, " ")};
  outcome.document.json = report::result_text(found);
  return outcome;
}

Outcome run_rerun(const experiment::Arguments& arguments) {
  const std::string& path = arguments.words.at(0);
  std::vector<std::string> known;
  for (const Verb& verb : verbs()) {
    if (verb.computes) known.emplace_back(verb.name == "plan" ? "plan -o" : verb.name);
  }
  const std::string accepted =
      fmt::format("accepted: what one of these printed with --json: {}", join(known));
  const Json result = Json::parse(read_file(path, "rerun"), nullptr, false);
  if (result.is_discarded()) throw InputError(path, "is not JSON", accepted);
  const Json* record = record_of(result);
  if (record == nullptr || !record->at("inputs").contains("command") ||
      !record->at("inputs")["command"].is_array()) {
    throw InputError(path, "records no command", accepted);
  }
  const Json& inputs = record->at("inputs");
  std::vector<std::string> words;
  for (const Json& word : inputs["command"]) {
    if (!word.is_string()) throw InputError(path, "records a command that is no text", accepted);
    words.push_back(word);
  }
  CommandLine line = parse_command_line(words);
  if (line.verb == nullptr || !line.verb->computes) {
    throw InputError(path, "records another verb", accepted);
  }
  check_unchanged(inputs, path);
  if (const std::optional<std::string> file = arguments.text("-o")) {
    const std::vector<const experiment::Option*> taken = options_of(*line.verb);
    if (std::none_of(taken.begin(), taken.end(),
                     [](const experiment::Option* option) { return option->flag == "-o"; })) {
      throw InputError(
          "-o", fmt::format("'{}' records '{}', which writes no such file", path, line.verb->name),
          "accepted: with a result of plan or calibrate");
    }
    line.arguments.values["-o"] = {*file};
  }
  experiment::Arguments both = line.arguments;
  both.verb = arguments.verb;
  both.words.push_back(path);
  keep_inputs(both);
  if (arguments.has("--quiet")) line.arguments.values["--quiet"] = {""};
  line.arguments.poll = arguments.poll;
  Outcome outcome = line.verb->run(line.arguments);
  const bool other_form = arguments.has("--format") || arguments.has("--json");
  outcome.format = &chosen_format(other_form ? arguments : line.arguments);
  const std::string made_by = record->value("version", std::string());
  if (made_by != report::version()) {
    outcome.document.warnings.push_back(
        fmt::format("{} was made by parsim {}, this is {}", path, made_by, report::version()));
  }
  return outcome;
}

}  // namespace parsim::app
