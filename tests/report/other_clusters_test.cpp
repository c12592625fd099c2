// What a page says of other clusters.
#include "report/page/other_clusters.hpp"

#include <doctest/doctest.h>

#include <string>

namespace parsim::report {
namespace {

experiment::RunResult result_of(const std::string& strategy, double step) {
  experiment::RunResult result;
  result.strategy = strategy;
  result.step_time = Seconds{step};
  return result;
}

experiment::Request question() {
  experiment::Request request;
  request.network = "mlp";
  request.cluster = "star:2,device=p100-sxm2*1+v100-sxm2*1,rate=25GB/s,latency=1us";
  request.batch = 96;
  return request;
}

TEST_CASE("other clusters: differences are to the same strategy's plan for the cluster as it is") {
  const experiment::Experiment experiment(question());
  const Document document;
  Page page{experiment, document, {}, ""};
  page.sections.emplace_back().result = result_of("best", 7.40);
  using Kind = experiment::WhatIf::Kind;
  // 7.39 s is 0.27 % less than 7.41 s; 7.88 s is 6.34 % more, and 6.49 % more than 7.40 s.
  page.what_ifs = {"tensor",
                   Seconds{7.41},
                   {{Kind::one_more, "one more machine", result_of("tensor", 7.39)},
                    {Kind::without, "without the v100", result_of("tensor", 7.88)}}};
  CHECK(machines_answer(page) ==
        "One more machine: 7.39 s (no measurable change); without the v100: 7.88 s (+6.3 %). Each "
        "planned anew, for the same batch, compared with the 7.41 s of tensor's plan for today's "
        "cluster.");
  const std::string table = other_clusters_of(page);
  CHECK(table.find("<td class=n>7.39 s<td class=n>no measurable change\n") != std::string::npos);
  CHECK(table.find("<td class=n>7.88 s<td class=n>+6.3 %\n") != std::string::npos);
  page.what_ifs.step = page.sections.front().result.step_time;
  CHECK(machines_answer(page).ends_with("(+6.5 %). Each planned anew, for the same batch."));
}

TEST_CASE("other clusters: what is neither faster nor cheaper than another is not worth it") {
  const experiment::Experiment experiment(question());
  const Document document;
  Page page{experiment, document, {}, ""};
  // 1000 samples a step: a step that costs 0.002 costs 2 per million samples.
  const auto priced = [](double step, double cost) {
    experiment::RunResult result = result_of("tensor", step);
    result.samples_per_second = 1000 / step;
    result.upkeep.cost = Money{cost / 1000};
    return result;
  };
  using Kind = experiment::WhatIf::Kind;
  page.sections.emplace_back().result = priced(4, 2);
  page.what_ifs = {"tensor",
                   Seconds{4},
                   {{Kind::half_memory, "half the memory", priced(3, 1)},
                    {Kind::without, "without the p100", priced(5, 1.5)},
                    {Kind::without, "without the v100", priced(6, 1.75)},
                    {Kind::one_more, "one more p100", priced(3, 2.5)},
                    {Kind::one_more, "one more v100", priced(3, 2.25)}}};
  CHECK(other_clusters_of(page).find("cheaper than as it is (4.00 s, 2.00) or without the p100 "
                                     "(5.00 s, 1.50) or one more v100 (3.00 s, 2.25).") !=
        std::string::npos);
  for (experiment::WhatIf& row : page.what_ifs.rows) row.result->upkeep.cost.reset();
  CHECK(other_clusters_of(page).find("No row") == std::string::npos);
}

}  // namespace
}  // namespace parsim::report
