#!/usr/bin/env python3
"""Every JSON output and file against its schema, and every schema against slips: a key too many
or one too few anywhere must be refused.

    tests/schemas/check.py PARSIM     exit code 77 (skipped) without python3-jsonschema
"""
import copy
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # the tree stays as it is
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from checking import check, failed

try:
    import jsonschema
except ImportError:
    print('SKIPPED: python3-jsonschema')
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAR = 'star:4,device=p100-sxm2*2+v100-sxm2*2,rate=12GB/s,latency=1us'
SMALL = ['--network', 'lenet5', '--cluster', STAR]
HOST = ['--hw-backend', 'host', '--hw-partition', '64,32', '--network', 'lenet5']
CLUSTER = {'name': 'mine', 'nodes': [{'name': 'box', 'count': 2, 'switches': ['pcie'],
           'devices': [{'model': 't4', 'count': 2}],
           'links': [{'a': 'gpu*', 'b': 'pcie', 'rate': '12 GB/s', 'latency': '500 ns'}]}],
           'links': [{'pairs': [['box0.pcie', 'box1.pcie']], 'rate': '10 GB/s', 'latency': '2 us'}],
           'overrides': [{'links': 'box0.gpu0-*', 'rate': '6 GB/s'}]}
LAYOUT = {'micro_batches': 2, 'schedule': 'gpipe', 'zero': 1, 'zero_group': 'node',
          'stages': [{'layers': 'conv1-pool2', 'groups': [['gpu0'], ['gpu1']], 'samples': [3, 5]},
                     {'layers': 'flatten-fc3', 'groups': [['gpu2', 'gpu3']]}]}
OFFER = {'name': 'box', 'price': '1k', 'device': 't4', 'gpus': 2, 'intra': '10 GB/s',
         'inter': '10 GB/s', 'latency': '1 us', 'date': '2024-01-31', 'label': 'test',
         'source': 'made up'}
CONFIG = {'model_type': 'gpt2', 'n_embd': 12, 'n_layer': 1, 'n_head': 2, 'n_positions': 8,
          'vocab_size': 9, 'n_inner': None, 'attn_pdrop': 0}
SWEEP = {'options': {'strategy': ['data'], 'cluster': 'star:2,device=t4,rate={rate}'},
         'axes': {'batch': [8, 16], 'rate': ['1GB/s'], 'no-symmetry': [True, False]},
         'zip': [{'network': ['lenet5', 'mlp'], 'zero': [0, '1']}],
         'skip': [{'network': 'mlp', 'batch': [16]}]}
# Schema, file that people write, what it holds, members in place of these that must be refused, or
# not ("allowed"), by the schema and by the program with these arguments.
WRITTEN = [
    ('cluster-file', 'mine.json', CLUSTER,
     [{'nodes': {}}, {'links': [{'a': 'x', 'rate': '1 GB/s'}]}, {'surplus': 1}],
     ['show', 'cluster', 'mine.json']),
    ('layout-file', 'layout.toml', LAYOUT,
     [{'stages': {}}, {'zero_group': 0}, {'schedule': 'x'}, {'surplus': 1}],
     ['plan', *SMALL, '--layout', 'layout.toml']),
    ('offers-file', 'offers.json', {'offers': [OFFER]},
     [{'offers': [{**OFFER, **slip}]}
      for slip in ({'date': 2020}, {'rent': '3 /h'}, {'gpus': 0}, {'surplus': 1})],
     ['buy', '--budget', '1k', '--job', str(ROOT / 'tests/schemas/job.toml'), '--offers',
      'offers.json']),
    ('config-file', 'config.json', CONFIG,
     [{'model_type': 'gtp2'}, {'model_type': None}, {'n_embd': 0}, {'n_embd': '12'},
      {'n_inner': 2 ** 22 + 1}, {'attn_pdrop': 1}, {'tie_word_embeddings': 1},
      {'activation_function': 'gleu'}, {'attn_implementation': 'eagre'}, {'allowed': 1}],
     ['show', 'network', './config.json']),
    ('sweep-file', 'sweep.toml', SWEEP,
     [{'axes': {**SWEEP['axes'], **slip}}
      for slip in ({'batch': []}, {'batch': 8}, {'batch': [0.5]}, {'batch': [[8, 16]]},
                   {'no-symmetry': [1]}, {'Rate': ['1GB/s']})] +
     [{'options': []}, {'zip': {}}, {'zip': [{'network': 'lenet5'}]}, {'skip': {}}, {'surplus': {}},
      {'only': {}}],
     ['sweep', 'sweep.toml', '--dry-run']),
]
MOST_PLACES = 400  # of a document that slips are tried at

