"""The Python module: the same results as the command line, for values that Python holds."""
import copy
import csv
import gc
import io
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import parsim

ROOT = pathlib.Path(os.environ['PARSIM_ROOT'])
PROGRAM = ROOT / 'build' / os.environ.get('PARSIM_PRESET', 'release') / 'parsim'
STAR = 'star:4,device=p100-sxm2*2+v100-sxm2*2,rate=12GB/s,latency=1us'
SMALL = {'network': 'lenet5', 'cluster': STAR, 'batch': 64}
CLUSTER = {'name': 'mine', 'nodes': [{'name': 'box', 'count': 2, 'switches': ['pcie'],
           'devices': [{'model': 't4', 'count': 2}],
           'links': [{'a': 'gpu*', 'b': 'pcie', 'rate': '12 GB/s', 'latency': '500 ns'}]}],
           'links': [{'pairs': [['box0.pcie', 'box1.pcie']], 'rate': '10 GB/s', 'latency': '2 us'}]}
BERT = {'model_type': 'bert', 'vocab_size': 1000, 'hidden_size': 64, 'num_hidden_layers': 2,
        'num_attention_heads': 2, 'intermediate_size': 128, 'max_position_embeddings': 64,
        'type_vocab_size': 2}


def command_line(*words, folder='.'):
    """What the program prints."""
    done = subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True,
                          check=False)
    if done.returncode == 2:
        raise AssertionError(done.stderr)
    return done.stdout


def command_of(result):
    """The command that a result records."""
    return (result['results'][0] if 'results' in result and 'inputs' not in result
            else result)['inputs']['command']


