#!/usr/bin/env python3
"""Prints the numbers of core/measured_links.cpp: what each measured system says of its links.

    validation/fit_links.py PARSIM

Every row of the tables of collectives is predicted with data-sheet rates and nothing fitted (column
`uncalibrated` is `bare`). Then, by machine:

    launch      median of measured minus predicted from 4 to 64 KiB, over the tables of the machine
    efficiency  and root, from 16 MiB on, by least squares of relative errors in
                    measured - launch - last = flow / efficiency + root * sqrt(bytes)
                where `last` is a ring's last step (sim/nccl.hpp). Multicasts and all-to-alls are left
                out. An efficiency is at most 1, a root at least 0.
"""
import collections
import csv
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile

NCCL = os.path.join(os.path.dirname(__file__), "../sim/nccl.cpp")
COPY_SHARE = float(re.search(r"copy_share = ([0-9.]+);", open(NCCL).read()).group(1))
MEMORY = {  # GB/s, topologies/devices.toml
    "A100-SXM4-40GB": 1555, "A100-SXM4": 1555, "A100-SXM4-80GB": 2039, "a100-sxm4-80": 2039,
    "H100-SXM5-80GB": 3350, "h100-sxm5": 3350, "b200-sxm": 8000, "l40s": 864,
    "V100-PCIe-32GB": 900, "GTX 1080 Ti": 484, "Tesla M40": 288, "Tesla P100 (PCIe box)": 732,
    "GTX Titan X (Maxwell)": 336, "Titan X (Pascal)": 480}


def bare_rows():
    folder = os.path.join(os.path.dirname(__file__), "measurements")
    rows = []
    for name in ("collectives.csv", "collectives_modern.csv"):
        with open(os.path.join(folder, name)) as file:
            rows += csv.DictReader(file)
    columns = []
    for row in rows:
        row.update(split="validate", uncalibrated="bare")
        columns += [key for key in row if key not in columns]
    return rows, columns


def predicted(parsim, rows, columns):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bare.csv")
        with open(path, "w") as file:
            writer = csv.DictWriter(file, columns, restval="")
            writer.writeheader()
            writer.writerows(rows)
        command = [parsim, "validate", "--published", "--data", path, "--json", "--quiet"]
        out = subprocess.run(command, check=True, capture_output=True).stdout
    for row in json.loads(out)["rows"]:
        line = int(re.search(r"\(line (\d+)\)", row["case"]).group(1))
        yield rows[line - 2], float(row["expected"]), float(row["predicted"])


def fit(points):
    """(flow / measured, sqrt(bytes) / measured, target / measured) -> 1 / efficiency, root."""
    aa = sum(a * a for a, _, _ in points)
    ar = sum(a * r for a, r, _ in points)
    rr = sum(r * r for _, r, _ in points)
    ay = sum(a * y for a, _, y in points)
    ry = sum(r * y for _, r, y in points)
    det = aa * rr - ar * ar
    if det > 1e-9 * aa * rr:
        inverse, root = (ay * rr - ry * ar) / det, (ry * aa - ay * ar) / det
        if inverse >= 1 and root >= 0:
            return inverse, root
    only_root = max(0, sum(r * (y - a) for a, r, y in points) / rr)
    borders = [(1, only_root), (max(1, ay / aa), 0)]
    return min(borders, key=lambda b: sum((a * b[0] + r * b[1] - y) ** 2 for a, r, y in points))


def main():
    machines = collections.defaultdict(list)
    for row, measured, model in predicted(sys.argv[1], *bare_rows()):
        machines[row["machine"], int(row["nodes"]) > 1].append((row, measured, model))
    for (machine, several), rows in machines.items():
        small = collections.defaultdict(list)
        for row, measured, model in rows:
            if 4096 <= int(row["size_bytes"]) <= 65536 and row["collective"] not in ("all_to_all", "alltoall"):
                small[row["gpu"], row["n_gpus"], row["collective"]].append(measured - model)
        launch = statistics.median(map(statistics.median, small.values())) if small else None
        points = []
        for row, measured, model in rows:
            size, ranks = int(row["size_bytes"]), int(row["n_gpus"])
            kind = row["collective"]
            multicast = (kind == "all_reduce" and ranks == 8 and not several
                         and row["gpu"].lower().startswith(("h100", "b200")))
            if size < 16 << 20 or multicast or kind in ("all_to_all", "alltoall"):
                continue
            last = 0
            if kind not in ("broadcast", "reduce"):
                last = size / ranks / (COPY_SHARE * 1e3 * MEMORY[row["gpu"]])
            points.append(((model - last) / measured, math.sqrt(size) / measured,
                           (measured - last - (launch or 0)) / measured))
        inverse, root = fit(points) if points else (float("nan"), float("nan"))
        print("%-60s %s machines  launch %s us  efficiency %.3f  root %.4f us" %
              (machine[:60], "several" if several else "one",
               "unknown" if launch is None else "%.1f" % launch, 1 / inverse, root))


main()
