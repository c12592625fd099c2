#include "validation/published_keys.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/errors.hpp"
#include "validation/published_machines.hpp"
#include "validation/published_plan.hpp"
#include "validation/published_training.hpp"

namespace parsim::validation {

std::string key_of(const Claim& claim, std::initializer_list<std::string_view> names) {
  std::string key = claim.quantity;
  for (const std::string_view name : names) key += "|" + column(claim, name);
  return key;
}

std::optional<std::string> key_of_card(const Claim& claim) {
  if (!has_layout(claim)) return std::nullopt;
  try {
    return fmt::format("transformers|{}|{}", device_of(claim), to_text(precision_of(claim)));
  } catch (const InputError&) {
    return std::nullopt;  // predicting the row gives the reason
  }
}

std::vector<std::string> keys_of(const Claim& claim) {
  if (claim.quantity == "throughput") {
    std::vector<std::string> keys = {
        key_of(claim, {"model", "batch_per_gpu", "gpu", "machine", "precision", "framework",
                       "parallelism", "notes"}),
        key_of(claim, {"model", "batch_per_gpu", "gpu", "machine", "precision", "framework"}),
        key_of(claim, {"model", "gpu", "precision", "framework"}),
        key_of(claim, {"gpu", "precision", "framework"})};
    if (std::optional<std::string> card = key_of_card(claim)) keys.push_back(std::move(*card));
    return keys;
  }
  if (claim.quantity == "collective-time") {
    return {key_of(claim, {"machine", "gpu", "nodes", "n_gpus", "interconnect", "nccl_version",
                           "collective", "settings"})};
  }
  return {key_of(claim, {"gpu", "precision", "cudnn"}), key_of(claim, {"gpu", "precision"}),
          key_of(claim, {"gpu"})};
}

std::string key_of_hosts(const Claim& claim) {
  return key_of(claim, {"model", "network", "gpu", "machine", "precision", "framework"});
}

std::vector<std::string> keys_of_links(const Claim& claim) {
  return {key_of(claim, {"gpu", "machine", "interconnect", "model", "network", "precision"}),
          key_of(claim, {"gpu", "machine", "interconnect"})};
}

}  // namespace parsim::validation
