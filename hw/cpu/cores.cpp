#include "hw/cpu/cores.hpp"

#include <fmt/format.h>
#include <omp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "core/errors.hpp"
#include "hw/hardware.hpp"

namespace parsim::hw {

namespace {

std::vector<int> cores_of_this_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

void stay_on(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  static_cast<void>(::sched_setaffinity(0, sizeof set, &set));  // else the scheduler chooses
}

/// As sched_setattr(2); glibc has had it since 2.41 only.
struct SchedulerRequest {
  std::uint32_t size = 48, policy = SCHED_OTHER;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t slice_ns = 0, deadline = 0, period = 0;
};
static_assert(sizeof(SchedulerRequest) == 48);

void ask_for_short_slices() {
  SchedulerRequest request;
  request.nice = ::getpriority(PRIO_PROCESS, 0);
  request.slice_ns = 100'000;  // the shortest there is
  static_cast<void>(
      ::syscall(SYS_sched_setattr, 0, &request, 0U));  // older ones ignore or refuse it
}

std::string name_of_cpu() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

/// FLOP of a core per cycle: two fused multiply-adds of the widest vectors.
double flops_per_cycle() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto has = [&](dnnl::cpu_isa one) {
    return (isa & static_cast<unsigned>(one)) == static_cast<unsigned>(one);
  };
  return has(dnnl::cpu_isa::avx512_core) ? 64 : has(dnnl::cpu_isa::avx2) ? 32 : 16;
}

}  // namespace

CpuCores::CpuCores(const std::vector<int>& partition) {
  const std::vector<int> all = cores_of_this_process();
  const std::vector<int> wanted =
      partition.empty() ? std::vector{static_cast<int>(all.size())} : partition;
  auto next = all.begin();
  for (const int count : wanted) {
    if (all.end() - next < count) {
      throw InputError(
          "--partition", fmt::format("more than {} cores", all.size()),
          fmt::format("accepted on this machine: cores of every device, {} at most", all.size()));
    }
    of_device_.emplace_back(next, next + count);
    next += count;
  }
}

void CpuCores::count_on(DeviceId device) const { omp_set_num_threads(count(device)); }

void CpuCores::use(DeviceId device, bool moves) const {
  if (moves) ask_for_short_slices();
  count_on(device);
  const std::vector<int>& own = of_device_[device.index()];
#pragma omp parallel
  {
    stay_on(own[static_cast<std::size_t>(omp_get_thread_num()) % own.size()]);
#ifdef __SSE2__
    constexpr unsigned zero_denormals = 0x8040;  // FTZ and DAZ
    _mm_setcsr(_mm_getcsr() | zero_denormals);
#endif
  }
}

Machine CpuCores::machine() const {
  constexpr double cycles_per_second = 2.5e9;
  constexpr BytesPerSecond core_memory_rate{10e9}, link_rate{5e9};
  constexpr Seconds link_latency{5e-6};
  Machine machine;
  machine.backend = "cpu";
  machine.name = name_of_cpu();
  const dnnl::version_t* version = dnnl::version();
  machine.versions = {
      {"parsim-hw", "1"},
      {"oneDNN", fmt::format("{}.{}.{}", version->major, version->minor, version->patch)}};
  machine.clocks = "wall clock; frequencies are the machine's own affair";
  Cluster& cluster = machine.cluster;
  cluster.name = machine.name;
  cluster.nodes = {{"node"}};
  double cores = 0;
  for (const std::vector<int>& own : of_device_) cores += static_cast<double>(own.size());
  const double memory =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  for (std::size_t d = 0; d < of_device_.size(); ++d) {
    const auto own = static_cast<double>(of_device_[d].size());
    DeviceModel model;
    model.name = fmt::format("cpu-{}", of_device_[d].size());
    model.multiprocessors = static_cast<int>(of_device_[d].size());
    model.peak.fill({own * cycles_per_second * flops_per_cycle()});
    model.memory_rate = {own * core_memory_rate.value};
    model.memory = {static_cast<std::int64_t>(memory * own / cores)};
    model.provenance = {{"*", Label::guessed, "instruction set, 2.5 GHz and 10 GB/s of a core"}};
    const auto found =
        std::find_if(cluster.models.begin(), cluster.models.end(),
                     [&](const DeviceModel& other) { return other.name == model.name; });
    const auto index = static_cast<std::int32_t>(found - cluster.models.begin());
    if (found == cluster.models.end()) cluster.models.push_back(model);
    cluster.devices.push_back({fmt::format("cpu{}", d), index, NodeId{0}, model.memory});
  }
  connect_as_star(machine, std::vector<std::pair<BytesPerSecond, Seconds>>(
                               of_device_.size(), {link_rate, link_latency}));
  return machine;
}

}  // namespace parsim::hw
