// What 'parsim buy' reads: machines that are offered, and the job that they are for
// (docs/money.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.hpp"
#include "experiment/options.hpp"

namespace parsim::experiment {

/// A machine that can be bought or rented.
struct Offer {
  std::string name;
  std::optional<Money> price;        ///< of a purchase
  std::optional<MoneyPerHour> rent;  ///< exactly one of the two
  DeviceModel model;
  std::int64_t gpus = 1, cards = 1;
  BytesPerSecond intra{}, inter{};
  Seconds latency{};
  std::optional<LinkKind> within{}, between{};
  std::optional<Watts> power{};  ///< of the machine; its devices' if it is not given
  std::int64_t most = 0;         ///< machines
  std::string date, label, source;
};

/// One training run.
struct Job {
  Arguments arguments;  ///< of 'compare', without a cluster
  std::int64_t samples = 0, batch = 0;
  std::optional<std::int64_t> runs{};    ///< wanted in the years; absent: as many as they hold
  std::optional<Seconds> within{};       ///< longest run
  std::optional<Money> kilowatt_hour{};  ///< price of electricity
};

/// Throws InputError with file, line and key.
[[nodiscard]] std::vector<Offer> read_offers(std::string_view text, const std::string& file);
[[nodiscard]] Job read_job(std::string_view text, const std::string& file,
                           const std::string& version);
/// The JSON Schema of files of offers.
[[nodiscard]] std::string offers_schema();

}  // namespace parsim::experiment
