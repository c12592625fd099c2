#!/usr/bin/env python3
"""Fits the models of GEMMs in 16 and 8 bits (sim/gemm_model.hpp) to measurements that others published.

    sim/fit_gemms.py extract GEMM.csv    writes sim/gemm_rows.csv and sim/fp8_gemm_rows.csv from a
                                         table with the columns gpu, dtype, m, n, k, kernel,
                                         median_us, min_us, max_us, n_series, sustained_us
    sim/fit_gemms.py                     writes sim/gemm_models.csv from both
    sim/fit_gemms.py frameworks GEMM.csv prints the errors with one framework held out; also reads
                                         framework and time_us, one framework's own series

Needs numpy and scipy; each fit takes about eight minutes. Weights of one shape are held out together: the
seed and a hash of (n, k) decide, and no row that is held out enters the fit. Results are
deterministic for one version of both libraries.
"""
import csv
import hashlib
import pathlib
import sys
import tomllib

import numpy as np
from scipy.optimize import minimize

HERE = pathlib.Path(__file__).parent
ROWS, MODELS = HERE / "gemm_rows.csv", HERE / "gemm_models.csv"
FP8_ROWS = HERE / "fp8_gemm_rows.csv"
SEED, ONE_IN = "parsim-gemm-1", 5  # never drawn again
JUDGED = 20e-6  # seconds; shorter kernels are mostly launch and count less

EXTRACT_HEADER = f"""\
# Times of y[m,n] = x[m,k] W[n,k]^T in bf16, forward layout, without bias, as others measured them:
# ai-dynamo/aiconfigurator, commit 095f58a, aic-core/src/aiconfigurator_core/systems/data
# (Apache-2.0); rows selected and reduced to medians over frameworks.
# CUDA graph of 5 to 6 copies of the layer with different weights, 3 warm-ups, 6 replays.
# n_series: series behind the median; spread: their largest time over their least. sustained_us: the
# same product repeated for 0.3 to 1 s. held_out: 1 for one in {ONE_IN} (n, k), by
# sha256("{SEED}:n:k") mod {ONE_IN} = 0. Written by sim/fit_gemms.py extract.
"""
FP8_HEADER = f"""\
# Times of y[m,n] = x[m,k] W[n,k]^T in FP8 with y in bf16, as others measured them: source, licence
# and columns as in gemm_rows.csv. Each time includes the cast of x from bf16, but not that of W.
# fp8: one scale a tensor, cuBLASLt under TensorRT-LLM. fp8_block: a scale for 1 x 128 elements of x
# and 128 x 128 of W, DeepGEMM under SGLang, on the L40S TensorRT-LLM's own kernel. Medians over
# versions of that framework. Written by sim/fit_gemms.py extract.
"""
MODELS_HEADER = """\
# Models of GEMMs (sim/gemm_model.hpp), written by sim/fit_gemms.py from the rows of
# sim/gemm_rows.csv and sim/fp8_gemm_rows.csv that are not held out (source and licence there).
# dtype: of the operands; cast, cast_overhead: of the cast of x that the times of fp8 and fp8_block
# include, part of the memory rate and seconds. rows: in the fit. held_out_*:
# corrected (sim/gemm_interpolation.hpp), of the held-out rows of at least 20 us that are medians of
# two and more series. spread_percent:
# median difference between the series of one such row, largest to least.
# multiprocessors, peak (FLOP/s) and memory_rate (bytes/s): of the data sheet, to which efficiencies
# refer. Seconds, bytes, FLOPs. sustained_*: of a card that computes all the time; sustained_from names
# whose rows they are fitted to (burst: none, so those of single measurements).
"""


def is_held_out(n, k):
    digest = hashlib.sha256(f"{SEED}:{n}:{k}".encode()).hexdigest()
    return int(digest, 16) % ONE_IN == 0


