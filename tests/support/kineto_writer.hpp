// Writes traces as PyTorch's profiler does, event by event.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace parsim::testing {

/// What record_shapes=True notes of an operator.
struct WrittenShapes {
  std::vector<std::vector<std::int64_t>> dims{};
  std::vector<std::string> values{};  ///< "Concrete Inputs"
  std::string type = "float";
};

/// Times are microseconds.
class KinetoWriter {
 public:
  using Json = nlohmann::ordered_json;
  /// An operator on the host; returns its "External id".
  std::int64_t op(const std::string& name, double start, double length,
                  const WrittenShapes& shapes = {}, std::int64_t sequence = -1, int thread = 1);
  void annotation(const std::string& name, double start, double length);
  /// A call of a module of Python, "Linear_0", with the lines of Python around it.
  void module(const std::string& name, double start, double length, int thread = 1);
  /// Work on the GPU that operator `external` starts at `launched` on its thread of the host.
  void kernel(const std::string& name, double start, double length, std::int64_t external,
              double launched, int stream = 7, const std::string& category = "kernel");

  Json head = Json::object();  ///< members of the file before the events
  std::vector<Json> events;    ///< in the order of the calls
  [[nodiscard]] std::string text() const;

 private:
  std::int64_t next_ = 1;
  std::map<std::int64_t, int> threads_{};  ///< of operators
};

/// Training of the built-in network `mlp` on GPU 1 of 2, 64 samples each: three complete steps of
/// 300, 310 and 320 us, and a fourth that the end cuts off. Of each:
///
///     products      forward 20 + 30 + 10, backward 8 + 12 + 30 + 35 + 25            170 us
///     element-wise  forward 3 + 3 + 5, backward 5 + 4 + 4                            24
///     optimizer                                                                     40
///     copies        after the optimizer                                              7
///     all-reduce    93, of which no kernel hides                                    40
///     idle          the rest                                              19, 29 or 39
///
/// Modules: MLP_0 calls Linear_0, ReLU_0, Linear_1, ReLU_0, Linear_2 and the loss,
/// CrossEntropyLoss_0.
[[nodiscard]] KinetoWriter mlp_trace();

}  // namespace parsim::testing
