// Fuzz target: a command line of any words is refused with an InputError or makes a request.
#include <algorithm>
#include <vector>

#include "app/cli.hpp"
#include "core/errors.hpp"
#include "experiment/request.hpp"
#include "tests/fuzz/target.hpp"

using namespace parsim;

/// One word a line.
void parsim::fuzz::run(const std::string& input) {
  // A path would read any file of that name: only rates (10GB/s) have a slash.
  for (std::size_t at = input.find('/'); at != std::string::npos; at = input.find('/', at + 1)) {
    if (at == 0 || input[at - 1] == '\n' || input.compare(at, 2, "/s") != 0) return;
  }
  std::vector<std::string> words;
  for (std::size_t at = 0; at <= input.size();) {
    const std::size_t end = std::min(input.find('\n', at), input.size());
    words.push_back(input.substr(at, end - at));
    at = end + 1;
  }
  try {
    const app::CommandLine line = app::parse_command_line(words);
    if (line.verb != nullptr) (void)experiment::make_request(line.arguments);
  } catch (const InputError&) {
    // As it should be: the other outcome that is allowed.
  }
}