def extract(path):
    with open(path, newline="") as file:
        table = list(csv.DictReader(file))
    table.sort(key=lambda r: (r["gpu"], int(r["n"]), int(r["k"]), int(r["m"])))

    def line(row):
        spread = float(row["max_us"]) / float(row["min_us"])
        return (f'{row["m"]},{row["n"]},{row["k"]},{row["median_us"]},{row["n_series"]},'
                f'{spread:.3g},{row["sustained_us"]},{int(is_held_out(row["n"], row["k"]))}\n')
    columns = "m,n,k,median_us,n_series,spread,sustained_us,held_out\n"
    with open(ROWS, "w", newline="") as out:
        out.write(EXTRACT_HEADER + "gpu," + columns)
        out.writelines(f'{row["gpu"]},{line(row)}' for row in table if row["dtype"] == "bf16")
    with open(FP8_ROWS, "w", newline="") as out:
        out.write(FP8_HEADER + "gpu,dtype," + columns)
        out.writelines(f'{row["gpu"]},{row["dtype"]},{line(row)}' for row in table
                       if row["dtype"] == "fp8_block" or
                       row["dtype"] == "fp8" and "cuBLASLt" in row["kernel"])


# As in sim/gemm_model.cpp.
TILES = [(256, 128, 0), (128, 256, 0), (128, 128, 1), (128, 64, 2), (64, 128, 2), (64, 64, 3),
         (64, 32, 4), (32, 64, 4)]
SPLITS = [1, 2, 4, 8, 16, 32, 64]
CACHE_SHARPNESS = 8
# Name, start, typical change (of the logarithm; of the logit for "smooth").
PARAMETERS = [
    ("efficiency", .85, .2), ("tile_128x128", .95, .2), ("tile_128x64", .95, .2),
    ("tile_64x64", .75, .2), ("tile_64x32", .5, .3), ("prologue", 64, .7), ("memory", .8, .2),
    ("overhead", 3e-6, .3), ("smooth", .2, 1.5), ("exponent", 4, .5), ("split_memory", 1, .7),
    ("split_overhead", 2e-6, .7), ("cache", 30e6, 1), ("cache_gain", 2, .5), ("power", .1, .7),
    ("power_flops", 2e11, 1.5), ("cast", .7, .5), ("cast_overhead", 5e-6, .5)]
NAMES = [name for name, _, _ in PARAMETERS]
SMOOTH = NAMES.index("smooth")
OPERAND_BYTES = {"bf16": 2, "fp8": 1, "fp8_block": 1}
# Per element: read for the largest one, read and written; with a scale a block one pass does both.
CAST_BYTES = {"bf16": 0, "fp8": 2 + 2 + 1, "fp8_block": 2 + 1}
RESULT_BYTES = 2


def to_free(values):
    free = np.log(values)
    free[SMOOTH] = np.log(values[SMOOTH] / (1 - values[SMOOTH]))
    return free


def from_free(free):
    values = np.exp(np.clip(free, -60, 60))
    values[SMOOTH] = 1 / (1 + np.exp(-free[SMOOTH]))
    return values


def cast_times(shapes, sheet, p, dtype):
    """Seconds of the cast of x before the product."""
    if dtype == "bf16":
        return np.zeros(len(shapes))
    p = dict(zip(NAMES, p))
    return p["cast_overhead"] + CAST_BYTES[dtype] * shapes[:, 0] * shapes[:, 2] / (sheet[2] * p["cast"])


def times(shapes, sheet, p, dtype, power=None):
    """Seconds of the product; power: (power, power_flops) instead of the parameters' own."""
    multiprocessors, peak, memory_rate = sheet
    p = dict(zip(NAMES, p))
    m, n, k = shapes.T
    each = OPERAND_BYTES[dtype]
    traffic = each * (m * k + n * k) + RESULT_BYTES * m * n
    used = ((each * (m * k + 6 * n * k) + RESULT_BYTES * m * n) / p["cache"]) ** CACHE_SHARPNESS
    by_memory = traffic / (memory_rate * p["memory"]) * (1 + used) / (p["cache_gain"] + used)
    relative = [1] + [p[name] for name in NAMES[1:5]]
    best = np.full(len(m), np.inf)
    for split in SPLITS:
        per_step = np.full(len(m), np.inf)
        for rows, columns, size in TILES:
            waves = np.ceil(m / rows) * np.ceil(n / columns) * split / multiprocessors
            filled = (1 - p["smooth"]) * np.ceil(waves) + p["smooth"] * np.maximum(waves, 1)
            rate = peak / multiprocessors * p["efficiency"] * relative[size]
            per_step = np.minimum(per_step, filled * 2 * rows * columns / rate)
        by_flops = per_step * (np.ceil(k / split) + p["prologue"])
        time = (by_flops ** p["exponent"] + by_memory ** p["exponent"]) ** (1 / p["exponent"])
        if split > 1:
            time += p["split_overhead"] + (split + 1) * m * n * 4 / (memory_rate * p["split_memory"])
        best = np.minimum(best, np.where((split == 1) | (k >= 64 * split), time, np.inf))
    power, power_flops = power or (p["power"], p["power_flops"])
    return p["overhead"] + best * (1 + power / (1 + power_flops / (2 * m * n * k)))


