#include "app/completion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "app/cli.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "topologies/topologies.hpp"

namespace parsim::app {

namespace {

template <class Catalogue>
std::vector<std::string> catalogue_names(const Catalogue& catalogue) {
  std::vector<std::string> names;
  for (const auto& entry : catalogue) names.push_back(entry.name);
  return names;
}

std::vector<std::string> network_names() {
  std::vector<std::string> names = catalogue_names(networks::all());
  for (std::string& formula : catalogue_names(networks::network_formulas())) {
    names.push_back(std::move(formula));
  }
  return names;
}

/// What an option's value may be, apart from files.
std::vector<std::string> values_of(const experiment::Option& option) {
  if (option.flag == "--network") return network_names();
  if (option.flag == "--cluster") return catalogue_names(topologies::clusters());
  if (option.flag == "--strategy") {
    std::vector<std::string> names = catalogue_names(strategies::all());
    for (const strategies::StrategyAlias& alias : strategies::strategy_aliases()) {
      names.emplace_back(alias.name);
    }
    return names;
  }
  if (option.flag == "--costs") return catalogue_names(sim::cost_sources());
  return option.words();
}

/// What the second word of a verb may be, apart from files, after each first one.
struct NamesAfter {
  std::string verb, word;
  std::vector<std::string> names;
};
std::vector<NamesAfter> names_after_words() {
  return {{"show", "network", network_names()},
          {"show", "cluster", catalogue_names(topologies::clusters())}};
}

}  // namespace

std::string bash_completion() {
  std::vector<std::string> names;
  for (const Verb& verb : verbs()) names.emplace_back(verb.name);
  std::string out = fmt::format(
      "# bash completion for parsim: . <(parsim completion bash)\n"
      "_parsim() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    mapfile -t COMPREPLY < <(compgen -W '{} --help --version' -- \"$word\")\n"
      "    return\n"
      "  fi\n"
      "  case $before in\n",
      join(names, " "));
  for (const experiment::Option& option : experiment::options()) {
    if (option.placeholder().empty()) continue;
    const bool files = option.value.find("FILE") != std::string_view::npos || option.value == "DIR";
    out += fmt::format(
        "    {}) mapfile -t COMPREPLY < <(compgen {}-W '{}' -- \"$word\"); return ;;\n",
        option.rules.long_name.empty() ? std::string(option.flag)
                                       : fmt::format("{}|{}", option.flag, option.rules.long_name),
        files ? "-f " : "", join(values_of(option), " "));
  }
  out +=
      "  esac\n"
      "  if ((COMP_CWORD == 3)) && [[ $word != -* ]]; then\n"
      "    case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n";
  for (const NamesAfter& after : names_after_words()) {
    out += fmt::format(
        "      '{} {}') mapfile -t COMPREPLY < <(compgen -f -W '{}' -- \"$word\"); return ;;\n",
        after.verb, after.word, join(after.names, " "));
  }
  out += "    esac\n  fi\n  case ${COMP_WORDS[1]} in\n";
  for (const Verb& verb : verbs()) {
    std::vector<std::string> words;
    if (!verb.words.empty()) words = verb.words.front().choices;
    for (const experiment::Option* option : options_of(verb)) {
      words.emplace_back(option->flag);
      if (!option->rules.long_name.empty()) words.emplace_back(option->rules.long_name);
    }
    words.emplace_back("--help");
    out += fmt::format("    {}) words='{}' ;;\n", verb.name, join(words, " "));
  }
  return out +
         "  esac\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
         "}\n"
         "complete -o bashdefault -F _parsim parsim ./parsim\n";
}

}  // namespace parsim::app
