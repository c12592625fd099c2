// What a number that is read may be, if it is not 0, a quantity in base units among them: wider
// than anything that exists, and so narrow that no sum of products and quotients of a few of them
// leaves the range of doubles.
#pragma once

namespace parsim {

inline constexpr double least_number = 1e-18, most_number = 1e24;

}  // namespace parsim
