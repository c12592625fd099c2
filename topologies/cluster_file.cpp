#include "topologies/cluster_file.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "core/errors.hpp"
#include "topologies/builder.hpp"
#include "topologies/cluster_keys.hpp"
#include "topologies/device_types.hpp"
#include "topologies/document.hpp"
#include "topologies/generator.hpp"
#include "topologies/import/import.hpp"
#include "topologies/pattern.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {

namespace {

class FileReader {
 public:
  FileReader(const Value& root, std::string file)
      : file_(std::move(file)),
        top_(root, file_, "", cluster_keys()),
        types_(read_types()),
        builder_(base()) {}

  Cluster read(std::vector<std::string>* notes) && {
    for (const Value& entry : top_.list("nodes")) read_nodes(entry);
    for (const std::string& name : names_of(top_, "switches")) builder_.add_switch(name);
    PortNames everything;
    const Cluster& cluster = builder_.cluster();
    for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
      everything.add(cluster.devices[i].name, Port::of(DeviceId{i}));
    }
    for (std::size_t i = 0; i < cluster.switches.size(); ++i) {
      everything.add(cluster.switches[i].name, Port::of(SwitchId{i}));
    }
    for (const Value& entry : top_.list("links")) read_link(entry, "links", everything);
    for (const Value& entry : top_.list("overrides")) read_override(entry);
    if (notes != nullptr) *notes = std::move(notes_);
    return std::move(builder_).finish();
  }

 private:
  /// Where the file starts from: nothing, or the cluster of a generator.
  ClusterBuilder base() {
    const std::string name = top_.text_or("name", std::filesystem::path(file_).stem().string());
    const auto call = top_.maybe_text("generator");
    if (!call) return {name, file_};
    const std::string where = top_.where("generator");
    Cluster cluster = run_generator(*call, where, types_);
    cluster.name = name;
    return {std::move(cluster), file_};
  }

  std::vector<std::string> names_of(const Fields& fields, std::string_view key) const {
    std::vector<std::string> names;
    for (const Value& item : fields.list(key)) {
      if (item.kind == Value::Kind::text) {
        names.push_back(item.text);
        continue;
      }
      throw InputError(fmt::format("{}:{}:{}", file_, item.line, key),
                       fmt::format("expected a name, found {}", item.described()),
                       "accepted: quoted names: switches = [\"pcie0\", \"pcie1\"]");
    }
    return names;
  }

  /// Those of the device table, and the file's own.
  std::vector<DeviceModel> read_types() const {
    std::vector<DeviceModel> types = device_models();
    for (const Value& entry : top_.list("device_types")) {
      DeviceModel model = read_device_type(entry, file_, types);
      for (const DeviceModel& known : types) {
        if (known.name != model.name) continue;
        throw InputError(
            fmt::format("{}:{}:device_types.name", file_, entry.line),
            fmt::format("a device type '{}' already exists", model.name),
            fmt::format("accepted: another name; base = \"{}\" starts from that type", model.name));
      }
      types.push_back(std::move(model));
    }
    return types;
  }

  /// The provenance of a link or override: `label` and `source` are of the rate.
  std::int32_t provenance(const Fields& fields) {
    const auto label = fields.maybe_text("label");
    return builder_.add_provenance(
        {"*", label ? parse_label(*label, fields.where("label")) : Label::guessed,
         fields.text_or("source", "given in " + file_)});
  }

  BytesPerSecond rate(const Fields& fields, std::string_view key = "rate") const {
    const BytesPerSecond rate = parse_rate(fields.text(key), fields.where(key));
    if (rate.value > 0) return rate;
    throw InputError(fields.where(key), "the rate is 0", "accepted: a positive rate");
  }

  /// `rate` or `effective_rate`.
  BytesPerSecond given_rate(const Fields& fields) const {
    const bool effective = fields.find("effective_rate") != nullptr;
    const std::string key = effective ? "effective_rate" : "rate";
    if (effective != (fields.find("rate") != nullptr)) return rate(fields, key);
    throw InputError(fields.where(key),
                     effective ? "given together with 'rate'" : "the key 'rate' is missing",
                     "accepted: rate (with a kind that of the data sheet), or effective_rate");
  }

