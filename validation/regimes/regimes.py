#!/usr/bin/env python3
"""Where the plan of each paper wins: the tables of docs/papers.md, from the points of sweep.toml.

    parsim sweep validation/regimes/sweep.toml -o FOLDER --jobs 2     some 15 CPU minutes
    validation/regimes/regimes.py FOLDER                              prints the tables
    validation/regimes/regimes.py FOLDER --strongest FILE             writes the strongest case of each paper

A paper's strategy wins a point if its plan fits and every other row that fits takes at least 5 %
longer. The plan must be its own: `hypergraph` starts from all other strategies' plans, so that a
row with the plan (`plan_id`) of another one is that one's. A row of `hypergraph` that took over the
winner's plan is no other row.
"""
import argparse
import csv
import json
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent
PAPERS = {'model': 'Moreno-Alvarez et al.', 'hybrid': 'Akintoye et al.', 'layer-wise': 'Jia et al.',
          'hypergraph': 'Eserol'}
MARGIN = 1.05
AXES = ('network', 'batch', 'rate', 'gpus')


def points(folder):
    """By number: inputs and the rows that fit."""
    found = {}
    for file in sorted(pathlib.Path(folder).glob('results.*.jsonl')):
        with open(file, encoding='utf-8') as lines:
            for line in list(lines)[1:]:
                point = json.loads(line)
                if 'results' not in point:
                    continue
                rows = [row for row in point['results']
                        if row['step_time_s'] is not None and row['fits']]
                found[point['point']] = (point['inputs'], rows)
    return [found[number] for number in sorted(found)]


def win(paper, rows):
    """Step of the fastest other row over that of the paper's, and whose that row is; None: no win."""
    own = next((row for row in rows if row['strategy'] == paper), None)
    if own is None:
        return None
    others = [row for row in rows if row is not own
              and not (row['strategy'] == 'hypergraph' and row['plan_id'] == own['plan_id'])]
    if not others:
        return None
    best = min(others, key=lambda row: row['step_time_s'])
    gain = best['step_time_s'] / own['step_time_s']
    return (gain, best['strategy']) if gain >= MARGIN else None


def moves_more(paper, every):
    """Share of the points at which the paper's plan moves more bytes than the fastest other row."""
    more = fits = 0
    for _, rows in every:
        own = next((row for row in rows if row['strategy'] == paper), None)
        others = [row for row in rows if row['strategy'] != paper]
        if own is None or not others:
            continue
        fits += 1
        more += own['bytes_moved'] > min(others, key=lambda row: row['step_time_s'])['bytes_moved']
    return more / max(fits, 1)


def table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print('  '.join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('folder')
    parser.add_argument('--strongest')
    arguments = parser.parse_args()
    every = points(arguments.folder)
    wins = {paper: [] for paper in PAPERS}
    for inputs, rows in every:
        for paper in PAPERS:
            found = win(paper, rows)
            if found:
                wins[paper].append((found, inputs))
    strongest = {paper: max(found, key=lambda entry: entry[0][0])
                 for paper, found in wins.items() if found}

    if arguments.strongest:
        with open(arguments.strongest, 'w', encoding='utf-8', newline='') as file:
            rows = csv.writer(file, lineterminator='\n')
            rows.writerow(['strategy', 'network', 'batch', 'cluster', 'gain', 'over'])
            for paper, ((gain, other), inputs) in strongest.items():
                rows.writerow([paper, inputs['network'], inputs['batch'], inputs['cluster'],
                               f'{gain:.4f}', other])
        return

    print(f'{len(every)} points; a plan of the paper\'s own is at least 5 % faster than every other row')
    print()
    lines = [['strategy', 'paper', 'points', 'more bytes', 'strongest', 'there']]
    for paper, found in wins.items():
        line = [paper, PAPERS[paper], str(len(found)) if found else 'none',
                f'{100 * moves_more(paper, every):.0f} %', '-', '-']
        if found:
            (gain, other), inputs = strongest[paper]
            line[4] = f'{gain:.2f}x of {other}'
            line[5] = ', '.join([inputs['network'], f'batch {inputs["batch"]}', inputs['rate'],
                                 inputs['gpus'].replace(',device=', ' x ')])
        lines.append(line)
    table(lines)
    for axis in AXES:
        print()
        values = list(dict.fromkeys(inputs[axis] for inputs, _ in every))
        share = len(every) // len(values)
        lines = [[f'{axis} ({share} points each)'] + list(PAPERS)]
        for value in values:
            counts = [sum(inputs[axis] == value for _, inputs in wins[paper]) for paper in PAPERS]
            lines.append([str(value).replace(',device=', ' x ')] + [str(n) if n else '-' for n in counts])
        table(lines)


if __name__ == '__main__':
    main()
