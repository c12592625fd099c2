// The file of a sweep: which calls of 'compare' it asks for. See docs/sweep.md.
//
//     [options]                 # of every point, as on the command line, without dashes
//     cluster = "star:8,device=v100-sxm2,rate={rate},latency=1us"
//     [axes]                    # every combination; a name that is no option is a variable,
//     network = ["resnet50", "vgg16"]                     # for use in braces
//     rate = ["10GB/s", "25GB/s"]
//     [[zip]]                   # values that change together
//     tp = [1, 2]
//     pp = [8, 4]
//     [[skip]]                  # leaves out the points that have all of these values
//     network = "vgg16"
//     tp = [2]
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "experiment/options.hpp"
#include "topologies/document.hpp"

namespace parsim::experiment {

/// What a column says in a point: nothing if the option is not given, several texts of an option
/// that repeats, one empty text of a flag.
using SweepValue = std::vector<std::string>;

/// An option or variable of a sweep file.
struct SweepColumn {
  std::string name;                ///< as in the file: "batch"
  const Option* option;            ///< null: a variable
  std::string where;               ///< file:line:key, for messages
  std::vector<SweepValue> values;  ///< all that the file lists; one if it is fixed
};

struct SweepPoint {
  std::string id;                     ///< the hash of canonical inputs and version, 16 digits
  std::vector<std::uint32_t> choice;  ///< by column: index of its value
};

struct Sweep {
  std::string id;  ///< the hash of all points
  std::string version;
  std::vector<SweepColumn> columns;  ///< fixed ones first, else in the order of the file
  std::vector<SweepPoint> points;    ///< the last axis changes fastest
  std::size_t skipped = 0;           ///< by [[skip]] and [[only]]
  std::size_t repeated = 0;          ///< left out because an earlier point has the same inputs

  /// What the column says in a point, with variables filled in.
  [[nodiscard]] SweepValue value(const SweepPoint& point, std::size_t column) const;
  /// The point as a call of 'compare'.
  [[nodiscard]] Arguments arguments(const SweepPoint& point) const;
};

constexpr std::size_t most_points = 1'000'000;

/// Reads a sweep. Two files with the same points, in the same order, have the same `id`; a point's
/// id depends on its options (defaults included), on the content of files that they name, and on
/// `version`, not on how the file spells them. Throws InputError with file:line:key for unknown
/// keys and options, values that no option accepts, unused variables, and a sweep without points or
/// with more than `most_points`.
///
/// poll   called while points are numbered, which may take seconds; throws to give up
[[nodiscard]] Sweep read_sweep(std::string_view text, const std::string& file,
                               const std::string& version, const std::function<void()>& poll = {});
/// The same of a table that is part of a file.
[[nodiscard]] Sweep read_sweep(const topologies::Value& root, const std::string& file,
                               const std::string& version);

}  // namespace parsim::experiment
