#!/usr/bin/env python3
"""Fits Winograd's 3 x 3 convolutions in FP32 (sim/winograd.hpp) and writes sim/winograd.csv.

    sim/fit_winograd.py extract DEEPBENCH.csv NEUSIGHT.csv   writes sim/convolution_rows.csv
    sim/fit_winograd.py                                      fits, writes sim/winograd.csv, prints errors

DEEPBENCH.csv: results/train of baidu-research/DeepBench (commit da81ba78, Apache-2.0), with the columns gpu, precision,
kernel, conv_*, pad_*, stride_*, fwd_ms, bwd_inputs_ms, bwd_params_ms. NEUSIGHT.csv: convolutions of sitar-lab/NeuSight
(commit 6945927, MIT), with the columns gpu, op_class, batch, c_in, c_out, in_size, time_us, kernel, n_kernels, grid_z. Needs numpy and scipy.

Cards that were measured with cuDNN 5, without the second algorithm, keep their row of sim/coefficients.csv alone.
Half of the shapes, by a hash, are held out. NeuSight's events include what an idle host takes to call cuDNN; the fit has
one such number per card, which no prediction contains. Where a kernel's name tells the algorithm, its own time is fitted;
predictions are the fastest of all three. Everything else is as in sim/coefficients.csv.
"""
import csv
import hashlib
import sys

import numpy as np
from scipy.optimize import least_squares

from fit_coefficients import CLASSES, HERE, NAMES, Kernels, convolution, read_csv

ROWS, MODELS = HERE / "convolution_rows.csv", HERE / "winograd.csv"
SEED = "parsim-conv-1"
# Multiprocessors, FLOP/s and bytes/s by source: the V100 of DeepBench is the SXM2 card.
CARDS = {"titanxp": {"deepbench": (30, 12.15e12, 548e9)}, "gtx-1080ti": {"deepbench": (28, 11.34e12, 484e9)},
         "p100": {"deepbench": (56, 9.5e12, 732e9), "neusight": (56, 9.5e12, 732e9)},
         "v100": {"deepbench": (80, 15.7e12, 900e9), "neusight": (80, 14.1e12, 900e9)},
         "t4": {"deepbench": (40, 8.1e12, 320e9), "neusight": (40, 8.1e12, 320e9)},
         "a100": {"neusight": (108, 19.5e12, 1935e9)}}
DEEPBENCH = {"Titan Xp": "titanxp", "GTX 1080 Ti": "gtx-1080ti", "Tesla P100 (PCIe box)": "p100",
             "V100-SXM2 (DGX-1)": "v100", "Tesla T4": "t4"}
NEUSIGHT = {"p100-pcie": "p100", "v100-pcie": "v100", "t4": "t4", "a100-pcie": "a100"}
PASSES = {"fwd_ms": "forward", "bwd_inputs_ms": "backward-data", "bwd_params_ms": "backward-weights"}
COLUMNS = ["family", "source", "pass", "n", "c", "h", "w", "k", "pad", "time_us", "algorithm"]
ALGORITHMS = ["implicit", "fused", "apart"]
# Rows and columns of the outputs of a thread block, of one sample and 32 filters: the tile148 of kernels' names.
BLOCK = 8, 16
FREE = ["fused", "prologue", "transforms", "weight_transforms", "direct", "host"]
# What efficiencies of convolutions were fitted with, besides what is the card's: as read_coefficients in sim/coefficients.cpp.
WITH_SHARES = [NAMES.index("area_exponent"), NAMES.index("step_us")]
START, LEAST, MOST = [0.8, 15, 0.5, 0.5, 1, 150e-6], [0.1, 0.1, 0.1, 0.1, 0.2, 20e-6], [1, 60, 1, 2, 2, 400e-6]


def algorithm_of(row):
    """Winograd's transforms apart from its products run four kernels, the third a batch of 36 products."""
    if "winograd" in row["kernel"]:
        return "fused"
    if "cgemm" in row["kernel"]:
        return "fft"
    return "apart" if "sgemm_" in row["kernel"] and row["n_kernels"] == "4" and int(row["grid_z"]) >= 36 else "implicit"


