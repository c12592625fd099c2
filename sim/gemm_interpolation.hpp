// Times of GEMMs near shapes that others measured: the model of the card, corrected by how far it
// is from these measurements (gemm_rows.csv, fp8_gemm_rows.csv without the casts in them).
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "core/hash.hpp"
#include "sim/gemm_model.hpp"

namespace parsim::sim {

struct GemmTime {
  Seconds time{};
  bool near = false;  ///< measured shapes count for at least half of the correction
};

/// GEMMs of one card. The extents m and n fall into cells of half an octave. In a cell, the model's
/// time is multiplied by e^c with
///
///     c(k) = Σ w·r / (Σ w + 1),   w = exp(−d²/2),   d in units of half an octave
///
/// over the measured rows of the fit (not those held out); r is the logarithm of measured over
/// modelled, at most 0.3 either way, d the distance between the cell's centre and the row by the
/// logarithms of m, n and k. Libraries are sometimes faster on a larger product. Here a time is at
/// least that of any product with fewer rows or columns, so that searches meet no such holes: the
/// longest of the cell itself and of the upper corners of all lower cells.
/// Checked: tests/sim/gemm_interpolation_test.cpp, against all smaller products.
class GemmInterpolation {
 public:
  explicit GemmInterpolation(GemmModel model);

  /// One product, y[m,n] = x[m,k] W[n,k]^T. Remembers what it was asked; not for several threads.
  [[nodiscard]] GemmTime time(std::int64_t m, std::int64_t n, std::int64_t k,
                              const PowerLimit& power) const;
  /// What a FLOP takes at least in parts of `batches` products, none larger than m × k by k × n:
  /// the least of all cells and of intervals of k, in which a correction is at least what follows
  /// from the largest and the smallest weight of each row. Remembers what it was asked.
  [[nodiscard]] Seconds least_flop_time(std::int64_t m, std::int64_t n, std::int64_t k,
                                        std::int64_t batches, const PowerLimit& power) const;
  [[nodiscard]] const GemmModel& model() const { return model_; }

  /// 0 for an extent of 1, 2 for 2, 3 for 3, 4 for 4 and 5 …
  [[nodiscard]] static int cell_of(std::int64_t extent);
  /// The largest extent of a cell.
  [[nodiscard]] static std::int64_t last_of(int cell);
  struct Correction {
    double logarithm = 0, weight = 0;
  };
  [[nodiscard]] Correction correction(int rows, int columns, std::int64_t k) const;
  /// Of any k in the range: no more than its logarithm.
  [[nodiscard]] double least_correction(int rows, int columns, std::int64_t least_k,
                                        std::int64_t most_k) const;

 private:
  /// A measured row: logarithms to base 2 of its extents, and r.
  struct Row {
    double m = 0, n = 0, k = 0, rest = 0;
  };
  /// A row that may count for products in a cell: its distance along m and n.
  struct NearRow {
    double aside = 0, k = 0, rest = 0;
  };
  void find_near(int rows, int columns, std::vector<NearRow>& near) const;
  [[nodiscard]] static double least_correction(const std::vector<NearRow>& near,
                                               std::int64_t least_k, std::int64_t most_k);
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, double, double>;
  GemmModel model_;
  std::vector<Row> rows_;
  mutable std::map<Key, GemmTime> known_;
  mutable std::map<Key, Seconds> known_least_;
  /// Factors e^c of a cell, at least, by intervals of k: products of one k meet the same ones.
  struct Interval {
    int rows = 0, columns = 0;
    std::int64_t least_k = 0, most_k = 0;
    friend bool operator==(const Interval&, const Interval&) = default;
  };
  struct Hash {
    std::size_t operator()(const Interval& of) const {
      return hash_combine(0, of.rows, of.columns, of.least_k, of.most_k);
    }
  };
  mutable std::unordered_map<Interval, double, Hash> least_factors_;  ///< looked up only
};

}  // namespace parsim::sim
