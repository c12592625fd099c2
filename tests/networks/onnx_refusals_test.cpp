// Every file of tests/bad_inputs/onnx is refused with the message that leads to the fix.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "core/errors.hpp"
#include "networks/networks.hpp"
#include "tests/networks/onnx_writer.hpp"

using namespace parsim;
using namespace parsim::networks;
using test::OnnxWriter;

namespace {

/// What reading the file says, without the path that it begins with.
std::string refusal(const std::string& path) {
  try {
    (void)read_onnx(path, {});
  } catch (const InputError& error) {
    const std::string message = error.what();
    return message.starts_with(path) ? message.substr(path.size()) : message;
  }
  return "it was read";
}

}  // namespace

TEST_CASE("onnx refusal: every broken file says where and what is wrong") {
  const std::map<std::string, std::string> messages{
      {"argmax",
       ": node 'the_ArgMax' (ArgMax): it has no gradient, so the graph cannot be trained; "
       "accepted: a graph that ends before it"},
      {"computed-shape", ": node 'the_Reshape' (Reshape): operand 1 is missing or not constant"},
      {"concat-of-samples",
       ": node 'the_Concat' (Concat): it concatenates along the batch axis; accepted: other axes"},
      {"constant-output",
       ": output 'z': it does not depend on the inputs of the graph; accepted: an output computed "
       "from them, such as logits"},
      {"conv-bias-of-other-filters",
       ": node 'the_Conv' (Conv): a bias of shape [5] does not fit 4 filters; accepted: weights of "
       "shape filters × channels/groups × kernel…, with groups that divide the filters"},
      {"conv-endless-padding",
       ": node 'the_Conv' (Conv): pads [9223372036854775807, 0, 0, 0]; accepted: 4 numbers from 0 "
       "to 2^20"},
      {"conv-larger-than-map",
       ": node 'the_Conv' (Conv): kernel 9, stride 1, padding 0+0, dilation 1 over an extent of 8; "
       "the window is positive and fits into the padded input"},
      {"conv-of-other-channels",
       ": node 'the_Conv' (Conv): weights of shape [4, 5, 3, 3] with group=1 do not fit 3 "
       "channels; accepted: weights of shape filters × channels/groups × kernel…, with groups that "
       "divide the filters"},
      {"conv-of-other-kernel",
       ": node 'the_Conv' (Conv): kernel_shape differs from that of weights of shape [4, 3, 3, 3]; "
       "accepted: weights of shape filters × channels/groups × kernel…, with groups that divide "
       "the filters"},
      {"conv-stride-zero",
       ": node 'the_Conv' (Conv): strides [0, 1]; accepted: 2 numbers from 1 to 2^20"},
      {"cycle", ": node 'the_Add': it depends on its own output; accepted: an acyclic graph"},
      {"data-too-short", ": initializer 'c': 4 bytes of data for shape [4]; accepted: 16 bytes"},
      {"deep-nesting",
       ": is broken or nested too deeply; accepted: an ONNX model (with or without its weights)"},
      {"doubling-concat",
       ": node 'the_Concat_c39' (Concat): one sample of its output has shape [2199023255552]; "
       "accepted: at most 7 axes and 2^40 elements"},
      {"empty", ": is empty; accepted: an ONNX model (with or without its weights)"},
      {"foreign-domain",
       ": node 'the_FusedConv': operator 'com.microsoft::FusedConv' is not supported; accepted: "
       "134 operators of ONNX"},
      {"gather-beyond-axis",
       ": node 'the_Gather' (Gather): index 6 is outside an axis of size 6; accepted: indices "
       "within the axis"},
      {"mean-of-samples",
       ": node 'the_ReduceMean' (ReduceMean): it works across samples of the batch; accepted: "
       "operators that work on each sample"},
      {"missing-input",
       ": node 'the_Add': no node produces its input 'nowhere'; accepted: an input of the graph, "
       "an initializer or another node's output"},
      {"negative-extent", ": input 'x': axis 1 has size -4; accepted: 1 or more"},
      {"negative-weights",
       ": initializer 'w': shape [4, -4]; accepted: at most 8 axes, none negative, and 2^40 "
       "elements"},
      {"no-graph", ": has no graph; accepted: an ONNX model (with or without its weights)"},
      {"no-input", ": has no input with a batch dimension; accepted: at least one"},
      {"no-nodes",
       ": has a graph without nodes; accepted: an ONNX model (with or without its weights)"},
      {"no-output", ": has no output; accepted: at least one"},
      {"norm-of-other-channels",
       ": node 'the_BatchNormalization' (BatchNormalization): 's' of shape [4] is applied to 3 "
       "channels; accepted: one element per channel"},
      {"output-of-nothing", ": output 'z': no node produces it; accepted: the output of a node"},
      {"overflowing-broadcast",
       ": node 'the_Add' (Add): one sample of its output has shape [1048576, 1073741824]; "
       "accepted: at most 7 axes and 2^40 elements"},
      {"overflowing-constant",
       ": node 'the_ConstantOfShape' (ConstantOfShape): its output has shape "
       "[1152921504606846976]"},
      {"overflowing-input",
       ": input 'x': shape [1, 4294967296, 4294967296]; accepted: at most 2^40 elements"},
      {"overflowing-weights",
       ": initializer 'w': shape [4, 9223372036854775807]; accepted: at most 8 axes, none "
       "negative, and 2^40 elements"},
      {"pool-without-kernel",
       ": node 'the_MaxPool' (MaxPool): it has no kernel_shape; accepted: one size per spatial "
       "axis"},
      {"product-of-other-extents",
       ": node 'the_MatMul' (MatMul): an operand of shape [1, 4] does not fit weights of shape [5, "
       "6]; accepted: shapes … × k and k × n"},
      {"reshape-does-not-fit",
       ": node 'the_Reshape' (Reshape): shape [1, 4] cannot become [3, -1]"},
      {"reshape-tears-batch",
       ": node 'the_Reshape' (Reshape): reshaping [4, 6] to [2, 2, 6] splits the batch of 4 "
       "samples; accepted: a shape that keeps the batch in one axis"},
      {"softmax-of-samples",
       ": node 'the_Softmax' (Softmax): it works across samples of the batch; accepted: operators "
       "that work on each sample"},
      {"text-tensor",
       ": initializer 'c': element type 8; accepted: float, float16, bfloat16, double, integers, "
       "bool"},
      {"text", ": is not an ONNX file; accepted: an ONNX model (with or without its weights)"},
      {"too-many-axes", ": input 'x': 9 axes; accepted: at most 8"},
      {"transpose-repeats-axis",
       ": node 'the_Transpose' (Transpose): its permutation repeats an axis; accepted: each axis "
       "once"},
      {"truncated",
       ": is truncated: field 7 needs 2776 bytes, 1478 are left; accepted: an ONNX model (with or "
       "without its weights)"},
      {"twice-initializer", ": initializer 'w': its name occurs twice; accepted: unique names"},
      {"two-makers",
       ": node 'the_Tanh': its output 'y' is also that of node 'the_Relu'; accepted: one node per "
       "tensor"},
      {"unbound-dimension", ": input 'x': dimension 'width' is not bound; accepted: --dim width=N"},
      {"unknown-operator",
       ": node 'the_Reluu': operator 'Reluu' is not supported; accepted: 134 operators of ONNX; "
       "did you mean 'Relu'?"},
      {"unnamed-dimension",
       ": input 'x': axis 1 has neither a size nor a name; accepted: a named axis, bound with "
       "--dim NAME=N"},
      {"zero-extent", ": input 'x': axis 0 has size 0; accepted: 1 or more"},
  };
  const std::string folder = std::string(PARSIM_SOURCE_DIR) + "/tests/bad_inputs/onnx";
  std::set<std::string> seen;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".onnx") seen.insert(entry.path().stem());
  }
  for (const auto& [name, message] : messages) {
    CAPTURE(name);
    CHECK(seen.erase(name) == 1);
    CHECK(refusal(fmt::format("{}/{}.onnx", folder, name)) == message);
  }
  CHECK(seen == std::set<std::string>{});  // no file without a message
}

TEST_CASE("onnx refusal: a file that is not there, and a folder") {
  CHECK(refusal("nowhere.onnx") ==
        ": no such file; accepted: an ONNX model (with or without its weights)");
  CHECK(refusal(PARSIM_SOURCE_DIR) ==
        ": a folder without a config.json; accepted: the folder of a model, or an ONNX model (with "
        "or without its weights)");
}

TEST_CASE("onnx refusal: a weight that differs from sample to sample") {
  OnnxWriter g;
  g.input("x", {4, 8});
  g.output(g.node("Add", {"x", g.weight("table", {4, 8})}));
  std::string message;
  try {
    (void)g.read();
  } catch (const InputError& error) {
    message = error.what();
  }
  CHECK(
      message.ends_with("node 'Add_0' (Add): weights 'table' differ from sample to sample; "
                        "accepted: the same weights for every sample"));
}
