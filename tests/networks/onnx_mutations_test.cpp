// Graphs with something exchanged inside, which byte-wise fuzzing seldom gets to: the file stays
// readable, the graph turns into nonsense.
#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>

#include "core/errors.hpp"
#include "networks/networks.hpp"
#include "tests/networks/onnx_writer.hpp"

using namespace parsim;
using namespace parsim::networks;

namespace {

using Random = std::mt19937_64;

constexpr std::array<std::int64_t, 12> odd = {0,
                                              1,
                                              -1,
                                              2,
                                              3,
                                              7,
                                              -2,
                                              1000,
                                              1 << 20,
                                              std::int64_t{1} << 40,
                                              std::numeric_limits<std::int64_t>::max(),
                                              std::numeric_limits<std::int64_t>::min()};

template <class Items>
auto& any(Items& items, Random& random) {
  return *items.Mutable(static_cast<int>(random() % static_cast<std::uint64_t>(items.size())));
}

void mutate_tensor(onnx::TensorProto& tensor, Random& random) {
  if (tensor.int64_data_size() > 0 && random() % 2 == 0) {
    tensor.set_int64_data(
        static_cast<int>(random() % static_cast<std::uint64_t>(tensor.int64_data_size())),
        odd[random() % odd.size()]);
  } else if (tensor.dims_size() > 0) {
    tensor.set_dims(static_cast<int>(random() % static_cast<std::uint64_t>(tensor.dims_size())),
                    odd[random() % odd.size()]);
  } else {
    tensor.add_dims(odd[random() % odd.size()]);
  }
}

/// One exchange: an operator, an operand, an attribute, a tensor, an extent of an input.
void mutate(onnx::GraphProto& graph, Random& random) {
  onnx::NodeProto& node = any(*graph.mutable_node(), random);
  const onnx::NodeProto& other = any(*graph.mutable_node(), random);
  switch (random() % 7) {
    case 0:
      node.set_op_type(other.op_type());
      break;
    case 1:
      if (node.input_size() > 0) {
        node.set_input(static_cast<int>(random() % static_cast<std::uint64_t>(node.input_size())),
                       other.output(0));
      }
      break;
    case 2:
      if (node.input_size() > 0) node.mutable_input()->RemoveLast();
      break;
    case 3:
      if (node.attribute_size() > 0) {
        onnx::AttributeProto& attribute = any(*node.mutable_attribute(), random);
        attribute.set_i(odd[random() % odd.size()]);
        if (attribute.ints_size() > 0) attribute.set_ints(0, odd[random() % odd.size()]);
        if (attribute.has_t()) mutate_tensor(*attribute.mutable_t(), random);
      }
      break;
    case 4:
      if (graph.initializer_size() > 0) {
        mutate_tensor(any(*graph.mutable_initializer(), random), random);
      }
      break;
    case 5: {
      auto& dims = *any(*graph.mutable_input(), random)
                        .mutable_type()
                        ->mutable_tensor_type()
                        ->mutable_shape()
                        ->mutable_dim();
      if (dims.size() > 0) any(dims, random).set_dim_value(odd[random() % odd.size()]);
      break;
    }
    default:
      *node.mutable_attribute() = other.attribute();
  }
}

}  // namespace

TEST_CASE("onnx: nonsense in a readable file is refused or read, nothing else") {
  const std::string folder = std::string(PARSIM_SOURCE_DIR) + "/tests/fuzz/seeds/onnx";
  const auto file = std::filesystem::temp_directory_path() /
                    ("parsim_mutation_" + std::to_string(getpid()) + ".onnx");
  int read = 0, refused = 0;
  for (const std::string name : {"gpt2", "vit", "swin", "mvit"}) {
    CAPTURE(name);
    onnx::ModelProto seed;
    std::ifstream stream(folder + "/" + name, std::ios::binary);
    REQUIRE(seed.ParseFromIstream(&stream));
    Random random(1);
    for (int i = 0; i < 80; ++i) {
      onnx::ModelProto model = seed;
      for (std::uint64_t more = 1 + random() % 3; more > 0; --more) {
        mutate(*model.mutable_graph(), random);
      }
      {
        std::ofstream out(file, std::ios::binary);
        model.SerializeToOstream(&out);
      }
      try {
        const Network network = read_onnx(file, {{"batch", 2}});
        CHECK(parameter_count(network) >= 0);
        CHECK(forward_flops_per_sample(network).value >= 0);
        ++read;
      } catch (const InputError&) {
        ++refused;
      } catch (const std::exception& error) {
        FAIL("mutation " << i << ": " << error.what());
      }
    }
  }
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  // Both ways are well trodden: the test tests something.
  CHECK(read > 20);
  CHECK(refused > 80);
}
