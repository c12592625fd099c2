// When a link is busy, for the walk's timer. Private to lowering/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

namespace parsim::lowering {

/// One message after the other, in issue order except where a later one fits into a gap: while an
/// activation is awaited from the stage before, a gradient may arrive from the stage after. Of the
/// gaps only the last `remembered` are known. Times are seconds.
class MessageQueue {
 public:
  /// Enough for what a deep pipeline with many micro-batches leaves open, and for the messages
  /// between ranks of a tensor-parallel group in a pass through a hundred blocks: with a handful,
  /// messages between stages waited here that did not wait in simulations.
  static constexpr std::size_t remembered = 4096;

  /// When a message that is ready at `start` has been carried.
  double carry(double start, double seconds) {
    if (const auto end = carried_in_gap(start, seconds)) return *end;
    if (start > busy_) remember({busy_, start});
    return busy_ = std::max(busy_, start) + seconds;
  }
  /// When all messages have been carried.
  [[nodiscard]] double busy() const { return busy_; }
  void clear() { busy_ = 0, gaps_.clear(), longest_.clear(), longest_of_blocks_.clear(); }

 private:
  struct Gap {
    double begin, end;
  };
  static constexpr std::size_t block = 32, blocks = 16 * block;
  static_assert(remembered % blocks == 0);

  /// The first of the known gaps that ends no earlier: often one of the last.
  [[nodiscard]] std::size_t first_until(double end) const {
    const auto too_early = [&](const Gap& gap) { return gap.end < end; };
    const std::size_t known = gaps_.size() - std::min(remembered, gaps_.size());
    std::size_t low = known, high = gaps_.size();
    for (std::size_t step = 1; low < high; step *= 2) {
      const std::size_t probe = high - std::min(step, high - known);
      if (too_early(gaps_[probe])) {
        low = probe + 1;
        break;
      }
      high = probe;
    }
    const auto at = [&](std::size_t i) { return gaps_.begin() + static_cast<std::ptrdiff_t>(i); };
    return static_cast<std::size_t>(std::partition_point(at(low), at(high), too_early) -
                                    gaps_.begin());
  }
  std::optional<double> carried_in_gap(double start, double seconds) {
    const double rounding = 1e-15 * busy_;  // of a gap's end
    for (std::size_t i = first_until(start + seconds); i < gaps_.size();) {
      if (i % blocks == 0 && seconds > longest_of_blocks_[i / blocks] + rounding) {
        i += blocks;
        continue;
      }
      double& longest = longest_[i / block];
      const std::size_t end = std::min(gaps_.size(), (i / block + 1) * block);
      const bool whole = i % block == 0;
      double length = 0;
      for (; i < end && seconds <= longest + rounding; ++i) {
        Gap& gap = gaps_[i];
        const double begin = std::max(start, gap.begin);
        if (begin + seconds <= gap.end) return gap.begin = begin + seconds;
        length = std::max(length, gap.end - gap.begin);
      }
      if (i == end && whole) longest = length;
      i = end;
      if (i % blocks == 0) find_longest(i / blocks - 1);
    }
    return std::nullopt;
  }
  /// Again: gaps get shorter.
  void find_longest(std::size_t of_blocks) {
    const auto first = longest_.begin() + static_cast<std::ptrdiff_t>(of_blocks * (blocks / block));
    longest_of_blocks_[of_blocks] = *std::max_element(first, first + blocks / block);
  }
  void remember(Gap gap) {
    if (gaps_.size() == 2 * remembered) {
      forget(gaps_, remembered);
      forget(longest_, remembered / block);
      forget(longest_of_blocks_, remembered / blocks);
    }
    if (gaps_.size() % block == 0) longest_.push_back(0);
    if (gaps_.size() % blocks == 0) longest_of_blocks_.push_back(0);
    const double length = gap.end - gap.begin;
    longest_.back() = std::max(longest_.back(), length);
    longest_of_blocks_.back() = std::max(longest_of_blocks_.back(), length);
    gaps_.push_back(gap);
  }
  template <class Entry>
  static void forget(std::vector<Entry>& entries, std::size_t count) {
    entries.erase(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(count));
  }
  double busy_ = 0;
  std::vector<Gap> gaps_;  ///< in order of time
  // By block of gaps, and by as many gaps as several blocks have: none is longer.
  std::vector<double> longest_, longest_of_blocks_;
};

/// A link that flows share fairly, as in simulations. Sums of gradients are needed by the update
/// only, and those of a group follow each other. So a message meets one sum of each group at a
/// time: with k groups it gets 1 / (k + 1) of the link, and waits for no more than k times its own
/// length, however many sums are queued. All other messages are carried one after the other. A sum
/// that a message overtakes keeps the end that was returned for it; busy() counts the delay.
class LinkQueue {
 public:
  /// When a message that is ready at `start` has been carried.
  double carry(double start, double seconds) {
    const double in_order = all_.carry(start, seconds);
    if (groups() == 0) return in_order;
    const double sums = static_cast<double>(groups()) * seconds;
    return std::min(in_order, awaited_.carry(start, seconds) + sums);
  }
  /// When a sum of gradients that is ready at `start` has been carried.
  double carry_sum(double start, double seconds) {
    if (groups() == 0) awaited_ = all_;
    const double end = all_.carry(start, seconds);
    if (start >= next_round_) {
      before_ = now_;
      now_ = 0;
      next_round_ = end;
    }
    ++now_;
    return end;
  }
  /// When all messages and sums have ended, also those sums that were overtaken.
  [[nodiscard]] double busy() const { return all_.busy(); }
  void clear() {
    all_.clear();
    now_ = before_ = 0;
    next_round_ = 0;
  }

 private:
  /// How many sum at once: the second sum of a group starts no earlier than its first one ends.
  [[nodiscard]] int groups() const { return std::max(now_, before_); }

  MessageQueue all_;
  MessageQueue awaited_;      ///< all but sums; from the first of them on
  int now_ = 0, before_ = 0;  ///< groups in this round of sums and in the one before
  double next_round_ = 0;
};

}  // namespace parsim::lowering
