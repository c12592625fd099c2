#include "tests/support/transcript.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

namespace parsim::testing {

namespace {

const std::string exit_word = "exit ";

/// A line that is followed by the command of a transcript, or is one.
bool begins(const std::vector<std::string>& lines, std::size_t at) {
  const std::size_t command = at + (lines[at].starts_with("# ") ? 1 : 0);
  return command + 1 < lines.size() && lines[command].starts_with("$") &&
         lines[command + 1].starts_with(exit_word);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<Transcript> transcripts_in(const std::string& path) {
  const std::vector<std::string> lines = lines_of(read_text(path));
  if (lines.empty() || !begins(lines, 0)) {
    throw std::runtime_error(path + " does not begin with '$ command' and 'exit N'");
  }
  std::vector<Transcript> found;
  for (std::size_t at = 0; at < lines.size();) {
    Transcript next{path, {}, {}, 0, {}};
    if (lines[at].starts_with("# ")) next.name = lines[at++].substr(2);
    next.command = lines[at++].substr(1);
    next.exit_code = std::stoi(lines[at++].substr(exit_word.size()));
    for (; at < lines.size() && !begins(lines, at); ++at) next.text += lines[at] + '\n';
    if (at < lines.size()) {  // the blank line between two of them
      if (!next.text.ends_with("\n\n")) {
        throw std::runtime_error(path + ": no blank line before '" + lines[at] + "'");
      }
      next.text.pop_back();
    }
    found.push_back(next);
  }
  return found;
}

}  // namespace

std::vector<Transcript> transcripts(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Transcript> found;
  for (const std::string& path : paths) {
    const std::vector<Transcript> more = transcripts_in(path);
    found.insert(found.end(), more.begin(), more.end());
  }
  return found;
}

std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false;
  bool any = false;
  for (const char c : command) {
    if (c == '\'') {
      quoted = !quoted;
      any = true;
    } else if (c == ' ' && !quoted) {
      if (any) words.push_back(word);
      word.clear();
      any = false;
    } else {
      word += c;
      any = true;
    }
  }
  if (any) words.push_back(word);
  return words;
}

bool regenerating() { return std::getenv("PARSIM_REGENERATE") != nullptr; }

void rewrite(const std::vector<Transcript>& transcripts) {
  std::map<std::string, std::string> files;
  for (const Transcript& transcript : transcripts) {
    std::string& file = files[transcript.path];
    if (!file.empty()) file += '\n';
    if (!transcript.name.empty()) file += "# " + transcript.name + '\n';
    file += '$' + transcript.command + "\nexit " + std::to_string(transcript.exit_code) + '\n' +
            transcript.text;
  }
  for (const auto& [path, text] : files) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
  }
}

}  // namespace parsim::testing
