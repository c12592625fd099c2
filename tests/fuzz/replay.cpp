// Runs a target over its corpus and over mutations of it, always the same ones: what the normal
// tests have of fuzzing. Arguments: mutations per file, then files and folders.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string_view>
#include <vector>

#include "tests/fuzz/target.hpp"

namespace {

using Random = std::mt19937_64;

std::size_t below(std::size_t limit, Random& random) { return random() % limit; }

/// What readers of text and of numbers like least.
constexpr std::array<std::string_view, 14> nasty = {"-1",
                                                    "0",
                                                    "9223372036854775807",
                                                    "-9223372036854775808",
                                                    "1e999",
                                                    "nan",
                                                    "\"",
                                                    "}",
                                                    "[",
                                                    "\n",
                                                    "\xff\xfe",
                                                    "99999999999999999999",
                                                    "null",
                                                    ","};

/// One change somewhere: a byte, a lost or repeated piece, a nasty word, or a cut end.
std::string mutated(std::string text, Random& random) {
  if (text.empty()) return std::string(nasty[below(nasty.size(), random)]);
  const std::size_t at = below(text.size(), random);
  const std::size_t length = 1 + below(16, random);
  switch (below(5, random)) {
    case 0:
      text[at] = static_cast<char>(below(256, random));
      break;
    case 1:
      text.erase(at, length);
      break;
    case 2:
      text.insert(at, text.substr(at, length));
      break;
    case 3:
      text.replace(at, length, nasty[below(nasty.size(), random)]);
      break;
    default:
      text.resize(at);
  }
  return text;
}

std::vector<std::filesystem::path> files_of(char** begin, char** end) {
  std::vector<std::filesystem::path> files;
  for (char** word = begin; word != end; ++word) {
    if (!std::filesystem::is_directory(*word)) {
      files.emplace_back(*word);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(*word)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());  // a folder's own order differs between machines
  return files;
}

/// False, with the input kept in a file, if the target found a bug.
bool passes(const std::string& input, const std::filesystem::path& origin, int mutation) {
  try {
    parsim::fuzz::run(input);
    return true;
  } catch (const std::exception& error) {
    fmt::print("{} mutation {}: {}\n", origin.string(), mutation, error.what());
  }
  std::ofstream("fuzz-failure", std::ios::binary) << input;
  fmt::print("the input is in {}/fuzz-failure\n", std::filesystem::current_path().string());
  return false;
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) return 2;
  const int mutations = std::atoi(words[1]);
  const std::vector<std::filesystem::path> files = files_of(words + 2, words + count);
  for (const std::filesystem::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(stream)), {});
    Random random(1);
    if (!passes(text, file, 0)) return 1;
    for (int i = 1; i <= mutations; ++i) {
      std::string input = text;
      // Few mutations get deep into a format, many get far from it.
      for (std::size_t more = 1 + below(4, random); more > 0; --more) {
        input = mutated(std::move(input), random);
      }
      if (!passes(input, file, i)) return 1;
    }
  }
  fmt::print("{} files, {} mutations each\n", files.size(), mutations);
  return files.empty() ? 1 : 0;
}
