#include "report/sweep_sqlite.hpp"

#include <fmt/format.h>

#include "core/errors.hpp"
#include "core/text.hpp"

#ifdef PARSIM_HAS_SQLITE
#include <sqlite3.h>

#include <memory>
#endif

namespace parsim::report {

#ifdef PARSIM_HAS_SQLITE

namespace {

void check(bool good, sqlite3* database) {
  if (good) return;
  throw InputError("-o", fmt::format("SQLite: {}", sqlite3_errmsg(database)),
                   "accepted: fewer rows, or .csv");
}

std::string quoted_name(const std::string& name) {
  std::string out = "\"";
  for (const char c : name) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

struct Close {
  void operator()(sqlite3* database) const { sqlite3_close(database); }
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, Close>;
using Statement = std::unique_ptr<sqlite3_stmt, Close>;

void execute(const Database& database, const std::string& text) {
  check(sqlite3_exec(database.get(), text.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK,
        database.get());
}

Statement prepared(const Database& database, const std::string& text) {
  sqlite3_stmt* statement = nullptr;
  check(sqlite3_prepare_v2(database.get(), text.c_str(), -1, &statement, nullptr) == SQLITE_OK,
        database.get());
  return Statement(statement);
}

void bind(const Database& database, const Statement& insert, int at, const SweepCell& cell) {
  using Kind = SweepCell::Kind;
  int good = SQLITE_OK;
  switch (cell.kind) {
    case Kind::none:
      good = sqlite3_bind_null(insert.get(), at);
      break;
    case Kind::boolean:
      good = sqlite3_bind_int(insert.get(), at, cell.text == "true" ? 1 : 0);
      break;
    case Kind::integer:
      good = sqlite3_bind_int64(insert.get(), at, to_number<std::int64_t>(cell.text).value_or(0));
      break;
    case Kind::real:
      good = sqlite3_bind_double(insert.get(), at, to_number<double>(cell.text).value_or(0));
      break;
    case Kind::text:
      good = sqlite3_bind_text64(insert.get(), at, cell.text.data(), cell.text.size(), nullptr,
                                 SQLITE_UTF8);
      break;
  }
  check(good == SQLITE_OK, database.get());
}

}  // namespace

bool has_sqlite() { return true; }

std::string sqlite_of(SweepRows& rows) {
  sqlite3* opened = nullptr;
  const int good = sqlite3_open(":memory:", &opened);
  const Database database(opened);
  check(good == SQLITE_OK, opened);
  // The file's bytes depend on the rows alone; SQLite keeps its own version in it.
  std::string columns, marks;
  for (const std::string& name : rows.columns()) {
    columns += (columns.empty() ? "" : ", ") + quoted_name(name);
    marks += marks.empty() ? "?" : ", ?";
  }
  execute(database, "BEGIN");
  execute(database, "CREATE TABLE sweep (sweep, version, points)");
  execute(database, fmt::format("INSERT INTO sweep VALUES ('{}', '{}', {})", rows.header().sweep,
                                rows.header().version, rows.header().points));
  execute(database, fmt::format("CREATE TABLE rows ({})", columns));
  const Statement insert = prepared(database, fmt::format("INSERT INTO rows VALUES ({})", marks));
  rows.each_row([&](const SweepRow& row) {
    sqlite3_reset(insert.get());
    for (std::size_t c = 0; c < row.size(); ++c) {
      bind(database, insert, static_cast<int>(c) + 1, row[c]);
    }
    check(sqlite3_step(insert.get()) == SQLITE_DONE, database.get());
  });
  execute(database, "COMMIT");
  sqlite3_int64 size = 0;
  unsigned char* bytes = sqlite3_serialize(database.get(), "main", &size, 0);
  check(bytes != nullptr, database.get());
  const std::unique_ptr<unsigned char, void (*)(void*)> freed(bytes, sqlite3_free);
  return {bytes, bytes + size};
}

#else

bool has_sqlite() { return false; }

std::string sqlite_of(SweepRows& /*rows*/) {
  throw InputError("-o", "this build of parsim has no SQLite",
                   "accepted: .csv or .jsonl, or a build with libsqlite3-dev");
}

#endif

}  // namespace parsim::report
