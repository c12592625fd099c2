// Loaded into a program by LD_PRELOAD: lets one call of a kind fail, as a full disk or an exhausted
// machine would.
//
//   PARSIM_FAULT=KIND:N    the N-th call of this kind since main() fails, KIND:N+ all from it on;
//                          not while a library is being loaded
//   PARSIM_FAULT_LOG=FILE  a line for each failed call, "failed write 2" (2: the descriptor, or
//   -1),
//                          and one at the end of each program, "calls open 12 read 40 ..."
//
// Each process counts for itself; a forked one goes on from its parent's count.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// NOLINTBEGIN(bugprone-reserved-identifier): they are the C library's
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace {

enum Kind {
  open_call,
  read_call,
  write_call,
  sync_call,
  rename_call,
  fork_call,
  exec_call,
  pipe_call,
  thread_call,
  memory_call,
  kinds
};
constexpr const char* names[kinds] = {"open", "read", "write", "sync",   "rename",
                                      "fork", "exec", "pipe",  "thread", "memory"};
constexpr int errors[kinds] = {EMFILE, EIO,     ENOSPC, EIO,    EACCES,
                               EAGAIN, ENOEXEC, EMFILE, EAGAIN, ENOMEM};

std::atomic<bool> counting = false;
std::atomic<long> calls[kinds];
int chosen = -1;
long chosen_call = 0;
bool and_later = false;
const char* log_path = nullptr;
pid_t owner = 0;
int (*program_main)(int, char**, char**) = nullptr;

/// By the system's own calls: those of the library may be the ones that fail.
void log_line(const char* line, size_t length) {
  if (log_path == nullptr) return;
  const long file = ::syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (file < 0) return;
  ::syscall(SYS_write, file, line, length);
  ::syscall(SYS_close, file);
}

/// Whether this call is to fail; then errno says why.
bool fails(Kind kind, int descriptor = -1) {
  if (!counting.load(std::memory_order_relaxed)) return false;
  const long call = calls[kind].fetch_add(1) + 1;
  if (kind != chosen || (and_later ? call < chosen_call : call != chosen_call)) return false;
  char line[64];
  const int length = std::snprintf(line, sizeof line, "failed %s %d\n", names[kind], descriptor);
  log_line(line, static_cast<size_t>(length));
  errno = errors[kind];
  return true;
}

void log_calls() {
  if (::getpid() != owner) return;
  counting = false;
  char line[256] = "calls";
  size_t length = std::strlen(line);
  for (int k = 0; k < kinds; ++k) {
    length += static_cast<size_t>(
        std::snprintf(line + length, sizeof line - length, " %s %ld", names[k], calls[k].load()));
  }
  line[length++] = '\n';
  log_line(line, length);
}

int counted_main(int count, char** words, char** variables) {
  log_path = std::getenv("PARSIM_FAULT_LOG");
  if (const char* fault = std::getenv("PARSIM_FAULT")) {
    const char* colon = std::strchr(fault, ':');
    for (int k = 0; k < kinds && colon != nullptr; ++k) {
      const auto length = static_cast<size_t>(colon - fault);
      if (std::strlen(names[k]) == length && std::strncmp(fault, names[k], length) == 0) chosen = k;
    }
    char* end = nullptr;
    if (colon != nullptr) chosen_call = std::strtol(colon + 1, &end, 10);
    and_later = end != nullptr && *end == '+';
  }
  owner = ::getpid();
  std::atexit(log_calls);
  counting = true;
  return program_main(count, words, variables);
}

/// Calls the C library's function `name`, unless this call is to fail.
template <class Result, class... Arguments>
Result call(Kind kind, int descriptor, Result failure, const char* name, Arguments... arguments) {
  if (fails(kind, descriptor)) return failure;
  return reinterpret_cast<Result (*)(Arguments...)>(::dlsym(RTLD_NEXT, name))(arguments...);
}

/// Of open(): it is there if a file may be made.
mode_t mode_after(int flags, va_list& more) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
}

}  // namespace

extern "C" {

// NOLINTNEXTLINE(bugprone-reserved-identifier)
int __libc_start_main(int (*main)(int, char**, char**), int count, char** words, void (*init)(),
                      void (*fini)(), void (*end_of_loader)(), void* stack) {
  program_main = main;
  return call(open_call, -1, 0, "__libc_start_main", counted_main, count, words, init, fini,
              end_of_loader, stack);
}

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_after(flags, more);
  va_end(more);
  return call(open_call, -1, -1, "open", path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_after(flags, more);
  va_end(more);
  return call(open_call, -1, -1, "open64", path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  return call<FILE*>(open_call, -1, nullptr, "fopen", path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  return call<FILE*>(open_call, -1, nullptr, "fopen64", path, mode);
}
int memfd_create(const char* name, unsigned flags) noexcept {
  return call(open_call, -1, -1, "memfd_create", name, flags);
}

ssize_t read(int file, void* to, size_t size) {
  return call<ssize_t>(read_call, file, -1, "read", file, to, size);
}

ssize_t write(int file, const void* from, size_t size) {
  return call<ssize_t>(write_call, file, -1, "write", file, from, size);
}
ssize_t writev(int file, const iovec* parts, int count) {
  return call<ssize_t>(write_call, file, -1, "writev", file, parts, count);
}
size_t fwrite(const void* from, size_t size, size_t count, FILE* to) {
  return call<size_t>(write_call, ::fileno(to), 0, "fwrite", from, size, count, to);
}
int fflush(FILE* to) {
  return call(write_call, to == nullptr ? -1 : ::fileno(to), EOF, "fflush", to);
}

int fsync(int file) { return call(sync_call, file, -1, "fsync", file); }
int fdatasync(int file) { return call(sync_call, file, -1, "fdatasync", file); }

int rename(const char* from, const char* to) noexcept {
  return call(rename_call, -1, -1, "rename", from, to);
}

/// What a library does while it is loaded (constructors of ns-3 in Debian's SimGrid) cannot be
/// caught.
void* dlopen(const char* path, int mode) noexcept {
  const bool before = counting.exchange(false);
  void* const library =
      reinterpret_cast<decltype(&dlopen)>(::dlsym(RTLD_NEXT, "dlopen"))(path, mode);
  counting = before;
  return library;
}

pid_t fork() noexcept { return call<pid_t>(fork_call, -1, -1, "fork"); }
int execve(const char* path, char* const* words, char* const* variables) noexcept {
  constexpr char line[] = "calls exec 1\n";  // log_calls() will not run here
  log_line(line, sizeof line - 1);
  return call(exec_call, -1, -1, "execve", path, words, variables);
}
int pipe(int* ends) noexcept { return call(pipe_call, -1, -1, "pipe", ends); }
int pipe2(int* ends, int flags) noexcept { return call(pipe_call, -1, -1, "pipe2", ends, flags); }
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) noexcept {
  return call(thread_call, -1, EAGAIN, "pthread_create", thread, attributes, body, argument);
}

void* malloc(size_t size) noexcept { return fails(memory_call) ? nullptr : __libc_malloc(size); }
void* calloc(size_t count, size_t size) noexcept {
  return fails(memory_call) ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* block, size_t size) noexcept {
  return fails(memory_call) ? nullptr : __libc_realloc(block, size);
}
void* aligned_alloc(size_t alignment, size_t size) noexcept {
  return fails(memory_call) ? nullptr : __libc_memalign(alignment, size);
}
int posix_memalign(void** block, size_t alignment, size_t size) noexcept {
  if (fails(memory_call)) return ENOMEM;
  *block = __libc_memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}

}  // extern "C"
