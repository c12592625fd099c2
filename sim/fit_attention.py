#!/usr/bin/env python3
"""Fits the model of fused attention (sim/attention_model.hpp) to measurements that others published.

    sim/fit_attention.py extract FWD_BWD.csv FORWARD.csv    writes sim/attention_rows.csv
    sim/fit_attention.py                                    writes sim/attention_models.csv from it

FWD_BWD.csv has the columns gpu, library, mode, causal, batch, seq, heads, kv_heads, head_dim, tflops;
FORWARD.csv gpu, dtype, kv_dtype, kernel, causal, batch, seq, heads, kv_heads, head_dim, median_us.
Needs numpy and scipy; takes some seconds.

The shape of the curve (five numbers) is fitted to FlashAttention-2 alone, on three cards that were
measured forward and backward, and is one for all cards. Each other card adds two numbers: its level,
and that of heads of 64 channels. Kernels before it, measured on A100, have five numbers of their own: level,
level of heads of 64 channels, level with a causal mask, and two that stretch the curve. On another card they
are predicted from the A100 as FlashAttention-2's level there says; FlashAttention-1 on H100 tests that.
"""
import csv
import math
import pathlib
import sys
import tomllib

import numpy as np
from scipy.optimize import least_squares

HERE = pathlib.Path(__file__).parent
ROWS, MODELS = HERE / "attention_rows.csv", HERE / "attention_models.csv"
BOTH_WAYS = ["a100-sxm4-80", "h100-sxm5", "rtx-a5000"]
# FlashAttention-2 needs Ampere; on older cards PyTorch takes xformers' kernel, measured on an A100.
OLDER = "xformers"
# The charts' "FlashAttention Triton" is Triton's own (triton.ops), not the flash_attn_triton.py that trainers call.
KERNELS = [OLDER, "FlashAttention-1"]
A100, H100 = "a100-sxm4-80", "h100-sxm5"
# Forward only: the kernel that a trainer of today would run there.
FORWARD = {"l40s": "vllm_flash_attn_fa2", "b200-sxm": "vllm_flashinfer_trtllmprefill",
           "gb200": "vllm_flashinfer_trtllmprefill"}
# Compute capability, FLOP/s of 16-bit tensor cores (dense), of cards that are not in
# topologies/devices.toml.
OTHERS = {"gb200": ("10.0", 2500e12), "rtx-a5000": ("8.6", 111.1e12)}
LONG, SHORTEST = 100e-6, 512  # seconds, tokens: what is shorter does not fill a card
SHAPE = ["backward", "narrow", "forward_keys", "backward_keys", "masked_keys", "masked"]

ROWS_HEADER = """\
# Fused attention as others measured it. TFLOP/s count 4 batch heads seq^2 head_dim operations
# forward (half of them with a causal mask), 2.5 times as many backward.
# FlashAttention 1 and 2, and xformers: labels of the charts of Dao-AILab/flash-attention (BSD-3-Clause),
# integers; A5000: times stated in its issue tracker. Others, forward only, with a paged cache if causal: medians over
# versions of ai-dynamo/aiconfigurator, commit 095f58a, aic-core/src/aiconfigurator_core/systems/data
# (Apache-2.0), of at least 512 tokens and 100 us. Written by sim/fit_attention.py extract.
"""
MODELS_HEADER = """\
# Models of fused attention (sim/attention_model.hpp), written by sim/fit_attention.py from
# sim/attention_rows.csv (sources and licences there). level: FLOP/s of long sequences forward, heads
# of 128 channels, over `peak`, the data sheet's (FLOP/s); narrow: of heads of 64 channels, over level.
# The next columns are the curve, one for all cards with FlashAttention-2; masked: level with a causal
# mask over that without. mean_percent, p90_percent: errors of the card's
# own rows. without_percent: mean error of a card that was measured both ways when the curve is fitted
# to the other two, and only its level to itself; of another kernel on H100: without any row of it there.
"""


def extract(both_ways, forward):
    rows = []
    with open(both_ways, newline="") as file:
        for row in csv.DictReader(file):
            gpu = row["gpu"]
            if row["library"] in KERNELS and row["mode"] == "fwd_bwd" and gpu in (A100, H100):
                gpu = f'{gpu} with {row["library"]}'
            elif row["library"] != "FlashAttention-2" or gpu not in BOTH_WAYS:
                continue
            if row["head_dim"] in ("64", "128"):
                rows.append([gpu, row["library"], row["mode"], row["causal"], row["batch"],
                             row["seq"], row["heads"], row["kv_heads"], row["head_dim"], row["tflops"]])
    with open(forward, newline="") as file:
        for row in csv.DictReader(file):
            if (FORWARD.get(row["gpu"]) != row["kernel"] or row["dtype"] != "bf16" or
                    row["kv_dtype"] != "bf16" or row["head_dim"] not in ("64", "128")):
                continue
            seconds = float(row["median_us"]) * 1e-6
            if seconds < LONG or int(row["seq"]) < SHORTEST:
                continue
            flops = (4 * int(row["batch"]) * int(row["heads"]) * int(row["seq"]) ** 2 *
                     int(row["head_dim"])) / (2 if row["causal"] == "1" else 1)
            rows.append([row["gpu"], row["kernel"], "fwd", row["causal"], row["batch"], row["seq"],
                         row["heads"], row["kv_heads"], row["head_dim"],
                         f"{flops / seconds / 1e12:.4g}"])
    rows.sort(key=lambda r: (r[0], r[2], r[3], int(r[8]), int(r[5]), int(r[4]), int(r[6]), int(r[7])))
    with open(ROWS, "w", newline="") as out:
        out.write(ROWS_HEADER)
        out.write("gpu,kernel,mode,causal,batch,seq,heads,kv_heads,head_dim,tflops\n")
        csv.writer(out, lineterminator="\n").writerows(rows)


