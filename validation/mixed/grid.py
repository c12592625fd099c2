#!/usr/bin/env python3
"""Is a plan whose stages differ better than every uniform one?

    validation/mixed/grid.py ./parsim [--quick]

Asks for the plan of a GPT of 13 billion parameters on the cluster of generations.toml, then for the
best uniform plans on it and on its parts: on each kind of machine alone all degrees ('tensor' tries
them), on several kinds together the degrees given below. Prints a line for each; exits with 1 if a
uniform plan that fits is faster.
"""
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

MODEL = "gpt:layers=40,hidden=5120,heads=40,seq_length=2048,attention=fused"
KINDS = ("a100-", "v100-", "t4-")


def part(text, kinds):
    """The cluster without the machines of other kinds and their links."""
    head, *tables = re.split(r"(?m)^(?=\[\[(?:nodes|links)\]\]$)", text)
    kept, own = [head], ""
    for table in tables:
        name = re.search(r'^(?:name|a) = "([a-z0-9]+-)', table, re.M)
        own = name.group(1) if name else own
        if own in kinds:
            kept.append(table)
    return "".join(kept)


def step(parsim, cluster, *options):
    run = subprocess.run(
        [parsim, "simulate", "--network", MODEL, "--cluster", cluster, "--batch", "512",
         "--precision", "fp16", "--optimizer", "adam", "--strategy", "tensor", "--quiet", "--json",
         *options], capture_output=True, text=True)
    if run.returncode not in (0, 5):
        return None, run.stderr.strip()
    result = json.loads(run.stdout)
    return (result["step_time_s"] if result["fits"] else None), " ".join(result["notes"][:1])


def main():
    parsim, quick = sys.argv[1], "--quick" in sys.argv
    text = (pathlib.Path(__file__).parent / "generations.toml").read_text()
    with tempfile.TemporaryDirectory() as folder:
        def file_of(kinds):
            path = pathlib.Path(folder) / ("".join(kinds) + ".toml")
            path.write_text(part(text, kinds))
            return str(path)

        mixed, notes = step(parsim, file_of(KINDS))
        print(f"mixed: {mixed} s: {notes}", flush=True)
        best = float("inf")
        for kind in KINDS:
            time, notes = step(parsim, file_of((kind,)))
            best = min(best, time or best)
            print(f"{kind}*: {time} s: {notes}", flush=True)
        grid = itertools.product(((8, 7), (4, 14), (2, 28)), (64, 128)) if quick else \
            itertools.product(((8, 7), (8, 1), (4, 14), (4, 7), (2, 28), (2, 14), (2, 7), (1, 28)),
                              (32, 64, 128, 256))
        for (tp, pp), number in grid:
            time, notes = step(parsim, file_of(KINDS[:2]), "--tp", str(tp), "--pp", str(pp),
                               "--micro-batches", str(number))
            best = min(best, time or best)
            print(f"a100 and v100, tp {tp} pp {pp} micro-batches {number}: {time} s", flush=True)
        grid = itertools.product(((8, 17), (4, 34), (4, 17)), (64, 128, 256))
        for (tp, pp), number in () if quick else grid:
            time, notes = step(parsim, file_of(KINDS), "--tp", str(tp), "--pp", str(pp),
                               "--micro-batches", str(number))
            best = min(best, time or best)
            print(f"all, tp {tp} pp {pp} micro-batches {number}: {time} s", flush=True)
    print(f"mixed {mixed} s, best uniform {best} s")
    return int(mixed is None or best < mixed)


if __name__ == "__main__":
    sys.exit(main())
