// From operations of the DAG to kernels, for any engine. An engine says where tensors lie and how a
// kernel body runs over n elements or as a reduction; what the bodies are is the same for the host
// and for CUDA, so that tests on the host speak for both.
//
//     Scalar, Action                  what tensors are made of; something to call with a context
//     view(key) -> View<Scalar>       a tensor on a device
//     view_of(slice) -> View<Scalar>  the same, or what another process sent of that part of it
//     state(key) -> View<Wide<Scalar>>  an optimizer state, of no memory if it has none
//     scratch(n) -> Wide<Scalar>*     room for n sums, of the engine's own
//     runs(device) -> bool            this process has the device
//     is_apart() -> bool              the other devices are other processes'
//     overwrites(key, region) -> bool the operation may overwrite the region where it would add,
//                                     because it is the first that uses the store, and covers it
//     note_overwritten(key)           it does
//     gives_back(key) -> bool         the operation drops the store, whose bytes may be another's
//     has_rivals(key) -> bool         a weight gradient that two operations may add to at once
//     for_each(n, body) -> Action     body(i) for every i < n
//     reduce(rows, n, body) -> Action sum of body.term(row, i) over i < n, then
//                                     body.finish(row, sums); SumOf, has_adjacent_terms()
//     each_row(rows, n, body) -> Action   the same sums of every row, then body.write(row, i, made)
//                                     for every i < n, with made = body.finish(row, sums)
//
// Engines with libraries also have `library(...)` members, see hw/kernels_products.hpp.
#pragma once

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "hw/layout.hpp"
#include "hw/math/dropout.hpp"
#include "hw/math/gather.hpp"
#include "hw/math/norms.hpp"
#include "hw/math/pointwise.hpp"
#include "hw/math/products.hpp"
#include "hw/math/rotary.hpp"
#include "hw/math/softmax.hpp"
#include "hw/tensor_slices.hpp"

namespace parsim::hw {

/// What a reduction's terms add up to: two numbers, unless the body says otherwise.
template <class Body, class A>
struct SumOfBody {
  using Type = Sums<A>;
};
template <class Body, class A>
  requires requires { typename Body::Sum; }
struct SumOfBody<Body, A> {
  using Type = typename Body::Sum;
};
template <class Body, class A>
using SumOf = typename SumOfBody<Body, A>::Type;

/// Whether a reduction's neighbouring terms, not its neighbouring rows, are contiguous.
template <class Body>
[[nodiscard]] bool has_adjacent_terms(const Body& body) {
  if constexpr (requires { body.terms_adjacent; }) return body.terms_adjacent;
  return false;
}

/// What a reduction's term() is called with: body.begin(row), if it has one, or the row.
template <class Body>
[[nodiscard]] constexpr auto begin_row(const Body& body, std::uint32_t row) {
  if constexpr (requires { body.begin(row); }) {
    return body.begin(row);
  } else {
    return row;
  }
}

/// One row of each_row(), in a loop.
template <class A, class Body>
void write_row(const Body& body, std::uint32_t row, std::uint32_t count) {
  SumOf<Body, A> sums;
  const auto begun = begin_row(body, row);
  for (std::uint32_t i = 0; i < count; ++i) sums += body.term(begun, i);
  const auto made = body.finish(row, sums);
  for (std::uint32_t i = 0; i < count; ++i) body.write(begun, i, made);
}

/// One operation's kernels: a list for each stream operation (members of a collective, else one).
template <class Engine>
using Kernels = std::vector<std::vector<typename Engine::Action>>;

/// Everything about one Compute.
template <class Engine>
struct PartOf {
  using T = typename Engine::Scalar;
  const ExecDag& dag;
  const Compute& op;
  const Layer& layer;
  std::vector<Shape> shapes;
  Part part;
  ComputeSlices slices;
  std::vector<View<T>> inputs, parameters;
  View<T> out, out_gradient;

  [[nodiscard]] bool forward() const {
    return op.pass == Pass::forward || op.pass == Pass::recompute;
  }
  [[nodiscard]] bool wants_input(std::size_t i) const {
    return op.pass != Pass::backward_weights && !slices.input_gradients[i].region.empty();
  }
  [[nodiscard]] bool wants_parameter(std::size_t i) const {
    return op.pass != Pass::backward_data && !slices.parameter_gradients[i].region.empty();
  }
};

template <class Engine>
PartOf<Engine> part_of(Engine& engine, const ExecDag& dag, const Compute& op,
                       const std::vector<bool>& trained) {
  const Work work = dag.work(op.work);
  PartOf<Engine> p{dag,
                   op,
                   dag.network[work.layer],
                   input_shapes(dag.network, work.layer),
                   dag.part(op.work),
                   compute_slices(dag, op, trained),
                   {},
                   {},
                   {},
                   {}};
  const auto view = [&](const TensorSlice& slice) {
    return slice.region.empty() ? View<typename Engine::Scalar>{} : engine.view(slice.key);
  };
  for (const TensorSlice& slice : p.slices.inputs) p.inputs.push_back(view(slice));
  for (const TensorSlice& slice : p.slices.parameters) p.parameters.push_back(view(slice));
  if (p.forward() || work.class_parts > 0) p.out = view(p.slices.out);
  if (!p.forward()) p.out_gradient = view(p.slices.out_gradient);
  return p;
}

template <class Engine>
void add_each(Engine& engine, std::vector<typename Engine::Action>& to, std::int64_t count,
              auto body) {
  if (count > 0) to.push_back(engine.for_each(static_cast<std::uint32_t>(count), body));
}
template <class Engine>
void add_reduction(Engine& engine, std::vector<typename Engine::Action>& to, std::int64_t rows,
                   std::int64_t count, auto body) {
  if (rows > 0 && count > 0) {
    to.push_back(
        engine.reduce(static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(count), body));
  }
}

/// A copy or addition between equal regions of two tensors.
template <class Engine>
void add_copy(Engine& engine, std::vector<typename Engine::Action>& kernels, const TensorSlice& to,
              const TensorSlice& from, const Region& region, Move move) {
  using T = typename Engine::Scalar;
  if (region.empty()) return;
  const std::array<View<T>, 2> views{engine.view(to.key), engine.view_of({from.key, region})};
  // It may have arrived where it is to be.
  if (move == Move::copy && start_of(views[0], region) == start_of(views[1], region)) return;
  add_each(engine, kernels, region.volume(),
           Copy<T>{walk_over(region, views), start_of(views[0], region), start_of(views[1], region),
                   move});
}

}  // namespace parsim::hw
