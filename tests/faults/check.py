#!/usr/bin/env python3
"""Lets the n-th open, read, write, fsync, rename, fork, exec, pipe, thread start or allocation of a
command fail, for every n, and checks what is left.

    tests/faults/check.py PARSIM LIBRARY [KIND...]     LIBRARY is what faults.cpp is built into

Every run must end in seconds with a documented exit code, with a sentence on standard error if that
is not 0, without a process, a temporary file or half a file left. With exit code 0, what it printed
and wrote is what it prints and writes without a fault: nothing is lost in silence.

Of allocations a few are drawn by a fixed seed; with PARSIM_LONG they are the first 2,000 and 500 more,
and each of the other calls also fails for good from the n-th on. PARSIM_FAULTS=N draws N of each.
"""
import collections
import concurrent.futures
import itertools
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the tree stays as it is
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from checking import check, failed, processes_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONG = os.environ.get('PARSIM_LONG', '') != ''
KINDS = ('open', 'read', 'write', 'sync', 'rename', 'fork', 'exec', 'pipe', 'thread', 'memory')
LONGEST_S = 60  # of a run: less would depend on the machine's load
DOCUMENTED = (0, 2, 3, 4, 5)  # 1 is a bug

STAR = ['--network', 'lenet5', '--cluster', 'star:2,device=t4']
HOST = ['--network', 'lenet5', '--hw-backend', 'host', '--hw-partition', '4,4']
DATA = ['--strategy', 'data']
SWEEP = ('[options]\ncluster = "star:2,device=t4"\nstrategy = "data"\n[axes]\nnetwork = ["lenet5"]\n'
         'batch = [8, 16]\n')
# Name, program, arguments.
COMMANDS = [
    ('simulate', 'parsim', ['simulate', *STAR, *DATA, '--engine', 'simgrid', '--no-timings',
                            '--trace', 'trace.json', '--report', 'page.html']),
    ('fast', 'parsim', ['simulate', *STAR, *DATA, '--engine', 'fast', '--no-timings', '--json']),
    ('compare', 'parsim', ['compare', *STAR, *DATA, '--strategy', 'pipeline', '--no-timings',
                           '--report', 'rows.tex']),
    ('plan', 'parsim', ['plan', *STAR, *DATA, '-o', 'plan.json', '--dag', 'new.json']),
    ('launch', 'parsim', ['plan', '--network', 'gpt:layers=2,hidden=64,heads=2', '--cluster',
                          'star:2,device=t4', *DATA, '--launch', 'megatron', '-o', 'launch']),
    ('smpi', 'parsim', ['plan', *STAR, *DATA, '--collectives', 'ideal', '--smpi',
                        'replay']),
    ('sweep', 'parsim', ['sweep', 'sweep.toml', '-o', 'points', '--jobs', '2', '--quiet']),
    ('merge', 'parsim', ['sweep', '--merge', 'results.1-of-1.jsonl', '-o', 'merged.csv']),
    ('hardware', 'parsim', ['simulate', '--hw', *HOST, *DATA, '--no-timings', '--json']),
    ('calibrate', 'parsim', ['calibrate', *HOST, *DATA, '-o', 'profile.json']),
    ('run', 'parsim-hw', ['run', '--backend', 'host', '--partition', '4,4', '--steps', '2', '--dag',
                          'dag.json', '-o', 'measured.json']),
    ('probe', 'parsim-hw', ['probe', '--backend', 'host']),
]


def programs(parsim):
    """The folder of the programs themselves: ./parsim is a script, which builds them first."""
    subprocess.run([parsim, '--version'], stdout=subprocess.DEVNULL, check=True)
    with open(parsim, 'rb') as file:
        script = file.read(2) == b'#!'
    if not script:
        return pathlib.Path(parsim).resolve().parent
    return ROOT / 'build' / os.environ.get('PARSIM_PRESET', 'release')


class Run:
    """A command in a folder of its own."""

    def __init__(self, bench, command, fault=None):
        name, program, words = command
        with tempfile.TemporaryDirectory(prefix='parsim-faults-') as parent:
            self.parent = pathlib.Path(parent)
            folder = self.parent / 'here'
            shutil.copytree(bench.inputs, folder)
            (self.parent / 'tmp').mkdir()
            log = self.parent / 'log'
            environment = dict(os.environ, LD_PRELOAD=bench.library, PARSIM_FAULT_LOG=str(log),
                               TMPDIR=str(self.parent / 'tmp'), LC_ALL='C')
            environment.pop('PARSIM_FAULT', None)
            if fault:
                environment['PARSIM_FAULT'] = fault
            child = subprocess.Popen([str(bench.folder / program), *words], cwd=folder,
                                     env=environment, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     start_new_session=True)
            try:
                self.out, self.err = child.communicate(timeout=LONGEST_S)
                self.late = False
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                self.out, self.err = child.communicate()
                self.late = True
            self.exit_code = child.returncode
            self.orphans = left_of(child.pid)
            self.log = log.read_text().splitlines() if log.exists() else []
            self.scratch = sorted(os.listdir(self.parent / 'tmp'))
            self.files = {str(path.relative_to(folder)): path.read_bytes()
                          for path in folder.rglob('*') if path.is_file()}
        self.name = name

    @property
    def faults(self):
        return [line.split()[1:] for line in self.log if line.startswith('failed ')]

    def calls(self):
        """Of each kind the most that a process made."""
        most = collections.Counter()
        for line in self.log:
            if not line.startswith('calls '):
                continue
            words = line.split()[1:]
            for kind, count in zip(words[::2], words[1::2]):
                most[kind] = max(most[kind], int(count))
        return most


