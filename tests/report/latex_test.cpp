#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "report/runs.hpp"

namespace parsim::report {
namespace {

using experiment::RunResult;

RunResult row(const std::string& strategy, const std::string& error, std::int64_t capacity) {
  RunResult result;
  result.strategy = strategy;
  result.error = error;
  experiment::DeviceResult device;
  device.memory.weights = Bytes{100};
  device.capacity = Bytes{capacity};
  result.devices = {device};
  return result;
}

TEST_CASE("latex: words are left out, what does not fit is marked, what has no plan is dashes") {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  Document document;
  document.head = {"a_net on 50% {c} (2 x t4), batch 64", "kernel times: modelled"};
  document.tables.emplace_back();
  add_words(document.tables[0], "strategy", "strategy", {"a&b", "#1", "[x]"});
  add_numbers(document.tables[0], "s", {{"step", "step_time_s", {2e-6, 3e-6, none}}});
  add_words(document.tables[0], "memory", "memory", {"fits", "needs more", "-"}, Audience::people);
  add_numbers(document.tables[0], "B", {{"peak mem.", "peak_memory_bytes", {1024, 2048, none}}});
  // 100 B in 1000 B leave more than any headroom; in 10 B they do not fit.
  CHECK(latex_table(document, {row("a&b", "", 1000), row("#1", "", 10), row("[x]", "no", 10)}) ==
        R"(% \usepackage{booktabs}
\begin{table}
  \centering
  \caption{a\_net on 50\% \{c\} (2 x t4), batch 64. All numbers are predicted; compute and communication are means over the GPUs. $^\dagger$~Does not fit in memory.}
  \begin{tabular}{lrr}
    \toprule
    strategy & step & peak mem. \\
    & [$\mu$s] & [KiB] \\
    \midrule
    a\&b & 2.00 & 1.00 \\
    \#1$^\dagger$ & 3.00 & 2.00 \\
    {}[x] & -- & -- \\
    \bottomrule
  \end{tabular}
\end{table}
)");
}

TEST_CASE("latex: every character that LaTeX treats specially is printed as it is") {
  const auto caption = [](const std::string& text) {
    Document document;
    document.head = {text};
    document.tables.emplace_back();
    const std::string table = latex_table(document, {});
    const std::size_t begin = table.find("\\caption{") + 9;
    return table.substr(begin, table.find(". All", begin) - begin);
  };
  CHECK(caption("#$%&_{}") == "\\#\\$\\%\\&\\_\\{\\}");
  CHECK(caption("\\~^") == "\\textbackslash{}\\textasciitilde{}\\textasciicircum{}");
  CHECK(caption("<>|\"") == "\\textless{}\\textgreater{}\\textbar{}\\char34{}");
  // Beside each other they would be a dash, quotation marks or a Spanish question mark.
  CHECK(caption("a-b--c?`''") == "a-b-{}-c?{}`{}'{}'");
  CHECK(caption("exposed comm. time") == "exposed comm.\\ time");
  CHECK(caption("*x, µ€\xff\n1") == "{}*x, ????1");
}

TEST_CASE("latex: a measured step is not called predicted") {
  Document document;
  document.head = {"n"};
  document.tables.emplace_back();
  add_words(document.tables[0], "strategy", "strategy", {"data"});
  add_numbers(document.tables[0], "s", {{"measured", "measured_step_time_s", {0.5}}});
  CHECK(latex_table(document, {row("data", "", 1000)})
            .find("predicted but the measured step and its error;") != std::string::npos);
}

}  // namespace
}  // namespace parsim::report
