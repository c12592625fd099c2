// What files are called, and whether they are the same as before.
#pragma once

#include <string>
#include <string_view>

namespace parsim::experiment {

/// True if the path names something that is not a directory.
[[nodiscard]] bool file_exists(const std::string& path);

/// The file that a word of the command line reads, or "": a path, one before ",device=NAME", or the
/// config.json of a model's folder.
[[nodiscard]] std::string file_of(const std::string& given);

/// FNV-1a, 64 bits, as 16 hexadecimal digits: tells whether an input is the one it was. Not against
/// forgery. Source: Fowler, Noll & Vo, draft-eastlake-fnv.
[[nodiscard]] std::string fnv1a64(std::string_view bytes);

/// The same bytes as a gzip file; without a time stamp, so that equal texts give equal files.
[[nodiscard]] std::string gzip(std::string_view bytes);

/// Makes the folder unless there is one; returns whether it is new. `where` is the flag, for
/// messages. Throws InputError.
bool make_folder(const std::string& path, std::string_view where);

}  // namespace parsim::experiment
