// The Python module's native half, `parsim._parsim`: the table of verbs and options, and a function
// that runs a command. What Python sees (functions named as the verbs) is made of these two in
// python/parsim/.
#include <fmt/format.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/cli.hpp"
#include "app/verbs.hpp"
#include "core/errors.hpp"
#include "core/json.hpp"
#include "experiment/bisection.hpp"
#include "report/runs.hpp"
#include "report/show.hpp"

namespace parsim::python {

namespace {

namespace py = pybind11;
using Json = nlohmann::ordered_json;

/// A strategy written in Python: name, and a function from (network, cluster, batch) to the text of
/// a plan file, the first two as the JSON that `show` prints.
using PythonStrategy = std::pair<std::string, py::function>;

/// What a command answered.
struct Answer {
  report::Document document;
  int exit_code = ExitCode::ok;
  std::string file;
};

/// All verbs with their arguments, and all options, as JSON.
std::string table() {
  Json verbs = Json::array(), options = Json::array();
  for (const app::Verb& verb : app::verbs()) {
    Json words = Json::array();
    for (const app::Word& word : verb.words) {
      words.push_back({{"name", word.name},
                       {"help", word.help},
                       {"choices", word.choices},
                       {"repeats", word.repeats}});
    }
    Json flags = Json::array();
    for (const experiment::Option* option : app::options_of(verb)) flags.push_back(option->flag);
    verbs.push_back({{"name", verb.name},
                     {"summary", verb.summary},
                     {"words", std::move(words)},
                     {"example", verb.example},
                     {"options", std::move(flags)}});
  }
  for (const experiment::Option& option : experiment::options()) {
    options.push_back({{"flag", option.flag},
                       {"long_name", option.rules.long_name},
                       {"group", to_text(option.group)},
                       {"value", option.placeholder()},
                       {"choices", option.words()},
                       {"help", option.explanation()},
                       {"key", option.key},
                       {"repeats", option.rules.repeats},
                       {"everywhere", option.verbs.empty()},
                       {"in_plan", option.is_in_plan_file()},
                       {"writes", option.writes_file()}});
  }
  return Json{
      {"version", report::version()}, {"verbs", std::move(verbs)}, {"options", std::move(options)}}
      .dump();
}

/// Asks Python now and then whether a signal came. Handlers run in the main thread only; the call
/// returns with what they raise, as KeyboardInterrupt.
class Signals {
 public:
  void check() {
    constexpr std::chrono::milliseconds pause{20};
    const auto now = std::chrono::steady_clock::now();
    // A forked simulation must not enter the interpreter, which another thread may hold.
    if (now - last_ < pause || ::getpid() != process_) return;
    last_ = now;
    const py::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }

 private:
  pid_t process_ = ::getpid();
  std::chrono::steady_clock::time_point last_{};
};

/// Refuses a plan of another step than the one asked about: it would be compared with plans that do
/// more work, or less.
void check_answers(const Plan& plan, const strategies::StrategyInput& asked,
                   const std::string& where) {
  const auto expect = [&](const std::string& found, const std::string& accepted) {
    if (found == accepted) return;
    throw InputError(where, "a plan for " + found, fmt::format("accepted: {}, as asked", accepted));
  };
  expect(fmt::format("network '{}'", plan.network),
         fmt::format("network '{}'", asked.network.name));
  expect(fmt::format("batch {}", plan.batch), fmt::format("batch {}", asked.batch));
  expect(fmt::format("precision {}", to_text(plan.precision)),
         fmt::format("precision {}", to_text(asked.precision)));
  expect(fmt::format("gradients in {}", to_text(plan.reduce_precision)),
         fmt::format("gradients in {}", to_text(asked.reduce_precision)));
  expect(fmt::format("optimizer {}", to_text(plan.optimizer)),
         fmt::format("optimizer {}", to_text(asked.optimizer)));
}

/// Calls a function of Python's, which holds no lock meanwhile, and reads the plan that it returns.
/// An InputError is passed on as what it is: the strategy has no plan for this input.
Plan ask_python(const PythonStrategy& strategy, const strategies::StrategyInput& input) {
  const std::string network = report::network_json(input.network);
  const std::string cluster =
      report::cluster_json(input.cluster, experiment::bisection_rate(input.cluster));
  const py::gil_scoped_acquire held;
  try {
    const std::string text = py::cast<std::string>(strategy.second(network, cluster, input.batch));
    const std::string where = fmt::format("strategy {}", strategy.first);
    Plan plan = plan_from_json(text, where);
    check_answers(plan, input, where);
    if (plan.cluster != input.cluster.name) {
      plan.notes.push_back(fmt::format("was made for cluster '{}'", plan.cluster));
    }
    return plan;
  } catch (py::error_already_set& error) {
    const py::object input_error = py::module_::import("parsim._errors").attr("InputError");
    if (!error.matches(input_error)) throw;
    const auto part = [&](const char* name) {
      return py::cast<std::string>(error.value().attr(name));
    };
    throw InputError(part("where"), part("found"), part("accepted"));
  }
}

Answer run(const std::vector<std::string>& words, const std::vector<PythonStrategy>& strategies) {
  app::CommandLine command = app::parse_command_line(words);
  if (command.verb == nullptr) {
    throw InputError("command line", "asks for help", "accepted: a verb and its options");
  }
  command.arguments.values["--quiet"] = {""};
  Signals signals;
  command.arguments.poll = [&signals] { signals.check(); };
  for (const PythonStrategy& strategy : strategies) {
    strategies::Strategy& own = command.arguments.strategies.emplace_back();
    own.name = strategy.first;
    own.summary = "of the caller's";
    own.callback = [&strategy](const strategies::StrategyInput& input) {
      return ask_python(strategy, input);
    };
  }
  const py::gil_scoped_release released;
  app::Outcome outcome = command.verb->run(command.arguments);
  return {std::move(outcome.document), outcome.exit_code, std::move(outcome.file)};
}

std::string render(const Answer& answer, const std::string& format, std::size_t columns,
                   bool color) {
  for (const report::Format& one : report::formats()) {
    if (one.name == format && (!one.is_drawing || !answer.document.drawing.empty())) {
      return one.render(answer.document, {color, columns});
    }
  }
  throw InputError("format", fmt::format("'{}'", format), "accepted: table, json, csv or md");
}

/// The tables for people: (title, headings, rows, the winner's row or None).
py::list tables(const Answer& answer) {
  py::list all;
  for (const report::Table& whole : answer.document.tables) {
    const report::Table table = report::table_for_page(whole);
    py::list headings, rows;
    for (const report::Column& column : table.columns) headings.append(column.title);
    for (const std::vector<report::TableCell>& cells : table.rows) {
      py::list row;
      for (const report::TableCell& cell : cells) row.append(cell.text);
      rows.append(row);
    }
    all.append(py::make_tuple(table.title, headings, rows, table.winner));
  }
  return all;
}

/// Raises the class of parsim._errors.
void raise(const char* name, const py::tuple& arguments) {
  const py::object type = py::module_::import("parsim._errors").attr(name);
  PyErr_SetObject(type.ptr(), type(*arguments).ptr());
}

void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(std::move(thrown));
  } catch (const InputError& error) {
    raise("InputError", py::make_tuple(error.where, error.found, error.accepted));
  } catch (const SimulationError& error) {
    // A terminal sends the signal to the child that simulates, too.
    if (PyErr_CheckSignals() == 0) raise("SimulationError", py::make_tuple(error.what()));
  }
}

}  // namespace

PYBIND11_MODULE(_parsim, module) {
  py::register_exception_translator(translate);
  py::class_<Answer>(module, "Answer")
      .def_property_readonly("json", [](const Answer& answer) { return answer.document.json; })
      .def_readonly("exit_code", &Answer::exit_code)
      .def_readonly("file", &Answer::file)
      .def("render", render)
      .def("tables", tables);
  module.def("table", table);
  module.def("run", run);
}

}  // namespace parsim::python
