#include "topologies/card_links.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace parsim::topologies {

namespace {

struct Row {
  std::string_view type;
  CardLinks links;
};

// A link of NVLink 2 to 4 carries 25 GB/s each way, of GA102's four 14.0625. Turing: TU104 has one
// link, TU102 two (techpowerup.com, "NVIDIA Turing GeForce RTX Technology & Architecture", page
// 14). GA102: NVIDIA's white paper. A30, A100 and H100 PCIe, H100 NVL: their data sheets (200, 600,
// 600 and 600 GB/s both ways together). Neither cards of Pascal, Volta and Ada nor T4, A10 and L4
// have a connector for bridges.
constexpr Row cards[] = {{"rtx-2080", {LinkKind::nvlink2, 1 * 25.0}},
                         {"rtx-2080ti", {LinkKind::nvlink2, 2 * 25.0}},
                         {"titan-rtx", {LinkKind::nvlink2, 2 * 25.0}},
                         {"quadro-rtx-6000", {LinkKind::nvlink2, 2 * 25.0}},
                         {"rtx-3090", {LinkKind::nvlink3, 4 * 14.0625}},
                         {"a40", {LinkKind::nvlink3, 4 * 14.0625}},
                         {"rtx-a5000", {LinkKind::nvlink3, 4 * 14.0625}},
                         {"rtx-a6000", {LinkKind::nvlink3, 4 * 14.0625}},
                         {"a30", {LinkKind::nvlink3, 4 * 25.0}},
                         {"a100-pcie", {LinkKind::nvlink3, 12 * 25.0}},
                         {"a100-pcie-40", {LinkKind::nvlink3, 12 * 25.0}},
                         {"h100-pcie", {LinkKind::nvlink4, 12 * 25.0}},
                         {"h100-nvl", {LinkKind::nvlink4, 12 * 25.0}}};

}  // namespace

std::optional<CardLinks> card_links(const DeviceModel& model) {
  const std::string& type = model.measured_type();
  const auto* const card = std::find_if(std::begin(cards), std::end(cards),
                                        [&](const Row& row) { return row.type == type; });
  if (card != std::end(cards)) return card->links;
  if (!is_module(model)) return std::nullopt;
  const std::string& architecture = model.architecture;
  if (architecture == "6.0") return CardLinks{LinkKind::nvlink1, 4 * 20.0};
  if (architecture == "7.0") return CardLinks{LinkKind::nvlink2, 6 * 25.0};
  if (architecture == "8.0") return CardLinks{LinkKind::nvlink3, 12 * 25.0};
  if (architecture.starts_with("9")) return CardLinks{LinkKind::nvlink4, 18 * 25.0};
  if (architecture.starts_with("10")) return CardLinks{LinkKind::nvlink5, 18 * 50.0};
  return std::nullopt;
}

}  // namespace parsim::topologies
