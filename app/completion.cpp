#include "app/completion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "app/cli.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
#include "networks/networks.hpp"
#include "report/runs.hpp"
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

/// What an option's value may be, beside files.
std::vector<std::string> values_of(const experiment::Option& option) {
  if (option.flag == "--network") return network_names();
  if (option.flag == "--cluster") return catalogue_names(topologies::clusters());
  if (option.flag == "--strategy") return catalogue_names(strategies::all());
  if (option.flag == "--costs") return catalogue_names(sim::cost_sources());
  return option.words();
}

/// What the second word of a verb may be, beside files, after each first one.
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
    const bool files = option.value.find("FILE") != std::string_view::npos;
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

std::string manual_page() {
  const auto roff = [](std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c == '\\') {
        out += "\\e";
      } else if (c == '-') {
        out += "\\-";
      } else if (c == '\'' || (c == '.' && out.empty())) {
        out += c == '.' ? "\\&." : "\\(aq";
      } else {
        out += c;
      }
    }
    return out;
  };
  std::string out = fmt::format(
      ".TH PARSIM 1 \"\" \"parsim {}\"\n.SH NAME\nparsim \\- how to train a neural network on a "
      "cluster, and how long a step takes\n.SH SYNOPSIS\n",
      report::version());
  for (const Verb& verb : verbs()) {
    out += fmt::format(".B parsim {}\n", verb.name);
    for (const Word& word : verb.words) out += fmt::format(".I {}\n", word.name);
    out += "[options]\n.br\n";
  }
  out += ".SH VERBS\n";
  for (const Verb& verb : verbs()) {
    out += fmt::format(".TP\n.B {}\n{}.\n", verb.name, roff(verb.summary));
    for (const Word& word : verb.words) {
      out += fmt::format(".I {}\nis {}.\n", word.name, roff(word.help));
    }
    out += fmt::format(".br\nExample:\n.B {}\n", roff(verb.example));
  }
  out += ".SH OPTIONS\n";
  for (const experiment::Option& option : experiment::options()) {
    const std::string placeholder = option.placeholder();
    out += fmt::format(".TP\n.B {}{}{}\n{} ({}).\n", roff(option.flag),
                       option.rules.long_name.empty() ? "" : ", " + roff(option.rules.long_name),
                       placeholder.empty() ? "" : " \\fI" + roff(placeholder) + "\\fR",
                       roff(option.explanation()), verbs_of(option));
  }
  return out +
         ".SH EXIT STATUS\n0 done; 1 a bug in parsim; 2 wrong usage or bad input; 3 the hardware "
         "refused; 4 the simulation did not finish; 5 done, but nothing fits in memory.\n"
         ".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nif set, no colour unless\n.B \\-\\-color always\n";
}

}  // namespace parsim::app
