#!/usr/bin/env python3
"""Fits the prices of PyTorch's kernels on Hopper to single operators of random shapes that were timed on an
H100 and an H200 (validation/pytorch_ops.py, validation/records/*/pytorch_ops.txt).

    sim/fit_operators.py      writes sim/operator_rates.csv and sim/kernel_factors.csv, prints the rows of
                              sim/coefficients.csv; takes three minutes, needs numpy and scipy

Both cards have one chip; each has its own memory rate. One shape in five, by a hash, is held out. What is
printed last: how far a fit to the H100 alone is from all rows of the H200.

operator_rates.csv: memory-bound operators, as sim/operator_rates.hpp prices them.
coefficients.csv: convolutions and products by tiles (sim/tiles.hpp). kernel_factors.csv: by how much shapes that
libraries run by other kernels take longer: sim/kernels.hpp, KernelShape. No network's kernels are in the fit.
"""
import collections
import csv
import hashlib
import math

import numpy as np
from scipy.optimize import least_squares

import fit_gemms as gemms
from fit_coefficients import CLASSES, HERE, LEAST, MOST, NAMES, RECORDS, Kernels, convolution, printed, read_csv

SEED, ONE_IN, SHORTEST_S = "parsim-ops-1", 5, 20e-6
MULTIPROCESSORS = 132
MEMORY = {"h100-sxm5": 3.35e12, "h200-sxm": 4.8e12}
PEAK = {"tf32": 494.7e12, "bf16": 989.4e12, "fp32": 66.9e12}
BYTES = {"fp32": 4, "tf32": 4, "bf16": 2}
SHAPES = {"gemm": ["nn", "nt", "unaligned_2", "unaligned_4", "unaligned_8"],
          **{kind: ["pointwise", "strided_pointwise", "strided", "grouped", "even_groups", "few_channels", "many_taps", "ragged"]
             for kind in CLASSES[1:]}}
PASSES = {"forward": "forward", "data": "backward-data", "weights": "backward-weights"}


class Row:
    def __init__(self, card, row):
        self.card, self.op, self.way, self.precision = card, row["op"], row["pass"], row["precision"]
        self.words = row["shape"]
        self.shape = {key: int(value) for key, value in (pair.split("=") for pair in row["shape"].split(";"))}
        self.seconds = float(row["median_s"])
        digest = hashlib.sha256(f"{SEED}:{self.op}:{self.words}".encode()).hexdigest()
        self.held_out = int(digest, 16) % ONE_IN == 0


def all_rows():
    return [Row(card, row) for card in MEMORY for row in read_csv(RECORDS / card / "pytorch_ops.txt")]


def depthwise(row):
    return row.op == "conv" and row.shape["groups"] > 1 and row.shape["groups"] == row.shape["c"]


def image(shape):
    return shape["n"] * shape["c"] * shape["h"] * shape["w"]


