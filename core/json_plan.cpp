// Plans as JSON.
#include "core/json.hpp"
#include "core/json_support.hpp"

namespace parsim {

namespace json {

void fields(auto& visit, Of<Cut> auto& cut) {
  visit("dim", cut.dim);
  visit("sizes", cut.sizes);
}

void fields(auto& visit, Of<Sync> auto& sync) {
  visit("kind", sync.kind);
  visit.optional("server", sync.server);
}

void put_special(Writer& out, const ZeroGroup& group) {
  if (group.node) {
    out.text("node");
  } else {
    out.integer(group.ranks);
  }
}

void get_special(const Node& node, ZeroGroup& group) {
  constexpr std::array<std::string_view, 1> words{"node"};
  group = {};
  if (node.kind() == Kind::text) {
    group.node = node.word(words) == 0;
  } else if (node.kind() == Kind::integer) {
    get(node, group.ranks, Limits{1});
  } else {
    node.refuse("accepted: a whole number of devices, or node");
  }
}

void put_special_schema(Writer& out, const ZeroGroup& group) {
  out.key("anyOf").open_array();
  put_schema(out, group.ranks, Limits{1});
  out.open_object();
  out.key("const").text("node");
  out.close_object();
  out.close_array();
}

void fields(auto& visit, Of<ZeroSharding> auto& zero) {
  visit("stage", zero.stage, Limits{0, 3});
  visit.optional("shares", zero.shares, "relative sizes; absent: equal");
  visit.optional("group", zero.group,
                 "how many of the devices that sum the gradients split them, or those of one "
                 "machine; absent: all");
}

void fields(auto& visit, Of<LayerPlan> auto& plan) {
  visit("cuts", plan.cuts);
  visit("devices", plan.devices, "one device per cell of the grid of cuts");
  visit.optional("zero", plan.zero, "what the devices that sum the gradients split: ZeRO's stages");
  visit.optional("recompute", plan.recompute);
  visit.optional("sync", plan.sync);
  visit.optional("joined", plan.joined);
  visit.optional("regather", plan.regather,
                 "what readers gather of the output is dropped after forward and gathered again in "
                 "backward");
  visit.optional(
      "zigzag", plan.zigzag,
      Rule(Limits{0}, "devices over which the tokens of causal attention are in zigzag order"));
  visit.optional("ring", plan.ring, "keys and values of attention go round a ring");
  visit.optional("overlap", plan.overlap,
                 "a dense layer works in chunks of tokens, so that all-gathers before it and sums "
                 "after it overlap with it");
  visit.optional("apart", plan.apart,
                 "partial sums of the output's gradient are summed for each reader alone");
  visit.optional("token_parts", plan.token_parts,
                 Rule(Limits{0}, "parts of the tokens, each of which has all of a learned tensor"));
}

void fields(auto& visit, Of<Slot> auto& slot) {
  visit("stage", slot.stage);
  visit("micro_batch", slot.micro_batch);
  visit("direction", slot.direction);
}

void fields(auto& visit, Of<RankList> auto& list) {
  visit("devices", list.devices);
  visit("slots", list.slots);
}

void fields(auto& visit, Of<Schedule> auto& schedule) {
  visit("micro_batches", schedule.micro_batches, Limits{1});
  visit("stage_of_layer", schedule.stage_of_layer);
  visit("rank_lists", schedule.rank_lists);
  visit.optional("blocking_sends", schedule.blocking_sends);
  visit.optional("split_backward", schedule.split_backward);
  visit.optional("reduce_every", schedule.reduce_every);
  visit.optional("late_gathers", schedule.late_gathers,
                 "weights that ZeRO shards are gathered for a backward pass when their use begins, "
                 "after the sums of the units before them");
}

constexpr std::string_view plan_format = "parsim-plan";
constexpr std::int64_t plan_version = 3;

void fields(auto& visit, Of<Plan> auto& plan) {
  visit.constant("format", plan_format);
  visit.constant("version", plan_version);
  visit("strategy", plan.strategy);
  visit("network", plan.network);
  visit.optional("dims", plan.dims,
                 "dimensions of the network that were given: \"seq_length=128\"");
  visit.optional("network_fingerprint", plan.network_fingerprint,
                 "a hash of the extents of all parameters and outputs: a file of this name with "
                 "other ones is another network");
  visit("cluster", plan.cluster);
  visit("batch", plan.batch);
  visit("precision", plan.precision);
  visit.optional_or("reduce_precision", plan.reduce_precision, storage_of(plan.precision),
                    reduce_precision_rule);
  visit("optimizer", plan.optimizer);
  visit.optional(
      "framework", plan.framework,
      "pytorch has buckets of all gradients and a loss in FP32; megatron works in place, gathers "
      "tokens for each pass of a dense layer and sends whole activations between stages; "
      "megatron-deepspeed is as megatron, and its stages send a share from each GPU");
  visit("layers", plan.layers);
  visit("schedule", plan.schedule);
  visit("buckets", plan.buckets);
  visit("notes", plan.notes);
}

}  // namespace json

std::string to_json(const Plan& plan) { return json::text_of_file(plan); }

Plan plan_from_json(const std::string& text, const std::string& where) {
  const json::Document document(text, where);
  Plan plan;
  json::get_fields(document.root(json::plan_format, json::plan_version), plan);
  return plan;
}

std::string plan_schema() { return json::schema_of_file<Plan>("What parsim plan -o writes"); }

}  // namespace parsim
