#include "topologies/import/smi_matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "topologies/document.hpp"

namespace parsim::topologies {

namespace {

/// Without the escape sequences with which the header is underlined.
std::string plain(std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      while (i < line.size() && line[i] != 'm') ++i;
    } else if (line[i] != '\r') {
      text += line[i];
    }
  }
  return text;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

class MatrixReader {
 public:
  MatrixReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  SmiMatrix read() && {
    parse();
    check_products();
    check();
    return std::move(matrix_);
  }

 private:
  [[nodiscard]] std::string where(std::int64_t line, std::string_view what) const {
    return fmt::format("{}:{}:{}", file_, line, what);
  }
  [[nodiscard]] std::size_t count() const { return matrix_.names.size(); }

  void parse() {
    std::istringstream stream{std::string(text_)};
    std::int64_t number = 0;
    for (std::string raw; std::getline(stream, raw);) {
      ++number;
      const std::string line = plain(raw);
      const std::vector<std::string> words = words_of(line);
      if (words.empty()) {
        if (!matrix_.cells.empty()) break;  // the legend follows
      } else if (words.front() == "GPU" && words.size() > 1) {
        read_product(line, words, number);
      } else if (words.front() == "MIG" && words.size() > 1 && !listed_.empty()) {
        // A process sees one instance, without NVLink and peer-to-peer (NVIDIA's MIG user guide).
        throw InputError(where(number, listed_.back().first),
                         fmt::format("divided into MIG instances ({})", words[1]),
                         "accepted: whole GPUs; instances as [[device_types]] of a cluster file, "
                         "each with its own multiprocessors, peaks, memory and memory_rate");
      } else if (words.front() == "GPU0" && matrix_.names.empty()) {
        read_header(words);
      } else if (!matrix_.names.empty()) {
        if (words.front() == "Legend:") break;
        read_row(words, number);
      }
    }
    if (matrix_.names.empty()) {
      throw InputError(where(1, "matrix"), "no header line that begins with GPU0",
                       "accepted: the whole output of 'nvidia-smi topo -m'");
    }
    if (matrix_.cells.size() < count()) {
      throw InputError(where(number, "matrix"),
                       fmt::format("{} rows for {} columns", matrix_.cells.size(), count()),
                       "accepted: the whole output of 'nvidia-smi topo -m'");
    }
  }

