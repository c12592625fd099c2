// The papers' claims, predicted: what validation/papers promises must hold.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "app/predict_claims.hpp"

namespace parsim {
namespace {

/// All of them, predicted once.
const Validation& predicted() {
  static const Validation all = validate_claims(paper_claims(), predict_claim);
  return all;
}

/// Every case is predicted.
void every_case_is_predicted() {
  for (const Unresolved& item : predicted().unresolved) {
    CAPTURE(item.name);
    CHECK(item.reason == "");
  }
  CHECK(!predicted().rows.empty());
}

/// No promise is broken.
void no_promise_is_broken() {
  std::size_t promises = 0;
  for (const ValidationRow& row : predicted().rows) {
    if (!row.claim.within) continue;
    ++promises;
    CAPTURE(row.claim.set);
    CAPTURE(row.claim.name);
    CAPTURE(row.predicted);
    CAPTURE(row.error());
    CHECK(!row.promise_broken());
  }
  CHECK(promises > 20);
}

/// Figure 7 at 2 to 4 GPUs within a median of 15 %.
void figure_7_within_a_median_of_15_percent() {
  std::size_t sets = 0;
  for (const ValidationSet& set : predicted().sets) {
    for (const char* strategy : {"data", "owt", "layer-wise"}) {
      if (set.name != std::string("layer-wise figure 7, 2 to 4 GPUs: ") + strategy) continue;
      ++sets;
      CAPTURE(set.name);
      CHECK(set.median_error <= 0.15);
    }
  }
  CHECK(sets == 3);
}

/// Model U saves at least 95 % of AlexNet's volume at batch 128.
void model_u_saves_at_least_95_percent() {
  std::size_t rows = 0;
  for (const ValidationRow& row : predicted().rows) {
    if (row.claim.quantity != "volume-saved" || row.claim.at("model") != "U") continue;
    CAPTURE(row.claim.name);
    CHECK(row.predicted >= 0.95);
    ++rows;
  }
  CHECK(rows == 3);
}

/// Figure 7 orders layer-wise, one weird trick and data in every cell.
void figure_7_orders_strategies() {
  std::map<std::pair<std::string, std::string>, std::map<std::string, double>> cells;
  for (const ValidationRow& row : predicted().rows) {
    if (row.claim.quantity != "paper-throughput") continue;
    cells[{row.claim.at("network"), row.claim.at("devices")}][row.claim.at("strategy")] =
        row.predicted;
  }
  CHECK(cells.size() == 12);
  for (const auto& [cell, rates] : cells) {
    CAPTURE(cell.first);
    CAPTURE(cell.second);
    CHECK(rates.at("layer-wise") >= rates.at("owt"));
    CHECK(rates.at("owt") >= rates.at("data"));
  }
}

}  // namespace

// One case, for every case is a process of its own and would predict them all again.
TEST_CASE("claims: what validation/papers promises holds") {
  every_case_is_predicted();
  no_promise_is_broken();
  figure_7_within_a_median_of_15_percent();
  model_u_saves_at_least_95_percent();
  figure_7_orders_strategies();
}

}  // namespace parsim
