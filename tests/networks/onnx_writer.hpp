// Writes small ONNX graphs, as an exporter would, for the reader's tests.
#pragma once

#include <onnx/onnx_pb.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "networks/networks.hpp"

namespace parsim::test {

/// A dimension: a number or a symbol.
using Dimension = std::variant<std::int64_t, std::string>;
using Numbers = std::vector<std::int64_t>;
using Reals = std::vector<double>;
using Attributes =
    std::map<std::string, std::variant<std::int64_t, double, std::string, Numbers, Reals>>;

class OnnxWriter {
 public:
  explicit OnnxWriter(std::int64_t opset = 17) {
    model_.set_ir_version(8);
    model_.add_opset_import()->set_version(opset);
    model_.mutable_graph()->set_name("test");
  }

  void input(const std::string& name, const std::vector<Dimension>& dims,
             int type = onnx::TensorProto::FLOAT) {
    auto* tensor = add(model_.mutable_graph()->add_input(), name, type);
    for (const Dimension& dim : dims) {
      auto* to = tensor->mutable_shape()->add_dim();
      if (const auto* number = std::get_if<std::int64_t>(&dim)) {
        to->set_dim_value(*number);
      } else {
        to->set_dim_param(std::get<std::string>(dim));
      }
    }
  }
  void output(const std::string& name) {
    add(model_.mutable_graph()->add_output(), name, onnx::TensorProto::FLOAT);
  }

  /// An initializer whose numbers are in a file that is not there. Returns its name.
  std::string weight(const std::string& name, const Numbers& dims,
                     int type = onnx::TensorProto::FLOAT) {
    auto* tensor = model_.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(type);
    for (const std::int64_t dim : dims) tensor->add_dims(dim);
    tensor->set_data_location(onnx::TensorProto::EXTERNAL);
    return name;
  }
  /// An initializer with its numbers. Returns its name.
  std::string numbers(const std::string& name, const Numbers& dims,
                      const std::vector<float>& reals) {
    auto* tensor = model_.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    for (const std::int64_t dim : dims) tensor->add_dims(dim);
    tensor->set_raw_data(reals.data(), reals.size() * sizeof(float));
    return name;
  }
  /// Constant nodes. Return the name of their output.
  std::string integers(const Numbers& numbers) {
    auto* tensor = constant(onnx::TensorProto::INT64);
    tensor->add_dims(static_cast<std::int64_t>(numbers.size()));
    for (const std::int64_t x : numbers) tensor->add_int64_data(x);
    return last_;
  }
  std::string integer(std::int64_t number) {
    constant(onnx::TensorProto::INT64)->add_int64_data(number);
    return last_;
  }
  /// ConstantOfShape: a tensor of whole numbers, all `number`, with computed extents.
  std::string filled(const std::string& extents, std::int64_t number) {
    const std::string name = node("ConstantOfShape", {extents});
    auto* value = tensor_attribute(onnx::TensorProto::INT64);
    value->add_dims(1);
    value->add_int64_data(number);
    return name;
  }
  /// A matrix of zeros.
  std::string reals(const Numbers& dims) {
    auto* tensor = constant(onnx::TensorProto::FLOAT);
    std::int64_t count = 1;
    for (const std::int64_t dim : dims) {
      tensor->add_dims(dim);
      count *= dim;
    }
    for (std::int64_t i = 0; i < count; ++i) tensor->add_float_data(0);
    return last_;
  }
  std::string real(double number) {
    constant(onnx::TensorProto::FLOAT)->add_float_data(static_cast<float>(number));
    return last_;
  }

  /// A node with one output, or several ("a,b" is two). Returns the output's name.
  std::string node(const std::string& op, const std::vector<std::string>& inputs,
                   const Attributes& attributes = {},
                   const std::vector<std::string>& outputs = {}) {
    auto* to = model_.mutable_graph()->add_node();
    to->set_op_type(op);
    to->set_name(op + "_" + std::to_string(count_++));
    for (const std::string& name : inputs) to->add_input(name);
    if (outputs.empty()) to->add_output(to->name() + "_out");
    for (const std::string& name : outputs) to->add_output(name);
    for (const auto& [name, value] : attributes) {
      auto* attribute = to->add_attribute();
      attribute->set_name(name);
      if (const auto* i = std::get_if<std::int64_t>(&value)) {
        attribute->set_type(onnx::AttributeProto::INT);
        attribute->set_i(*i);
      } else if (const auto* f = std::get_if<double>(&value)) {
        attribute->set_type(onnx::AttributeProto::FLOAT);
        attribute->set_f(static_cast<float>(*f));
      } else if (const auto* s = std::get_if<std::string>(&value)) {
        attribute->set_type(onnx::AttributeProto::STRING);
        attribute->set_s(*s);
      } else if (const auto* reals = std::get_if<Reals>(&value)) {
        attribute->set_type(onnx::AttributeProto::FLOATS);
        for (const double x : *reals) attribute->add_floats(static_cast<float>(x));
      } else {
        attribute->set_type(onnx::AttributeProto::INTS);
        for (const std::int64_t x : std::get<Numbers>(value)) attribute->add_ints(x);
      }
    }
    return to->output(0);
  }

  /// Writes the model to a temporary file and reads it back as a network named "test".
  [[nodiscard]] Network read(const std::map<std::string, std::int64_t>& dims = {}) const {
    static std::atomic<int> files{0};
    const auto folder = std::filesystem::temp_directory_path() /
                        ("parsim_onnx_" + std::to_string(getpid()) + "_" + std::to_string(files++));
    std::filesystem::create_directory(folder);
    const auto path = folder / "test.onnx";
    {
      std::ofstream file(path, std::ios::binary);
      model_.SerializeToOstream(&file);
    }
    struct Remove {
      std::filesystem::path folder;
      ~Remove() {
        std::error_code ignored;
        std::filesystem::remove_all(folder, ignored);
      }
    } const remove{folder};
    return networks::read_onnx(path, dims);
  }

 private:
  static onnx::TypeProto::Tensor* add(onnx::ValueInfoProto* info, const std::string& name,
                                      int type) {
    info->set_name(name);
    auto* tensor = info->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    return tensor;
  }
  onnx::TensorProto* constant(int type) {
    last_ = node("Constant", {});
    return tensor_attribute(type);
  }
  /// Gives the last node an attribute "value".
  onnx::TensorProto* tensor_attribute(int type) {
    auto* attribute =
        model_.mutable_graph()->mutable_node(model_.graph().node_size() - 1)->add_attribute();
    attribute->set_name("value");
    attribute->set_type(onnx::AttributeProto::TENSOR);
    attribute->mutable_t()->set_data_type(type);
    return attribute->mutable_t();
  }

  onnx::ModelProto model_;
  std::string last_;
  int count_ = 0;
};

}  // namespace parsim::test