class Equality(unittest.TestCase):
    """Results are those of the command line, to the last digit."""

    def same(self, result, folder='.'):
        words = command_of(result)
        self.assertEqual('--json', words[-1])
        self.assertEqual(command_line(*words, folder=folder), result.to_json())
        table = command_line(*words[:-1], folder=folder)
        self.assertEqual(table, result.table())

    def test_compare(self):
        self.same(parsim.compare(**SMALL, no_timings=True))

    def test_compare_with_lists(self):
        self.same(parsim.compare(**SMALL, strategies=['data', 'owt'], scaling=[1, 2, 4],
                                 no_timings=True))

    def test_simulate(self):
        for engine in ('fast', 'simgrid', 'auto'):
            result = parsim.simulate(**SMALL, strategy='data', engine=engine, no_timings=True)
            self.same(result)
            self.assertEqual(result.step_time_s, json.loads(result.to_json())['step_time_s'])

    def test_explain_and_collective(self):
        self.same(parsim.explain(**SMALL, strategy='data', no_timings=True))
        self.same(parsim.collective('all-reduce', cluster=STAR, sizes='1KiB..1MiB'))

    def test_catalogues(self):
        self.assertEqual(command_line('list', 'networks', '--json'),
                         parsim.list('networks').to_json())
        self.assertEqual(command_line('show', 'cluster', STAR, '--json'),
                         parsim.show('cluster', STAR).to_json())

    def test_values_of_python(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, value in (('bert', BERT), ('cluster', CLUSTER)):
                with open(f'{folder}/{name}.json', 'w', encoding='utf-8') as file:
                    json.dump(value, file, indent=1)
            result = parsim.compare(network=BERT, cluster=CLUSTER, batch=8, strategy='data',
                                    dim={'seq_length': 32}, no_timings=True)
            self.same(result, folder)
        shown = parsim.show('cluster', CLUSTER)
        self.assertEqual(4, len(shown.devices))

    def test_does_not_fit(self):
        result = parsim.simulate(network='vgg16', cluster=STAR, strategy='data',
                                 override={'devices.gpu0.memory': '1GiB'})
        self.assertEqual((5, False), (result.exit_code, result.fits))


class Forms(unittest.TestCase):
    """What results and plans can do besides."""

    def test_tables(self):
        result = parsim.compare(**SMALL, strategies=['data', 'owt'])
        rows = list(csv.DictReader(io.StringIO(result.to_csv())))
        self.assertEqual([row.strategy for row in result.results],
                         [row['strategy'] for row in rows])
        self.assertEqual(result.results[0].step_time_s, float(rows[0]['step_time_s']))
        page = result._repr_html_()
        self.assertEqual(1, page.count('<table>'))
        self.assertIn(f'<th>{result.best}</th>', page)
        self.assertIn('| strategy', result.to_markdown())

    def test_pandas(self):
        result = parsim.compare(**SMALL, strategies=['data', 'owt'])
        try:
            import pandas
        except ImportError:
            with self.assertRaisesRegex(ImportError, 'pip install pandas'):
                result.to_pandas()
            return
        frame = result.to_pandas()
        self.assertIsInstance(frame, pandas.DataFrame)
        self.assertEqual(result.results[0].step_time_s, frame.step_time_s[0])

    def test_plans(self):
        plan = parsim.plan(network=BERT, cluster=CLUSTER, batch=8, strategy='data')
        self.assertEqual('parsim-plan', plan.format)
        step = parsim.simulate(plan=plan).step_time_s  # network and cluster go with it
        self.assertEqual(parsim.simulate(network=BERT, cluster=CLUSTER, batch=8,
                                         strategy='data').step_time_s, step)
        own = {**CLUSTER}
        planned = parsim.plan(network=BERT, cluster=own, batch=8, strategy='data')
        own['links'] = [{**CLUSTER['links'][0], 'rate': '1 GB/s'}]
        self.assertEqual(step, parsim.simulate(plan=planned).step_time_s)
        with tempfile.TemporaryDirectory() as folder:
            plan.save(f'{folder}/plan.json')
            self.assertEqual(plan, parsim.read_plan(f'{folder}/plan.json'))
            self.assertTrue(repr(plan).startswith("<plan 'data' of bert on "), repr(plan))
            self.assertLess(len(repr(plan)), 200)
            again = parsim.simulate(plan=f'{folder}/plan.json', network=BERT, cluster=CLUSTER)
        self.assertEqual(step, again.step_time_s)
        plan.layers[0].cuts[0].sizes = [8]
        with self.assertRaises(parsim.InputError):
            parsim.simulate(plan=plan)

    def test_layouts(self):
        layout = {'micro_batches': 2, 'schedule': 'gpipe', 'stages': [
            {'layers': 'conv1-pool2', 'groups': [['gpu0'], ['gpu1']], 'samples': [3, 5]},
            {'layers': 'flatten-fc3', 'groups': [['gpu2', 'gpu3']]}]}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'layout.toml'
            path.write_text('micro_batches = 2\nschedule = "gpipe"\n'
                            '[[stages]]\nlayers = "conv1-pool2"\n'
                            'groups = [["gpu0"], ["gpu1"]]\nsamples = [3, 5]\n'
                            '[[stages]]\nlayers = "flatten-fc3"\ngroups = [["gpu2", "gpu3"]]\n',
                            encoding='utf-8')
            job = {**SMALL, 'batch': 16}
            self.assertEqual(parsim.simulate(**job, layout=path).plan_id,
                             parsim.simulate(**job, layout=layout).plan_id)

    def test_sweeps(self):
        sweep = {'options': {'cluster': STAR, 'strategy': 'data'},
                 'axes': {'network': ['lenet5', 'mlp'], 'batch': [8, 16]}}
        with tempfile.TemporaryDirectory() as folder:
            parsim.sweep(sweep, output=folder, jobs=2)
            parsim.sweep(folder, merge=True, output=f'{folder}/rows.csv')
            rows = list(csv.DictReader(io.StringIO(pathlib.Path(folder, 'rows.csv').read_text())))
        self.assertEqual(4, len(rows))
        step = parsim.simulate(network='mlp', cluster=STAR, batch=16, strategy='data').step_time_s
        self.assertIn(step, [float(row['step_time_s']) for row in rows])

    def test_launch_files(self):
        with tempfile.TemporaryDirectory() as folder:
            plan = parsim.plan(network='gpt:layers=4,hidden=256,heads=4', cluster='dgx-v100',
                               batch=16, strategy='tensor', launch='megatron', output=folder)
            self.assertEqual(plan, parsim.read_plan(f'{folder}/plan.json'))
            self.assertIn('run.sh', os.listdir(folder))

    def test_launch_files_are_read_back_as_the_same_step(self):
        cluster = 'nodes:2x4,device=a100-sxm4-80*4+l40s*4,intra=25GB/s,inter=3GB/s'
        # A vocabulary that Megatron-LM does not pad.
        job = {'network': 'gpt:layers=6,hidden=256,heads=4,vocab_size=51200', 'cluster': cluster}
        for trainer, degrees in {'megatron': {'tp': 2, 'pp': 2, 'dp': 2}, 'flagscale': {}}.items():
            with self.subTest(trainer), tempfile.TemporaryDirectory() as folder:
                plan = parsim.plan(**job, batch=32, precision='bf16', optimizer='adam',
                                   strategy='tensor', **degrees, bucket='25MiB', launch=trainer,
                                   output=folder)
                os.remove(f'{folder}/plan.json')
                written = parsim.simulate(**job, plan=plan, fusion='megatron').step_time_s
                # Else with the trainer's own buckets.
                read = parsim.simulate(**job, plan=folder, bucket='25MiB').step_time_s
                self.assertLess(abs(read / written - 1), 1e-9)

    def test_strategies(self):
        def halves(network, cluster):
            self.assertEqual(network.layers, len(network.rows))
            plan = parsim.plan(network=network, cluster=cluster, batch=8, strategy='data')
            for layer in plan.layers:
                layer.cuts[0].sizes = [4, 4, 0, 0]
            return plan

        def none(network, cluster):
            raise parsim.InputError('none', 'nothing', 'accepted: something')

        def broken(network, cluster):
            return {'format': 'parsim-plan'}

        def wrong(network, cluster):
            raise ZeroDivisionError('mine')
        job = {'network': BERT, 'cluster': CLUSTER, 'batch': 8}
        result = parsim.compare(**job, strategies=['data', halves, none])
        rows = {row.strategy: row for row in result.results}
        self.assertEqual({'data', 'halves', 'none'}, set(rows))
        self.assertEqual('none: nothing; accepted: something', rows['none'].error)
        self.assertGreater(rows['halves'].devices[0].peak_memory_bytes,
                           rows['data'].devices[0].peak_memory_bytes)
        self.assertEqual(rows['halves'].step_time_s,
                         parsim.simulate(**job, strategy=halves).step_time_s)
        with self.assertRaises(parsim.InputError) as raised:
            parsim.simulate(**job, strategy=broken)
        self.assertTrue(raised.exception.where.startswith('strategy broken'))
        with self.assertRaisesRegex(ZeroDivisionError, 'mine'):
            parsim.compare(**job, strategies=['data', wrong])

    def test_strategies_plan_the_question(self):
        def same(network, cluster):
            return parsim.plan(network=network, cluster=cluster, strategy='data')
        language = {'network': BERT, 'cluster': CLUSTER, 'batch': 8, 'dim': {'seq_length': 32},
                    'overrides': ['devices.*.memory=8GiB'], 'zero': 1, 'fusion': 'compiled'}
        for job in [{**language, 'precision': 'fp16', 'optimizer': 'adam'},
                    {**language, 'precision': 'bf16', 'reduce_precision': 'bf16'},
                    {**SMALL, 'optimizer': 'sgd'}, {'network': 'lenet5', 'cluster': STAR}]:
            rows = parsim.compare(**job, strategies=['data', same]).results
            self.assertEqual({'data', 'same'}, {row.strategy for row in rows})
            self.assertEqual(rows[0].step_time_s, rows[1].step_time_s, job)

    def test_copies_of_plans_keep_what_only_python_holds(self):
        # Named as a built-in cluster is: by its name alone a copy would run on that one.
        slow = {'name': 'dgx-v100', 'nodes': [{
            'name': 'box', 'count': 1, 'switches': ['nvs'],
            'devices': [{'model': 'v100-sxm2', 'count': 8}],
            'links': [{'a': 'gpu*', 'b': 'nvs', 'rate': '1 GB/s', 'latency': '500 ns'}]}]}
        plan = parsim.plan(network='resnet50', cluster=slow, batch=256, strategy='data')
        step = parsim.simulate(plan=plan).step_time_s
        for one in (copy.copy(plan), copy.deepcopy(plan), pickle.loads(pickle.dumps(plan)),
                    plan | {}):
            self.assertIsInstance(one, parsim.Plan)
            self.assertEqual(step, parsim.simulate(plan=one).step_time_s)
        edited = copy.deepcopy(plan)
        edited['strategy'] = 'mine'
        self.assertEqual('data', plan.strategy)

    def test_strategies_within_strategies(self):
        def inner(network, cluster):
            return parsim.plan(network=network, cluster=cluster, strategy='data')

        class Outer:
            def __call__(self, network, cluster):
                return parsim.plan(network=network, cluster=cluster, strategy=inner)
        rows = parsim.compare(network=BERT, cluster=STAR, batch=8, dim={'seq_length': 32},
                              strategies=['data', Outer()]).results
        self.assertEqual({'data', 'Outer'}, {row.strategy for row in rows})
        self.assertEqual(rows[0].step_time_s, rows[1].step_time_s)

    def test_plans_of_another_question(self):
        for asked, found in [({'batch': 4}, 'batch 4; accepted: batch 64, as asked'),
                             ({'precision': 'fp16'},
                              'precision fp16; accepted: precision fp32, as asked'),
                             ({'reduce_precision': 'bf16'},
                              'gradients in bf16; accepted: gradients in fp32, as asked'),
                             ({'optimizer': 'adam'},
                              'optimizer adam; accepted: optimizer momentum, as asked')]:
            def other(network, cluster, asked=tuple(asked.items())):
                return parsim.plan(network=network, cluster=cluster, strategy='data',
                                   **dict(asked))
            rows = parsim.compare(**SMALL, strategies=['data', other]).results
            self.assertEqual([f'strategy other: a plan for {found}'],
                             [row.error for row in rows if row.strategy == 'other'])

        def of_another_network(network, cluster):
            return parsim.plan(network='resnet50_v1', cluster=cluster, strategy='data')

        def of_another_cluster(network, cluster):
            return parsim.plan(network=network, cluster='star:4,device=t4,rate=1GB/s',
                               strategy='data')
        rows = parsim.compare(network='resnet50', cluster=STAR, batch=64,
                              strategies=[of_another_network, of_another_cluster]).results
        self.assertIn("a plan for network 'resnet50_v1'; accepted: network 'resnet50', as asked",
                      rows[1].error)
        self.assertIn("was made for cluster 'star:4,device=t4,rate=1GB/s'", rows[0].notes)

    def test_what_strategies_get_is_passed_on(self):
        def same(network, cluster):
            seen.append(parsim.show('network', network).forward_flops_per_sample)
            seen.append(parsim.show('cluster', cluster).devices[0].memory_bytes)
            parsim.collective('all-reduce', cluster=cluster)
            plan = parsim.plan(network=network, cluster=cluster, strategy='data')
            for one in (plan, dict(plan)):
                step = parsim.simulate(network=network, cluster=cluster, plan=one)
                seen.append((step.step_time_s, step.inputs.precision))
            seen.append((parsim.simulate(plan=plan).step_time_s, 'fp16'))
            return plan
        seen = []
        row = parsim.simulate(network=BERT, cluster=CLUSTER, batch=8, precision='fp16',
                              dim={'seq_length': 32}, overrides=['devices.*.memory=8GiB'],
                              strategy=same)
        shown = parsim.show('network', BERT, dim={'seq_length': 32})
        self.assertEqual([shown.forward_flops_per_sample, 8 << 30,
                          *[(row.step_time_s, 'fp16')] * 3], seen)


class Refusals(unittest.TestCase):
    """InputError where the command line ends with exit code 2."""

    def refused(self, where, found, function, *arguments, **keywords):
        with self.assertRaises(parsim.InputError) as raised:
            function(*arguments, **keywords)
        self.assertEqual(where, raised.exception.where)
        self.assertIn(found, raised.exception.found)
        return raised.exception

    def test_names(self):
        error = self.refused('--network', "unknown network 'resnet5'", parsim.compare,
                             network='resnet5', cluster=STAR)
        self.assertIn("did you mean", error.accepted)
        self.assertEqual(f'{error.where}: {error.found}; {error.accepted}', str(error))

    def test_values(self):
        self.refused('--batch', "'many'", parsim.compare, network='lenet5', cluster=STAR,
                     batch='many')
        self.refused('--strategy', 'given 2 times', parsim.simulate, **SMALL,
                     strategy=['data', 'owt'])
        self.refused('--no-timings', "'yes'", parsim.compare, **SMALL, no_timings='yes')
        self.refused('--batch', 'a dict', parsim.compare, network='lenet5', cluster=STAR, batch={})

    def test_texts_that_utf8_cannot_write(self):
        for text in ('\ud800', os.fsdecode(b'net\xff.onnx')):
            self.refused('--network', ascii(text), parsim.compare, network=text, cluster=STAR)

    def test_keywords(self):
        error = self.refused('compare()', "unknown keyword 'bacth'", parsim.compare, bacth=3)
        self.assertIn("did you mean 'batch'", error.accepted)
        self.assertIsInstance(error, TypeError)

    def test_dicts(self):
        wrong = {**CLUSTER, 'nodes': [{**CLUSTER['nodes'][0], 'count': 0}]}
        with self.assertRaises(parsim.InputError) as raised:
            parsim.show('cluster', wrong)
        self.assertTrue(raised.exception.where.startswith('name.json:'), raised.exception.where)


class Processes(unittest.TestCase):
    """Threads, signals, memory."""

    def test_threads_run_at_once(self):
        alone = parsim.compare(**SMALL, no_timings=True).to_json()
        answers = []

        def work(engine):
            for _ in range(3):
                answers.append(parsim.compare(**SMALL, no_timings=True, engine=engine).to_json())
        threads = [threading.Thread(target=work, args=[engine]) for engine in
                   ('fast', 'fast', 'simgrid')]
        for thread in threads:
            thread.start()
        turns = 0
        while any(thread.is_alive() for thread in threads):
            turns += 1
            time.sleep(0.001)
        self.assertEqual(6, answers.count(alone))
        self.assertGreater(turns, 20)  # this thread went on meanwhile

    def test_simgrid_beside_busy_threads(self):
        """No process is forked there: the others' locks, malloc's among them, would come along."""
        steps = 200 if os.environ.get('PARSIM_LONG') else 50
        job = {**SMALL, 'strategy': 'data', 'no_timings': True}
        alone = parsim.simulate(**job, engine='simgrid').to_json()
        over = threading.Event()

        def work():
            while not over.is_set():
                parsim.simulate(**job)  # allocates without Python's lock
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            answers = [parsim.simulate(**job, engine='simgrid').to_json() for _ in range(steps)]
            with tempfile.TemporaryDirectory() as folder:
                sweep = {'options': {'cluster': STAR, 'strategy': 'data'},
                         'axes': {'network': ['lenet5'], 'batch': [8, 16]}}
                parsim.sweep(sweep, output=folder)
                parsim.sweep(folder, merge=True, output=f'{folder}/rows.csv')
                lines = pathlib.Path(folder, 'rows.csv').read_text(encoding='utf-8').splitlines()
                self.assertEqual(3, len(lines))
                with self.assertRaisesRegex(parsim.InputError, '--jobs.*several threads'):
                    parsim.sweep(sweep, output=folder, jobs=2)
            with self.assertRaisesRegex(parsim.InputError, '--time-limit.*several threads'):
                parsim.compare(**SMALL, time_limit='9s')
        finally:
            over.set()
            for thread in threads:
                thread.join()
        self.assertEqual(steps, answers.count(alone))

    def test_interrupt(self):
        # A shell's background jobs begin with SIGINT ignored, and hand that on.
        script = ('import parsim, signal, sys\n'
                  'signal.signal(signal.SIGINT, signal.default_int_handler)\n'
                  'print("ready", flush=True)\n'
                  'try: parsim.compare(network="resnet50", cluster="mixed-p100-v100",'
                  ' strategy="best", budget=100000000)\n'
                  'except KeyboardInterrupt: print("interrupted")')
        with subprocess.Popen([sys.executable, '-c', script], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as process:
            self.assertEqual('ready\n', process.stdout.readline())
            time.sleep(2)
            process.send_signal(signal.SIGINT)
            begin = time.monotonic()
            try:
                out, err = process.communicate(timeout=60)
            finally:
                process.kill()
        self.assertEqual('interrupted\n', out, err)
        self.assertLess(time.monotonic() - begin, 10)

    def test_nothing_is_left_behind(self):
        calls = 10_000 if os.environ.get('PARSIM_LONG') else 200
        page = os.sysconf('SC_PAGE_SIZE')

        def in_use():
            gc.collect()
            resident = int(pathlib.Path('/proc/self/statm').read_text().split()[1]) * page
            return resident, len(os.listdir('/proc/self/fd')), os.listdir(tempfile.gettempdir())

        def call(number):
            engine = 'simgrid' if number % 10 == 0 else 'fast'
            parsim.simulate(network='lenet5', cluster=CLUSTER, strategy='data', engine=engine)
            try:
                parsim.simulate(network='lenet', cluster=CLUSTER, strategy='data')
            except parsim.InputError:
                pass
        for number in range(50):
            call(number)
        memory, files, folders = in_use()
        for number in range(calls):
            call(number)
        after, files_after, folders_after = in_use()
        self.assertEqual(files, files_after)
        self.assertFalse([name for name in folders_after
                          if name.startswith('parsim-') and name not in folders
                          and str(os.getpid()) in name])
        self.assertLess(after - memory, 8 << 20)
