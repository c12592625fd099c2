// The report of 'parsim buy'.
#pragma once

#include <string>

#include "experiment/buy.hpp"
#include "report/document.hpp"

namespace parsim::report {

/// What was asked, as given.
struct BuyInputs {
  std::string budget, power, years, job, own, offers;  ///< "" where not given
};

[[nodiscard]] Document report_purchases(const experiment::BuyRequest& request,
                                        const experiment::BuyAnswer& answer,
                                        const BuyInputs& inputs);
/// The JSON Schema of its JSON.
[[nodiscard]] std::string buy_schema();

}  // namespace parsim::report
