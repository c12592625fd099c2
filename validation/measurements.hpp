// Published measurements: tables with one claim per row, and aliases of the networks, GPUs and
// machines they name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "validation/validation.hpp"

namespace parsim::validation {

/// What a row may be used for.
enum class Split : std::uint8_t { calibrate, validate, unscored };
/// Of column `split`; validate if it is absent or empty. An unscored row becomes what
/// `split_when_ready` gives once everything in its column `needs` can be expressed. Throws
/// InputError for another text.
[[nodiscard]] Split split_of(const Claim& claim);
/// Column `recompute`; without it `op` where `notes` say "selective (per operation)", as of
/// torchtitan's runs.
[[nodiscard]] std::string recompute_text(const Claim& claim);
/// The features in the row's column `needs` that predictions cannot express yet: "ep, cp"; "" if
/// none.
[[nodiscard]] std::string missing_needs(const Claim& claim);

/// The rows of a table as claims of one set, all of its columns in `what`, and the line as "line".
/// The columns decide the quantity:
///
///     size_bytes, or collective and     "collective-time"   time_us_outofplace, else _inplace; us
///     data_MiB (of one rank's tensor)
///     fwd_ms, bwd_ms or total_ms        "step-time"         total_ms, else their sum; ms
///     value                             "throughput"        value, in `unit`
///     m, n, k or head_dim               "kernel-time"       sustained_us, else median_us, else
///                                                           time_us; us
///
/// A run that failed for lack of memory has no value, and "out of memory", "OOM", "failed" or "did
/// not run" in its `status`: Claim::ran is false, and only its memory is predicted.
///
/// Throws InputError with file:line for another table, or a missing number.
[[nodiscard]] std::vector<Claim> read_measurements(std::string_view csv, const std::string& file,
                                                   const std::string& set);

/// The tables of validation/measurements, by name.
[[nodiscard]] std::vector<Claim> published_measurements();

/// Aliases: parsim's names for those of other sources (validation/aliases.toml).
enum class AliasKind : std::uint8_t { network, device, cluster };
/// True if the text begins with the name: "A100-SXM4" and "A100 80GB" begin with "A100", "A1000"
/// does not. Only letters and digits count, in any case; a memory size may follow directly
/// ("A100-SXM4-80" in "A100-SXM4-80GB"). After the name of a device no other letter may follow
/// ("L40S" is no "L40") and no suffix of another card ("Ti").
[[nodiscard]] bool begins_with_name(AliasKind kind, std::string_view text, std::string_view name);
/// Nothing if the table has no alias. An alias matches texts that begin with it; the longest wins.
/// An alias may require words in `hint`, the rest of the row.
///
/// at_least   an alias of fewer letters and digits than this name does not count
/// from       if not null, becomes the alias that matches
[[nodiscard]] std::optional<std::string> resolve_alias(AliasKind kind, std::string_view text,
                                                       std::string_view hint = {},
                                                       std::string_view at_least = {},
                                                       std::string* from = nullptr);

}  // namespace parsim::validation
