// Scripts of trainers: what is read from them is what bash passes, or it is refused.
#include <doctest/doctest.h>

#include <array>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "experiment/trainer_words.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/program.hpp"

namespace parsim::experiment {
namespace {

const std::string size = "tensor-model-parallel-size";
const std::string launch = "torchrun x.py --" + size + " $TP --bf16\n";

/// The value of the setting that the launch has, or why it is refused.
std::string size_read(const std::string& text) {
  try {
    return read_words(text, "run.sh").text(size).value_or("none");
  } catch (const InputError& error) {
    const std::string why = error.what();
    return why.substr(0, why.find(", which parsim"));
  }
}

TEST_CASE("trainer shell: what may not run, or later, is not sure") {
  const auto unsure = [](const std::string& before, const std::string& why) {
    CAPTURE(before);
    const std::string found = size_read(before + launch);
    CHECK(found.substr(found.rfind(": ") + 2) == why);
  };
  const std::string condition = "within a condition or loop", function = "within a function";
  unsure("TP=2\nnvidia-smi | grep -q H100 && TP=4\n", condition);
  unsure("TP=2\ngrep -q foo /etc/bar || TP=4\n", condition);
  unsure("TP=2\ngrep -q x y && {\nTP=4\n}\n", condition);
  unsure("TP=2\nsleep 1; if [ -n \"$X\" ]; then TP=4; fi\n", condition);
  unsure("TP=2\nif true; then\necho done\nTP=4\nfi\n", condition);
  unsure("if true; then\nfor i in 1 2; do if true; then echo; fi; done\nTP=4\nfi\n", condition);
  unsure("case $X in\n  a | b) TP=4 ;;\n  (c) TP=2 ;;\nesac\n", condition);
  unsure("TP=2\n[ -n \"$X\" ] && \\\n  TP=4\n", condition);
  unsure("TP=2\nf ||\n  TP=4\n", condition);
  unsure("f() {\nTP=8\n}\nTP=4\nf\n", function);
  unsure("TP=4\nf()\n{\nTP=8\n}\n", function);
  unsure("TP=2\n((TP*=2))\n", "from '((…))'");
  unsure("TP=1\n((TP++))\n", "from '((…))'");
  unsure("TP=2\nlet TP*=2\n", "from 'let'");
  unsure("for TP in 2 4; do echo $TP; done\n", "from 'for'");
  unsure("TP=2\nTP=4 \\\n", "in a command that goes on in the next line");
  CHECK(size_read("ARGS=\"\n--" + size + " 2\"\n[ -n \"$X\" ] && ARGS=\"\n--" + size +
                  " 4\n\"\ntorchrun x.py $ARGS\n") == "run.sh:4:" + size + ": " + condition);

  for (const std::string text :
       {"TP=4\n", "export TP=4; echo TP=2\n", "docker run -e TP=2 img\nTP=4\n",
        "echo 'if [ x'\nTP=4\n", "TP=2\nif ((TP == 2)); then echo x; fi\nTP=4\n",
        "echo \"a && b\" # && {\nTP=4\n", "X=$(nproc && true)\nY=`a || b`\nTP=4\n",
        "cd /tmp && echo || exit 1\nTP=4\n",
        "python -c '\nif x:\n  for y in z:\n    pass\n'\nTP=4\n", "A=(\n  if\n  --b c\n)\nTP=4\n",
        "echo 2>&1 &> /dev/null\nTP=4\n", "{ TP=4; }\n",
        "cat > d.yaml <<- EOF\ntensor_model_parallel_size: 2\n- 8\nEOF\nTP=4\n",
        "case $X in a) ;; esac\nTP=4\n", "TP=4\nTP=2 true\n", "g() { echo ${X}; }\nTP=4\n"}) {
    CAPTURE(text);
    CHECK(size_read(text + launch) == "4");
  }
}

TEST_CASE("trainer shell: settings in here-documents and in texts of YAML are not the launch's") {
  const TrainerWords words = read_words(
      "cat > data.yaml <<EOF\noptimizer: sgd\nmicro_batch_size: 4\nEOF\n"
      "torchrun x.py --micro-batch-size 1\n",
      "run.sh");
  CHECK_FALSE(words.has("optimizer"));
  CHECK(words.integer("micro-batch-size") == 1);
  const TrainerWords text = read_words("notes: |-\n  fp16: true\n\n    x\nbf16: true\n", "m.yaml");
  CHECK_FALSE(text.has("fp16"));
  CHECK(text.has("bf16"));
}

/// The twin: bash runs random scripts. What is read is what it passes, where it is read.
TEST_CASE("trainer shell: random scripts pass what was read, or are refused") {
  const std::vector<std::string> conditions = {"true",           "false",      "[ -n \"$A\" ]",
                                               "[[ $TP == 2 ]]", "((TP > 1))", "test -z \"$A\""};
  const std::vector<std::string> values = {"1",   "2",       "4",     "8",
                                           "$TP", "${A:-2}", "${TP}", "$((TP * 2))"};
  std::mt19937_64 random(20261128);
  const auto one_of = [&](const std::vector<std::string>& all) {
    return all[random() % all.size()];
  };
  const auto statement = [&](auto&& self, int depth) -> std::string {
    const auto inner = [&] { return self(self, depth + 1); };
    const auto assign = [&] {
      return one_of({"TP=", "TP=", "A=", "export TP=", "A= TP="}) + one_of(values);
    };
    switch (random() % (depth < 2 ? 20 : 9)) {
      case 0:
        return "echo TP=8 done fi '}' > /dev/null";
      case 1:
        return one_of({"((TP++))", "let TP+=1", "((A = TP))", "read TP <<< 2", "unset A"});
      case 2:
        return assign() + " true";
      case 3:
        return ": # if ( { [ TP=4";
      case 4:
        return one_of(conditions) + one_of({" && ", " || "}) + assign();
      case 5:
        return one_of(conditions) + " && \\\n  " + assign();
      case 6:
        return "cat > /dev/null <<E\nTP=8\nif\nE";
      case 7:
      case 8:
        return assign();
      case 9:
        return "if " + one_of(conditions) + "; then\n" + inner() + "\nfi";
      case 10:
        return "if " + one_of(conditions) + "\nthen " + inner() + "\nelse\n" + inner() + "\nfi";
      case 11:
        return "for TP in 2 4\ndo\n" + inner() + "\ndone";
      case 12:
        return "for i in 1 2; do " + inner() + "\ndone";
      case 13:
        return "f() {\n" + inner() + "\n}";
      case 14:
        return "function f\n{\n" + inner() + "\n}";
      case 15:
        return "f 2> /dev/null";
      case 16:
        return "(\n" + inner() + "\n)";
      case 17:
        return "{\n" + inner() + "\n}";
      case 18:
        return one_of(conditions) + one_of({" && {\n", " || {\n"}) + inner() + "\n}";
      default:
        return "case $TP in\n2 | 4) " + inner() + "\n;;\n*)\n" + inner() + "\n;;\nesac";
    }
  };
  const int count = testing::long_tests() ? 3000 : 300;
  const testing::TemporaryFolder folder;
  std::vector<std::string> found, scripts;
  for (int i = 0; i < count; ++i) {
    std::string text = "TP=2\n";
    for (std::uint64_t n = random() % 4 + 1; n > 0; --n) text += statement(statement, 0) + "\n";
    scripts.push_back(text + launch);
    found.push_back(size_read(scripts.back()));
    folder.write("s" + std::to_string(i), scripts.back());
  }
  folder.write("all", "torchrun() { printf '%s' \"$3\"; }\nexport -f torchrun\nfor ((n = 0; n < " +
                          std::to_string(count) +
                          "; ++n)); do bash ./s$n 2> /dev/null; echo; done\n");
  const testing::Finished bash = testing::run_program("/bin/bash", {"./all"}, folder.folder());
  std::istringstream lines(bash.out);
  int sure = 0;
  for (int i = 0; i < count; ++i) {
    std::string passed;
    REQUIRE(std::getline(lines, passed));
    const std::string& value = found[static_cast<std::size_t>(i)];
    if (value.find_first_not_of("0123456789") != std::string::npos) continue;
    CAPTURE(scripts[static_cast<std::size_t>(i)]);
    CHECK(value == passed);
    ++sure;
  }
  MESSAGE(sure, " of ", count, " scripts are read");
  CHECK(sure >= count / 10);
}

}  // namespace
}  // namespace parsim::experiment
