#!/usr/bin/env python3
"""Puts mistakes into a copy of the sources, one at a time, and sees whether the tests find them.

    tests/mutants/run.py [--count 200] [--seed 2026] [--folder build/mutants] [--jobs 2] [--again]

`count` places are drawn by the seed: a file, an operator that occurs in it, a place (places.py);
mistakes in known.toml come with them. All are compiled in at once, and PARSIM_MUTANT=N turns one of
them on (mutants.hpp). What the compiler refuses is replaced by the next draw. A first run of all test
programs notes which cases meet which places; then every mutant is run against cases that meet it,
quick ones and those of its own folder first, until one fails or takes many times as long as it
should, or until they took --longest seconds without it. Cases named golden do not count, nor those
that also fail without the mutant.

A call that is interrupted goes on where it stopped; --again tries those once more that no test found, with
the tests as they are now. Exit code 1: less than --least of the mutants were found (those in
equivalent.csv do not count).
"""
import argparse
import collections
import concurrent.futures
import csv
import hashlib
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the tree stays as it is
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import places

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPARE = 1.6  # draws per mutant: the compiler refuses some
FIRST_KNOWN = 3000
MEMORY = 8 << 30  # bytes of address space of a test
PROGRAMS = ('core', 'networks', 'topologies', 'sim', 'lowering', 'strategies', 'experiment', 'report',
            'validation', 'app', 'hw', 'property')
SCRIPTS = ('claims', 'schemas')  # tests/NAME/check.py, each a case of its own
Case = collections.namedtuple('Case', 'program name seconds')


def say(*words):
    print(*words, flush=True)


def tracked():
    return subprocess.run(['git', '-C', str(ROOT), 'ls-files', '--cached', '--others',
                           '--exclude-standard'],
                          check=True, capture_output=True, text=True).stdout.split('\n')[:-1]


def product(name):
    return name.endswith('.cpp') and name.split('/')[0] in places.FOLDERS


