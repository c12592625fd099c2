// Plans and execution DAGs as versioned JSON text and back. Files begin with {"format":
// "parsim-plan", "version": 3, …}.
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

}  // namespace parsim
