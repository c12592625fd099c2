#include "experiment/kineto_trace.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/errors.hpp"

namespace parsim::experiment {

namespace {

using EventKind = TraceEvent::Kind;

constexpr std::size_t most_events = std::size_t{8} << 20;
constexpr std::size_t most_at_once = std::size_t{16} << 20;  ///< bytes of one event
constexpr std::size_t most_text = std::size_t{8} << 30;      ///< decompressed
constexpr std::size_t deepest_trace = 64;
constexpr double latest_time = 1e17;  ///< microseconds, three thousand years

constexpr std::string_view accepted_trace =
    "accepted: what torch.profiler's export_chrome_trace() writes";

/// The bytes of a file, decompressed if it is gzipped (zlib tells by its first bytes).
class ByteSource {
 public:
  explicit ByteSource(const std::string& path) : path_(path) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) refuse("it is a directory");
    errno = 0;
    file_ = gzopen(path.c_str(), "rbe");
    if (file_ == nullptr) refuse(errno != 0 ? std::strerror(errno) : "memory is lacking");
    buffer_.resize(std::size_t{1} << 18);
  }
  ~ByteSource() { gzclose(file_); }
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  /// The byte that comes next; false at the end of the file.
  bool fill() {
    if (at_ < filled_) return true;
    taken_ += filled_;
    at_ = filled_ = 0;
    if (taken_ > most_text)
      refuse(fmt::format("it has more than {} GiB of text", most_text >> 30U));
    if (taken_ - event_began_ > most_at_once) {
      refuse(fmt::format("an event takes more than {} MiB", most_at_once >> 20U));
    }
    const int count = gzread(file_, buffer_.data(), static_cast<unsigned>(buffer_.size()));
    int error = Z_OK;
    const char* const text = gzerror(file_, &error);
    if (error == Z_BUF_ERROR) {
      cut_off_ = true;  // a gzip file without its end
    } else if (count < 0) {
      refuse(error == Z_ERRNO ? std::strerror(errno) : text);
    }
    filled_ = static_cast<std::size_t>(std::max(0, count));
    return filled_ > 0;
  }
  [[nodiscard]] const char& byte() const { return buffer_[at_]; }
  void next() { ++at_; }
  void event_ends() { event_began_ = taken_ + at_; }
  [[nodiscard]] bool at_end() { return !fill(); }
  [[nodiscard]] bool is_empty() const { return taken_ + filled_ == 0; }
  [[nodiscard]] bool is_cut_off() const { return cut_off_; }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    throw InputError(path_, "cannot be read: " + reason, accepted_trace);
  }

  const std::string& path_;
  gzFile file_ = nullptr;
  std::string buffer_;
  std::size_t at_ = 0, filled_ = 0;
  std::size_t taken_ = 0;        ///< bytes before the buffer
  std::size_t event_began_ = 0;  ///< bytes before the event that is being read
  bool cut_off_ = false;
};

/// The source as the parser wants it. All copies read on together; the end has no source.
struct ByteIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  ByteSource* source = nullptr;

  reference operator*() const { return source->byte(); }
  ByteIterator& operator++() {
    source->next();
    return *this;
  }
  bool operator==(const ByteIterator& other) const {
    const bool ended = source == nullptr || !source->fill();
    return ended == (other.source == nullptr || !other.source->fill());
  }
};

/// Categories of today, and those of PyTorch 1.8 to 1.12.
std::optional<EventKind> kind_of(std::string_view category) {
  constexpr std::array<std::pair<std::string_view, EventKind>, 15> known{{
      {"cpu_op", EventKind::op},
      {"Operator", EventKind::op},
      {"operator", EventKind::op},
      {"user_annotation", EventKind::annotation},
      {"python_function", EventKind::module},
      {"cuda_runtime", EventKind::launch},
      {"cuda_driver", EventKind::launch},
      {"Runtime", EventKind::launch},
      {"runtime", EventKind::launch},
      {"kernel", EventKind::kernel},
      {"Kernel", EventKind::kernel},
      {"gpu_memcpy", EventKind::copy},
      {"gpu_memset", EventKind::copy},
      {"Memcpy", EventKind::copy},
      {"Memset", EventKind::copy},
  }};
  for (const auto& [word, kind] : known) {
    if (word == category) return kind;
  }
  return std::nullopt;
}

