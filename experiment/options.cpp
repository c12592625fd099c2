#include "experiment/options.hpp"

#include <fmt/format.h>

#include "core/text.hpp"

namespace parsim::experiment {

std::optional<std::string> Arguments::text(std::string_view flag) const {
  const auto found = values.find(flag);
  if (found == values.end()) return std::nullopt;
  return found->second.back();
}

std::vector<std::string> Arguments::texts(std::string_view flag) const {
  const auto found = values.find(flag);
  return found == values.end() ? std::vector<std::string>{} : found->second;
}

std::optional<std::int64_t> Arguments::number(std::string_view flag, std::int64_t least,
                                              std::int64_t most) const {
  const std::optional<std::string> given = text(flag);
  if (!given) return std::nullopt;
  return parse_whole(*given, flag, least, most);
}

void refuse_word(std::string_view text, std::string_view where,
                 const std::vector<std::string>& accepted) {
  throw InputError(where, fmt::format("'{}'", text),
                   fmt::format("accepted: {}{}", join(accepted), did_you_mean(text, accepted)));
}

}  // namespace parsim::experiment
