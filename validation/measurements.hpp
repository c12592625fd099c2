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
/// Of its column `split`; without one, or empty: validate. An unscored row whose column `needs` is
/// not empty becomes what `split_when_ready` says once nothing of it is missing. Throws InputError
/// for another word.
[[nodiscard]] Split split_of(const Claim& claim);
/// What the row's column `needs` names and no prediction can express yet, as "vp, cp"; "" if
/// nothing.
[[nodiscard]] std::string missing_needs(const Claim& claim);

/// The rows of a table as claims of one set, all of its columns in `what`, and the line as "line".
/// The columns decide the quantity:
///
///     size_bytes                        "collective-time"   time_us_outofplace, else _inplace; us
///     fwd_ms, bwd_ms or total_ms        "step-time"         total_ms, else their sum; ms
///     value                             "throughput"        value, in `unit`
///
/// A run that failed for want of memory has no value, and a `status` that says so ("out of memory",
/// "OOM", "failed", "did not run"): it did not run (Claim::ran), and only its memory is predicted.
///
/// Throws InputError with file:line for a text that is no such table, or no number where one is
/// needed.
[[nodiscard]] std::vector<Claim> read_measurements(std::string_view csv, const std::string& file,
                                                   const std::string& set);

/// The tables of validation/measurements, by name.
[[nodiscard]] std::vector<Claim> published_measurements();

/// Our names for what others call a thing (validation/aliases.toml).
enum class AliasKind : std::uint8_t { network, device, cluster };
/// True if the text begins with the name and goes on, if it does, with something else: "A100-SXM4"
/// and "A100 80GB" begin with "A100", "A1000" does not. Only letters and digits count, in any case;
/// a size of memory may stand right behind ("A100-SXM4-80" in "A100-SXM4-80GB"). A device's name
/// goes on with no other letter ("L40S" is no "L40") and no word that makes it another card ("Ti").
[[nodiscard]] bool begins_with_name(AliasKind kind, std::string_view text, std::string_view name);
/// Nothing if the table has no alias. A name of the table matches texts that begin with it, the
/// longest one wins. An alias may ask for words that must be found in `hint`, the rest of the row.
[[nodiscard]] std::optional<std::string> resolve_alias(AliasKind kind, std::string_view text,
                                                       std::string_view hint = {});

}  // namespace parsim
