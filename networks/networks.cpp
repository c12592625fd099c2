#include "networks/networks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/errors.hpp"
#include "networks/zoo.hpp"

namespace parsim::networks {

namespace {

std::vector<NetworkEntry> built_in_networks() {
  using namespace zoo;
  std::vector<NetworkEntry> table{
      {"lenet5", "LeNet-5 on 32x32 digits", lenet5},
      {"mlp", "three dense layers, 784-1024-1024-10", mlp},
      {"alexnet", "AlexNet, one tower, as in torchvision", alexnet},
      {"alexnet_one_tower",
       "AlexNet with padded pools, last feature map 7x7 (reconstructed from Jia et al. 2018)",
       alexnet_one_tower},
      {"alexnet_grouped", "AlexNet of 2012, two towers, local response normalisation",
       alexnet_grouped},
      {"overfeat", "OverFeat, fast model, as in convnet-benchmarks", overfeat},
      {"vgg11", "VGG, 11 layers",
       [] {
         return vgg("vgg11", {1, 1, 2, 2, 2});
       }},
      {"vgg16", "VGG, 16 layers",
       [] {
         return vgg("vgg16", {2, 2, 3, 3, 3});
       }},
      {"vgg19", "VGG, 19 layers",
       [] {
         return vgg("vgg19", {2, 2, 4, 4, 4});
       }},
      {"resnet18", "ResNet-18",
       [] {
         return resnet({.name = "resnet18", .blocks = {2, 2, 2, 2}, .bottleneck = false});
       }},
      {"resnet34", "ResNet-34",
       [] {
         return resnet({.name = "resnet34", .blocks = {3, 4, 6, 3}, .bottleneck = false});
       }},
      {"resnet50", "ResNet-50 v1.5 (stride in the 3x3), as in torchvision",
       [] {
         return resnet({.name = "resnet50", .blocks = {3, 4, 6, 3}});
       }},
      {"resnet101", "ResNet-101 v1.5",
       [] {
         return resnet({.name = "resnet101", .blocks = {3, 4, 23, 3}});
       }},
      {"resnet152", "ResNet-152 v1.5",
       [] {
         return resnet({.name = "resnet152", .blocks = {3, 8, 36, 3}});
       }},
      {"resnet200", "ResNet-200 v1.5",
       [] {
         return resnet({.name = "resnet200", .blocks = {3, 24, 36, 3}});
       }},
      {"resnet50_v1", "ResNet-50 v1 (stride in the first 1x1), as published in 2015",
       [] {
         return resnet({.name = "resnet50_v1", .blocks = {3, 4, 6, 3}, .stride_in_first = true});
       }},
      {"resnet101_v1", "ResNet-101 v1",
       [] {
         return resnet({.name = "resnet101_v1", .blocks = {3, 4, 23, 3}, .stride_in_first = true});
       }},
      {"resnet152_v1", "ResNet-152 v1",
       [] {
         return resnet({.name = "resnet152_v1", .blocks = {3, 8, 36, 3}, .stride_in_first = true});
       }},
      {"resnext50_32x4d", "ResNeXt-50, 32 groups of 4",
       [] {
         return resnet({.name = "resnext50_32x4d",
                        .blocks = {3, 4, 6, 3},
                        .groups = 32,
                        .width_per_group = 4});
       }},
      {"resnext101_32x4d", "ResNeXt-101, 32 groups of 4",
       [] {
         return resnet({.name = "resnext101_32x4d",
                        .blocks = {3, 4, 23, 3},
                        .groups = 32,
                        .width_per_group = 4});
       }},
      {"se_resnext101_32x4d", "ResNeXt-101 with squeeze-and-excitation",
       [] {
         return resnet({.name = "se_resnext101_32x4d",
                        .blocks = {3, 4, 23, 3},
                        .groups = 32,
                        .width_per_group = 4,
                        .squeeze_excite = true});
       }},
      {"wide_resnet50_2", "ResNet-50 with inner layers twice as wide",
       [] {
         return resnet({.name = "wide_resnet50_2", .blocks = {3, 4, 6, 3}, .width_per_group = 128});
       }},
      {"googlenet", "GoogLeNet with batch normalisation, no auxiliary heads", googlenet},
      {"inception_v3", "Inception-v3 on 299x299, no auxiliary head", inception_v3},
      {"densenet121", "DenseNet-121", densenet121},
      {"mobilenet_v1", "MobileNet v1, width 1", mobilenet_v1},
      {"mobilenet_v2", "MobileNet v2, width 1", mobilenet_v2},
      {"r3d_18", "R3D-18 on 16 frames of 112x112", r3d_18},
      {"3d-resattnet18", "3D-ResAttNet-18 on brain scans (reconstructed)",
       [] {
         return resattnet3d("3d-resattnet18", {2, 2, 2, 2});
       }},
      {"3d-resattnet34", "3D-ResAttNet-34 on brain scans (reconstructed)",
       [] {
         return resattnet3d("3d-resattnet34", {3, 4, 6, 3});
       }},
      {"hmp_mnist", "the MNIST network of Moreno-Alvarez et al. 2021", hmp_mnist},
      {"hmp_cifar10", "the CIFAR-10 network of Moreno-Alvarez et al. 2021", hmp_cifar10},
  };
  for (NetworkEntry& model : language_models()) table.push_back(std::move(model));
  return table;
}

}  // namespace

const std::vector<NetworkEntry>& all() {
  static const std::vector<NetworkEntry> table = built_in_networks();
  return table;
}

const std::vector<NetworkFormula>& network_formulas() {
  static const std::vector<NetworkFormula> table{{"gpt", zoo::gpt_summary(), zoo::gpt}};
  return table;
}

namespace {

[[noreturn]] void refuse_dims(const std::map<std::string, std::int64_t>& dims,
                              std::string_view what, std::string_view name) {
  throw InputError(
      "--dim", fmt::format("the {} '{}' has no dimension '{}'", what, name, dims.begin()->first),
      "accepted: with ONNX files, config.json and built-in language models");
}

[[noreturn]] void refuse_size(const std::string& call, const std::string& name,
                              std::string_view where) {
  throw InputError(where, fmt::format("'{}': {} takes no options", call, name),
                   fmt::format("accepted: {}; built-in language models take layers=N", name));
}

/// A language model with samples as long as --dim seq_length says.
Network build_sized(const NetworkEntry& model, const std::string& call, std::string_view where,
                    const std::map<std::string, std::int64_t>& dims,
                    const NetworkDefaults& defaults) {
  std::int64_t seq_length = 0;
  for (const auto& [name, value] : dims) {
    if (name != "seq_length") {
      throw InputError(
          "--dim", fmt::format("the built-in network '{}' has no dimension '{}'", model.name, name),
          fmt::format("accepted: seq_length (tokens per sample); --batch sets the samples{}",
                      name == "sequence" ? "; did you mean 'seq_length'?" : ""));
    }
    seq_length = value;
  }
  return model.sized(call, std::string(where), seq_length, defaults);
}

/// By name or by first character: no ONNX file begins with a brace.
bool is_json(const std::string& path) {
  if (path.ends_with(".json")) return true;
  if (path.ends_with(".onnx")) return false;
  std::ifstream stream(path, std::ios::binary);
  char first = 0;
  return stream >> first && first == '{';
}

[[noreturn]] void refuse_unknown(const std::string& text, std::string_view where) {
  std::vector<std::string> names, formulas;
  for (const NetworkEntry& entry : all()) names.push_back(entry.name);
  for (const NetworkFormula& entry : network_formulas()) formulas.push_back(entry.name);
  const std::string word = text.substr(0, text.find(':'));
  // A text with options is a formula: of equally near names formulas come first.
  const bool calls = word.size() < text.size();
  names.insert(calls ? names.begin() : names.end(), formulas.begin(), formulas.end());
  throw InputError(where, fmt::format("unknown network '{}'", text),
                   fmt::format("accepted: a name from `parsim list networks`, or the path of an "
                               ".onnx file or config.json{}",
                               did_you_mean(word, names)));
}

/// The row of that name, or the end.
template <class Table>
auto find_named(const Table& table, std::string_view name) {
  return std::find_if(table.begin(), table.end(),
                      [&](const auto& entry) { return entry.name == name; });
}

}  // namespace

Network load_network(const std::string& name_or_path,
                     const std::map<std::string, std::int64_t>& dims, std::string_view where,
                     const NetworkDefaults& defaults) {
  // Calls before paths. Without options a formula's name may still be that of a model's folder.
  const std::string word = name_or_path.substr(0, name_or_path.find(':'));
  if (const auto built_in = find_named(all(), word); built_in != all().end()) {
    if (built_in->sized) return build_sized(*built_in, name_or_path, where, dims, defaults);
    if (word != name_or_path) refuse_size(name_or_path, word, where);
    if (!dims.empty()) refuse_dims(dims, "built-in network", built_in->name);
    return built_in->build();
  }
  const auto formula = find_named(network_formulas(), word);
  const bool by_formula = formula != network_formulas().end();
  const std::filesystem::path inside = std::filesystem::path(name_or_path) / "config.json";
  std::error_code ignored;
  const bool folder = std::filesystem::is_regular_file(inside, ignored);
  if (by_formula && !(folder && word == name_or_path)) {
    if (!dims.empty()) refuse_dims(dims, "formula", name_or_path);
    return formula->build(name_or_path, std::string(where), defaults);
  }
  if (folder) return read_hugging_face(inside.string(), dims, defaults);
  if (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".onnx") ||
      name_or_path.ends_with(".json")) {
    return is_json(name_or_path) ? read_hugging_face(name_or_path, dims, defaults)
                                 : read_onnx(name_or_path, dims);
  }
  refuse_unknown(name_or_path, where);
}

}  // namespace parsim::networks
