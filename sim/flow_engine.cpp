#include "sim/flow_engine.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "sim/sim.hpp"
#include "sim/simgrid_files.hpp"
#include "sim/simgrid_library.hpp"
#include "sim/simgrid_process.hpp"

namespace parsim::sim {

namespace {

struct Loaded {
  const SimgridLibrary* library = nullptr;
  std::string failure;  ///< why there is none
};

/// Of a library that is there: what this machine has too little of.
[[noreturn]] void refuse_lack(std::string_view what) {
  throw RefusedByMachine(
      fmt::format("{}; accepted: higher limits (ulimit -a shows them), or --engine fast", what));
}

/// The loader reads files only: one in memory.
Loaded load() {
  std::optional<MemoryFile> file;
  try {
    file.emplace(simgrid_library_file());
  } catch (const std::system_error& error) {
    refuse_lack("no file in memory for SimGrid: " + error.code().message());
  }
  // Local: SimGrid exports the functions of MPI, which a program that holds this one may have, too.
  void* handle = ::dlopen(file->path().c_str(), RTLD_LAZY | RTLD_LOCAL);
  void* entry = handle == nullptr ? nullptr : ::dlsym(handle, "parsim_simgrid_library");
  Loaded loaded;
  if (entry != nullptr) {
    loaded.library = reinterpret_cast<SimgridEntry>(entry)();
  } else if (const char* reason = ::dlerror()) {
    loaded.failure = reason;
  }
  return loaded;
}

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

}  // namespace

std::string lack_of(std::string_view failure) {
  for (const int error : {EMFILE, ENFILE, ENOMEM, EACCES, EPERM}) {
    const std::string reason = std::generic_category().message(error);
    if (failure.find(reason) != std::string_view::npos) return reason;
  }
  // The loader of glibc keeps why to itself.
  const bool unmapped = failure.find("failed to map segment") != std::string_view::npos;
  return unmapped ? std::generic_category().message(ENOMEM) : std::string();
}

const SimgridLibrary& simgrid_library() {
  if (loaded().library == nullptr) {
    if (const std::string reason = lack_of(loaded().failure); !reason.empty()) {
      refuse_lack("SimGrid cannot be loaded: " + reason);
    }
    throw InputError("--engine", "SimGrid cannot be loaded: " + loaded().failure,
                     "accepted: fast, or on Debian: apt-get install libsimgrid-dev");
  }
  return *loaded().library;
}

SimgridFound find_simgrid() {
  const SimgridLibrary* library = loaded().library;
  return {library == nullptr ? "" : library->version(), loaded().failure};
}

std::vector<std::string> simgrid_settings() {
  return {
      "network/model:CM02",      // the default LV08 multiplies latencies by 13.01, rates by 0.97
      "network/crosstraffic:0",  // 1 would add 5 % of acknowledgements on the way back
      "network/TCP-gamma:1e30",  // no TCP window: it caps a 10 us path at 210 GB/s
      "network/optim:Lazy",      // the default: only what a change touched is computed again
  };
}

struct FlowEngine::Impl {
  const SimgridLibrary& library = simgrid_library();
  SimgridFlows* flows = nullptr;
  std::unique_ptr<SimgridProcess> process;  ///< instead of flows
  ~Impl() {
    if (flows != nullptr) library.destroy(flows);
  }
};

FlowEngine::FlowEngine(const Cluster& cluster, std::span<const Route* const> routes,
                       Handler on_date, Handler on_end, std::span<const RateChange> changes,
                       SimgridIn where)
    : impl_(std::make_unique<Impl>()) {
  for (const Route* route : routes) {
    ensure(!route->hops.empty(), "a flow crosses at least one link");
  }
  const std::vector<std::string> settings = simgrid_settings();
  if (where == SimgridIn::own_process) {
    impl_->process = std::make_unique<SimgridProcess>(cluster, routes, std::move(on_date),
                                                      std::move(on_end), changes, settings);
  } else {
    impl_->flows = impl_->library.make(cluster, routes, std::move(on_date), std::move(on_end),
                                       changes, settings);
  }
}

FlowEngine::~FlowEngine() = default;

Seconds FlowEngine::now() const {
  return impl_->process ? impl_->process->now() : impl_->library.now();
}

void FlowEngine::wake_at(Seconds date, std::int64_t token) {
  if (impl_->process) return impl_->process->wake_at(date, token);
  impl_->library.wake_at(*impl_->flows, date, token);
}

void FlowEngine::start(std::size_t route, Bytes payload, std::int64_t token) {
  if (impl_->process) return impl_->process->start(route, payload, token);
  impl_->library.start(*impl_->flows, route, payload, token);
}

void FlowEngine::run() {
  if (impl_->process) return impl_->process->run();
  impl_->library.run(*impl_->flows);
}

}  // namespace parsim::sim
