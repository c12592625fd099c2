// Parts of a search that do not depend on each other, in processes of their own where the caller
// has some (StrategyInput::at_once). Results and errors are the same with and without.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/packed.hpp"
#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// How a part of a search ended in another process: with a value, or what it threw.
[[nodiscard]] std::string packed_end(const std::function<void(Packer&)>& work);
/// What is left to read is the value; throws what packed_end's work did.
[[nodiscard]] Unpacker value_of_end(const std::string& text);

/// Values that can be packed, one for each of `count` calls of `work`. In other processes all are
/// made at once; else each is made when it is taken, so that those that are not taken cost nothing.
template <class T>
class AtOnce {
 public:
  /// `work` gets an input whose parts are not divided further.
  AtOnce(const StrategyInput& input, std::size_t count,
         std::function<T(const StrategyInput&, std::size_t)> work)
      : input_(input), work_(std::move(work)) {
    if (!input.at_once || count < 2) return;
    StrategyInput inner = input;
    inner.at_once = {};
    ends_ = input.at_once(count, [&](std::size_t i) {
      return packed_end([&](Packer& packer) { packer.put(work_(inner, i)); });
    });
  }
  /// To be called once for an index. Throws what `work` did.
  [[nodiscard]] T take(std::size_t i) {
    if (ends_.empty()) return work_(input_, i);
    const std::string end = std::exchange(ends_[i], {});
    return value_of_end(end).template get<T>();
  }

 private:
  const StrategyInput& input_;
  std::function<T(const StrategyInput&, std::size_t)> work_;
  std::vector<std::string> ends_;
};

}  // namespace parsim::strategies