  /// A link's rate: of its data sheet where the kind is known and `rate` gives it, else effective.
  struct LinkRate {
    std::optional<LinkKind> kind;
    BytesPerSecond rate;
    bool effective = true;
    LinkPower power;
  };
  LinkRate link_rate(const Fields& fields) const {
    LinkRate found;
    if (const auto kind = fields.maybe_text("kind")) {
      found.kind = parse_link_kind(*kind, fields.where("kind"));
    }
    found.rate = given_rate(fields);
    found.effective = fields.find("effective_rate") != nullptr || !found.kind;
    found.power = read_link_power(fields, {});
    return found;
  }
  void add_cables(const LinkRate& link, Port a, Port b, Seconds latency, std::int32_t source,
                  std::int64_t cables) {
    const std::size_t first = builder_.cluster().links.size();
    if (link.effective) {
      builder_.add_link(a, b, link.rate, latency, source, cables);
    } else {
      builder_.add_link_of(*link.kind, a, b, link.rate, latency, source, cables);
    }
    std::vector<Link>& links = builder_.change().links;
    for (std::size_t i = first; i < links.size(); ++i) {
      if (link.effective) links[i].kind = link.kind;
      links[i].power = link.power;
    }
  }
  static Bytes memory_of(const std::string& text, const Fields& fields) {
    const Bytes memory = parse_bytes(text, fields.where("memory"));
    if (memory.value > 0) return memory;
    throw InputError(fields.where("memory"), "the memory is 0", "accepted: a positive size");
  }
  Seconds latency(const Fields& fields) const {
    return parse_seconds(fields.text("latency"), fields.where("latency"));
  }

  using Ends = std::pair<std::vector<Port>, std::vector<Port>>;

  /// What the entry joins with what: `a` with `b`, or each of `pairs`.
  std::vector<Ends> ends_of(const Fields& fields, const std::string& path,
                            const PortNames& scope) const {
    const Value* pairs = fields.find("pairs");
    if (pairs == nullptr) {
      return {{scope.match(fields.text("a"), fields.where("a")),
               scope.match(fields.text("b"), fields.where("b"))}};
    }
    if (fields.find("a") != nullptr || fields.find("b") != nullptr) {
      throw InputError(fields.where("pairs"), "'pairs' together with 'a' or 'b'",
                       "accepted: a and b, or pairs");
    }
    std::vector<Ends> found;
    for (const Value& pair : fields.list("pairs")) {
      const std::string where = fmt::format("{}:{}:{}.pairs", file_, pair.line, path);
      const bool is_pair = pair.kind == Value::Kind::list && pair.items.size() == 2 &&
                           pair.items[0].kind == Value::Kind::text &&
                           pair.items[1].kind == Value::Kind::text;
      if (!is_pair) {
        throw InputError(where, fmt::format("expected a pair, found {}", pair.described()),
                         "accepted: two names: [\"gpu0\", \"gpu1\"]");
      }
      found.emplace_back(scope.match(pair.items[0].text, where),
                         scope.match(pair.items[1].text, where));
    }
    return found;
  }

  void read_link(const Value& entry, const std::string& path, const PortNames& scope) {
    const Fields fields(entry, file_, path, link_keys());
    const std::vector<Ends> ends = ends_of(fields, path, scope);
    const LinkRate cable_rate = link_rate(fields);
    const Seconds cable_latency = latency(fields);
    const std::int64_t cables = fields.integer_or("count", 1);
    const std::int32_t source = provenance(fields);
    const std::string where = fmt::format("{}:{}:{}", file_, entry.line, path);
    for (const auto& [from, to] : ends) {
      if (from.size() * to.size() > static_cast<std::size_t>(most_links)) {
        throw InputError(where,
                         fmt::format("the patterns match {} x {} ends", from.size(), to.size()),
                         fmt::format("accepted: at most {} links", most_links));
      }
      // Each pair once, though both patterns may match both ends: a mesh is "gpu*" with "gpu*".
      std::set<std::pair<Port, Port>> joined;
      for (const Port a : from) {
        for (const Port b : to) {
          if (a == b || !joined.insert(std::minmax(a, b)).second) continue;
          add_cables(cable_rate, a, b, cable_latency, source, cables);
        }
      }
      if (joined.empty()) {
        throw InputError(where, "both ends of the link are the same",
                         "accepted: two different ends");
      }
    }
  }

  Fields device_fields(const Value& entry) const {
    return {entry, file_, "nodes.devices", node_device_keys()};
  }

  void read_nodes(const Value& entry) {
    const Fields fields(entry, file_, "nodes", node_keys());
    const std::string name = fields.text("name");
    const bool several = fields.find("count") != nullptr;
    const std::int64_t count = fields.integer_or("count", 1);
    // Before any of them is built.
    std::int64_t each = 0;
    for (const Value& device : fields.list("devices")) {
      each += device_fields(device).integer_or("count", 1);
    }
    const std::optional<Cluster> imported = import_of(fields);
    if (imported) each += static_cast<std::int64_t>(imported->devices.size());
    if (each * count > most_devices) {
      throw InputError(fields.where("count"), fmt::format("{} x {} devices", count, each),
                       fmt::format("accepted: at most {} devices", most_devices));
    }
    for (std::int64_t i = 0; i < count; ++i) {
      read_node(fields, several ? fmt::format("{}{}", name, i) : name, imported);
    }
  }

