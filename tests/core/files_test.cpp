// What both programs read and write.
#include "core/files.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "core/hash.hpp"
#include "tests/support/program.hpp"

namespace parsim {
namespace {

using testing::TemporaryFolder;
namespace fs = std::filesystem;

unsigned mode_of(const std::string& path) {
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777U;
}

TEST_CASE("files: a committed file replaces the old one, an abandoned one leaves it") {
  const TemporaryFolder folder;
  const std::string path = folder.write("plan.json", "old");
  { const OutputFile abandoned(path, "-o"); }
  CHECK(testing::read_text(path) == "old");
  CHECK(folder.names() == std::vector<std::string>{"plan.json"});
  OutputFile(path, "-o").commit("new");
  CHECK(testing::read_text(path) == "new");
  CHECK(folder.names() == std::vector<std::string>{"plan.json"});
}

TEST_CASE("files: what cannot be written is refused before any work") {
  const TemporaryFolder folder;
  const std::string inside = folder.path("none/plan.json");
  CHECK_THROWS_WITH_AS(OutputFile(inside, "-o"),
                       ("-o: cannot write '" + inside +
                        "': No such file or directory; accepted: a file name in a folder that can "
                        "be written")
                           .c_str(),
                       InputError);
  CHECK_THROWS_WITH_AS(OutputFile(folder.folder(), "--trace"),
                       ("--trace: cannot write '" + folder.folder() +
                        "': it is a directory; accepted: a file name in a folder that can be "
                        "written")
                           .c_str(),
                       InputError);
  CHECK_THROWS_AS(OutputFile("", "-o"), InputError);
  CHECK_THROWS_AS(OutputFile("a\nb", "-o"), InputError);
}

TEST_CASE("files: a device is written in place") {
  OutputFile("/dev/null", "-o").commit("anything");
  CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("files: a full disk is told, not ignored") {
  OutputFile file("/dev/full", "--dag");
  CHECK_THROWS_WITH_AS(file.commit("x"),
                       "--dag: cannot write '/dev/full': No space left on device; accepted: a file "
                       "name in a folder that can be written",
                       InputError);
}

TEST_CASE("files: what cannot be read is refused with the reason") {
  CHECK_THROWS_WITH_AS((void)read_file("/nowhere", "--plan"),
                       "--plan: cannot read '/nowhere': No such file or directory; accepted: a "
                       "readable file",
                       InputError);
  CHECK_THROWS_WITH_AS((void)read_file("/", "--plan"),
                       "--plan: cannot read '/': it is a directory; accepted: a readable file",
                       InputError);
}

TEST_CASE("files: more than 256 MiB are refused before they are read, a device after them") {
  const TemporaryFolder folder;
  const std::string large = folder.write("large", "");
  REQUIRE(::truncate(large.c_str(), static_cast<off_t>(largest_input) + 1) == 0);  // takes no disk
  for (const std::string& path : {large, std::string("/dev/zero")}) {
    CHECK_THROWS_WITH_AS(
        (void)read_file(path, "--plan"),
        ("--plan: cannot read '" + path + "': it is larger than 256 MiB; accepted: a readable file")
            .c_str(),
        InputError);
  }
}

TEST_CASE("files: a replaced file leaves its permissions, a new one has those of umask") {
  const TemporaryFolder folder;
  const std::string secret = folder.write("secret", "old"), fresh = folder.path("fresh");
  fs::permissions(secret, fs::perms::owner_read | fs::perms::owner_write);
  OutputFile(secret, "-o").commit("new");
  CHECK(mode_of(secret) == 0600);
  const mode_t before = ::umask(027);
  OutputFile(fresh, "-o").commit("new");
  OutputFile(folder.path("script"), "-o", true).commit("#!/bin/sh\n");
  ::umask(before);
  CHECK(mode_of(fresh) == 0640);
  CHECK(mode_of(folder.path("script")) == 0750);
}

TEST_CASE("files: a symbolic link is followed and stays") {
  const TemporaryFolder folder;
  const std::string target = folder.write("target", "old"), link = folder.path("link");
  fs::create_symlink("target", link);
  OutputFile(link, "-o").commit("new");
  CHECK(fs::is_symlink(link));
  CHECK(testing::read_text(target) == "new");
  fs::create_symlink("absent", folder.path("dangling"));
  OutputFile(folder.path("dangling"), "-o").commit("made");
  CHECK(testing::read_text(folder.path("absent")) == "made");
  fs::create_symlink("loop", folder.path("loop"));
  CHECK_THROWS_WITH_AS(OutputFile(folder.path("loop"), "-o"),
                       ("-o: cannot write '" + folder.path("loop") +
                        "': Too many levels of symbolic links; accepted: a file name in a folder "
                        "that can be written")
                           .c_str(),
                       InputError);
}

TEST_CASE("files: nothing is written through a link under the temporary name") {
  const TemporaryFolder folder;
  const std::string victim = folder.write("victim", "keep");
  // Whatever the next process is called: this one's first names.
  for (std::uint64_t n = 0; n < 3; ++n) {
    fs::create_symlink("victim", folder.path(fmt::format(".parsim-{}-{:x}.tmp", ::getpid(),
                                                         fnv1a(folder.path("plan.json")) + n)));
  }
  OutputFile(folder.path("plan.json"), "-o").commit("new");
  CHECK(testing::read_text(victim) == "keep");
  CHECK(testing::read_text(folder.path("plan.json")) == "new");
  CHECK(folder.names().size() == 5);
}

TEST_CASE("files: a name may be as long as the file system takes") {
  const TemporaryFolder folder;
  OutputFile(folder.path(std::string(255, 'n')), "-o").commit("new");
  CHECK(folder.names() == std::vector<std::string>{std::string(255, 'n')});
  CHECK_THROWS_AS(OutputFile(folder.path(std::string(256, 'n')), "-o"), InputError);
}

TEST_CASE("files: there is no temporary file before the content is known") {
  const TemporaryFolder folder;
  OutputFile file(folder.path("plan.json"), "-o");
  CHECK(folder.names().empty());  // a kill would leave what is here now
  file.commit("new");
  CHECK(folder.names() == std::vector<std::string>{"plan.json"});
}

TEST_CASE("files: a signal leaves no temporary file, whichever ends the program") {
  const TemporaryFolder folder;
  constexpr int tries = 10;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGALRM, SIGXCPU}) {
    CAPTURE(signal);
    for (int i = 0; i < tries; ++i) {
      std::array<int, 2> ready{};
      REQUIRE(::pipe(ready.data()) == 0);
      const pid_t child = ::fork();
      REQUIRE(child >= 0);
      if (child == 0) {  // does little but what a signal must not interrupt
        std::signal(signal, SIG_DFL);
        for (bool first = true;; first = false) {
          OutputFile file(folder.path("plan.json"), "-o");
          if (first && ::write(ready[1], "r", 1) != 1) ::_exit(1);
        }
      }
      char byte = 0;
      CHECK(::read(ready[0], &byte, 1) == 1);
      ::usleep(static_cast<useconds_t>(300 * i));
      ::kill(child, signal);
      int status = 0;
      CHECK(::waitpid(child, &status, 0) == child);
      CHECK(WIFSIGNALED(status));
      for (const int end : ready) ::close(end);
    }
  }
  CHECK(folder.names().empty());
}

TEST_CASE("files: of several files all are written or none") {
  const TemporaryFolder folder;
  fs::create_directory(folder.path("gone"));
  std::vector<FileContent> files;
  files.push_back({OutputFile(folder.path("a"), "-o"), "a"});
  files.push_back({OutputFile(folder.path("gone/b"), "-o"), "b"});
  fs::remove_all(folder.path("gone"));
  CHECK_THROWS_AS(commit_all(files), InputError);
  CHECK(folder.names().empty());
  files.pop_back();
  files.push_back({OutputFile(folder.path("b"), "-o"), "b"});
  commit_all(files);
  CHECK(folder.names() == std::vector<std::string>{"a", "b"});
  // Renaming fails half-way: what is there is named.
  files.clear();
  files.push_back({OutputFile(folder.path("c"), "-o"), "c"});
  files.push_back({OutputFile(folder.path("d"), "-o"), "d"});
  fs::create_directory(folder.path("d"));
  CHECK_THROWS_WITH_AS(commit_all(files),
                       ("-o: cannot write '" + folder.path("d") +
                        "': Is a directory; already written: " + folder.path("c") +
                        "; accepted: a file name in a folder that can be written")
                           .c_str(),
                       InputError);
  CHECK(folder.names() == std::vector<std::string>{"a", "b", "c", "d"});
}

TEST_CASE("files: of several files a pipe or a device stays what it is") {
  const TemporaryFolder folder;
  const std::string pipe = folder.path("pipe"), path = folder.path("plan.json");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const int end = ::open(pipe.c_str(), O_RDWR);
  REQUIRE(end >= 0);
  std::vector<FileContent> files;
  files.push_back({OutputFile(pipe, "--dag"), "graph"});
  files.push_back({OutputFile(path, "-o"), "plan"});
  commit_all(files);
  CHECK(fs::is_fifo(pipe));
  std::array<char, 8> read{};
  CHECK(::read(end, read.data(), read.size()) == 5);
  CHECK(std::string_view(read.data()) == "graph");
  CHECK(testing::read_text(path) == "plan");
  ::close(end);
}

TEST_CASE("files: two names of one file are seen to be one") {
  const TemporaryFolder folder;
  const std::string a = folder.write("a.json", "");
  fs::create_symlink("a.json", folder.path("link"));
  fs::create_symlink("new.json", folder.path("dangling"));
  CHECK(same_file(a, folder.folder() + "/./a.json"));
  CHECK(same_file(a, folder.path("link")));
  CHECK(same_file(folder.path("new.json"), folder.path("dangling")));
  CHECK(same_file("-", "-"));
  CHECK_FALSE(same_file(a, folder.path("b.json")));
  CHECK_FALSE(same_file("-", folder.path("-")));
  CHECK_FALSE(same_file("", a));
}

TEST_CASE("files: a file in memory is read and written by its path, and is in no folder") {
  const MemoryFile file("first");
  CHECK(file.text() == "first");
  CHECK(read_file(file.path(), "--dag") == "first");
  OutputFile(file.path(), "-o").commit("second");
  CHECK(file.text() == "second");
}

}  // namespace
}  // namespace parsim
