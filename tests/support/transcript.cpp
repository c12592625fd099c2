#include "tests/support/transcript.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace parsim::testing {

std::vector<Transcript> transcripts(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Transcript> found;
  for (const std::string& path : paths) {
    std::istringstream lines(read_text(path));
    std::string command;
    std::string exit_line;
    std::getline(lines, command);
    std::getline(lines, exit_line);
    const std::string exit_word = "exit ";
    if (!command.starts_with("$") || !exit_line.starts_with(exit_word)) {
      throw std::runtime_error(path + " does not begin with '$ command' and 'exit N'");
    }
    found.push_back({path, command.substr(1), std::stoi(exit_line.substr(exit_word.size())),
                     std::string(std::istreambuf_iterator<char>(lines), {})});
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

void rewrite(const Transcript& transcript, int exit_code, const std::string& text) {
  std::ofstream file(transcript.path, std::ios::binary);
  file << '$' << transcript.command << "\nexit " << exit_code << '\n' << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + transcript.path);
}

}  // namespace parsim::testing
