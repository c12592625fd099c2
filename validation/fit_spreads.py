#!/usr/bin/env python3
"""Writes experiment/spreads.csv: how far prices are from measured ones, by class.

    validation/fit_spreads.py PARSIM       predicts validation/measurements with the program, from scratch
                                           and calibrated, and fits
    validation/fit_spreads.py SCRATCH.json CALIBRATED.json
                                           takes what `validate --published --quick --json` printed, with and
                                           without --from-scratch

Of each row the program tells the shares that classes of prices have in the step (`parts`) and its
`system`: machine, card and framework. The error of a row is e = ln(measured time / predicted time). Fitted
are half-widths q of logarithms, so that the interval of experiment/step_interval.hpp

    [-sqrt(sum (share q_low)^2 + host_low^2 + plan^2), +sqrt(sum (share q_high)^2 + host_high^2 + plan^2)]

has the least mean interval score (Gneiting and Raftery 2007, equation 43, for 90 %: width + 20 times by
how much e lies outside), all families counting alike, and half-widths of classes staying near each other
where the rows do not tell them apart. `plan` comes first: 90 % of the plans of one job (same network,
machine, GPUs, batch, framework) lie within it around their median. Kernels of a profile are judged on
validation/records. `constant` is the interval of one width for all steps that has the least score.

A family is a framework and a card: the machines of MLPerf's submitters run one trainer and are no more
than one witness. Rows without a framework have their system as family.

One line is fitted to all rows, and one without each system and its family, by which that system's rows are judged. A
system left out is less certain than the systems of a fit: all half-widths but `plan` are stretched by the
factor with which nine of ten rows lie inside the intervals of lines without their own systems; a line's
factor does not count the rows of the system that it leaves out.
The numbers are written with three digits. Needs numpy; takes a minute besides the predictions.
"""
import collections
import csv
import json
import math
import pathlib
import subprocess
import sys

import numpy as np

HERE = pathlib.Path(__file__).parent
OUT = HERE.parent / "experiment" / "spreads.csv"
CLASSES = ["measured", "products", "convolutions", "attention", "memory", "borrowed", "inside", "between", "launches",
           "gaps"]
OUTSIDE = 20  # 2 / 0.1
LEAST, MOST, START = 0.01, 3.0, 0.2
UNKNOWN = math.log(2), math.log(1.5)  # experiment/step_interval.cpp: cards without kernel data
# Classes that few rows tell apart stay near the others: weight of (ln q - mean of ln q)^2.
RIDGE = 0.01

HEADER = """\
# Spreads of prices by class (experiment/step_interval.hpp), written by validation/fit_spreads.py from
# the rows of validation/measurements (sources and licences there) and validation/records, as this version
# of the program predicts them. Half-widths of 90 % in logarithms: low to faster steps, high to slower ones.
# calibrated: a measured row of the card fits the prediction. without: the system whose rows are left out.
# systems, rows: in the fit. constant: the best interval of one width.
"""


class Row:
    def __init__(self, row):
        is_time = row["unit"] in ("ms", "us", "s")
        ratio = row["expected"] / row["predicted"]
        self.error = math.log(ratio if is_time else 1 / ratio)
        self.parts = [row["parts"][name] for name in CLASSES]
        self.set, self.system, self.case = row["set"], row["system"], row["case"]
        self.calibrated = row["calibrated"]
        self.job, self.family = None, self.system


def columns_of(set_name, line):
    """The columns of a row of a published table, which repeats as the set `..._uncalibrated`."""
    name = set_name.removesuffix("_uncalibrated")
    path = HERE / "measurements" / f"{name}.csv"
    if path not in columns_of.tables:
        with open(path, newline="") as file:
            columns_of.tables[path] = {reader.line_num: row for reader in [csv.DictReader(file)] for row in reader}
    return columns_of.tables[path][line]


columns_of.tables = {}


