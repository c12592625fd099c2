#include "sim/flow_engine.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "sim/sim.hpp"
#include "sim/simgrid_library.hpp"

// The library's file. A copy of the program elsewhere still has it.
asm(R"(.pushsection .rodata
.global parsim_simgrid_begin
.hidden parsim_simgrid_begin
.global parsim_simgrid_end
.hidden parsim_simgrid_end
parsim_simgrid_begin: .incbin ")" PARSIM_SIMGRID_LIBRARY R"("
parsim_simgrid_end:
.popsection)");
extern "C" const char parsim_simgrid_begin[];
extern "C" const char parsim_simgrid_end[];

namespace parsim::sim {

namespace {

struct Loaded {
  const SimgridLibrary* library = nullptr;
  std::string failure;  ///< why there is none
};

/// The loader reads files only: one in memory.
Loaded load() {
  const std::string_view bytes(parsim_simgrid_begin,
                               static_cast<std::size_t>(parsim_simgrid_end - parsim_simgrid_begin));
  std::optional<MemoryFile> file;
  try {
    file.emplace(bytes);
  } catch (const std::system_error& error) {
    throw RefusedByMachine("no file in memory for SimGrid: " + error.code().message());
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

const SimgridLibrary& simgrid_library() {
  if (loaded().library == nullptr) {
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
  ~Impl() { library.destroy(flows); }
};

FlowEngine::FlowEngine(const Cluster& cluster, std::span<const Route* const> routes,
                       Handler on_date, Handler on_end, std::span<const RateChange> changes)
    : impl_(std::make_unique<Impl>()) {
  for (const Route* route : routes) {
    ensure(!route->hops.empty(), "a flow crosses at least one link");
  }
  impl_->flows = impl_->library.make(cluster, routes, std::move(on_date), std::move(on_end),
                                     changes, simgrid_settings());
}

FlowEngine::~FlowEngine() = default;

Seconds FlowEngine::now() const { return impl_->library.now(); }

void FlowEngine::wake_at(Seconds date, std::int64_t token) {
  impl_->library.wake_at(*impl_->flows, date, token);
}

void FlowEngine::start(std::size_t route, Bytes payload, std::int64_t token) {
  impl_->library.start(*impl_->flows, route, payload, token);
}

void FlowEngine::run() { impl_->library.run(*impl_->flows); }

}  // namespace parsim::sim