  /// Names are checked here, where their line is known.
  void check_name(const std::string& own, const std::string& full, const std::string& where) {
    if (own.empty()) {
      throw InputError(where, "an empty name", "accepted: at least one character");
    }
    if (!names_.insert(full).second) {
      throw InputError(where, fmt::format("the name '{}' occurs twice", full),
                       "accepted: unique names");
    }
  }

  /// The machine that a file of another tool describes, if the node is read from one.
  std::optional<Cluster> import_of(const Fields& fields) {
    auto name = fields.maybe_text("import");
    auto model = fields.maybe_text("model");
    const std::string where = fields.where("import");
    // As on the command line.
    const std::size_t option = name ? name->rfind(",device=") : std::string::npos;
    if (option != std::string::npos && !model) {
      model = name->substr(option + std::string_view(",device=").size());
      name->erase(option);
    }
    if (!name) {
      if (!model) return std::nullopt;
      throw InputError(fields.where("model"), "a model for a node without 'import'",
                       "accepted: with import; otherwise devices = [{ model = \"…\" }]");
    }
    const std::filesystem::path path = std::filesystem::path(file_).parent_path() / *name;
    ImportOptions options;
    if (model) options.device = &find_device_type(types_, *model, fields.where("model"));
    std::optional<Imported> imported =
        import_cluster(read_cluster_text(path.string(), where), path.string(), options);
    if (imported) {
      for (const std::string& note : imported->notes) {
        if (note.ends_with("a cluster file joins machines")) continue;  // this is one
        notes_.push_back(fmt::format("{}: {}", fields.text("name"), note));
      }
      return std::move(imported->cluster);
    }
    throw InputError(
        where, fmt::format("the format of '{}' is not known", *name),
        "accepted: NCCL's topology XML, the text of nvidia-smi topo -m, SimGrid's XML");
  }

  /// Everything of a machine, with the node's name before it.
  void add_imported(const Cluster& machine, const std::string& node_name, NodeId node,
                    PortNames& inside, const std::string& where) {
    std::vector<Port> devices, switches;
    for (const Device& device : machine.devices) {
      const std::string full = fmt::format("{}.{}", node_name, device.name);
      check_name(device.name, full, where);
      devices.push_back(Port::of(builder_.add_device(
          full, machine.models[static_cast<std::size_t>(device.model)], node, device.memory)));
      inside.add(device.name, devices.back());
    }
    for (const Switch& one : machine.switches) {
      const std::string full = fmt::format("{}.{}", node_name, one.name);
      check_name(one.name, full, where);
      switches.push_back(Port::of(builder_.add_switch(full, node)));
      inside.add(one.name, switches.back());
    }
    const auto port = [&](Port old) {
      return (old.kind == Port::Kind::device ? devices
                                             : switches)[static_cast<std::size_t>(old.index)];
    };
    for (const Link& link : machine.links) {
      builder_.add_link(
          port(link.a), port(link.b), link.rate, link.latency,
          builder_.add_provenance(machine.provenances[static_cast<std::size_t>(link.provenance)]));
      Link& added = builder_.change().links.back();
      if (!link.kind_guessed) added.kind = link.kind;
      added.power = link.power;
    }
  }

  /// Inside a node things go by their own names, outside with the node's before it: "box0.gpu1".
  void read_node(const Fields& fields, const std::string& node_name,
                 const std::optional<Cluster>& imported) {
    if (fields.text("name").empty()) check_name({}, {}, fields.where("name"));
    const NodeId node = builder_.add_node(node_name);
    builder_.change().nodes.back().upkeep = read_upkeep(fields, {});
    PortNames inside;
    std::int64_t gpus = 0, cpus = 0;
    if (imported) {
      add_imported(*imported, node_name, node, inside, fields.where("import"));
      for (const Device& device : imported->devices) {
        const auto model = static_cast<std::size_t>(device.model);
        ++(imported->models[model].kind == DeviceKind::gpu ? gpus : cpus);
      }
    }
    for (const Value& entry : fields.list("devices")) {
      const Fields device = device_fields(entry);
      const DeviceModel& model =
          find_device_type(types_, device.text("model"), device.where("model"));
      std::optional<Bytes> memory;
      if (const auto text = device.maybe_text("memory")) memory = memory_of(*text, device);
      const auto own_name = device.maybe_text("name");
      const std::int64_t count = device.integer_or("count", 1);
      std::int64_t& number = model.kind == DeviceKind::gpu ? gpus : cpus;
      for (std::int64_t i = 0; i < count; ++i) {
        std::string name;
        if (!own_name) {
          name = fmt::format("{}{}", to_text(model.kind), number++);
        } else {
          name = device.find("count") == nullptr ? *own_name : fmt::format("{}{}", *own_name, i);
        }
        const std::string full = fmt::format("{}.{}", node_name, name);
        check_name(name, full, device.where(own_name ? "name" : "model"));
        const DeviceId id = builder_.add_device(full, model, node, memory);
        builder_.change().devices.back().upkeep = read_upkeep(device, model.upkeep);
        inside.add(name, Port::of(id));
      }
    }
    for (const std::string& name : names_of(fields, "switches")) {
      const std::string full = fmt::format("{}.{}", node_name, name);
      check_name(name, full, fields.where("switches"));
      inside.add(name, Port::of(builder_.add_switch(full, node)));
    }
    for (const Value& entry : fields.list("links")) read_link(entry, "nodes.links", inside);
  }

