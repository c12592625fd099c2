// The processes of a launch by MPI. Only parsim-hw may link it: libsimgrid exports MPI's functions.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "hw/processes.hpp"

namespace parsim::hw {

namespace {

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw LaunchError(fmt::format("{}: {}", call, text.data()));
}

int as_int(std::size_t value, const char* what) {
  constexpr auto most = static_cast<std::size_t>(std::numeric_limits<int>::max());
  if (value > most) throw LaunchError(fmt::format("MPI has no {} of {}", what, value));
  return static_cast<int>(value);
}

/// mpirun, or srun with PMI or PMIx, started this process.
bool started_by_launcher() {
  constexpr std::array names{"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK"};
  return std::any_of(names.begin(), names.end(),
                     [](const char* name) { return std::getenv(name) != nullptr; });
}

}  // namespace

struct Processes::Transport {
  struct Leaving {
    std::string bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  std::mutex lock;  ///< MPI_THREAD_SERIALIZED: one call at a time
  std::list<Leaving> leaving;

  void drop_sent() {
    leaving.remove_if([](Leaving& message) {
      int done = 0;
      check(MPI_Test(&message.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      return done != 0;
    });
  }

  /// Looks again and again: MPI's own waiting would keep a processor busy for each thread.
  template <class Done>
  void wait_until(const Done& done) {
    for (;;) {
      {
        const std::lock_guard guard(lock);
        drop_sent();
        if (done()) return;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
};

std::unique_ptr<Processes> Processes::launched() {
  if (!started_by_launcher()) {
    check_alone();
    return nullptr;
  }
  int provided = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_SERIALIZED) {
    throw LaunchError("this MPI allows calls of one thread only");
  }
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int rank = 0, size = 1, local_rank = 0;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  MPI_Comm here = MPI_COMM_NULL;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &here),
        "MPI_Comm_split_type");
  check(MPI_Comm_rank(here, &local_rank), "MPI_Comm_rank");
  check(MPI_Comm_free(&here), "MPI_Comm_free");
  auto processes =
      std::make_unique<Processes>(rank, size, local_rank, std::make_unique<Transport>());
  if (size > 1) return processes;
  check_alone();
  return nullptr;
}

Processes::Processes(int rank, int size, int local_rank, std::unique_ptr<Transport> transport)
    : rank_(rank), size_(size), local_rank_(local_rank), transport_(std::move(transport)) {}

Processes::~Processes() {
  transport_->wait_until([&] { return transport_->leaving.empty(); });
  MPI_Finalize();
}

void Processes::send(int rank, std::size_t tag, const std::string& bytes) {
  const int count = as_int(bytes.size(), "message");
  const std::lock_guard guard(transport_->lock);
  transport_->drop_sent();
  Transport::Leaving& message = transport_->leaving.emplace_back();
  message.bytes = bytes;
  check(MPI_Isend(message.bytes.data(), count, MPI_BYTE, rank, as_int(tag, "tag"), MPI_COMM_WORLD,
                  &message.request),
        "MPI_Isend");
}

std::string Processes::receive(int rank, std::size_t tag) {
  std::string bytes;
  MPI_Request request = MPI_REQUEST_NULL;
  bool begun = false;
  transport_->wait_until([&] {
    int done = 0;
    if (!begun) {
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status;
      check(MPI_Improbe(rank, as_int(tag, "tag"), MPI_COMM_WORLD, &done, &message, &status),
            "MPI_Improbe");
      if (done == 0) return false;
      int count = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
      bytes.resize(static_cast<std::size_t>(count));
      check(MPI_Imrecv(bytes.data(), count, MPI_BYTE, &message, &request), "MPI_Imrecv");
      begun = true;
    }
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  });
  return bytes;
}

void Processes::abort(int exit_code) {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace parsim::hw
