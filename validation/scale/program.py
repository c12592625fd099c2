#!/usr/bin/env python3
"""Measures what whole runs of parsim cost, and writes the tables of docs/scale.md.

    validation/scale/program.py build/release/parsim   # measures again, then writes the tables
    validation/scale/program.py build/release/parsim jobs classes  # measures these series again
    validation/scale/program.py                        # writes the tables of what was measured last

Writes program.csv to the folder of this file: processor time and peak memory of one process each,
with start-up, generator and JSON output.
"""
import csv
import datetime
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
PAGE = HERE.parents[1] / "docs/scale.md"
COLUMNS = ["series", "network", "cluster", "strategy", "devices", "layers", "slow_devices",
           "operations", "simulated_operations", "cpu_s", "wall_s", "peak_mb"]
HARDWARE = "device=a100-sxm4-80,intra=240GB/s,inter=25GB/s"


def nodes(devices, kind="nodes", more=""):
    return f"{kind}:{devices // 8}x8,{HARDWARE}{more}"


def cases():
    """series, network, cluster, strategy, devices, slow devices"""
    for devices in (8, 64, 512, 4096, 16384, 65536, 131072):
        yield "devices", "alexnet", nodes(devices), "data", devices, 0
    for devices in (1024, 16384, 131072):
        yield "devices", "resnet50", nodes(devices), "data", devices, 0
    for data in (8, 128):
        strategy = f"tensor --tp 8 --pp 8 --dp {data} --micro-batches 64"
        yield "jobs", "llama-3-70b", nodes(64 * data), strategy, 64 * data, 0
    strategy = "tensor --tp 8 --pp 8 --dp 8 --micro-batches 64"
    yield "slow-jobs", "llama-3-70b", nodes(512), strategy, 512, 0
    yield "slow-jobs", "llama-3-70b", nodes(512), strategy, 512, 1
    strategy = "tensor --tp 8 --pp 16 --dp 128 --micro-batches 128"
    yield "jobs", "llama-3-405b", nodes(16384), strategy, 16384, 0
    for layers in (12, 24, 48, 96):
        network = f"gpt:layers={layers},hidden=256,heads=4,seq_length=128"
        yield "layers", network, nodes(1024), "data", 1024, 0
    for slow in (0, 1, 8, 64, 512):
        yield "classes", "resnet50", nodes(1024), "data", 1024, slow
    for devices in (1024, 4096, 16384):
        cluster = nodes(devices, "rail", ",unit=32,oversubscription=2")
        yield "rails", "alexnet", cluster, "data", devices, 0
    for devices in (64, 128, 256, 512):
        for strategy in ("owt", "model", "model-even"):
            yield "all-to-all", "resnet50", nodes(devices), strategy, devices, 0
    cluster = nodes(512).replace("inter=25GB/s", "inter=25GB/s,nics=8")
    yield "all-to-all", "mixtral-8x7b", cluster, "data --ep 8", 512, 0


def run(program, network, cluster, strategy, slow):
    """How many operations one process counted, and its processor time, wall time and peak memory."""
    words = [program, "simulate", "--network", network, "--cluster", cluster,
             "--strategy", *strategy.split(), "--engine", "fast", "--no-timings", "--quiet", "--json"]
    if network == "mixtral-8x7b":
        words += ["--dim", "seq_length=4096", "--precision", "bf16", "--batch", "512", "--zero", "1"]
    if network.startswith("llama"):
        micro_batches = int(strategy.split()[-1])
        replicas = int(re.search("--dp ([0-9]+)", strategy).group(1))
        words += ["--precision", "bf16", "--optimizer", "adam", "--batch", str(micro_batches * replicas)]
    for device in range(slow):  # each slow in its own way, so that none is equal to another
        words += ["--straggler", f"n{device // 8}.gpu{device % 8}={1 + (device + 1) / 1000}"]
    start = datetime.datetime.now()
    # A file, not a pipe: the peak of a child counts what this process was when it started it, which
    # must stay small.
    output = tempfile.TemporaryFile("w+", encoding="utf-8")
    process = subprocess.Popen(words, stdout=output)
    _, status, usage = os.wait4(process.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, 5):  # 5: does not fit in memory
        sys.exit(f"exit code {code}: {' '.join(words[:9])}")
    wall = (datetime.datetime.now() - start).total_seconds()
    output.seek(0)
    counts = {}
    for line in output:
        if found := re.match('  "(operations|simulated_operations)": ([0-9]+),$', line):
            counts[found.group(1)] = int(found.group(2))
            if len(counts) == 2:
                break
    return counts, usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown processor"


def measured():
    """The first line of program.csv, and its rows."""
    with open(HERE / "program.csv", encoding="utf-8") as file:
        return next(file).lstrip("# ").strip(), list(csv.DictReader(file))


def measure(program, wanted):
    """wanted: series; none: all"""
    conditions = (f"measured {datetime.date.today()} on {processor()}, "
                  f"load average {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores")
    head, known = measured() if wanted else (conditions, [])
    if wanted:
        head += f"; {', '.join(wanted)}: {conditions}"
    rows = [[row[column] for column in COLUMNS] for row in known if row["series"] not in wanted]
    for series, network, cluster, strategy, devices, slow in cases():
        if wanted and series not in wanted:
            continue
        result, cpu, wall, peak = run(program, network, cluster, strategy, slow)
        layers = int(found.group(1)) if (found := re.search("layers=([0-9]+)", network)) else ""
        rows.append([series, network.split(":")[0], cluster, strategy, devices, layers, slow,
                     result["operations"], result["simulated_operations"], f"{cpu:.3g}",
                     f"{wall:.3g}", f"{peak:.0f}"])
        print(*rows[-1], flush=True)
    with open(HERE / "program.csv", "w", newline="", encoding="utf-8") as file:
        file.write(f"# {head}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def tables():
    """The Markdown table of each series."""
    head, rows = measured()
    keys = {"devices": ["network", "devices"], "jobs": ["network", "strategy", "devices"], "layers": ["layers"], "classes": ["slow_devices"],
            "slow-jobs": ["network", "strategy", "slow_devices"], "rails": ["devices"], "all-to-all": ["network", "strategy", "devices"]}
    text = {"measured": head + ".\n"}
    for series, first in keys.items():
        columns = [*first, "operations", "simulated_operations", "cpu_s", "wall_s", "peak_mb"]
        titles = {"slow_devices": "slow devices", "simulated_operations": "of them simulated",
                  "cpu_s": "CPU s", "wall_s": "wall s", "peak_mb": "MB"}
        lines = ["| " + " | ".join(titles.get(column, column) for column in columns) + " |",
                 "|" + "---|" * len(columns)]
        for row in rows:
            if row["series"] == series:
                cells = [f"{int(row[c]):,}" if row[c].isdigit() else row[c] for c in columns]
                lines.append("| " + " | ".join(cells) + " |")
        text[series] = "\n".join(lines) + "\n"
    return text


def write_page():
    page = PAGE.read_text(encoding="utf-8")
    for name, text in tables().items():
        begin, end = f"<!-- {name}: validation/scale/program.py -->\n", "<!-- end -->"
        at = page.index(begin) + len(begin)
        page = page[:at] + text + page[page.index(end, at):]
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1], sys.argv[2:])
    write_page()
