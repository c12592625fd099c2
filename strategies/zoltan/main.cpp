// parsim-zoltan: partitions a hypergraph with Zoltan's PHG (Devine et al. 2006), .hgr in, .part
// out. A program of its own: SimGrid exports MPI's symbols, so MPI may not stand beside it.
#include <fmt/format.h>
#include <fmt/ostream.h>
#include <mpi.h>
#include <zoltan.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "core/errors.hpp"
#include "strategies/hypergraph/hypergraph.hpp"

namespace parsim::hypergraph {
namespace {

constexpr const char* usage =
    "usage: parsim-zoltan FILE.hgr FILE.part PARTS [TOLERANCE [SEED [SHARE...]]]\n"
    "  TOLERANCE  a part may weigh (1 + TOLERANCE) of its target (default: 0.05)\n"
    "  SHARE      relative target of each part (default: all equal)";

struct Request {
  std::string in, out;
  int parts = 2;
  double tolerance = 0.05;
  int seed = 1;
  std::vector<float> shares;
};

template <class Number>
Number number(std::string_view text, std::string_view what, Number least) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= least))
    throw InputError(what, fmt::format("'{}'", text), fmt::format("a number from {} on", least));
  return value;
}

Request request_of(const std::vector<std::string>& words) {
  if (words.size() < 3) throw InputError("parsim-zoltan", "too few arguments", usage);
  Request request;
  request.in = words[0];
  request.out = words[1];
  request.parts = number<int>(words[2], "PARTS", 1);
  if (words.size() > 3) request.tolerance = number<double>(words[3], "TOLERANCE", 0);
  if (words.size() > 4) request.seed = number<int>(words[4], "SEED", 0);
  for (std::size_t i = 5; i < words.size(); ++i)
    request.shares.push_back(number<float>(words[i], "SHARE", 0));
  if (!request.shares.empty() && request.shares.size() != static_cast<std::size_t>(request.parts))
    throw InputError("SHARE", fmt::format("{} shares", request.shares.size()),
                     fmt::format("{}: one for each part", request.parts));
  return request;
}

/// What Zoltan asks for, in compressed form: nets with their pins and costs.
struct Nets {
  const Hypergraph& graph;
  std::vector<int> begin;
  std::vector<ZOLTAN_ID_TYPE> pins;
  std::vector<float> costs;

  explicit Nets(const Hypergraph& hypergraph) : graph(hypergraph) {
    for (std::size_t set = 0; set < graph.sources.size(); ++set) {
      for (const Source& source : graph.sources[set]) {
        begin.push_back(static_cast<int>(pins.size()));
        costs.push_back(static_cast<float>(source.cost));
        pins.push_back(static_cast<ZOLTAN_ID_TYPE>(source.vertex));
        for (const Vertex v : graph.readers[set]) {
          if (v != source.vertex) pins.push_back(static_cast<ZOLTAN_ID_TYPE>(v));
        }
      }
    }
  }
};

// Zoltan's callbacks; `data` is a Nets.

const Nets& nets_of(void* data) { return *static_cast<const Nets*>(data); }

int vertex_count(void* data, int* error) {
  *error = ZOLTAN_OK;
  return nets_of(data).graph.vertices;
}

void vertex_list(void* data, int, int, ZOLTAN_ID_PTR ids, ZOLTAN_ID_PTR, int, float* weights,
                 int* error) {
  const Hypergraph& graph = nets_of(data).graph;
  for (Vertex v = 0; v < graph.vertices; ++v) {
    ids[v] = static_cast<ZOLTAN_ID_TYPE>(v);
    weights[v] = static_cast<float>(graph.weight(v, 0));
  }
  *error = ZOLTAN_OK;
}

void net_sizes(void* data, int* lists, int* pins, int* format, int* error) {
  *lists = static_cast<int>(nets_of(data).begin.size());
  *pins = static_cast<int>(nets_of(data).pins.size());
  *format = ZOLTAN_COMPRESSED_EDGE;
  *error = ZOLTAN_OK;
}

void net_list(void* data, int, int, int, int, ZOLTAN_ID_PTR ids, int* begin, ZOLTAN_ID_PTR pins,
              int* error) {
  const Nets& nets = nets_of(data);
  std::iota(ids, ids + nets.begin.size(), ZOLTAN_ID_TYPE{0});
  std::copy(nets.begin.begin(), nets.begin.end(), begin);
  std::copy(nets.pins.begin(), nets.pins.end(), pins);
  *error = ZOLTAN_OK;
}

void cost_count(void* data, int* count, int* error) {
  *count = static_cast<int>(nets_of(data).costs.size());
  *error = ZOLTAN_OK;
}

void cost_list(void* data, int, int, int, int, ZOLTAN_ID_PTR ids, ZOLTAN_ID_PTR, float* costs,
               int* error) {
  const Nets& nets = nets_of(data);
  std::iota(ids, ids + nets.costs.size(), ZOLTAN_ID_TYPE{0});
  std::copy(nets.costs.begin(), nets.costs.end(), costs);
  *error = ZOLTAN_OK;
}

void expect_ok(int code, std::string_view what) {
  ensure(code == ZOLTAN_OK || code == ZOLTAN_WARN, fmt::format("Zoltan failed: {}", what));
}

