// A lower bound of a step's time from its kernels alone. Private to lowering/.
#pragma once

#include <cstddef>
#include <vector>

#include "lowering/plan_fragments.hpp"

namespace parsim::lowering {

/// A device works through its kernels one by one, after the layers before its first one and before
/// the layers whose gradients follow from its last one. Nothing else is counted.
struct StepBound {
  struct Device {
    double before = 0;  ///< seconds until its first kernel can begin
    double work = 0;    ///< of all its kernels
    double after = 0;   ///< from the end of its last kernel
  };
  std::vector<Device> devices;  ///< by id

  /// Of a plan whose layers have been found, with prices.
  void find(const PlanFragments& parts, std::size_t device_count);

 private:
  std::vector<double> before_, after_;  ///< by layer
};

}  // namespace parsim::lowering
