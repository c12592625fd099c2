// What `inputs` of results record of options whose value alone does not say it. Private to
// option_table.cpp.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "experiment/experiment.hpp"

namespace parsim::experiment::option_member {

using Json = nlohmann::ordered_json;

Json network_source(const Request& request, const Experiment* experiment);
Json cluster_source(const Request& request, const Experiment* experiment);
Json granularity_chosen(const Request& request, const Experiment* experiment);
Json batch_chosen(const Request& request, const Experiment* experiment);
Json interference_known(const Request& request, const Experiment* experiment);
Json collective_files(const Request& request, const Experiment* experiment);
Json size_chosen(const Request& request, const Experiment* experiment);
Json data_files(const Request& request, const Experiment* experiment);
Json calibrating_files(const Request& request, const Experiment* experiment);

}  // namespace parsim::experiment::option_member
