#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "report/result_table.hpp"

namespace parsim::report {

namespace {

std::string small_letters(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string title_without_unit(const Column& column) {
  return column.title.substr(0, column.title.find(" ["));
}

bool is_named(const Column& column, const std::string& name) {
  return small_letters(title_without_unit(column)) == name || small_letters(column.key) == name;
}

/// A row that has something in every column.
experiment::RunResult full_row() {
  experiment::RunResult row;
  row.strategy = "data";
  row.samples_per_second = 1;
  row.step_time = Seconds{1};
  row.upkeep = {Money{1}, Joules{1}};
  row.degrees.cp = 2;
  row.goodput.emplace();
  row.trainers.emplace();
  experiment::DeviceResult device;
  device.capacity = Bytes{1};
  row.devices = {device};
  return row;
}

/// What --columns accepts: titles, then what only programs see.
std::vector<std::string> column_names() {
  const Table table = result_table({full_row()}, true);
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const Column& column : table.columns) {
    if (column.audience != Audience::programs) add(title_without_unit(column));
  }
  for (const Column& column : table.columns) {
    if (column.audience != Audience::people) add(column.key);
  }
  for (const char* name : question_keys) add(name);
  return names;
}

}  // namespace

void check_columns(const std::string& list) {
  const std::vector<std::string> known = column_names();
  std::vector<std::string> seen;
  for (const std::string& name : split_at(list, ',')) {
    const std::string small = small_letters(name);
    if (std::none_of(known.begin(), known.end(),
                     [&](const std::string& one) { return small_letters(one) == small; })) {
      throw InputError("--columns", fmt::format("unknown column '{}'", name),
                       fmt::format("accepted: {}{}", join(known), did_you_mean(name, known)));
    }
    if (std::find(seen.begin(), seen.end(), small) != seen.end()) {
      throw InputError("--columns", fmt::format("'{}' given twice", name), "accepted: once each");
    }
    seen.push_back(small);
  }
}

Table chosen_columns(const Table& table, const std::string& list) {
  Table chosen;
  chosen.title = table.title;
  chosen.winner = table.winner;
  chosen.rules = table.rules;
  chosen.rows.resize(table.rows.size());
  const auto take = [&](std::size_t c, Audience audience) {
    chosen.columns.push_back(table.columns[c]);
    chosen.columns.back().audience = audience;
    chosen.columns.back().drop = 0;
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      chosen.rows[r].push_back(table.rows[r][c]);
    }
  };
  for (const std::string& given : split_at(list, ',')) {
    const std::string name = small_letters(given);
    const auto find = [&](Audience not_for) {
      std::size_t c = 0;
      while (c < table.columns.size() &&
             (table.columns[c].audience == not_for || !is_named(table.columns[c], name))) {
        ++c;
      }
      return c;
    };
    const std::size_t none = table.columns.size();
    const std::size_t people = find(Audience::programs), programs = find(Audience::people);
    if (people == none && programs == none) {
      add_column(chosen, {given, given}, {table.rows.size(), TableCell{"-", ""}});
    } else if (people == programs || people == none || programs == none) {
      take(people == none ? programs : people, Audience::everyone);
    } else {
      take(people, Audience::people);
      take(programs, Audience::programs);
    }
  }
  return chosen;
}

}  // namespace parsim::report
