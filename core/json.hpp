// Plans and execution DAGs as versioned JSON text and back, and the schemas of all files of core/.
// Files begin with {"format": "parsim-plan", "version": 3, …}.
#pragma once

#include <string>

#include "core/exec_dag.hpp"
#include "core/plan.hpp"

namespace parsim {

[[nodiscard]] std::string to_json(const Plan& plan);
[[nodiscard]] std::string to_json(const ExecDag& dag);

/// Throw InputError naming `where` and the key: not JSON, another format or version, a missing or
/// unknown key, a value of the wrong type or out of range.
[[nodiscard]] Plan plan_from_json(const std::string& text, const std::string& where);
[[nodiscard]] ExecDag dag_from_json(const std::string& text, const std::string& where);

/// The JSON Schema of a file, from the list of fields that reads and writes it.
[[nodiscard]] std::string plan_schema();
[[nodiscard]] std::string dag_schema();
[[nodiscard]] std::string machine_schema();
[[nodiscard]] std::string profile_schema();
[[nodiscard]] std::string measurements_schema();

}  // namespace parsim
