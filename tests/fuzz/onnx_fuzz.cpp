// Fuzz target: an ONNX file of any content is refused with an InputError or makes a network that is
// valid.
#include <cstdint>
#include <map>
#include <string>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "networks/networks.hpp"
#include "tests/fuzz/target.hpp"

using namespace parsim;

void parsim::fuzz::run(const std::string& input) {
  const MemoryFile file(input);
  // A name that the graph does not have is refused before the graph is looked at, so the batch is
  // bound only where it seems to be a symbol. Two samples: mistakes about the batch hide behind
  // one.
  std::map<std::string, std::int64_t> dims;
  if (input.find("batch") != std::string::npos) dims["batch"] = 2;
  try {
    const Network network = networks::read_onnx(file.path(), dims);
    ensure(!network.layers.empty(), "a network that was read has layers");
  } catch (const InputError&) {
    // As it should be: the other outcome that is allowed.
  }
}
