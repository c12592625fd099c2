#include "core/errors.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace parsim;

TEST_CASE("errors: a message has place, finding and what is accepted") {
  CHECK(std::string(InputError("--batch", "'many'", "a whole number").what()) ==
        "--batch: 'many'; a whole number");
  CHECK(std::string(InputError("net.onnx", "no layers").what()) == "net.onnx: no layers");
  const InputError error("--batch", "'many'", "a whole number");
  CHECK(error.where == "--batch");
  CHECK(error.found == "'many'");
  CHECK(error.accepted == "a whole number");
}

TEST_CASE("errors: ensure throws a broken invariant with its meaning") {
  CHECK_NOTHROW(ensure(true, "never seen"));
  CHECK_THROWS_WITH_AS(ensure(false, "a layer has inputs"), "a layer has inputs", BrokenInvariant);
}

TEST_CASE("errors: the nearest known word is suggested, the first of equally near ones") {
  const std::vector<std::string> known{"resnet50", "resnet18", "vgg16"};
  CHECK(did_you_mean("resnet5", known) == "; did you mean 'resnet50'?");
  CHECK(did_you_mean("resnt18", known) == "; did you mean 'resnet18'?");
  CHECK(did_you_mean("resnet", known) == "; did you mean 'resnet50' or 'resnet18'?");
  const std::vector<std::string> cards{"h100-pcie", "a10", "h100-sxm5", "h100-nvl"};
  CHECK(did_you_mean("h100", cards) == "; did you mean 'h100-pcie', 'h100-sxm5' or 'h100-nvl'?");
  CHECK(did_you_mean("H100", cards) == "; did you mean 'h100-pcie', 'h100-sxm5' or 'h100-nvl'?");
  CHECK(did_you_mean("H100-SXM5", cards) == "; did you mean 'h100-sxm5'?");
  CHECK(did_you_mean("vgg61", known) == "; did you mean 'vgg16'?");
}

TEST_CASE("errors: nothing is suggested for a word like no other, or a hostile one") {
  const std::vector<std::string> known{"resnet50", "vgg16"};
  CHECK(did_you_mean("transformer", known).empty());
  const std::vector<std::string> units{"kbit/s", "Mbit/s", "Gbit/s", "kb/s", "Gb/s", "GB/s"};
  CHECK(did_you_mean("gbit/s", units) == "; did you mean 'Gbit/s'?");
  CHECK(did_you_mean("gbps", units) == "; did you mean 'Gb/s'?");
  CHECK(did_you_mean(std::string(1'000'000, 'v'), known).empty());
  CHECK(did_you_mean("vgg16", std::vector<std::string>{}).empty());
}

TEST_CASE("errors: words are joined") {
  CHECK(join(std::vector<std::string>{"a", "b"}) == "a, b");
  CHECK(join(std::vector<std::string>{"a", "b"}, "|") == "a|b");
  CHECK(join(std::vector<std::string>{}).empty());
}
