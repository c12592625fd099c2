#include "experiment/read_files.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <vector>

#include "core/csv.hpp"
#include "core/errors.hpp"
#include "core/files.hpp"
#include "experiment/files.hpp"
#include "experiment/trainer_file.hpp"
#include "experiment/trainer_hosts.hpp"
#include "experiment/trainer_hydra.hpp"

namespace parsim::experiment {

namespace {

namespace fs = std::filesystem;

/// Texts of `import = "…"`, with quotes of either kind, and of JSON's `"import": "…"`.
std::vector<std::string> imports_in(std::string_view text) {
  std::vector<std::string> names;
  constexpr std::string_view key = "import";
  for (std::size_t at = text.find(key); at != text.npos; at = text.find(key, at)) {
    at += key.size();
    const std::size_t equals = text.find_first_not_of(" \t\"", at);
    if (equals == text.npos || (text[equals] != '=' && text[equals] != ':')) continue;
    const std::size_t quote = text.find_first_not_of(" \t", equals + 1);
    if (quote == text.npos || (text[quote] != '"' && text[quote] != '\'')) continue;
    const std::size_t end = text.find(text[quote], quote + 1);
    if (end == text.npos) break;
    names.emplace_back(text.substr(quote + 1, end - quote - 1));
  }
  return names;
}

/// Values of the columns that name files.
std::set<std::string> named_in_rows(const std::string& text, const std::string& file) {
  std::set<std::string> names;
  try {
    const CsvTable table = read_csv(text, file);
    for (const char* column : {"model", "network", "cluster", "layout_file", "profile"}) {
      for (const CsvTable::Row& row : table.rows) names.insert(table.at(row, column));
    }
  } catch (const InputError&) {  // refused when it is used
  }
  names.erase("");
  return names;
}

class Reader {
 public:
  /// `lists`: only the names are wanted, which an unreadable file has, too.
  explicit Reader(const std::string& given, bool lists = false) : given_(given), lists_(lists) {
    read_named(given);
  }
  [[nodiscard]] const std::string& content() const { return content_; }
  [[nodiscard]] const std::set<std::string>& files() const { return seen_; }

 private:
  void read_named(const std::string& name) {
    std::string file = file_of(name);
    std::error_code error;
    if (file.empty() && fs::is_directory(name, error)) {
      for (const std::string_view inside : trainer_files) {
        if (file.empty() && file_exists((fs::path(name) / inside).string()))
          file = (fs::path(name) / inside).string();
      }
    }
    if (!file.empty()) read(file);
  }

  void read(const std::string& file) {
    std::error_code error;
    if (lists_ && !fs::is_regular_file(file, error)) return;
    if (!seen_.insert(file).second) return;
    std::string text;
    try {
      text = read_file(file, given_);
    } catch (const InputError&) {
      if (!lists_) throw;
    }
    content_ += text;
    const fs::path path(file), folder = path.parent_path();
    if (path.extension() == ".csv") {
      for (const std::string& name : named_in_rows(text, file))
        read_named((folder / name).string());
    } else if (is_trainer_file(text, file)) {
      if (const auto hosts = hostfile_of(file)) read(*hosts);
      if (is_experiment_of_hydra(text, file)) read_group(folder / "train");
    } else if (path.extension() == ".toml" || path.extension() == ".json") {
      for (const std::string& name : imports_in(text)) read_named((folder / name).string());
    }
  }

  void read_group(const fs::path& folder) {
    std::set<std::string> files;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".yaml") files.insert(entry.path().string());
    }
    for (const std::string& file : files) read(file);
  }

  const std::string& given_;
  bool lists_;
  std::set<std::string> seen_;
  std::string content_;
};

}  // namespace

std::string hash_of_files(const std::string& given) {
  const Reader reader(given);
  return reader.files().empty() ? "" : fnv1a64(reader.content());
}

std::vector<std::string> files_read_for(const std::string& given) {
  const Reader reader(given, true);
  std::vector<std::string> files(reader.files().begin(), reader.files().end());
  std::error_code error;
  if (!fs::is_directory(given, error)) return files;
  for (const fs::directory_entry& entry : fs::directory_iterator(given, error)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path().string());
  }
  return files;
}

}  // namespace parsim::experiment
