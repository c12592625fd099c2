// What a training script does around the kernels of data-parallel training: where variables live
// and how gradients reach them. Published measurements name the script and its settings.
#pragma once

#include <cstdint>

#include "core/cluster.hpp"
#include "core/exec_dag.hpp"

namespace parsim {

/// Where variables live, and who adds gradients up. All but the first are settings of
/// tensorflow/benchmarks, scripts/tf_cnn_benchmarks/variable_mgr.py of May 2017 (commit 9165a70),
/// with which TensorFlow's published measurements were taken.
enum class Exchange : std::uint8_t {
  all_reduce,       ///< every GPU has all variables; collectives
  all_reduce_last,  ///< replicated with NCCL: the same, and they wait for all kernels
  host,             ///< parameter_server on the CPU: read from it when a step begins, updated on it
  gpus,             ///< parameter_server on the GPUs: each variable lives with the least loaded one
  round_robin,  ///< replicated without NCCL: GPUs take turns in adding a variable's gradients up
  instances     ///< distributed_replicated: round_robin within a machine, servers on all CPUs
};

/// The step whose kernels are those of `plain`, a lowered data-parallel plan, and whose gradients
/// are exchanged as the script does. all_reduce: `plain` itself.
///
/// Variables that live elsewhere are read when the step begins, each worker's in an order of its
/// own: TensorFlow's executor sends what is ready (Hashemi et al. 2019, "TicTac", section 2: no two
/// of 1000 steps of ResNet-50 had the same order). What a GPU adds up or updates is launched after
/// the kernels that it has been given by then, which is all of them: hosts run ahead. So do
/// collectives wait that begin when the last worker's host gets to them (RunCollective in
/// tensorflow/contrib/nccl/kernels/nccl_manager.cc has every stream wait for its worker's). Sums
/// read every gradient once, write one and scale it (tf.add_n, tf.multiply). Each GPU copies with
/// one stream per direction; two GPUs of a board, or of a PCIe switch, share theirs to the CPU. Not
/// modelled: gRPC between the processes of one machine, and the script's weight decay.
///
/// Throws InputError, naming `where`, if the CPU that a variable should live on does not exist.
[[nodiscard]] ExecDag with_exchange(ExecDag plain, const Cluster& cluster, Exchange exchange,
                                    const std::string& where);

}  // namespace parsim
