#include "experiment/recorded_values.hpp"

#include <nlohmann/json.hpp>

#include "experiment/communication.hpp"
#include "experiment/files.hpp"
#include "experiment/option_member.hpp"
#include "strategies/blocks.hpp"

namespace parsim::experiment::option_member {

Json network_source(const Request& request, const Experiment* experiment) {
  return source(request.network,
                experiment == nullptr ? request.network : experiment->network.name);
}
Json cluster_source(const Request& request, const Experiment* experiment) {
  return source(request.cluster,
                experiment == nullptr ? request.cluster : experiment->cluster.name);
}
Json granularity_chosen(const Request& request, const Experiment* experiment) {
  if (experiment == nullptr) return json_of(request.granularity);
  const bool by_layer = strategies::units_of(experiment->network, request.granularity).size() ==
                        experiment->network.layers.size();
  return Json(to_text(by_layer ? strategies::Granularity::layer : strategies::Granularity::block));
}
Json batch_chosen(const Request& request, const Experiment* experiment) {
  return experiment == nullptr ? json_of(request.batch) : Json(experiment->batch);
}
/// A profile's, too.
Json interference_known(const Request& request, const Experiment* experiment) {
  if (experiment == nullptr) return request.interference;
  return interference_texts(request.sim.slowdowns.interference);
}
Json collective_files(const Request& request, const Experiment* /*experiment*/) {
  Json files = Json::array();
  for (const std::string& given : request.collective_times) {
    files.push_back(source(collective_file(given).path, given));
  }
  return files;
}
Json size_chosen(const Request& request, const Experiment* /*experiment*/) {
  const CollectiveOptions& asked = request.collective;
  return asked.sizes.empty() ? Json(asked.size.value_or(default_payload).value) : Json(nullptr);
}
Json data_files(const Request& request, const Experiment* /*experiment*/) {
  Json files = Json::array();
  for (const std::string& given : request.validation.data) files.push_back(source(given, given));
  return files;
}

Json calibrating_files(const Request& request, const Experiment* /*experiment*/) {
  Json files = Json::array();
  for (const std::string& given : request.calibrate_with) files.push_back(source(given, given));
  return files;
}

}  // namespace parsim::experiment::option_member
