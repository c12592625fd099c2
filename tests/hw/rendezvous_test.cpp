#include "hw/rendezvous.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "hw/hardware.hpp"
#include "tests/hw/ranks.hpp"

namespace parsim::testing {
namespace {

using namespace std::chrono_literals;

/// Forks a process that runs `body` and says what it returned, or what it threw.
class Process {
 public:
  explicit Process(const std::function<std::string()>& body) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    id_ = ::fork();
    if (id_ == 0) {
      std::string said;
      try {
        said = body();
      } catch (const InputError& error) {
        said = std::string("InputError: ") + error.what();
      } catch (const hw::HardwareError& error) {
        said = std::string("HardwareError: ") + error.what();
      } catch (const std::exception& error) {
        said = std::string("other: ") + error.what();
      }
      const ssize_t written = ::write(ends[1], said.data(), said.size());
      ::_exit(written == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    ::close(ends[1]);
    out_ = ends[0];
  }
  [[nodiscard]] std::string said() {
    std::string text;
    char buffer[512];
    for (ssize_t n = 0; (n = ::read(out_, buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(n));
    }
    ::close(out_);
    int status = 0;
    ::waitpid(id_, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? text : "died: " + text;
  }

 private:
  pid_t id_ = -1;
  int out_ = -1;
};

}  // namespace

TEST_CASE("rendezvous: rank 0 broadcasts to all ranks and gathers their answers by rank") {
  const int port = free_port();
  const std::string id = std::string("unique\0id", 9) + std::string(200'000, 'x');
  std::vector<Process> others;
  for (const int rank : {3, 1, 2}) {  // in any order
    others.emplace_back([=] {
      hw::Rendezvous rendezvous(launch_of(rank, 4, port), 20s);
      const std::string heard = rendezvous.broadcast("not asked");
      if (!rendezvous.gather("I am " + std::to_string(rank)).empty())
        return std::string("too much");
      const std::string again = rendezvous.broadcast("");
      return heard == id && again.empty() ? "heard" : std::string("heard something else");
    });
  }
  hw::Rendezvous rendezvous(launch_of(0, 4, port), 20s);
  CHECK(rendezvous.broadcast(id) == id);
  CHECK(rendezvous.gather("first") ==
        std::vector<std::string>{"first", "I am 1", "I am 2", "I am 3"});
  CHECK(rendezvous.broadcast("").empty());
  for (Process& other : others) CHECK(other.said() == "heard");
  hw::Rendezvous alone({}, 1s);
  CHECK(alone.broadcast("a") == "a");
  CHECK(alone.gather("b") == std::vector<std::string>{"b"});
  CHECK(alone.all_gather("c") == std::vector<std::string>{"c"});
}

TEST_CASE("rendezvous: who does not come, or leaves, is named instead of waited for") {
  const int port = free_port();
  {
    Process second([=] {
      const hw::Rendezvous rendezvous(launch_of(2, 4, port), 300ms);
      return std::string("met");
    });
    CHECK_THROWS_WITH_AS(hw::Rendezvous(launch_of(0, 4, port), 300ms),
                         doctest::Contains(" of 4 processes have not come to port "),
                         hw::HardwareError);
    CHECK(second.said().starts_with("HardwareError: rank 2 did not meet rank 0 at 127.0.0.1:"));
  }
  CHECK_THROWS_WITH_AS(hw::Rendezvous(launch_of(1, 2, port), 50ms),
                       doctest::Contains("rank 1 did not meet rank 0 at 127.0.0.1:"),
                       hw::HardwareError);
  Process leaves([=] {
    const hw::Rendezvous rendezvous(launch_of(1, 2, port), 20s);
    return std::string("left");
  });
  hw::Rendezvous rendezvous(launch_of(0, 2, port), 20s);
  CHECK_THROWS_WITH_AS((void)rendezvous.gather("first"), doctest::Contains("rank 1 left"),
                       hw::HardwareError);
  CHECK(leaves.said() == "left");
}

TEST_CASE("rendezvous: processes of different launches are told so, both of them") {
  const int port = free_port();
  Process other([=] {
    const hw::Rendezvous rendezvous(launch_of(1, 3, port), 20s);
    return std::string("met");
  });
  CHECK_THROWS_WITH_AS(hw::Rendezvous(launch_of(0, 2, port), 20s),
                       "torchrun: rank 1 says that there are 3 processes, rank 0 that there are 2; "
                       "accepted: one launch",
                       InputError);
  CHECK(other.said().starts_with("InputError: torchrun: rank 0 at 127.0.0.1:"));
  CHECK_THROWS_WITH_AS(hw::Rendezvous({"torchrun", 1, 2, 1, "no such machine", port}, 1s),
                       "MASTER_ADDR: 'no such machine'; accepted: the name or address of the "
                       "machine of rank 0",
                       InputError);
}

}  // namespace parsim::testing
