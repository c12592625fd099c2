#!/usr/bin/env python3
"""Prints rows of sim/coefficients.csv that are not from DeepBench.

    sim/fit_coefficients.py extract NEUSIGHT.csv   writes sim/fp32_gemm_rows.csv
    sim/fit_coefficients.py                        fits and prints

NEUSIGHT.csv has the columns gpu, op, batch, m, n, k, time_us. Needs numpy and scipy.

a100, fp32: matrix products of NeuSight (sitar-lab/NeuSight, commit 6945927, MIT) of at least 100 us;
half of the shapes, chosen by a hash, are held out. Batched products, most of the small ones, have an
exponent of their own: with one for all, thin single products were up to three times too slow.
Convolutions keep the V100's shares, with its exponent and step: NeuSight's are forward and 3 x 3 only;
sim/fit_winograd.py fits one factor to them.
a100, tf32: not fitted. The V100's shares of its tensor cores' peak, the error (median) on eth-easl/sailor's products
of OPT and GPT-Neo on an A100 40 GB (commit cf2c8e3, MIT), of at least 100 us; an H100's are 40 % lower.
h100, h200: sim/fit_operators.py.
sustained: time of FP32 matrix products of 10 ms and more over what coefficients fitted to single short runs
say (NeuSight, medians): 1.3 on T4, whose limit of 70 W lowers its clock; 1.0 on V100, which is not written.
The same in FP16, of which no table has long runs.
"""
import csv
import hashlib
import math
import pathlib
import sys

import numpy as np
from scipy.optimize import least_squares

HERE = pathlib.Path(__file__).parent
ROWS = HERE / "fp32_gemm_rows.csv"
RECORDS = HERE.parent / "validation" / "records"
CLASSES = ["gemm", "forward", "backward-data", "backward-weights"]
TILES = np.array([(256, 128), (128, 128), (128, 64), (64, 64), (64, 32), (32, 32)], float)  # sim/tiles.hpp
SPLITS = [1, 2, 4, 8, 16, 32, 64]
# Multiprocessors, FLOP/s, bytes/s.
A100 = 108, 19.5e12, 1555e9
NAMES = ["gemm", "forward", "backward_data", "backward_weights", "memory", "overhead_us", "area_exponent",
         "step_us", "winograd3", "winograd5", "batched_exponent"]
LEAST = [0.05, 0.05, 0.05, 0.05, 0.3, 1, 0.02, 0.02, 1, 1, 0.001]
MOST = [1, 1, 1, 1, 0.95, 40, 1.2, 3, 3, 3, 1.2]
SHORTEST_US = 100

ROWS_HEADER = """\
# Matrix products in FP32 (without TF32) of NeuSight, sitar-lab/NeuSight at commit 6945927 (MIT): torch.nn.Linear
# and torch.bmm, forward, means of the five fastest of 25 runs; of at least 100 us. k is summed over.
# Written by sim/fit_coefficients.py extract.
"""


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def v100(operands, model="tiles_"):
    """Of the constant model, zeros for what it has not."""
    for row in read_csv(HERE / "coefficients.csv"):
        if (row["family"], row["operands"]) == ("v100", operands):
            return np.array([float(row.get(model + name, 0)) for name in NAMES])
    raise SystemExit("no row of the V100")


def extract(path):
    with open(ROWS, "w", newline="") as out:
        out.write(ROWS_HEADER)
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["gpu", "batch", "m", "n", "k", "time_us"])
        for row in read_csv(path):
            if row["op"] in ("linear", "bmm") and row["gpu"] in ("a100-pcie-40", "t4", "v100-pcie") and \
                    float(row["time_us"]) >= SHORTEST_US:
                batch = row["batch"] if row["op"] == "bmm" else "1"
                writer.writerow([row["gpu"], batch, row["m"], row["n"], row["k"], row["time_us"]])