  /// "GPU 0: Tesla V100-SXM2-16GB (UUID: GPU-…)", a line of nvidia-smi -L.
  void read_product(const std::string& line, const std::vector<std::string>& words,
                    std::int64_t number) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos || !words[1].ends_with(':')) return;
    const std::size_t end = line.find(" (UUID", colon);
    const std::string name = "GPU" + words[1].substr(0, words[1].size() - 1);
    const std::string product =
        line.substr(colon + 2, end == std::string::npos ? end : end - colon - 2);
    if (!matrix_.products.emplace(name, product).second) {
      throw InputError(where(number, name), "listed twice by 'nvidia-smi -L'", of_one_machine);
    }
    listed_.emplace_back(name, number);
  }

  /// List and matrix, if there are both, are of the same GPUs.
  void check_products() const {
    if (listed_.empty()) return;
    for (const auto& [name, line] : listed_) {
      if (std::find(matrix_.names.begin(), matrix_.names.end(), name) != matrix_.names.end()) {
        continue;
      }
      throw InputError(where(line, name), "listed by 'nvidia-smi -L', but not in the matrix",
                       of_one_machine);
    }
    for (std::size_t i = 0; i < count(); ++i) {
      const std::string& name = matrix_.names[i];
      if (!is_smi_gpu(name) || matrix_.products.contains(name)) continue;
      throw InputError(where(matrix_.lines[i], name),
                       fmt::format("in the matrix, but not among the {} GPU{} listed by "
                                   "'nvidia-smi -L'",
                                   listed_.size(), listed_.size() == 1 ? "" : "s"),
                       of_one_machine);
    }
  }

  /// Names of devices up to "CPU Affinity".
  void read_header(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      if (word == "CPU" || word == "NUMA") break;
      matrix_.names.push_back(word);
    }
  }

  void read_row(const std::vector<std::string>& words, std::int64_t line) {
    const std::size_t row = matrix_.cells.size();
    if (row == count() || words.front() != matrix_.names[row]) {
      const std::string expected = row == count()
                                       ? std::string("no further row")
                                       : fmt::format("the row of {}", matrix_.names[row]);
      throw InputError(where(line, words.front()),
                       fmt::format("expected {}, found that of {}", expected, words.front()),
                       "accepted: rows in the order of the columns");
    }
    if (words.size() < count() + 1) {
      throw InputError(where(line, words.front()),
                       fmt::format("{} entries for {} columns", words.size() - 1, count()),
                       "accepted: one entry per column");
    }
    std::vector<SmiCell> cells;
    for (std::size_t i = 0; i < count(); ++i) {
      cells.push_back(cell(words[i + 1], where(line, words.front() + "." + matrix_.names[i])));
    }
    matrix_.cells.push_back(std::move(cells));
    matrix_.lines.push_back(line);
    matrix_.affinity.push_back(words.size() > count() + 1 ? words[count() + 1] : "");
  }

  [[nodiscard]] static SmiCell cell(const std::string& word, const std::string& where) {
    // SOC and PHB of drivers before 2017 mean what SYS and PHB mean now.
    static const std::pair<std::string, SmiWay> ways[] = {
        {"X", SmiWay::self},    {"PIX", SmiWay::pix}, {"PXB", SmiWay::pxb}, {"PHB", SmiWay::phb},
        {"NODE", SmiWay::node}, {"SYS", SmiWay::sys}, {"SOC", SmiWay::sys}};
    for (const auto& [name, way] : ways) {
      if (name == word) return {way, 0};
    }
    constexpr std::int64_t most = 1024;
    if (word.starts_with("NV")) {
      const auto links = to_number<std::int64_t>(std::string_view(word).substr(2));
      if (links && *links >= 1 && *links <= most) return {SmiWay::nvlink, *links};
    }
    const std::vector<std::string> known{"X", "NV1", "NV2", "PIX", "PXB", "PHB", "NODE", "SYS"};
    throw InputError(where, fmt::format("'{}'", word),
                     fmt::format("accepted: X, NV# (1 to {}), PIX, PXB, PHB, NODE, SYS{}", most,
                                 did_you_mean(word, known)));
  }

  /// The matrix is symmetric, with X on its diagonal, and NVLinks join GPUs only.
  void check() const {
    for (std::size_t i = 0; i < count(); ++i) {
      for (std::size_t j = 0; j < count(); ++j) {
        const SmiCell &cell = matrix_.cells[i][j], &back = matrix_.cells[j][i];
        const std::string at = where(matrix_.lines[i], matrix_.names[i] + "." + matrix_.names[j]);
        if ((cell.way == SmiWay::self) != (i == j)) {
          throw InputError(at, i == j ? "no X on the diagonal" : "an X off the diagonal",
                           "accepted: X on the diagonal only");
        }
        if (cell.way != back.way || cell.nvlinks != back.nvlinks) {
          throw InputError(
              at, fmt::format("the rows of {} and {} disagree", matrix_.names[i], matrix_.names[j]),
              "accepted: a symmetric matrix");
        }
        if (cell.way == SmiWay::nvlink &&
            !(is_smi_gpu(matrix_.names[i]) && is_smi_gpu(matrix_.names[j]))) {
          throw InputError(at, "NVLinks to a network card", "accepted: NV# between GPUs");
        }
      }
    }
  }

  static constexpr std::string_view of_one_machine =
      "accepted: the whole output of both commands on one machine, or the matrix alone with "
      "FILE,device=NAME";

  std::string_view text_;
  const std::string& file_;
  SmiMatrix matrix_;
  std::vector<std::pair<std::string, std::int64_t>>
      listed_;  ///< by nvidia-smi -L, with their lines
};

}  // namespace

SmiMatrix parse_smi_matrix(std::string_view text, const std::string& file) {
  return MatrixReader(text, file).read();
}

}  // namespace parsim::topologies