# Schema, exit code, arguments.
OUTPUTS = [
    ('compare', 0, ['compare', *SMALL, '--json']),
    ('compare', 0, ['compare', *SMALL, '--strategy', 'data', '--scaling', '1,2,4', '--json']),
    ('compare', 5, ['compare', '--network', 'vgg16', '--cluster', STAR, '--strategy', 'data',
                    '--override', 'devices.gpu0.memory=1GiB', '--no-timings', '--json']),
    ('compare', 0, ['compare', *SMALL, '--strategy', 'data', '--strategy', 'owt', '--collectives',
                    'measured', '--collective-times',
                    str(ROOT / 'tests/sim/data/all_reduce_old_4.txt'), '--json']),
    ('simulate', 0, ['simulate', *SMALL, '--strategy', 'pipeline', '--micro-batches', '4', '--json',
                     '--trace', 'trace.json.gz']),
    ('simulate', 0, ['simulate', *SMALL, '--strategy', 'data', '--sync', 'ps', '--server', 'gpu0',
                     '--no-timings', '--json']),
    ('simulate', 0, ['simulate', '--network', 'lenet5', '--cluster',
                     str(ROOT / 'tests/topologies/data/nccl/dgx-1v.xml'), '--strategy', 'data',
                     '--json']),
    ('plan', 0, ['plan', *SMALL, '--strategy', 'layer-wise', '-o', 'plan.json', '--dag', 'dag.json',
                 '--json']),
    ('plan', 0, ['plan', *SMALL, '--strategy', 'model', '--dag', 'model.json', '--json']),
    ('plan', 0, ['plan', *SMALL, '--strategy', 'data', '--zero', '2', '--zero-group', '2', '--dag',
                 'data.json', '-o', 'groups.json', '--json']),
    ('plan', 0, ['plan', *SMALL, '--strategy', 'pipeline', '-o', 'pipeline.json', '--json']),
    ('compare', 0, ['compare', *SMALL, '--plan', 'plan.json', '--strategy', 'best', '--json']),
    ('simulate', 0, ['simulate', *SMALL, '--plan', 'plan.json', '--jitter', '5%', '--straggler',
                     'gpu0=2', '--json']),
    *[(verb, 0, [verb, *SMALL, '--strategy', 'data', '--mtbf', '50000h', '--checkpoint-write', '1GB/s',
                 '--json']) for verb in ('simulate', 'compare', 'explain')],
    ('explain', 0, ['explain', *SMALL, '--strategy', 'data', '--json']),
    ('import', 0, ['import', 'kineto', str(ROOT / 'experiment/examples/trace.json'), '--network', 'mlp',
                   '--cluster', 'star:2,device=t4,rate=12GB/s,latency=1us', '--batch', '128',
                   '--strategy', 'data', '-o', 'traced.json', '--json']),
    ('collective', 0, ['collective', 'all-reduce', '--cluster', STAR, '--sizes', '1KiB..1MiB',
                       '--json']),
    *[('list', 0, ['list', what, '--json'])
      for what in ('strategies', 'networks', 'clusters', 'devices', 'costs')],
    ('show-network', 0, ['show', 'network', 'googlenet', '--json']),
    ('show-network', 0, ['show', 'network',
                         str(ROOT / 'tests/networks/data/hugging_face/gpt2.json'), '--json']),
    ('show-cluster', 0, ['show', 'cluster', 'dgx-v100', '--json']),
    ('show-cluster', 0, ['show', 'cluster', str(ROOT / 'tests/topologies/data/smi/dgx-a100.txt'),
                         '--json']),
    ('calibrate', 0, ['calibrate', *HOST, '-o', 'profile.json', '--json']),
    ('validate', 0, ['validate', '--hw', *HOST, '--strategy', 'data', '--profile', 'profile.json',
                     '--json']),
    ('validate', 0, ['validate', '--published', '--data', str(ROOT / 'tests/schemas/rows.csv'),
                     '--quiet', '--json']),
    ('compare', 0, ['compare', '--hw', *HOST, '--strategy', 'data', '--profile', 'profile.json',
                    '--json']),
    ('simulate', 0, ['simulate', '--hw', *HOST, '--strategy', 'data', '--profile', 'profile.json',
                     '--json']),
    ('buy', 0, ['buy', '--budget', '300k', '--job', str(ROOT / 'tests/schemas/job.toml'),
                '--offers', str(ROOT / 'experiment/examples/offers.toml'), '--own', STAR,
                '--json']),
    ('sweep', 0, ['sweep', str(ROOT / 'tests/schemas/sweep.toml'), '--dry-run', '--json']),
    ('sweep', 0, ['sweep', str(ROOT / 'tests/schemas/sweep.toml'), '-o', 'sweep', '--json']),
    ('sweep', 0, ['sweep', '--merge', 'sweep', '--top', '2', '--json']),
    ('doctor', 0, ['doctor', '--json']),
    ('reference', 0, ['reference', '--json']),
    ('completion', 0, ['completion', 'bash', '--json']),
]
# Schema and a file that the commands above wrote, or one of the tree.
FILES = [
    ('plan-file', 'plan.json'),
    ('plan-file', 'pipeline.json'),
    ('plan-file', 'groups.json'),
    ('dag-file', 'dag.json'),
    ('dag-file', 'model.json'),
    ('dag-file', 'data.json'),
    ('profile-file', 'profile.json'),
    ('profile-file', 'traced.json'),
    ('trace', 'trace.json.gz'),
    ('plan-file', ROOT / 'tests/fuzz/seeds/json/plan.json'),
    ('dag-file', ROOT / 'tests/fuzz/seeds/json/dag.json'),
]


