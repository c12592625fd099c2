// The report page as text: that it is complete, says what the JSON says, and that no name in an
// input can break it. What a browser makes of it is tested in tests/browser.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/page/drawings.hpp"
#include "report/page/html.hpp"
#include "report/page/section.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/program.hpp"

namespace parsim::report {
namespace {

using nlohmann::json;
using testing::Finished;
using Words = std::vector<std::string>;

const std::string pair = "star:2,device=p100-sxm2*1+v100-sxm2*1,rate=25GB/s,latency=1us";

Finished run(const Words& words) { return testing::run_program(PARSIM_PROGRAM, words); }

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

/// Opening minus closing tags of the elements that must be closed; scripts and styles left out.
std::map<std::string, int> open_elements(const std::string& page) {
  std::map<std::string, int> open;
  for (std::size_t at = 0; (at = page.find('<', at)) != std::string::npos; ++at) {
    const bool closing = page[at + 1] == '/';
    const std::size_t begin = at + (closing ? 2 : 1);
    const std::size_t end = page.find_first_of(" >\n", begin);
    const std::string name = page.substr(begin, end - begin);
    if (!closing && (name == "script" || name == "style")) at = page.find("</" + name, at);
    for (const char* known : {"div", "table", "svg", "details", "summary", "ul", "pre", "b", "g"}) {
      if (name == known) open[name] += closing ? -1 : 1;
    }
  }
  return open;
}

/// No control characters but the end of a line.
bool harmless(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c == '\n' || static_cast<unsigned char>(c) >= 0x20; });
}

void check_balanced(const std::string& page) {
  for (const auto& [name, surplus] : open_elements(page)) {
    CAPTURE(name);
    CHECK(surplus == 0);
  }
}

TEST_CASE("page: markup in a name is text, and text is cut between characters") {
  CHECK(html("<b a='\"x'>&\n") == "&lt;b a=&#39;&quot;x&#39;&gt;&amp;?");
  CHECK(html("aäb", 2) == "a…");  // ä has two bytes
  CHECK(html("aäb", 3) == "aä…");
  CHECK(json_for_script(R"({"a":"</script>"})") == R"({"a":"\u003c/script>"})");
}

TEST_CASE("page: no line of a table's cell breaks between a number and its unit") {
  Table table;
  add_words(table, "link", "link",
            {"a to b 6.85 %", "needs 4.13 GiB more (a and 12 others)", "10 GB/s or 2 s, 5 sets"});
  const std::string page = html_table(table);
  CHECK(page.find("<td>a to b 6.85\u00a0%\n") != std::string::npos);
  CHECK(page.find("<td>needs 4.13\u00a0GiB more (a and 12 others)\n") != std::string::npos);
  CHECK(page.find("<td>10\u00a0GB/s or 2\u00a0s, 5 sets\n") != std::string::npos);
}

TEST_CASE("page: cells with units and ranges sort by their first number") {
  Table table;
  add_words(table, "memory", "memory", {"22 %", "<1 %", "103-275", "-", "1e-05"});
  table.columns.back().is_number = true;
  const std::string page = html_table(table, true);
  for (const char* cell :
       {"<td data-v=\"22\">22 %", "<td data-v=\"1\">&lt;1 %", "<td data-v=\"103\">103-275",
        "<td data-v=\"\">-", "<td data-v=\"1e-05\">1e-05"}) {
    CAPTURE(cell);
    CHECK(page.find(cell) != std::string::npos);
  }
}

TEST_CASE("page: lines stay lines, quotes stay quotes, and markup is text") {
  CHECK(html_lines("{\n  \"a\": \"<b>\"\n}") == "{\n  \"a\": \"&lt;b&gt;\"\n}");
}

