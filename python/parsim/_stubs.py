"""Writes the type stubs of the module from the program's own table of options.

    python3 -m parsim._stubs > python/parsim/__init__.pyi
"""
from parsim._functions import DEFAULTS, FUNCTIONS, TABLE, keywords_of, name_of

HEAD = '''"""Written by `python3 -m parsim._stubs` from the table of options. Do not edit."""
from collections.abc import Callable
from os import PathLike
from typing import Any, Literal

import pandas

__version__: str

class InputError(ValueError):
    where: str
    found: str
    accepted: str
    def __init__(self, where: str, found: str, accepted: str = ...) -> None: ...

class SimulationError(RuntimeError): ...

class Record(dict[str, Any]):
    def __getattr__(self, name: str) -> Any: ...

class _Answer:
    @property
    def exit_code(self) -> int: ...
    def table(self, columns: int = ..., color: bool = ...) -> str: ...
    def to_markdown(self) -> str: ...
    def to_csv(self) -> str: ...
    def to_json(self) -> str: ...
    def to_pandas(self) -> pandas.DataFrame: ...

class Result(_Answer, Record): ...
class ResultList(_Answer, list[Record]): ...

class Plan(Record):
    result: Result
    def table(self, columns: int = ..., color: bool = ...) -> str: ...
    def to_json(self) -> str: ...
    def save(self, path: str | PathLike[str]) -> None: ...

def read_plan(path: str | PathLike[str]) -> Plan: ...
'''
OF_TABLE = {'list', 'doctor'}  # these answer lists


def type_of(option):
    """A type of the values that an option accepts."""
    takes = option['value']
    if not takes:
        return 'bool'
    if option['choices']:
        one = f'Literal[{", ".join(repr(choice) for choice in option["choices"])}]'
    elif takes == 'N':
        one = 'int'
    elif 'FILE' in takes or takes in ('DIR', 'FOLDER'):
        one = 'str | PathLike[str]' + ('' if option['writes'] else ' | dict[str, Any]')
    elif option['flag'] == '--strategy':
        one = 'str | Callable[..., dict[str, Any]]'
    else:
        one = 'str | float'
    if '=' in takes:
        one += ' | dict[str, Any]'
    if takes.endswith(',...'):
        return f'{one} | list[int] | list[str]'
    return f'{one} | list[{one}]' if option['repeats'] else one


def stubs():
    """The text of __init__.pyi."""
    text = HEAD
    for verb in TABLE['verbs']:
        if name_of(verb) not in FUNCTIONS:
            continue
        named, every = keywords_of(verb)
        lines = [f'{word["name"].lower()}: '
                 f'{"str | list[str]" if word["repeats"] else "str | dict[str, Any]"}'
                 for word in verb['words']]
        if every:
            lines.append('*')
        for name, option in [*named.items(), *((name, option) for name, option in every.items()
                                               if name not in named)]:
            default = repr(DEFAULTS[name]) if name in DEFAULTS else 'None'
            lines.append(f'{name}: {type_of(option)} | None = {default}')
        answer = {'plan': 'Plan', **dict.fromkeys(OF_TABLE, 'ResultList')}.get(verb['name'], 'Result')
        text += f'\ndef {name_of(verb)}(\n' + ''.join(f'    {line},\n' for line in lines)
        text += f') -> {answer}: ...\n'
    return text


if __name__ == '__main__':
    print(stubs(), end='')