def data_sheets():
    devices = tomllib.loads((HERE.parent / "topologies/devices.toml").read_text())
    known = dict(OTHERS)
    for device in devices["device_types"]:
        if "bf16" in device and "architecture" in device:
            number, unit = device["bf16"].split()
            assert unit == "TFLOP/s", device["name"]
            known[device["name"]] = (device["architecture"], float(number) * 1e12)
    for kernel in KERNELS:
        for card in (A100, H100):
            architecture = "7.5" if kernel == OLDER else known[card][0]
            known[f"{card} with {kernel}"] = architecture, known[card][1]
    return known


def tflops(row, level, shape, peak):
    """As attention_time in sim/attention_model.cpp."""
    backward, narrow, forward_keys, backward_keys, masked_keys, mask = shape
    causal = row["causal"] == "1"
    keys = int(row["seq"]) / (2 if causal else 1)
    rate = peak * level * (narrow if row["head_dim"] == "64" else 1) * (mask if causal else 1) / 1e12
    masked = masked_keys if causal else 0
    forward = (keys + masked + forward_keys) / keys / rate
    back = 2.5 * (keys + masked + backward_keys) / keys / (rate * backward)
    return {"fwd": 1 / forward, "bwd": 2.5 / back, "fwd_bwd": 3.5 / (forward + back)}[row["mode"]]


def log_errors(rows, level, shape, peak):
    return [math.log(tflops(row, level, shape, peak) / float(row["tflops"])) for row in rows]


def fit_shape(rows, known, cards):
    """Levels of the cards, and the shape that they share."""
    def errors(logarithms):  # of the numbers, so that they stay positive
        values = np.exp(logarithms)
        levels, shape = values[:len(cards)], [*values[len(cards):], 1]
        return [error for card, level in zip(cards, levels)
                for error in log_errors(rows[card], level, shape, known[card])]
    start = np.log([0.5] * len(cards) + [0.9, 0.9, 100, 200, 64])
    # Cauchy's loss: a single odd row does not bend the curve.
    found = np.exp(least_squares(errors, start, loss="cauchy", f_scale=0.05).x)
    return dict(zip(cards, found)), np.append(found[len(cards):], 1)


def fit_kernel(rows, shape, peak):
    """Level and shape of another kernel on a card, from the shape of FlashAttention-2."""
    def unpacked(logarithms):
        level, narrow, stretch, masked_keys, mask = np.exp(logarithms)
        return level, np.array([shape[0], narrow, stretch * shape[2], stretch * shape[3], masked_keys, mask])

    def errors(logarithms):
        return log_errors(rows, *unpacked(logarithms), peak)
    start = np.log([0.3, 1, 0.5, 60, 0.9])
    return unpacked(least_squares(errors, start, loss="cauchy", f_scale=0.05).x)


def fit_level(rows, shape, peak):
    """The level at which half of the rows are slower than predicted and half are faster."""
    return math.exp(-np.median(log_errors(rows, 1, shape, peak)))


def main():
    sheets = data_sheets()
    known = {card: peak for card, (_, peak) in sheets.items()}
    rows = {}
    with open(ROWS, newline="") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            rows.setdefault(row["gpu"], []).append(row)
    levels, shape = fit_shape(rows, known, BOTH_WAYS)
    shapes = {card: shape for card in BOTH_WAYS}
    expected = {}  # levels of kernels on H100, from those on A100
    for kernel in KERNELS:
        card, other = f"{A100} with {kernel}", f"{H100} with {kernel}"
        levels[card], shapes[card] = fit_kernel(rows[card], shape, known[card])
        if other in rows:
            shapes[other] = shapes[card]
            levels[other] = fit_level(rows[other], shapes[other], known[other])
            expected[other] = levels[card] * levels[H100] / levels[A100]
    for card in FORWARD:
        wide = [row for row in rows[card] if row["head_dim"] == "128"]
        levels[card] = fit_level(wide, shape, known[card])
        shapes[card] = own = shape.copy()
        own[1] = 1  # heads of 64 channels: their level over the other one
        own[1] = fit_level([row for row in rows[card] if row["head_dim"] == "64"], own,
                           known[card]) / levels[card]
    with open(MODELS, "w", newline="") as out:
        out.write(MODELS_HEADER)
        out.write(",".join(["gpu", "kernel", "architecture", "peak", "level"] + SHAPE +
                           ["rows", "mean_percent", "p90_percent", "without_percent"]) + "\n")
        for card, level in levels.items():
            errors = 100 * np.abs(np.exp(log_errors(rows[card], level, shapes[card], known[card])) - 1)
            without = ""  # of others nothing is known
            if card in expected:
                ratios = np.exp(log_errors(rows[card], expected[card], shapes[card], known[card]))
                without = f"{100 * np.abs(ratios - 1).mean():.1f}"
            if card in BOTH_WAYS:
                others = [other for other in BOTH_WAYS if other != card]
                _, foreign = fit_shape(rows, known, others)
                own = fit_level(rows[card], foreign, known[card])
                ratios = np.exp(log_errors(rows[card], own, foreign, known[card]))
                without = f"{100 * np.abs(ratios - 1).mean():.1f}"
            out.write(f'{card},{rows[card][0]["kernel"]},{sheets[card][0]},{known[card]:.4g},{level:.4f},' +
                      ",".join(f"{value:.4g}" for value in shapes[card]) +
                      f",{len(rows[card])},{errors.mean():.1f},{np.percentile(errors, 90):.1f},{without}\n")


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "extract":
        extract(sys.argv[2], sys.argv[3])
    elif len(sys.argv) == 1:
        main()
    else:
        sys.exit(__doc__)
