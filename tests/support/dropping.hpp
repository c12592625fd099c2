// What a device computes again is gone in between.
#pragma once

#include <map>
#include <vector>

#include "tests/support/interpreter.hpp"

namespace parsim::testing {

/// Makes outputs that are computed again vanish, so that a reader between notices: from the last
/// operation that touches them the first time to the first one that computes them again.
class Dropping {
 public:
  Dropping(const ExecDag& dag, Memory& memory);
  void before(OpId id);
  void after(OpId id);

 private:
  struct Dropped {
    std::vector<Region> regions;
    OpId again;          ///< the first operation that computes some of it again
    int users_left = 0;  ///< operations before that one
    bool is_back = false;
  };

  [[nodiscard]] StoreKey output_of(const Compute& op) const;
  /// Outputs to be dropped that the operation reads or writes before they are.
  [[nodiscard]] std::vector<StoreKey> touched(OpId id) const;

  const ExecDag& dag_;
  Memory& memory_;
  std::map<StoreKey, Dropped> outputs_;
};

}  // namespace parsim::testing
