// The page of validate --report: predicted against measured, errors by set and by class of
// operations. In one file, in the style of the other page.
#pragma once

#include <string>
#include <vector>

#include "app/document.hpp"

namespace parsim {

/// The page of a validation's report.
///
/// document   what goes to standard output; its JSON has the rows that are drawn
/// command    as typed, without the program
[[nodiscard]] std::string render_validation_page(const Document& document,
                                                 const std::vector<std::string>& command);

}  // namespace parsim
