// What another rank does ends the fold if it differs from what the first one did in one thing.
#include "lowering/rank_fold.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/notation.hpp"
#include "tests/support/world.hpp"

namespace parsim::lowering {
namespace {

/// All kernels take as long, but for outputs that begin at `slow` along the channels.
class EqualKernels final : public CostModel {
 public:
  Cost compute(const Network&, LayerId, const Part& part, Pass, DeviceId,
               Precision) const override {
    return {Seconds{part.out[1].begin == slow ? 2e-6 : 1e-6}, Origin::guessed};
  }
  Cost memory(DeviceId, Bytes) const override { return {Seconds{1e-6}, Origin::guessed}; }
  Seconds transfer(DeviceId, DeviceId, Bytes) const override { return Seconds{1e-6}; }
  Seconds collective(CollectiveKind, std::span<const DeviceId>, Bytes) const override {
    return Seconds{1e-6};
  }
  std::string summary() const override { return "equal"; }
  static constexpr std::int64_t slow = 5;
};

constexpr DeviceId d0{std::size_t{0}}, d1{std::size_t{1}}, d2{std::size_t{2}}, d3{std::size_t{3}};

/// A DAG of `ranks` ranks of one class, of one device each, or of two with `groups` 2: rank r has
/// devices r and ranks + r.
struct Folding {
  ExecDag dag{testing::network_of("x: image 3x4x4; conv 8 k3 p1; dense 10; loss"), 8,
              Precision::fp32, Optimizer::momentum};
  EqualKernels cost;
  RankFold fold{dag};

  explicit Folding(std::size_t ranks = 2, std::size_t groups = 1) {
    std::vector<std::vector<DeviceId>> units(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      for (std::size_t g = 0; g < groups; ++g) units[r].emplace_back(g * ranks + r);
    }
    const RankSearch search{&cost};
    fold.fold(std::make_shared<const AlikeDevices>(units, std::vector<std::size_t>(ranks, 0),
                                                   ranks * groups),
              search);
  }

