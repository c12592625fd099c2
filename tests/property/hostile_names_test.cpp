// Names come from files of anybody. Whatever bytes they hold, every writer's text is read back as
// what it should be: nothing in a name breaks out of its place.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cctype>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/csv.hpp"
#include "core/json.hpp"
#include "core/text.hpp"
#include "lowering/lower.hpp"
#include "networks/networks.hpp"
#include "report/document.hpp"
#include "report/dot.hpp"
#include "report/page/html.hpp"
#include "report/runs.hpp"
#include "report/trace.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "tests/support/dot.hpp"
#include "topologies/import/import.hpp"
#include "topologies/topologies.hpp"

namespace parsim {
namespace {

template <class Law>
bool holds_for_names(Law law) {
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = 60;
  const auto result = rc::detail::checkTestable(std::move(law), rc::detail::TestMetadata(), params);
  if (!result.template is<rc::detail::SuccessResult>()) {
    rc::detail::printResultMessage(result, std::cerr);
    std::cerr << '\n';
  }
  return result.template is<rc::detail::SuccessResult>();
}

/// Pieces that mean something somewhere: to HTML, XML, DOT, JSON, CSV, Markdown, LaTeX, a terminal.
std::string any_name() {
  static const std::vector<std::string> pieces{"<script>alert(1)</script>",
                                               "\"",
                                               "'",
                                               "\\",
                                               "\\\"",
                                               "\\N",
                                               "&amp;",
                                               "]]>",
                                               "-->",
                                               "<!--",
                                               "\n",
                                               "\r",
                                               "\t",
                                               "\x1b[31m",
                                               "|",
                                               ",",
                                               ";",
                                               "{",
                                               "}",
                                               "->",
                                               "=",
                                               "%s",
                                               "$#_&^~",
                                               "[",
                                               "ü",
                                               "€",
                                               "\xff",
                                               "\xc3",
                                               "\xe2\x82",
                                               "\xc2\x9b",
                                               "a",
                                               "n0",
                                               std::string(10'000, 'x')};
  std::string name;
  const int count = *rc::gen::inRange(1, 6);
  for (int i = 0; i < count; ++i) name += *rc::gen::elementOf(pieces);
  return name;
}

/// Two GPUs around a switch, a network of seven layers, and a plan for both.
struct Named {
  Cluster cluster = topologies::load_cluster("star:2,device=t4,rate=10GB/s,latency=1us", "test");
  Network network = networks::load_network("mlp", {}, "test");

  /// Names differ, as everywhere; the number stands behind, where no cut reaches it.
  Named() {
    int number = 0;
    const auto rename = [&](std::string& name) { name = any_name() + std::to_string(number++); };
    rename(cluster.name);
    for (Device& device : cluster.devices) rename(device.name);
    for (Switch& one : cluster.switches) rename(one.name);
    for (Node& node : cluster.nodes) rename(node.name);
    for (Link& link : cluster.links) rename(link.name);
    rename(network.name);
    for (Layer& layer : network.layers) rename(layer.name);
  }
};

bool no_controls(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c == '\n' || static_cast<unsigned char>(c) >= 0x20; });
}

void check_dot(const std::string& text, std::size_t boxes, std::size_t edges) {
  const testing::DotText graph = testing::parse_dot(text);
  RC_ASSERT(graph.error == "");
  RC_ASSERT(graph.boxes == boxes);
  RC_ASSERT(graph.edges == edges);
  RC_ASSERT(no_controls(text));
}

/// A table of a head, its units and two rows of one column in ASCII, whose braces match, without
/// another command than those that print a character.
void check_latex(const std::string& text) {
  static const std::vector<std::string> commands{
      "textbackslash", "textasciitilde", "textasciicircum", "textless",  "textgreater",
      "textbar",       "char",           "begin",           "centering", "caption",
      "toprule",       "midrule",        "bottomrule",      "end",       "dagger"};
  int open = 0, columns = 0, rows = 0;
  for (std::size_t i = text.find('\n') + 1; i < text.size(); ++i) {
    RC_ASSERT(static_cast<unsigned char>(text[i]) < 0x80U);
    RC_ASSERT(std::string("#%_$^~<>|\"").find(text[i]) == std::string::npos);
    open += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
    RC_ASSERT(open >= 0);
    columns += text[i] == '&' ? 1 : 0;
    if (text[i] != '\\') continue;
    std::size_t end = ++i;
    while (end < text.size() && std::isalpha(static_cast<unsigned char>(text[end])) != 0) ++end;
    if (end == i) {  // one character, printed, or the end of a row
      rows += text[i] == '\\' ? 1 : 0;
      RC_ASSERT(std::string("\\#$%&_{} ").find(text[i]) != std::string::npos);
      continue;
    }
    RC_ASSERT(std::find(commands.begin(), commands.end(), text.substr(i, end - i)) !=
              commands.end());
    i = end - 1;
  }
  RC_ASSERT(open == 0);
  RC_ASSERT(rows == 4);
  RC_ASSERT(columns == 0);
}

TEST_CASE("hostile names: DOT of networks, clusters and DAGs stays a graph") {
  CHECK(holds_for_names([] {
    const Named named;
    std::size_t edges = 0;
    for (const Layer& layer : named.network.layers) edges += layer.inputs.size();
    check_dot(report::dot_of(named.network), named.network.layers.size(), edges);
    check_dot(report::dot_of(named.cluster), 3, 2);
    const auto cost = sim::cost_sources().front().make(named.cluster, {});
    strategies::StrategyInput input{named.network, named.cluster, *cost};
    input.batch = 64;
    const ExecDag dag = lowering::lower(named.network, named.cluster,
                                        strategies::strategy("data", "test").plan(input));
    std::size_t waits = 0;
    for (std::size_t i = 0; i < dag.size(); ++i) waits += dag.predecessors(OpId{i}).size();
    check_dot(report::dot_of(dag, named.cluster), dag.size(), waits);
    // The same DAG as JSON and as a trace.
    Timeline timeline;
    timeline.spans.resize(dag.size());
    RC_ASSERT(nlohmann::json::accept(report::chrome_trace(dag, named.cluster, timeline)));
    RC_ASSERT(nlohmann::json::accept(to_json(dag)));
  }));
}

TEST_CASE("hostile names: SimGrid's XML keeps every name but control characters") {
  CHECK(holds_for_names([] {
    const Named named;
    const auto back =
        topologies::import_cluster(topologies::simgrid_xml(named.cluster, "test"), "back.xml", {});
    RC_ASSERT(back.has_value());
    RC_ASSERT(back->cluster.links.size() == 2U);
    const auto kept = [](std::string name) {
      for (char& c : name) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
      }
      return name;
    };
    RC_ASSERT(back->cluster.name == kept(named.cluster.name));
    for (std::size_t i = 0; i < 2; ++i) {
      RC_ASSERT(back->cluster.devices[i].name == kept(named.cluster.devices[i].name));
      RC_ASSERT(back->cluster.links[i].name == kept(named.cluster.links[i].name));
    }
  }));
}

TEST_CASE("hostile names: CSV, Markdown, LaTeX, tables and HTML stay what they are") {
  CHECK(holds_for_names([] {
    const std::vector<std::string> names{any_name() + "1", any_name() + "2"};
    report::Document document;
    document.tables.emplace_back();
    report::add_words(document.tables[0], "name", "name", names);
    report::add_words(document.tables[0], "other", "other", {names[1], names[0]});
    const CsvTable csv = read_csv(report::render_csv(document), "test.csv");
    RC_ASSERT(csv.rows.size() == 2U);
    // What a spreadsheet would take for a formula has an apostrophe in front.
    const auto cell = [](const std::string& name) {
      const bool formula =
          std::string("=+-@\t\r").find(name[0]) != std::string::npos && !to_number<double>(name);
      return (formula ? "'" : "") + name;
    };
    for (std::size_t i = 0; i < 2; ++i) {
      RC_ASSERT(csv.rows[i].fields ==
                (std::vector<std::string>{cell(names[i]), cell(names[1 - i])}));
    }
    for (const std::string& text : {report::render_md(document), report::render_table(document)}) {
      RC_ASSERT(no_controls(text));
    }
    const std::string md = report::render_md(document);
    RC_ASSERT(std::count(md.begin(), md.end(), '\n') == 5);  // head, rule, two rows, empty line
    document.head = {names[0]};
    check_latex(report::latex_table(document, std::vector<experiment::RunResult>(2)));
    const std::string markup = report::html(names[0], 20'000);
    RC_ASSERT(markup.find_first_of("<>\"'") == std::string::npos);
    RC_ASSERT(no_controls(markup));
  }));
}

TEST_CASE("dot: by hand, and collapsed above a thousand boxes") {
  const Cluster cluster = topologies::load_cluster("dgx-v100", "test");
  const testing::DotText small = testing::parse_dot(report::dot_of(cluster));
  CHECK(small.error == "");
  CHECK(small.name == "dgx-v100");
  CHECK(small.boxes == 9 + 6);
  CHECK(small.subgraphs == 1);
  // 16 pairs of GPUs, 8 + 4 PCIe, 1 between sockets, 2 of the CPU; double cables are one line.
  CHECK(small.edges == 16 + 12 + 1 + 2);
  CHECK(std::count(small.labels.begin(), small.labels.end(), "2 x 20.4 GB/s") == 8);

  const Cluster large =
      topologies::load_cluster("nodes:200x8,device=t4,intra=100GB/s,inter=10GB/s", "test");
  const testing::DotText machines = testing::parse_dot(report::dot_of(large));
  CHECK(machines.boxes == 200 + 1);
  CHECK(machines.edges == 200);
  CHECK(machines.labels.front() == "n0: 9 parts");
  CHECK(report::dot_string("a\"b\\c\nd\xff") == "\"a\\\"b\\\\c?d?\"");
  CHECK(report::dot_string(std::string(81, 'x')) == "\"" + std::string(80, 'x') + "…\"");
}

}  // namespace
}  // namespace parsim
