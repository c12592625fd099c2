#!/usr/bin/env python3
"""What a long life leaves: 2,000 random commands, right and wrong ones and some that a signal ends,
leave no process and no file that they were not asked for; a sweep of 10,000 points holds no more
memory and no more files at its end than in its middle.

    tests/faults/lives.py PARSIM      fewer, unless PARSIM_LONG=1
"""
import concurrent.futures
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the tree stays as it is
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from checking import check, failed, processes_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONG = os.environ.get('PARSIM_LONG', '') != ''
COMMANDS = int(os.environ.get('PARSIM_COMMANDS', 2000 if LONG else 60))
POINTS = int(os.environ.get('PARSIM_POINTS', 10_000 if LONG else 600))
DOCUMENTED = (0, 2, 3, 4, 5)  # 1 is a bug

NETWORKS = ['mlp', 'lenet5', 'gpt:layers=2,hidden=64,heads=2,seq_length=32,vocab_size=100', 'lenet', '']
CLUSTERS = ['star:2,device=t4', 'nodes:2x2,device=v100-sxm2', 'ring:3,device=t4', 'dgx-v100', 'star:x']
STRATEGIES = ['data', 'pipeline', 'tensor', 'owt', 'hybrid', 'nothing']
SWEEP = ('[options]\ncluster = "star:2,device=t4"\nstrategy = "data"\n[axes]\nnetwork = ["lenet5"]\n'
         'batch = [8, 16]\n')


def drawn(chance):
    """Words of a command. It may leave what they name."""
    one = chance.choice
    case = ['--network', one(NETWORKS), '--cluster', one(CLUSTERS), '--strategy', one(STRATEGIES),
            '--batch', one(['8', '16', '7', 'x'])]
    for words in (['--engine', 'simgrid'], ['--json'], ['--precision', 'bf16'], ['--tp', '2'],
                  ['--no-timings'], ['--wide'], ['--zero', '1'], ['--jitter', '0.1']):
        if chance.random() < 0.25:
            case += words
    host = ['--network', 'lenet5', '--strategy', 'data', '--hw-backend', 'host', '--hw-partition', '4,4']
    words = one([
        ['simulate', *case], ['compare', *case], ['explain', *case],
        ['simulate', *case, '--trace', 't.json', '--report', 'p.html'],
        ['compare', *case, '--jobs', '2', '--report', 'r.tex'],
        ['plan', *case, '-o', 'plan.json', '--dag', 'dag.json'],
        ['plan', *case, '--launch', 'deepspeed', '-o', 'launch'],
        ['sweep', 'sweep.toml', '-o', 'points', '--jobs', '2'],
        ['collective', one(['all-reduce', 'broadcast', 'sum']), '--cluster', one(CLUSTERS)],
        ['show', 'network', one(NETWORKS)], ['show', 'cluster', one(CLUSTERS)],
        ['list', one(['networks', 'devices', 'x'])], ['schema', 'compare'],
        ['doctor'], ['simulate', '--hw', *host],
        ['calibrate', *host, '-o', 'profile.json'],
    ])
    if chance.random() < 0.3:  # a word is lost, doubled or spoiled
        at = chance.randrange(len(words))
        words[at:at + 1] = one([[], [words[at]] * 2, [words[at][::-1]], ['--' + words[at]]])
    return words


def run_one(parsim, number):
    """Problems of a random command; whether it ended by itself."""
    chance = random.Random(number)
    words = drawn(chance)
    interrupted = chance.random() < 0.15
    with tempfile.TemporaryDirectory(prefix='parsim-lives-') as parent:
        here, scratch = pathlib.Path(parent, 'here'), pathlib.Path(parent, 'tmp')
        here.mkdir()
        scratch.mkdir()
        (here / 'sweep.toml').write_text(SWEEP)
        child = subprocess.Popen([str(parsim), *words], cwd=here, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                 env=dict(os.environ, TMPDIR=str(scratch)), start_new_session=True)
        if interrupted:
            time.sleep(chance.random() * 0.3)
            child.send_signal(chance.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP]))
        try:
            _, err = child.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            return [f'{words}: still running after 120 s'], False
        end = time.monotonic() + 5
        while (left := processes_of(child.pid)) and time.monotonic() < end:
            time.sleep(0.01)
        problems = []
        for process in left:
            problems.append(f'{words}: left process {process}')
            os.kill(process, signal.SIGKILL)
        extra = [name for name in os.listdir(here) if name not in words and name != 'sweep.toml']
        extra += [str(path.relative_to(here)) for path in here.rglob('*.tmp')]
        if extra or os.listdir(scratch):
            problems.append(f'{words}: left {extra + os.listdir(scratch)}')
        by_signal = child.returncode < 0
        if child.returncode not in DOCUMENTED and not (interrupted and (by_signal or child.returncode > 128)):
            problems.append(f'{words}: exit code {child.returncode}: {err.decode(errors="replace")[-300:]}')
        return problems, child.returncode == 0


