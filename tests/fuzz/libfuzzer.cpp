// libFuzzer's way into a target.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  parsim::fuzz::run(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
