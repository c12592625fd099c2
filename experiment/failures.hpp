// How much of its time a job that fails now and then trains: closed forms of the mean time between
// failures, the time of a checkpoint and the time of a restart.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/cluster.hpp"
#include "core/network.hpp"
#include "core/plan.hpp"

namespace parsim::experiment {

/// Failures arrive as a Poisson process. Each loses all work since the last checkpoint.
struct FailureRates {
  Seconds mtbf{};     ///< mean time between failures of the whole job; positive
  Seconds write{};    ///< how long a checkpoint stops the training
  Seconds restart{};  ///< from a failure to the first step after it, loading included
};

/// Interval between checkpoints that loses the least time, to first order:
///
///     sqrt(2 · write · mtbf)
///
/// Source: Young 1974, "A first order approximation to the optimum checkpoint interval", CACM
/// 17(9).
[[nodiscard]] Seconds young_interval(const FailureRates& rates);

/// The same to higher order; with x = write / (2 · mtbf):
///
///     sqrt(2 · write · mtbf) · (1 + sqrt(x)/3 + x/9) − write    if write < 2 · mtbf, else mtbf
///
/// Source: Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart
/// dumps", FGCS 22(3), eq. 37.
[[nodiscard]] Seconds daly_interval(const FailureRates& rates);

/// Time that trains over all time, 0 to 1, if `interval` of training lies between checkpoints:
///
///     interval / (mtbf · exp(restart/mtbf) · (exp((interval + write)/mtbf) − 1))
///
/// Exact for exponentially distributed failures, also during checkpoints and restarts.
/// Source: Daly 2006, eq. 20 (its T_s over T_w). Checked: tests/experiment/failures_test.cpp, by
/// simulated failures.
[[nodiscard]] double goodput(const FailureRates& rates, Seconds interval);

/// A run of steps with failures and checkpoints.
struct Goodput {
  FailureRates rates{};
  Seconds young{}, daly{};         ///< intervals between checkpoints
  std::int64_t steps_between = 1;  ///< Daly's in whole steps
  Seconds interval{};              ///< of that many steps
  double share = 0;                ///< goodput() of that interval
};
/// Daly's interval is rounded to whole steps, up or down as `share` is larger, to at least one.
[[nodiscard]] Goodput goodput_of(const FailureRates& rates, Seconds step);

/// --mtbf, --checkpoint-write and --restart.
struct FailureOptions {
  std::optional<Seconds> mtbf;  ///< of each GPU without one of its own
  std::string write;            ///< a time, or a rate of storage; empty: not asked
  /// MegaScale needs on average less than 10 minutes to detect a failure and to diagnose it (Jiang
  /// et al. 2024, section 6.3, recalled).
  Seconds restart{600};
};

/// Bytes of a checkpoint: each weight once, in the precision of the step, with its optimizer
/// states.
[[nodiscard]] Bytes checkpoint_bytes(const Network& network, Precision precision,
                                     Optimizer optimizer);

/// Throws InputError if one of the options is there without the others that it needs, cannot be
/// read, or a GPU of the cluster has no mean time between failures.
void check_failures(const FailureOptions& options, const Cluster& cluster);

/// Of the machines of which a device computes: the sum of the failure rates of the devices that
/// compute and of their machines. `options` as check_failures() accepts them; CPUs without a mean
/// time between failures never fail.
///
/// busy   by DeviceId: how long kernels run
[[nodiscard]] FailureRates failure_rates(const FailureOptions& options, const Cluster& cluster,
                                         std::span<const Seconds> busy, Bytes checkpoint);

}  // namespace parsim::experiment
