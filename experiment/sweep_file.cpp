#include "experiment/sweep_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>

#include "core/text.hpp"
#include "experiment/files.hpp"
#include "experiment/request.hpp"
#include "experiment/sweep_keys.hpp"
#include "topologies/document.hpp"

namespace parsim::experiment {

namespace {

using topologies::Fields;
using topologies::Value;

/// Calls `fill(name)` for every "{name}" of a text and puts what it returns there.
template <class Fill>
std::string filled(const std::string& text, const Fill& fill) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = text.find('{', at), close = text.find('}', open);
    const bool found = open != text.npos && close != text.npos &&
                       is_variable_name(std::string_view(text).substr(open + 1, close - open - 1));
    if (!found) {
      const std::size_t end = open == text.npos ? text.size() : open + 1;
      out += text.substr(at, end - at);
      at = end;
      continue;
    }
    out += text.substr(at, open - at) + fill(text.substr(open + 1, close - open - 1));
    at = close + 1;
  }
  return out;
}

/// A value of a column: "text", 64, true, or a list of texts of an option that repeats.
SweepValue value_of(const Value& value, const Option* option, const std::string& where) {
  const bool flag = option != nullptr && option->placeholder().empty();
  if (flag) {
    if (value.kind == Value::Kind::boolean) {
      return value.integer != 0 ? SweepValue{""} : SweepValue{};
    }
    throw InputError(where, value.described(), "accepted: true or false");
  }
  if (value.kind == Value::Kind::boolean && option == nullptr) {
    return {value.integer != 0 ? "true" : "false"};
  }
  if (value.kind == Value::Kind::integer) return {fmt::format("{}", value.integer)};
  if (value.kind == Value::Kind::text) return {value.text};
  if (value.kind == Value::Kind::list && option != nullptr) {
    SweepValue texts;
    for (const Value& item : value.items) {
      const SweepValue one =
          item.kind == Value::Kind::list ? SweepValue{} : value_of(item, option, where);
      texts.insert(texts.end(), one.begin(), one.end());
    }
    const bool flat = texts.size() == value.items.size();
    if (flat && (texts.size() < 2 || option->rules.repeats)) return texts;
  }
  throw InputError(where, value.described(),
                   "accepted: a quoted string (quantities with their unit, shares as \"5%\"), a "
                   "whole number, [] for an option that is not given, or a list of several for an "
                   "option that may be repeated");
}

/// Keys of which some depend on the file.
topologies::Keys keys_of(const topologies::Names& names) {
  topologies::Keys keys;
  for (const std::string_view name : names) keys.keys.push_back({name, {}});
  return keys;
}

/// Columns that change together.
struct Axis {
  std::vector<std::size_t> columns;
  std::size_t size = 1;
};

class SweepReader {
 public:
  SweepReader(const Value& root, const std::string& file, const std::string& version,
              const std::function<void()>& poll)
      : file_(file), top_(root, file, "", sweep_keys()), poll_(poll) {
    sweep_.version = version;
    for (const Option& option : options()) {
      if (!is_sweepable(option)) continue;
      recorded_.push_back(&option);
      defaults_.push_back(option.member.json(Request{}, nullptr).dump());
    }
  }

  Sweep read() && {
    each_key("options", [&](const std::string& name, const Value& value, const std::string& at) {
      SweepColumn& column = add_column(name, at);
      column.values.push_back(value_of(value, column.option, at));
    });
    each_key("axes", [&](const std::string& name, const Value& value, const std::string& at) {
      axes_.push_back({{sweep_.columns.size()}, add_listed(name, value, at)});
    });
    for (const Value& table : top_.list("zip")) add_zip(table);
    check_variables();
    read_filters("skip", skip_);
    read_filters("only", only_);
    list_points();
    return std::move(sweep_);
  }

 private:
  struct Filter {
    std::size_t column;
    std::vector<std::uint32_t> values;  ///< indices
  };
  using Filters = std::vector<std::vector<Filter>>;

  template <class Each>
  void each_key(std::string_view table, const Each& each) {
    const Value* found = top_.find(table);
    if (found == nullptr) return;
    if (found->kind != Value::Kind::table) {
      throw InputError(top_.where(table),
                       fmt::format("expected a table, found {}", found->described()),
                       fmt::format("accepted: [{}] and keys below", table));
    }
    for (std::size_t i = 0; i < found->keys.size(); ++i) {
      each(found->keys[i], found->items[i],
           fmt::format("{}:{}:{}.{}", file_, found->items[i].line, table, found->keys[i]));
    }
  }

  SweepColumn& add_column(const std::string& name, const std::string& where) {
    const Option* option = sweepable(name);
    for (const SweepColumn& column : sweep_.columns) {
      if (column.name != name && (option == nullptr || column.option != option)) continue;
      throw InputError(where, fmt::format("also at {}", column.where), "accepted: once");
    }
    return sweep_.columns.emplace_back(SweepColumn{name, option, where, {}});
  }