TEST_CASE("page: bars are in order, do not overlap and end with the step") {
  const testing::NotedDag noted = testing::dag_of(
      "a: compute d0 3us; t: transfer d0->d1 1MB after a; r: all-reduce d0,d1 4MB after t");
  Timeline timeline;
  timeline.spans = {
      {Seconds{0}, Seconds{3e-6}}, {Seconds{3e-6}, Seconds{1e-3}}, {Seconds{1e-3}, Seconds{2e-3}}};
  const Cluster cluster = testing::star_of(2, "1 GB/s", "1 us");
  const Bars bars = bars_of(noted.dag, timeline, cluster);
  CHECK(bars.end == 2'000'000);
  CHECK(bars.labels.size() == 3);
  // compute of d0; sending of d0 and receiving of d1; both sides of both for the all-reduce
  CHECK(bars.tracks.size() == 1 + 2 + 4);
  for (const BarTrack& track : bars.tracks) {
    std::int64_t end = 0;
    for (const Bar& bar : track.bars) {
      CHECK(bar.start >= end);
      end = bar.start + bar.length;
    }
    CHECK(end <= bars.end);
  }
  const std::string drawn = draw_timeline(bars, cluster);
  CHECK(drawn.find("[0,3000,0]") != std::string::npos);  // gap, length, label
  check_balanced(drawn);
}

TEST_CASE(
    "page: every strategy has its bar and its row, every plan its section, and the file is whole") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("page.html");
  const Finished finished = run({"compare", "--network", "mlp", "--cluster", pair, "--report", path,
                                 "--no-timeline", "--scaling", "1,2", "--json"});
  CHECK(finished.exit_code == 0);
  CHECK(folder.names() == Words{"page.html"});  // no temporary file stays
  const std::string page = testing::read_text(path);
  check_balanced(page);
  const json rows = json::parse(finished.out)["results"];
  std::size_t distinct = 0;
  for (const json& row : rows) {
    const std::string name = row["strategy"];
    distinct += row["same_plan_as"].is_null() ? 1 : 0;
    CHECK(count(page, "<h3>" + name + "</h3>") == (row["same_plan_as"].is_null() ? 1 : 0));
    CHECK(page.find("<td>" + name + "<td data-v=\"" + row["step_time_s"].dump() + "\"") !=
          std::string::npos);
  }
  CHECK(count(page, "<details class=strategy") == distinct);
  CHECK(count(page, "limit (less headroom)") == 1);  // the colours are explained once
  CHECK(count(page, "colours as for the first plan") == distinct - 1);
  CHECK(page.find("class=scaling") != std::string::npos);
  CHECK(page.find("parsim compare --network mlp --cluster &#39;star:2") != std::string::npos);
  CHECK(page.find("http://") == std::string::npos);  // nothing from elsewhere
  CHECK(page.find("https://") == std::string::npos);
}

TEST_CASE("page: the timeline stands in the page without any script, too") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("page.html");
  REQUIRE(run({"simulate", "--network", "lenet5", "--cluster", pair, "--strategy", "data",
               "--report", path})
              .exit_code == 0);
  const std::string page = testing::read_text(path);
  check_balanced(page);
  const std::size_t timeline = page.find("<div class=timeline>");
  REQUIRE(timeline != std::string::npos);
  CHECK(page.find("<path class=k1 d=\"M", timeline) != std::string::npos);  // backward
  const std::size_t data = page.find("<script type=\"application/json\">", timeline);
  const std::size_t begin = page.find('>', data) + 1;
  const json bars = json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  CHECK(bars["labels"].size() == bars["kinds"].size());
  for (const json& track : bars["tracks"]) CHECK(track.size() % 3 == 0);
}

TEST_CASE("page: 128 GPUs make a small page that draws equal ranks once") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("page.html");
  REQUIRE(
      run({"compare", "--network", "gpt:layers=4,hidden=256,heads=8,seq_length=128", "--cluster",
           "nodes:16x8,device=a100-sxm4-40,intra=200GB/s,inter=12.5GB/s,nics=4,latency=2us",
           "--batch", "512", "--precision", "bf16", "--strategy", "data", "--strategy", "tensor",
           "--strategy", "pipeline", "--report", path})
          .exit_code == 0);
  const std::string page = testing::read_text(path);
  check_balanced(page);
  CHECK(page.size() < 100'000);  // ten such strategies: 300 kB
  CHECK(count(page, "<details class=strategy") == 3);
  CHECK(page.find("n0.gpu0 ×128\ncommunication\n</pre>") != std::string::npos);  // data
  CHECK(page.find("<b>n0.gpu0 … n15.gpu7</b> ×128") != std::string::npos);
  CHECK(count(page, "class=links") == 3);
}

/// Whether the parts stand on the page in this order.
bool in_order(const std::string& page, const Words& parts) {
  std::size_t at = 0;
  for (const std::string& part : parts) {
    CAPTURE(part);
    at = page.find(part, at);
    CHECK(at != std::string::npos);
    if (at == std::string::npos) return false;
  }
  return true;
}

