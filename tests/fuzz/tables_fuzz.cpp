// Fuzz target: tables of collectives' times and of published steps, quantities, command lines and
// results of sweeps of any text are refused with an InputError or make a value. The first
// byte says which: d, e, f, g or h.
#include <algorithm>

#include "app/cli.hpp"
#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/units.hpp"
#include "experiment/request.hpp"
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

/// One word a line, and what the options ask for.
experiment::Request read_command(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  const app::CommandLine line = app::parse_command_line(words);
  return line.verb == nullptr ? experiment::Request{} : experiment::make_request(line.arguments);
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
  switch (static_cast<unsigned char>(input[0]) % 5) {
    case 0:
      return may_refuse([&] { return sim::read_collective_tables(text, "fuzz", {}); });
    case 1:
      return may_refuse([&] { return validation::read_measurements(text, "fuzz", "fuzz"); });
    case 2:
      return read_quantities(text);
    case 3:
      // A path would read any file of that name.
      if (text.find_first_of("/.~") != std::string::npos) return;
      return may_refuse([&] { return read_command(text); });
    default:
      return may_refuse([&] { return read_results(text); });
  }
}
