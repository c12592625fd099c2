// Collectives with the same flows: gradients of many layers are summed alike.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "sim/op_flows.hpp"
#include "sim/open_hops.hpp"

namespace parsim::sim {

/// Remembers collectives by what decides their flows.
class RepeatedCollectives {
 public:
  RepeatedCollectives(const ExecDag& dag, const PreparedDag& prepared)
      : dag_(dag), prepared_(prepared) {}
  struct First {
    Communication communication;
    double reduced = 0;     ///< bytes reduced in the network
    std::size_t times = 0;  ///< that it came again
  };
  /// The first one with the flows of `op`, which is counted; null if that is a transfer or the
  /// first one itself.
  [[nodiscard]] const First* again(OpId op) {
    const auto found = first_.find(key_of(op));
    if (found == first_.end() || dag_.kind(op) != OpKind::collective) return nullptr;
    ++found->second.times;
    return &found->second;
  }
  void remember(const Communication& communication, double reduced) {
    if (dag_.kind(communication.op) == OpKind::collective)
      first_.try_emplace(key_of(communication.op), First{communication, reduced});
  }
  /// Adds the bytes of those that came again, by hop. Bytes are whole, so that their order does not
  /// matter.
  void add_bytes(Fidelity fidelity, std::vector<double>& hop_bytes,
                 std::vector<double>& bytes_within) const {
    OpFlows flows;
    for (const auto& [key, first] : first_) {
      if (first.times == 0) continue;
      const OpId op = first.communication.op;
      std::vector<double> bytes(hop_bytes.size());
      double reduced = 0;
      flows_of(dag_, prepared_, op, fidelity, {{}, bytes, reduced}, flows);
      std::vector<double>& all = dag_.in_each_unit(op) ? bytes_within : hop_bytes;
      for (std::size_t i = 0; i < bytes.size(); ++i)
        all[i] += static_cast<double>(first.times) * bytes[i];
    }
  }

 private:
  using Key = std::array<std::int64_t, 6>;
  [[nodiscard]] Key key_of(OpId op) const {
    const OpRecord& record = dag_.record(op);
    return {record.sub,
            record.device,
            record.to,
            record.payload,
            static_cast<std::int64_t>(dag_.role(op)),
            prepared_.library.empty() ? -1 : prepared_.library[op.index()]};
  }

  const ExecDag& dag_;
  const PreparedDag& prepared_;
  std::map<Key, First> first_;
};

}  // namespace parsim::sim
