// Equal ranks of tensor-parallel groups: the DAG gets what the first one does. Private to
// lowering/.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/cost_model.hpp"
#include "core/exec_dag.hpp"
#include "core/kernel_times.hpp"

namespace parsim::lowering {

/// Which ranks to look for.
struct RankSearch {
  const CostModel* cost = nullptr;  ///< devices of one model that it cannot tell apart are alike
  std::size_t most = std::numeric_limits<std::size_t>::max();  ///< more turned out to differ
  /// Ranks that turned out to differ from the ones before: each begins classes of its own.
  std::vector<std::int32_t> apart{};
  std::shared_ptr<KernelTimes> times{};  ///< of plans before, of these precisions; may be null

  /// Not again as `ranks` were, of which one did something else; 0: it is not known which.
  void learn(const AlikeDevices& ranks, std::int32_t differs);
};

/// What may be the ranks of the plan's tensor- or expert-parallel groups: devices next to each
/// other in every layer, as many as the last cut of some layer has parts, the most of these, in
/// classes of those whose devices are alike; null if there are none.
[[nodiscard]] std::shared_ptr<const AlikeDevices> ranks_of(const Plan& plan, const Cluster& cluster,
                                                           const RankSearch& search);

/// Appends operations to a DAG: of the first rank of each class, which is called the first one
/// here, and of other ranks the collectives. What others do by themselves is compared with what the
/// first one did as the same one in a row: it must be the same kind of operation, take as long,
/// move as many bytes and wait for the same operations, those of other ranks being taken for the
/// first one's. So is a collective of some ranks, such as that of a tensor-parallel group among the
/// ranks that share experts: it is compared with that of as many ranks as far apart from each
/// other, from the first one on. By induction, all ranks then do the same at the same dates, as
/// long as links treat them alike, which is for the simulator to find out.
class RankFold {
 public:
  explicit RankFold(ExecDag& dag) : dag_(dag) {}
  /// From now on. The cost model must outlive it.
  void fold(std::shared_ptr<const AlikeDevices> ranks, const RankSearch& search);
  /// Ranks differ: the DAG is of no use.
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] const AlikeDevices& ranks() const { return *ranks_; }
  /// The rank that did something else than the first one of its class; 0: another reason.
  [[nodiscard]] std::int32_t differs() const { return differs_; }

  // As in ExecDag; the id of the first rank's operation.
  OpId add(const Compute& op, const std::vector<OpId>& after);
  OpId add(const Update& op, const std::vector<OpId>& after);
  OpId add(const Local& op, const std::vector<OpId>& after);
  OpId add(const Transfer& op, Stream stream, const std::vector<OpId>& after);
  OpId add(const Collective& op, const Shares& shares, Stream stream,
           const std::vector<OpId>& after);
  /// After the last operation: ranks differ, too, if one did less than the first one, or received
  /// what others did not.
  void end();

 private:
  enum class Members : std::uint8_t { unknown, all_ranks, some_ranks, others };
  /// A group of devices.
  struct Group {
    Members members = Members::unknown;
    // Of some ranks:
    DeviceId leader;        ///< the first one
    std::size_t shape = 0;  ///< of which ranks, from the kept one on that is like the leader's
    std::size_t done = 0;   ///< collectives
  };
  [[nodiscard]] std::int32_t rank(DeviceId device) const { return ranks_->unit_of[device.index()]; }
  [[nodiscard]] Group& group_of(GroupId id);
  [[nodiscard]] Group find(const std::vector<DeviceId>& members);
  /// Whether two works of one layer take as long in each pass, and mean the same.
  [[nodiscard]] bool alike(WorkId a, WorkId b, Pass pass, DeviceId device);
  [[nodiscard]] bool alike(const Slice& a, const Slice& b) const;
  /// Of messages of the first rank and another one, to a third.
  [[nodiscard]] bool receivers_alike(const Transfer& a, const Transfer& b);
  /// Whether each member has as much, and needs as much of each other one.
  [[nodiscard]] bool alike(const Shares& a, const Shares& b) const;
  [[nodiscard]] bool shares_alike(OpId a, OpId b);
  /// The operation of `done`, by the first rank, that is number `at` in a row for a device of
  /// another rank, if it waits for the same ones; null if ranks differ.
  [[nodiscard]] OpId next(const std::vector<OpId>& done, std::size_t& at, DeviceId device,
                          const std::vector<OpId>& after);
  /// Of a kernel or what else a device does by itself.
  template <class Kind, class Equal>
  OpId add_own(const Kind& op, const std::vector<OpId>& after, Equal equal);
  /// The operation of the first rank that is `op` of another one, of one kind and `equal` to it.
  template <class Kind, class Equal>
  [[nodiscard]] OpId same(const Kind& op, DeviceId device, const std::vector<OpId>& after,
                          Equal equal);
  OpId fail() {
    failed_ = true;
    return {};
  }
  /// Because of what a device of another rank does.
  OpId fail(DeviceId device) {
    if (!failed_) differs_ = rank(device);
    return fail();
  }
  /// Of the first rank: `own` is its new operation.
  OpId did(DeviceId device, OpId own) {
    done_[device.index()].push_back(own);
    return own;
  }
  [[nodiscard]] DeviceId first(DeviceId device) const { return ranks_->kept(device); }

  ExecDag& dag_;
  std::shared_ptr<const AlikeDevices> ranks_;
  std::shared_ptr<KernelTimes> times_;
  bool failed_ = false;
  std::int32_t differs_ = 0;
  // By device: of the first rank what it did, of others how much of it they have done.
  std::vector<std::vector<OpId>> done_;
  std::vector<std::size_t> number_;
  std::vector<Group> groups_;  ///< by GroupId
  std::map<std::vector<std::int32_t>, std::size_t> shapes_;
  std::vector<std::vector<OpId>> collectives_;  ///< by shape, of groups with the first rank
  /// By shares of two collectives (OpRecord::to).
  std::map<std::pair<std::int32_t, std::int32_t>, bool> shares_alike_;
  /// By work of another rank: the first rank's that it was compared with, and in which passes.
  struct Compared {
    WorkId with;
    std::uint8_t passes = 0, alike = 0;  ///< a bit for each
  };
  std::vector<Compared> compared_;
};

}  // namespace parsim::lowering