def toml(document):
    def entry(value):
        if isinstance(value, dict):
            return '{' + ', '.join(f'{key} = {entry(item)}' for key, item in value.items()) + '}'
        return '[' + ', '.join(map(entry, value)) + ']' if isinstance(value, list) \
            else json.dumps(value)
    return ''.join(f'{key} = {entry(value)}\n' for key, value in document.items())


def places(value, path=()):
    """Paths of all objects in a document."""
    if isinstance(value, dict):
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) \
        if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def describe(error):
    error = jsonschema.exceptions.best_match([error]) or error
    return f'/{"/".join(map(str, error.absolute_path))}: {error.message[:200]}'


def check_document(name, schema, document, what):
    validator = jsonschema.Draft202012Validator(schema)
    errors = list(validator.iter_errors(document))
    check(not errors, f'{what} against {name}: {describe(errors[0]) if errors else ""}')
    if errors:
        return
    # Objects of one kind share a schema: the path without numbers tells which were tried.
    tried = set()
    for path in places(document):
        kind = tuple('*' if isinstance(key, int) else key for key in path)
        if kind in tried or len(tried) == MOST_PLACES:
            continue
        tried.add(kind)
        open_keys = {'versions', 'dims', 'otherData', 'args', 'sources'}
        if name == 'sweep':  # columns depend on the file; list items of --dry-run are closed
            open_keys = open_keys | {'inputs', '*'}
        if kind and kind[-1] in open_keys:
            continue
        slip = small(document, path)
        at(slip, path)['surplus_key'] = {}
        place = '/' + '/'.join(map(str, kind))
        check(not validator.is_valid(slip), f'{name}: a surplus key in {place}')
        slip = small(document, path)
        there = at(slip, path)
        optional = kind and kind[-1] == 'interference'  # what was measured to be none is left out
        if there and not optional:  # the first key of every other object is a required one
            del there[next(iter(there))]
            check(not validator.is_valid(slip), f'{name}: the first key of {place} is missing')


