// The files of other tools that tests read, as text and as clusters.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "topologies/import/import.hpp"

namespace parsim::testing {

inline const std::string data = std::string(PARSIM_SOURCE_DIR) + "/tests/topologies/data/";

inline std::string text_of(const std::string& name) {
  std::ifstream stream(data + name);
  REQUIRE_MESSAGE(stream, "no file ", name);
  std::stringstream all;
  all << stream.rdbuf();
  return all.str();
}

inline topologies::Imported imported(const std::string& name) {
  const auto found = topologies::import_cluster(text_of(name), name, {});
  REQUIRE(found);
  return *found;
}

}  // namespace parsim::testing
