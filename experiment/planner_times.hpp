// Times of layers in the files that other planners' profilers write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "experiment/layer_times.hpp"

namespace parsim::experiment {

/// What these files leave out: each is of one type of device.
struct PlannerSetting {
  std::string device;
  Precision precision = Precision::fp32;
  std::int64_t tokens = 0;  ///< of a sample
};

/// True for a text that looks like one of these files.
[[nodiscard]] bool is_planner_times(std::string_view text);

/// Sailor's (samples: group: layer: [forward, backward, update] in seconds), Metis'
/// ("execution_time", with forward and backward together in ms, of which a third is taken for
/// forward; samples and group are in the name, "…_tp2_bs1.json") or Galvatron's
/// ("layertype_0_bsz8_seq4096", forward in ms a sample, backward twice that, as its own planner
/// counts). Of Sailor's and Metis' layers the first is all before the blocks, and the last all
/// after; blocks are alike, by their mean. Galvatron's "other" is all but the blocks;
/// keys for samples of other lengths are left out. Throws InputError for another file.
[[nodiscard]] std::vector<LayerTime> read_planner_times(const std::string& text,
                                                        const std::string& file,
                                                        const PlannerSetting& setting);

}  // namespace parsim::experiment
