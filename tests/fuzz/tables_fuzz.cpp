// Fuzz target: tables of collectives' times and of published steps, quantities and results of
// sweeps of any text are refused with an InputError or make a value. The first byte says which: d,
// e, f or g.
#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/units.hpp"
#include "experiment/results_file.hpp"
#include "sim/collective_tables.hpp"
#include "tests/fuzz/target.hpp"
#include "validation/measurements.hpp"

using namespace parsim;

namespace {

template <class Read>
void may_refuse(const Read& read) {
  try {
    (void)read();
  } catch (const InputError&) {
    // As it should be: the other outcome that is allowed.
  }
}

void read_quantities(const std::string& text) {
  may_refuse([&] { return parse_bytes(text, "fuzz"); });
  may_refuse([&] { return parse_rate(text, "fuzz"); });
  may_refuse([&] { return parse_flops_rate(text, "fuzz"); });
  may_refuse([&] { return parse_seconds(text, "fuzz"); });
  may_refuse([&] { return parse_power(text, "fuzz"); });
  may_refuse([&] { return parse_money(text, "fuzz"); });
  may_refuse([&] { return parse_price(text, "fuzz"); });
}

std::size_t read_results(const std::string& text) {
  const MemoryFile file(text);
  experiment::ResultsReader reader(file.path(), "fuzz");
  std::size_t points = 0;
  while (reader.next()) ++points;
  return points;
}

}  // namespace

void parsim::fuzz::run(const std::string& input) {
  if (input.empty()) return;
  const std::string text = input.substr(1);
  switch (static_cast<unsigned char>(input[0]) % 4) {
    case 0:
      return may_refuse([&] { return sim::read_collective_tables(text, "fuzz", {}); });
    case 1:
      return may_refuse([&] { return validation::read_measurements(text, "fuzz", "fuzz"); });
    case 2:
      return read_quantities(text);
    default:
      return may_refuse([&] { return read_results(text); });
  }
}