/// The parser calls its members, whose names and types are nlohmann's SAX interface. Keys of an
/// event's arguments are those of libkineto's output_json.cpp and PyTorch's profiler/util.cpp.
class TraceBuilder {
 public:
  TraceBuilder(KinetoTrace& trace, ByteSource& source, const std::string& path)
      : trace_(trace), source_(source), path_(path) {}

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(std::int64_t value) { return number(value, static_cast<double>(value)); }
  bool number_unsigned(std::uint64_t value) {
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    return number(static_cast<std::int64_t>(std::min(value, most)), static_cast<double>(value));
  }
  bool number_float(double value, const std::string& text) {
    if (in_event(1) && keys_[depth_] == "ts") {
      // Microseconds since 1970 with three decimals are more than a double holds.
      long double exact = value;
      std::from_chars(text.data(), text.data() + text.size(), exact);
      start_ = exact;
      return true;
    }
    return number(-1, value);
  }
  bool binary(const std::vector<std::uint8_t>&) { return false; }  // not in JSON text

  bool string(const std::string& value) {
    if (in_event(1)) {
      if (keys_[depth_] == "ph") phase_ = value;
      if (keys_[depth_] == "cat") category_ = value;
      if (keys_[depth_] == "name") name_ = value;
      if (keys_[depth_] == "tid") now_.thread = hash_of_thread(value);
    } else if (is_of_device("name")) {
      trace_.products[device_] = value;
    } else if (in_list("Input type")) {
      shapes_.types.push_back(value);
    } else if (in_list("Concrete Inputs")) {
      shapes_.values.push_back(value);
    }
    return true;
  }
  bool key(const std::string& name) {
    if (depth_ < keys_.size()) keys_[depth_] = name;
    return true;
  }
  bool start_object(std::size_t) {
    if (depth_ == events_) begin_event();
    return open();
  }
  bool start_array(std::size_t) {
    if (depth_ == 0 || (depth_ == 1 && events_ == 0 && keys_[1] == "traceEvents")) {
      events_ = depth_ + 1;  // the depth inside the array
      has_events_ = true;
    }
    if (in_list("Input Dims")) shapes_.dims.emplace_back();
    if (in_list("Input type")) shapes_.types.emplace_back();
    if (in_list("Concrete Inputs")) shapes_.values.emplace_back();
    return open();
  }
  bool end_object() {
    --depth_;
    if (events_ > 0 && depth_ == events_) end_event();
    return true;
  }
  bool end_array() {
    --depth_;
    if (events_ > 0 && depth_ + 1 == events_) events_ = none;  // a second list is not read
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) {
    const std::string_view why = error.what();
    const auto has = [&](std::string_view words) { return why.find(words) != why.npos; };
    const bool number = error.id == 406;  // out_of_range.406: beyond a double
    const bool ended = has("end of input") || has("missing closing quote") ||
                       (has("invalid ") && !number && source_.at_end());
    if (ended && source_.is_empty() && !source_.is_cut_off()) {
      throw InputError(path_, "the file is empty", accepted_trace);
    }
    if (ended || source_.is_cut_off()) {
      throw InputError(path_, fmt::format("the file ends in the middle, after {} events", seen_),
                       "accepted: a whole trace, after export_chrome_trace() has returned");
    }
    throw InputError(
        path_,
        fmt::format("{} at byte {}", number ? "a number out of range" : "not JSON", position),
        accepted_trace);
  }

  [[nodiscard]] std::size_t seen() const { return seen_; }
  [[nodiscard]] bool has_events() const { return has_events_; }

