// Where tensors lie: never two on the same bytes whose uses the streams do not order.
#include "hw/memory_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "lowering/lower.hpp"
#include "strategies/strategies.hpp"
#include "tests/hw/runnable.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {
namespace {

constexpr std::size_t alignment = 16;
/// Small weight gradients give way, too.
constexpr hw::MemoryRules reuse_all{true, false, 0};

/// A tensor's bytes for as long as it is written once.
struct Buffer {
  hw::StoreKey key;
  std::size_t begin = 0, end = 0;
  std::vector<std::size_t> uses;  ///< stream operations
};

std::vector<Buffer> buffers_of(const ExecDag& dag, const hw::Dispatch& order,
                               const hw::Stores& stores, const hw::MemoryPlan& plan) {
  std::map<std::pair<hw::StoreKey, std::size_t>, Buffer> all;  // by key and number of the place
  const std::vector<bool> trained = hw::trained_layers(dag.network);
  for (std::size_t i = 0; i < dag.size(); ++i) {
    hw::for_each_use(dag, OpId{i}, trained, [&](const hw::TensorSlice& slice, hw::Use use) {
      if (slice.region.empty() || use == hw::Use::names) return;
      if (plan.given_back.contains({slice.key, OpId{i}})) return;  // nothing is done
      const auto& places = plan.places.at(slice.key);
      std::size_t place = 0;
      while (place + 1 < places.size() && places[place + 1].from.index() <= i) ++place;
      Buffer& buffer = all[{slice.key, place}];
      buffer.key = slice.key;
      buffer.begin = plan.offset(slice.key, OpId{i});
      const std::int64_t each = slice.key.role == Role::optimizer_state ? 4 : 4;
      buffer.end =
          buffer.begin + static_cast<std::size_t>(stores.all.at(slice.key).box.volume() * each);
      const std::size_t first = order.first_stream_op[i], end = order.first_stream_op[i + 1];
      std::size_t own = first;
      for (std::size_t t = first; t < end; ++t) {
        const auto stream = static_cast<std::size_t>(order.stream_ops[t].stream);
        if (order.streams[stream].device == slice.key.device) own = t;
      }
      buffer.uses.push_back(own);
    });
  }
  std::vector<Buffer> list;
  for (const auto& [number, buffer] : all) list.push_back(buffer);
  return list;
}

/// By stream operation: which others have ended before it begins, step by step from neighbours.
std::vector<std::vector<bool>> ended_before(const hw::Dispatch& order) {
  std::vector<std::vector<bool>> before;
  std::map<std::int32_t, std::size_t> last;
  for (std::size_t t = 0; t < order.stream_ops.size(); ++t) {
    std::vector<bool> all(order.stream_ops.size());
    const auto take = [&](std::size_t other) {
      all[other] = true;
      for (std::size_t o = 0; o < other; ++o) all[o] = all[o] || before[other][o];
    };
    const hw::StreamOp& stream_op = order.stream_ops[t];
    if (last.contains(stream_op.stream)) take(last[stream_op.stream]);
    for (const std::uint32_t wait : order.waits_of(stream_op)) take(wait);
    last[stream_op.stream] = t;
    before.push_back(std::move(all));
  }
  return before;
}

/// The first two buffers on common bytes of which not all of one is over when the other begins.
std::string clash(const std::vector<Buffer>& buffers, const hw::Dispatch& order) {
  const auto before = ended_before(order);
  const auto over = [&](const Buffer& a, const Buffer& b) {
    for (const std::size_t x : a.uses) {
      for (const std::size_t y : b.uses) {
        if (!before[y][x]) return false;
      }
    }
    return true;
  };
  for (std::size_t a = 0; a < buffers.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const Buffer &one = buffers[a], &other = buffers[b];
      if (one.key.device != other.key.device || one.end <= other.begin || other.end <= one.begin)
        continue;
      if (!over(one, other) && !over(other, one)) {
        return "tensors " + std::to_string(one.key.tensor.index) + " and " +
               std::to_string(other.key.tensor.index) + " share bytes";
      }
    }
  }
  return "";
}

}  // namespace

