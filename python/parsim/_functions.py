"""Functions named as the verbs, with the options as keywords, made from the program's own table."""
import copy
import difflib
import inspect
import json
import os
import pathlib
import re
import tempfile
from keyword import iskeyword

from parsim import _parsim
from parsim._errors import InputError, UnknownKeyword
from parsim._results import Plan, Record, records, result_of

TABLE = json.loads(_parsim.table())
OPTIONS = {option['flag']: option for option in TABLE['options']}
# Verbs for a shell only.
LEFT_OUT = {'completion', 'reference'}
# SimGrid takes ten times as long, and the same times come out to 1e-9.
DEFAULTS = {'engine': 'fast'}


def name_of(verb):
    """The function's name: 'import_' of the verb import, which is a word of Python."""
    return verb['name'] + ('_' if iskeyword(verb['name']) else '')


def keyword_of(option):
    """'zero_group' of --zero-group, 'output' of -o."""
    name = option['flag'] if option['flag'].startswith('--') else option['long_name']
    return name.strip('-').replace('-', '_')


def keywords_of(verb):
    """Keyword -> option, and the same with plurals of options that may be given several times, by
    which `inputs` of results know them. Options that every verb has say how a result is printed:
    results have methods for that."""
    named = {keyword_of(OPTIONS[flag]): OPTIONS[flag] for flag in verb['options']
             if not OPTIONS[flag]['everywhere']}
    plurals = {option['key']: option for option in named.values()
               if option['repeats'] and option['key']}
    return named, {**plurals, **named}


def with_own_folder(value):
    """A cluster's nodes import files: of a dict those of the current folder."""
    nodes = value.get('nodes')
    if not isinstance(nodes, list):
        return value
    found = [{**node, 'import': os.path.abspath(node['import'])}
             if isinstance(node, dict) and isinstance(node.get('import'), str) else node
             for node in nodes]
    return {**value, 'nodes': found}


class Call:
    """The words of a command, and what they need: files for values that Python holds, functions for
    strategies."""

    def __init__(self, folder, given):
        self.folder, self.given, self.words, self.strategies = folder, given, [], []

    def file(self, keyword, value):
        """Writes a dict where the program finds it; returns its path."""
        name = str(value.get('_name_or_path') or value.get('model_type') or keyword)
        name = re.sub(r'[^A-Za-z0-9._-]', '_', name.rstrip('/').rsplit('/')[-1]) or keyword
        path = os.path.join(self.folder, name + '.json')
        with open(path, 'w', encoding='utf-8') as file:
            json.dump(with_own_folder(value), file, indent=1)
        return path

    def text(self, keyword, option, value):
        """One value as the command line has it."""
        takes = option['value']
        value = given_of(value)
        if isinstance(value, dict):
            if option['flag'].startswith('-') and 'FILE' not in takes:
                raise InputError(option['flag'], 'a dict', f'accepted: {takes}')
            return self.file(keyword, value)
        if callable(value) and option['flag'] == '--strategy':
            name = getattr(value, '__name__', type(value).__name__)
            self.strategies.append((name, strategy_of(value, self.given)))
            return name
        text = os.fsdecode(value) if isinstance(value, os.PathLike) else str(value)
        if not text.isprintable() and any('\ud800' <= letter <= '\udfff' for letter in text):
            raise InputError(option['flag'], ascii(text), 'accepted: text that UTF-8 can write')
        return text

    def add(self, keyword, option, value):
        if not option['value']:  # a flag
            if not isinstance(value, bool):
                raise InputError(option['flag'], repr(value), 'accepted: True or False')
            if value:
                self.words.append(option['flag'])
            return
        if '=' in option['value'] and isinstance(value, dict):
            value = [f'{name}={number}' for name, number in value.items()]
        values = list(value) if isinstance(value, (list, tuple, set)) else [value]
        if option['value'].endswith(',...') and len(values) > 1:
            values = [','.join(map(str, values))]
        for one in values:
            text = self.text(keyword, option, one)
            flag = option['flag']
            # A single word: a value may begin with a dash.
            self.words.append(f'{flag}={text}' if flag.startswith('--') else f'{flag}{text}')

    def run(self):
        try:
            return _parsim.run(self.words, self.strategies)
        except InputError as error:
            shown = [part.replace(self.folder + '/', '')
                     for part in (error.where, error.found, error.accepted)]
            raise InputError(*shown) from error.__cause__


def given_of(value):
    """What the caller gave for a Subject, also for that of a strategy within a strategy."""
    while isinstance(value, Subject):
        value = value.__dict__['given']
    return value


class Subject(Record):
    """The network or cluster that a strategy gets: what show() says about it. Passed on to a
    function of parsim, it stands for what the caller gave, with the rest of the question."""


def is_of_question(option):
    """Whether a plan must follow the option to be an answer: not which strategies are asked, nor
    what is varied, written or shown."""
    return option['group'] in ('Memory', 'Model') or option['flag'] in (
        '--batch', '--dim', '--expert-imbalance', '--optimizer', '--override', '--precision',
        '--reduce-precision')


