// Steps of the saved DAGs on a GPU: their numbers equal the host's float64. Without a GPU the
// reason is printed and the exit code 77 tells ctest to call it skipped.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "hw/hardware.hpp"

int main(int count, char** arguments) try {
  using namespace parsim;
  std::vector<ExecDag> dags;
  for (int a = 1; a < count; ++a) {
    std::ifstream file(arguments[a]);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    dags.push_back(dag_from_json(text, arguments[a]));
  }
  if (dags.empty()) return 1;
  hw::Hardware hardware;
  try {
    hardware = hw::cuda_hardware({});
    // Three logical devices on one GPU, if it is alone.
    if (hardware.machine.cluster.devices.size() < 3) hardware = hw::cuda_hardware({32, 16, 16});
  } catch (const hw::HardwareError& error) {
    std::printf("SKIPPED: a GPU; %s\n", error.what());
    return 77;
  }
  int failures = 0;
  for (int a = 1; a < count; ++a) {
    hw::check_fits(dags[static_cast<std::size_t>(a) - 1], hardware.machine);
    const std::string difference = hardware.check(dags[static_cast<std::size_t>(a) - 1], 1e-3);
    std::printf("%s: %s\n", arguments[a], difference.empty() ? "equal" : difference.c_str());
    failures += difference.empty() ? 0 : 1;
  }
  return failures == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
