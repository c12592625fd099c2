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

}  // namespace

TEST_CASE("claims: every case is predicted") {
  for (const Unresolved& item : predicted().unresolved) {
    CAPTURE(item.name);
    CHECK(item.reason == "");
  }
  CHECK(!predicted().rows.empty());
}

TEST_CASE("claims: no promise is broken") {
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

TEST_CASE("claims: figure 7 at 2 to 4 GPUs within a median of 15 %") {
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

TEST_CASE("claims: model U saves at least 95 % of AlexNet's volume at batch 128") {
  std::size_t rows = 0;
  for (const ValidationRow& row : predicted().rows) {
    if (row.claim.quantity != "volume-saved" || row.claim.at("model") != "U") continue;
    CAPTURE(row.claim.name);
    CHECK(row.predicted >= 0.95);
    ++rows;
  }
  CHECK(rows == 3);
}

TEST_CASE("claims: figure 7 orders layer-wise, one weird trick and data in every cell") {
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

}  // namespace parsim
