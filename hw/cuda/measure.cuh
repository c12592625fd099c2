// What CudaExecutor is asked: what operations and steps take, and whether their numbers are right.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "hw/cuda/run.hpp"
#include "hw/cuda/step.cuh"
#include "hw/host.hpp"

namespace parsim::hw {

/// How many sets of a DAG's tensors an operation goes through in turn, so that it does not find all
/// of its operands in the cache because it has just used them: three, if memory allows.
struct BufferSets {
  int count = 3;
  MemoryRules rules{false, false};  ///< as in a step only if memory does not allow one set
};
[[nodiscard]] inline BufferSets buffer_sets(const CudaDevices& devices, const ExecDag& dag) {
  BufferSets sets;
  std::map<int, std::int64_t> held;  // by GPU: partitions share one
  const std::vector<Bytes> bytes = bytes_held(dag, stores(dag));
  for (std::size_t d = 0; d < bytes.size(); ++d) held[devices.all()[d].gpu] += bytes[d].value;
  for (const auto& [gpu, all] : held) {
    std::size_t free = 0;
    std::size_t total = 0;
    cuda_check(cudaSetDevice(gpu), "cudaSetDevice");
    cuda_check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    // Workspaces and the libraries' own needs take the rest.
    const double most = 0.6 * static_cast<double>(free);
    if (static_cast<double>(sets.count * all) > most) sets.count = 1;
    sets.rules.reuse = sets.rules.reuse || static_cast<double>(all) > most;
  }
  return sets;
}

/// Times of what is done by itself, again and again: each sample so often in a row that the clock
/// tells it, altogether not much longer than it takes to be sure.
template <class T, class One>
Spread time_repeated(CudaStep<T>& step, const One& one, int samples) {
  constexpr int most_repeats = 12, few_repeats = 4, least_repeats = 3, least_samples = 5;
  constexpr Seconds long_enough{60e-3};
  constexpr Seconds short_operation{100e-6};
  const Seconds about = step.timed(one, 1, least_repeats).front();
  const double times_over = long_enough / std::max(about, Seconds{1e-9});
  const auto at_most = [](double number, int least, int most) {
    return std::clamp(static_cast<int>(std::min(number, 1e6)), least, most);
  };
  const int repeats = at_most(times_over / samples, least_repeats, most_repeats);
  const int taken = std::min(samples, at_most(times_over / repeats, least_samples, samples + 5));
  std::vector<Seconds> times = step.timed(one, taken, repeats);
  if (about < short_operation && repeats > few_repeats) {
    // What a graph's beginning and end cost is in any number of repeats once.
    const std::vector<Seconds> few = step.timed(one, taken, few_repeats);
    for (std::size_t i = 0; i < times.size(); ++i) {
      times[i] = std::max(Seconds{}, (repeats * times[i] - few_repeats * few[i]) /
                                         static_cast<double>(repeats - few_repeats));
    }
  }
  return spread_of(times);
}

template <class T>
std::vector<Spread> CudaRuns<T>::alone(const CudaDevices& devices, const ExecDag& dag,
                                       const std::vector<OpId>& ops, int samples) {
  std::vector<std::unique_ptr<CudaStep<T>>> sets;
  for (const BufferSets wanted = buffer_sets(devices, dag); std::ssize(sets) < wanted.count;) {
    try {
      sets.push_back(std::make_unique<CudaStep<T>>(devices, dag, wanted.rules, false,
                                                   sets.empty() ? nullptr : sets.front().get()));
    } catch (const MemoryError&) {  // of the libraries' workspaces
      if (sets.empty()) throw;
      break;
    }
    sets.back()->issue_first();  // tensors have the values of a step
    sets.back()->synchronize();
  }
  std::vector<Spread> spreads;
  for (const OpId op : ops) {
    std::size_t next = 0;
    const auto one = [&] { sets[next++ % sets.size()]->one_op(op); };
    spreads.push_back(time_repeated(*sets.front(), one, samples));
  }
  while (!sets.empty()) sets.pop_back();  // the first one has the streams
  return spreads;
}

[[nodiscard]] inline std::vector<Seconds> lengths(const std::vector<Span>& spans) {
  std::vector<Seconds> times;
  for (const Span& span : spans) times.push_back(span.end - span.start);
  return times;
}
/// Of an operation's spans, those during which all others were being repeated; if none, the first.
[[nodiscard]] inline std::vector<Span> during(const std::vector<std::vector<Span>>& all,
                                              std::size_t which) {
  Seconds begin{};
  Seconds end = all[which].back().end;
  for (const std::vector<Span>& spans : all) {
    begin = std::max(begin, spans.front().start);
    end = std::min(end, spans.back().end);
  }
  std::vector<Span> inside;
  for (const Span& span : all[which]) {
    if (span.start >= begin && span.end <= end) inside.push_back(span);
  }
  return inside.empty() ? std::vector<Span>{all[which].front()} : inside;
}

template <class T>
std::vector<std::vector<Beside>> CudaRuns<T>::together(
    const CudaDevices& devices, const ExecDag& dag,
    const std::vector<std::vector<Neighbour>>& groups, int samples) {
  constexpr int most_repeats = 250;  // more do not go on a stream that is held
  CudaStep<T> step(devices, dag, buffer_sets(devices, dag).rules, false);
  step.issue_first();
  step.synchronize();
  std::vector<std::vector<Beside>> times;
  for (const std::vector<Neighbour>& group : groups) {
    times.emplace_back();
    Seconds slowest{};
    for (const Neighbour& one : group) {
      static_cast<void>(step.repeated({{one, {}, 2}}));  // warm up
      const Spread alone = spread_of(lengths(step.repeated({{one, {}, samples}}).front()));
      times.back().push_back({alone, {}});
      slowest = std::max(slowest, alone.median);
    }
    // Long enough for twice as many of the slowest: if it alone is held up, half of them count.
    const Seconds whole = 2 * samples * slowest;
    std::vector<typename CudaStep<T>::Repeats> all;
    for (std::size_t i = 0; i < group.size(); ++i) {
      const Seconds each = std::max(times.back()[i].alone.median, Seconds{1e-7});
      const int count = std::clamp(static_cast<int>(std::ceil(whole / each)), 1, most_repeats);
      all.push_back({group[i], each, count});
    }
    const std::vector<std::vector<Span>> spans = step.repeated(all);
    for (std::size_t i = 0; i < group.size(); ++i) {
      times.back()[i].during = spread_of(lengths(during(spans, i)));
    }
  }
  return times;
}

/// From one empty kernel to the next, in a graph if the libraries allow: as steps are issued.
template <class T>
Spread CudaRuns<T>::launch(const CudaDevices& devices, int samples) {
  constexpr int kernels = 1000;
  ExecDag dag;
  dag.batch = 1;
  dag.add(Delay{DeviceId{0}, {}}, {});
  CudaStep<T> step(devices, dag, {}, false);
  return spread_of(step.timed([&] { step.nothing(); }, samples, kernels));
}

/// A step that has been issued once: in every process, or in none.
template <class T>
std::unique_ptr<CudaStep<T>> first_step(const CudaDevices& devices, const ExecDag& dag,
                                        const MemoryRules& rules, bool exact) {
  std::unique_ptr<CudaStep<T>> step;
  const auto make = [&] { step = std::make_unique<CudaStep<T>>(devices, dag, rules, exact); };
  if (devices.processes() != nullptr) {
    together(*devices.processes(), make);
    step->connect();
  } else {
    make();
  }
  step->issue_first();
  step->synchronize();
  return step;
}

/// Says on standard error how attention runs where it could be fused, in 16 bits.
template <class T>
void tell_attention(const CudaDevices& devices, CudaStep<T>& step) {
  const auto count = step.engine().attention_count();
  const bool speaks = !devices.mine() || devices.mine()->value == 0;
  if (sizeof(T) != 2 || count.all == 0 || !speaks) return;
  static_cast<void>(std::fprintf(
      stderr, "parsim-hw: attention: %d of %d kernels are cuDNN's fused ones%s\n", count.fused,
      count.all, count.fused < count.all ? ", the others store scores" : ""));
}

/// Says on standard error how many products run in FP8, if the DAG asks for it.
template <class T>
void tell_fp8(const CudaDevices& devices, const ExecDag& dag, CudaStep<T>& step) {
  const bool speaks = !devices.mine() || devices.mine()->value == 0;
  if (!multiplies_in_fp8(dag.precision) || !speaks) return;
  static_cast<void>(std::fprintf(stderr, "parsim-hw: %d products of linear layers are in FP8\n",
                                 step.engine().fp8_products()));
}

/// Steps with the spans of their operations, after one to warm up; with processes, at rank 0.
template <class T>
std::vector<Timeline> traced(const CudaDevices& devices, CudaStep<T>& step, int steps) {
  std::vector<Timeline> runs;
  static_cast<void>(step.with_events());
  for (int s = 0; s < steps; ++s) runs.push_back(step.with_events());
  Processes* others = devices.processes();
  return others == nullptr ? runs : whole_steps(*others, step.order(), runs);
}

template <class T>
Timeline CudaRuns<T>::run(const CudaDevices& devices, const ExecDag& dag) {
  const std::vector<Timeline> runs = traced(devices, *first_step<T>(devices, dag, {}, false), 1);
  return runs.empty() ? Timeline{} : runs.front();
}

template <class T>
Measurement CudaRuns<T>::step(const CudaDevices& devices, const ExecDag& dag, int steps) {
  const auto step = first_step<T>(devices, dag, {}, false);
  tell_attention(devices, *step);
  tell_fp8(devices, dag, *step);
  std::vector<Seconds> times = step->timed([&] { step->issue_all(); }, steps, 1);
  if (Processes* others = devices.processes()) times = slowest(*others, times);
  Measurement result = measurement_of(times, traced(devices, *step, std::max(5, steps / 3)));
  result.device_bytes = step->device_bytes();
  if (Processes* others = devices.processes()) {
    const std::size_t mine = devices.mine()->index();
    const std::vector<std::string> all =
        others->all_gather(std::to_string(result.device_bytes[mine]));
    for (std::size_t d = 0; d < result.device_bytes.size(); ++d) {
      result.device_bytes[d] = std::stoll(all[d]);
    }
    if (result.timeline.spans.empty()) result = {};  // another process has the result
  }
  return result;
}

/// The worst store beyond the tolerance, or "".
template <class T>
std::string CudaRuns<T>::check(const CudaDevices& devices, const ExecDag& dag) {
  HostNumbers expected(dag);
  // All numbers where every tensor has a place of its own; then what a step leaves that reuses
  // memory.
  std::string worst;
  for (const bool reuse : {false, true}) {
    const auto step = first_step<T>(devices, dag, {reuse, !reuse, 0}, true);
    if (dag.precision == Precision::fp8_delayed) {  // again, by the scales of the first step
      step->engine().reset();
      step->issue_all();
      step->synchronize();
    }
    if (!reuse) {
      tell_attention(devices, *step);
      tell_fp8(devices, dag, *step);
    }
    const CudaEngine<T>& engine = step->engine();
    const FoundNumbers found = [&](const StoreKey& key, const Region& region) {
      std::vector<T> raw = engine.download(key);
      const View<T> view =
          dense_view(raw.data(), engine.stores().all.at(key).box, engine.layout(key));
      Loops loops;  // row-major
      for (std::size_t a = 0; a < region.rank(); ++a) {
        loops.over(a, narrow(region[a].begin), static_cast<std::uint32_t>(region[a].size()));
      }
      std::vector<double> values;
      for (std::uint32_t i = 0; i < loops.size(); ++i) {
        values.push_back(static_cast<double>(view.wide(loops.index(i))));
      }
      return values;
    };
    if (!reuse) {
      // Of other processes' devices nothing is found here.
      const bool has_all = devices.processes() == nullptr;
      static_cast<void>(expected.run(dispatch(dag), has_all ? found : FoundNumbers{}));
    }
    Stores compared = engine.stores();
    std::erase_if(compared.all, [&](const auto& entry) {
      return holds_statistics(entry.first) || (reuse && entry.first.role != Role::weight);
    });
    const std::string difference =
        worst_difference(expected, compared, dag.precision, tolerance(dag), found);
    if (worst.empty() && !difference.empty()) {
      worst = (reuse ? "memory reused: " : "") + difference;
    }
  }
  if (devices.processes() == nullptr) return worst;
  for (const std::string& one : devices.processes()->all_gather(worst)) {
    if (!one.empty()) return one;
  }
  return {};
}

}  // namespace parsim::hw
