// Which columns of a table are read, and what is said of the others.
#include "validation/known_columns.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "core/files.hpp"
#include "tests/support/program.hpp"
#include "validation/measurements.hpp"

namespace parsim::validation {
namespace {

std::string sources() {
  std::string all;
  for (const auto& entry : std::filesystem::directory_iterator(PARSIM_SOURCE_DIR "/validation")) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() == ".cpp" && path.stem() != "known_columns")
      all += read_file(path.string(), "test");
  }
  return all;
}

std::string unread_of(const std::string& columns, const std::string& fields) {
  return unread_columns(read_measurements(
      "model,batch_per_gpu,value,unit," + columns + "\nlenet5,8,16,ms," + fields + "\n", "f.csv",
      "f"));
}

}  // namespace

TEST_CASE("known columns: the list has every column that the sources read, and no other") {
  const std::string text = sources();
  const std::set<std::string_view> listed(read_columns().begin(), read_columns().end());
  CHECK(listed.size() == read_columns().size());
  std::size_t found = 0;
  const std::regex reads(
      R"re((?:(?:column|column_contains|text_of|location_of|extent)\(\s*claim,|table\.(?:at|number)\(row,|table\.has\()\s*"(\w+)")re");
  for (std::sregex_iterator it(text.begin(), text.end(), reads), end; it != end; ++it) {
    const std::string name = (*it)[1];
    if (name == "line") continue;  // of read_measurements
    CAPTURE(name);
    CHECK(listed.contains(name));
    ++found;
  }
  CHECK(found > 150);
  for (const std::string_view name : listed) {
    const auto plan = plan_columns();
    if (std::find(plan.begin(), plan.end(), name) != plan.end()) continue;
    // Of both sides, or of one (published_kernel.cpp).
    std::string base(name);
    if (base.ends_with("_h") || base.ends_with("_w")) base.resize(base.size() - 2);
    CAPTURE(base);
    const bool named = text.find("\"" + std::string(name) + "\"") != std::string::npos ||
                       text.find("name(\"" + base + "\")") != std::string::npos;
    CHECK(named);
  }
}

TEST_CASE("known columns: columns that nothing reads are named, with those that may be meant") {
  CHECK(
      unread_of("tp_size,foo,Precision,machin,year", "8,1,fp16,x,2026") ==
      "Precision (did you mean 'precision'?), foo, machin (did you mean 'machine'?), tp_size (did "
      "you mean 'tp'?)");
  CHECK(unread_of("batch_size", "8").empty());  // batch_per_gpu has it
  CHECK(unread_of("minibatch,foo", "8,").empty());
  CHECK(unread_of("seq_length", "8") == "seq_length (did you mean 'seq_len'?)");
  CHECK(unread_of("tp,tp_size", "8,8").empty());
  CHECK(unread_of("tp,tp_size", "4,8") == "tp_size (did you mean 'tp'?)");
  CHECK(unread_of("seq_len,max_seq_len", "512,2048") == "max_seq_len (did you mean 'seq_len'?)");
  CHECK(unread_columns({}).empty());
  // Read of kernels and collectives, not of steps.
  CHECK(unread_of("seq", "2048") == "seq (did you mean 'seq_len'?)");
  CHECK(unread_of("dtype,rows,collective", "fp16,8,all_reduce") ==
        "collective, dtype (did you mean 'precision'?), rows");
}

TEST_CASE("known columns: built-in tables have no others") {
  std::string set;
  std::vector<Claim> rows;
  const auto check = [&] {
    CAPTURE(set);
    CHECK(unread_columns(rows) == "");
    rows.clear();
  };
  for (Claim& claim : published_measurements()) {
    if (claim.set != set) check();
    set = claim.set;
    rows.push_back(std::move(claim));
  }
  check();
}

TEST_CASE("known columns: a note names the columns of a user's table once") {
  const testing::TemporaryFolder folder;
  folder.write("mine.csv",
               "model,gpu,n_gpus,batch_per_gpu,value,unit,tp_size,foo\n"
               "alexnet,t4,1,64,150,ms,1,x\nalexnet,t4,1,64,151,ms,1,y\n");
  const auto times = [&](const std::vector<std::string>& arguments) {
    const testing::Finished run = testing::run_program(PARSIM_PROGRAM, arguments, folder.folder());
    CHECK(run.exit_code == 0);
    const std::string text = run.out + run.err;
    const std::string note = "mine.csv: columns not read: foo, tp_size (did you mean 'tp'?)";
    int count = 0;
    for (std::size_t at = text.find(note); at != text.npos; at = text.find(note, at + 1)) ++count;
    return count;
  };
  CHECK(times({"validate", "--published", "--data", "mine.csv"}) == 1);
  CHECK(times({"validate", "--published", "--data", "mine.csv", "--json"}) == 1);
  CHECK(times({"validate", "--published", "--data", "mine.csv", "--calibrate-with", "mine.csv"}) ==
        1);
  CHECK(times({"simulate", "--network", "alexnet", "--cluster", "star:1,device=t4", "--batch", "64",
               "--strategy", "data", "--calibrate-with", "mine.csv"}) == 1);
}

}  // namespace parsim::validation
