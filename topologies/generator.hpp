// Generators: clusters from one line, `name:shape,key=value,…`. Every generator is a row of
// generators(): its options with their defaults, and a function from the parsed call to a cluster.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/call.hpp"
#include "core/cluster.hpp"
#include "topologies/builder.hpp"

namespace parsim::topologies {

class GeneratorCall;

struct Generator {
  std::string_view name;
  std::string_view shape;    ///< what stands after the colon: "N", "NxM"
  std::string_view meaning;  ///< what it builds
  std::vector<Option> options;
  Cluster (*build)(const GeneratorCall& call);
};

/// How the provenance of a generator's default begins.
inline constexpr std::string_view default_of = "default of";

/// All of them, in the order in which they are listed.
[[nodiscard]] const std::vector<Generator>& generators();

/// Runs a call, "star:8,device=t4". Throws InputError for an unknown generator.
///
/// types   that the call may name: the device table, and those of a file
[[nodiscard]] Cluster run_generator(const std::string& call, const std::string& where,
                                    std::span<const DeviceModel> types);

/// "name:shape meaning; options: key=default (meaning), …".
[[nodiscard]] std::string summary(const Generator& generator);

/// A parsed call: known keys only, each at most once, defaults filled in.
class GeneratorCall {
 public:
  /// text    the whole call; becomes the name of the cluster
  /// where   location of the text, for messages
  /// types   must outlive it
  GeneratorCall(const Generator& generator, const std::string& text, const std::string& where,
                std::span<const DeviceModel> types);

  [[nodiscard]] const std::string& text() const { return options_.text(); }
  [[nodiscard]] const std::string& where() const { return options_.where(); }
  /// Location of an option in messages: "--cluster:rate".
  [[nodiscard]] std::string where(std::string_view key) const { return options_.where(key); }

  /// The numbers of the shape, "4x4x2" = {4, 4, 2}: between `least` and `most` of them, each
  /// positive, and their product at most most_devices.
  [[nodiscard]] std::vector<std::int64_t> shape(std::size_t least, std::size_t most) const;

  /// True if the option was given or has a default.
  [[nodiscard]] bool has(std::string_view key) const { return options_.has(key); }
  [[nodiscard]] BytesPerSecond rate(std::string_view key) const;
  [[nodiscard]] Seconds latency(std::string_view key) const;
  /// The kind of link that an option names; nothing if it is absent: rates are effective then.
  [[nodiscard]] std::optional<LinkKind> kind(std::string_view key) const;
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t least,
                                     std::int64_t most) const {
    return options_.integer(key, least, most);
  }
  /// The same of a number that need not be whole.
  [[nodiscard]] double factor(std::string_view key, double least, double most) const;
  /// Numbers between `least` and `most`, "1+1+4" = {1, 1, 4}.
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key, std::int64_t least,
                                                   std::int64_t most) const;
  /// The same, with what stands for an absent option.
  [[nodiscard]] BytesPerSecond rate_or(std::string_view key, BytesPerSecond otherwise) const;
  [[nodiscard]] Seconds latency_or(std::string_view key, Seconds otherwise) const;
  [[nodiscard]] std::int64_t integer_or(std::string_view key, std::int64_t otherwise,
                                        std::int64_t least, std::int64_t most) const {
    return options_.integer_or(key, otherwise, least, most);
  }

  /// The models of `device=`: one name for all, or "a*4+b*4" with counts that sum to `count`.
  [[nodiscard]] std::vector<const DeviceModel*> devices(std::int64_t count) const;
  /// The models of machines of `each` devices, in order: the mix is of one machine, or of all.
  [[nodiscard]] std::vector<const DeviceModel*> devices_of_machines(std::int64_t machines,
                                                                    std::int64_t each) const;
  /// The sum of the counts of `device=`; 0 if it is one name for all.
  [[nodiscard]] std::int64_t devices_given() const;

  /// The model of `cpu=`; null if none is asked for.
  [[nodiscard]] const DeviceModel* cpu() const;

  /// Where a number of the generated cluster comes from: given in the call, or a default.
  [[nodiscard]] Provenance provenance(std::string_view key) const;
  /// The same of a default that `value` is.
  [[nodiscard]] Provenance default_provenance(std::string_view key, std::string_view value) const;

 private:
  struct Share {
    const DeviceModel* model = nullptr;
    std::int64_t count = 0;  ///< 0: all
  };

  [[nodiscard]] std::vector<Share> mix() const;

  const Generator& generator_;
  std::span<const DeviceModel> types_;
  std::string shape_;
  CallOptions options_;
};

/// The kind that a text names. Throws InputError with a "did you mean" for another word.
[[nodiscard]] LinkKind parse_link_kind(std::string_view text, const std::string& where);

/// The options that every generator has (device, cpu, cpu-rate) around its own.
[[nodiscard]] std::vector<Option> with_common_options(std::vector<Option> own);

/// A machine with one device and the CPU of `cpu=`, if any: "n0", "gpu0", "cpu0". Both are linked
/// to the switch `at` with `rate` and `latency`; `provenance` is that of the links.
void add_host(ClusterBuilder& builder, const GeneratorCall& call, const DeviceModel& model,
              SwitchId at, BytesPerSecond rate, Seconds latency, std::int32_t provenance);

/// Links the CPU of `cpu=` to a switch with `cpu-rate`; nothing without `cpu=`.
void add_cpu(ClusterBuilder& builder, const GeneratorCall& call, const std::string& name,
             NodeId node, SwitchId at, Seconds latency);

[[nodiscard]] Cluster build_cube_mesh(const GeneratorCall& call);
[[nodiscard]] Cluster build_dragonfly(const GeneratorCall& call);
[[nodiscard]] Cluster build_fat_tree(const GeneratorCall& call);
[[nodiscard]] Cluster build_nodes(const GeneratorCall& call);
[[nodiscard]] Cluster build_nvl72(const GeneratorCall& call);
[[nodiscard]] Cluster build_pcie_tree(const GeneratorCall& call);
[[nodiscard]] Cluster build_rail(const GeneratorCall& call);
[[nodiscard]] Cluster build_star(const GeneratorCall& call);
[[nodiscard]] Cluster build_torus(const GeneratorCall& call);

}  // namespace parsim::topologies
