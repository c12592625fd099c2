// The catalogue of networks: built-in ones by name, formulas by a call, ONNX files and Hugging Face
// configs by path.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/network.hpp"

namespace parsim::networks {

/// What holds where neither the call nor the config.json says otherwise.
struct NetworkDefaults {
  bool fused_attention = true;  ///< else eager: attention scores are written, read and kept
};

struct NetworkEntry {
  std::string name, summary;
  std::function<Network()> build;
  /// Of a language model: with samples of so many tokens (0: as in pretraining), and as many blocks
  /// as the call says ("llama-3-70b:layers=12"). Empty for all other networks.
  std::function<Network(const std::string& call, const std::string& where, std::int64_t seq_length,
                        const NetworkDefaults& defaults)>
      sized{};
};

[[nodiscard]] const std::vector<NetworkEntry>& all();

/// Networks of any size: called by name with options, "gpt:layers=24,hidden=1024,heads=16".
struct NetworkFormula {
  std::string name, summary;  ///< the summary lists the options
  Network (*build)(const std::string& call, const std::string& where,
                   const NetworkDefaults& defaults);
};

[[nodiscard]] const std::vector<NetworkFormula>& network_formulas();

/// A built-in network by name, a call of a formula or of a language model (which becomes the
/// network's name), or the file at a path (anything with a '/' or ending in ".onnx" or ".json"):
/// ONNX, or Hugging Face's config.json or its folder.
///
/// dims   values for symbolic dimensions of an ONNX file ("batch" -> 32), or "seq_length" of a
///        config.json or a built-in language model
///
/// Throws InputError: unknown name (with did-you-mean), unreadable file, or what the reader
/// refuses.
[[nodiscard]] Network load_network(const std::string& name_or_path,
                                   const std::map<std::string, std::int64_t>& dims,
                                   std::string_view where, const NetworkDefaults& defaults = {});

/// Reads an ONNX training or inference graph. Every unknown operator, unbound dimension or broken
/// part is refused by name (InputError). A Loss is appended to the graph's first output.
[[nodiscard]] Network read_onnx(const std::string& path,
                                const std::map<std::string, std::int64_t>& dims);

/// A transformer from the dimensions in a Hugging Face config.json: encoders without a head, with
/// the loss on their output; decoders with the logits of the next token; ViT with its classifier.
/// Samples are as long as the model's positions allow unless dims["seq_length"] is less. Throws
/// InputError with file, line and key for an unknown model_type or a key that is missing or wrong.
[[nodiscard]] Network read_hugging_face(const std::string& path,
                                        const std::map<std::string, std::int64_t>& dims,
                                        const NetworkDefaults& defaults = {});
/// The same of the text of such a file, which errors call `path`.
[[nodiscard]] Network parse_hugging_face(const std::string& text, const std::string& path,
                                         const std::map<std::string, std::int64_t>& dims,
                                         const NetworkDefaults& defaults = {});
/// The JSON Schema of such a config.json, as far as it is read: it allows other keys.
[[nodiscard]] std::string config_schema();

}  // namespace parsim::networks
