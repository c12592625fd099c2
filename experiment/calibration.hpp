// Measured steps of the user's own that calibrate predictions: what they fit, and where it applies.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/cost_model.hpp"
#include "core/link_kind.hpp"
#include "core/network.hpp"
#include "experiment/step_interval.hpp"
#include "sim/fusion.hpp"

namespace parsim::experiment {

/// What one measured row fits: a step, or a collective.
struct FittedStep {
  std::string set, name;                   ///< file and row
  std::string machine, gpu;                ///< as the row calls them
  std::string device;                      ///< type of its GPUs
  std::optional<Watts> power{};            ///< that one of them draws at most
  std::string network;                     ///< as loaded
  bool attends = false;                    ///< a transformer
  sim::Fusion fusion = sim::Fusion::none;  ///< whose kernels it ran
  double memory = 0;                       ///< that its plan needs, as a share of its GPU's
  Precision precision = Precision::fp32;
  std::string profile;             ///< file whose layer times the row was predicted with
  double kernels = 1;              ///< factor of kernel times
  double share = 1;                ///< of the step, as modelled, that follows kernels
  double gpus = 1, rate = 0;       ///< and samples per second of one of them
  double samples = 0;              ///< of a GPU in a step, under data parallelism; 0: not known
  std::optional<double> links{};   ///< share of their rate that links between machines reach
  std::optional<LinkKind> kind{};  ///< of these links, if the row names one
  /// Seconds that a host adds to a step for each sample of a GPU, and each GPU of its machine
  /// beyond `devices`.
  std::optional<double> host{};
  double devices = 1;
  bool collective = false;          ///< fits `launch`, `links` or nothing, and no kernels
  bool between = false;             ///< of a collective, on several machines
  std::optional<Seconds> launch{};  ///< what a small collective takes beyond NCCL's model
  std::string run;                  ///< of a collective: "all-reduce of 4 KiB on 8 GPUs"
  Seconds measured{};               ///< of a collective, and of a step across machines
  Seconds fitted{};                 ///< of a large one between machines, and of such a step
};

/// The terms that fitted rows give a run.
struct RunCalibration {
  std::vector<FittedStep> by;
  std::vector<double> kernels;      ///< by DeviceId; 1 where no row has the device
  std::vector<double> links{};      ///< shares of their rate by LinkId; 1 inside machines
  double host = 0, devices = 1;     ///< as in FittedStep
  std::optional<Seconds> launch{};  ///< of every collective; nothing: that of its links
  bool every_gpu = false;           ///< whether each type of GPU has a row
  /// Half-widths of 90 % of what rows that contradict each other say, in logarithms: of kernels, of
  /// links and of launches.
  double kernel_spread = 0, link_spread = 0, launch_spread = 0;
  /// Of rows that disagree, and of rows of cards under another limit of their power.
  std::vector<std::string> notes{};
};
/// The rows that say what kernels take: those whose steps depend most on them, and of these the
/// ones on fewest GPUs, for others attribute to kernels what links and hosts cause.
[[nodiscard]] std::vector<const FittedStep*> rows_of_kernels(std::vector<const FittedStep*> rows);

/// Of rows with the cluster's types of GPU in the same precision: per type those of the same
/// network, else those of transformers for a transformer and of others for others, else all.
/// Kernels take the median over rows_of_kernels(), of rows with as many samples of a GPU if there
/// are such. Links between machines, if there are several, take the median over those of these rows
/// that were measured on their kind, or that name none; links whose kind is guessed, over all.
/// Hosts take the median over the rows that say what a host adds. Of collectives on the cluster's
/// types of GPU, small ones give the launch (those on one machine or on several, as the run is, if
/// there are such), large ones between machines count for the links. Throws InputError at
/// --calibrate-with if no row applies.
[[nodiscard]] RunCalibration calibration_of(const std::vector<FittedStep>& rows,
                                            const Network& network, Precision precision,
                                            const Cluster& cluster, std::int64_t batch = 0);

/// The spreads of a run with or without measured rows: fitted to those of published steps, and
/// wider where the rows contradict each other.
[[nodiscard]] Spreads run_spreads(const std::optional<RunCalibration>& calibration);

/// Throws InputError at --calibrate-with where kernels have other costs than those of the default
/// source, or of `profile`, that the rows' factors are of, or where launches take time, which the
/// rows' do not: they would be corrected twice. Collectives correct no kernels.
void check_calibrated_costs(const RunCalibration& calibration, const std::string& costs,
                            const std::string& profile, Seconds launch_interval);

/// The notes, and a line for each row that makes kernels five times faster or slower than the model
/// has them, or more, which is more likely a wrong unit, batch or GPU; that cannot have run, for
/// its plan needs more memory than its GPUs have; or that ran other kernels than the run.
[[nodiscard]] std::vector<std::string> calibration_warnings(const RunCalibration& calibration,
                                                            sim::Fusion fusion);

/// `base` with kernels of each device taking `kernels[device]` times as long.
[[nodiscard]] std::unique_ptr<CostModel> make_calibrated(std::unique_ptr<CostModel> base,
                                                         std::vector<double> kernels);

/// The cluster with links between machines at the share `part` of their rate.
[[nodiscard]] Cluster with_links_between_machines(Cluster cluster, double part);
/// The cluster with each link at its share of its rate, by LinkId.
[[nodiscard]] Cluster with_link_shares(Cluster cluster, const std::vector<double>& shares);

/// The one kind of all links between machines; nothing if there are several, or none is given.
[[nodiscard]] std::optional<LinkKind> kind_between_machines(const Cluster& cluster);

}  // namespace parsim::experiment
