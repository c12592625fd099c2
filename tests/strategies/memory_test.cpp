// What the backward pass keeps, against a published formula and by hand.
#include "strategies/memory.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/notation.hpp"
#include "tests/support/program.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {
namespace {

/// Activations of one sample of a GPT-2 in 16 bits on one device.
std::int64_t activations(int layers, int width, int heads, int tokens, Recompute recompute,
                         const char* attention = "eager") {
  const TemporaryFolder folder;
  const std::string config =
      folder.write("config.json",
                   fmt::format(R"({{"model_type": "gpt2", "n_embd": {}, "n_head": {}, "n_layer": {},
        "n_positions": {}, "n_ctx": {}, "vocab_size": 100, "attn_implementation": "{}", "attn_pdrop": 0.1, "embd_pdrop": 0.1,
        "resid_pdrop": 0.1, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}})",
                               width, heads, layers, tokens, tokens, attention));
  const World world(load_network(config, {}, "test"), star_of(1, "10 GB/s", "1us"));
  StrategyInput input = world.input(1);
  input.precision = Precision::bf16;
  input.recompute = recompute;
  return memory_use(input, plan_data(input))[0].activations.value;
}

TEST_CASE("memory: a transformer layer keeps sbh (34 + 5 as/h) bytes (Korthikanti et al. 2022)") {
  for (const auto& [w, h, t] : {std::array{64, 4, 48}, {96, 2, 32}, {128, 8, 128}}) {
    CAPTURE(w);
    const auto layer = [width = w, heads = h, tokens = t](Recompute recompute) {
      return activations(5, width, heads, tokens, recompute) -
             activations(3, width, heads, tokens, recompute);
    };
    const std::int64_t linear = 34LL * t * w, maps = 5LL * h * t * t;
    CHECK(layer(Recompute::none) == 2 * (linear + maps));
    // Their section 5: without the maps.
    CHECK(layer(Recompute::attention) == 2 * linear);
    // One kernel makes them and keeps none.
    CHECK(activations(5, w, h, t, Recompute::none, "sdpa") -
              activations(3, w, h, t, Recompute::none, "sdpa") ==
          2 * linear);
  }
}

TEST_CASE("memory: sums and copies keep nothing, products what they read, by hand") {
  // Elements of one sample that stay, in fp32: a name, the network's end, and what is kept.
  Network net;
  const LayerId in = add_input(net, "in", vector_shape(4));
  const LayerId a = add_layer(net, "a", Dense{6}, {in});          // a sum reads it: nothing
  const LayerId b = add_layer(net, "b", Dense{6}, {in});          // a product reads it: kept
  const LayerId c = add_layer(net, "c", Combine{"add"}, {a, b});  // a product reads it: kept
  const LayerId d = add_layer(net, "d", Combine{"mul"}, {b, c});  // dropout: nothing
  const LayerId e = add_layer(net, "e", Dropout{0.5}, {d});       // its mask, and the next reads it
  const LayerId f = add_layer(net, "f", Dense{3}, {e});           // in place of it the function
  const LayerId g = add_layer(net, "g", Activation{"relu"}, {f});  // its output: kept
  const LayerId h = add_layer(net, "h", Concat{0}, {g, g});        // the loss reads it: kept
  (void)add_layer(net, "loss", Loss{}, {h});
  CHECK(kept_bytes(net, 4) == std::vector<std::int64_t>{4, 0, 4, 4, 0, 5, 4, 0, 4, 0});
}

}  // namespace
}  // namespace parsim::testing
