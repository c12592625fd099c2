#!/usr/bin/env python3
"""How far the best plan is from the bound that no plan beats: the table of docs/model.md.

    parsim sweep validation/gaps/sweep.toml -o FOLDER --jobs 2     some 5 CPU minutes
    validation/gaps/gaps.py FOLDER

gap = step / lower_bound - 1 of `best`, in the questions of sweep.toml. A negative one is an error.
"""
import json
import pathlib
import statistics
import sys


def main():
    gaps = {}
    missing = 0
    for file in sorted(pathlib.Path(sys.argv[1]).glob('results.*.jsonl')):
        with open(file, encoding='utf-8') as lines:
            for line in list(lines)[1:]:
                point = json.loads(line)
                rows = point.get('results', [])
                if not rows or rows[0]['gap'] is None:
                    missing += 1
                    continue
                key = (point['inputs']['network'], point['inputs']['cluster'])
                gaps[key] = (point['point'], rows[0]['gap'])
    if any(gap < 0 for _, gap in gaps.values()):
        sys.exit(f'a bound that a plan beats: {min(gaps.items(), key=lambda item: item[1][1])}')
    order = sorted(gaps, key=lambda key: gaps[key][0])
    networks = list(dict.fromkeys(network for network, _ in order))
    clusters = list(dict.fromkeys(cluster for _, cluster in order))
    values = sorted(gap for _, gap in gaps.values())
    print(f'{len(values)} questions, {missing} without a plan that fits; gap of best: '
          f'median {100 * statistics.median(values):.1f} %, least {100 * values[0]:.1f} %, '
          f'largest {100 * values[-1]:.0f} %')
    print()
    for number, cluster in enumerate(clusters, 1):
        print(f'{number}: {cluster}')
    print()
    rows = [['gap on cluster'] + [str(number) for number in range(1, len(clusters) + 1)]]
    for network in networks:
        rows.append([network.split(':')[0]] + [
            f'{100 * gaps[network, cluster][1]:.1f} %' if (network, cluster) in gaps else '-'
            for cluster in clusters])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print('  '.join([row[0].ljust(widths[0])] + [
            cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]))


main()