def rows_of(document):
    rows = []
    for entry in document["rows"]:
        if entry["parts"] is None:
            continue
        row = Row(entry)
        line = int(entry["case"].rsplit("(line ", 1)[1].rstrip(")"))
        columns = columns_of(row.set, line)
        if columns.get("framework"):
            row.family = columns["framework"], columns["gpu"]
        if columns.get("micro_batch"):
            row.job = tuple(columns.get(name) for name in ("model", "seq_len", "n_gpus", "machine", "gpu", "global_batch",
                                                           "precision", "framework"))
        rows.append(row)
    return rows


def recorded_rows():
    """Steps that were predicted with a profile of the card's kernels."""
    rows = []
    for path in sorted((HERE / "records").glob("*/*.csv")):
        with open(path, newline="") as file:
            for entry in csv.DictReader(line for line in file if not line.startswith("#")):
                rows.append(Row({"unit": "s", "expected": float(entry["measured_s"]),
                                 "predicted": float(entry["predicted_s"]), "set": "records", "calibrated": True,
                                 "system": path.parent.name, "case": entry["network"],
                                 "parts": {name: float(name == "measured") for name in CLASSES}}))
    return rows


def is_unknown(row):
    """Nine tenths of the kernels are of another card."""
    return row.parts[5] > 0 and sum(row.parts[:5]) <= row.parts[5] / 9


def plan_spread(rows):
    jobs = collections.defaultdict(list)
    for row in rows:
        if row.job is not None:
            jobs[row.job].append(row.error)
    away = [abs(error - np.median(errors)) for errors in jobs.values() if len(errors) >= 4 for error in errors]
    return float(np.quantile(away, 0.9)) if away else 0.0


class Fit:
    """Coordinate descent over logarithms of the half-widths; the score is not smooth."""

    def __init__(self, rows, plan, calibrated):
        self.errors = np.array([row.error for row in rows])
        self.squares = np.array([row.parts for row in rows]) ** 2
        self.squares = np.hstack([self.squares, np.ones((len(rows), 1))])  # host
        counts = collections.Counter(row.family for row in rows)
        weights = np.array([1 / counts[row.family] for row in rows])
        self.weights = weights / weights.sum()
        self.plan, self.calibrated = plan, calibrated
        self.unknown = np.array([not calibrated and is_unknown(row) for row in rows])
        self.seen = self.squares.max(axis=0) > 0

    def side(self, high):
        size = len(CLASSES) + 1
        errors = self.errors if high else -self.errors
        floor = UNKNOWN[1 if high else 0]

        def score(q):
            width = np.sqrt(self.squares @ (q * q) + self.plan ** 2)
            width = np.where(self.unknown, np.maximum(width, floor), width)
            spread = np.log(q[:-1][self.seen[:-1]])
            return float(self.weights @ (width + OUTSIDE * np.maximum(0, errors - width))) + \
                RIDGE * float(((spread - spread.mean()) ** 2).sum())

        q = np.full(size, START)
        best = score(q)
        for factor in (2.0, 1.4, 1.15, 1.05, 1.02):
            better = True
            while better:
                better = False
                for i in range(size):
                    if not self.seen[i]:
                        continue
                    for step in (factor, 1 / factor):
                        tried = q.copy()
                        tried[i] = min(MOST, max(LEAST, q[i] * step))
                        value = score(tried)
                        if value < best - 1e-9:
                            q, best, better = tried, value, True
        q[~self.seen] = np.exp(np.log(q[:-1][self.seen[:-1]]).mean())  # as the others
        return q

    def constant(self):
        errors = np.abs(self.errors)
        return float(min((self.weights @ (2 * k + OUTSIDE * np.maximum(0, errors - k)), k) for k in errors)[1])


def left(rows, without):
    """Without the system and those of its family."""
    families = {row.family for row in rows if row.system == without}
    return [row for row in rows if row.family not in families]


def line_of(rows, calibrated, without):
    kept = left(rows, without)
    plan = plan_spread(kept)
    fit = Fit(kept, plan, calibrated)
    low, high = fit.side(False), fit.side(True)
    return {"calibrated": "yes" if calibrated else "no", "without": without,
            "systems": len({row.system for row in kept}), "rows": len(kept),
            "low": low, "high": high, "plan": plan, "constant": fit.constant()}


