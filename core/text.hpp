// Text of numbers, for messages and reports.
#pragma once

#include <string>

namespace parsim {

/// Three significant digits, more only where the integer part has more; "-" for NaN.
[[nodiscard]] std::string three_digits(double value);

}  // namespace parsim
