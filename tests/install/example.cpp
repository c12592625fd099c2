// Plans and simulates a step with an installed parsim: example NETWORK CLUSTER STRATEGY.
#include <cstdio>
#include <exception>

#include "core/errors.hpp"
#include "experiment/run.hpp"

namespace experiment = parsim::experiment;

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    // Options as on the command line.
    const experiment::Request request = experiment::make_request(
        {.verb = "simulate",
         .words = {},
         .values = {
             {"--network", {argv[1]}}, {"--cluster", {argv[2]}}, {"--strategy", {argv[3]}}}});
    const experiment::Experiment job(request);
    const experiment::Planned planned =
        experiment::make_plan(job, parsim::strategies::strategy(argv[3], "argument 3"));
    const experiment::RunResult result = experiment::run_plan(job, planned).result;
    std::printf("%s: %.17g s, %s\n", result.strategy.c_str(), result.step_time.count(),
                result.fits() ? "fits" : "does not fit");
  } catch (const parsim::InputError& error) {
    std::fprintf(stderr, "example: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "example: bug: %s\n", error.what());
    return 1;
  }
}
