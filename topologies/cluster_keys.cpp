#include "topologies/cluster_keys.hpp"

#include <array>

#include "core/cluster.hpp"
#include "core/link_kind.hpp"
#include "topologies/builder.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {

namespace {

using Text = std::string;
using Texts = std::vector<std::string>;

constexpr json::Limits device_count{1, most_devices};
constexpr json::Limits cables{1, 1024};
constexpr json::Limits multiprocessors{0, 1'000'000};

Key price_key() { return key<QuantityText>("price", "'2.5 /h', or bought: '30k / 4 years'"); }
Key power_key() { return key<QuantityText>("power", "while kernels run"); }
Key idle_power_key() { return key<QuantityText>("idle_power", "absent: a fifth of power"); }
Key link_power_key() {
  return key<QuantityText>("power", "of a link: at its rate in both directions");
}
Key link_idle_power_key() {
  return key<QuantityText>("idle_power", "of a link: absent, the same as power");
}
Key mtbf_key() { return key<QuantityText>("mtbf", "mean time between failures: '50000 h'"); }

}  // namespace

const Keys& number_source_keys() {
  static const Keys keys = [] {
    Keys made{{key<Text>("multiprocessors")}};
    for (const std::string_view name : peak_keys) {
      made.keys.push_back(key<Text>(name));
    }
    made.keys.push_back(key<Text>("memory"));
    for (const std::string_view name : {"memory_rate", "price", "power", "idle_power", "mtbf"}) {
      made.keys.push_back(key<Text>(name));
    }
    return made;
  }();
  return keys;
}

const Keys& device_type_keys() {
  static const Keys keys = [] {
    Keys made{{required<Text>("name"), key<Text>("base", "what it has where it says nothing"),
               key<DeviceKind>("kind"), key<Text>("architecture"),
               key<std::int64_t>("multiprocessors", multiprocessors)}};
    for (const std::string_view name : peak_keys) {
      made.keys.push_back(key<QuantityText>(name, "peak"));
    }
    for (const Key& one :
         {key<QuantityText>("memory"), key<QuantityText>("memory_rate"), price_key(), power_key(),
          idle_power_key(),
          key<QuantityText>("power_limit", "below power; slows kernels that compute"), mtbf_key(),
          key<Label>("label"), key<Text>("source"),
          key<TableOf<number_source_keys>>("sources", "label: source")}) {
      made.keys.push_back(one);
    }
    return made;
  }();
  return keys;
}

const Keys& node_device_keys() {
  static const Keys keys{{key<Text>("name"), required<Text>("model"),
                          key<std::int64_t>("count", device_count), key<QuantityText>("memory"),
                          price_key(), power_key(), idle_power_key(), mtbf_key()}};
  return keys;
}

const Keys& link_keys() {
  static const Keys keys{
      {key<Text>("a"), key<Text>("b"), key<std::vector<std::array<std::string, 2>>>("pairs"),
       key<QuantityText>("rate", "with a kind that of the data sheet"),
       key<QuantityText>("effective_rate"), key<LinkKind>("kind"),
       required<QuantityText>("latency"), key<std::int64_t>("count", cables), link_power_key(),
       link_idle_power_key(), key<Label>("label"), key<Text>("source")},
      {{{"a", "b"}, {"pairs"}}, {{"rate"}, {"effective_rate"}}}};
  return keys;
}

const Keys& node_keys() {
  static const Keys keys{{required<Text>("name"), key<std::int64_t>("count", device_count),
                          key<Text>("import", "a file of another tool"),
                          key<Text>("model", "of the GPUs of such a file"),
                          key<std::vector<TableOf<node_device_keys>>>("devices"),
                          key<QuantityText>("price", "of the machine, in place of its devices'"),
                          key<QuantityText>("power", "of the machine, its devices included"),
                          key<QuantityText>("mtbf", "of the machine without its devices"),
                          key<Texts>("switches"), key<std::vector<TableOf<link_keys>>>("links")}};
  return keys;
}

const Keys& override_keys() {
  static const Keys keys{
      {key<Text>("devices"), key<Text>("links"), key<Text>("model"), key<QuantityText>("memory"),
       price_key(), key<QuantityText>("power", "of devices or links"),
       key<QuantityText>("idle_power", "the same"), mtbf_key(),
       key<QuantityText>("rate", "of links that were given one of the data sheet that one"),
       key<QuantityText>("effective_rate"), key<QuantityText>("latency"), key<Label>("label"),
       key<Text>("source")},
      {{{"devices"}, {"links"}}}};
  return keys;
}

const Keys& cluster_keys() {
  static const Keys keys{{key<Text>("name"), key<Text>("summary"), key<Text>("generator"),
                          key<std::vector<TableOf<device_type_keys>>>("device_types"),
                          key<std::vector<TableOf<node_keys>>>("nodes"), key<Texts>("switches"),
                          key<std::vector<TableOf<link_keys>>>("links"),
                          key<std::vector<TableOf<override_keys>>>("overrides")}};
  return keys;
}

std::string cluster_schema() { return table_schema("A cluster, in TOML or JSON", cluster_keys()); }

}  // namespace parsim::topologies
