// Fuzz target: whatever the text, each reader of a versioned JSON file refuses it with an
// InputError or makes a value that is written and read back as itself.
#include "core/errors.hpp"
#include "core/json.hpp"
#include "core/profile.hpp"
#include "tests/fuzz/target.hpp"

using namespace parsim;

namespace {

template <class Value>
void read(const std::string& text, Value (*from_json)(const std::string&, const std::string&)) {
  Value value;
  try {
    value = from_json(text, "fuzz");
  } catch (const InputError&) {
    return;
  }
  const std::string written = to_json(value);
  ensure(to_json(from_json(written, "fuzz")) == written, "a value read is written back as itself");
}

}  // namespace

void parsim::fuzz::run(const std::string& input) {
  // Readers refuse each other's files by their first member, so each text has the one that it
  // names.
  const auto names = [&](const char* format) { return input.find(format) != std::string::npos; };
  if (names("parsim-dag")) return read(input, dag_from_json);
  if (names("parsim-machine")) return read(input, machine_from_json);
  if (names("parsim-profile")) return read(input, profile_from_json);
  if (names("parsim-measurements")) return read(input, measurements_from_json);
  read(input, plan_from_json);
}