def extract(deepbench, neusight):
    with open(ROWS, "w", newline="") as out:
        out.write("""\
# 3 x 3 convolutions of stride 1 in FP32: of DeepBench's training kernels (baidu-research/DeepBench at commit da81ba78,
# Apache-2.0; cuDNN 6 to 7.6), and of sitar-lab/NeuSight (commit 6945927, MIT; cuDNN
# 8.9, forward; algorithm: by the kernel's name). Written by sim/fit_winograd.py extract.
""")
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in read_csv(deepbench):
            if row["kernel"] != "conv2d" or row["precision"] != "FP32" or row["gpu"] not in DEEPBENCH:
                continue
            if [row[name] for name in ("conv_R", "conv_S", "stride_h", "stride_v")] != ["3", "3", "1", "1"]:
                continue
            shape = [row["conv_" + name] for name in "NCHWK"]
            if row["pad_h"] != row["pad_w"]:
                continue
            for column, name in PASSES.items():
                if row[column] and float(row[column]) > 0:
                    writer.writerow([DEEPBENCH[row["gpu"]], "deepbench", name, *shape, row["pad_h"],
                                     f"{float(row[column]) * 1e3:.6g}", ""])
        for row in read_csv(neusight):
            if row["op_class"] == "conv" and row["gpu"] in NEUSIGHT:
                writer.writerow([NEUSIGHT[row["gpu"]], "neusight", "forward", row["batch"], row["c_in"], row["in_size"],
                                 row["in_size"], row["c_out"], "1", row["time_us"],
                                 algorithm_of(row)])


def above(a, b):
    return np.ceil(a / b)


class Part:
    """Rows of one card and source."""

    def __init__(self, family, source, rows, coefficients, convolutions):
        self.source, self.card = source, CARDS[family][source]
        self.coefficients, self.convolutions = coefficients, convolutions
        self.kind = np.array([CLASSES.index(row["pass"]) for row in rows])
        n, c, h, w, k, pad, time = np.array([[float(row[name]) for name in COLUMNS[3:-1]] for row in rows]).T
        self.seconds = time * 1e-6
        self.ran = np.array([ALGORITHMS.index(row["algorithm"]) if row["algorithm"] in ALGORITHMS else -1 for row in rows])
        self.held_out = np.array([int(hashlib.sha256(":".join([SEED, *(row[name] for name in "nchwk")]).encode())
                                      .hexdigest(), 16) % 2 == 1 for row in rows])
        p, q = h + 2 * pad - 2, w + 2 * pad - 2
        data, weights = self.kind == 2, self.kind == 3
        windows = [{"kernel": 3, "stride": 1}] * 2
        implicit = []
        for i, row in enumerate(rows):
            extents, groups, _, elements, _ = convolution(row["pass"], n[i], c[i], h[i], w[i], k[i], windows, p[i] * q[i], 1)
            implicit.append((row["pass"], *extents, groups, 3, elements, 0, self.seconds[i]))
        self.kernels = Kernels(implicit)
        self.samples, self.channels = n, np.where(data, k, c)
        self.filters = np.where(data, c, k)
        self.height, self.width = np.where(data, h, p), np.where(data, w, q)
        self.bytes, self.matrices = 4 * n * (c * h * w + k * p * q), 4 * c * k
        self.tiles = n * above(self.height, 4) * above(self.width, 4)
        sides = zip(np.where(weights, c, self.tiles), self.filters, np.where(weights, self.tiles, self.channels))
        self.products = Kernels([("gemm", max(a, b), min(a, b), inner, 36, 0, 36 * (a * inner + inner * b + a * b), 0, 1)
                                 for a, b, inner in sides])

    def implicit(self, gain):
        values = self.convolutions.copy()
        values[NAMES.index("winograd3")] = gain
        return self.kernels.times(values, self.card, 4)

    def old_times(self):
        return self.kernels.times(self.coefficients, self.card, 4)

    def fastest(self, values):
        return self.times(*values).min(0)

    def those_that_ran(self, values):
        """Of the algorithm that the kernel's name tells, where one does."""
        times = self.times(*values)
        return np.where(self.ran < 0, times.min(0), times[self.ran, np.arange(len(self.ran))])

    def times(self, fused, prologue, transforms, weight_transforms, direct, host):
        """By algorithm, as winograd_time in sim/winograd.cpp."""
        multiprocessors, peak, memory_rate = self.card
        memory, overhead = self.coefficients[4], self.coefficients[5] * 1e-6
        blocks = self.samples * above(self.height, BLOCK[0]) * above(self.width, BLOCK[1]) * above(self.filters, 32)
        multiplied = np.ceil(blocks / multiprocessors) * 2 * 16 * 32 * 32 * (self.channels + prologue)
        by_blocks = np.maximum(multiplied / (peak / multiprocessors * fused), self.bytes / (memory_rate * memory))
        by_blocks += 25 * self.matrices / (memory_rate * transforms) + overhead
        share = np.where(self.kind == 3, weight_transforms, transforms)
        moved = self.bytes + 4 * 36 * self.tiles * (self.channels + self.filters) + 45 * self.matrices
        apart = self.products.times(self.coefficients, self.card, 4) + moved / (memory_rate * share) + overhead
        by_blocks = np.where(self.kind == 3, np.inf, by_blocks)
        return np.stack([self.implicit(direct), by_blocks, apart]) + (host if self.source == "neusight" else 0)