def small(document, path):
    """The document with only those items of its lists that the path leads through, so that trying
    many slips is quick; an empty list is valid everywhere here."""
    if not path:
        return copy.deepcopy(document)
    if isinstance(document, dict):
        return {key: small(value, path[1:]) if key == path[0] else value
                for key, value in document.items()}
    return [small(item, path[1:]) if i == path[0] else item for i, item in enumerate(document)]


def without_repeats(pairs):
    keys = [key for key, _ in pairs]
    check(len(keys) == len(set(keys)), f'definitions.json: a key stands twice among {sorted(keys)}')
    return dict(pairs)


def main():
    json.loads((ROOT / 'report/schemas/definitions.json').read_text(),
               object_pairs_hook=without_repeats)
    program = str(pathlib.Path(sys.argv[1]).resolve())
    # The refusal of another name lists them all.
    refusal = subprocess.run([program, 'schema', '?'], capture_output=True, text=True).stderr
    names = refusal.split('accepted: ')[1].strip().split(', ')
    schemas = {}
    for name in names:
        text = subprocess.run([program, 'schema', name], capture_output=True, check=True).stdout
        schemas[name] = json.loads(text)
        jsonschema.Draft202012Validator.check_schema(schemas[name])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        used = set()
        for name, code, arguments in OUTPUTS:
            what = 'parsim ' + ' '.join(arguments)
            run = subprocess.run([program, *arguments, '--quiet'], capture_output=True)
            check(run.returncode == code, f'{what}: exit {run.returncode}, not {code}: {run.stderr}')
            if run.returncode == code:
                check_document(name, schemas[name], json.loads(run.stdout), what)
            used.add(name)
        for name, file, document, slips, arguments in WRITTEN:
            validator = jsonschema.Draft202012Validator(schemas[name])
            for slip in ({}, *slips):
                slipped = {**document, **slip}
                pathlib.Path(file).write_text(
                    toml(slipped) if file.endswith('.toml') else json.dumps(slipped))
                run = subprocess.run([program, *arguments, '--quiet'], capture_output=True)
                good = not slip or 'allowed' in slip
                check(run.returncode == (0 if good else 2), f'{name}: {slip}: {run.stderr}')
                check(validator.is_valid(slipped) == good, f'{name}: {slip} and its schema')
            used.add(name)
        validator = jsonschema.Draft202012Validator(schemas['config-file'])
        for path in (ROOT / 'tests/networks/data/hugging_face').glob('*.json'):
            check(validator.is_valid(json.loads(path.read_text())), f'config-file: {path}')
        for name, path in FILES:
            read = gzip.open if str(path).endswith('.gz') else open
            with read(path, 'rt') as stream:
                check_document(name, schemas[name], json.load(stream), path)
            used.add(name)
    for golden in (ROOT / 'tests/golden').glob('*json*.txt'):
        command, _, output = golden.read_text().partition('\n')
        start = min(i for i in (output.find('{'), output.find('[')) if i >= 0)
        name = command.split()[1]
        check_document(name, schemas[name], json.loads(output[start:]), golden.name)
    # Never printed here: no GPU, and no test to make a machine or measurements by hand.
    unused = set(names) - used - {'machine-file', 'measurements-file'}
    check(not unused, f'no output for the schemas {sorted(unused)}')
    print('schemas:', len(names), 'failures:', len(failed))
    return bool(failed)


sys.exit(main())
