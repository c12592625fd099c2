// What other clusters would bring: each is planned anew. Asked for the page of 'compare'.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiment/run.hpp"

namespace parsim::experiment {

/// Another cluster, and the plan for it.
struct WhatIf {
  enum class Kind : std::uint8_t { half_memory, without, one_more } kind = Kind::half_memory;
  std::string change;                 ///< "without the 24 x v100-sxm2"
  std::optional<RunResult> result{};  ///< nothing: no plan that fits was found
  /// The best plan stays: it does without what is left out, or none with one more is faster.
  bool unused = false;
};

struct WhatIfs {
  std::string strategy;  ///< that plans them
  Seconds step{};        ///< of its plan for the cluster as it is
  std::vector<WhatIf> rows;
};

/// Half the memory in every GPU; without the GPUs of each type, but that with the highest peak in
/// all; and one more machine of each kind. The batch stays. Plans come from the strategy of the
/// best row, or, if that is `best`, which searches long, of the best other row; with that row's
/// memory options, or where nothing fits with more of them, unless the request has named some.
/// Nothing where no row fits, where a file or hardware has decided on the plan, and for runs of so
/// many operations that asking takes long.
///
/// results   as complete_rows() has left them
[[nodiscard]] WhatIfs what_if(const Experiment& experiment, const std::vector<RunResult>& results,
                              bool quiet);

}  // namespace parsim::experiment
