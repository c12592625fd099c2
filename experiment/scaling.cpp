#include "experiment/scaling.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/progress.hpp"

namespace parsim::experiment {

std::vector<std::int64_t> parse_scaling(const std::string& text, std::size_t gpus) {
  std::vector<std::int64_t> counts;
  for (const std::string& count : split_at(text, ',')) {
    counts.push_back(parse_whole(count, "--scaling", 1, static_cast<std::int64_t>(gpus)));
    if (counts.size() > 1 && counts[counts.size() - 2] >= counts.back()) {
      throw InputError("--scaling", fmt::format("'{}'", text),
                       "accepted: ascending numbers of GPUs, as in 1,2,4,8");
    }
  }
  return counts;
}

namespace {

void choose_reference(Scaling& scaling) {
  for (const ScalingPoint& point : scaling.points) {
    if (!point.samples_per_second || point.fits < scaling.reference_fits) continue;
    const bool first = scaling.reference_gpus == 0 || point.fits > scaling.reference_fits;
    if (!first && point.gpus != scaling.reference_gpus) continue;
    const double rate = *point.samples_per_second / static_cast<double>(point.gpus);
    scaling.reference = first ? rate : std::max(scaling.reference, rate);
    scaling.reference_gpus = point.gpus;
    scaling.reference_fits = point.fits;
  }
}

}  // namespace

Scaling scale(const Experiment& experiment,
              const std::vector<const strategies::Strategy*>& strategies,
              const std::vector<std::int64_t>& counts, bool quiet) {
  const auto gpus =
      static_cast<std::int64_t>(devices_of(experiment.cluster, DeviceKind::gpu).size());
  for (const std::int64_t count : counts) {
    if (experiment.batch * count % gpus != 0) {
      throw InputError("--scaling",
                       fmt::format("{} of {} GPUs would have {}/{} of batch {}", count, gpus, count,
                                   gpus, experiment.batch),
                       "accepted: numbers of GPUs that give a whole batch");
    }
  }
  Scaling scaling;
  Progress progress(counts.size() * strategies.size(), quiet, experiment.request.poll);
  for (const std::int64_t count : counts) {
    Request request = experiment.request;
    request.first_gpus = static_cast<std::size_t>(count);
    request.batch = experiment.batch * count / gpus;
    request.jitter = 0;
    const Experiment smaller(request);
    Planner planner(smaller);
    for (const strategies::Strategy* strategy : strategies) {
      progress.next(fmt::format("{} on {}", strategy->name, count));
      ScalingPoint point{count, *request.batch, strategy->name, {}, false, {}, {}};
      try {
        const RunResult result =
            run_plan(smaller, planner.plan(*strategy, &progress), Operations::folded).result;
        point.samples_per_second = result.samples_per_second;
        point.fits = result.fits();
      } catch (const InputError& error) {
        point.reason = error.what();
      }
      scaling.points.push_back(std::move(point));
    }
  }
  choose_reference(scaling);
  for (ScalingPoint& point : scaling.points) {
    if (point.samples_per_second && scaling.reference > 0) {
      point.speedup = *point.samples_per_second / scaling.reference;
    }
  }
  return scaling;
}

}  // namespace parsim::experiment
