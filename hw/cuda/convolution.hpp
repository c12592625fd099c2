// Convolutions through cuDNN's graph API: a plan is chosen by its heuristics once and executed
// often. Plans can also be made for a described device, with no GPU and no driver.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hw/convolutions.hpp"

struct cudnnContext;

namespace parsim::hw {

class ConvPlan {
 public:
  /// The first plan that cuDNN's heuristics offer and that can be made; null if there is none.
  /// multiprocessors   what the heuristics may count on
  [[nodiscard]] static std::unique_ptr<ConvPlan> make(cudnnContext* handle, const ConvShape& shape,
                                                      int multiprocessors);
  /// The same for a device described as cuDNN's JSON; it cannot be executed. Throws HardwareError
  /// if cuDNN does not take the description.
  [[nodiscard]] static std::unique_ptr<ConvPlan> describe(const std::string& device_json,
                                                          const ConvShape& shape);
  ~ConvPlan();
  ConvPlan(const ConvPlan&) = delete;
  ConvPlan& operator=(const ConvPlan&) = delete;

  [[nodiscard]] std::int64_t workspace_bytes() const { return workspace_; }
  /// On the handle's stream. Pointers: x or dx, w or dw, y or dy.
  void run(cudnnContext* handle, void* x, void* w, void* y, void* workspace) const;

 private:
  struct Parts;
  ConvPlan();
  static std::unique_ptr<ConvPlan> build(cudnnContext* handle, const std::string& device_json,
                                         const ConvShape& shape, int multiprocessors);

  std::unique_ptr<Parts> parts_;
  std::int64_t workspace_ = 0;
};

}  // namespace parsim::hw
