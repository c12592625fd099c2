#include "sim/collective_tables.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>

#include "core/timeline.hpp"
#include "sim/collectives.hpp"
#include "sim/communication_sources.hpp"
#include "tests/sim/small_dags.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"
#include "topologies/topologies.hpp"

namespace parsim::sim {
namespace {

using namespace testing;

constexpr CollectiveKind every_kind[] = {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                         CollectiveKind::reduce_scatter, CollectiveKind::broadcast,
                                         CollectiveKind::all_to_all};

std::string example(const std::string& name) {
  return testing::read_text(PARSIM_SOURCE_DIR "/tests/sim/data/" + name);
}

std::vector<CollectiveTable> tables_of(const std::string& text, const CollectiveHint& hint = {}) {
  return read_collective_tables(text, "log.txt", hint);
}

std::string refused(const std::string& text, const CollectiveHint& hint = {}) {
  return refusal_of([&] { return tables_of(text, hint); });
}

TEST_CASE("collective tables: what nccl-tests print, new and old, is read out of place") {
  const auto read = tables_of(example("all_reduce_8.txt"));
  REQUIRE(read.size() == 1);
  CHECK(read[0].kind == CollectiveKind::all_reduce);
  CHECK(read[0].ranks == 8);
  CHECK(read[0].source == "log.txt:19");
  REQUIRE(read[0].times.size() == 11);
  CHECK(read[0].times.at(1024).count() == testing::approx(20.01e-6));
  CHECK(read[0].times.at(1 << 30).count() == testing::approx(8189.8e-6).epsilon(1e-4));
  // Rows of no bytes, where a rank's share of a small size rounds to none, say nothing.
  const auto gather = tables_of(example("all_gather_8.txt"));
  CHECK(gather[0].kind == CollectiveKind::all_gather);
  CHECK(gather[0].times.begin()->first == 1024);
  const auto exchange = tables_of(example("all_to_all_4.txt"));  // "N/A" wrong values in place
  CHECK(exchange[0].kind == CollectiveKind::all_to_all);
  CHECK(exchange[0].ranks == 4);
  // No root, no version; the name stands in the command above.
  const auto old = tables_of(example("all_reduce_old_4.txt"));
  CHECK(old[0].kind == CollectiveKind::all_reduce);
  CHECK(old[0].ranks == 4);
  CHECK(old[0].times.at(8).count() == testing::approx(15e-6));
}

TEST_CASE("collective tables: logs around and between the rows change nothing") {
  const std::string text = example("all_reduce_8.txt");
  const std::string row = "        4096          1024";
  const std::string noisy =
      "Warning: Permanently added 'box,10.0.0.1' to the list of known hosts.\n"
      "job 17 on box\n\n" +
      with(text, row, "box:42:42 [0] NCCL INFO comm 0x5 nRanks 08\n" + row) + "done in 12 s\n";
  CHECK(tables_of(noisy)[0].times == tables_of(text)[0].times);
}

TEST_CASE("collective tables: the user may state what a text lacks, but not contradict it") {
  std::string anonymous = example("all_reduce_old_4.txt");
  anonymous = anonymous.substr(anonymous.find('\n') + 1);
  CHECK(refused(anonymous) ==
        "log.txt: no name of the test that printed it; accepted: with its line '# Collective test "
        "starting: …_perf', or KIND:FILE, as in all-reduce:FILE");
  const auto named = tables_of(anonymous, {CollectiveKind::broadcast, {}});
  CHECK(named[0].kind == CollectiveKind::broadcast);
  const std::string bare = anonymous.substr(anonymous.find("#       size"));
  CHECK(refused(bare, {CollectiveKind::all_reduce, {}}) ==
        "log.txt: it does not say over how many ranks; accepted: with its lines '#  Rank  0 …', or "
        "KIND,RANKS:FILE, as in all-reduce,8:FILE");
  CHECK(tables_of(bare, {CollectiveKind::all_reduce, 6})[0].ranks == 6);
  CHECK(refused(example("all_reduce_old_4.txt"), {CollectiveKind::all_gather, {}}) ==
        "log.txt: a test of all-reduce, given as all-gather; accepted: KIND:FILE of the same kind");
  CHECK(refused(example("all_reduce_old_4.txt"), {{}, 8}) ==
        "log.txt: 4 ranks, given as 8; accepted: KIND,RANKS:FILE with the ranks of the file");
  CHECK(refused(with(example("all_reduce_8.txt"), "07:00.0] NVIDIA A100-SXM4-40GB", "...")) ==
        "log.txt: its list of ranks is cut off; accepted: with its lines '#  Rank  0 …', or "
        "KIND,RANKS:FILE, as in all-reduce,8:FILE");
}

TEST_CASE("collective tables: of a split run, the group of rank 0 counts") {
  std::string text = example("all_reduce_8.txt");
  for (const char* rank : {"1", "3", "5", "7"}) {
    text = with(text, std::string("Rank  ") + rank + " Group  0",
                std::string("Rank  ") + rank + " Group  1");
  }
  CHECK(tables_of(text)[0].ranks == 4);
}

TEST_CASE("collective tables: broken files are refused with their line") {
  const std::string text = example("all_reduce_8.txt");
  // The row of 4096 bytes is line 20.
  CHECK(refused("hello\n") ==
        "log.txt: neither a table of nccl-tests nor CSV with a column size_bytes; accepted: what "
        "nccl-tests print, with its head line '#  size  count  type …  time  algbw  busbw …'");
  CHECK(refused("") == refused("hello\n"));
  CHECK(refused("# a letter\n\nDear reader, all is well,\nand so on.\n") == refused("hello\n"));
  CHECK(refused(text.substr(0, text.find("\n        1024"))) ==
        "log.txt:17: a table without rows; accepted: at least one size");
  CHECK(refused(with(text, "        4096", "        4O96")) ==
        "log.txt:20: size '4O96'; accepted: whole bytes");
  CHECK(refused(with(text, "        4096", "       -4096")) ==
        "log.txt:20: size '-4096'; accepted: whole bytes");
  CHECK(refused(with(text, "        1024", "        8192")) ==
        "log.txt:20: size 4096 after 8192 (of all-reduce over 8 ranks); accepted: one measurement "
        "of one machine, sizes that increase (some kinds round to 16 B a rank: two steps of -i may "
        "be "
        "one size)");
  for (const char* time : {"  -3.02", "    nan", "    inf", "   0.00", " 20,03 "}) {
    CAPTURE(time);
    const std::string message = refused(with(text, "  20.03", time));
    CHECK(message.starts_with("log.txt:20: time '"));
    CHECK(message.ends_with("'; accepted: microseconds above 0"));
  }
  CHECK(refused(text.substr(0, text.find("4096") + 30)) ==
        "log.txt:20: 3 columns; accepted: the 13 of the head line");
  CHECK(refused(with(text, "(us)", "(ms)")) ==
        "log.txt:18: the unit (ms); accepted: (B) for sizes, (us) for times, (GB/s) for rates");
  CHECK(refused(with(text, "(B)", "(KB)")) ==
        "log.txt:18: the unit (KB); accepted: (B) for sizes, (us) for times, (GB/s) for rates");
  CHECK(
      refused(with(text, "  20.03", "  0.020")) ==
      "log.txt:20: 4096 B in 0.020 us, which is not 0.20 GB/s; accepted: sizes in bytes, times in "
      "microseconds");
  CHECK(refused(with(text, "    time", " cputime")) == "accepted");  // the second one is of GPUs
  CHECK(refused(with(text, "  algbw", "   rate")) == "accepted");
  CHECK(refused(with(with(text, "    time", " cputime"), "    time", " cputime")) ==
        "log.txt:17: no column 'time'; accepted: size, time and algbw among the columns of "
        "nccl-tests (times of GPUs, so without --report_cputime)");
  CHECK(refused(text + text) == "log.txt:50: a second table; accepted: one test in a file");
  CHECK(refused(with(text, "       0    20.23", "       2    20.23")) ==
        "log.txt:20: 2 wrong values; accepted: a run whose results are right");
  CHECK(refused(with(text, "all_reduce_perf", "sendrecv_perf")) ==
        "log.txt:3: a test of 'sendrecv'; accepted: all_reduce, all_gather, reduce_scatter, "
        "broadcast or alltoall");
  CHECK(refused(with(text, "all_reduce_perf", "all_gather_perf")) ==
        "log.txt:33: 'all-reduce' after 'all-gather'; accepted: one test in a file");
}

constexpr const char* csv =
    "collective,n_gpus,size_bytes,time_us_outofplace,time_us_inplace,machine\n"
    "all_reduce,8,1024,20,21,box\n"
    "all_reduce,8,4096,,25,box\n"
    "all_reduce,4,1024,12,13,box\n"
    "reduce,8,1024,9,9,box\n";

TEST_CASE("collective tables: CSV has a table for each collective and number of GPUs") {
  CHECK(
      refused(csv) ==
      "log.txt:5:collective: 'reduce'; accepted: all_reduce, all_gather, reduce_scatter, broadcast "
      "or alltoall; or KIND:FILE to take the rows of one");
  const auto both = tables_of(csv, {CollectiveKind::all_reduce, {}});
  REQUIRE(both.size() == 2);
  CHECK(both[0].ranks == 4);
  CHECK(both[1].ranks == 8);
  CHECK(both[1].times.at(1024).count() * 1e6 == testing::approx(20));
  CHECK(both[1].times.at(4096).count() * 1e6 == testing::approx(25));  // there is none out of place
  CHECK(tables_of(csv, {CollectiveKind::all_reduce, 4}).size() == 1);
  CHECK(refused(csv, {CollectiveKind::broadcast, {}})
            .starts_with("log.txt: no rows of the requested"));
  CHECK(refused("collective,size_bytes\n").starts_with("log.txt:1: no column n_gpus (or nodes"));
  CHECK(refused("collective,size_bytes,n_gpus,time_ms\n")
            .starts_with("log.txt:1: no column time_us_outofplace or time_us_inplace"));
  CHECK(refused("collective,size_bytes,n_gpus,time_us_inplace\nall_reduce,8,2.5,3\n") ==
        "log.txt:2:n_gpus: '2.5'; accepted: a whole number");
}

TEST_CASE("collective tables: the published ones are read, one system at a time") {
  std::ifstream file(PARSIM_SOURCE_DIR "/validation/measurements/collectives.csv");
  std::string text, line;
  while (std::getline(file, line)) {
    if (text.empty() || line.find("A100-SXM4-40GB,1,8,8,") != line.npos) text += line + "\n";
  }
  for (const CollectiveKind kind : every_kind) {
    const auto tables = tables_of(text, {kind, {}});
    REQUIRE(tables.size() == 1);
    CHECK(tables[0].ranks == 8);
    CHECK(tables[0].times.size() >= 29);
  }
}

TEST_CASE("collective tables: two of one kind and number of ranks are one too many") {
  std::vector<CollectiveTable> all = tables_of(example("all_reduce_8.txt"));
  add_tables(all, tables_of(example("all_reduce_old_4.txt")));
  CHECK(find_table(all, CollectiveKind::all_reduce, {4}) == &all[1]);
  CHECK(find_table(all, CollectiveKind::all_reduce, {2}) == nullptr);
  CHECK(find_table(all, CollectiveKind::broadcast, {8}) == nullptr);
  // Its ranks were on one host: no times of eight machines with a GPU each.
  CHECK(all[0].machines == 1);
  CHECK(find_table(all, CollectiveKind::all_reduce, {8}) == &all[0]);
  CHECK(find_table(all, CollectiveKind::all_reduce, {8, 8, 8}) == nullptr);
  // Of unknown machines: on as few as have room for its ranks.
  all[0].machines = 0;
  CHECK(find_table(all, CollectiveKind::all_reduce, {8, 8, 8}) == &all[0]);
  CHECK(find_table(all, CollectiveKind::all_reduce, {8, 8, 1}) == nullptr);
  const auto machines = [](const std::string& columns, const std::string& fields) {
    return tables_of("collective,size_bytes,time_us_outofplace," + columns +
                     "\nall_reduce,1024,10," + fields + "\n")[0]
        .machines;
  };
  CHECK(machines("n_gpus", "16") == 0);
  CHECK(machines("n_gpus,gpus_per_node", "16,8") == 2);
  CHECK(machines("nodes,gpus_per_node", "4,8") == 4);
  all[0].machines = 1;
  CHECK(refusal_of([&] {
          add_tables(all, tables_of(example("all_reduce_8.txt")));
          return 0;
        }) ==
        "log.txt:19: all-reduce over 8 ranks again, after log.txt:19; accepted: one table for each "
        "kind and number of ranks and machines");
}

TEST_CASE("collective tables: between sizes log-log, outside level and in proportion, by hand") {
  const SizeTable table{{100, Seconds{2}}, {10000, Seconds{8}}};
  const auto at = [&](std::int64_t size) { return interpolated(table, Bytes{size})->count(); };
  CHECK(at(1) == 2);
  CHECK(at(100) == 2);
  CHECK(at(1000) == testing::approx(4));  // halfway on both logarithms
  CHECK(at(10000) == 8);
  CHECK(at(30000) == 24);
  CHECK(!interpolated({}, Bytes{1}));
}

SimOptions measured(std::vector<CollectiveTable> tables, Fidelity fidelity = Fidelity::hops,
                    Engine engine = Engine::fast) {
  SimOptions options;
  options.collectives = CollectiveCost::measured;
  options.tables = std::move(tables);
  options.fidelity = fidelity;
  options.engine = engine;
  return options;
}

/// A collective with equal shares as collective_dag makes them; `payload` as at Collective.
OpId add_equal(ExecDag& dag, CollectiveKind kind, const std::vector<DeviceId>& group,
               std::int64_t size) {
  const auto n = static_cast<std::int64_t>(group.size());
  if (kind != CollectiveKind::all_to_all) {
    return add_collective(dag, kind, group, std::vector<std::int64_t>(group.size(), size / n));
  }
  // Member i has [i·size, (i+1)·size) and every member needs its part of all of them: one interval
  // per receiver is not enough, so rows and columns.
  Shares shares;
  const TensorId tensor = dag.intern(Tensor{Tensor::Kind::parameter, 0, -1});
  for (std::int64_t i = 0; i < n; ++i) {
    shares.regions.push_back(dag.intern(Region{{i, i + 1}, {0, size / 2}}));
    shares.needs.push_back(dag.intern(Region{{0, n}, {i * size / n / 2, (i + 1) * size / n / 2}}));
  }
  const Slice all{tensor, Role::weight_gradient, 0, dag.intern(Region{{0, n}, {0, size / 2}})};
  return dag.add(Collective{kind, dag.intern(group), all, all}, shares, Stream::gradient, {});
}

TEST_CASE("collective tables: an idle collective takes the table's time, whatever the links") {
  // Links far slower and far faster than the tables, rings that share links, several nodes.
  for (const char* call :
       {"star:8,device=v100-sxm2,rate=1GB/s,latency=1us",
        "nvswitch:8,device=v100-sxm2,rate=900GB/s",
        "nodes:2x4,device=a100-sxm4-40,intra=200GB/s,inter=10GB/s", "dgx-v100"}) {
    const Cluster cluster = topologies::load_cluster(call, "test");
    const std::vector<DeviceId> group = devices_of(cluster, DeviceKind::gpu);
    for (const CollectiveKind kind : every_kind) {
      const CollectiveTable table{
          kind,
          8,
          {{4096, Seconds{30e-6}}, {1 << 20, Seconds{100e-6}}, {1 << 26, Seconds{4e-3}}},
          "test"};
      for (const Fidelity fidelity : {Fidelity::hops, Fidelity::macro, Fidelity::analytic}) {
        const SimOptions options = measured({table}, fidelity);
        const auto cost = make_tile_costs(cluster, options);
        const auto simulator = make_simulator(cluster, *cost, options);
        for (const std::int64_t size :
             {std::int64_t{1024}, std::int64_t{4096}, std::int64_t{65536}, std::int64_t{1} << 20,
              std::int64_t{1} << 24, std::int64_t{1} << 26, std::int64_t{1} << 28}) {
          CAPTURE(call);
          CAPTURE(to_text(kind));
          CAPTURE(size);
          ExecDag dag = bare_dag();
          const OpId op = add_equal(dag, kind, group, size);
          const double wanted = interpolated(table.times, Bytes{size})->count();
          CHECK(table_size(kind, 8, dag.payload(op)) == Bytes{size});
          // SimGrid counts nanoseconds, at each of a few events.
          CHECK(std::abs(length(simulator->run(dag), op).count() - wanted) < 5e-9);
          CHECK(cost->collective(kind, group, dag.payload(op)).count() ==
                testing::approx(wanted).epsilon(1e-6));
        }
      }
    }
  }
}

TEST_CASE("collective tables: SimGrid says the same") {
  const Cluster cluster = topologies::load_cluster("dgx-v100", "test");
  const std::vector<DeviceId> group = devices_of(cluster, DeviceKind::gpu);
  const SimOptions options =
      measured(tables_of(example("all_reduce_8.txt")), Fidelity::hops, Engine::simgrid);
  const auto cost = make_tile_costs(cluster, options);
  const auto simulator = make_simulator(cluster, *cost, options);
  for (const auto& [size, time] : options.tables[0].times) {
    ExecDag dag = bare_dag();
    const OpId op = add_equal(dag, CollectiveKind::all_reduce, group, size);
    CHECK(length(simulator->run(dag), op).count() == testing::approx(time.count()).epsilon(1e-6));
  }
}

TEST_CASE("collective tables: two collectives that share a link take longer than one") {
  // Pairs 0-1 and 2-3 of a cluster of two nodes with one link between: all-reduces of {0, 2} and
  // {1, 3} both cross it. 16 MiB each way at 10 GB/s take 1.68 ms; measured alone 2 ms.
  const Cluster cluster =
      topologies::load_cluster("nodes:2x2,device=v100-sxm2,intra=100GB/s,inter=10GB/s", "test");
  const CollectiveTable table{
      CollectiveKind::all_reduce, 2, {{4096, Seconds{50e-6}}, {1 << 24, Seconds{2e-3}}}, "test", 2};
  const SimOptions options = measured({table});
  const auto cost = make_tile_costs(cluster, options);
  const auto simulator = make_simulator(cluster, *cost, options);
  ExecDag dag = bare_dag();
  const OpId one =
      add_collective(dag, CollectiveKind::all_reduce, {DeviceId{0}, DeviceId{2}}, {1 << 24});
  CHECK(length(simulator->run(dag), one).count() == testing::approx(2e-3).epsilon(1e-9));
  const OpId two =
      add_collective(dag, CollectiveKind::all_reduce, {DeviceId{1}, DeviceId{3}}, {1 << 24});
  const Timeline both = simulator->run(dag);
  // Each carries 16 MiB over the link after about 50 us: 2 · 1.68 ms and the wait.
  const double flows = 2 * static_cast<double>(1 << 24) / 10e9;
  for (const OpId op : {one, two}) {
    CHECK(length(both, op).count() >= flows);
    CHECK(length(both, op).count() <= flows + 50e-6);
  }
}

TEST_CASE("collective tables: kinds and sizes of groups without a table run as NCCL's model says") {
  const Cluster cluster = topologies::load_cluster("dgx-v100", "test");
  PathCache paths(cluster);
  const std::vector<DeviceId> all = devices_of(cluster, DeviceKind::gpu);
  const std::vector<DeviceId> four(all.begin(), all.begin() + 4);
  const SimOptions options = measured(tables_of(example("all_reduce_8.txt")));
  SimOptions nccl = options;
  nccl.collectives = CollectiveCost::nccl;
  const Bytes payload{1 << 20};
  const auto time = [&](CollectiveKind kind, const auto& group, const SimOptions& how) {
    return collective_time(kind, group, payload, paths, how).count();
  };
  constexpr CollectiveKind sums = CollectiveKind::all_reduce, gathers = CollectiveKind::all_gather;
  CHECK(time(sums, all, options) == testing::approx(27.97e-6).epsilon(1e-3));
  CHECK(time(sums, all, options) != time(sums, all, nccl));
  CHECK(time(sums, four, options) == time(sums, four, nccl));
  CHECK(time(gathers, all, options) == time(gathers, all, nccl));

  ExecDag dag = bare_dag();
  (void)add_equal(dag, sums, all, payload.value);
  (void)add_equal(dag, sums, four, payload.value);
  (void)add_equal(dag, gathers, all, payload.value);
  (void)add_transfer(dag, 0, 1, payload.value);
  const auto cost = make_tile_costs(cluster, options);
  const std::vector<Seconds> times{Seconds{3}, Seconds{2}, Seconds{1}, Seconds{4}};
  const CommunicationSources sources = communication_sources(dag, times, cluster, *cost, options);
  CHECK(sources.measured == testing::approx(0.3));
  CHECK(sources.library == testing::approx(0.7));  // the transfer, too
  CHECK(sources.links == 0);
  CHECK(sources.lacking == std::vector<std::string>{"all-reduce over 4", "all-gather over 8"});
}

TEST_CASE("collective tables: of unknown machines, times between machines are said to be assumed") {
  const Cluster cluster =
      topologies::load_cluster("nodes:2x4,device=v100-sxm2,inter=10GB/s", "test");
  const auto all = devices_of(cluster, DeviceKind::gpu);
  std::vector<CollectiveTable> tables = tables_of(example("all_reduce_8.txt"));
  for (const std::int32_t machines : {0, 2}) {
    tables[0].machines = machines;
    const SimOptions options = measured(tables);
    ExecDag dag = bare_dag();
    (void)add_equal(dag, CollectiveKind::all_reduce, all, 1 << 20);
    const auto cost = make_tile_costs(cluster, options);
    const std::vector<Seconds> times{Seconds{1}};
    const auto sources = communication_sources(dag, times, cluster, *cost, options);
    CHECK(sources.measured == 1);
    CHECK(sources.assumed.size() == (machines == 0 ? 1 : 0));
  }
}

TEST_CASE("collective tables: what parts of one GPU exchange is no library's, only links'") {
  const Cluster cluster = topologies::load_cluster("dgx-v100", "test");
  PathCache paths(cluster);
  const std::vector<DeviceId> all = devices_of(cluster, DeviceKind::gpu);
  const std::vector<DeviceId> two(all.begin(), all.begin() + 2);
  const std::vector<DeviceId> three(all.begin(), all.begin() + 3);
  SimOptions options;
  options.collectives = CollectiveCost::nccl;
  SimOptions parts = options;
  parts.shared_gpus = {two};
  SimOptions ideal = options;
  ideal.collectives = CollectiveCost::ideal;
  const Bytes payload{1 << 20};
  for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::all_to_all}) {
    const auto time = [&](const auto& group, const SimOptions& how) {
      return collective_time(kind, group, payload, paths, how);
    };
    CHECK(time(two, parts) == time(two, ideal));
    CHECK(time(two, options) > time(two, ideal));
    CHECK(time(three, parts) == time(three, options));
  }
  CHECK(transfer_wait(two[0], two[1], payload, paths, parts) ==
        transfer_wait(two[0], two[1], payload, paths, ideal));
  CHECK(transfer_wait(two[0], three[2], payload, paths, parts) ==
        transfer_wait(two[0], three[2], payload, paths, options));
  ExecDag dag = bare_dag();
  (void)add_equal(dag, CollectiveKind::all_reduce, two, payload.value);
  (void)add_transfer(dag, 0, 1, payload.value);
  (void)add_equal(dag, CollectiveKind::all_reduce, three, payload.value);
  (void)add_transfer(dag, 0, 2, payload.value);
  const auto cost = make_tile_costs(cluster, parts);
  const std::vector<Seconds> times{Seconds{1}, Seconds{2}, Seconds{3}, Seconds{4}};
  const CommunicationSources sources = communication_sources(dag, times, cluster, *cost, parts);
  CHECK(sources.links == testing::approx(0.3));
  CHECK(sources.library == testing::approx(0.7));
}

}  // namespace
}  // namespace parsim::sim