  /// Adds a column with the values of a list; returns their number.
  std::size_t add_listed(const std::string& name, const Value& value, const std::string& where) {
    SweepColumn& column = add_column(name, where);
    if (value.kind != Value::Kind::list || value.items.empty()) {
      throw InputError(where, value.kind == Value::Kind::list ? "an empty list" : value.described(),
                       "accepted: a list of values");
    }
    for (const Value& item : value.items) {
      column.values.push_back(value_of(item, column.option, where));
    }
    return column.values.size();
  }

  void add_zip(const Value& table) {
    const topologies::Keys any = keys_of({table.keys.begin(), table.keys.end()});
    const Fields fields(table, file_, "zip", any);  // refuses what is no table
    Axis axis;
    for (std::size_t i = 0; i < table.keys.size(); ++i) {
      const std::string where = fields.where(table.keys[i]);
      axis.columns.push_back(sweep_.columns.size());
      const std::size_t size = add_listed(table.keys[i], table.items[i], where);
      if (i > 0 && size != axis.size) {
        throw InputError(where,
                         fmt::format("{}, but '{}' has {}", counted(as_signed(size), "value"),
                                     table.keys.front(), axis.size),
                         "accepted: lists of one length");
      }
      axis.size = size;
    }
    axes_.push_back(std::move(axis));
  }

  static std::int64_t as_signed(std::size_t size) { return static_cast<std::int64_t>(size); }

  /// Every name is an option or is used in braces; every name in braces is known.
  void check_variables() {
    std::set<std::string> used;
    for (const SweepColumn& column : sweep_.columns) {
      if (column.option == nullptr) continue;
      for (const SweepValue& value : column.values) {
        for (const std::string& text : value) {
          (void)filled(text, [&](const std::string& name) {
            const std::size_t from = column_of(name);
            if (from == sweep_.columns.size() || sweep_.columns[from].option != nullptr) {
              throw InputError(column.where, fmt::format("no variable '{}'", name),
                               "accepted: in braces, a name of [axes], [[zip]] or [options] that "
                               "is no option");
            }
            used.insert(name);
            return std::string();
          });
        }
      }
    }
    std::vector<std::string> known;
    for (const Option* option : recorded_) known.emplace_back(without_dashes(option->flag));
    for (const SweepColumn& column : sweep_.columns) {
      if (column.option != nullptr || used.contains(column.name)) continue;
      throw InputError(column.where, fmt::format("no option '{}'", column.name),
                       fmt::format("accepted: an option of 'parsim compare' without its dashes, or "
                                   "a variable that a text has in braces{}",
                                   did_you_mean(column.name, known)));
    }
  }

  [[nodiscard]] std::size_t column_of(std::string_view name) const {
    const auto found = std::find_if(sweep_.columns.begin(), sweep_.columns.end(),
                                    [&](const SweepColumn& column) { return column.name == name; });
    return static_cast<std::size_t>(found - sweep_.columns.begin());
  }

  void read_filters(std::string_view key, Filters& filters) {
    topologies::Names names;
    for (const SweepColumn& column : sweep_.columns) names.push_back(column.name);
    const topologies::Keys known = keys_of(names);
    for (const Value& table : top_.list(key)) {
      const Fields fields(table, file_, std::string(key), known);
      std::vector<Filter>& filter = filters.emplace_back();
      for (std::size_t i = 0; i < table.keys.size(); ++i) {
        filter.push_back(filter_of(table.keys[i], table.items[i], fields.where(table.keys[i])));
      }
    }
  }

  Filter filter_of(const std::string& name, const Value& value, const std::string& where) {
    Filter filter{column_of(name), {}};
    const SweepColumn& column = sweep_.columns[filter.column];
    const std::vector<Value> single = {value};
    for (const Value& item : value.kind == Value::Kind::list ? value.items : single) {
      const SweepValue wanted = value_of(item, column.option, where);
      const std::size_t before = filter.values.size();
      for (std::size_t v = 0; v < column.values.size(); ++v) {
        if (column.values[v] == wanted) filter.values.push_back(static_cast<std::uint32_t>(v));
      }
      if (filter.values.size() == before) {
        throw InputError(where, fmt::format("'{}' never is {}", name, join(wanted)),
                         fmt::format("accepted: values listed at {}", column.where));
      }
    }
    return filter;
  }

  static bool matches(const SweepPoint& point, const std::vector<Filter>& filter) {
    return std::all_of(filter.begin(), filter.end(), [&](const Filter& part) {
      return std::find(part.values.begin(), part.values.end(), point.choice[part.column]) !=
             part.values.end();
    });
  }
  [[nodiscard]] bool wanted(const SweepPoint& point) const {
    const auto in = [&](const std::vector<Filter>& filter) { return matches(point, filter); };
    return std::none_of(skip_.begin(), skip_.end(), in) &&
           (only_.empty() || std::any_of(only_.begin(), only_.end(), in));
  }

