#include <fmt/format.h>

#include "app/verbs.hpp"
#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/text.hpp"
#include "experiment/buy.hpp"
#include "report/purchases.hpp"
#include "report/runs.hpp"
#include "topologies/topologies.hpp"

namespace parsim::app {

namespace {

std::string required(const experiment::Arguments& arguments, std::string_view flag,
                     std::string_view accepted) {
  if (const auto text = arguments.text(flag)) return *text;
  throw InputError(flag, "missing", fmt::format("accepted: {}", accepted));
}

}  // namespace

Outcome run_buy(const experiment::Arguments& arguments) {
  report::BuyInputs inputs{required(arguments, "--budget", "an amount of money, as in 400k"),
                           arguments.text("--power").value_or(""),
                           arguments.text("--years").value_or("4"),
                           required(arguments, "--job", "a TOML or JSON file, see docs/money.md"),
                           arguments.text("--own").value_or(""),
                           arguments.text("--offers").value_or("")};
  if (inputs.own.empty() && inputs.offers.empty()) {
    throw InputError("--offers", "missing, and --own too",
                     "accepted: a file of offers (experiment/examples/offers.toml is an example), "
                     "a cluster that "
                     "you own, or both");
  }
  experiment::BuyRequest request;
  request.limits.budget = parse_money(inputs.budget, "--budget");
  if (!inputs.power.empty()) request.limits.power = parse_power(inputs.power, "--power");
  constexpr double least_years = 0.01, most_years = 100;
  request.limits.years = parse_real(inputs.years, "--years", least_years, most_years);
  request.job = experiment::read_job(read_file(inputs.job, "--job"), inputs.job, report::version());
  if (!inputs.offers.empty()) {
    request.offers = experiment::read_offers(read_file(inputs.offers, "--offers"), inputs.offers);
  }
  if (!inputs.own.empty()) request.own = topologies::load_cluster(inputs.own, "--own");
  request.quiet = arguments.has("--quiet");
  request.poll = arguments.poll;
  const experiment::BuyAnswer answer = experiment::buy(request);
  return {report::report_purchases(request, answer, inputs),
          answer.rows.empty() ? ExitCode::does_not_fit : ExitCode::ok};
}

}  // namespace parsim::app