TEST_CASE("page: the answer first, then seven questions, the chart, the reasons, plans, numbers") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("page.html");
  const Finished finished =
      run({"compare", "--network", "mlp", "--cluster",
           "nodes:2x2,device=p100-sxm2*2+v100-sxm2*2,intra=100GB/s,inter=1GB/s,latency=1us",
           "--strategy", "data", "--strategy", "hybrid", "--report", path, "--title",
           "Our <b>choice</b>"});
  REQUIRE(finished.exit_code == 0);
  const std::string page = testing::read_text(path);
  check_balanced(page);
  const std::string first = finished.out.substr(0, finished.out.find(" ("));
  CHECK(first.starts_with("Best: "));
  CHECK(in_order(page, {"<title>Our &lt;b&gt;choice&lt;/b&gt;</title>",
                        "class=answer>" + first.substr(0, 12),
                        "<dt>Which plan<dd>",
                        "<dt>By how much<dd>",
                        "<dt>How sure<dd>",
                        "<dt>What bounds it<dd>",
                        "<dt>With half the memory<dd>",
                        "<dt>What would help<dd>",
                        "<dt>What to buy<dd>One more machine of 2 x ",
                        "class=steps",
                        "<h4>What would help",
                        "<h4>If the cluster were different",
                        "<h2>Why it takes ",
                        "from the peak to the step",
                        "<h2>What the words mean</h2>",
                        "<h2>Plans</h2>",
                        "class=stages",
                        "class=devices",
                        "class=timeline",
                        "class=links",
                        "<h2>All numbers</h2>",
                        "<h2>How sure, and on what data</h2>",
                        "id=command"}));
  CHECK(page.find("links between machines twice as fast") != std::string::npos);
  CHECK(page.find("The average GPU that takes part computes ") != std::string::npos);
  // The chart's bars and the table have means of different GPUs.
  CHECK(in_order(page, {"mean of the GPUs that compute", "exposed comm., all GPUs ["}));
  CHECK(in_order(page,
                 {"<dt>rank<dd>", "<dt>degrees<dd>", "Tight: above 90 % of what may\nbe used"}));
  CHECK(page.find("<h2>What it costs</h2>") == std::string::npos);  // no prices
}

TEST_CASE("page: a pipeline over several types of GPU says which blocks are on which") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("page.html");
  const std::string layout = folder.write(
      "layout.toml",
      "micro_batches = 4\nzero = 1\n[[stages]]\nblocks = \"0-4\"\ngroups = "
      "[[\"n0.gpu0\"], [\"n0.gpu1\"]]\n[[stages]]\nblocks = \"5\"\ngroups = [[\"n1.gpu0\"]]\n");
  const Finished finished =
      run({"simulate", "--network", "gpt:layers=6,hidden=64,heads=4,seq_length=32,vocab_size=100",
           "--cluster", "nodes:2x2,device=v100-sxm2*2+t4*2,intra=12GB/s,inter=1GB/s", "--batch",
           "8", "--precision", "bf16", "--layout", layout, "--report", path});
  REQUIRE(finished.exit_code == 0);
  const std::string page = testing::read_text(path);
  CHECK(page.find("Of 6 blocks 5 are on v100-sxm2, 1 is on t4.") != std::string::npos);
  CHECK(in_order(page, {"<p class=soft>1 of a micro-batch's 2 samples per replica\n",
                        "<p class=soft>all 2 samples of a micro-batch\n"}));
}

TEST_CASE("page: a stage says how many samples a replica has, and how many GPUs share them") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("page.html");
  const auto page = [&](const Words& more) {
    Words words = {"simulate",
                   "--network",
                   "gpt:layers=2,hidden=64,heads=4,seq_length=32",
                   "--cluster",
                   "star:4,device=v100-sxm2,rate=25GB/s,latency=1us",
                   "--batch",
                   "8",
                   "--strategy",
                   "tensor",
                   "--pp",
                   "1",
                   "--report",
                   path};
    words.insert(words.end(), more.begin(), more.end());
    REQUIRE(run(words).exit_code == 0);
    return testing::read_text(path);
  };
  CHECK(
      page({"--tp", "2", "--dp", "2"})
          .find("<p class=soft>4 of the batch's 8 samples per replica; its 2 GPUs share them\n") !=
      std::string::npos);
  CHECK(page({"--tp", "2", "--dp", "2", "--micro-batches", "4"})
            .find("1 of a micro-batch's 2 samples per replica; its 2 GPUs share it\n") !=
        std::string::npos);
  CHECK(page({"--tp", "4", "--dp", "1"})
            .find("<p class=soft>all 8 samples of the batch; 4 GPUs share them\n") !=
        std::string::npos);
}