Parts partitioned(const Hypergraph& graph, const Request& request) {
  Nets nets(graph);
  Zoltan_Struct* zoltan = Zoltan_Create(MPI_COMM_SELF);
  ensure(zoltan != nullptr, "Zoltan can be started");
  const auto set = [&](const char* name, const std::string& value) {
    expect_ok(Zoltan_Set_Param(zoltan, name, value.c_str()), name);
  };
  set("DEBUG_LEVEL", "0");
  set("LB_METHOD", "HYPERGRAPH");
  set("HYPERGRAPH_PACKAGE", "PHG");
  set("LB_APPROACH", "PARTITION");
  set("NUM_GLOBAL_PARTS", fmt::format("{}", request.parts));
  set("RETURN_LISTS", "PARTS");
  set("OBJ_WEIGHT_DIM", "1");  // PHG looks at one weight a vertex and says nothing of others
  set("EDGE_WEIGHT_DIM", "1");
  set("REMAP", "0");
  set("PHG_CUT_OBJECTIVE", "CONNECTIVITY");
  // By default nets with more than a quarter of all vertices are dropped, silently.
  set("PHG_EDGE_SIZE_THRESHOLD", "1.0");
  set("IMBALANCE_TOL", fmt::format("{}", 1 + request.tolerance));
  set("SEED", fmt::format("{}", request.seed));
  expect_ok(Zoltan_Set_Num_Obj_Fn(zoltan, vertex_count, &nets), "vertices");
  expect_ok(Zoltan_Set_Obj_List_Fn(zoltan, vertex_list, &nets), "weights");
  expect_ok(Zoltan_Set_HG_Size_CS_Fn(zoltan, net_sizes, &nets), "sizes");
  expect_ok(Zoltan_Set_HG_CS_Fn(zoltan, net_list, &nets), "pins");
  expect_ok(Zoltan_Set_HG_Size_Edge_Wts_Fn(zoltan, cost_count, &nets), "nets");
  expect_ok(Zoltan_Set_HG_Edge_Wts_Fn(zoltan, cost_list, &nets), "costs");
  if (!request.shares.empty()) {
    std::vector<int> ids(request.shares.size()), weights(request.shares.size(), 0);
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<float> shares = request.shares;
    expect_ok(Zoltan_LB_Set_Part_Sizes(zoltan, 1, request.parts, ids.data(), weights.data(),
                                       shares.data()),
              "shares");
  }
  int changes = 0, id_size = 0, local_size = 0, imports = 0, exports = 0;
  ZOLTAN_ID_PTR import_ids = nullptr, import_local = nullptr;
  ZOLTAN_ID_PTR export_ids = nullptr, export_local = nullptr;
  int *import_ranks = nullptr, *import_parts = nullptr;
  int *export_ranks = nullptr, *export_parts = nullptr;
  expect_ok(Zoltan_LB_Partition(zoltan, &changes, &id_size, &local_size, &imports, &import_ids,
                                &import_local, &import_ranks, &import_parts, &exports, &export_ids,
                                &export_local, &export_ranks, &export_parts),
            "partitioning");
  Parts parts(static_cast<std::size_t>(graph.vertices), 0);
  for (int i = 0; i < exports; ++i) parts[export_ids[i]] = export_parts[i];
  Zoltan_LB_Free_Part(&import_ids, &import_local, &import_ranks, &import_parts);
  Zoltan_LB_Free_Part(&export_ids, &export_local, &export_ranks, &export_parts);
  Zoltan_Destroy(&zoltan);
  return parts;
}

void run(const Request& request) {
  std::ifstream in(request.in);
  if (!in) throw InputError(request.in, "cannot be read", "a .hgr file");
  const Hypergraph graph = read_hgr(in, request.in);
  if (graph.constraints > 1)
    throw InputError(request.in, fmt::format("{} weights a vertex", graph.constraints),
                     "one: Zoltan would ignore the others");
  const Parts parts = partitioned(graph, request);
  std::ofstream out(request.out);
  for (const std::int32_t part : parts) fmt::print(out, "{}\n", part);
  out.flush();
  if (!out) throw InputError(request.out, "cannot be written", "a path of a new file");
}

}  // namespace
}  // namespace parsim::hypergraph

int main(int count, char** words) {
  // One process, no network: without these Open MPI starts a daemon that takes 0.3 s and needs a
  // network interface and a writable TMPDIR.
  setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
  setenv("OMPI_MCA_btl", "self", 0);
  setenv("OMPI_MCA_pml", "ob1", 0);
  int code = 0;
  try {
    const auto request = parsim::hypergraph::request_of({words + 1, words + count});
    MPI_Init(&count, &words);
    float version = 0;
    parsim::hypergraph::expect_ok(Zoltan_Initialize(count, words, &version), "start");
    parsim::hypergraph::run(request);
  } catch (const parsim::InputError& error) {
    fmt::print(stderr, "parsim-zoltan: {}\n", error.what());
    code = 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "parsim-zoltan: {}\n", error.what());
    code = 1;
  }
  int started = 0;
  MPI_Initialized(&started);
  if (started != 0) MPI_Finalize();
  return code;
}
