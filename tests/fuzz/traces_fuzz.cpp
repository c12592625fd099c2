// Fuzz target: a trace and a config.json of any text are refused with an InputError or make a
// value.
#include "core/files.hpp"
#include "experiment/trace_steps.hpp"
#include "networks/networks.hpp"
#include "tests/fuzz/target.hpp"

using namespace parsim;

void parsim::fuzz::run(const std::string& input) {
  const MemoryFile file(input);
  may_refuse([&] { (void)networks::read_hugging_face(file.path(), {}); });
  may_refuse([&] {
    const experiment::TraceSteps steps =
        experiment::steps_of(experiment::read_kineto_trace(file.path()));
    if (!steps.steps.empty()) (void)steps.median();
  });
}
