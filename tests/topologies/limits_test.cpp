// What files may hold at most is accepted, and one more is not.
#include <doctest/doctest.h>

#include <string>
#include <tuple>

#include "tests/support/refusal.hpp"
#include "tests/topologies/imported.hpp"
#include "topologies/cluster_file.hpp"
#include "topologies/document.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {
namespace {

using testing::refusal_of, testing::text_of, testing::with;

TEST_CASE("limits: a key of TOML has at most 256 parts") {
  const auto said = [](int parts) {
    std::string key = "a";
    for (int i = 1; i < parts; ++i) key += ".a";
    return refusal_of([&] { return parse_toml("# none\n" + key + " = 1\n", "f.toml"); });
  };
  CHECK(said(256) == "accepted");
  CHECK(said(257) == "f.toml:2: a key of too many parts; accepted: 256 at most");
}

TEST_CASE("limits: XML nests 64 levels, and no more") {
  const auto said = [](int levels) {
    std::string text;
    for (int i = 0; i < levels; ++i) text += "<cpu>";
    for (int i = 0; i < levels; ++i) text += "</cpu>";
    return refusal_of([&] { return import_cluster(text, "f.xml", {}); });
  };
  CHECK(said(64).starts_with("f.xml:1:cpu: the root tag is <cpu>"));
  CHECK(said(65) == "f.xml:1: more than 64 levels of nesting; accepted: a cluster");
}

TEST_CASE("limits: the least and the most number of an attribute are accepted") {
  const auto said = [](const std::string& number) {
    return refusal_of([&] {
      return import_cluster("<system><cpu numaid='" + number + "'/></system>", "f.xml", {});
    });
  };
  const std::string none = "f.xml: cluster 'f' has no devices; at least one device";
  const std::string accepted = "accepted: a whole number from -1 to 1000000";
  CHECK(said("-1") == none);
  CHECK(said("1000000") == none);
  CHECK(said("-2") == "f.xml:1:cpu.numaid: '-2'; " + accepted);
  CHECK(said("1000001") == "f.xml:1:cpu.numaid: '1000001'; " + accepted);
}

TEST_CASE("limits: the least and the most multiprocessors of a type of devices are accepted") {
  const auto read = [](const std::string& number) {
    return parse_cluster(
        "name = \"one\"\n[[device_types]]\nname = \"mine\"\nbase = \"t4\"\n"
        "multiprocessors = " +
            number +
            "\n"
            "[[nodes]]\nname = \"n\"\n"
            "[[nodes.devices]]\nname = \"d\"\nmodel = \"mine\"\n",
        "f.toml");
  };
  const std::string refused = refusal_of([&] { return read("-1"); });
  const std::string range = " -1 is out of range; accepted: a whole number from 0 to ";
  const std::size_t at = refused.find(range);
  REQUIRE(at != std::string::npos);
  const std::int64_t most = std::stoll(refused.substr(at + range.size()));
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{7}, most}) {
    CHECK(read(std::to_string(number)).models.at(0).multiprocessors == number);
  }
  CHECK(refusal_of([&] { return read(std::to_string(most + 1)); }).find("is out of range") !=
        std::string::npos);
}

TEST_CASE("limits: a host of 1 Tf or more is named by Tf, others by Gf") {
  const auto name = [](const std::string& speed) {
    const auto file = import_cluster(
        with(text_of("simgrid/floyd.xml"), "speed=\"10Gf\"", "speed=\"" + speed + "\""), "f.xml",
        {});
    REQUIRE(file);
    return file->cluster.models.at(0).name;
  };
  CHECK(name("999Gf") == "host-999Gf");
  CHECK(name("1Tf") == "host-1Tf");
  CHECK(name("2500Gf") == "host-2.5Tf");
}

TEST_CASE("limits: a text that begins with a brace is JSON, after blanks as well") {
  for (const std::string text : {"{\"a\": 1}", " \n\t{\"a\": 1}"}) {
    CHECK(refusal_of([&] { return parse_document(text, "f"); }) == "accepted");
    CHECK(refusal_of([&] { return parse_document(text, "f.toml"); }) != "accepted");
  }
  CHECK(refusal_of([&] { return parse_document("a = 1", "f"); }) == "accepted");
  CHECK(refusal_of([&] { return parse_document("a = 1", "f.json"); }) != "accepted");
  for (const std::string text : {"", " \n"}) {
    CHECK(refusal_of([&] { return parse_document(text, "f"); }) == "accepted");
  }
}

TEST_CASE("limits: a matrix that ends after its header is one of nvidia-smi, also underlined") {
  const auto said = [](const std::string& header) {
    return refusal_of([&] { return import_cluster(header + "\tGPU1\n", "f.txt", {}); });
  };
  CHECK(said("\tGPU0").starts_with("f.txt:"));
  CHECK(said("\t\x1b[4mGPU0") == said("\tGPU0"));
  CHECK(said("\tGPV0") == "accepted");  // no file of another tool at all
}

TEST_CASE("limits: a formula of a cluster takes as many sizes as it names") {
  const auto said = [](const std::string& formula) {
    return refusal_of([&] { return load_cluster(formula, "test"); });
  };
  for (const auto& [name, least, most] : {std::tuple{"star", 1, 1},
                                          {"ring", 1, 1},
                                          {"nvswitch", 1, 1},
                                          {"nvl72", 1, 1},
                                          {"nodes", 2, 2},
                                          {"rail", 2, 2},
                                          {"torus", 2, 3},
                                          {"dragonfly", 3, 3}}) {
    std::string formula = name;
    for (int sizes = 1; sizes <= 4; ++sizes) {
      formula += sizes == 1 ? ":2" : "x2";
      CAPTURE(formula);
      const bool refused =
          said(formula + ",device=t4").find("is not a size of") != std::string::npos;
      CHECK(refused == (sizes < least || sizes > most));
    }
  }
}

TEST_CASE("limits: truth is the same in TOML and in JSON") {
  for (const bool truth : {false, true}) {
    const std::string word = truth ? "true" : "false";
    for (const Value& table :
         {parse_toml("a = " + word, "f.toml"), parse_json("{\"a\": " + word + "}", "f.json")}) {
      REQUIRE(table.items.size() == 1);
      CHECK(table.items[0].kind == Value::Kind::boolean);
      CHECK(table.items[0].integer == (truth ? 1 : 0));
    }
  }
}

TEST_CASE("limits: a rack may have a CPU with a link of the given rate") {
  const auto rate = [](const std::string& options) {
    const Cluster rack = load_cluster("nvl72:1,cpu=xeon-e5-2600" + options, "test");
    REQUIRE(rack.devices.size() == 73);
    for (const Link& link : rack.links) {
      for (const Port& port : {link.a, link.b}) {
        if (port == Port::of(DeviceId{72})) return link.rate.value;
      }
    }
    return 0.0;
  };
  CHECK(rate("") == 12e9);
  CHECK(rate(",cpu-rate=30GB/s") == 30e9);
}

}  // namespace
}  // namespace parsim::topologies
