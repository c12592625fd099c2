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

void put_zero_group(Writer& out, const ZeroGroup& group) {
  if (group.node) {
    out.text("node");
  } else {
    out.integer(group.ranks);
  }
}

ZeroGroup get_zero_group(const Node& node) {
  constexpr std::array<std::string_view, 1> words{"node"};
  if (node.kind() == Kind::text) return {0, node.word(words) == 0};
  if (node.kind() != Kind::integer) node.refuse("accepted: a whole number of devices, or node");
  return {static_cast<std::int32_t>(node.integer(Limits{1})), false};
}

void fields(auto& visit, Of<ZeroSharding> auto& zero) {
  visit("stage", zero.stage);
  visit.optional("shares", zero.shares);
  visit.optional("group", zero.group);
}

void fields(auto& visit, Of<LayerPlan> auto& plan) {
  visit("cuts", plan.cuts);
  visit("devices", plan.devices);
  visit.optional("zero", plan.zero);
  visit.optional("recompute", plan.recompute);
  visit.optional("sync", plan.sync);
  visit.optional("joined", plan.joined);
  visit.optional("regather", plan.regather);
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
}

void fields(auto& visit, Of<Plan> auto& plan) {
  visit("strategy", plan.strategy);
  visit("network", plan.network);
  visit("cluster", plan.cluster);
  visit("batch", plan.batch);
  visit("precision", plan.precision);
  visit.optional("reduce_precision", plan.reduce_precision, storage_of(plan.precision));
  visit("optimizer", plan.optimizer);
  visit("layers", plan.layers);
  visit("schedule", plan.schedule);
  visit("buckets", plan.buckets);
  visit("notes", plan.notes);
}

}  // namespace json

namespace {

constexpr std::string_view plan_format = "parsim-plan";
constexpr std::int64_t plan_version = 3;

}  // namespace

std::string to_json(const Plan& plan) {
  json::Writer out;
  out.open_object();
  json::put_heading(out, plan_format, plan_version);
  json::put_fields(out, plan);
  out.close_object();
  return out.take();
}

Plan plan_from_json(const std::string& text, const std::string& where) {
  const json::Document document(text, where);
  Plan plan;
  const json::Node root = document.root(plan_format, plan_version);
  json::get_fields(root, plan, json::heading_keys);
  if (plan.reduce_precision == Precision::tf32) {
    root["reduce_precision"].refuse("accepted: fp32, fp16, bf16");
  }
  return plan;
}

}  // namespace parsim
