#include "topologies/import/import.hpp"

#include <fmt/format.h>

#include "core/errors.hpp"
#include "topologies/document.hpp"

namespace parsim::topologies {

namespace {

/// The first line that is the header of `nvidia-smi topo -m`: it begins with GPU0, perhaps after
/// an escape sequence.
bool has_smi_header(std::string_view text) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
    if (line.starts_with('\x1b')) line.remove_prefix(std::min(line.find('m'), line.size() - 1) + 1);
    if (line.starts_with("GPU0")) return true;
  }
  return false;
}

}  // namespace

std::optional<Imported> import_cluster(std::string_view text, const std::string& file,
                                       const ImportOptions& options) {
  const std::size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (file.ends_with(".xml") || (first != std::string_view::npos && text[first] == '<')) {
    const Element root = parse_xml(text, file);
    if (root.tag == "system") return import_nccl(root, file, options);
    if (root.tag == "platform") return import_simgrid(root, file, options);
    throw InputError(
        fmt::format("{}:{}:{}", file, root.line, root.tag),
        fmt::format("the root tag is <{}>", root.tag),
        fmt::format("accepted: system (NCCL's topology), platform (SimGrid's){}",
                    did_you_mean(root.tag, std::vector<std::string>{"system", "platform"})));
  }
  if (has_smi_header(text)) return import_nvidia_smi(text, file, options);
  return std::nullopt;
}

}  // namespace parsim::topologies