TEST_CASE("page: a memory that every plan exceeds is said first, and what would fit") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("page.html");
  CHECK(run({"compare", "--network", "alexnet", "--cluster", pair, "--strategy", "data",
             "--override", "devices.gpu0.memory=512MiB", "--report", path})
            .exit_code == 5);
  const std::string page = testing::read_text(path);
  check_balanced(page);
  CHECK(in_order(page, {"No plan fits in memory", "<dt>The fastest plan, which does not fit<dd>",
                        "<dt>With half the memory<dd>The fullest GPU"}));
  CHECK(page.find("<dt>What would help") == std::string::npos);
}

TEST_CASE("page: prices make a chart of cost over step time") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("page.html");
  const std::string cluster =
      folder.write("priced.toml", "generator = \"" + pair +
                                      "\"\n[[overrides]]\ndevices = \"*\"\nprice = "
                                      "\"2 /h\"\n");
  REQUIRE(run({"compare", "--network", "mlp", "--cluster", cluster, "--strategy", "data",
               "--strategy", "pipeline", "--no-timeline", "--report", path})
              .exit_code == 0);
  const std::string page = testing::read_text(path);
  check_balanced(page);
  CHECK(in_order(page, {"<h4>If the cluster were different", "cost/M samples",
                        "without the 1 x p100", "No row is both faster and cheaper",
                        "<h2>What it costs</h2>", "class=plot", "per million samples"}));
  CHECK(count(page, "<circle") >= 1);
}

