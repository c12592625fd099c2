#!/usr/bin/env python3
"""Draws how the cost of a simulation grows with devices and layers, and stores how many plans a
search prices in a second.

    validation/scale/plot.py build/bench/tests/bench   # measures again, then draws
    validation/scale/plot.py                             # draws what was measured last

Writes scale.csv, scale.svg and estimator.csv to the folder of this file.
"""
import csv
import datetime
import json
import math
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
COLUMNS = ["engine", "devices", "layers", "operations", "cpu_s", "checksum"]
CURVES = {  # name in the benchmark: what it is called, colour
    "simgrid_every_rank": ("SimGrid, --no-symmetry", "#c2410c"),
    "simgrid": ("SimGrid", "#15803d"),
    "fast": ("--engine fast", "#1d4ed8"),
}
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 400, 300, 64, 34, 16, 48


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown processor"


def run(bench, name):
    answer = subprocess.run(
        [bench, f"--benchmark_filter={name}", "--benchmark_format=json"],
        check=True, capture_output=True, text=True)
    found = json.loads(answer.stdout)["benchmarks"]
    for one in found:
        if one.get("error_occurred"):
            sys.exit(f"{one['name']}: {one['error_message']}")
    return found


def write(name, what, columns, rows):
    with open(HERE / name, "w", newline="", encoding="utf-8") as file:
        file.write(f"# measured {datetime.date.today()} on {processor()}; {what}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def measure(bench):
    rows = []
    for one in run(bench, "simulate_chain"):
        _, engine, devices, layers = one["name"].split("/")[:4]
        rows.append([engine, int(devices), int(layers), int(one["ops"]),
                     f"{one['real_time'] / 1e3:.4g}", f"{one['checksum']:.9g}"])
    rows.sort(key=lambda row: (row[0], row[2] != 160, row[1], row[2]))
    write("scale.csv", "processor time of one run", COLUMNS, rows)
    rows = [[one["name"].split("/")[1], f"{one['cpu_time'] / 1e3:.3g}",
             f"{one['plans_per_s']:.4g}", f"{one['plans']:.0f}", f"{one['plans_known']:.3g}",
             f"{one['fragments_known']:.3g}", f"{one['step_ms']:.9g}", f"{one['plan_hash']:.0f}"]
            for one in run(bench, "^best/")]
    write("estimator.csv", "whole searches by `best` on 8 devices, without simulations",
          ["network", "cpu_s", "plans_per_s", "plans", "plans_known", "fragments_known", "step_ms",
           "plan_hash"], rows)


def text(x, y, words, anchor="middle", size=11, colour="#334155"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="{colour}">{words}</text>')


def panel(at, title, axis, curves, ticks):
    """One drawing, both axes logarithmic. curves: engine -> [(x, seconds)]."""
    xs = [x for points in curves.values() for x, _ in points]
    ys = [y for points in curves.values() for _, y in points]
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
    left, right = math.log10(min(xs)), math.log10(max(xs))
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x, y):
        return (at + LEFT + (math.log10(x) - left) / (right - left) * inner_width,
                TOP + (high - math.log10(y)) / (high - low) * inner_height)

    out = [text(at + LEFT + inner_width / 2, 20, title, size=13, colour="#0f172a"),
           text(at + LEFT + inner_width / 2, HEIGHT - 10, axis)]
    for power in range(low, high + 1):
        x, y = place(min(xs), 10.0 ** power)
        out.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x + inner_width:.1f}" y2="{y:.1f}" '
                   'stroke="#e2e8f0"/>')
        seconds = 10.0 ** power
        label = f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1e3:g} ms"
        out.append(text(x - 6, y + 4, label, "end"))
    for tick in ticks:
        x, _ = place(tick, 10.0 ** low)
        out.append(text(x, HEIGHT - BOTTOM + 16, f"{tick:,}"))
    for line, (engine, (name, colour)) in enumerate(CURVES.items()):
        if engine not in curves:
            continue
        points = [place(*point) for point in curves[engine]]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y in points:
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
        out.append(text(at + LEFT + 10, TOP + 16 + 16 * line, name, "start", 12, colour))
    return out


def draw():
    lines = (HERE / "scale.csv").read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(lines[1:]))

    def curves(varying, fixed, value):
        found = {}
        for row in rows:
            if int(row[fixed]) == value:
                point = (int(row[varying]), float(row["cpu_s"]))
                found.setdefault(row["engine"], []).append(point)
        return {engine: sorted(points) for engine, points in sorted(found.items())}

    by_devices, by_layers = curves("devices", "layers", 160), curves("layers", "devices", 1024)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT}" '
           'font-family="sans-serif">',
           f'<rect width="{2 * WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    out += panel(0, "160 layers, an all-reduce each", "devices", by_devices,
                 [8, 64, 256, 1024, 4096, 16384])
    out += panel(WIDTH, "1024 devices", "layers", by_layers, [10, 20, 40, 80, 160])
    out.append("</svg>")
    (HERE / "scale.svg").write_text("\n".join(out) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    if len(sys.argv) == 2:
        measure(sys.argv[1])
    draw()
