#include "tests/fuzz/target.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/errors.hpp"

namespace parsim::fuzz {

TemporaryFile::TemporaryFile(const std::string& name, const std::string& content) {
  folder_ = (std::filesystem::temp_directory_path() / "parsim-fuzz-XXXXXX").string();
  ensure(::mkdtemp(folder_.data()) != nullptr, "a temporary folder can be made");
  path_ = folder_ + "/" + name;
  std::ofstream(path_, std::ios::binary) << content;
}

TemporaryFile::~TemporaryFile() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace parsim::fuzz