  /// Of the convolution: all samples, these channels, all rows and columns.
  RegionId channels(std::int64_t begin, std::int64_t end) {
    return dag.intern(Region{{0, 8}, {begin, end}, {0, 4}, {0, 4}});
  }
  Slice output(RegionId region, Role role = Role::activation, std::int32_t micro_batch = 0) {
    return {dag.intern(Tensor{Tensor::Kind::output, 1}), role, micro_batch, region};
  }
  bool failed() {
    fold.end();
    return fold.failed();
  }
};

TEST_CASE("rank fold: kernels are alike in layer, size, time, pass and micro-batch") {
  const auto fails = [](const std::function<void(Folding&, Work&, Compute&)>& change) {
    Folding folding;
    Work work{LayerId{std::size_t{1}}, folding.channels(0, 3), 0, 4};
    (void)folding.fold.add(Compute{folding.dag.intern(work), Pass::forward, d0, 0}, {});
    work.out = folding.channels(3, 6);
    Compute other{{}, Pass::forward, d1, 0};
    change(folding, work, other);
    other.work = folding.dag.intern(work);
    (void)folding.fold.add(other, {});
    return folding.failed();
  };
  CHECK_FALSE(fails([](Folding&, Work&, Compute&) {}));
  CHECK_FALSE(fails([](Folding&, Work& work, Compute&) {  // as many terms, others
    work.contraction_begin = 4;
    work.contraction_end = 8;
  }));
  CHECK(fails([](Folding& of, Work& work, Compute&) { work.out = of.channels(3, 5); }));
  CHECK(fails([](Folding& of, Work& work, Compute&) {  // as large, slower
    work.out = of.channels(EqualKernels::slow, EqualKernels::slow + 3);
  }));
  CHECK(fails([](Folding&, Work& work, Compute&) { work.layer = LayerId{std::size_t{2}}; }));
  CHECK(fails([](Folding&, Work& work, Compute&) { work.contraction_end = 3; }));
  CHECK(fails([](Folding&, Work& work, Compute&) { work.edges_to_partial_sum = 1; }));
  CHECK(fails([](Folding&, Work& work, Compute&) { work.zigzag = 2; }));
  CHECK(fails([](Folding&, Work& work, Compute&) { work.class_parts = 2; }));
  CHECK(fails([](Folding&, Work&, Compute& op) { op.pass = Pass::backward; }));
  CHECK(fails([](Folding&, Work&, Compute& op) { op.micro_batch = 1; }));
}

TEST_CASE("rank fold: each rank does as much, in the same order, after the same operations") {
  const auto work = [](Folding& folding, std::int64_t begin) {
    return folding.dag.intern(
        Work{LayerId{std::size_t{1}}, folding.channels(begin, begin + 3), 0, 0});
  };
  const auto compute = [&](Folding& folding, DeviceId device, std::vector<OpId> after) {
    return folding.fold.add(Compute{work(folding, device == d0 ? 0 : 3), Pass::forward, device, 0},
                            after);
  };
  {
    Folding folding;
    const OpId first = compute(folding, d0, {}), same = compute(folding, d1, {});
    CHECK(same == first);  // what waits for the other rank's waits for the first one's
    (void)compute(folding, d0, {first});
    (void)compute(folding, d1, {same});
    CHECK_FALSE(folding.failed());
    CHECK(folding.dag.size() == 2);
  }
  {
    Folding folding;  // less
    (void)compute(folding, d0, {});
    CHECK(folding.failed());
    CHECK(folding.fold.differs() == 1);
  }
  {
    Folding folding;  // more
    (void)compute(folding, d1, {});
    CHECK(folding.failed());
  }
  {
    Folding folding;  // after something else
    const OpId first = compute(folding, d0, {}), same = compute(folding, d1, {});
    (void)compute(folding, d0, {first});
    (void)compute(folding, d1, {});
    CHECK(same == first);
    CHECK(folding.failed());
  }
  {
    Folding folding;  // another kind of operation
    (void)compute(folding, d0, {});
    (void)folding.fold.add(Update{d1, folding.output(folding.channels(0, 3))}, {});
    CHECK(folding.failed());
  }
}

TEST_CASE("rank fold: updates and copies are alike in kind, role, micro-batch and elements") {
  const auto update_fails = [](Role role, std::int32_t micro_batch, std::int64_t channels) {
    Folding folding;
    (void)folding.fold.add(Update{d0, folding.output(folding.channels(0, 3), Role::weight)}, {});
    const Slice other = folding.output(folding.channels(3, 3 + channels), role, micro_batch);
    (void)folding.fold.add(Update{d1, other}, {});
    return folding.failed();
  };
  CHECK_FALSE(update_fails(Role::weight, 0, 3));
  CHECK(update_fails(Role::optimizer_state, 0, 3));
  CHECK(update_fails(Role::weight, 1, 3));
  CHECK(update_fails(Role::weight, 0, 2));
  const auto copy_fails = [](LocalKind kind, std::int64_t from, std::int64_t to) {
    Folding folding;
    const auto slice = [&](std::int64_t begin, std::int64_t channels) {
      return folding.output(folding.channels(begin, begin + channels));
    };
    (void)folding.fold.add(Local{LocalKind::copy, d0, slice(0, 3), slice(0, 3)}, {});
    (void)folding.fold.add(Local{kind, d1, slice(3, from), slice(3, to)}, {});
    return folding.failed();
  };
  CHECK_FALSE(copy_fails(LocalKind::copy, 3, 3));
  CHECK(copy_fails(LocalKind::add, 3, 3));
  CHECK(copy_fails(LocalKind::copy, 2, 3));
  CHECK(copy_fails(LocalKind::copy, 3, 2));
}

TEST_CASE("rank fold: messages within a rank are alike in receiver, stream, effect and elements") {
  const auto fails = [](const std::function<void(Folding&, Transfer&, Stream&)>& change) {
    Folding folding(2, 2);  // ranks {d0, d2} and {d1, d3}
    const auto slice = [&](std::int64_t begin) {
      return folding.output(folding.channels(begin, begin + 3));
    };
    (void)folding.fold.add(Transfer{d0, d2, slice(0), slice(0), false}, Stream::tensor, {});
    Transfer other{d1, d3, slice(3), slice(3), false};
    Stream stream = Stream::tensor;
    change(folding, other, stream);
    (void)folding.fold.add(other, stream, {});
    return folding.failed();
  };
  CHECK_FALSE(fails([](Folding&, Transfer&, Stream&) {}));
  CHECK(fails([](Folding&, Transfer&, Stream& stream) { stream = Stream::pipeline; }));
  CHECK(fails([](Folding&, Transfer& op, Stream&) { op.add = true; }));
  CHECK(fails([](Folding&, Transfer& op, Stream&) { op.to = d1; }));
  CHECK(fails([](Folding&, Transfer& op, Stream&) { op.to = d2; }));
  CHECK(fails([](Folding& of, Transfer& op, Stream&) { op.slice = of.output(of.channels(3, 5)); }));
  CHECK(
      fails([](Folding& of, Transfer& op, Stream&) { op.target = of.output(of.channels(3, 5)); }));
}

TEST_CASE("rank fold: of messages between ranks each rank receives one") {
  // Three ranks of one device. `to[r]` is whom rank r's messages go to, one after the other.
  const auto fails = [](const std::vector<std::vector<std::size_t>>& to) {
    Folding folding(3);
    const Slice slice = folding.output(folding.channels(0, 3));
    for (std::size_t r = 0; r < 3; ++r) {
      for (const std::size_t receiver : to[r]) {
        (void)folding.fold.add(Transfer{DeviceId{r}, DeviceId{receiver}, slice, slice, false},
                               Stream::tensor, {});
      }
    }
    return folding.failed();
  };
  CHECK_FALSE(fails({{1}, {2}, {0}}));
  CHECK_FALSE(fails({{1, 1}, {2, 2}, {0, 0}}));
  CHECK(fails({{1}, {2}, {1}}));  // one receives two, and one nothing
  CHECK(fails({{1}, {0}, {0}}));
  CHECK(fails({{1, 1}, {2, 0}, {0, 0}}));  // a second one goes elsewhere
  CHECK(fails({{1}, {2}, {2}}));           // to itself
}

TEST_CASE("rank fold: messages between ranks go to devices that are alike") {
  const auto fails = [](DeviceId to) {
    Folding folding(2, 2);  // ranks {d0, d2} and {d1, d3}
    const Slice slice = folding.output(folding.channels(0, 3));
    (void)folding.fold.add(Transfer{d0, d1, slice, slice, false}, Stream::tensor, {});
    (void)folding.fold.add(Transfer{d1, to, slice, slice, false}, Stream::tensor, {});
    return folding.failed();
  };
  CHECK_FALSE(fails(d0));
  CHECK(fails(d2));
}

TEST_CASE("ranks: groups have the same devices in the same order in every layer") {
  const testing::World world("lenet5", "nodes:2x2,device=v100-sxm2,intra=50GB/s,inter=10GB/s");
  using Devices = std::vector<std::size_t>;
  const auto ranks = [&](const Devices& of_one_layer, const Devices& of_others = {0, 1, 2, 3}) {
    Plan plan;
    for (const Devices& devices : {of_others, of_one_layer, of_others}) {
      LayerPlan& layer = plan.layers.emplace_back();
      layer.cuts = {{Dim::sample, std::vector<std::int64_t>(devices.size() / 2, 4)},
                    {Dim::channel, std::vector<std::int64_t>{2, 2}}};
      for (const std::size_t device : devices) layer.devices.emplace_back(device);
    }
    return ranks_of(plan, world.cluster, {world.cost.get()});
  };
  REQUIRE(ranks({0, 1, 2, 3}) != nullptr);
  const std::vector<std::vector<DeviceId>> units{{d0, d2}, {d1, d3}};
  CHECK(ranks({0, 1, 2, 3})->devices == units);
  CHECK(ranks({2, 3, 0, 1})->devices == units);  // groups may be in another order
  CHECK(ranks({1, 0, 2, 3}) == nullptr);
  CHECK(ranks({0, 2, 1, 3}) == nullptr);
  CHECK(ranks({0, 3, 2, 1}) == nullptr);
  CHECK(ranks({2, 3}) != nullptr);
  CHECK(ranks({1, 2}) == nullptr);                      // of two groups elsewhere
  CHECK(ranks({0, 3, 1, 2}, {0, 3, 1, 2}) == nullptr);  // not ascending in one rank
}

TEST_CASE("rank fold: collectives of some ranks are alike in kind, stream, bytes and shares") {
  struct Other {
    CollectiveKind kind = CollectiveKind::all_gather;
    Stream stream = Stream::tensor;
    std::int64_t channels = 4, first = 2;
    bool after = false;
  };
  const auto fails = [](const Other& other, bool once_more = false,
                        CollectiveKind of_first = CollectiveKind::all_gather) {
    Folding folding(4);  // groups {d0, d1} and {d2, d3}
    const auto add = [&](const std::vector<DeviceId>& members, std::int64_t begin, const Other& of,
                         const std::vector<OpId>& after) {
      const std::int64_t middle = begin + of.first, end = begin + of.channels;
      const Slice slice = folding.output(folding.channels(begin, end));
      (void)folding.fold.add(
          Collective{of.kind, folding.dag.intern(members), slice, slice},
          of.kind == CollectiveKind::all_reduce
              ? Shares{}
              : Shares{{folding.channels(begin, middle), folding.channels(middle, end)}, {}},
          of.stream, after);
    };
    const Slice slice = folding.output(folding.channels(0, 3));
    std::vector<OpId> done;
    for (const DeviceId device : {d0, d1, d2, d3})
      done.push_back(folding.fold.add(Update{device, slice}, {}));
    add({d0, d1}, 0, {.kind = of_first}, {});
    add({d2, d3}, 4, other, other.after ? std::vector{done[2]} : std::vector<OpId>{});
    if (once_more) add({d0, d1}, 0, {}, {});
    return folding.failed();
  };
  CHECK_FALSE(fails({}));
  CHECK(fails({}, true));
  CHECK(fails({.kind = CollectiveKind::reduce_scatter}));
  CHECK(fails({.kind = CollectiveKind::all_reduce}));
  CHECK(fails({.stream = Stream::gradient}));
  CHECK(fails({.channels = 3}));
  CHECK(fails({.first = 1}));
  CHECK(fails({.after = true}));
  // Sums have no shares.
  const CollectiveKind sum = CollectiveKind::all_reduce;
  CHECK_FALSE(fails({.kind = sum}, false, sum));
  CHECK(fails({.kind = sum, .channels = 3}, false, sum));
}

TEST_CASE("ranks: those of other models are of other classes") {
  const testing::World world("lenet5", "star:4,device=p100-sxm2*1+v100-sxm2*3,rate=10GB/s");
  Plan plan;
  LayerPlan& layer = plan.layers.emplace_back();
  layer.cuts = {{Dim::channel, std::vector<std::int64_t>(4, 2)}};
  layer.devices = std::vector<DeviceId>{d0, d1, d2, d3};
  class Alike final : public CostModel {
   public:
    std::int32_t alike(DeviceId) const override { return 0; }
    Cost compute(const Network&, LayerId, const Part&, Pass, DeviceId, Precision) const override {
      return {};
    }
    Cost memory(DeviceId, Bytes) const override { return {}; }
    Seconds transfer(DeviceId, DeviceId, Bytes) const override { return {}; }
    Seconds collective(CollectiveKind, std::span<const DeviceId>, Bytes) const override {
      return {};
    }
    std::string summary() const override { return "alike"; }
  };
  const Alike cost;
  const auto ranks = ranks_of(plan, world.cluster, {&cost});
  REQUIRE(ranks != nullptr);
  CHECK(ranks->classes == std::vector<std::vector<std::size_t>>{{0}, {1, 2, 3}});
}

}  // namespace
}  // namespace parsim::lowering
