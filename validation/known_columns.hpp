// Columns of tables of measurements: those that are read, those that only describe, and names that
// others give them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "validation/validation.hpp"

namespace parsim::validation {

/// Every column that some prediction or report reads. A test compares them with the sources.
[[nodiscard]] std::span<const std::string_view> read_columns();

/// Of these the ones that identify a plan.
[[nodiscard]] std::span<const std::string_view> plan_columns();

/// A column of a step's plan by a name that other trainers and tables use, and parsim's: one of
/// them says the same.
struct OtherName {
  std::string_view other;
  std::vector<std::string_view> ours;
};
[[nodiscard]] const std::vector<OtherName>& other_column_names();

/// The filled columns of a table that nothing reads and that describe nothing, each with the column
/// that may be meant: "tp_size (did you mean 'tp'?), foo". Empty if there are none, and for tables
/// in the columns of other projects (table_formats.hpp). Plan columns by other names are left out
/// where they repeat parsim's.
[[nodiscard]] std::string unread_columns(const std::vector<Claim>& rows);

}  // namespace parsim::validation