def fit(shapes, measured, sheet, dtype, cache, overhead=None):
    """Least absolute errors of logarithms; a weak pull to the starting values.

    overhead: of the product, where the rows hold another kernel's, too; None: fitted.
    """
    start = np.array([value for _, value, _ in PARAMETERS])
    start[NAMES.index("cache")] = cache
    fixed = {"cast", "cast_overhead"} if overhead is None else {"overhead"}
    if overhead is not None:
        start[NAMES.index("overhead")] = overhead
    chosen = [i for i, name in enumerate(NAMES) if name not in fixed]
    begin, scale = to_free(start), np.array([change for _, _, change in PARAMETERS])
    weights = np.where(measured >= JUDGED, 1, .4)

    def values(free):
        whole = begin.copy()
        whole[chosen] = free
        return from_free(whole)

    def loss(free):
        p = values(free)
        named = dict(zip(NAMES, p))
        fastest = p[0] * max(1, *p[1:5])
        if (fastest > 1 or named["memory"] > 1 or named["cache_gain"] < 1
                or not 1 < named["exponent"] < 20):
            return 1e3
        modelled = times(shapes, sheet, p, dtype) + cast_times(shapes, sheet, p, dtype)
        error = np.log(modelled / measured)
        pull = 1e-3 * np.mean(((free - begin[chosen]) / scale[chosen]) ** 2)
        return np.sum(weights * np.sqrt(error ** 2 + .02 ** 2)) / np.sum(weights) + pull

    free = begin[chosen]
    for sign in (.5, -.5, .5):
        simplex = np.vstack([free, free + sign * np.diag(scale[chosen])])
        found = minimize(loss, free, method="Nelder-Mead", options={
            "maxfev": 2500, "adaptive": True, "xatol": 1e-3, "fatol": 1e-6,
            "initial_simplex": simplex})
        free = found.x
    return values(free), found.fun


def fit_sustained(shapes, measured, sheet, p, dtype):
    cast = cast_times(shapes, sheet, p, dtype)

    def loss(free):
        return np.mean(np.abs(np.log(
            (times(shapes, sheet, p, dtype, tuple(np.exp(free))) + cast) / measured)))
    found = [minimize(loss, np.log(start), method="Nelder-Mead", options={"xatol": 1e-3})
             for start in ([.3, 1e11], [.15, 1e10])]
    return np.exp(min(found, key=lambda f: f.fun).x)


# As in sim/gemm_interpolation.cpp: chosen by cross-validation within the rows of the fit.
CELLS, REACH, TRUST, LARGEST = 2, .5, 1, .3  # cells an octave, octaves, weight, of a logarithm
DEEPEST = 16  # cells downwards; further down, no time of 20 us and more is decided


