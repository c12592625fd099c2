// Fuzz target: a generator call or a cluster file of any content, ours or a foreign tool's, is
// refused with an InputError or makes a valid cluster.
#include "core/errors.hpp"
#include "core/files.hpp"
#include "tests/fuzz/target.hpp"
#include "topologies/topologies.hpp"

using namespace parsim;

namespace {

void load(const std::string& text) {
  try {
    validate(topologies::load_cluster(text, "fuzz"), "fuzz");
  } catch (const InputError&) {
    // As it should be: the other outcome that is allowed.
  }
}

}  // namespace

void parsim::fuzz::run(const std::string& input) {
  // A path would read any file of that name. Long calls ask for clusters of millions.
  if (input.find('/') == std::string::npos && input.size() < 64) load(input);
  // A name without an ending may be any of them: which tool's file it is, the content says.
  const MemoryFile file(input);
  load(file.path());
}
