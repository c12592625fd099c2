#include "hw/convolutions.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace parsim::hw {

namespace {

/// An engine that holds no tensors: it writes down what a library would be asked for.
struct Listener {
  using Scalar = float;
  struct Action {};

  Precision precision;
  std::vector<ConvShape> heard{};

  [[nodiscard]] View<float> view(const StoreKey&) const { return {}; }
  [[nodiscard]] bool is_sole(const StoreKey&) const { return false; }
  [[nodiscard]] bool has_rivals(const StoreKey&) const { return false; }
  Action for_each(std::uint32_t, const auto&) const { return {}; }
  Action reduce(std::uint32_t, std::uint32_t, const auto&) const { return {}; }
  std::optional<Action> convolve(const ConvRequest<float>& request) {
    heard.push_back(conv_shape(request, precision));
    return Action{};
  }
};

}  // namespace

Convolutions convolutions(const ExecDag& dag) {
  Convolutions all;
  const std::vector<bool> trained = trained_layers(dag.network);
  // Devices that do the same work ask the same.
  std::map<std::pair<std::size_t, Pass>, std::vector<std::size_t>> known;
  std::vector<std::set<std::size_t>> by_device;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* compute = std::get_if<Compute>(&op);
    if (compute == nullptr) continue;
    if (by_device.size() <= compute->device.index()) by_device.resize(compute->device.index() + 1);
    const auto* conv = dag.network[dag.work(compute->work).layer].kind.as<Conv>();
    if (conv == nullptr) continue;
    const auto [entry, is_new] = known.try_emplace({compute->work.index(), compute->pass});
    if (is_new) {
      Listener listener{dag.precision};
      const PartOf<Listener> part = part_of(listener, dag, *compute, trained);
      std::vector<Listener::Action> ignored;
      ProductKernels<Listener>(listener, part, ignored)(*conv);
      for (const ConvShape& shape : listener.heard) {
        const auto at = std::find(all.shapes.begin(), all.shapes.end(), shape);
        entry->second.push_back(static_cast<std::size_t>(at - all.shapes.begin()));
        if (at == all.shapes.end()) all.shapes.push_back(shape);
      }
    }
    by_device[compute->device.index()].insert(entry->second.begin(), entry->second.end());
  }
  for (const std::set<std::size_t>& shapes : by_device) {
    all.by_device.emplace_back(shapes.begin(), shapes.end());
  }
  return all;
}

}  // namespace parsim::hw