def corrected_times(shapes, sheet, p, dtype, known, known_measured):
    """Times corrected by the nearest measured ones, never shorter than a smaller product's.

    known_measured: without casts.
    """
    modelled = times(known, sheet, p, dtype)
    least = modelled * np.exp(-LARGEST)
    rest = np.clip(np.log(np.maximum(known_measured, least) / modelled), -LARGEST, LARGEST)
    known_m, known_n, known_k = np.log2(known).T
    m, n, k = shapes.T
    near_k = np.log2(k)[:, None] - known_k
    i, j = (np.floor(CELLS * np.log2(side) + 1e-9) for side in (m, n))
    best = np.zeros(len(shapes))
    for cell_i in (i - down for down in range(DEEPEST)):
        for cell_j in (j - down for down in range(DEEPEST)):
            at_m = (cell_i + .5)[:, None] / CELLS - known_m
            at_n = (cell_j + .5)[:, None] / CELLS - known_n
            weight = np.exp(-.5 * (at_m ** 2 + at_n ** 2 + near_k ** 2) / REACH ** 2)
            correction = weight @ rest / (weight.sum(axis=1) + TRUST)
            corner = [np.minimum(side, np.ceil(2 ** ((cell + 1) / CELLS) - 1e-9) - 1)
                      for side, cell in ((m, cell_i), (n, cell_j))]
            there = [np.log2(np.maximum(side, .5)) * CELLS > cell - 1e-9
                     for side, cell in zip(corner, (cell_i, cell_j))]
            there = there[0] & there[1] & (cell_i >= 0) & (cell_j >= 0)
            corner = np.where(there[:, None], np.stack([*corner, k], axis=1), 1)
            time = times(corner, sheet, p, dtype) * np.exp(correction)
            best = np.maximum(best, np.where(there, time, 0))
    return best


def data_sheets():
    """By card and format: multiprocessors, FLOP/s, bytes/s."""
    with open(HERE.parent / "topologies" / "devices.toml", "rb") as file:
        types = {t["name"]: t for t in tomllib.load(file)["device_types"]}

    def value(text):
        number, unit = text.split()
        return float(number) * {"TFLOP/s": 1e12, "GB/s": 1e9}[unit]
    return {(name, dtype): (t["multiprocessors"], value(t[peak]), value(t["memory_rate"]))
            for name, t in types.items() if "multiprocessors" in t
            for dtype, peak in (("bf16", "bf16"), ("fp8", "fp8"), ("fp8_block", "fp8"))
            if peak in t}


def read_rows():
    rows = []
    for path in (ROWS, FP8_ROWS):
        with open(path, newline="") as file:
            rows += [{"dtype": "bf16"} | row
                     for row in csv.DictReader(line for line in file if not line.startswith("#"))]
    return rows


def frameworks(path):
    """Errors for one framework's products of models that are fitted to another's.

    In BF16 a table has the series of one framework and medians over all: fitted to the former,
    judged on the latter. In FP8 it has the series of two.
    """
    with open(path, newline="") as file:
        table = list(csv.DictReader(file))
    sheets = data_sheets()

    def columns(rows, time):
        shapes = np.array([[float(row[name]) for name in ("m", "n", "k")] for row in rows])
        return shapes, np.array([float(row[time]) for row in rows]) * 1e-6

    def judge(gpu, dtype, rows, time, others, judged_time, overhead=None):
        sheet = sheets[gpu, dtype]
        known, measured = columns([row for row in rows if not is_held_out(row["n"], row["k"])], time)
        p, _ = min((fit(known, measured, sheet, dtype, cache, overhead) for cache in (15e6, 80e6)),
                   key=lambda found: found[1])
        if dtype == "bf16":
            p[NAMES.index("cast"):] = 0
        shapes, there = columns([row for row in others if is_held_out(row["n"], row["k"]) and
                                 float(row[judged_time]) >= JUDGED * 1e6], judged_time)
        known_cast, cast = (cast_times(s, sheet, p, dtype) for s in (known, shapes))
        error = corrected_times(shapes, sheet, p, dtype, known, measured - known_cast) + cast
        error = np.abs(error / there - 1)
        print(f"{gpu} {dtype}: fitted to {rows[0]['framework']}, {len(there)} held-out shapes of the "
              f"others: mean {100 * error.mean():.1f} %, p90 {100 * np.quantile(error, .9):.1f} %",
              flush=True)
        return p[NAMES.index("overhead")]

    for gpu in sorted({row["gpu"] for row in table}):
        own = [row for row in table if row["gpu"] == gpu]
        products = [row for row in own if row["dtype"] == "bf16"]
        several = [row for row in products if int(row["n_series"]) >= 2]
        overhead = judge(gpu, "bf16", products, "time_us", several, "median_us")
        eight = [row for row in own if row["dtype"] == "fp8"]
        fitted = [row for row in eight if "cuBLASLt" in row["kernel"]]
        others = [row for row in eight if "cuBLASLt" not in row["kernel"]]
        if fitted and others:
            judge(gpu, "fp8", fitted, "median_us", others, "median_us", overhead)