def left_of(session):
    """Processes of a session, seconds after its first one ended; they are killed."""
    end = time.monotonic() + 5
    while True:
        found = processes_of(session)
        if not found or time.monotonic() > end:
            break
        time.sleep(0.01)
    for process in found:
        os.kill(process, signal.SIGKILL)
    return found


class Bench:
    def __init__(self, folder, library):
        self.folder, self.library = folder, str(pathlib.Path(library).resolve())
        self.home = tempfile.TemporaryDirectory(prefix='parsim-faults-')
        self.inputs = pathlib.Path(self.home.name)
        (self.inputs / 'sweep.toml').write_text(SWEEP)
        for words in (['plan', *STAR, *DATA, '--dag', 'dag.json', '-o', 'plan.json'],
                      ['sweep', 'sweep.toml', '-o', '.', '--quiet']):
            subprocess.run([str(folder / 'parsim'), *words], cwd=self.inputs, check=True,
                           stdout=subprocess.DEVNULL)


def sweep_lines(content):
    """A torn last line counts as not there, and so does one that a later call tries again."""
    return sorted(line for line in content.split(b'\n')[:-1] if b'"nondeterministic":true' not in line)


def whole(name, content, usual, before):
    """Whether a file of a run that failed is as it was, or complete. A sweep's lines come one by one."""
    if name.startswith('points/'):
        return set(sweep_lines(content)) <= set(sweep_lines(usual))
    return content in (usual, before.get(name))


def problems(run, usual, before):
    """What is wrong with a run with a fault, as texts."""
    if run.late:
        yield f'still running after {LONGEST_S} s'
        return
    if run.exit_code not in DOCUMENTED:
        yield f'exit code {run.exit_code}: {run.err.decode(errors="replace")[-300:]}'
    muted = any(kind == 'write' and descriptor == '2' for kind, descriptor in run.faults)
    if run.exit_code != 0 and not muted and not re.search(rb'parsim(-hw)?: \S', run.err + run.out) \
            and not re.search(rb'(nothing was|not) measured: \S|"reason": "', run.out):
        yield f'exit code {run.exit_code} without a sentence: {run.err!r}'
    if run.orphans:
        yield f'processes left: {run.orphans}'
    if run.scratch:
        yield f'left in TMPDIR: {run.scratch}'
    for name, content in run.files.items():
        if name not in usual.files:
            yield f'left: {name}'
        elif not whole(name, content, usual.files[name], before):
            yield f'half a file: {name}, {len(content)} of {len(usual.files[name])} bytes'
    if run.exit_code == 0 and not (run.name == 'sweep' and b'did not end' in run.out):
        files = [{name: sweep_lines(content) if name.startswith('points/') else content
                  for name, content in one.files.items()} for one in (run, usual)]
        if files[0] != files[1]:
            changed = [name for name in usual.files if files[0].get(name) != files[1][name]]
            yield f'exit code 0, but other files: {changed}'
        if run.out != usual.out:
            yield 'exit code 0, but another output'


def chosen(kind, most, name):
    """The calls of a kind that are to fail one by one."""
    every = list(range(1, most + 1))
    draw = random.Random(f'{name} {kind}').sample
    if kind != 'memory':
        limit = int(os.environ.get('PARSIM_FAULTS', len(every)))
        return every if len(every) <= limit else sorted(draw(every, limit))
    # Threads of `run` share what an exception must not leave behind: it is worth more.
    few = 200 if name == 'run' else 8
    first, more = (2000, 500) if LONG else (0, int(os.environ.get('PARSIM_FAULTS', few)))
    rest = every[first:]
    return every[:first] + sorted(draw(rest, min(more, len(rest))))


def main():
    folder = programs(sys.argv[1])
    kinds = sys.argv[3:] or KINDS
    with open(folder / 'parsim', 'rb') as file:
        if b'__asan_init' in file.read():
            print(f'SKIPPED: a build without sanitizers; {folder} replaces the allocator itself')
            sys.exit(77)
    bench = Bench(folder, sys.argv[2])
    before = {str(path.relative_to(bench.inputs)): path.read_bytes()
              for path in bench.inputs.rglob('*') if path.is_file()}
    done, runs = collections.Counter(), collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for command in COMMANDS:
            usual = Run(bench, command)
            check(usual.exit_code == 0, f'{command[0]}: without a fault: {usual.err.decode()}')
            calls = usual.calls()
            faults = [f'{kind}:{n}{later}' for kind in kinds
                      for n in chosen(kind, calls[kind], command[0])
                      for later in (('', '+') if LONG and kind != 'memory' else ('',))]
            for fault, run in zip(faults, pool.map(
                    lambda fault, command=command: Run(bench, command, fault), faults)):
                runs[fault.split(':')[0]] += 1
                done[fault.split(':')[0]] += bool(run.faults)
                for problem in problems(run, usual, before):
                    check(False, f'{command[0]} {fault}: {problem}')
    for kind in kinds:
        print(f'{kind}: {runs[kind]} runs, {done[kind]} with a failed call')
    print(f'{sum(runs.values())} runs of {len(COMMANDS)} commands, {len(failed)} failed checks')
    check(all(done[kind] > 0 for kind in kinds), 'a kind of call never failed: the library is not used')


main()
sys.exit(1 if failed else 0)