  void read_override(const Value& entry) {
    const Fields fields(entry, file_, "overrides", override_keys());
    const bool of_devices = fields.find("devices") != nullptr;
    if (of_devices == (fields.find("links") != nullptr)) {
      throw InputError(fmt::format("{}:{}:overrides", file_, entry.line),
                       "an override needs either 'devices' or 'links'",
                       "accepted: devices = \"pattern\" or links = \"pattern\"");
    }
    for (const std::string_view wrong :
         of_devices
             ? std::vector<std::string_view>{"rate", "effective_rate", "latency", "label", "source"}
             : std::vector<std::string_view>{"model", "memory", "price", "mtbf"}) {
      if (fields.find(wrong) == nullptr) continue;
      throw InputError(
          fields.where(wrong),
          fmt::format("{} have no '{}'", of_devices ? "devices" : "links", wrong),
          of_devices ? "accepted: model, memory, price, power, idle_power, mtbf"
                     : "accepted: rate, effective_rate, latency, power, idle_power, label, source");
    }
    of_devices ? override_devices(fields) : override_links(fields);
  }

  void override_devices(const Fields& fields) {
    std::optional<std::int32_t> model;
    std::optional<Bytes> memory;
    std::optional<Upkeep> upkeep;
    if (const auto name = fields.maybe_text("model")) {
      const DeviceModel& found = find_device_type(types_, *name, fields.where("model"));
      model = builder_.add_model(found);
      memory = found.memory;
      upkeep = found.upkeep;
    }
    if (const auto text = fields.maybe_text("memory")) memory = memory_of(*text, fields);
    std::vector<Device>& devices = builder_.change().devices;
    for (const std::size_t i : matching(devices, fields.text("devices"), fields.where("devices"))) {
      devices[i].model = model.value_or(devices[i].model);
      devices[i].memory = memory.value_or(devices[i].memory);
      devices[i].upkeep = read_upkeep(fields, upkeep.value_or(devices[i].upkeep));
    }
  }

  void override_links(const Fields& fields) {
    const bool effective = fields.find("effective_rate") != nullptr;
    const bool has_rate = effective || fields.find("rate") != nullptr;
    const bool has_latency = fields.find("latency") != nullptr;
    // The rate's, which a power alone leaves as it was.
    const bool has_source = has_rate || has_latency || fields.find("label") != nullptr ||
                            fields.find("source") != nullptr;
    const std::int32_t source = has_source ? provenance(fields) : -1;
    std::vector<Link>& links = builder_.change().links;
    for (const std::size_t i : matching(links, fields.text("links"), fields.where("links"))) {
      if (has_rate) {
        // As with a link of its own: what was of the data sheet stays so.
        const bool of_sheet = !effective && links[i].line_rate.value > 0;
        links[i].rate = given_rate(fields);
        links[i].line_rate = of_sheet ? links[i].rate : BytesPerSecond{};
        if (of_sheet) links[i].rate.value *= link_numbers(*links[i].kind).efficiency;
      }
      if (has_latency) links[i].latency = latency(fields);
      links[i].power = read_link_power(fields, links[i].power);
      if (has_source) links[i].provenance = source;
    }
  }

  std::string file_;
  std::vector<std::string> notes_;
  std::set<std::string> names_;  ///< of devices and switches in nodes
  Fields top_;
  std::vector<DeviceModel> types_;
  ClusterBuilder builder_;
};

}  // namespace

Cluster parse_cluster(std::string_view text, const std::string& file,
                      std::vector<std::string>* notes) {
  const Value root = parse_document(text, file);
  return FileReader(root, file).read(notes);
}

std::string summary_of(std::string_view text, const std::string& file) {
  const Value root = parse_toml(text, file);
  for (std::size_t i = 0; i < root.keys.size(); ++i) {
    if (root.keys[i] == "summary") return root.items[i].text;
  }
  return {};
}

}  // namespace parsim::topologies
