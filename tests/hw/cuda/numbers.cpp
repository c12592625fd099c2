// Steps of the saved DAGs on a GPU: their numbers equal the host's float64. Without a GPU the
// reason is printed and the exit code 77 tells ctest to call it skipped.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "hw/cuda_executor.hpp"

int main(int count, char** arguments) try {
  using namespace parsim;
  std::vector<ExecDag> dags;
  for (int a = 1; a < count; ++a) {
    std::ifstream file(arguments[a]);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    dags.push_back(dag_from_json(text, arguments[a]));
  }
  if (dags.empty()) return 1;
  std::optional<hw::CudaExecutor> gpus;
  try {
    gpus.emplace(std::vector<int>{});
    // Three logical devices on one GPU, if it is alone.
    if (gpus->hardware().machine.cluster.devices.size() < 3) gpus.emplace(std::vector{32, 16, 16});
  } catch (const hw::HardwareError& error) {
    std::printf("SKIPPED: a GPU; %s\n", error.what());
    return 77;
  }
  int failures = 0;
  for (std::size_t d = 0; d < dags.size(); ++d) {
    const std::string difference = gpus->check(dags[d]);
    std::printf("%s: %s\n", arguments[d + 1], difference.empty() ? "equal" : difference.c_str());
    failures += difference.empty() ? 0 : 1;
  }
  return failures == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
