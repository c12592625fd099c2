// Runs DAG files on the host engine, computing and sleeping, under ThreadSanitizer: it ends the
// program with an error if two threads touch memory in no order.
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "core/errors.hpp"
#include "core/json.hpp"
#include "hw/host.hpp"
#include "hw/memory_contention.hpp"
#include "tests/hw/ranks.hpp"

namespace {

using namespace parsim;

/// The same with a device to each of several ranks, which are threads here: their messages too.
void in_processes(const ExecDag& dag) {
  for (const std::string& said : testing::ranks(hw::stores(dag).devices, [&](auto& processes) {
         hw::HostNumbers numbers(dag, processes);
         const hw::Dispatch own = hw::dispatch(dag, DeviceId{processes.rank()});
         for (int run = 0; run < 3; ++run) static_cast<void>(numbers.run(own));
         return std::string();
       })) {
    ensure(said.empty(), said);
  }
}

}  // namespace

int main(int count, char** arguments) try {
  for (int a = 1; a < count; ++a) {
    std::ifstream file(arguments[a]);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const ExecDag dag = dag_from_json(text, arguments[a]);
    const hw::Dispatch order = hw::dispatch(dag);
    hw::HostNumbers numbers(dag);
    Seconds busy{};
    for (int run = 0; run < 5; ++run) busy += makespan(numbers.run(order));
    hw::Clock clock(hw::ClockKind::virtual_time);
    hw::MemoryContention memory(std::vector<BytesPerSecond>(order.streams.size(), {1e9}), {1.5e9},
                                clock);
    const auto sleep = [&](OpId op) {
      const hw::StreamOp stream_op = order.stream_ops_of(op).front();
      memory.sleep(std::array{DeviceId{stream_op.stream}}, std::chrono::microseconds(20),
                   Bytes{20'000});
    };
    busy += makespan(hw::run_on_threads(dag, order, sleep, clock));
    in_processes(dag);
    std::printf("%s: %zu operations on %zu threads, %.3f s\n", arguments[a], dag.size(),
                order.streams.size(), busy.count());
  }
  return count > 1 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