class Kernels:
    """Columns of many kernels; each is (class, m, n, k, batches, winograd, elements, bytes beside, seconds)."""

    def __init__(self, kernels):
        columns = np.array([[CLASSES.index(kernel[0]), *kernel[1:9]] for kernel in kernels], float).T
        self.kind = columns[0].astype(int)
        m, n, k, batches, self.winograd, self.elements, self.beside, self.seconds = columns[1:]
        self.flops = 2 * batches * m * n * k
        self.partial = batches * m * n * 2
        self.batched = (self.kind == 0) & (batches > 1)
        self.possible = np.stack([(k >= 64 * s) | (s == 1) for s in SPLITS], 1)
        self.inner = np.stack([np.ceil(k / s) for s in SPLITS], 1)
        self.tiles = batches[:, None] * np.ceil(m[:, None] / TILES[:, 0]) * np.ceil(n[:, None] / TILES[:, 1])

    def times(self, values, card, element_bytes):
        """As gemm_time in sim/tiles.cpp, and the sums of gradients of biases as sim/tile_costs.cpp."""
        multiprocessors, peak, memory_rate = card
        efficiency, (memory, overhead, exponent, step, winograd3, winograd5, more) = values[:4], values[4:]
        area = TILES[:, 0] * TILES[:, 1]
        rate = (peak / multiprocessors * efficiency[self.kind])[:, None] * (area / area[0]) ** (exponent + more * self.batched)[:, None]
        gain = np.where(self.winograd == 3, winograd3, np.where(self.winograd == 5, winograd5, 1))
        memory = memory_rate * memory
        by_memory = self.elements * element_bytes / memory
        best = np.full(len(self.seconds), np.inf)
        for i, split in enumerate(SPLITS):
            work = np.ceil(self.tiles * split / multiprocessors) * 2 * area * self.inner[:, i:i + 1]
            along = self.inner[:, i] / 32 * step * 1e-6
            time = np.maximum(np.maximum((work / rate).min(1), along) / gain, by_memory)
            time += 0 if split == 1 else (split + 1) * self.partial / memory
            best = np.where(self.possible[:, i], np.minimum(best, time), best)
        beside = np.where(self.beside > 0, self.beside / (memory_rate * 0.75) + 5e-6, 0)
        return best + overhead * 1e-6 + beside

    def constant_times(self, values, card, element_bytes):
        """As sim/constant_efficiency.cpp."""
        _, peak, memory_rate = card
        flops = self.flops / (peak * values[:4][self.kind])
        beside = np.where(self.beside > 0, self.beside / (memory_rate * 0.75) + 5e-6, 0)
        return np.maximum(flops, self.elements * element_bytes / (memory_rate * values[4])) + values[5] * 1e-6 + beside


def fit(kernels, times, start, free):
    """The best of several descents from around `start`."""
    least, most = np.log(np.array(LEAST)[free]), np.log(np.array(MOST)[free])
    random = np.random.default_rng(1)

    def filled(logarithms):
        values = start.copy()
        values[free] = np.exp(logarithms)
        return values

    best = None
    for trial in range(16):
        at = np.log(start[free]) + (random.normal(0, 0.5, len(free)) if trial else 0)
        found = least_squares(lambda x: np.log(times(filled(x)) / kernels.seconds),
                              np.clip(at, least + 1e-6, most - 1e-6), bounds=(least, most), loss="cauchy",
                              f_scale=0.1, diff_step=1e-2, max_nfev=200)
        if best is None or found.cost < best.cost:
            best = found
    return filled(best.x)


def median_error(kernels, times):
    return 100 * float(np.median(np.abs(times / kernels.seconds - 1)))


def convolution(kind, samples, channels, height, width, filters, windows, outputs, groups):
    """The matrix product that it is equal to, as gemms_of in sim/kernels.cpp."""
    taps = math.prod(window["kernel"] for window in windows)
    strides = math.prod(window["stride"] for window in windows)
    n, c = filters // groups, channels // groups
    square = strides == 1 and groups == 1 and windows[0]["kernel"] == windows[1]["kernel"]
    size = windows[0]["kernel"] if square and windows[0]["kernel"] in (3, 5) and min(c, filters) >= 16 else 0
    outs, ins = samples * outputs, samples * height * width
    extents = {"forward": (outs, n, c * taps), "backward-data": (ins, c, max(1, n * taps // strides)),
               "backward-weights": (c * taps, n, outs)}[kind]
    elements = ins * channels + outs * filters + filters * c * taps
    return extents, groups, size, elements, outs * filters


def printed(family, operands, architecture, memory_rate, constant, tiles, errors, sustained, convolutions):
    def numbers(values):
        return ",".join(f"{value:.3g}" for value in values)
    print(f"{family},{operands},{architecture},{memory_rate / 1e9:.0f},{numbers(constant[:6])},{errors[0]:.1f},"
          f"{numbers(tiles[:6])},{numbers(tiles[6:])},{errors[1]:.1f},{sustained},{convolutions}")


def fit_products():
    start = v100("fp32")
    free = [NAMES.index(name) for name in ("gemm", "memory", "overhead_us", "area_exponent", "step_us", "batched_exponent")]
    start[free[-1]] = 0.1
    parts = {False: [], True: []}
    for row in read_csv(ROWS):
        if row["gpu"] != "a100-pcie-40":
            continue
        b, m, n, k = (int(float(row[name])) for name in ("batch", "m", "n", "k"))
        held_out = int(hashlib.sha256(f"{b} {m} {n} {k}".encode()).hexdigest(), 16) % 2 == 1
        parts[held_out].append(("gemm", max(m, n), min(m, n), k, b, 0, b * (m * k + k * n + m * n), 0,
                                float(row["time_us"]) * 1e-6))
    own, others = Kernels(parts[False]), Kernels(parts[True])
    tiles = fit(own, lambda values: own.times(values, A100, 4), start, free)
    constant = fit(own, lambda values: own.constant_times(values, A100, 4), v100("fp32", "constant_"), [0, 4, 5])
    errors = (median_error(others, others.constant_times(constant, A100, 4)),
              median_error(others, others.times(tiles, A100, 4)))
    printed("a100", "fp32", 8.0, A100[2], constant, tiles, errors, 1, "v100")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "extract":
        extract(sys.argv[2])
    elif len(sys.argv) == 1:
        fit_products()
    else:
        sys.exit(__doc__)