  void list_points() {
    std::size_t total = 1;
    for (const Axis& axis : axes_) {
      total *= axis.size;
      if (total > most_points) {
        throw InputError(file_, fmt::format("more than {} points", most_points),
                         "accepted: fewer; a sweep may be divided into several files");
      }
    }
    constexpr std::size_t between_polls = 4096;
    std::unordered_set<std::string> ids;  // looked up only
    std::string all;
    for (std::size_t number = 0; number < total; ++number) {
      if (poll_ && number % between_polls == between_polls - 1) poll_();
      SweepPoint point;
      point.choice.resize(sweep_.columns.size());
      std::size_t rest = number;
      for (std::size_t a = axes_.size(); a-- > 0;) {
        for (const std::size_t column : axes_[a].columns) {
          point.choice[column] = static_cast<std::uint32_t>(rest % axes_[a].size);
        }
        rest /= axes_[a].size;
      }
      if (!wanted(point)) {
        ++sweep_.skipped;
        continue;
      }
      point.id = id_of(point);
      if (!ids.insert(point.id).second) {
        ++sweep_.repeated;
        continue;
      }
      all += point.id;
      sweep_.points.push_back(std::move(point));
    }
    if (sweep_.points.empty()) {
      throw InputError(file_, "no point is left", "accepted: filters that leave at least one");
    }
    for (const SweepColumn& column : sweep_.columns) all += column.name + "\n";
    sweep_.id = fnv1a64(sweep_.version + "\n" + all);
  }

  std::string id_of(const SweepPoint& point) {
    std::vector<const std::string*> parts;
    for (const std::string& one : defaults_) parts.push_back(&one);
    for (std::size_t c = 0; c < sweep_.columns.size(); ++c) {
      const SweepColumn& column = sweep_.columns[c];
      if (column.option == nullptr) continue;
      const SweepValue value = sweep_.value(point, c);
      if (value.empty()) continue;
      const auto at = std::find(recorded_.begin(), recorded_.end(), column.option);
      parts[static_cast<std::size_t>(at - recorded_.begin())] = &canonical(column, value);
    }
    std::string text = sweep_.version;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      text += "\n";
      text += recorded_[i]->key;
      text += " " + *parts[i];
    }
    return fnv1a64(text);
  }

  /// What `inputs` of 'compare' would record of the option, which also checks the value.
  const std::string& canonical(const SweepColumn& column, const SweepValue& value) {
    auto& known = canonical_[column.option];
    const auto found = known.find(value);
    if (found != known.end()) return found->second;
    Request request;
    try {
      column.option->member.read(request, *column.option, value);
      return known
          .emplace(value, column.option->member.json(request, nullptr)
                              .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
          .first->second;
    } catch (const InputError& error) {  // of the option; the file has the line
      throw InputError(column.where, error.what());
    }
  }

  std::string file_;
  Fields top_;
  const std::function<void()>& poll_;
  Sweep sweep_;
  std::vector<Axis> axes_;
  Filters skip_, only_;
  std::vector<const Option*> recorded_;  ///< in the order of the table
  std::vector<std::string> defaults_;    ///< canonical, of `recorded_`
  std::map<const Option*, std::map<SweepValue, std::string>> canonical_;
};

}  // namespace

SweepValue Sweep::value(const SweepPoint& point, std::size_t column) const {
  SweepValue texts = columns[column].values[point.choice[column]];
  if (columns[column].option == nullptr) return texts;
  for (std::string& text : texts) {
    if (text.find('{') == text.npos) continue;
    text = filled(text, [&](const std::string& name) {
      for (std::size_t c = 0; c < columns.size(); ++c) {
        if (columns[c].name == name) return join(columns[c].values[point.choice[c]]);
      }
      return std::string();
    });
  }
  return texts;
}

Arguments Sweep::arguments(const SweepPoint& point) const {
  Arguments arguments{"compare", {}, {}, {"compare"}};
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].option == nullptr) continue;
    SweepValue texts = value(point, c);
    if (texts.empty()) continue;
    const std::string flag(columns[c].option->flag);
    for (const std::string& text : texts) {
      arguments.command.push_back(flag);
      if (!text.empty()) arguments.command.push_back(text);
    }
    arguments.values[flag] = std::move(texts);
  }
  arguments.values["--no-timings"] = {""};  // a wall clock would make runs differ
  arguments.command.emplace_back("--no-timings");
  return arguments;
}

Sweep read_sweep(std::string_view text, const std::string& file, const std::string& version,
                 const std::function<void()>& poll) {
  return SweepReader(topologies::parse_document(text, file), file, version, poll).read();
}

Sweep read_sweep(const Value& root, const std::string& file, const std::string& version) {
  return SweepReader(root, file, version, {}).read();
}

}  // namespace parsim::experiment
