#include "experiment/offers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "core/errors.hpp"
#include "experiment/request.hpp"
#include "experiment/sweep_file.hpp"
#include "topologies/document.hpp"
#include "topologies/generator.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {

namespace {

using topologies::Fields;
using topologies::key;
using topologies::Keys;
using topologies::QuantityText;
using topologies::required;
using topologies::TableOf;
using topologies::Value;

constexpr json::Limits machines{1, 1024}, gpus_each{1, 64};
constexpr std::int64_t default_most = 8;
constexpr std::array<std::string_view, 3> strategies_of_buy{"data", "tensor", "pipeline"};

const Keys& offer_keys() {
  static const Keys keys{
      {required<std::string>("name"), key<QuantityText>("price", "to buy it: '199k'"),
       key<QuantityText>("rent", "'32.77 /h'"), required<std::string>("device"),
       required<std::int64_t>("gpus", gpus_each),
       required<QuantityText>("intra", "rate of a device's port"),
       key<LinkKind>("intra_kind", "makes intra a data sheet's rate"),
       required<QuantityText>("inter", "rate of a network card"), key<LinkKind>("inter_kind"),
       key<std::int64_t>("nics", gpus_each), required<QuantityText>("latency", "of a link"),
       key<QuantityText>("power", "the most that the machine draws"),
       key<std::int64_t>("most", machines), required<std::string>("date", "2020-05-14"),
       required<std::string>("label", "such as 'example' or 'quote'"),
       required<std::string>("source")},
      {{{"price"}, {"rent"}}}};
  return keys;
}
const Keys& offers_keys() {
  static const Keys keys{{required<std::vector<TableOf<offer_keys>>>("offers")}};
  return keys;
}

const Keys& job_keys() {
  static const Keys keys{{required<std::int64_t>("samples"),
                          key<std::int64_t>("runs"),
                          key<std::int64_t>("within_hours"),
                          key<QuantityText>("electricity"),
                          {"options", {}, true}}};
  return keys;
}

template <class Quantity>
Quantity positive(Quantity value, const std::string& where) {
  if (value.value > 0) return value;
  throw InputError(where, "the number is 0", "accepted: a positive number");
}

std::string date_of(const Fields& fields) {
  std::string date = fields.text("date");
  constexpr std::string_view form = "dddd-dd-dd";
  const bool good = date.size() == form.size() &&
                    std::equal(date.begin(), date.end(), form.begin(), [](char c, char wanted) {
                      return wanted == 'd' ? c >= '0' && c <= '9' : c == '-';
                    });
  const auto number = [&](std::size_t at) { return std::stoi(date.substr(at, 2)); };
  using std::chrono::year_month_day, std::chrono::year, std::chrono::month, std::chrono::day;
  if (good &&
      year_month_day(year(100 * number(0) + number(2)), month(static_cast<unsigned>(number(5))),
                     day(static_cast<unsigned>(number(8))))
          .ok())
    return date;
  throw InputError(fields.where("date"), fmt::format("'{}'", date),
                   "accepted: year, month and day of the price, as in \"2020-05-14\"");
}

std::string said(const Fields& fields, std::string_view name) {
  std::string text = fields.text(name);
  if (!text.empty()) return text;
  throw InputError(fields.where(name), "an empty text", "accepted: at least one character");
}

Offer read_offer(const Value& entry, const std::string& file) {
  const Fields fields(entry, file, "offers", offer_keys());
  Offer offer;
  offer.name = said(fields, "name");
  const bool bought = fields.find("price") != nullptr;
  if (bought == (fields.find("rent") != nullptr)) {
    throw InputError(fields.where("price"), bought ? "'price' and 'rent'" : "no price",
                     "accepted: price = \"199k\" to buy it, or rent = \"32.77 /h\"");
  }
  if (bought) {
    offer.price =
        positive(parse_money(fields.text("price"), fields.where("price")), fields.where("price"));
  } else {
    offer.rent =
        positive(parse_price(fields.text("rent"), fields.where("rent")), fields.where("rent"));
  }
  offer.model = topologies::device_model(fields.text("device"), fields.where("device"));
  offer.gpus = fields.integer_or("gpus", 0);
  offer.cards = fields.integer_or("nics", 1, {1, offer.gpus});
  offer.intra =
      positive(parse_rate(fields.text("intra"), fields.where("intra")), fields.where("intra"));
  offer.inter =
      positive(parse_rate(fields.text("inter"), fields.where("inter")), fields.where("inter"));
  offer.latency = parse_seconds(fields.text("latency"), fields.where("latency"));
  const auto kind = [&](std::string_view name) {
    const auto text = fields.maybe_text(name);
    return text ? std::optional(topologies::parse_link_kind(*text, fields.where(name)))
                : std::nullopt;
  };
  offer.within = kind("intra_kind");
  offer.between = kind("inter_kind");
  if (const auto text = fields.maybe_text("power")) {
    offer.power = positive(parse_power(*text, fields.where("power")), fields.where("power"));
  }
  offer.most = fields.integer_or("most", default_most, machines);
  offer.date = date_of(fields);
  offer.label = said(fields, "label");
  offer.source = said(fields, "source");
  return offer;
}

/// The only member of a table with that name.
const Value& member_of(const Value& table, std::string_view name) {
  const auto at = std::find(table.keys.begin(), table.keys.end(), name);
  return table.items[static_cast<std::size_t>(at - table.keys.begin())];
}

/// Throws InputError at `where` for an option that the strategies which 'buy' asks do not read.
void check_used(const Arguments& arguments, const std::string& where) {
  Arguments asked = arguments;
  asked.values["--cluster"] = {"a candidate"};
  std::vector<std::string>& names = asked.values["--strategy"];
  if (names.empty()) names.assign(strategies_of_buy.begin(), strategies_of_buy.end());
  try {
    (void)make_request(asked);
  } catch (const InputError& error) {
    throw InputError(where, fmt::format("{}: {}", error.where, error.found), error.accepted);
  }
  if (arguments.has("--cp-comm")) {
    throw InputError(where, "--cp-comm: unused without --cp",
                     "accepted: network, batch, precision, optimizer and the like");
  }
}

}  // namespace

