// Execution DAGs as JSON: the interned tables, then one object per operation. Reading rebuilds the
// DAG, so that all that ExecDag derives (payloads, table positions) is right; this file first
// checks the preconditions of ExecDag.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/json.hpp"
#include "core/json_ops.hpp"
#include "core/json_support.hpp"

namespace parsim {

namespace json {

namespace {

using Bucket = std::vector<std::pair<ParameterId, RegionId>>;

// Writing.

void put_region(Writer& out, const Region& region) {
  out.open_array();
  for (std::size_t axis = 0; axis < region.rank(); ++axis) {
    out.open_array();
    out.integer(region[axis].begin);
    out.integer(region[axis].end);
    out.close_array();
  }
  out.close_array();
}

void put_tensor(Writer& out, const Tensor& tensor) {
  out.open_object();
  out.key("kind");
  put(out, tensor.kind);
  const bool of_layer = tensor.kind == Tensor::Kind::output || tensor.kind == Tensor::Kind::edge;
  out.key(of_layer                                 ? "layer"
          : tensor.kind == Tensor::Kind::parameter ? "parameter"
                                                   : "bucket")
      .integer(tensor.index);
  if (tensor.kind == Tensor::Kind::edge) out.key("input").integer(tensor.input);
  out.close_object();
}

void put_bucket(Writer& out, const Bucket& bucket) {
  out.open_array();
  for (const auto& [parameter, region] : bucket) {
    out.open_object();
    out.key("parameter").integer(parameter.value);
    out.key("region").integer(region.value);
    out.close_object();
  }
  out.close_array();
}

void put_work(Writer& out, const Work& work) {
  out.open_object();
  out.key("layer").integer(work.layer.value);
  out.key("out").integer(work.out.value);
  out.key("contraction").open_array();
  out.integer(work.contraction_begin);
  out.integer(work.contraction_end);
  out.close_array();
  out.key("edges_to_partial_sum").open_array();
  for (std::int64_t input = 0; input < 32; ++input) {
    if (((work.edges_to_partial_sum >> input) & 1U) != 0) out.integer(input);
  }
  out.close_array();
  out.close_object();
}

void put_slice(Writer& out, const Slice& slice) {
  out.open_object();
  out.key("tensor").integer(slice.tensor.value);
  out.key("role");
  put(out, slice.role);
  out.key("micro_batch").integer(slice.micro_batch);
  if (slice.region.valid()) out.key("region").integer(slice.region.value);
  out.close_object();
}

void put_shares(Writer& out, const Shares& shares) {
  out.open_object();
  out.key("regions");
  put(out, shares.regions);
  out.key("needs");
  put(out, shares.needs);
  out.close_object();
}

template <class Table, class Function>
void put_table(Writer& out, std::string_view name, const Table& table, Function put_entry) {
  out.key(name).open_array();
  for (const auto& entry : table) put_entry(out, entry);
  out.close_array();
}

// Reading.

/// Adds an entry to an interned table, where it must be new.
template <class Entry>
void intern_new(ExecDag& dag, const Entry& entry, std::int32_t position, const Node& node) {
  std::int32_t given = 0;
  if constexpr (std::same_as<Entry, Slice>) {
    given = dag.intern(entry);
  } else {
    given = dag.intern(entry).value;
  }
  if (given != position) {
    node.refuse(fmt::format("the same as entry {}", given), "accepted: entries that differ");
  }
}

Region get_region(const Node& node) {
  if (node.size() > Region::max_rank) {
    node.refuse(fmt::format("accepted: at most {} axes", Region::max_rank));
  }
  constexpr Limits bound{0, std::int64_t{1} << 44};
  Region region;
  node.each([&](const Node& axis) {
    const Interval interval{axis.item(0, 2).integer(bound), axis.item(1, 2).integer(bound)};
    if (interval.end < interval.begin) axis.refuse("ends before it begins", "begin <= end");
    region.push_back(interval);
  });
  return region;
}

Tensor get_tensor(const Node& node, const Network& network, std::size_t buckets) {
  Tensor tensor;
  get(node["kind"], tensor.kind);
  const auto index = [&](std::string_view key, Limits limits) {
    return static_cast<std::int32_t>(node[key].integer(limits));
  };
  switch (tensor.kind) {
    case Tensor::Kind::output:
      node.only({"kind", "layer"});
      tensor.index = index("layer", index_of(network.layers.size()));
      break;
    case Tensor::Kind::edge:
      node.only({"kind", "layer", "input"});
      tensor.index = index("layer", index_of(network.layers.size()));
      tensor.input = index("input", index_of(network[LayerId{tensor.index}].inputs.size()));
      break;
    case Tensor::Kind::parameter:
      node.only({"kind", "parameter"});
      tensor.index = index("parameter", index_of(network.parameters.size()));
      break;
    case Tensor::Kind::bucket:
      node.only({"kind", "bucket"});
      tensor.index = index("bucket", index_of(buckets));
      break;
  }
  return tensor;
}

Bucket get_bucket(const Node& node, const ExecDag& dag, std::size_t regions) {
  Bucket bucket;
  double sum = 0;
  node.each([&](const Node& item) {
    item.only({"parameter", "region"});
    const Node region = item["region"];
    bucket.emplace_back();
    get(item["parameter"], bucket.back().first, index_of(dag.network.parameters.size()));
    get(region, bucket.back().second, index_of(regions));
    check_inside(region, dag.region(bucket.back().second),
                 whole_parameter(dag.network[bucket.back().first]));
    sum += elements(dag.region(bucket.back().second));
  });
  if (sum > most_elements) {
    node.refuse(fmt::format("a bucket of {:.3g} elements", sum),
                fmt::format("accepted: at most {:.3g}", most_elements));
  }
  return bucket;
}

Work get_work(const Node& node, const ExecDag& dag, std::size_t regions) {
  node.only({"layer", "out", "contraction", "edges_to_partial_sum"});
  Work work;
  get(node["layer"], work.layer, index_of(dag.network.layers.size()));
  get(node["out"], work.out, index_of(regions));
  check_inside(node["out"], dag.region(work.out), whole(dag.network[work.layer].out, dag.batch));
  const Node contraction = node["contraction"];
  get(contraction.item(0, 2), work.contraction_begin);
  get(contraction.item(1, 2), work.contraction_end);
  if (work.contraction_end < work.contraction_begin) {
    contraction.refuse("ends before it begins", "begin <= end");
  }
  const std::size_t inputs = dag.network[work.layer].inputs.size();
  node["edges_to_partial_sum"].each([&](const Node& input) {
    const std::int64_t bit = input.integer(index_of(std::min<std::size_t>(inputs, 32)));
    work.edges_to_partial_sum |= std::uint32_t{1} << bit;
  });
  return work;
}

Slice get_slice(const Node& node, const ExecDag& dag, std::size_t tensors, std::size_t regions) {
  node.only({"tensor", "role", "micro_batch", "region"});
  Slice slice;
  get(node["tensor"], slice.tensor, index_of(tensors));
  get(node["role"], slice.role);
  get(node["micro_batch"], slice.micro_batch);
  const Tensor& tensor = dag.tensor(slice.tensor);
  const bool learned =
      tensor.kind == Tensor::Kind::parameter || tensor.kind == Tensor::Kind::bucket;
  const bool learned_role = slice.role == Role::weight || slice.role == Role::weight_gradient ||
                            slice.role == Role::optimizer_state;
  if (learned != learned_role) {
    node["role"].refuse(learned ? "accepted for parameters and buckets: weight, weight-gradient, "
                                  "optimizer-state"
                                : "accepted for outputs and edges: activation, gradient, "
                                  "partial-sum");
  }
  if (tensor.kind == Tensor::Kind::bucket && !node.find("region")) return slice;
  get(node["region"], slice.region, index_of(regions));
  check_inside(node["region"], dag.region(slice.region), whole_tensor(dag, tensor));
  return slice;
}

std::vector<DeviceId> get_group(const Node& node) {
  std::vector<DeviceId> group;
  get(node, group, device_number);
  std::vector<DeviceId> sorted = group;
  std::sort(sorted.begin(), sorted.end());
  if (group.empty() || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    node.refuse("accepted: one device or more, each once");
  }
  return group;
}

Shares get_shares(const Node& node, std::size_t regions) {
  node.only({"regions", "needs"});
  Shares shares;
  get(node["regions"], shares.regions, index_of(regions));
  get(node["needs"], shares.needs, index_of(regions));
  return shares;
}

constexpr std::string_view dag_format = "parsim-dag";
constexpr std::int64_t dag_version = 2;

/// Fills the interned tables and returns the slices; every entry is checked against those that it
/// refers to.
std::vector<Slice> get_tables(const Node& root, ExecDag& dag) {
  std::int32_t next = 0;
  root["regions"].each([&](const Node& node) { intern_new(dag, get_region(node), next++, node); });
  const std::size_t regions = root["regions"].size();
  next = 0;
  root["tensors"].each([&](const Node& node) {
    intern_new(dag, get_tensor(node, dag.network, root["buckets"].size()), next++, node);
  });
  const std::size_t tensors = root["tensors"].size();
  root["buckets"].each(
      [&](const Node& node) { static_cast<void>(dag.add_bucket(get_bucket(node, dag, regions))); });
  next = 0;
  root["works"].each(
      [&](const Node& node) { intern_new(dag, get_work(node, dag, regions), next++, node); });
  std::vector<Slice> slices;
  root["slices"].each([&](const Node& node) {
    slices.push_back(get_slice(node, dag, tensors, regions));
    intern_new(dag, slices.back(), static_cast<std::int32_t>(slices.size() - 1), node);
  });
  next = 0;
  root["groups"].each([&](const Node& node) { intern_new(dag, get_group(node), next++, node); });
  return slices;
}

}  // namespace

}  // namespace json

std::string to_json(const ExecDag& dag) {
  const ExecDag::Tables tables = dag.tables();
  json::Writer out;
  out.open_object();
  json::put_heading(out, json::dag_format, json::dag_version);
  out.key("strategy").text(dag.strategy);
  out.key("cluster").text(dag.cluster);
  out.key("batch").integer(dag.batch);
  out.key("precision");
  json::put(out, dag.precision);
  if (dag.reduce_precision != storage_of(dag.precision)) {
    out.key("reduce_precision");
    json::put(out, dag.reduce_precision);
  }
  out.key("optimizer");
  json::put(out, dag.optimizer);
  out.key("network").open_object();
  json::put_network(out, dag.network);
  out.close_object();
  json::put_table(out, "regions", tables.regions, json::put_region);
  json::put_table(out, "tensors", tables.tensors, json::put_tensor);
  json::put_table(out, "buckets", tables.buckets, json::put_bucket);
  json::put_table(out, "works", tables.works, json::put_work);
  json::put_table(out, "slices", tables.slices, json::put_slice);
  json::put_table(out, "groups", tables.groups, json::put<std::vector<DeviceId>>);
  json::put_table(out, "shares", tables.shares, json::put_shares);
  out.key("ops").open_array();
  for (std::size_t i = 0; i < dag.size(); ++i) json::put_op(out, dag, OpId{i});
  out.close_array();
  out.close_object();
  return out.take();
}

ExecDag dag_from_json(const std::string& text, const std::string& where) {
  const json::Document document(text, where);
  const json::Node root = document.root(json::dag_format, json::dag_version);
  root.only({"format", "version", "strategy", "cluster", "batch", "precision", "reduce_precision",
             "optimizer", "network", "regions", "tensors", "buckets", "works", "slices", "groups",
             "shares", "ops"});
  std::int64_t batch = 0;
  Precision precision{};
  Optimizer optimizer{};
  json::get(root["batch"], batch);
  json::get(root["precision"], precision);
  json::get(root["optimizer"], optimizer);
  Precision reduce = storage_of(precision);
  if (const auto given = root.find("reduce_precision")) {
    json::get(*given, reduce);
    if (reduce == Precision::tf32) given->refuse("accepted: fp32, fp16, bf16");
  }
  ExecDag dag(json::get_network(root["network"]), batch, precision, optimizer, reduce);
  json::get(root["strategy"], dag.strategy);
  json::get(root["cluster"], dag.cluster);
  const std::vector<Slice> slices = json::get_tables(root, dag);

  std::vector<Shares> shares;
  root["shares"].each([&](const json::Node& node) {
    shares.push_back(json::get_shares(node, root["regions"].size()));
  });
  json::OpReader reader(slices, shares, root["works"].size(), root["groups"].size());
  root["ops"].each([&](const json::Node& node) { reader.read(node, dag); });
  return dag;
}

}  // namespace parsim
