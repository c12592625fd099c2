// Runs DAG files on the host engine, computing and paced, under ThreadSanitizer: it ends the
// program with an error if two threads touch memory in no order.
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>

#include "core/json.hpp"
#include "hw/host.hpp"

int main(int count, char** arguments) try {
  using namespace parsim;
  for (int a = 1; a < count; ++a) {
    std::ifstream file(arguments[a]);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const ExecDag dag = dag_from_json(text, arguments[a]);
    const hw::Dispatch order = hw::dispatch(dag);
    hw::HostNumbers numbers(dag);
    Seconds busy{};
    for (int run = 0; run < 5; ++run) busy += makespan(numbers.run(order));
    const std::vector<Seconds> durations(dag.size(), std::chrono::microseconds(20));
    busy += makespan(hw::run_paced(dag, order, durations));
    std::printf("%s: %zu operations on %zu threads, %.3f s\n", arguments[a], dag.size(),
                order.lanes.size(), busy.count());
  }
  return count > 1 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
