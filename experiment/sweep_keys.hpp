// Which keys the file of a sweep may have: what its reader accepts and its JSON Schema says.
#pragma once

#include <string>
#include <string_view>

#include "experiment/options.hpp"
#include "topologies/document.hpp"

namespace parsim::experiment {

/// Whether the option changes a point's result and can be asked of any machine.
[[nodiscard]] bool is_sweepable(const Option& option);
/// The sweepable option of this name, without dashes; null if there is none.
[[nodiscard]] const Option* sweepable(std::string_view name);
/// "batch" of "--batch".
[[nodiscard]] std::string_view without_dashes(std::string_view flag);
/// Whether a text may have "{name}".
[[nodiscard]] bool is_variable_name(std::string_view name);
/// The tables of the file.
[[nodiscard]] const topologies::Keys& sweep_keys();
/// The JSON Schema of the file.
[[nodiscard]] std::string sweep_file_schema();

}  // namespace parsim::experiment
