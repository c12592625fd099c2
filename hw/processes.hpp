// The processes of a launch, each with the device of its rank. MPI starts and connects them
// (mpi.cpp, where the program is built with MPI; no_mpi.cpp elsewhere); what GPUs exchange goes by
// NCCL.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hw/dispatch.hpp"
#include "hw/hardware.hpp"

namespace parsim::hw {

class Processes {
 public:
  /// Those that mpirun or srun started together with this one; null if it was started alone. Throws
  /// InputError if a launcher started several that MPI does not connect.
  [[nodiscard]] static std::unique_ptr<Processes> launched();
  struct Transport;
  Processes(int rank, int size, int local_rank, std::unique_ptr<Transport> transport);
  /// Waits for all processes.
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// Among the processes of this machine: the GPU to take.
  [[nodiscard]] int local_rank() const { return local_rank_; }

  /// From any thread; does not wait for the receiver. Messages of one tag arrive in order.
  void send(int rank, std::size_t tag, const std::string& bytes);
  /// Waits for a message.
  [[nodiscard]] std::string receive(int rank, std::size_t tag);

  /// Rank 0's bytes, at every rank.
  [[nodiscard]] std::string broadcast(const std::string& bytes);
  /// All ranks' bytes, by rank, at rank 0; nothing elsewhere.
  [[nodiscard]] std::vector<std::string> gather(const std::string& bytes);
  /// All ranks' bytes, by rank, at every rank.
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& bytes);
  /// Returns when all have called it.
  void barrier();

  /// Ends all processes with an exit code.
  [[noreturn]] void abort(int exit_code);

 private:
  int rank_, size_, local_rank_;
  std::unique_ptr<Transport> transport_;
};

/// Throws InputError if the environment says that a launcher started several processes: MPI does
/// not connect them, and each would do everything.
void check_alone();

/// Does something in every process. Where it fails in one, it fails in all: throws the same there,
/// and at the others an error of the same exit code that names the rank.
void together(Processes& processes, const std::function<void()>& work);

/// In an operation of several devices each process gives the others what they want of its device
/// and takes what they send; returns when all have come.
void exchange(Processes& processes, const ExecDag& dag, OpId op,
              const std::function<std::string(DeviceId to)>& give,
              const std::function<void(DeviceId from, const std::string&)>& take);
/// The same with nothing to give.
void exchange(Processes& processes, const ExecDag& dag, OpId op);

/// By step, the longest that any process took; at every process.
[[nodiscard]] std::vector<Seconds> slowest(Processes& processes, const std::vector<Seconds>& times);

/// Whole steps from every process's spans of the stream operations that it has: an operation begins
/// when the last of its devices comes to it and ends with the last of them. At rank 0; nothing
/// elsewhere.
[[nodiscard]] std::vector<Timeline> whole_steps(Processes& processes, const Dispatch& own,
                                                const std::vector<Timeline>& parts);

/// A machine of all processes' devices, in the order of their ranks, hanging on one switch by links
/// of the first one's rate and latency. Throws HardwareError if they differ in backend or versions.
[[nodiscard]] Machine whole_machine(Processes& processes, const Machine& mine);

}  // namespace parsim::hw
