// What the page says of clusters that are not there: other memory, fewer or more machines.
#pragma once

#include <string>

#include "report/page/page.hpp"

namespace parsim::report {

/// "4 pipeline stages, 8 replicas with samples of their own, ZeRO stage 1", without a capital.
[[nodiscard]] std::string degrees_in_words(const strategies::Degrees& degrees);
/// "+28.0 %", or "no change".
[[nodiscard]] std::string gain_of(Seconds step, Seconds with);

/// What half the memory would do to a best plan that does not fit it; "" if that was not asked.
[[nodiscard]] std::string half_memory_answer(const Page& page);
/// What one more machine of each kind, and leaving out a type of GPU, would bring; "" if that was
/// not asked.
[[nodiscard]] std::string machines_answer(const Page& page);
/// The rows of `what_ifs`; "" if there are none.
[[nodiscard]] std::string other_clusters_of(const Page& page);

}  // namespace parsim::report