class Copy:
    """The tree with mutants, and its build."""

    def __init__(self, folder, count, seed):
        self.folder, self.count = folder, count
        self.source, self.build = folder / 'source', folder / 'source/build/bench'
        folder.mkdir(parents=True, exist_ok=True)
        names = [name for name in tracked() if (ROOT / name).is_file()]
        self.files = [name for name in names if product(name)]
        content = hashlib.sha256()
        for name in self.files:
            content.update((ROOT / name).read_bytes())
        self.state = {'sources': content.hexdigest(), 'count': count, 'seed': seed}
        self.refused = set()
        kept = folder / 'state.json'
        if kept.exists():
            old = json.loads(kept.read_text())
            if old['state'] != self.state:
                for name in ('results.jsonl', 'state.json'):
                    (folder / name).unlink(missing_ok=True)
            else:
                self.refused = {tuple(key) for key in old['refused']}
        self.known = [(FIRST_KNOWN + n, *one) for n, one in enumerate(places.known(ROOT))]
        self.drawn = [place for place in places.drawn(ROOT, self.files, int(count * SPARE) + 10, seed)
                      if not any(place.file == other.file and place.start < other.end and
                                 place.end > other.start for _, other, _ in self.known)]
        main = 'tests/support/main.cpp'  # which is compiled without the folder of all includes
        for name in names:
            if name not in self.files and name != main:
                self.write(name, (ROOT / name).read_bytes())
        here = pathlib.Path(__file__).resolve().parent
        listener = (here / 'cases.hpp').read_text().replace('#pragma once', '')
        self.write(main, ((ROOT / main).read_text() +
                          listener.replace('"tests/mutants/', '"../mutants/')).encode())
        self.write_mutants()

    def write(self, name, content):
        file = self.source / name
        if file.exists() and file.read_bytes() == content:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        shutil.copymode(ROOT / name if (ROOT / name).exists() else __file__, file)

    def chosen(self):
        """(number, place): the first `count` draws that compile. Numbers are those of the draw."""
        return [(n, place) for n, place in enumerate(self.drawn)
                if place[:4] not in self.refused][:self.count]

    def write_mutants(self):
        by_file = collections.defaultdict(list)
        for number, place in self.chosen():
            by_file[place.file].append((number, place))
        for name in self.files:
            text = (ROOT / name).read_text()
            replaced = [one for one in self.known if one[1].file == name]
            if name in by_file or replaced:
                text = places.switched(text, by_file[name], replaced)
            self.write(name, text.encode())
        (self.folder / 'state.json').write_text(
            json.dumps({'state': self.state, 'refused': sorted(self.refused)}))

    def compile(self, jobs):
        # Assertions of the standard library stand for the sanitizers of ./test.
        subprocess.run(['cmake', '--preset', 'bench', '-DPARSIM_PYTHON=OFF', '-DPARSIM_LIBRARY=OFF',
                        '-DPARSIM_BENCH=OFF', '-DCMAKE_CXX_FLAGS=-w -D_GLIBCXX_ASSERTIONS'],
                       cwd=self.source, check=True, stdout=subprocess.DEVNULL)
        targets = [f'{program}_tests' for program in PROGRAMS]
        while True:
            done = subprocess.run(['ninja', '-k', '0', f'-j{jobs}', '-C', str(self.build), *targets],
                                  capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return
            new = self.refused_by(done.stdout)
            if not new:
                sys.exit(f'the copy does not compile:\n{done.stdout[-5000:]}')
            say(f'{len(new)} places refused by the compiler')
            self.refused |= new
            self.write_mutants()

    def refused_by(self, output):
        """Places at, or a few lines before, the lines of the compiler's errors."""
        lines = collections.defaultdict(set)
        for match in re.finditer(r'(?m)^(?:In file included from )?\S*?/source/(\S+?\.cpp):(\d+)', output):
            lines[match[1]].add(int(match[2]))
        for before in (0, 3, 400):
            found = {place[:4] for _, place in self.chosen()
                     if any(0 <= line - place.line <= before for line in lines[place.file])}
            if found:
                return found
        return set()


def environment(**more):
    return dict(os.environ, RC_PARAMS='seed=2021', LC_ALL='C', OMPI_ALLOW_RUN_AS_ROOT='1',
                OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1', **more)


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(words, limit_s, **more):
    """Exit code and output of a test program; None after the limit."""
    with tempfile.TemporaryDirectory(prefix='parsim-mutants-') as scratch:
        with open(os.path.join(scratch, 'out'), 'w+b') as out:
            child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                     cwd=scratch, env=environment(TMPDIR=scratch, **more),
                                     start_new_session=True, preexec_fn=limited)
            try:
                code = child.wait(timeout=limit_s)
            except subprocess.TimeoutExpired:
                code = None
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
            out.seek(0)
            return code, out.read().decode(errors='replace')


class Tests:
    """The cases of all programs that pass, and which of them meet a place."""

    def __init__(self, copy, jobs, longest_s):
        self.copy, self.longest_s = copy, longest_s
        self.meeting = collections.defaultdict(list)  # number of a place → cases
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for _ in pool.map(self.note, sorted((*PROGRAMS, *SCRIPTS), key=('app', 'strategies').count,
                                                reverse=True)):
                pass
        total = 0
        for program in (*PROGRAMS, *SCRIPTS):
            for line in self.file(program).read_text().splitlines():
                seconds, failed, met, name = line.split('\t')
                total += 1
                if failed == '0':
                    for place in met.split():
                        self.meeting[int(place)].append(Case(program, name, float(seconds)))
                else:
                    say(f'fails without a mutant, and is left out: {program}: {name}')
        say(f'{total} cases of {len(PROGRAMS)} programs')

    def program(self, name):
        return self.copy.build / ('parsim' if name in SCRIPTS else f'tests/{name}_tests')

    def script(self, name):
        return [sys.executable, str(self.copy.source / f'tests/{name}/check.py'), str(self.program(name))]

    def file(self, name):
        return self.copy.folder / f'cases-{name}.tsv'

    def note(self, name):
        """Runs a program once and writes which of its cases meet what; not if that is known."""
        file, made_by = self.file(name), self.file(name).with_suffix('.sha256')
        content = hashlib.sha256(self.program(name).read_bytes()).hexdigest()
        if file.exists() and made_by.exists() and made_by.read_text() == content:
            return
        shared = self.copy.folder / f'reached-{name}'
        shared.write_bytes(bytes(4096))
        part = file.with_suffix('.part')
        part.unlink(missing_ok=True)
        start = time.monotonic()
        more = {'PARSIM_REACHED': str(shared), 'PARSIM_MUTANT_CASES': str(part)}
        if name in SCRIPTS:
            code = run(self.script(name), 7200, **more)[0]
            met = ' '.join(str(n) for n, byte in enumerate(shared.read_bytes()) if byte)
            part.write_text(f'{time.monotonic() - start}\t{int(code != 0)}\t{met}\t{name}\n')
        else:
            run([str(self.program(name)), '-m', '-tce=golden*'], 7200, **more)
        os.replace(part, file)
        made_by.write_text(content)
        say(f'{name}: every case once in {time.monotonic() - start:.0f} s')

    def batches(self, number, folder):
        """Cases that meet a place in groups of one program: its own folder's and quick ones first."""
        by_program = collections.defaultdict(list)
        for case in sorted(self.meeting[number], key=lambda case: case.seconds):
            by_program[case.program].append(case)
        spent = 0
        for longest in (0.5, 5, 1e9):
            for program in sorted(by_program, key=lambda name: (name != folder, sum(
                    case.seconds for case in by_program[name]))):
                cases = [case for case in by_program[program]
                         if case.seconds <= longest and case.seconds > {5: 0.5, 1e9: 5}.get(longest, -1)]
                batch, seconds = [], 0
                for case in cases:
                    if spent + seconds + case.seconds > self.longest_s:
                        break
                    batch.append(case)
                    seconds += case.seconds
                    if len(batch) == 300 or seconds > 10:
                        yield program, batch
                        spent += seconds
                        batch, seconds = [], 0
                if batch:
                    yield program, batch
                    spent += seconds

    def run_cases(self, program, cases, limit_s, **more):
        if program in SCRIPTS:
            return run(self.script(program), limit_s, **more)
        names = ','.join(case.name.replace(',', '?') for case in cases)
        return run([str(self.program(program)), '-m', '--abort-after=1', f'-tc={names}'], limit_s, **more)

    def killed_by(self, number, folder):
        """A case that fails with the mutant and passes without; the kind of failure."""
        for program, cases in self.batches(number, folder):
            while cases:
                limit_s = 20 + 10 * sum(case.seconds for case in cases)
                code, out = self.run_cases(program, cases, limit_s, PARSIM_MUTANT=str(number))
                if code == 0:
                    break
                named = re.findall(r'TEST CASE: +(.*)', out)
                blamed = [case for case in cases if named and case.name.strip() == named[-1].strip()]
                if self.run_cases(program, blamed or cases, 6 * limit_s)[0] == 0:
                    case = blamed[0].name if blamed else f'one of {len(cases)} cases'
                    return f'{program}: {case}', 'time' if code is None else 'killed'
                # It fails without the mutant as well: on a busy machine.
                cases = [case for case in cases if blamed and case not in blamed]
        return '', 'survived' if self.meeting[number] else 'not met'


def equivalents():
    with open(pathlib.Path(__file__).with_name('equivalent.csv'), encoding='utf-8') as file:
        return {(row['file'], row['operator'], row['text']): row['reason'] for row in csv.DictReader(file)}


def key(row):
    return row['file'], row['operator'], row['text']


def report(rows, least):
    known = equivalents()
    count = collections.Counter(row['result'] for row in rows)
    alive = [row for row in rows if row['result'] in ('survived', 'not met')]
    equal = [row for row in alive if key(row) in known]
    killed = count['killed'] + count['time']
    for row in alive:
        say(f"{row['result']}: {row['file']}:{row['line']}:{row['column']} {row['operator']}\n    {row['text']}"
            + (f'\n    equivalent: {known[key(row)]}' if key(row) in known else ''))
    real = len(rows) - len(equal)
    say(f"{len(rows)} mutants: {killed} killed ({count['time']} of them by time), {len(equal)} equivalent, "
        f'{real - killed} survive: {100 * killed / max(real, 1):.1f} %')
    return killed >= least * real


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--count', type=int, default=200)
    parser.add_argument('--seed', type=int, default=2026)
    parser.add_argument('--folder', type=pathlib.Path, default=ROOT / 'build/mutants')
    parser.add_argument('--jobs', type=int, default=os.cpu_count())
    parser.add_argument('--again', action='store_true')
    parser.add_argument('--least', type=float, default=0.9)
    parser.add_argument('--longest', type=float, default=120)
    options = parser.parse_args()
    copy = Copy(options.folder.resolve(), options.count, options.seed)
    copy.compile(options.jobs)
    tests = Tests(copy, options.jobs, options.longest)
    results = options.folder / 'results.jsonl'
    rows = {}
    if results.exists():
        for line in results.read_text().splitlines():
            row = json.loads(line)
            rows[row['mutant']] = row
    chosen = [(n, place) for n, place, _ in copy.known] + copy.chosen()
    left = [(n, place) for n, place in chosen if n not in rows or
            options.again and rows[n]['result'] not in ('killed', 'time')]
    with results.open('a') as file, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        def one(numbered):
            number, place = numbered
            start = time.monotonic()
            by, result = tests.killed_by(number, place.file.split('/')[0])
            return {'mutant': number, 'file': place.file, 'line': place.line, 'column': place.column,
                    'operator': place.operator, 'text': place.text, 'result': result, 'by': by,
                    'seconds': round(time.monotonic() - start, 1)}
        for row in pool.map(one, left):
            rows[row['mutant']] = row
            file.write(json.dumps(row) + '\n')
            file.flush()
            say(f"{row['mutant']} {row['result']} in {row['seconds']} s: {row['file']}:{row['line']} "
                f"{row['operator']}   {row['by']}")
    say('\nKnown mistakes (known.toml):')
    found = report([rows[n] for n, _, _ in copy.known], 1)
    say('\nDrawn:')
    return report([rows[n] for n, _ in copy.chosen()], options.least) and found


if not main():
    sys.exit(1)