def square(row, line, side):
    return float(((np.append(np.array(row.parts), 1.0) * line[side]) ** 2).sum())


def stretched(rows, lines, without):
    """How much wider the line has to be so that nine of ten rows, all systems counting alike, lie inside."""
    rows = left(rows, without)
    counts = collections.Counter(row.family for row in rows)
    needed = []
    for row in rows:
        line = lines[row.system]
        rest = max(0.0, row.error ** 2 - line["plan"] ** 2)
        needed.append((math.sqrt(rest / square(row, line, "high" if row.error > 0 else "low")), 1 / counts[row.family]))
    needed.sort()
    outside = 0.1 * sum(weight for _, weight in needed)
    while needed and outside >= needed[-1][1]:
        outside -= needed.pop()[1]
    return max(1.0, needed[-1][0])


def interval(row, line):
    widths = [math.sqrt(square(row, line, side) + line["plan"] ** 2) for side in ("low", "high")]
    if line["calibrated"] == "no" and is_unknown(row):
        widths = [max(width, least) for width, least in zip(widths, UNKNOWN)]
    return -widths[0], widths[1]


def judge(name, rows, lines):
    by_set = collections.defaultdict(list)
    for row in rows:
        line = lines[row.system]
        low, high = interval(row, line)
        k = line["constant"]
        outside = max(0, low - row.error, row.error - high)
        by_set[row.set].append((outside == 0, (math.exp(high) - math.exp(low)) / 2, high - low + OUTSIDE * outside,
                                2 * k + OUTSIDE * max(0, abs(row.error) - k), abs(row.error) <= k))
    by_set["all"] = [entry for entries in by_set.values() for entry in entries]
    for set_name, entries in by_set.items():
        inside, half, score, constant, covered = (np.array(column) for column in zip(*entries))
        print(f"{name:12} {set_name:34} {len(entries):5} covered {inside.mean():6.1%} half-width {np.median(half):6.1%} "
              f"score {score.mean():.2f} constant {constant.mean():.2f} ({covered.mean():.1%})", file=sys.stderr)


def predictions(arguments):
    if len(arguments) == 2:
        return [json.load(open(path)) for path in arguments]
    command = [arguments[0], "validate", "--published", "--quick", "--quiet", "--json"]
    return [json.loads(subprocess.run(command + more, check=True, capture_output=True).stdout)
            for more in (["--from-scratch"], [])]


def main():
    scratch, fitted = map(rows_of, predictions(sys.argv[1:]))
    written = []
    for name, calibrated, rows in (("from scratch", False, [row for row in scratch if not row.calibrated]),
                                   ("calibrated", True, [row for row in fitted if row.calibrated])):
        rows = rows + recorded_rows()
        systems = sorted({row.system for row in rows})
        lines = {system: line_of(rows, calibrated, system) for system in [""] + systems}
        factors = {system: stretched(rows, lines, system) for system in lines}
        for system, line in lines.items():
            line["low"], line["high"] = factors[system] * line["low"], factors[system] * line["high"]
        print(f"{name}: stretched by {factors['']:.2f}", file=sys.stderr)
        judge(name, rows, lines)
        written += lines.values()
    with open(OUT, "w", newline="") as file:
        file.write(HEADER)
        out = csv.writer(file, lineterminator="\n")
        names = CLASSES + ["host"]
        out.writerow(["calibrated", "without", "systems", "rows"] +
                     [f"{name}_{side}" for name in names for side in ("low", "high")] + ["plan", "constant"])
        for line in written:
            numbers = [line[side][i] for i in range(len(names)) for side in ("low", "high")]
            out.writerow([line["calibrated"], line["without"], line["systems"], line["rows"]] +
                         [f"{x:.3g}" for x in numbers + [line["plan"], line["constant"]]])


if __name__ == "__main__":
    main()
