// Fuzz target: a trainer's script, YAML, TOML or JSON of any text is refused with an InputError or
// makes a layout.
#include "experiment/trainer_file.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/fuzz/world.hpp"

using namespace parsim;

void parsim::fuzz::run(const std::string& input) {
  for (const char* name : {"run.sh", "parallelism.yaml", "parallelism.toml", "ds_config.json"}) {
    may_refuse([&] {
      if (experiment::is_trainer_file(input, name))
        (void)experiment::read_trainer_file(input, name, network(), cluster());
    });
  }
}