std::vector<Offer> read_offers(std::string_view text, const std::string& file) {
  const Value root = topologies::parse_document(text, file);
  const Fields fields(root, file, "", offers_keys());
  std::vector<Offer> offers;
  for (const Value& entry : fields.list("offers")) {
    offers.push_back(read_offer(entry, file));
    const std::string& name = offers.back().name;
    const auto same = [&](const Offer& one) { return one.name == name; };
    if (std::count_if(offers.begin(), offers.end(), same) > 1) {
      throw InputError(fmt::format("{}:{}:offers.name", file, entry.line),
                       fmt::format("the name '{}' occurs twice", name), "accepted: unique names");
    }
  }
  if (offers.empty()) {
    throw InputError(file, "no offers", "accepted: at least one [[offers]]");
  }
  return offers;
}

Job read_job(std::string_view text, const std::string& file, const std::string& version) {
  const Value root = topologies::parse_document(text, file);
  const Fields fields(root, file, "", job_keys());
  Job job;
  constexpr std::int64_t most = 1'000'000'000'000'000;
  if (fields.find("samples") == nullptr || fields.find("options") == nullptr) {
    throw InputError(file, "no 'samples' or no [options]",
                     "accepted: samples = 90_000_000 of one training run, and [options] of "
                     "'parsim compare' with network and batch");
  }
  job.samples = fields.integer_or("samples", 0, {1, most});
  if (fields.find("runs") != nullptr) job.runs = fields.integer_or("runs", 0, {1, most});
  if (fields.find("within_hours") != nullptr) {
    job.within = hour * static_cast<double>(fields.integer_or("within_hours", 0, {1, most}));
  }
  if (const auto price = fields.maybe_text("electricity")) {
    const std::string where = fields.where("electricity"), unit = "/kWh";
    const std::size_t at = price->rfind(unit);
    if (at == std::string::npos || at + unit.size() != price->size()) {
      throw InputError(where, fmt::format("'{}'", *price), "accepted: \"0.25 /kWh\"");
    }
    const std::size_t last = price->substr(0, at).find_last_not_of(' ');
    job.kilowatt_hour =
        parse_money(last == std::string::npos ? "" : price->substr(0, last + 1), where);
  }
  Value options;
  options.kind = Value::Kind::table;
  options.keys = {"options"};
  options.items = {member_of(root, "options")};
  options.line = options.items.front().line;
  const Sweep sweep = read_sweep(options, file, version);
  job.arguments = sweep.arguments(sweep.points.front());
  const std::string where = fmt::format("{}:{}:options", file, options.line);
  if (job.arguments.has("--cluster")) {
    throw InputError(where, "a cluster", "accepted: machines of --own and --offers");
  }
  // What candidates of different size and kind cannot have in common, or what buy decides.
  for (const char* flag : {"--tp", "--pp", "--dp", "--vp", "--cp", "--ep", "--etp", "--objective",
                           "--plan", "--layout", "--scaling", "--micro-batches"}) {
    if (!job.arguments.has(flag)) continue;
    throw InputError(where, fmt::format("{}, which 'buy' chooses for each candidate", flag),
                     "accepted: network, batch, precision, optimizer and the like");
  }
  for (const char* flag : {"--override", "--calibrate-with"}) {
    if (!job.arguments.has(flag)) continue;
    throw InputError(where, fmt::format("{}, which is about one cluster", flag),
                     "accepted: network, batch, precision, optimizer and the like");
  }
  for (const Option& option : experiment::options()) {
    if (option.group != OptionGroup::variation || !job.arguments.has(option.flag)) continue;
    throw InputError(where, fmt::format("{}, which 'buy' does not simulate", option.flag),
                     "accepted: network, batch, precision, optimizer and the like");
  }
  for (const std::string& name : job.arguments.texts("--strategy")) {
    if (std::ranges::count(strategies_of_buy, name) > 0) continue;
    throw InputError(where, fmt::format("strategy '{}'", name),
                     "accepted: data, tensor and pipeline, which 'buy' asks");
  }
  if (!job.arguments.has("--network") || !job.arguments.has("--batch")) {
    throw InputError(where, "no network or no batch",
                     "accepted: both, the same on all machines that are compared");
  }
  check_used(job.arguments, where);
  job.batch = *job.arguments.number("--batch", 1, most);
  return job;
}

std::string offers_schema() {
  return topologies::table_schema("Offers of machines, in TOML or JSON", offers_keys());
}

}  // namespace parsim::experiment
