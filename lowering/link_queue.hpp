// When a link is busy, for the walk's timer. Private to lowering/.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace parsim::lowering {

/// A link that carries one message after the other, in issue order except where a later one fits
/// into a gap: while an activation is awaited from the stage before, a gradient may arrive from the
/// stage after. Of the gaps only the last `remembered` are known. Times are seconds.
class LinkQueue {
 public:
  /// Enough for what a deep pipeline with many micro-batches leaves open; with a handful, messages
  /// between stages waited here that did not wait in simulations.
  static constexpr std::size_t remembered = 64;

  /// When a message that is ready at `start` has been carried.
  double carry(double start, double seconds) {
    for (std::size_t g = 1; start < gaps_[newest_].end && g <= gaps_.size(); ++g) {  // oldest first
      Gap& gap = gaps_[(newest_ + g) % gaps_.size()];
      const double begin = std::max(start, gap.begin);
      if (begin + seconds <= gap.end) return gap.begin = begin + seconds;
    }
    if (start > busy_) {
      newest_ = (newest_ + 1) % gaps_.size();
      gaps_[newest_] = {busy_, start};
    }
    return busy_ = std::max(busy_, start) + seconds;
  }

 private:
  struct Gap {
    double begin = 0, end = 0;
  };
  double busy_ = 0;
  std::array<Gap, remembered> gaps_{};
  std::size_t newest_ = 0;
};

}  // namespace parsim::lowering