def with_question(arguments, keywords):
    """The arguments, and what they do not say of the question of a strategy whose network or
    cluster is among them. A plan that is given has its own batch, precision, ..."""
    said = {keywords[name]['flag'] for name, value in arguments.items()
            if name in keywords and value is not None}
    planned = '--plan' in said
    question = {}
    for subject in arguments.values():
        if isinstance(subject, Subject):
            question.update(subject.__dict__['question'])
    carried = {name: value for name, value in question.items()
               if name in keywords and keywords[name]['flag'] not in said
               and not (planned and keywords[name]['in_plan'])}
    return {**arguments, **carried}


def strategy_of(function, given):
    """The function from texts to a text that the program calls."""
    takes_batch = 'batch' in inspect.signature(function).parameters
    every = {name: option for verb in TABLE['verbs'] for name, option in keywords_of(verb)[1].items()}

    def plan(network, cluster, batch):
        subjects = []
        question = {name: value for name, value in {**given, 'batch': batch}.items()
                    if name in every and is_of_question(every[name])}
        for name, text, others in (('network', network, {'--override'}),
                                   ('cluster', cluster, {'--dim', '--expert-imbalance'})):
            subjects.append(Subject(records(text)))
            subjects[-1].__dict__['given'] = given.get(name, subjects[-1].name)
            subjects[-1].__dict__['question'] = {
                key: value for key, value in question.items() if every[key]['flag'] not in others}
        made = function(*subjects, batch=batch) if takes_batch else function(*subjects)
        return json.dumps(made)
    return plan


def run_verb(verb, arguments):
    """Calls the program with keyword arguments; the verb's own words among them."""
    keywords = keywords_of(verb)[1]
    words = {word['name'].lower(): word for word in verb['words']}
    with tempfile.TemporaryDirectory(prefix='parsim-') as folder:
        plan = arguments.get('plan')
        if isinstance(plan, Plan):  # networks and clusters that only Python holds
            arguments = {**plan.given, **arguments}
        arguments = with_question(arguments, keywords)
        call = Call(folder, dict(arguments))
        call.words.append(verb['name'])
        for name, word in words.items():
            given = arguments.pop(name)
            for one in given if word['repeats'] and isinstance(given, (list, tuple)) else [given]:
                text = call.text(name, {'flag': name, 'value': word['name']}, one)
                call.words.append(text)
        for name, value in {**DEFAULTS, **arguments}.items():
            if name not in keywords:
                if name in arguments:
                    refuse_keyword(verb, name, keywords)
            elif value is not None:
                call.add(name, keywords[name], value)
        call.words.append('--json')  # as the command that `inputs` record
        native = call.run()
        result = result_of(native, folder + '/')
    if verb['name'] != 'plan':
        return result
    # A dict that the caller changes later is another network or cluster.
    given = {name: value if isinstance(value, Subject) else copy.deepcopy(value)
             for name, value in ((name, arguments.get(name)) for name in ('network', 'cluster'))
             if isinstance(value, (dict, os.PathLike, str))}
    return Plan(records(native.file), result, given)


def refuse_keyword(verb, name, keywords):
    near = difflib.get_close_matches(name, keywords, 1)
    raise UnknownKeyword(f'{name_of(verb)}()', f'unknown keyword {name!r}',
                         f'accepted: see help(parsim.{name_of(verb)})' +
                         (f'; did you mean {near[0]!r}?' if near else ''))


def document_of(verb, keywords):
    """The docstring: what the command line's help says."""
    lines = [verb['summary'][0].upper() + verb['summary'][1:] + '.', '']
    for word in verb['words']:
        lines.append(f'{word["name"].lower()}: {word["help"]}')
    for name, option in keywords.items():
        lines.append(f'{name}: {option["help"]}' + (
            f' [{option["value"]}]' if option['value'] else ' [True or False]'))
    lines += ['', 'Times in results are in seconds, sizes in bytes, rates in bytes or FLOP per second.',
              'Raises InputError for what the caller can fix, SimulationError for a simulation that '
              'cannot end.']
    return '\n'.join(lines)


def function_of(verb):
    """The function of a verb."""
    named, _ = keywords_of(verb)
    kind = inspect.Parameter
    parameters = [kind(word['name'].lower(), kind.POSITIONAL_OR_KEYWORD) for word in verb['words']]
    positional = [parameter.name for parameter in parameters]
    parameters += [kind(name, kind.KEYWORD_ONLY, default=DEFAULTS.get(name)) for name in named]
    parameters.append(kind('more', kind.VAR_KEYWORD))  # plurals; others are refused with a hint
    signature = inspect.Signature(parameters)

    def function(*arguments, **keywords):
        bound = signature.bind(*arguments, **keywords).arguments
        bound.update(bound.pop('more', {}))
        missing = [name for name in positional if name not in bound]
        assert not missing
        return run_verb(verb, dict(bound))

    function.__name__ = function.__qualname__ = name_of(verb)
    function.__module__ = 'parsim'
    function.__doc__ = document_of(verb, named)
    function.__signature__ = signature
    return function


FUNCTIONS = {name_of(verb): function_of(verb) for verb in TABLE['verbs']
             if verb['name'] not in LEFT_OUT}


def read_plan(path):
    """A plan from a file of the command line's, or of Plan.save()."""
    return Plan(records(pathlib.Path(path).read_text(encoding='utf-8')))
