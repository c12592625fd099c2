// Fuzz target: a sweep, a job, offers and times of layers of any text are refused with an
// InputError or make a value.
#include "experiment/layer_times.hpp"
#include "experiment/offers.hpp"
#include "experiment/sweep_file.hpp"
#include "tests/fuzz/target.hpp"

using namespace parsim;

void parsim::fuzz::run(const std::string& input) {
  may_refuse([&] { (void)experiment::read_layer_times(input, "layers.csv"); });
  may_refuse([&] { (void)experiment::read_offers(input, "offers.toml"); });
  // What may be an axis of millions is not tried, nor a path, whose file would be read.
  if (input.find('/') != std::string::npos || input.find("..") != std::string::npos) return;
  may_refuse([&] { (void)experiment::read_sweep(input, "sweep.toml", "1"); });
  may_refuse([&] { (void)experiment::read_job(input, "job.toml", "1"); });
}
