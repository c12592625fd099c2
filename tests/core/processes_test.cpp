#include "core/processes.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <thread>
#include <vector>

namespace parsim {
namespace {

TEST_CASE("processes: one thread, and several") {
  CHECK(has_one_thread());
  std::thread([] { CHECK_FALSE(has_one_thread()); }).join();
}

TEST_CASE("processes: what is written is read whole, and no more than came before the end") {
  int ends[2] = {-1, -1};
  REQUIRE(::pipe(ends) == 0);
  std::vector<std::byte> sent(300'000, std::byte{7});  // more than a pipe holds
  std::thread writer([&] {
    CHECK(write_all(ends[1], sent));
    CHECK(write_all(ends[1], std::array{std::byte{1}, std::byte{2}}));
    ::close(ends[1]);
  });
  std::vector<std::byte> got(sent.size());
  CHECK(read_all(ends[0], got) == sent.size());
  CHECK(got == sent);
  std::array<std::byte, 3> rest{};
  CHECK(read_all(ends[0], rest) == 2);
  CHECK(rest == std::array{std::byte{1}, std::byte{2}, std::byte{0}});
  writer.join();
  ::close(ends[0]);
  CHECK_FALSE(write_all(ends[0], rest));
}

}  // namespace
}  // namespace parsim