def pooled(shape):
    """Outputs of a window that is padded by a half, if it is odd, and lies at every stride-th pixel."""
    edge = (shape["h"] + 2 * (shape["r"] // 2 if shape["r"] % 2 else 0) - shape["r"]) // shape["stride"] + 1
    return shape["n"] * shape["c"] * edge * edge


def convolved(shape):
    return [(shape[a] + 2 * (shape[b] // 2) - shape[b]) // shape["stride"] + 1 for a, b in (("h", "r"), ("w", "s"))]


def traffic(row):
    """Operator, bytes read and written, and steps, as sim/elementwise.cpp and sim/kernels.cpp count them."""
    shape, back, size = row.shape, row.way == "backward", BYTES[row.precision]
    op = row.op
    if depthwise(row):
        out = shape["n"] * shape["k"] * math.prod(convolved(shape))
        elements = image(shape) + out + shape["k"] * shape["r"] * shape["s"]
        common = shape["r"] == shape["s"] and shape["r"] in (3, 5)
        return f"{'depthwise' if common else 'depthwise_other'}_{row.way}", elements * size, out * shape["r"] * shape["s"]
    if op in ("conv", "product", "batched_product", "attention", "cast_up", "cast_down", "adam", "adamw_fused"):
        return None
    if op == "cat" and back:
        return None  # views
    if op == "sgd":
        return "sgd", 5 * shape["size"] * size, 0
    if op == "cross_entropy":
        logits = shape["rows"] * shape["width"]
        return op, logits * ((4 if back else 2) * 4 + (2 + 4 if size == 2 else 0)), logits
    if op == "embedding":
        out = shape["rows"] * shape["width"]
        return op, (2 * out + (shape["words"] * shape["width"] if back else 0)) * size, 2 * out
    if op in ("max_pool", "avg_pool"):
        ins, out = image(shape), pooled(shape)
        return op, (ins + out + (ins if back and op == "max_pool" else 0)) * size, out * shape["r"] ** 2
    if "size" in shape:
        one = shape["size"]
    elif op == "transpose":
        one = shape["b"] * shape["tokens"] * shape["heads"] * shape["width"]
    elif "rows" in shape:
        one = shape["rows"] * shape["width"]
    else:
        one = image(shape)
    times = {"add": (3, 2), "mul": (3, 5), "copy": (2, 2), "cat": (2, 2), "transpose": (2, 2), "bias": (2, 2),
             "sum_rows": (1, 1), "global_avg_pool": (1, 1), "dropout": (2, 3), "softmax": (2, 3)}
    if op.endswith("_norm"):
        times[op] = (3, 5)
    name = "activation" if op in ("relu", "gelu", "silu") else op
    elements = times.get(op, (2, 3))[back] * one
    return name, elements * size, elements


def operator_times(values, bytes_s, steps):
    """As operator_time in sim/operator_rates.hpp, with logarithms of the three numbers."""
    return np.exp(values[0]) + np.maximum(bytes_s / np.exp(values[1]), steps * np.exp(values[2]))


def fit_operator(columns):
    bytes_s, steps, seconds = columns
    low, high = np.log([1e-6, 0.03, 1e-14]), np.log([60e-6, 0.95, 1e-8])
    best = None
    for overhead in (2e-6, 10e-6):
        for share in (0.8, 0.4):
            for step in (1e-12, 3e-12, 1e-11, 3e-11, 1e-10):
                found = least_squares(lambda x: np.log(operator_times(x, bytes_s, steps) / seconds),
                                      np.log([overhead, share, step]), loss="soft_l1", f_scale=0.1, bounds=(low, high))
                if best is None or found.cost < best.cost:
                    best = found
    return best.x


def operators(rows):
    groups = collections.defaultdict(list)
    for row in rows:
        counted = traffic(row)
        if counted:
            name, size, steps = counted
            groups[name, row.way if row.way == "backward" else "forward"].append(
                (size / MEMORY[row.card], steps / MULTIPROCESSORS, row.seconds, row.held_out, row.card == "h100-sxm5"))
    errors, across = [], []
    with open(HERE / "operator_rates.csv", "w", newline="") as file:
        file.write("""\
# Memory-bound operators of PyTorch 2.11 (eager, channels last) on an H100 and an H200: seconds by sim/operator_rates.hpp.
# step_ps: picoseconds of one multiprocessor for a step. held_out_percent: mean error on held-out shapes of at
# least 20 us. Written by sim/fit_operators.py from validation/records/*/pytorch_ops.txt.
""")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["operator", "pass", "overhead_us", "memory_share", "step_ps", "rows", "held_out_percent"])
        for (name, way), found in sorted(groups.items()):
            columns = np.array(found, float).T
            fitted, long = columns[3] == 0, columns[2] > SHORTEST_S
            one = fit_operator(columns[:3, fitted])
            error = np.abs(operator_times(one, *columns[:2]) / columns[2] - 1)
            held = error[~fitted & long]
            errors += list(held)
            h100 = columns[4] == 1
            other = fit_operator(columns[:3, h100])
            away = np.abs(operator_times(other, *columns[:2]) / columns[2] - 1)[~h100 & long]
            across += list(away)
            overhead, share, step = np.exp(one)
            writer.writerow([name, way, f"{overhead * 1e6:.3g}", f"{share:.3g}", f"{step * 1e12:.3g}",
                             int(fitted.sum()), f"{100 * held.mean():.1f}" if len(held) else ""])
    print(f"# operators, held out, of at least 20 us: mean {100 * np.mean(errors):.1f} %, median "
          f"{100 * np.median(errors):.1f} % of {len(errors)}")
    print(f"# fitted to the H100, on the H200: mean {100 * np.mean(across):.1f} %, median "
          f"{100 * np.median(across):.1f} % of {len(across)}")


def alignment(extent, most):
    return math.gcd(extent, most)


def kernel_of(row):
    """Class, shape, and the columns of Kernels."""
    shape, size = row.shape, BYTES[row.precision]
    if row.op == "conv":
        outputs = convolved(shape)
        windows = [dict(kernel=shape[name], stride=shape["stride"]) for name in ("r", "s")]
        kind = PASSES[row.way]
        product, groups, winograd, elements, _ = convolution(
            kind, shape["n"], shape["c"], shape["h"], shape["w"], shape["k"], windows, math.prod(outputs), shape["groups"])
        taps, strided = shape["r"] * shape["s"], shape["stride"] > 1
        width = shape["c"] // shape["groups"]
        even = shape["c"] == shape["k"] and width & (width - 1) == 0
        what = (("even_groups" if even else "grouped") if shape["groups"] > 1 else "few_channels" if shape["c"] < 8 else
                ("strided_pointwise" if strided else "pointwise") if taps == 1 else
                "many_taps" if taps > 32 else "strided" if strided else
                "ragged" if shape["c"] % 64 or shape["k"] % 64 else "plain")
        return kind, what, (kind, *product, groups, winograd, elements, 0, row.seconds)
    m, n, k = (shape[name] for name in ("m", "n", "k"))
    elements, batches = m * n + n * k + m * k, shape.get("b", 1)
    aligned = min(alignment(n, 8), alignment(k, 8)) * size
    what = {"forward": "plain", "data": "nn", "weights": "nt"}[row.way]
    if aligned < 16:
        what = f"unaligned_{aligned}"
    if row.way == "data":
        m, n, k = m, k, n
    if row.way == "weights":
        m, n, k = k, n, m
    return "gemm", what, ("gemm", max(m, n), min(m, n), k, batches, 0, elements * batches, 0, row.seconds)


class Measured:
    """Kernels of one precision, card by card."""

    def __init__(self, rows, precision, ops):
        self.precision, self.parts, kinds, self.rows = precision, [], [], []
        for card, memory in MEMORY.items():
            own = [row for row in rows if row.card == card and row.precision == precision and not depthwise(row) and
                   row.op in ops]
            found = [kernel_of(row) for row in own]
            self.parts.append((Kernels([columns for _, _, columns in found]), memory))
            kinds += [(kind, what) for kind, what, _ in found]
            self.rows += own
        self.seconds = np.concatenate([part.seconds for part, _ in self.parts])
        self.names = sorted({kind for kind in kinds if kind[1] != "plain"})
        self.factor_of = np.array([[kind == name for name in self.names] for kind in kinds], float)
        self.held_out = np.array([row.held_out for row in self.rows])
        self.h100 = np.array([row.card == "h100-sxm5" for row in self.rows])
        self.long = self.seconds > SHORTEST_S

    def times(self, values):
        card = lambda memory: (MULTIPROCESSORS, PEAK[self.precision], memory)
        size = BYTES[self.precision]
        return np.concatenate([part.times(values, card(memory), size) for part, memory in self.parts])

    def constant_times(self, values):
        card = lambda memory: (MULTIPROCESSORS, PEAK[self.precision], memory)
        size = BYTES[self.precision]
        return np.concatenate([part.constant_times(values, card(memory), size) for part, memory in self.parts])

    def fit(self, times, start, free, chosen, factors):
        """The numbers and factors, and what they say of every row."""
        count = len(self.names) if factors else 0
        least = np.concatenate([np.log(np.array(LEAST)[free]), np.full(count, -1.2)])
        most = np.concatenate([np.log(np.array(MOST)[free]), np.full(count, 3.0)])
        random = np.random.default_rng(1)

        def values_of(x):
            values = start.copy()
            values[free] = np.exp(x[:len(free)])
            return values, x[len(free):]

        def predicted(x):
            values, logarithms = values_of(x)
            return times(values) * (np.exp(self.factor_of @ logarithms) if factors else 1)

        best = None
        for trial in range(5):
            first = np.concatenate([np.log(start[free]) + (random.normal(0, 0.3, len(free)) if trial else 0), np.zeros(count)])
            found = least_squares(
                lambda x: np.concatenate([np.log(predicted(x) / self.seconds)[chosen], 0.05 * x[len(free):]]),
                np.clip(first, least + 1e-6, most - 1e-6), bounds=(least, most), loss="soft_l1", f_scale=0.15,
                diff_step=1e-2, max_nfev=50)
            if best is None or found.cost < best.cost:
                best = found
        values, logarithms = values_of(best.x)
        return values, np.exp(logarithms), predicted(best.x)

    def error(self, predicted, chosen):
        return 100 * np.abs(predicted / self.seconds - 1)[chosen & self.long]


def kernels(rows):
    start = next(np.array([float(row["tiles_" + name]) for name in NAMES]) for row in read_csv(HERE / "coefficients.csv")
                 if (row["family"], row["operands"]) == ("h100", "tf32"))
    factors = []
    for precision in PEAK:
        # Products in 16 bits have a model of their own (sim/gemm_model.hpp); here they come second, with what
        # convolutions fitted for all classes, and serve cards without that model.
        together = [["conv", "product", "batched_product"]]
        rounds = [["conv"], ["product", "batched_product"]] if precision == "bf16" else together
        values, constant, errors, away = start, start, [], []
        for ops in rounds:
            measured, first, plain = Measured(rows, precision, ops), values, constant
            free = list(range(0 if "product" in ops else 1, 10 if "conv" in ops else 1))
            fitted = ~measured.held_out
            values, found, predicted = measured.fit(measured.times, first, free, fitted, True)
            constant, _, by_constants = measured.fit(measured.constant_times, plain, [i for i in free if i < 6], fitted, False)
            errors.append([measured.error(times, measured.held_out) for times in (by_constants, predicted)])
            *_, elsewhere = measured.fit(measured.times, first, free, measured.h100, True)
            away.append(measured.error(elsewhere, ~measured.h100))
            # What is not aligned is never cheaper: bounds of parts rely on that.
            factors += [("fp16" if precision == "bf16" else precision, *name,
                         max(1.0, factor) if name[1].startswith("unaligned") else factor, int(count))
                        for name, factor, count in zip(measured.names, found, measured.factor_of[fitted].sum(0))
                        if precision != "bf16" or not name[1].startswith("unaligned")]
        medians = [np.median(np.concatenate([part[i] for part in errors])) for i in (0, 1)]
        for card, memory in MEMORY.items():
            printed(card.split("-")[0], "fp16" if precision == "bf16" else precision, 9.0, memory, constant, values, medians, 1, "own")
        for ops, (_, held), far in zip(rounds, errors, away):
            print(f"# {precision} {', '.join(ops)}: held out median {np.median(held):.1f} %, mean {held.mean():.1f} % of {len(held)}; fitted to the "
                  f"H100, on the H200 median {np.median(far):.1f} %, mean {far.mean():.1f} % of {len(far)}")
    factors += unaligned_in_16_bits(rows)
    with open(HERE / "kernel_factors.csv", "w", newline="") as file:
        file.write("""\
# By how much kernels of some shapes (sim/kernels.hpp, KernelShape) take longer on Hopper than others.
# rows: in the fit. Written by sim/fit_operators.py from validation/records/*/pytorch_ops.txt.
""")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["operands", "class", "shape", "factor", "rows"])
        for operands, kind, what, factor, count in sorted(factors):
            writer.writerow([operands, kind.replace("-", "_"), what, f"{factor:.3g}", count])


def unaligned_in_16_bits(rows):
    """Medians of how much longer products take than by the model of aligned ones."""
    models = {row["gpu"]: [float(row[name]) for name in gemms.NAMES] for row in read_csv(HERE / "gemm_models.csv")
              if row["dtype"] == "bf16"}
    found = collections.defaultdict(list)
    for row in rows:
        if row.precision != "bf16" or row.op != "product" or row.held_out or row.seconds < SHORTEST_S:
            continue
        _, what, (_, m, n, k, *_) = kernel_of(row)
        if what.startswith("unaligned"):
            sheet = MULTIPROCESSORS, PEAK["bf16"], MEMORY[row.card]
            modelled = gemms.times(np.array([[m, n, k]], float), sheet, models[row.card], "bf16")
            found[what].append(row.seconds / modelled[0])
    return [("fp16", "gemm", what, float(np.median(ratios)), len(ratios)) for what, ratios in found.items()]


if __name__ == "__main__":
    measured_rows = all_rows()
    operators(measured_rows)
    kernels(measured_rows)
