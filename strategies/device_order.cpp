#include "strategies/device_order.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace parsim::strategies {

namespace {

using Order = std::vector<std::size_t>;

/// Sums differ in their last bits by the order of their terms.
constexpr double last_bits = 1e-9;

/// Time of a message between two devices, by position, in the slower direction.
class PairTimes {
 public:
  PairTimes(const StrategyInput& input, const std::vector<DeviceId>& devices)
      : count_(devices.size()), times_(count_ * count_, 0) {
    constexpr Bytes large{16'000'000};
    for (std::size_t a = 0; a < count_; ++a) {
      for (std::size_t b = 0; b < count_; ++b) {
        if (a != b)
          times_[a * count_ + b] = input.cost.transfer(devices[a], devices[b], large).count();
      }
    }
    for (std::size_t a = 0; a < count_; ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        double &there = times_[a * count_ + b], &back = times_[b * count_ + a];
        there = back = std::max(there, back);
      }
    }
  }
  [[nodiscard]] double operator()(std::size_t a, std::size_t b) const {
    return times_[a * count_ + b];
  }

 private:
  std::size_t count_;
  std::vector<double> times_;
};

/// Held and Karp: the least sum of what follows, by the set that is placed and its last member.
Order exact_order(const PairTimes& time, std::size_t count) {
  const std::size_t sets = std::size_t{1} << count;
  std::vector<double> rest(sets * count, 0);
  const auto next = [&](std::size_t set, std::size_t last) {
    std::size_t best = count;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t d = 0; d < count; ++d) {
      if ((set >> d & 1) != 0) continue;
      const double sum =
          (set == 0 ? 0 : time(last, d)) + rest[(set | std::size_t{1} << d) * count + d];
      if (best != count && sum >= least * (1 - last_bits)) continue;
      least = sum;
      best = d;
    }
    return std::pair{least, best};
  };
  for (std::size_t set = sets - 1; set-- > 1;) {
    for (std::size_t last = 0; last < count; ++last) {
      if ((set >> last & 1) != 0) rest[set * count + last] = next(set, last).first;
    }
  }
  Order order;
  for (std::size_t set = 0; order.size() < count;) {
    const std::size_t d = next(set, order.empty() ? 0 : order.back()).second;
    order.push_back(d);
    set |= std::size_t{1} << d;
  }
  return order;
}

/// Reverses stretches as long as that helps; a few sweeps reach where it no longer does.
Order reversed_where_shorter(const PairTimes& time, Order order) {
  constexpr int most_sweeps = 20;
  const std::size_t count = order.size();
  bool better = true;
  for (int sweep = 0; better && sweep < most_sweeps; ++sweep) {
    better = false;
    for (std::size_t i = 0; i + 1 < count; ++i) {
      for (std::size_t j = i + 1; j < count; ++j) {
        double before = 0, after = 0;
        if (i > 0) {
          before += time(order[i - 1], order[i]);
          after += time(order[i - 1], order[j]);
        }
        if (j + 1 < count) {
          before += time(order[j], order[j + 1]);
          after += time(order[i], order[j + 1]);
        }
        if (after >= before * (1 - last_bits)) continue;
        std::reverse(order.begin() + static_cast<std::ptrdiff_t>(i),
                     order.begin() + static_cast<std::ptrdiff_t>(j) + 1);
        better = true;
      }
    }
  }
  return order;
}

}  // namespace

std::vector<DeviceId> in_chain_order(const StrategyInput& input,
                                     const std::vector<DeviceId>& devices) {
  constexpr std::size_t exact_up_to = 12, improved_up_to = 256;
  if (devices.size() < 3 || devices.size() > improved_up_to) return devices;
  const PairTimes time(input, devices);
  Order order(devices.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  order = devices.size() <= exact_up_to ? exact_order(time, devices.size())
                                        : reversed_where_shorter(time, std::move(order));
  std::vector<DeviceId> result;
  for (const std::size_t position : order) result.push_back(devices[position]);
  return result;
}

}  // namespace parsim::strategies
