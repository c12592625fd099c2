// The verbs of the command line as a table: what each takes and the function that does it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/exit_codes.hpp"
#include "experiment/options.hpp"
#include "report/document.hpp"

namespace parsim::app {

/// What a verb hands back: printed in the form asked for, then the program ends with `exit_code`.
struct Outcome {
  report::Document document;
  int exit_code = ExitCode::ok;
  const report::Format* format = nullptr;  ///< instead of the one asked for
  std::string timelines{};                 ///< HTML, of validate's page
  std::string file{};                      ///< of plan: the text of the plan file
};

/// A positional argument.
struct Word {
  std::string_view name;
  std::string help;
  std::vector<std::string> choices;  ///< what it may be, if that is a closed set
  bool repeats = false;              ///< the last one of a verb: one or more
};

struct Verb {
  std::string_view name, summary;
  std::vector<Word> words;   ///< all required
  std::string_view example;  ///< a command that runs as it stands
  Outcome (*run)(const experiment::Arguments& arguments);
  bool computes = false;  ///< its JSON has `inputs`, from which 'rerun' runs it again
};
[[nodiscard]] std::span<const Verb> verbs();

[[nodiscard]] Outcome run_simulate(const experiment::Arguments& arguments);
[[nodiscard]] Outcome run_compare(const experiment::Arguments& arguments);
[[nodiscard]] Outcome run_plan_verb(const experiment::Arguments& arguments);
[[nodiscard]] Outcome run_explain(const experiment::Arguments& arguments);
[[nodiscard]] Outcome run_import(const experiment::Arguments& arguments);
[[nodiscard]] Outcome run_collective(const experiment::Arguments& arguments);
[[nodiscard]] Outcome run_list(const experiment::Arguments& arguments);
[[nodiscard]] Outcome run_show(const experiment::Arguments& arguments);
[[nodiscard]] Outcome run_buy(const experiment::Arguments& arguments);
[[nodiscard]] Outcome run_sweep(const experiment::Arguments& arguments);
[[nodiscard]] Outcome run_validate(const experiment::Arguments& arguments);
/// validate --hw
[[nodiscard]] Outcome run_validate_hardware(const experiment::Arguments& arguments);
[[nodiscard]] Outcome run_calibrate(const experiment::Arguments& arguments);
[[nodiscard]] Outcome run_completion(const experiment::Arguments& arguments);
[[nodiscard]] Outcome run_doctor(const experiment::Arguments& arguments);
[[nodiscard]] Outcome run_rerun(const experiment::Arguments& arguments);
[[nodiscard]] Outcome run_reference(const experiment::Arguments& arguments);
[[nodiscard]] Outcome run_schema(const experiment::Arguments& arguments);
/// The JSON Schema of its result.
[[nodiscard]] std::string calibrate_schema();
[[nodiscard]] std::string collective_schema();
[[nodiscard]] std::string completion_schema();
[[nodiscard]] std::string doctor_schema();
[[nodiscard]] std::string explain_schema();
[[nodiscard]] std::string import_schema();
[[nodiscard]] std::string list_schema();
[[nodiscard]] std::string reference_schema();
/// What 'schema' can print.
[[nodiscard]] const std::vector<std::string>& schema_names();
/// What 'collective' can time.
[[nodiscard]] const std::vector<std::string>& collective_words();

}  // namespace parsim::app
