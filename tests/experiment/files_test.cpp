#include "experiment/files.hpp"

#include <doctest/doctest.h>
#include <zlib.h>

#include <string>

#include "tests/support/program.hpp"

namespace parsim::experiment {
namespace {

using testing::TemporaryFolder;

std::string unzipped(const std::string& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  REQUIRE(file != nullptr);
  std::string content;
  char buffer[4096];
  for (int got = 0; (got = gzread(file, buffer, sizeof buffer)) > 0;) {
    content.append(buffer, static_cast<std::size_t>(got));
  }
  CHECK(gzclose(file) == Z_OK);
  return content;
}

TEST_CASE("files: FNV-1a gives the published values") {
  // Source: the test vectors of draft-eastlake-fnv.
  CHECK(fnv1a64("") == "cbf29ce484222325");
  CHECK(fnv1a64("a") == "af63dc4c8601ec8c");
  CHECK(fnv1a64("foobar") == "85944171f73967e8");
}

TEST_CASE("files: a word of the command line leads to the file that it reads") {
  const TemporaryFolder folder;
  const std::string matrix = folder.write("smi.txt", "GPU0"),
                    model = folder.write("config.json", "{}");
  CHECK(file_of(matrix) == matrix);
  CHECK(file_of(matrix + ",device=t4") == matrix);
  CHECK(file_of(folder.folder()) == model);
  CHECK(file_of("star:8,device=t4") == "");
  CHECK(file_of(folder.path("absent.toml")) == "");
}

TEST_CASE("files: gzip is read back by zlib, and is the same bytes each time") {
  const TemporaryFolder folder;
  std::string text = "{";
  while (text.size() < 3'000'000) text += "\"a\": 1, ";  // several chunks of a megabyte
  for (const std::string& content : {std::string(), std::string("x"), text}) {
    CHECK(gzip(content) == gzip(content));
    CHECK(unzipped(folder.write("a.gz", gzip(content))) == content);
  }
}

}  // namespace
}  // namespace parsim::experiment
