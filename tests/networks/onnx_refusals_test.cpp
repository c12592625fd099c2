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
       ": node 'the_ArgMax' (ArgMax): it picks indices and has no gradient: the graph cannot be "
       "trained; end the graph before it"},
      {"computed-shape",
       ": node 'the_Reshape' (Reshape): operand 1 is left out or not known before training"},
      {"concat-of-samples",
       ": node 'the_Concat' (Concat): it joins along the batch; one sample at a time"},
      {"constant-output",
       ": output 'z': it does not depend on the inputs; the scores that the loss takes"},
      {"conv-bias-of-other-filters",
       ": node 'the_Conv' (Conv): a bias [5] meets 4 filters; weights are filters × "
       "channels/groups × kernel…, groups divide the filters"},
      {"conv-endless-padding",
       ": node 'the_Conv' (Conv): pads [9223372036854775807, 0, 0, 0]; 4 numbers, 0 to 2^20"},
      {"conv-larger-than-map",
       ": node 'the_Conv' (Conv): kernel 9, stride 1, padding 0+0, dilation 1 over an extent of 8; "
       "the window is positive and fits into the padded input"},
      {"conv-of-other-channels",
       ": node 'the_Conv' (Conv): weights [4, 5, 3, 3] in 1 groups meet 3 channels; weights are "
       "filters × channels/groups × kernel…, groups divide the filters"},
      {"conv-of-other-kernel",
       ": node 'the_Conv' (Conv): kernel_shape is not that of its weights [4, 3, 3, 3]; weights "
       "are filters × channels/groups × kernel…, groups divide the filters"},
      {"conv-stride-zero", ": node 'the_Conv' (Conv): strides [0, 1]; 2 numbers, 1 to 2^20"},
      {"cycle",
       ": node 'the_Add': it waits for its own output: the graph has a cycle; an acyclic graph"},
      {"data-too-short", ": initializer 'c': 4 bytes of data for extents [4]; 16 bytes"},
      {"deep-nesting",
       ": is broken or nested too deeply; an ONNX model (with or without its weights)"},
      {"doubling-concat",
       ": node 'the_Concat_c39' (Concat): one sample has extents [2199023255552]; at most 7 axes "
       "and 2^40 elements"},
      {"empty", ": is empty; an ONNX model (with or without its weights)"},
      {"foreign-domain",
       ": node 'the_FusedConv': operator 'com.microsoft::FusedConv' is not known; 133 operators of "
       "ONNX are"},
      {"gather-beyond-axis",
       ": node 'the_Gather' (Gather): index 6 into an axis of 6; indices inside the axis"},
      {"mean-of-samples",
       ": node 'the_ReduceMean' (ReduceMean): it works across the samples of the batch; one sample "
       "at a time"},
      {"missing-input",
       ": node 'the_Add': nothing makes its input 'nowhere'; an input of the graph, an initializer "
       "or another node's output"},
      {"negative-extent", ": input 'x': axis 1 has extent -4; 1 or more"},
      {"negative-weights",
       ": initializer 'w': extents [4, -4]; at most 8 axes, none negative, at most 2^40 elements "
       "in all"},
      {"no-graph", ": has no graph; an ONNX model (with or without its weights)"},
      {"no-input", ": has no input with a batch dimension; at least one"},
      {"no-nodes", ": has a graph without nodes; an ONNX model (with or without its weights)"},
      {"no-output", ": has no output; at least one"},
      {"norm-of-other-channels",
       ": node 'the_BatchNormalization' (BatchNormalization): 's' with extents [4] meets 3 "
       "channels; one number per channel"},
      {"output-of-nothing", ": output 'z': nothing makes it; a node's output"},
      {"overflowing-broadcast",
       ": node 'the_Add' (Add): one sample has extents [1048576, 1073741824]; at most 7 axes and "
       "2^40 elements"},
      {"overflowing-constant",
       ": node 'the_ConstantOfShape' (ConstantOfShape): it makes extents [1152921504606846976]"},
      {"overflowing-input",
       ": input 'x': extents [1, 4294967296, 4294967296]; at most 2^40 elements in all"},
      {"overflowing-weights",
       ": initializer 'w': extents [4, 9223372036854775807]; at most 8 axes, none negative, at "
       "most 2^40 elements in all"},
      {"pool-without-kernel",
       ": node 'the_MaxPool' (MaxPool): it has no kernel_shape; one number per spatial axis"},
      {"product-of-other-extents",
       ": node 'the_MatMul' (MatMul): an operand [1, 4] meets weights [5, 6]; … × k times k × n"},
      {"reshape-does-not-fit",
       ": node 'the_Reshape' (Reshape): extents [1, 4] cannot become [3, -1]"},
      {"reshape-tears-batch",
       ": node 'the_Reshape' (Reshape): going from [4, 6] to [2, 2, 6] tears the batch of 4 apart; "
       "the batch stays together"},
      {"softmax-of-samples",
       ": node 'the_Softmax' (Softmax): it works across the samples of the batch; one sample at a "
       "time"},
      {"text-tensor",
       ": initializer 'c': element type 8; numbers: float, float16, bfloat16, double, integers, "
       "bool"},
      {"text", ": is not an ONNX file; an ONNX model (with or without its weights)"},
      {"too-many-axes", ": input 'x': 9 axes; at most 8"},
      {"transpose-repeats-axis",
       ": node 'the_Transpose' (Transpose): its permutation repeats an axis; each axis once"},
      {"truncated",
       ": is truncated: field 7 needs 2776 bytes, 1478 are left; an ONNX model (with or without "
       "its weights)"},
      {"twice-initializer", ": initializer 'w': it is there twice; unique names"},
      {"two-makers", ": node 'the_Tanh': it makes 'y' again; node 'the_Relu' makes it already"},
      {"unbound-dimension",
       ": input 'x': dimension 'batch' is not bound; bind it with --dim batch=VALUE (any: "
       "--batch sets the samples of a step)"},
      {"unknown-operator",
       ": node 'the_Reluu': operator 'Reluu' is not known; 133 operators of ONNX are; did you mean "
       "'Relu'?"},
      {"unnamed-dimension",
       ": input 'x': axis 1 has neither an extent nor a name; export it with a name and bind that "
       "with --dim NAME=VALUE"},
      {"zero-extent", ": input 'x': axis 0 has extent 0; 1 or more"},
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
        ": there is no such file; an ONNX model (with or without its weights)");
  CHECK(refusal(PARSIM_SOURCE_DIR) ==
        ": a folder without a config.json; a model's folder, or an ONNX model (with or without its "
        "weights)");
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
      message.ends_with("node 'Add_0' (Add): weights 'table' differ from sample to sample; the "
                        "same weights for every sample"));
}
