// Exit codes of parsim and parsim-hw.
#pragma once

namespace parsim {

/// Exit codes; scripts rely on them.
struct ExitCode {
  static constexpr int ok = 0, bug = 1, usage = 2, hardware = 3, unfinished = 4, does_not_fit = 5;
};

}  // namespace parsim