def use_of(process):
    """Resident KiB and open descriptors."""
    with open(f'/proc/{process}/statm', encoding='utf-8') as file:
        pages = int(file.read().split()[1])
    return pages * os.sysconf('SC_PAGE_SIZE') // 1024, len(os.listdir(f'/proc/{process}/fd'))


def long_sweep(parsim):
    """Resident memory and descriptors of the processes that work at the points, over time."""
    batches = POINTS // 4
    text = ('[options]\ncluster = "star:{devices},device=t4"\nstrategy = "data"\nengine = "fast"\n[axes]\n'
            'network = ["mlp", "lenet5"]\ndevices = [2, 3]\n'
            f'batch = [{", ".join(str(n) for n in range(8, 8 + batches))}]\n')
    with tempfile.TemporaryDirectory(prefix='parsim-lives-') as folder:
        pathlib.Path(folder, 'sweep.toml').write_text(text)
        child = subprocess.Popen([str(parsim), 'sweep', 'sweep.toml', '-o', 'points', '--quiet'], cwd=folder,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 start_new_session=True)
        seen = []  # time, KiB, descriptors: of all its processes together
        while child.poll() is None:
            try:
                uses = [use_of(process) for process in processes_of(child.pid)]
                seen.append((sum(kib for kib, _ in uses), sum(files for _, files in uses)))
            except OSError:
                pass  # one ended meanwhile
            time.sleep(0.004)
        check(child.returncode == 0, f'sweep: exit code {child.returncode}')
        lines = sum(len(file.read_bytes().split(b'\n')) - 1
                    for file in pathlib.Path(folder, 'points').glob('*.jsonl'))
    check(lines >= POINTS, f'sweep: {lines} lines for {POINTS} points')
    third = len(seen) // 3
    if third < 10 and not LONG:  # a busy machine: some samples are too few to judge
        print(f'sweep: {lines} lines for {POINTS} points, only {len(seen)} samples of its memory')
        return
    check(third >= 10, f'sweep: only {len(seen)} samples')
    parts = [seen[third:2 * third], seen[2 * third:-3]]
    kib = [statistics.median(k for k, _ in part) for part in parts]
    files = [statistics.median(f for _, f in part) for part in parts]
    print(f'sweep: {lines} lines for {POINTS} points; resident memory of the second third {kib[0] / 1024:.1f} '
          f'MiB, of the last {kib[1] / 1024:.1f} MiB; descriptors {files[0]:.0f} and {files[1]:.0f}')
    check(kib[1] <= kib[0] + 1024, f'sweep: memory grew from {kib[0]} to {kib[1]} KiB')
    check(files[1] <= files[0], f'sweep: descriptors grew from {files[0]} to {files[1]}')


def main():
    parsim = pathlib.Path(sys.argv[1]).resolve()
    subprocess.run([parsim, '--version'], stdout=subprocess.DEVNULL, check=True)
    with open(parsim, 'rb') as file:
        if file.read(2) == b'#!':  # ./parsim is a script, which builds the program first
            parsim = ROOT / 'build' / os.environ.get('PARSIM_PRESET', 'release') / 'parsim'
    long_sweep(parsim)
    succeeded = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for problems, well in pool.map(lambda number: run_one(parsim, number), range(COMMANDS)):
            succeeded += well
            for problem in problems:
                check(False, problem)
    print(f'{COMMANDS} random commands, {succeeded} with exit code 0: {len(failed)} failed checks')
    check(succeeded * 5 > COMMANDS, 'too few commands did anything')


main()
sys.exit(1 if failed else 0)
