// The state of an estimator's walk through a step. Private to the estimator: find_fragments.cpp
// finds the costs of a plan's parts, walk.cpp adds them up in the order of the step.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "lowering/estimate.hpp"
#include "lowering/estimate/fragments.hpp"
#include "lowering/recompute.hpp"

namespace parsim::lowering {

/// Contributions on their device that wait to be added.
struct Waiting {
  std::int32_t cell = 0;
  double seconds = 0, arrived = 0;
};

/// Where the times of a layer and micro-batch begin in the walk's table.
struct TimeOffsets {
  std::size_t ready = 0, gradients = 0, arrivals = 0, legs = 0;
};

inline constexpr double not_yet = -1;  ///< a time that has not come

struct Estimator::State {
  State(const StepInput& input_, LinkSharing sharing_)
      : input(input_),
        sharing(sharing_),
        structure(input.network),
        communications(input.cluster, input.cost),
        waiting_in(input.network.layers.size()) {}

  Seconds run(const Plan& plan);

  // A copy without what the caller may change later.
  StepInput input;
  LinkSharing sharing;
  Structure structure;
  CommunicationPricer communications;
  std::map<std::int64_t, Fragments> by_samples;
  Plan previous;                       ///< what the tables below belong to
  std::int64_t previous_samples = -1;  ///< of its micro-batches
  std::vector<Slot> order;
  std::vector<std::vector<LayerId>> members;  ///< of a stage
  std::vector<bool> dropped;
  std::vector<std::vector<LayerVisit>> visits;  ///< of a stage

  // One walk.
  const Plan* plan = nullptr;
  std::vector<std::int32_t> numbers;
  std::vector<const LayerFragment*> layers;
  std::vector<const FanOut*> fans;
  std::vector<std::vector<ParameterId>> buckets;
  std::vector<const std::vector<SumFragment>*> sums_of_bucket;
  std::vector<const SumFragment*> sums;
  std::vector<std::int32_t> backward_left;  ///< by sum
  std::vector<std::vector<std::size_t>> sums_of_layer;
  std::vector<std::vector<double>> pushed;        ///< by sum, when it has been issued
  std::vector<std::vector<double>> mirrors_done;  ///< by sum, mirror: its last kernel
  std::vector<bool> returned;
  std::vector<double> table;
  std::vector<TimeOffsets> offsets;              ///< layer · micro-batches + micro-batch
  std::vector<std::vector<Waiting>> waiting_in;  ///< as `offsets`
  /// As `offsets`, of the producer: by edge of its Joint, by cell, when its reader's kernels end.
  std::vector<std::vector<std::vector<double>>> joined;
  std::vector<std::vector<double>> last_backward;  ///< by layer, cell
  std::vector<double> queues, links;
  std::vector<double> by_cell;
  double latest = 0;

  void begin(const Plan& plan);
  void find_fragments(const Plan& plan, Fragments& fragments, bool fresh);
  void lay_out();
  void collect_sums();
  double occupy(const PricedCommunication& communication, Stream stream, double after);
  double kernel(DeviceId device, double after, double seconds);
  void emit(const Slot& slot);
  void forward(LayerId id, std::int32_t m, bool again);
  void await_departures(LayerId id, std::int32_t m);
  void backward(LayerId id, std::int32_t m);
  /// When the sums that a cell's operands repeat are made, or `after` if that is later.
  [[nodiscard]] double repeated_sums(LayerId id, std::size_t cell, std::int32_t m,
                                     double after) const;
  void return_contributions(LayerId id, std::size_t input, std::int32_t m);
  void return_jointly(LayerId producer, std::int32_t m);
  void move_home(LayerId producer, LayerId reader, std::int32_t m,
                 const std::vector<FanOut::Store>& stores,
                 const std::vector<FanOut::Return>& returns, const std::vector<double>& times);
  void sum(std::size_t s);
  void server_return(std::size_t s);
  void finish();
  /// When operands that need no movement are ready, by cell (into by_cell); true if other operands
  /// need one.
  bool aligned_operands(LayerId id, std::int32_t m);
  /// When all other operands of a cell have arrived.
  double arrived_operands(LayerId id, std::size_t cell, std::int32_t m);
  double arrival(LayerId producer, std::size_t index, std::int32_t m, LayerId reader);

  [[nodiscard]] std::size_t at(LayerId id, std::int32_t m) const {
    return id.index() * static_cast<std::size_t>(plan->schedule.micro_batches) +
           static_cast<std::size_t>(m);
  }
  /// Between stages, values (or gradients, if `back`) have a stream of their own.
  [[nodiscard]] Stream stream_between(LayerId a, LayerId b, bool back) const {
    const auto& stage = plan->schedule.stage_of_layer;
    if (stage[a.index()] == stage[b.index()]) return Stream::tensor;
    return back ? Stream::pipeline_back : Stream::pipeline;
  }
  [[nodiscard]] const FanOut::Edge& edge(LayerId reader, std::size_t i) const {
    const LayerId producer = input.network[reader].inputs[i];
    return fans[producer.index()]
        ->edges[static_cast<std::size_t>(structure.reader_index[reader.index()][i])];
  }
};

}  // namespace parsim::lowering