TEST_CASE("drawing: memory, kernels by micro-batch and communication of each rank, as markup") {
  const testing::TemporaryFolder folder;
  const std::string cluster =
      folder.write("four.toml",
                   "name = 'four'\n[[nodes]]\nname = '<&>'\nswitches = ['s']\ndevices = [{ model = "
                   "'t4', count = 2 }]\n[[nodes.links]]\na = 'gpu*'\nb = 's'\nrate = '12 GB/s'\n"
                   "latency = '1 us'\n");
  const std::string path = folder.path("step.svg");
  REQUIRE(run({"simulate", "--network", "gpt:layers=4,hidden=64,heads=4,seq_length=64", "--cluster",
               cluster, "--batch", "8", "--strategy", "tensor", "--tp", "1", "--pp", "2", "--dp",
               "1", "--micro-batches", "4", "--trace", path})
              .exit_code == 0);
  const std::string drawing = testing::read_text(path);
  check_balanced(drawing);
  CHECK(drawing.starts_with("<svg xmlns="));
  CHECK(drawing.ends_with("</svg>\n"));
  CHECK(count(drawing, "&lt;&amp;&gt;.gpu") == 2);         // two ranks
  CHECK(count(drawing, "class=\"soft\" x=\"150\"") == 3);  // the head, and a peak for each rank
  CHECK(count(drawing, ">3</text>") >= 2);     // the last micro-batch, forward or backward
  CHECK(count(drawing, "class=\"k5\"") == 3);  // sends and receives, and the key
  CHECK(drawing.size() < 30'000);
}

TEST_CASE("page: a title without a page is refused") {
  const Finished finished = run({"compare", "--network", "mlp", "--cluster", pair, "--title", "x"});
  CHECK(finished.exit_code == 2);
  CHECK(finished.err.find("--title: no page is written") != std::string::npos);
}

TEST_CASE("page: a failed run leaves neither a page nor half of one") {
  const testing::TemporaryFolder folder;
  CHECK(run({"simulate", "--network", "nothing", "--cluster", pair, "--strategy", "data",
             "--report", folder.path("page.html")})
            .exit_code == 2);
  CHECK(folder.names().empty());
}

/// Names that try to be markup, separators, ends of strings, commands of a terminal, or long.
const Words hostile_names = {"<script>alert(1)</script>", "\"'>& | ` $(x) \\\" ,;{}[]",
                             "line\\nbreak\\tand\\r bell\\u0007 \\u001b[31m",
                             "</title></style><!--", std::string(10'000, 'x')};

std::string toml_word(const std::string& name) {
  std::string out = "\"";
  for (const char c : name) out += c == '"' ? std::string("\\\"") : std::string(1, c);
  return out + "\"";
}

/// A cluster that bears the name wherever a cluster has names.
std::string cluster_named(const std::string& name) {
  std::string word = toml_word(name);
  if (name.find("\\\"") != std::string::npos) word = "'''" + name + "'''";
  return "name = " + word + "\n[[nodes]]\nname = " + word + "\nswitches = [" + word +
         "]\ndevices = [{ model = \"p100-sxm2\", count = 2 }]\n[[nodes.links]]\na = \"gpu*\"\nb "
         "= " +
         word + "\nrate = \"12 GB/s\"\nlatency = \"1 us\"\nsource = " + word + "\n";
}

/// Fields of a line of CSV; quoted ones may go over several lines.
std::vector<Words> read_csv(const std::string& text) {
  std::vector<Words> rows(1, Words(1));
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c != '"') {
        rows.back().back() += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        rows.back().back() += text[++i];
      } else {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      rows.back().emplace_back();
    } else if (c == '\n') {
      rows.emplace_back(1);
    } else {
      rows.back().back() += c;
    }
  }
  rows.pop_back();  // after the last line
  return rows;
}

TEST_CASE("hostile names: no form of a report breaks") {
  for (const std::string& name : hostile_names) {
    CAPTURE(name.substr(0, 60));
    const testing::TemporaryFolder folder;
    const std::string cluster = folder.write("cluster.toml", cluster_named(name));
    const std::string page_path = folder.path("page.html");
    const Words words = {"compare",    "--network", "mlp",        "--cluster", cluster,
                         "--strategy", "data",      "--strategy", "model-even"};
    const auto with = [&](const Words& more) {
      Words all = words;
      all.insert(all.end(), more.begin(), more.end());
      return run(all);
    };
    const Finished reported = with({"--report", page_path, "--json"});
    REQUIRE(reported.exit_code == 0);
    CHECK(json::accept(reported.out));
    const std::string page = testing::read_text(page_path);
    check_balanced(page);
    // Two scripts of ours and the data of two timelines, a title, a style.
    CHECK(count(page, "<script") == 4);
    CHECK(count(page, "</script") == 4);
    CHECK(count(page, "</title></style>") == 0);
    CHECK(page.find("<!--") == std::string::npos);
    CHECK(harmless(page));

    const std::vector<Words> csv = read_csv(with({"--format", "csv"}).out);
    REQUIRE(csv.size() == 3);
    for (const Words& row : csv) CHECK(row.size() == csv.front().size());
    const std::string md = with({"--format", "md"}).out;
    CHECK(harmless(md));
    CHECK(count(md, "<") == count(md, "\\<"));  // each stands behind a backslash
    const std::size_t pipes = count(md.substr(md.find("| strategy")), "\n|");
    CHECK(pipes == 3);  // the rule and two rows: no name made more
  }
}

TEST_CASE("hostile names: a plan's strategy and notes come from a file, too") {
  const testing::TemporaryFolder folder;
  const std::string plan_path = folder.path("plan.json");
  REQUIRE(
      run({"plan", "--network", "mlp", "--cluster", pair, "--strategy", "data", "-o", plan_path})
          .exit_code == 0);
  json plan = json::parse(testing::read_text(plan_path));
  plan["strategy"] = "<script>alert(1)</script>";
  plan["notes"] = {"</ul><img src=x onerror=alert(1)>"};
  const std::string hostile = folder.write("hostile.json", plan.dump());
  const std::string page_path = folder.path("page.html");
  REQUIRE(run({"simulate", "--plan", hostile, "--report", page_path}).exit_code == 0);
  const std::string page = testing::read_text(page_path);
  check_balanced(page);
  CHECK(count(page, "<script") == 3);
  CHECK(page.find("<img") == std::string::npos);
}

TEST_CASE("page: a validation shows its worst rows with their reasons, as the terminal does") {
  const testing::TemporaryFolder folder;
  std::string rows =
      "model,batch_per_gpu,gpu,machine,nodes,gpus_per_node,n_gpus,interconnect,precision,framework,"
      "parallelism,value,unit,split,reason\n"
      "LeNet,64,Tesla P100-SXM2,box,1,1,1,none,FP32,F,DP,30000,images/s,calibrate,\n";
  for (int row = 0; row < 12; ++row) {
    rows += fmt::format(
        "LeNet,64,Tesla P100-SXM2,box,1,2,2,PCIe gen3,FP32,F,DP,{},images/s,validate,an "
        "odd box\n",
        60000 + 1000 * row);
  }
  const std::string page_path = folder.path("page.html");
  const Finished finished =
      run({"validate", "--published", "--data", folder.write("twelve.csv", rows), "--report",
           page_path, "--json"});
  REQUIRE(finished.exit_code == 0);
  const std::string page = testing::read_text(page_path);
  check_balanced(page);
  std::vector<std::pair<double, std::string>> errors;
  const json result = json::parse(finished.out);
  for (const json& row : result["rows"]) {
    const double error = row["error"];
    errors.emplace_back(std::abs(error), fmt::format("<td data-v=\"{}\">", error));
    CHECK(row["reason"] == (std::abs(error) < 0.1 ? "" : "an odd box"));
  }
  std::sort(errors.rbegin(), errors.rend());
  REQUIRE(errors.size() == 12);
  const std::size_t begin = page.find("<caption>largest errors"),
                    end = page.find("</table>", begin);
  REQUIRE(begin != std::string::npos);
  const std::string worst = page.substr(begin, end - begin);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    CAPTURE(errors[i].second);
    CHECK(count(worst, errors[i].second) == (i < 10 ? 1 : 0));
    CHECK(count(page, errors[i].second) == (i < 10 ? 2 : 1));  // and among all rows
  }
  CHECK(count(worst, "<th>possible reason") == 1);
  // The answer, errors with the interval of nine of ten rows, a large drawing, reasons, numbers;
  // one word for what others measured.
  const json& set = result["sets"][0];
  CHECK(in_order(
      page, {fmt::format("<p class=answer>Off by {:.1f}", 100 * set["mean_error"].get<double>()),
             "<h2>Errors by set</h2>",
             fmt::format("({:.1f} % to {:.1f} %), 12 rows", 100 * set["low_error"].get<double>(),
                         100 * set["high_error"].get<double>()),
             "class=whisker", "<h2>Predicted against measured</h2>", "x: measured, y: predicted",
             "<h2>Rows with their reasons</h2>", "<caption>largest errors", "<h2>All numbers</h2>",
             "<caption>errors by set"}));
  CHECK(page.find("xpected") == std::string::npos);
  CHECK(page.find(">published<") == std::string::npos);
}

