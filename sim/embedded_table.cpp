#include "sim/embedded_table.hpp"

#include <algorithm>
#include <string>

#include "core/errors.hpp"
#include "sim/embedded.hpp"

namespace parsim::sim {

CsvTable embedded_table(std::string_view path) {
  const auto files = sim_files();
  const auto file = std::find_if(files.begin(), files.end(),
                                 [&](const EmbeddedFile& one) { return one.path == path; });
  ensure(file != files.end(), "the table is among the embedded files");
  return read_csv(file->text, std::string(path));
}

}  // namespace parsim::sim
