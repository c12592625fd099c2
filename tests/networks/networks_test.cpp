// Finding a network by what the user wrote.
#include "networks/networks.hpp"

#include <doctest/doctest.h>

#include "core/errors.hpp"

using namespace parsim;
using namespace parsim::networks;

TEST_CASE("networks: a name finds its row and nothing else") {
  for (const NetworkEntry& entry : all()) {
    CAPTURE(entry.name);
    CHECK(load_network(entry.name, {}, "--network") == entry.build());
  }
}

TEST_CASE("networks: a misspelt name is refused with the nearest one") {
  CHECK_THROWS_WITH_AS(
      static_cast<void>(load_network("resent50", {}, "--network")),
      "--network: unknown network 'resent50'; accepted: a name from `parsim list networks`, or the "
      "path of an .onnx file or config.json; did you mean 'resnet50'?",
      InputError);
  CHECK_THROWS_WITH_AS(static_cast<void>(load_network("colourless green", {}, "plan.json:network")),
                       "plan.json:network: unknown network 'colourless green'; accepted: a name "
                       "from `parsim list networks`, or the path of an .onnx file or config.json",
                       InputError);
  CHECK_THROWS_AS(static_cast<void>(load_network("", {}, "--network")), InputError);
  CHECK_THROWS_AS(static_cast<void>(load_network("ResNet50", {}, "--network")), InputError);
}

TEST_CASE("networks: dimensions for a network that has none are refused") {
  CHECK_THROWS_WITH_AS(static_cast<void>(load_network("resnet50", {{"batch", 32}}, "--network")),
                       "--dim: the built-in network 'resnet50' has no dimension 'batch'; accepted: "
                       "with ONNX files, config.json and built-in language models",
                       InputError);
}

TEST_CASE("networks: a slash or .onnx makes it a path") {
  // Neither file exists; what matters is that the reader is asked, not the table.
  for (const std::string path : {"nowhere/resnet50", "resnet50.onnx"}) {
    try {
      static_cast<void>(load_network(path, {}, "--network"));
      FAIL("a file that does not exist was read");
    } catch (const InputError& error) {
      const std::string message = error.what();
      CAPTURE(message);
      CHECK(message.find(path) != std::string::npos);
      CHECK(message.find("unknown network") == std::string::npos);
    }
  }
}