def fit(parts, free):
    low, high = np.log(np.array(LEAST)[free]), np.log(np.array(MOST)[free])
    random = np.random.default_rng(1)

    def filled(logarithms):
        values = np.array(START)
        values[free] = np.exp(logarithms)
        if FREE.index("weight_transforms") not in free:
            values[3] = values[2]
        return values

    def residuals(logarithms):
        return np.concatenate([np.log(part.those_that_ran(filled(logarithms)) / part.seconds)[~part.held_out]
                               for part in parts])

    best = None
    for trial in range(8):
        first = np.log(np.array(START)[free]) + (random.normal(0, 0.3, len(free)) if trial else 0)
        found = least_squares(residuals, np.clip(first, low + 1e-6, high - 1e-6), bounds=(low, high), loss="soft_l1",
                              f_scale=0.1, diff_step=1e-2, max_nfev=80)
        if best is None or found.cost < best.cost:
            best = found
    return filled(best.x)


def median(times, part, chosen):
    return 100 * np.median(np.abs(times / part.seconds - 1)[chosen])


def main():
    table = [row for row in read_csv(HERE / "coefficients.csv") if row["operands"] == "fp32"]
    coefficients = {row["family"]: np.array([float(row["tiles_" + name]) for name in NAMES]) for row in table}
    lenders = {row["family"]: row["convolutions"] for row in table if row["convolutions"] != "own"}
    rows = read_csv(ROWS)
    with open(MODELS, "w", newline="") as file:
        file.write("""\
# Winograd's 3 x 3 convolutions in FP32 (sim/winograd.hpp), written by sim/fit_winograd.py from
# sim/convolution_rows.csv (sources and licences there). fused: part of the peak; prologue: channels; transforms: parts
# of the memory rate; direct: rate of direct convolutions over what their shares in coefficients.csv say, fitted where
# those are another card's. rows: in the fit; held_out_percent: median error of as many others.
""")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["family", *FREE[:-1], "rows", "held_out_percent"])
        print("# held out, median error in %: before, now")
        for family, cards in CARDS.items():
            convolutions = coefficients[family].copy()
            if family in lenders:
                convolutions[WITH_SHARES] = coefficients[lenders[family]][WITH_SHARES]
            parts = [Part(family, source, own, coefficients[family], convolutions) for source in cards
                     if (own := [row for row in rows if (row["family"], row["source"]) == (family, source)])]
            # Weight gradients only from DeepBench, host times only in NeuSight.
            free = ["fused", "prologue", "transforms"] + ["weight_transforms"] * ("deepbench" in cards)
            free += ["direct"] * (family in lenders) + ["host"] * ("neusight" in cards)
            values = fit(parts, [FREE.index(name) for name in free])
            errors, count = [], 0
            for part in parts:
                count += int((~part.held_out).sum())
                old, new = part.old_times(), part.fastest(values)
                errors.append(np.abs(new / part.seconds - 1)[part.held_out])
                for kind in sorted(set(part.kind)):
                    chosen = part.held_out & (part.kind == kind)
                    line = f"{family} {part.source} {CLASSES[kind]} ({chosen.sum()}): {median(old, part, chosen):.1f}, {median(new, part, chosen):.1f}"
                    if part.source == "neusight":
                        long, alone = chosen & (part.seconds >= 1e-3), new - values[-1]
                        line += (f"; without the host's {values[-1] * 1e6:.0f} us {median(alone, part, chosen):.1f}; of 1 ms and "
                                 f"more ({long.sum()}) {median(old, part, long):.1f}, {median(new, part, long):.1f}, without host {median(alone, part, long):.1f}")
                    print(line)
            writer.writerow([family, *(f"{value:.3g}" for value in values[:-1]), count,
                             f"{100 * np.median(np.concatenate(errors)):.1f}"])


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "extract":
        extract(*sys.argv[2:])
    elif len(sys.argv) == 1:
        main()
    else:
        sys.exit(__doc__)
