// Published measurements: tables of what others have measured, one claim per row, and the names
// they use for networks, GPUs and machines.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "validation/validation.hpp"

namespace parsim {

/// What a row may be used for.
enum class Split : std::uint8_t { calibrate, validate, unscored };
/// Of its column `split`; without one, or empty: validate. Throws InputError for another word.
[[nodiscard]] Split split_of(const Claim& claim);

/// Whether the run came to an end: not where `status` says that it "did not run" or ran out of
/// memory ("OOM"). Such a row needs no value, and its claim expects nothing.
[[nodiscard]] bool ran(const Claim& claim);

/// The rows of a table as claims of one set, all of its columns in `what`, and the line as "line".
/// The columns decide the quantity:
///
///     size_bytes                        "collective-time"   time_us_outofplace, else _inplace; us
///     fwd_ms, bwd_ms or total_ms        "step-time"         total_ms, else their sum; ms
///     value                             "throughput"        value, in `unit`
///
/// Throws InputError with file:line for a text that is no such table, or no number where one is
/// needed.
[[nodiscard]] std::vector<Claim> read_measurements(std::string_view csv, const std::string& file,
                                                   const std::string& set);

/// The tables of validation/measurements, by name.
[[nodiscard]] std::vector<Claim> published_measurements();

/// Our names for what others call a thing (validation/aliases.toml).
enum class AliasKind : std::uint8_t { network, device, cluster };
/// Nothing if the table has no alias. Only letters and digits count, in any case; a name of the
/// table matches texts that begin with it, the longest one wins. An alias may ask for words that
/// must be found in `hint`, the rest of the row.
[[nodiscard]] std::optional<std::string> resolve_alias(AliasKind kind, std::string_view text,
                                                       std::string_view hint = {});

}  // namespace parsim