TEST_CASE("page: a validation is drawn row by row, with hostile names of cases") {
  const testing::TemporaryFolder folder;
  // The first row calibrates and is not drawn; one hostile name stands in a file's name.
  const std::string rows =
      "model,batch_per_gpu,gpu,machine,nodes,gpus_per_node,n_gpus,interconnect,precision,framework,"
      "parallelism,value,unit,split\n"
      "LeNet,64,Tesla P100-SXM2,box,1,1,1,none,FP32,F,DP,30000,images/s,calibrate\n"
      "LeNet,64,Tesla P100-SXM2,box,1,2,2,PCIe gen3,FP32,F,DP,60000,images/s,validate\n"
      "LeNet,64,Tesla P100-SXM2,box,1,4,4,PCIe gen3,FP32,F,DP,100000,images/s,validate\n";
  const std::string data = folder.write("<img src=x>&\".csv", rows);
  const std::string page_path = folder.path("page.html");
  const Finished finished =
      run({"validate", "--published", "--data", data, "--report", page_path, "--json"});
  REQUIRE(finished.exit_code == 0);
  const std::string page = testing::read_text(page_path);
  check_balanced(page);
  CHECK(harmless(page));
  CHECK(page.find("<img") == std::string::npos);
  CHECK(count(page, "<circle") == 2);
  CHECK(count(page, "<figure>") == 1);
  const json result = json::parse(finished.out);
  for (const json& row : result["rows"]) {
    const std::string error = fmt::format("{:+.1f} %", 100 * row["error"].get<double>());
    CAPTURE(error);
    CHECK(count(page, error) == 2);  // the dot and the row of the table
  }
  CHECK(run({"validate", "--papers", "--report", "/nowhere/x.html"}).exit_code == 2);
}

}  // namespace
}  // namespace parsim::report
