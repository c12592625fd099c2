// Every file in tests/bad_inputs/cluster is wrong in the way its name says, and gives its exact
// message.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <string>

#include "core/errors.hpp"
#include "tests/support/refusal.hpp"
#include "topologies/document.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {
namespace {

const std::string folder = std::string(PARSIM_SOURCE_DIR) + "/tests/bad_inputs/cluster/";

std::string device_names() {
  std::vector<std::string> names;
  for (const DeviceModel& model : device_models()) names.push_back(model.name);
  return join(names);
}

/// File and message without the path before it.
std::map<std::string, std::string> expected() {
  return {
      {"bare_fraction.toml",
       ":8:nodes.links.rate: expected a string, found a bare number; accepted: a quoted string, "
       "quantities with their unit: \"25 GB/s\", \"1 us\""},
      {"bare_number.toml",
       ":8:nodes.links.rate: expected a string, found the number 12; accepted: a quoted string, "
       "quantities with their unit: \"25 GB/s\", \"1 us\""},
      {"broken_syntax.json",
       ":2:18: not JSON: syntax error while parsing object key - unexpected ','; expected string "
       "literal"},
      {"broken_syntax.toml",
       ":5:1: Error while parsing array: expected comma or closing ']', saw '['; accepted: TOML "
       "1.0"},
      {"count_as_text.toml",
       ":3:nodes.devices.count: expected a whole number, found the string '2'; accepted: a whole "
       "number from 1 to 131072"},
      {"empty.toml", ": cluster 'empty' has no devices; at least one device"},
      {"empty_name.toml", ":2:nodes.name: an empty name; accepted: at least one character"},
      {"fractional_count.toml",
       ":3:nodes.devices.count: expected a whole number, found a fractional number; accepted: a "
       "whole number from 1 to 131072"},
      {"generator_option.toml",
       ":1:generator: star has no option 'rat'; accepted: device, rate, latency, kind, cpu, "
       "cpu-rate; "
       "did you mean 'rate'?"},
      {"huge_count.toml",
       ":3:nodes.devices.count: 2000000000 is out of range; accepted: a whole number from 1 to "
       "131072"},
      {"huge_product.toml",
       ":3:nodes.count: 60000 x 60000 devices; accepted: at most 131072 devices"},
      {"incomplete_type.toml",
       ":1:device_types.memory_rate: the key 'memory_rate' is missing; accepted: a quoted string"},
      {"joins_itself.toml",
       ":5:nodes.links: both ends of the link are the same; accepted: two different ends"},
      {"missing_latency.toml",
       ":5:nodes.links.latency: the key 'latency' is missing; accepted: a quoted string"},
      {"missing_rate.toml",
       ":5:nodes.links.rate: the key 'rate' is missing; accepted: rate (with a kind that of the "
       "data sheet), or effective_rate"},
      {"misspelt_key.json",
       ":5:nodes.links.rat: unknown key 'rat'; accepted: a, b, pairs, rate, effective_rate, kind, "
       "latency, count, power, idle_power, label, source; did you mean 'rate'?"},
      {"misspelt_key.toml",
       ":8:nodes.links.rat: unknown key 'rat'; accepted: a, b, pairs, rate, effective_rate, kind, "
       "latency, count, power, idle_power, label, source; did you mean 'rate'?"},
      {"negative_count.toml",
       ":3:nodes.devices.count: -2 is out of range; accepted: a whole number from 1 to 131072"},
      {"negative_rate.toml",
       ":8:nodes.links.rate: '-12 GB/s' is negative; write for example '25 GB/s' or '200 Gbit/s'"},
      {"nested_deeply.json", ":1: nested deeper than 32 levels"},
      {"nested_deeply.toml",
       ":1:261: Error while parsing value: exceeded maximum nested value depth of 256 "
       "(TOML_MAX_NESTED_VALUES); accepted: TOML 1.0"},
      {"no_devices.toml", ": cluster 'nothing' has no devices; at least one device"},
      {"no_unit.toml",
       ":8:nodes.links.rate: '12' has no unit; write for example '25 GB/s' or '200 Gbit/s'"},
      {"nodes_as_text.toml",
       ":1:nodes: expected a list, found the string 'box'; accepted: a list [ … ], or one [[…]] "
       "per entry"},
      {"override_of_no_memory.toml",
       ":4:overrides.memory: the memory is 0; accepted: a positive size"},
      {"override_of_nothing.toml",
       ":4:overrides.devices: 'gup*' matches no name; accepted: gpu0, gpu1, gpu2, gpu3, gpu4, "
       "gpu5, gpu6, gpu7, with * for any characters"},
      {"override_of_wrong_key.toml",
       ":5:overrides.rate: devices have no 'rate'; accepted: model, memory, price, power, "
       "idle_power, mtbf"},
      {"override_without_target.toml",
       ":3:overrides: an override needs either 'devices' or 'links'; accepted: devices = "
       "\"pattern\" or links = \"pattern\""},
      {"pair_of_three.toml",
       ":6:nodes.links.pairs: expected a pair, found a list; accepted: two names: [\"gpu0\", "
       "\"gpu1\"]"},
      {"pairs_beside_ends.toml",
       ":11:nodes.links.pairs: 'pairs' together with 'a' or 'b'; accepted: a and b, or pairs"},
      {"repeated_key.json", ":2: key 'nodes' twice in an object; every key once"},
      {"repeated_key.toml",
       ":3:8: Error while parsing key-value pair: cannot redefine existing string 'name'; "
       "accepted: TOML 1.0"},
      {"repeated_name.toml",
       ":3:nodes.devices.name: the name 'box.x' occurs twice; accepted: unique names"},
      {"repeated_type.toml",
       ":1:device_types.name: a device type 't4' already exists; accepted: another name; base = "
       "\"t4\" starts from that type"},
      {"source_without_label.toml",
       ":4:device_types.sources.memory: 'I think' does not begin with a label; accepted: "
       "'measured: …', 'data sheet: …' or 'guessed: …'"},
      {"switch_as_number.toml",
       ":4:switches: expected a name, found the number 1; accepted: quoted names: switches = "
       "[\"pcie0\", \"pcie1\"]"},
      {"switches_as_text.toml",
       ":4:nodes.switches: expected a list, found the string 'pcie'; accepted: a list [ … ], or "
       "one [[…]] per entry"},
      {"too_many_cables.toml",
       ":11:nodes.links.count: 5000 is out of range; accepted: a whole number from 1 to 1024"},
      {"type_without_memory.toml",
       ":4:device_types.memory: the number is 0; accepted: a positive number"},
      {"unknown_device.toml", ":3:nodes.devices.model: unknown device 't44'; accepted: " +
                                  device_names() + "; did you mean 't4'?"},
      {"unknown_end.toml",
       ":7:nodes.links.b: 'pci' matches no name; accepted: gpu0, gpu1, pcie, with * for any "
       "characters; did you mean 'pcie'?"},
      {"unknown_generator.toml",
       ":1:generator: unknown generator 'sta'; accepted: star, nodes, rail, nvl72, nvswitch, "
       "cube-mesh, "
       "pcie-tree, ring, torus, fat-tree, dragonfly; did you mean 'star'?"},
      {"unknown_label.toml",
       ":11:nodes.links.label: unknown label 'measurd'; accepted: measured, data sheet, guessed; "
       "did you mean 'measured'?"},
      {"unreachable_device.toml",
       ": device 'box.gpu0' cannot reach device 'box.gpu1'; join them by a link, or by links to "
       "switches that are joined (a device forwards nothing for others)"},
      {"wrong_unit.toml",
       ":8:nodes.links.rate: '12 Gb/d' has the unknown unit 'Gb/d'; accepted: B/s with k, M, G, T "
       "or Ki, Mi, Gi, Ti, bit/s (or b/s) with k, M, G, T; did you mean 'Gb/s'?"},
      {"zero_memory.toml", ":3:nodes.devices.memory: the memory is 0; accepted: a positive size"},
      {"zero_rate.toml", ":8:nodes.links.rate: the rate is 0; accepted: a positive rate"},
  };
}

std::string refusal(const std::string& what) {
  return testing::refusal_of([&] { return load_cluster(what, "--cluster"); });
}

TEST_CASE("cluster files: each wrong one gives its exact message") {
  const auto messages = expected();
  for (const auto& [file, message] : messages) {
    CAPTURE(file);
    CHECK(refusal(folder + file) == folder + file + message);
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    CAPTURE(entry.path().string());
    CHECK(messages.contains(entry.path().filename().string()));
  }
}

TEST_CASE("cluster files: one that is not there is named") {
  CHECK(refusal("no/such.toml") ==
        "--cluster: cannot read the file 'no/such.toml'; accepted: a cluster in TOML or JSON");
  CHECK(refusal(folder) == "--cluster: '" + folder +
                               "' is a directory; accepted: a file with a cluster in TOML or JSON");
}

TEST_CASE("cluster files: keys and tables of very many parts are refused, not followed") {
  std::string parts = "a";
  // Quotes may hold what else would end a key.
  std::string quoted = "'='";
  for (int i = 0; i < 50'000; ++i) {
    parts += ".a";
    quoted += i % 2 == 0 ? ".\"[\\\"\"" : ".'='";
  }
  for (const std::string& text :
       {parts + " = 1\n", "[" + parts + "]\n", "x = {" + parts + " = 1}\n", "[[" + parts + "]]\n",
        quoted + " = 1\n", "[" + quoted + "]\n"}) {
    CHECK_THROWS_WITH_AS((void)parse_toml(text, "deep.toml"),
                         "deep.toml:1: a key of too many parts; accepted: 256 at most", InputError);
  }
  const std::string dots(1000, '.');  // no part of a key
  CHECK(parse_toml("# " + dots + "\nrates = [1.5, 2.5]\na = \"" + dots + "\"\nb = \'\'\'\n" + dots +
                       "\'\'\'\n",
                   "x.toml")
            .keys.size() == 3);
}

TEST_CASE("generators: a wrong call is refused with what is accepted") {
  const auto says = [](const std::string& rest) { return "--cluster" + rest; };
  CHECK(refusal("star") == says(": 'star' needs a size; write star:N,key=value,…"));
  CHECK(refusal("star:device=t4") ==
        says(": 'star:device=t4' does not begin with a size; write star:N,key=value,…"));
  CHECK(refusal("star:8") == says(": 'star:8' needs device=…; write star:N,device=…"));
  CHECK(refusal("star:8,t4") ==
        says(": 't4' is not of the form key=value; write star:N,key=value,…"));
  CHECK(refusal("star:8,device=t4,device=t4") ==
        says(":device: 'device' is given twice; accepted: each option once"));
  CHECK(refusal("star:8,device=t4,lag=1us") ==
        says(": star has no option 'lag'; accepted: device, rate, latency, kind, cpu, cpu-rate"));
  CHECK(refusal("star:8,device=t4,rate=25") ==
        says(":rate: '25' has no unit; write for example '25 GB/s' or '200 Gbit/s'"));
  CHECK(refusal("star:8,device=t4,rate=0GB/s") ==
        says(":rate: '0GB/s' is 0; accepted: a positive rate"));
  CHECK(refusal("star:8,device=t5") ==
        says(":device: unknown device 't5'; accepted: " + device_names() + "; did you mean 't4'?"));
  CHECK(refusal("star:8,device=t4*3+k80") ==
        says(":device: 'k80' needs a count; accepted: a mix such as p100-sxm2*4+v100-sxm2*4"));
  CHECK(refusal("star:8,device=t4*3+k80*4") ==
        says(":device: 't4*3+k80*4' has 7 devices; accepted: counts that add up to 8"));
  CHECK(refusal("star:8,device=t4,cpu-rate=1GB/s") ==
        says(":cpu-rate: cpu-rate without cpu; accepted: with a CPU, such as cpu=xeon-e5-2600"));
  for (const std::string size : {"0", "-1", "8x", "x", "1.5", "99999999999999999999", "131073"}) {
    CHECK(refusal("star:" + size + ",device=t4") ==
          says(": '" + size +
               "' is not a size of star; accepted: star:N with numbers from 1 to 131072"));
  }
  CHECK(refusal("nodes:400x400,device=t4") ==
        says(": '400x400' has more than 131072 devices; accepted: at most 131072 devices"));
  CHECK(refusal("nodes:2x4,device=t4*3") ==
        says(":device: the counts add up to 3; accepted: counts that add up to 4 (the devices of "
             "one machine) or to 8 (of all machines)"));
  CHECK(refusal("nodes:2x4,device=t4,nics=5") ==
        says(":nics: '5'; accepted: a whole number from 1 to 4"));
  CHECK(refusal("fat-tree:16,device=t4,k=3") ==
        says(":k: k=3 is odd or too small for 16 devices; accepted: an even number of ports k with "
             "k³/4 devices or more"));
  CHECK(refusal("fat-tree:16,device=t4,k=4,leaf=2") ==
        says(":k: 'k' together with 'leaf' or 'spines'; accepted: k (three levels), or leaf and "
             "spines (two levels)"));
  CHECK(refusal("cube-mesh:4,device=t4") ==
        says(": 'cube-mesh:4,device=t4' does not have 8 devices; accepted: cube-mesh:8"));
  CHECK(refusal("cube-mesh:8,device=t4,links=5") == says(":links: '5'; accepted: 4 or 6"));
}

TEST_CASE("clusters: an unknown name leads to the nearest known one") {
  std::vector<std::string> names;
  for (const ClusterEntry& entry : clusters()) names.push_back(entry.name);
  const std::string accepted = "accepted: " + join(names) +
                               ", or a file (.toml, .json, .xml, .txt, or with a /), or - for "
                               "standard input";
  CHECK(refusal("dgx-v10") ==
        "--cluster: unknown cluster 'dgx-v10'; " + accepted + "; did you mean 'dgx-v100'?");
  CHECK(refusal("stra:8,device=t4,rate=25GB/s") ==
        "--cluster: unknown cluster 'stra:8,device=t4,rate=25GB/s'; " + accepted +
            "; did you mean 'star'?");
  CHECK(refusal("") == "--cluster: unknown cluster ''; " + accepted);
}

}  // namespace
}  // namespace parsim::topologies