TEST_CASE("memory plan: tensors share bytes only if the streams order their uses") {
  const std::vector<Network> networks = runnable_networks();
  double planned = 0, least = 0, apart = 0, worst = 1;
  std::size_t dropped = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const Network& network = networks[seed % networks.size()];
    const std::size_t gpus = 1 + seed / networks.size() % 4;
    Plan random = with_split_states(random_plan(network, gpus, 8, seed), seed);
    if (seed % 3 == 0) {
      for (LayerPlan& layer : random.layers) layer.recompute = true;
    }
    const ExecDag dag = lowering::lower(network, star_of(gpus + 1, "10 GB/s", "1us"), random);
    const hw::Dispatch order = hw::dispatch(dag);
    const hw::Stores stores = hw::stores(dag, true);
    const hw::MemoryPlan plan = hw::plan_memory(dag, order, stores, 4, alignment, reuse_all);
    const hw::MemoryPlan own = hw::plan_memory(dag, order, stores, 4, alignment, {false, true});
    CAPTURE(network.name);
    CAPTURE(seed);
    dropped += plan.given_back.size();
    for (const auto* each : {&plan, &own}) {
      const std::vector<Buffer> buffers = buffers_of(dag, order, stores, *each);
      CHECK(clash(buffers, order) == "");
      for (const Buffer& buffer : buffers) {
        CHECK(buffer.begin % alignment == 0);
        CHECK(buffer.end <= each->devices[buffer.key.device.index()].total);
      }
    }
    for (std::size_t d = 0; d < plan.devices.size(); ++d) {
      CHECK(plan.devices[d].total >= plan.devices[d].least);
      CHECK(plan.devices[d].total <= own.devices[d].total);
      planned += static_cast<double>(plan.devices[d].total);
      least += static_cast<double>(plan.devices[d].least);
      apart += static_cast<double>(own.devices[d].total);
      if (plan.devices[d].least > 0) {
        worst = std::max(worst, static_cast<double>(plan.devices[d].total) /
                                    static_cast<double>(plan.devices[d].least));
      }
    }
  }
  MESSAGE("bytes over the lower bound: " << planned / least << ", at most " << worst
                                         << "; of those of tensors apart: " << planned / apart);
  CHECK(planned < 1.05 * least);
  CHECK(planned < apart);
  CHECK(dropped > 10);
}

TEST_CASE("memory plan: on one device the lower bound is what a walk through the step counts") {
  for (const Network& network : runnable_networks()) {
    const ExecDag dag =
        lowering::lower(network, star_of(1, "10 GB/s", "1us"), single_device_plan(network, 4));
    const hw::Dispatch order = hw::dispatch(dag);
    const hw::Stores stores = hw::stores(dag, true);
    const hw::MemoryPlan plan = hw::plan_memory(dag, order, stores, 4, 1, reuse_all);
    std::map<hw::StoreKey, std::pair<std::size_t, std::size_t>> used;  // first and last operation
    for (std::size_t i = 0; i < dag.size(); ++i) {
      hw::for_each_use(dag, OpId{i}, hw::trained_layers(network),
                       [&](const hw::TensorSlice& slice, hw::Use use) {
                         if (slice.region.empty() || use == hw::Use::names) return;
                         used.try_emplace(slice.key, i, i).first->second.second = i;
                       });
    }
    std::size_t most = 0;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      std::size_t sum = 0;
      for (const auto& [key, store] : stores.all) {
        const bool input = key.role == Role::activation &&
                           network[LayerId{key.tensor.index}].kind.as<Input>() != nullptr;
        const bool stays = input || key.role == Role::weight || key.role == Role::optimizer_state;
        const auto [first, last] = used.at(key);
        if (stays || (first <= i && i <= last))
          sum += 4 * static_cast<std::size_t>(store.box.volume());
      }
      most = std::max(most, sum);
    }
    CAPTURE(network.name);
    CHECK(plan.devices[0].least == most);
  }
}

TEST_CASE("memory plan: what must begin as zero is set to zero by what uses it first") {
  const Network network = tiny_network("residual");
  const ExecDag dag =
      lowering::lower(network, star_of(3, "10 GB/s", "1us"), random_plan(network, 2, 8, 5));
  const hw::Dispatch order = hw::dispatch(dag);
  const hw::Stores stores = hw::stores(dag, true);
  for (const bool small_ones_stay : {true, false}) {
    const hw::MemoryPlan plan = hw::plan_memory(dag, order, stores, 4, alignment,
                                                small_ones_stay ? hw::MemoryRules{} : reuse_all);
    std::map<hw::StoreKey, int> zeroed;
    for (const auto& keys : plan.begins_as_zero) {
      for (const hw::StoreKey& key : keys) ++zeroed[key];
    }
    int later = 0;
    for (const auto& [key, store] : stores.all) {
      bool begins = key.role == Role::gradient || key.role == Role::partial_sum;
      if (key.role == Role::weight_gradient) {
        const bool from_start = plan.offset(key, OpId{0}) < plan.devices[key.device.index()].zeroed;
        CHECK((from_start || !small_ones_stay));
        begins = !from_start;
        later += begins ? 1 : 0;
      }
      CHECK(zeroed[key] <= (begins ? 1 : 0));
    }
    CHECK((later > 0) == !small_ones_stay);
  }
}

}  // namespace parsim::testing
