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

namespace parsim {

namespace {

template <class Catalogue>
std::vector<std::string> catalogue_names(const Catalogue& catalogue) {
  std::vector<std::string> names;
  for (const auto& entry : catalogue) names.push_back(entry.name);
  return names;
}

std::vector<std::string> network_names() {
  std::vector<std::string> names = catalogue_names(networks());
  for (std::string& formula : catalogue_names(network_formulas())) {
    names.push_back(std::move(formula));
  }
  return names;
}

/// What an option's value may be.
struct Values {
  std::vector<std::string> words;
  bool files = false;
};

Values values_of(const OptionSpec& option) {
  Values values;
  values.files = option.value.find("FILE") != std::string_view::npos;
  if (option.flag == "--network") values.words = network_names();
  if (option.flag == "--cluster") values.words = catalogue_names(clusters());
  if (option.flag == "--strategy") values.words = catalogue_names(strategies());
  // "fp32|tf32" lists words, "NAME|FILE" kinds.
  const bool lists_words = std::none_of(option.value.begin(), option.value.end(),
                                        [](char c) { return c >= 'A' && c <= 'Z'; });
  if (!lists_words) return values;
  if (!option.value.empty()) values.words = split_at(option.value, '|');
  return values;
}

/// What the second word of a verb may be, beside files, after each first one.
struct NamesAfter {
  std::string verb, word;
  std::vector<std::string> names;
};
std::vector<NamesAfter> names_after_words() {
  return {{"show", "network", network_names()}, {"show", "cluster", catalogue_names(clusters())}};
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
  for (const OptionSpec& option : option_table()) {
    if (option.value.empty()) continue;
    const Values values = values_of(option);
    out +=
        fmt::format("    {}) mapfile -t COMPREPLY < <(compgen {}-W '{}' -- \"$word\"); return ;;\n",
                    option.flag, values.files ? "-f " : "", join(values.words, " "));
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
    if (!verb.words.empty()) {
      words.assign(verb.words.front().choices.begin(), verb.words.front().choices.end());
    }
    for (const OptionSpec& option : option_table()) {
      if (takes(verb, option.flag)) words.emplace_back(option.flag);
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
      version());
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
  for (const OptionSpec& option : option_table()) {
    std::vector<std::string> users;
    bool everyone = true;
    for (const Verb& verb : verbs()) {
      if (takes(verb, option.flag)) {
        users.emplace_back(verb.name);
      } else {
        everyone = false;
      }
    }
    out += fmt::format(".TP\n.B {}{}\n{} ({}).\n", roff(option.flag),
                       option.value.empty() ? "" : " \\fI" + roff(option.value) + "\\fR",
                       roff(option.help), everyone ? "all verbs" : join(users));
  }
  return out +
         ".SH EXIT STATUS\n0 done; 1 a bug in parsim; 2 wrong usage or bad input; 3 the hardware "
         "refused; 4 the simulation did not finish; 5 done, but nothing fits in memory.\n"
         ".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nif set, no colour unless\n.B \\-\\-color always\n";
}

}  // namespace parsim
