// Fuzz target: a layout of any text is refused with an InputError or makes a value.
#include "experiment/layout_file.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/fuzz/world.hpp"

using namespace parsim;

void parsim::fuzz::run(const std::string& input) {
  may_refuse([&] { (void)experiment::read_layout(input, "layout.toml", network(), cluster()); });
}