def main():
    if sys.argv[1:2] == ["extract"]:
        extract(sys.argv[2])
        return
    if sys.argv[1:2] == ["frameworks"]:
        frameworks(sys.argv[2])
        return
    rows = read_rows()
    sheets, lines, sustained_of, overheads = data_sheets(), [], {}, {}
    for dtype, gpu in sorted({(row["dtype"], row["gpu"]) for row in rows}):
        own = [row for row in rows if (row["dtype"], row["gpu"]) == (dtype, gpu)]
        column = lambda name: np.array([float(row[name] or "nan") for row in own])
        shapes = np.stack([column(name) for name in ("m", "n", "k")], axis=1)
        measured, sustained = column("median_us") * 1e-6, column("sustained_us") * 1e-6
        held_out = column("held_out") == 1
        used, sheet = ~held_out, sheets[gpu, dtype]
        # A product's own overhead does not depend on the format; the rest is the cast's.
        p, _ = min((fit(shapes[used], measured[used], sheet, dtype, cache, overheads.get(gpu))
                    for cache in (15e6, 80e6)), key=lambda found: found[1])
        p = np.array([float(f"{value:.4g}") for value in p])
        if dtype == "bf16":
            overheads[gpu] = p[NAMES.index("overhead")]
            p[NAMES.index("cast"):] = 0
        work = 2 * shapes.prod(axis=1)
        long = used & (work > 1e9) & np.isfinite(sustained)
        if long.any():
            sustained_of[gpu, dtype] = fit_sustained(shapes[long], sustained[long], sheet, p, dtype)
        cast = cast_times(shapes, sheet, p, dtype)
        modelled = times(shapes, sheet, p, dtype)
        corrected = corrected_times(shapes, sheet, p, dtype, shapes[used], (measured - cast)[used])
        error = np.abs((corrected + cast) / measured - 1)
        judged = held_out & (measured >= JUDGED) & (column("n_series") >= 2)
        lines.append((gpu, dtype, sheet, p, used.sum(), judged.sum(), error[judged].mean(),
                      np.quantile(error[judged], .9), np.median(column("spread")[judged]) - 1))
        print(f"{gpu} {dtype}: {used.sum()} rows, held out {judged.sum()}: mean "
              f"{100 * error[judged].mean():.2f} %, p90 {100 * lines[-1][7]:.2f} %, by the model alone "
              f"{100 * np.abs((modelled + cast) / measured - 1)[judged].mean():.2f} %; in the fit, of "
              f"at least 20 us, mean {100 * error[used & (measured >= JUDGED)].mean():.2f} %",
              flush=True)
        if (gpu, dtype) in sustained_of:
            some = held_out & (measured >= JUDGED) & np.isfinite(sustained)
            power = times(shapes, sheet, p, dtype, tuple(sustained_of[gpu, dtype])) / modelled
            off = np.abs((corrected * power + cast) / sustained - 1)
            print(f"  sustained, held out: mean {100 * off[some].mean():.2f} %")
    with open(MODELS, "w", newline="") as out:
        out.write(MODELS_HEADER)
        out.write("gpu,dtype,multiprocessors,peak,memory_rate," + ",".join(NAMES) +
                  ",sustained_power,sustained_flops,sustained_from,rows,held_out_rows,"
                  "held_out_mean_percent,held_out_p90_percent,spread_percent\n")
        for gpu, dtype, sheet, p, count, judged, mean, p90, spread in lines:
            # The H100 and the H200 are one chip with one limit of power (700 W).
            own = (gpu, dtype) in sustained_of
            source = gpu if own else {"h100-sxm5": "h200-sxm"}.get(gpu, "burst")
            power = sustained_of.get((source, dtype))
            if power is None:
                source, power = "burst", (p[NAMES.index("power")], p[NAMES.index("power_flops")])
            fields = [gpu, dtype, *(f"{value:g}" for value in sheet), *(f"{value:.4g}" for value in p),
                      *(f"{value:.4g}" for value in power), source, count, judged,
                      f"{100 * mean:.1f}", f"{100 * p90:.1f}", f"{100 * spread:.0f}"]
            out.write(",".join(map(str, fields)) + "\n")


if __name__ == "__main__":
    main()
