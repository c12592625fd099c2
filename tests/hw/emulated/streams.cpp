// Streams, events and graphs of the emulated GPUs (machine.hpp).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>
#include <thread>
#include <utility>

#include "tests/hw/emulated/machine.hpp"

namespace emulated {

namespace {

Nanoseconds host_now = 0;
const CUstream_st* moved_to = nullptr;
bool progress = false;
std::vector<ItemPtr> ready, waiting;
std::vector<CUstream_st*> streams;
std::map<int, std::unique_ptr<CUstream_st>> legacy;

std::mt19937& order() {
  static std::mt19937 generator(settings().seed);
  return generator;
}

void finish(const ItemPtr& item, Nanoseconds end) {
  item->done = true;
  item->end = std::max(item->start, end);
  item->work = {};
  for (const ItemPtr& next : item->followers) {
    next->start = std::max(next->start, item->end);
    if (--next->waits == 0) ready.push_back(next);
  }
  item->followers.clear();
}

/// A kernel that shares a GPU's memory.
struct Sharing {
  ItemPtr item;
  MemoryWant want;
  Nanoseconds left = 0;
  double factor = 1;
};
std::vector<Sharing> sharing;
Nanoseconds shared_until = 0;
MemoryWant wanted;

/// Shares add up to the rate: bisection of the level to which all weights are raised.
void share(int device) {
  const auto given = [&](double level) {
    double sum = 0;
    for (const Sharing& one : sharing) {
      if (one.want.device == device) sum += std::min(one.want.demand, level * one.want.weight);
    }
    return sum;
  };
  double low = 0;
  double high = 1;  // no demand exceeds its whole weight
  for (int bit = 0; bit < 50 && given(1) > settings().memory_for; ++bit) {
    const double middle = (low + high) / 2;
    (given(middle) <= settings().memory_for ? low : high) = middle;
  }
  for (Sharing& one : sharing) {
    if (one.want.device != device) continue;
    one.factor = std::max(1.0, one.want.demand / (high * one.want.weight));
  }
}

void share_until(Nanoseconds date) {
  if (date <= shared_until) return;
  for (Sharing& one : sharing) one.left -= (date - shared_until) / one.factor;
  shared_until = date;
}

/// Ends the kernel that ends first, if that is before the date.
bool end_sharing(Nanoseconds date) {
  const auto end = [](const Sharing& one) {
    return shared_until + std::max(0.0, one.left) * one.factor;
  };
  const auto first =
      std::min_element(sharing.begin(), sharing.end(),
                       [&](const Sharing& a, const Sharing& b) { return end(a) < end(b); });
  if (first == sharing.end() || end(*first) > date) return false;
  const Sharing ended = *first;
  share_until(end(*first));
  sharing.erase(first);
  share(ended.want.device);
  finish(ended.item, shared_until);
  return true;
}

bool attempt(const ItemPtr& item) {
  wanted = {};
  const auto end = item->work ? item->work(item->start) : std::optional(item->start);
  if (end && wanted.weight > 0 && settings().memory_for > 0) {
    share_until(item->start);
    sharing.push_back({item, wanted, *end - item->start, 1});
    share(wanted.device);
  } else if (end) {
    finish(item, *end);
  }
  return end.has_value();
}

/// Which of those that may begin does: any; in the order of dates the first.
std::size_t chosen() {
  if (settings().memory_for == 0) return order()() % ready.size();
  const auto first =
      std::min_element(ready.begin(), ready.end(),
                       [](const ItemPtr& a, const ItemPtr& b) { return a->start < b->start; });
  return static_cast<std::size_t>(first - ready.begin());
}

/// Whether anything happened.
bool step() {
  if (!ready.empty()) {
    std::swap(ready[chosen()], ready.back());
    if (end_sharing(ready.back()->start)) return true;
    const ItemPtr item = ready.back();
    ready.pop_back();
    if (!attempt(item)) waiting.push_back(item);
    return true;
  }
  if (end_sharing(std::numeric_limits<Nanoseconds>::infinity())) return true;
  const std::size_t before = waiting.size();
  progress = false;
  for (const ItemPtr& item : std::exchange(waiting, {})) {
    if (!attempt(item)) waiting.push_back(item);
  }
  return progress || waiting.size() != before;
}

ItemPtr make(Work work, bool outside, const std::vector<ItemPtr>& after) {
  auto item = std::make_shared<Item>();
  item->work = std::move(work);
  item->outside = outside;
  item->start = host_now;
  for (const ItemPtr& before : after) {
    if (!before) continue;
    if (before->done) {
      item->start = std::max(item->start, before->end);
    } else {
      before->followers.push_back(item);
      ++item->waits;
    }
  }
  if (item->waits == 0) ready.push_back(item);
  return item;
}

void wait_for(const ItemPtr& item) {
  if (!item) return;
  work_until(item.get());
  host_now = std::max(host_now, item->end);
}

void issue_cost(Nanoseconds time) { host_now += time; }

/// The work as a graph's that is launched on the stream.
Work moved(const Work& work, const CUstream_st* stream) {
  if (settings().graphs != Graphs::move) return work;
  return [=](Nanoseconds start) {
    moved_to = stream;
    const auto end = work(start);
    moved_to = nullptr;
    return end;
  };
}

void merge(std::vector<std::size_t>& heads, const std::vector<std::size_t>& others) {
  heads.insert(heads.end(), others.begin(), others.end());
  std::sort(heads.begin(), heads.end());
  heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
}

}  // namespace

const CUstream_st* graph_moved_to() { return moved_to; }
void want_memory(MemoryWant want) { wanted = want; }
void note_progress() { progress = true; }

void restart() { order().seed(settings().seed); }

void work_until(const Item* item) {
  using Clock = std::chrono::steady_clock;
  constexpr auto timeout = std::chrono::seconds(60);
  auto last = Clock::now();
  while (item == nullptr || !item->done) {
    if (step()) {
      last = Clock::now();
      continue;
    }
    if (item == nullptr) return;
    const bool outside = std::any_of(waiting.begin(), waiting.end(),
                                     [](const ItemPtr& one) { return one->outside; });
    if (!outside || Clock::now() - last > timeout) {
      std::fprintf(stderr, "emulated GPU: a stream waits for ever\n");
      std::abort();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void drain(int device) {
  for (CUstream_st* stream : streams) {
    if (stream->device == device) wait_for(stream->last);
  }
}

CUstream_st* stream_of(cudaStream_t stream) {
  if (stream != nullptr) return stream;
  auto& own = legacy[current_device()];
  if (!own) {
    own = std::make_unique<CUstream_st>();
    own->device = current_device();
    streams.push_back(own.get());
  }
  return own.get();
}

cudaError_t put(cudaStream_t handle, Work work, bool outside) {
  CUstream_st* stream = stream_of(handle);
  if (stream->device != current_device()) return failed(cudaErrorInvalidResourceHandle);
  issue_cost(1000);
  if (const auto capture = stream->capture) {
    if (capture->broken) return failed(cudaErrorStreamCaptureInvalidated);
    capture->nodes.push_back({std::move(work), outside, stream->heads});
    stream->heads = {capture->nodes.size() - 1};
    return cudaSuccess;
  }
  stream->last = make(std::move(work), outside, {stream->last});
  return cudaSuccess;
}

}  // namespace emulated

using namespace emulated;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (flags != cudaStreamNonBlocking) return failed(cudaErrorNotSupported);
  *stream = new CUstream_st;
  (*stream)->device = current_device();
  streams.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream->capture) return failed(cudaErrorStreamCaptureUnsupported);
  wait_for(stream->last);
  std::erase(streams, stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream_of(stream)->capture) return failed(cudaErrorStreamCaptureUnsupported);
  wait_for(stream_of(stream)->last);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream_of(stream)->capture) return failed(cudaErrorStreamCaptureUnsupported);
  const ItemPtr last = stream_of(stream)->last;
  if (last && !last->done) work_until(nullptr);
  if (last && !last->done) return cudaErrorNotReady;
  if (last) host_now = std::max(host_now, last->end);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
  for (const CUstream_st* stream : streams) {
    if (stream->capture) return failed(cudaErrorStreamCaptureUnsupported);
  }
  drain(current_device());
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st;
  (*event)->device = current_device();
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  CUstream_st* stream = stream_of(handle);
  if (event->device != stream->device) return failed(cudaErrorInvalidResourceHandle);
  issue_cost(500);
  event->capture = stream->capture;
  event->heads = stream->heads;
  event->item = {};
  if (!stream->capture) event->item = stream->last = make({}, false, {stream->last});
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  CUstream_st* stream = stream_of(handle);
  issue_cost(500);
  if (event->capture) {
    if (event->capture->origin == nullptr) return failed(cudaErrorCapturedEvent);
    if (stream->capture && stream->capture != event->capture) {
      return failed(cudaErrorStreamCaptureMerge);
    }
    if (!stream->capture) {
      stream->capture = event->capture;
      stream->heads.clear();
      event->capture->streams.push_back(stream);
    }
    merge(stream->heads, event->heads);
    return cudaSuccess;
  }
  if (stream->capture) {
    stream->capture->broken = true;
    return failed(cudaErrorStreamCaptureIsolation);
  }
  if (event->item) stream->last = make({}, false, {stream->last, event->item});
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->timed || !end->timed || begin->device != end->device || !begin->item || !end->item) {
    return failed(cudaErrorInvalidResourceHandle);
  }
  if (!begin->item->done || !end->item->done) return failed(cudaErrorNotReady);
  *milliseconds = static_cast<float>((end->item->end - begin->item->end) * 1e-6);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || stream->capture) return failed(cudaErrorStreamCaptureUnsupported);
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->streams = {stream};
  stream->heads.clear();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const auto capture = stream->capture;
  if (!capture || capture->origin != stream) return failed(cudaErrorStreamCaptureUnmatched);
  std::vector<bool> joined(capture->nodes.size());
  for (const std::size_t head : stream->heads) joined[head] = true;
  for (std::size_t i = capture->nodes.size(); i-- > 0;) {
    for (const std::size_t before : capture->nodes[i].after) {
      if (joined[i]) joined[before] = true;
    }
  }
  for (CUstream_st* one : capture->streams) {
    one->capture.reset();
    one->heads.clear();
  }
  capture->origin = nullptr;
  if (capture->broken || !settings().captures) return failed(cudaErrorStreamCaptureInvalidated);
  if (std::find(joined.begin(), joined.end(), false) != joined.end()) {
    return failed(cudaErrorStreamCaptureUnjoined);
  }
  *graph = new CUgraph_st{capture->nodes};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  CUstream_st* stream = stream_of(handle);
  if (stream->device != current_device()) return failed(cudaErrorInvalidResourceHandle);
  issue_cost(5000);
  std::vector<ItemPtr> items;
  std::vector<ItemPtr> ends{stream->last};
  for (const Node& node : executable->nodes) {
    std::vector<ItemPtr> after;
    for (const std::size_t before : node.after) after.push_back(items[before]);
    if (after.empty()) after.push_back(stream->last);
    items.push_back(make(moved(node.work, stream), node.outside, after));
  }
  ends.insert(ends.end(), items.begin(), items.end());
  stream->last = make({}, false, ends);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
}