 private:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  bool open() {
    if (++depth_ < deepest_trace) return true;
    throw InputError(path_, fmt::format("nested deeper than {} levels", deepest_trace),
                     accepted_trace);
  }
  /// Whether a value is a member of an event, or of its arguments (2).
  [[nodiscard]] bool in_event(std::size_t level) const {
    if (events_ == 0 || events_ == none || depth_ != events_ + level) return false;
    return level == 1 || keys_[events_ + 1] == "args";
  }
  /// Whether a value is an entry of a list of this name among the arguments.
  [[nodiscard]] bool in_list(std::string_view name) const {
    if (events_ == 0 || events_ == none || depth_ != events_ + 3) return false;
    if (keys_[events_ + 1] != "args") return false;
    const std::string& key = keys_[events_ + 2];
    return key == name || (name == "Input Dims" && key == "Input dims");
  }
  /// Whether a value is a member of an entry of deviceProperties.
  [[nodiscard]] bool is_of_device(std::string_view name) const {
    return depth_ == 3 && keys_[1] == "deviceProperties" && keys_[3] == name;
  }
  static std::int64_t hash_of_thread(std::string_view text) {
    return static_cast<std::int64_t>(std::hash<std::string_view>{}(text) >> 1U);
  }

  bool number(std::int64_t whole, double value) {
    if (in_event(1)) {
      const std::string& key = keys_[depth_];
      if (key == "ts") start_ = value;
      if (key == "dur") duration_ = value;
      if (key == "tid") now_.thread = whole;
      if (key == "pid") process_ = whole;
    } else if (in_event(2)) {
      const std::string& key = keys_[depth_];
      if (key == "External id" || key == "external id") now_.external = whole;
      if (key == "correlation") now_.correlation = whole;
      if (key == "Sequence number") now_.sequence = whole;
      if (key == "stream") stream_ = whole;
      if (key == "device" || key == "inDevice") device_ = whole;  // the second of peers' copies
    } else if (in_list("Input Dims")) {
      shapes_.dims.emplace_back();  // no list of extents: an argument without
    } else if (events_ > 0 && events_ != none && depth_ == events_ + 4 && !shapes_.dims.empty() &&
               (keys_[events_ + 2] == "Input Dims" || keys_[events_ + 2] == "Input dims")) {
      shapes_.dims.back().push_back(whole);
    } else if (depth_ == 2 && keys_[1] == "distributedInfo" && keys_[2] == "rank") {
      trace_.rank = whole;
    } else if (depth_ == 2 && keys_[1] == "distributedInfo" && keys_[2] == "world_size") {
      trace_.ranks = whole;
    } else if (is_of_device("id")) {
      device_ = whole;
    }
    return true;
  }

