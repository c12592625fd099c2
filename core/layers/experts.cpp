// Mixtures of experts.
#include <fmt/format.h>

#include "core/errors.hpp"
#include "core/layers/kinds.hpp"

namespace parsim::layers {

namespace {

bool is_matrix(const Shape& shape) { return shape.axes.size() == 2; }

bool is_expert_tensor(const Shape& shape) {
  return shape.axes.size() == 3 && shape.axes[0].dim == Dim::expert;
}

Interval all(const Axis& axis) { return {0, axis.extent}; }

/// What the groups that an interval of an axis touches have of another one; both axes have the
/// groups one after another.
Interval of_groups(Interval part, const Axis& axis, std::int64_t groups, const Axis& other) {
  const std::int64_t size = axis.extent / groups, others = other.extent / groups;
  return {part.begin / size * others, (part.end + size - 1) / size * others};
}

void expect_groups(std::int64_t groups, std::int64_t tokens, std::int64_t slots,
                   std::string_view where) {
  if (groups > 0 && tokens % groups == 0 && slots % groups == 0) return;
  throw InputError(where,
                   fmt::format("{} groups of {} tokens with {} slots", groups, tokens, slots),
                   "groups that divide both");
}

/// The share of an expert of the average number of tokens.
double busyness(const ExpertDense& kind, std::int64_t experts, bool first) {
  if (experts == 1) return 1;
  const auto count = static_cast<double>(experts);
  return first ? kind.imbalance : (count - kind.imbalance) / (count - 1);
}

}  // namespace

Shape output_shape(const ExpertDispatch& kind, Shapes in, std::string_view where) {
  expect_inputs(in, 2, where);
  const bool fits = is_matrix(in[0]) && is_matrix(in[1]) &&
                    in[0].axes[0].extent == in[1].axes[0].extent && kind.slots > 0 &&
                    kind.top_k > 0 && kind.top_k <= in[1].axes[1].extent;
  if (!fits) {
    throw InputError(where,
                     fmt::format("{} experts a token and {} slots for inputs of shapes {} and {}",
                                 kind.top_k, kind.slots, to_text(in[0]), to_text(in[1])),
                     "inputs are tokens × channels and tokens × experts; a token goes to 1 expert "
                     "up to all");
  }
  expect_groups(kind.groups, in[0].axes[0].extent, kind.slots, where);
  return {{{Dim::expert, in[1].axes[1].extent}, {Dim::token, kind.slots}, in[0].axes[1]}};
}

Region input_region(const ExpertDispatch& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part) {
  if (part.out.empty()) return {part.out[0], {}, {}};
  const Interval tokens = of_groups(part.out[2], out.axes[1], kind.groups, in[0].axes[0]);
  return {part.out[0], tokens, input == 0 ? part.out[3] : all(in[1].axes[1])};
}

Shape output_shape(const ExpertDense& kind, Shapes in, std::string_view where) {
  expect_inputs(in, 1, where);
  const bool fits = is_expert_tensor(in[0]) && kind.units > 0 && kind.imbalance >= 1 &&
                    kind.imbalance <= static_cast<double>(in[0].axes[0].extent);
  if (!fits) {
    throw InputError(where,
                     fmt::format("{} units and an imbalance of {} for an input of shape {}",
                                 kind.units, kind.imbalance, to_text(in[0])),
                     "the input is experts × slots × channels, the imbalance from 1 to the number "
                     "of experts");
  }
  Shape out = in[0];
  out.axes[2] = {Dim::channel, kind.units};
  return out;
}

std::vector<ParameterShape> parameter_shapes(const ExpertDense& kind, Shapes in) {
  const std::int64_t experts = in[0].axes[0].extent;
  std::vector<ParameterShape> shapes{{"weights", {experts, kind.units, in[0].axes[2].extent}}};
  if (kind.bias) shapes.push_back({"bias", {experts, kind.units}});
  return shapes;
}

Region input_region(const ExpertDense&, Shapes in, const Shape&, std::size_t, const Part& part) {
  Region region = part.out;
  region[3] = part.contraction.empty() ? all(in[0].axes[2]) : part.contraction;
  return region;
}

Region parameter_region(const ExpertDense&, Shapes in, const Shape&, std::size_t parameter,
                        const Part& part) {
  if (parameter == 0) {
    return {part.out[1], part.out[3],
            part.contraction.empty() ? all(in[0].axes[2]) : part.contraction};
  }
  // A bias joins the sum once: in the part that holds the first input channel.
  if (!part.contraction.empty() && part.contraction.begin > 0) return {Interval{}, Interval{}};
  return {part.out[1], part.out[3]};
}

std::vector<Dim> cuttable_dims(const ExpertDense&, Shapes, const Shape& out) {
  std::vector<Dim> dims = axes_as_dims(out);
  dims.push_back(Dim::in_channel);
  return dims;
}

Flops forward_flops(const ExpertDense& kind, Shapes in, const Shape& out, const Part& part) {
  if (part.out.empty()) return {};
  const std::int64_t channels =
      part.contraction.empty() ? in[0].axes[2].extent : part.contraction.size();
  return {2.0 * static_cast<double>(channels) * static_cast<double>(part.out.volume()) *
          tokens_over_average(kind, out, part)};
}

Shape output_shape(const ExpertCombine& kind, Shapes in, std::string_view where) {
  expect_inputs(in, 2, where);
  const bool fits = is_expert_tensor(in[0]) && is_matrix(in[1]) &&
                    in[0].axes[0].extent == in[1].axes[1].extent && kind.top_k > 0 &&
                    kind.top_k <= in[1].axes[1].extent;
  if (!fits) {
    throw InputError(where,
                     fmt::format("{} experts a token for inputs of shapes {} and {}", kind.top_k,
                                 to_text(in[0]), to_text(in[1])),
                     "inputs are experts × slots × channels and tokens × experts; a token goes to "
                     "1 expert up to all");
  }
  expect_groups(kind.groups, in[1].axes[0].extent, in[0].axes[1].extent, where);
  return {{in[1].axes[0], in[0].axes[2]}};
}

Region input_region(const ExpertCombine& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part) {
  const Shape& shape = in[input];
  if (input == 0) {
    if (part.out.empty()) return {part.out[0], {}, {}, {}};
    return {part.out[0], all(shape.axes[0]),
            of_groups(part.out[1], out.axes[0], kind.groups, shape.axes[1]), part.out[2]};
  }
  // Which slots are taken follows from the tokens before, of the same group.
  if (part.out.empty()) return {part.out[0], {}, {}};
  const std::int64_t size = shape.axes[0].extent / kind.groups;
  return {part.out[0], {part.out[1].begin / size * size, part.out[1].end}, all(shape.axes[1])};
}

}  // namespace parsim::layers

namespace parsim {

double tokens_over_average(const ExpertDense& kind, const Shape& out, const Part& part) {
  const std::int64_t experts = out.axes[0].extent;
  const Interval own = part.out[1];
  if (kind.imbalance == 1 || own.empty()) return 1;
  const bool busiest = own.begin == 0;
  const auto others = static_cast<double>(own.size() - (busiest ? 1 : 0));
  return ((busiest ? layers::busyness(kind, experts, true) : 0) +
          others * layers::busyness(kind, experts, false)) /
         static_cast<double>(own.size());
}

}  // namespace parsim
