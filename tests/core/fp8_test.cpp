// Which products run in FP8, what is cast for them, and what an update casts.
#include "core/fp8.hpp"

#include <doctest/doctest.h>

#include "core/cost_model.hpp"
#include "tests/support/notation.hpp"

using namespace parsim;

namespace {

/// Two layers that read one tensor, a wide and a narrow one, then a head.
Network example() {
  Network net;
  const LayerId in = add_input(net, "in", vector_shape(64));
  const LayerId a = add_layer(net, "a", Dense{32}, {in});
  const LayerId b = add_layer(net, "b", Dense{32, false}, {in});
  const LayerId sum = add_layer(net, "sum", Combine{"add"}, {a, b});
  const LayerId odd = add_layer(net, "odd", Dense{24}, {sum});
  const LayerId back = add_layer(net, "back", Dense{32}, {odd});
  const LayerId last = add_layer(net, "last", Dense{16}, {back});
  const LayerId head = add_layer(net, "head", Dense{48}, {last});
  (void)add_layer(net, "loss", Loss{}, {head});
  return net;
}

DeviceModel device(const char* architecture) {
  DeviceModel model;
  model.architecture = architecture;
  return model;
}

}  // namespace

TEST_CASE("fp8: recipes store bf16") {
  for (const Precision recipe :
       {Precision::fp8, Precision::fp8_delayed, Precision::fp8_blockwise}) {
    CHECK(multiplies_in_fp8(recipe));
    CHECK(element_bytes(recipe) == 2);
    CHECK(storage_of(recipe) == Precision::bf16);
    CHECK(without_fp8(recipe) == Precision::bf16);
  }
  CHECK_FALSE(multiplies_in_fp8(Precision::bf16));
  CHECK(without_fp8(Precision::tf32) == Precision::tf32);
}

TEST_CASE("fp8: linear layers multiply so, by hand: not the head, not odd widths, nothing else") {
  const Network net = example();
  std::vector<std::string> narrow, casting;
  for (std::size_t l = 0; l < net.layers.size(); ++l) {
    if (!multiplies_in_fp8(net, LayerId{l})) continue;
    narrow.push_back(net.layers[l].name);
    if (casts_input(net, LayerId{l})) casting.push_back(net.layers[l].name);
  }
  // 24 is no multiple of 16; of the two that read the input, the first casts it.
  CHECK(narrow == std::vector<std::string>{"a", "b", "last"});
  CHECK(casting == std::vector<std::string>{"a", "last"});
}

TEST_CASE("fp8: routers, which a softmax reads, stay in bf16") {
  Network net;
  const LayerId in = add_input(net, "in", vector_shape(64));
  const LayerId router = add_layer(net, "router", Dense{16, false}, {in});
  const LayerId chosen = add_layer(net, "softmax", Softmax{0}, {router});
  (void)add_layer(net, "loss", Loss{}, {chosen});
  CHECK_FALSE(multiplies_in_fp8(net, router));
}

TEST_CASE("fp8: bytes of a cast, by hand") {
  const auto bytes = [](Precision recipe, const char* architecture) {
    return fp8_cast(recipe, device(architecture)).bytes;
  };
  // Read as bf16, written as it is and transposed; read before that for the largest element.
  for (const char* by_rows_only : {"8.9", "9.0", "12.0"}) {
    CHECK(bytes(Precision::fp8, by_rows_only) == 2 + 2 + 1 + 1);
    CHECK(bytes(Precision::fp8_delayed, by_rows_only) == 2 + 1 + 1);
  }
  CHECK(bytes(Precision::fp8, "10.0") == 2 + 2 + 1);
  CHECK(bytes(Precision::fp8_delayed, "10.0") == 2 + 1);
  // A scale of four bytes for 128 elements of each copy.
  for (const char* any : {"9.0", "10.0"}) {
    CHECK(bytes(Precision::fp8_blockwise, any) == 2 + 2 * (1 + 4.0 / 128));
  }
  CHECK(fp8_cast(Precision::fp8, device("9.0")).launches == 2);
  CHECK(fp8_cast(Precision::fp8_delayed, device("9.0")).launches == 1);
}

TEST_CASE("fp8: an update casts all weights of its bucket that are multiplied in FP8, by hand") {
  class Echo final : public CostModel {
   public:
    Cost compute(const Network&, LayerId, const Part&, Pass, DeviceId, Precision) const override {
      return {};
    }
    Cost memory(DeviceId, Bytes) const override { return {}; }
    Cost update(DeviceId, const OptimizerStep& step) const override {
      return {Seconds(static_cast<double>(1'000'000 * step.elements + step.cast)), {}};
    }
    Seconds transfer(DeviceId, DeviceId, Bytes) const override { return {}; }
    Seconds collective(CollectiveKind, std::span<const DeviceId>, Bytes) const override {
      return {};
    }
    std::string summary() const override { return "echo"; }
  };
  for (const auto& [precision, cast] :
       {std::pair{Precision::fp8, 2 * 64 * 32}, {Precision::bf16, 0}}) {
    ExecDag dag(example(), 8, precision, Optimizer::adam, Precision::fp32);
    // a's matrix and bias, b's matrix, and the odd matrix.
    const TensorId bucket =
        dag.add_bucket({{ParameterId{0}, dag.intern(Region{{0, 32}, {0, 64}})},
                        {ParameterId{1}, dag.intern(Region{{0, 32}})},
                        {ParameterId{2}, dag.intern(Region{{0, 32}, {0, 64}})},
                        {ParameterId{3}, dag.intern(Region{{0, 24}, {0, 32}})}});
    const Slice whole{bucket, Role::weight, 0, {}},
        share{bucket, Role::weight, 0, dag.intern(Region{{0, 100}})};
    const OpId all = dag.add(Update{DeviceId{0}, whole}, {});
    const OpId part = dag.add(Update{DeviceId{1}, share}, {});
    const double elements = 64 * 32 + 32 + 64 * 32 + 24 * 32;
    CHECK(device_time(dag, all, Echo{}).time == Seconds(1e6 * elements + cast));
    // A device that updates 100 of them casts all that it is then sent.
    CHECK(device_time(dag, part, Echo{}).time == Seconds(1e6 * 100 + cast));
  }
}