  void begin_event() {
    now_ = {};
    phase_.clear();
    category_.clear();
    name_.clear();
    shapes_ = {};
    start_ = duration_ = std::numeric_limits<double>::quiet_NaN();
    stream_ = device_ = process_ = -1;
    for (std::size_t level = events_ + 1; level < std::min(events_ + 4, keys_.size()); ++level) {
      keys_[level].clear();
    }
  }
  void end_event() {
    ++seen_;
    source_.event_ends();
    std::optional<EventKind> kind = kind_of(category_);
    if (phase_ != "X" || !kind) return;
    // Up to PyTorch 1.9 annotations are written as operators.
    if (kind == EventKind::op &&
        (name_.starts_with(profiler_step_prefix) || name_.starts_with(optimizer_step_prefix))) {
      kind = EventKind::annotation;
    }
    if (*kind == EventKind::launch && now_.correlation < 0) return;
    if (*kind == EventKind::module && !name_.starts_with(module_prefix)) return;
    const auto known = [](long double time) { return std::abs(time) <= latest_time; };
    if (!known(start_) || !known(duration_) || duration_ < 0) {
      const auto text = [](double time) {
        return std::isnan(time) ? "that is no number" : fmt::format("{}", time);
      };
      throw InputError(
          fmt::format("{}:/traceEvents/{}", path_, seen_ - 1),
          fmt::format("ts {} and dur {}", text(static_cast<double>(start_)), text(duration_)),
          "accepted: microseconds, dur 0 or more");
    }
    if (trace_.events.size() == most_events) {
      throw InputError(path_, fmt::format("more than {} events", most_events),
                       "accepted: a shorter schedule, for instance schedule(wait=1, warmup=1, "
                       "active=3)");
    }
    if (trace_.events.empty()) zero_ = start_;
    now_.kind = *kind;
    now_.start = static_cast<double>(start_ - zero_);
    now_.end = now_.start + duration_;
    now_.name = index_of(name_);
    if (*kind == EventKind::op) now_.shapes = index_of(shapes_);
    if (*kind == EventKind::kernel || *kind == EventKind::copy) {
      if (stream_ >= 0) now_.thread = stream_;
      add_gpu(device_ >= 0 ? device_ : process_);  // a GPU's events have its number for a process
    }
    trace_.events.push_back(now_);
  }
  void add_gpu(std::int64_t gpu) {
    const auto at = std::lower_bound(trace_.gpus.begin(), trace_.gpus.end(), gpu);
    if (at == trace_.gpus.end() || *at != gpu) trace_.gpus.insert(at, gpu);
  }
  std::uint32_t index_of(const std::string& name) {
    const auto [entry, fresh] =
        names_.try_emplace(name, static_cast<std::uint32_t>(trace_.names.size()));
    if (fresh) trace_.names.push_back(name);
    return entry->second;
  }
  std::uint32_t index_of(const OpShapes& shapes) {
    const bool recorded = std::any_of(shapes.dims.begin(), shapes.dims.end(),
                                      [](const auto& extents) { return !extents.empty(); });
    if (!recorded) return 0;
    const auto [entry, fresh] =
        known_shapes_.try_emplace(std::tie(shapes.dims, shapes.types, shapes.values),
                                  static_cast<std::uint32_t>(trace_.shapes.size()));
    if (fresh) trace_.shapes.push_back(shapes);
    return entry->second;
  }

  using ShapesKey = std::tuple<std::vector<std::vector<std::int64_t>>, std::vector<std::string>,
                               std::vector<std::string>>;

  KinetoTrace& trace_;
  ByteSource& source_;
  const std::string& path_;
  std::size_t depth_ = 0;   ///< containers that are open
  std::size_t events_ = 0;  ///< depth of a value in the list of events; 0: not met yet
  std::size_t seen_ = 0;
  std::array<std::string, 6> keys_{};  ///< the last key by depth
  TraceEvent now_{};
  OpShapes shapes_{};
  std::string phase_, category_, name_;
  long double start_ = 0, zero_ = 0;  ///< of the event, and of the first that is kept
  double duration_ = 0;
  std::int64_t stream_ = -1, device_ = -1, process_ = -1;
  bool has_events_ = false;
  std::unordered_map<std::string, std::uint32_t> names_;
  std::map<ShapesKey, std::uint32_t> known_shapes_;
};

}  // namespace

KinetoTrace read_kineto_trace(const std::string& path) {
  KinetoTrace trace;
  ByteSource source(path);
  TraceBuilder builder(trace, source, path);
  nlohmann::json::sax_parse(ByteIterator{&source}, ByteIterator{}, &builder);
  if (!builder.has_events()) {
    throw InputError(path, "JSON without the list traceEvents", accepted_trace);
  }
  if (trace.gpus.empty()) {
    throw InputError(path, fmt::format("no kernel of a GPU among its {} events", builder.seen()),
                     "accepted: a trace with activities=[ProfilerActivity.CPU, "
                     "ProfilerActivity.CUDA]");
  }
  if (trace.gpus.size() > 1) {
    throw InputError(path, fmt::format("work of {} GPUs", trace.gpus.size()),
                     "accepted: the trace of a process that uses one");
  }
  return trace;
}

}  // namespace parsim::experiment
