#include "experiment/trainer_hydra.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/text.hpp"
#include "experiment/files.hpp"

namespace parsim::experiment {

namespace {

constexpr std::string_view self = "_self_";

/// The names that "train: [model, parallelism]", "train: 7b" or "train/7b" asks for; none of an
/// item of another group.
std::vector<std::string> group_names(std::string_view item) {
  std::string text;
  for (const char c : item) {
    text += c == '[' || c == ']' || c == ',' || c == '"' || c == '\'' ? ' ' : c;
  }
  std::vector<std::string_view> words = split_at_blanks(text);
  while (!words.empty() && (words.front() == "override" || words.front() == "optional")) {
    words.erase(words.begin());
  }
  if (words.empty()) return {};
  std::string_view group = words.front();
  if (group.starts_with('/')) group.remove_prefix(1);
  constexpr std::string_view inside = "train/";
  if (words.size() == 1 && group.starts_with(inside)) {
    return {std::string(group.substr(inside.size()))};
  }
  if (group != "train:") return {};
  return {words.begin() + 1, words.end()};
}

std::vector<std::string> items_of(const TrainerWords& own) { return own.texts("defaults"); }

}  // namespace

bool is_experiment_of_hydra(std::string_view text, const std::string& file) {
  if (text.find("defaults:") == text.npos) return false;
  for (const std::string& item : items_of(read_words(text, file))) {
    if (!group_names(item).empty()) return true;
  }
  return false;
}

TrainerWords read_experiment_of_hydra(std::string_view text, const std::string& file) {
  const TrainerWords own = read_words(text, file);
  TrainerWords all(file, {});
  std::vector<std::string> missing;
  bool has_self = false;
  for (const std::string& item : items_of(own)) {
    if (item == self) {
      has_self = true;
      all.add(own);
    }
    for (std::string name : group_names(item)) {
      const std::string where = own.where("defaults");
      if (name.find('$') != name.npos) {
        throw InputError(where, fmt::format("'{}'", item),
                         "accepted: the name of a file, or that file itself as --plan");
      }
      const std::filesystem::path relative(name);
      const bool leaves = std::find(relative.begin(), relative.end(), "..") != relative.end();
      if (leaves || relative.is_absolute()) {
        throw InputError(where, fmt::format("'{}'", item), "accepted: the name of a file in train");
      }
      if (name.ends_with(".yaml")) name.resize(name.size() - std::string_view(".yaml").size());
      const std::filesystem::path folder = std::filesystem::path(file).parent_path();
      const std::string path = (folder / "train" / (name + ".yaml")).string();
      if (file_exists(path)) {
        all.add(read_words(read_file(path, "--plan"), path));
      } else {
        missing.push_back(path);  // the model, which the user of plan --launch adds
      }
    }
  }
  if (!has_self) all.add(own);
  if (!all.has("tensor-model-parallel-size") && !all.has("pipeline-model-parallel-size")) {
    std::string found = "no degrees of parallelism in the files of its group train";
    if (!missing.empty()) found += fmt::format("; {} is not there", fmt::join(missing, ", "));
    throw InputError(own.where("defaults"), found,
                     "accepted: FlagScale's files train/NAME.yaml next to it, with "
                     "tensor_model_parallel_size or pipeline_model_parallel_size; or that file "
                     "itself");
  }
  return all;
}

}  // namespace parsim::experiment
