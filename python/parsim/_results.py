"""Results: the JSON document of the command line, with attributes and the tables for people."""
import copy
import html
import io
import json

from parsim._errors import InputError


class Record(dict):
    """An object of JSON: `row.step_time_s` is `row['step_time_s']`. Keys end in their SI unit."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f'no {name!r}; there are {", ".join(self)}') from None

    def __setattr__(self, name, value):
        self[name] = value

    def __dir__(self):
        return [*super().__dir__(), *self]


def records(text):
    """JSON text as values whose objects are Records."""
    return json.loads(text, object_hook=Record)


class Answer:
    """What a verb answered: prints as in a terminal, and is the JSON document."""

    _native = None
    _folder = ''

    def _render(self, form, columns=80, color=False):
        return self._native.render(form, columns, color).replace(self._folder, '')

    @property
    def exit_code(self):
        """That of the command line: 0; 3 without the hardware, 5 if nothing fits in memory."""
        return self._native.exit_code

    def table(self, columns=80, color=False):
        """The text that the terminal shows.

        columns  the terminal's width in characters; 0: as many as it takes
        """
        return self._render('table', columns, color)

    def to_markdown(self):
        """The tables in Markdown."""
        return self._render('md')

    def to_csv(self):
        """The main table as CSV: keys as headings, numbers in SI base units."""
        return self._render('csv')

    def to_json(self):
        """The text that the command line prints with --json."""
        return self._render('json')

    def to_pandas(self):
        """The main table as a pandas.DataFrame: columns as in CSV, in SI base units."""
        try:
            import pandas
        except ImportError:
            raise ImportError('to_pandas() needs pandas, which is not installed: '
                              'pip install pandas, or use to_csv()') from None
        return pandas.read_csv(io.StringIO(self.to_csv()))

    def _repr_html_(self):
        parts = []
        for title, headings, rows, winner in self._native.tables():
            caption = f'<caption>{html.escape(title)}</caption>' if title else ''
            head = ''.join(f'<th>{html.escape(text)}</th>' for text in headings)
            body = ''
            for number, row in enumerate(rows):
                tag = 'th' if number == winner else 'td'
                body += '<tr>' + ''.join(f'<{tag}>{html.escape(text)}</{tag}>' for text in row)
                body += '</tr>'
            parts.append(f'<table>{caption}<thead><tr>{head}</tr></thead>'
                         f'<tbody>{body}</tbody></table>')
        return ''.join(parts).replace(self._folder, '')

    def __str__(self):
        return self.table().rstrip()

    __repr__ = __str__

    def __reduce__(self):
        raise TypeError('a result cannot be pickled; to_json() keeps all of it')


class Result(Answer, Record):
    """A result that is an object of JSON."""


class ResultList(Answer, list):
    """A result that is a list of JSON."""


class Plan(Record):
    """A plan as its file holds it: read it, edit it, and pass it on as `plan=`.

    result  what the verb `plan` reports about it; not in pickles
    given   the network and cluster, which copies keep: files and dict(plan) have their names only
    """

    def __init__(self, document, result=None, given=None):
        super().__init__(document)
        self.__dict__['result'] = result
        self.__dict__['given'] = given or {}

    def table(self, columns=80, color=False):
        """What the verb `plan` reports in a terminal."""
        if self.result is None:
            raise InputError('plan', 'read from a file, not made here', 'accepted: simulate it')
        return self.result.table(columns, color)

    def to_json(self):
        """The text of a plan file."""
        return json.dumps(self, indent=1)

    def save(self, path):
        """Writes a plan file, which the command line reads with --plan."""
        with open(path, 'w', encoding='utf-8') as file:
            file.write(self.to_json() + '\n')

    def __repr__(self):
        # Of a large network the document takes pages.
        parts = (self.get('schedule') or {}).get('micro_batches', 1)
        return (f'<plan {self.get("strategy")!r} of {self.get("network")} on {self.get("cluster")}: '
                f'batch {self.get("batch")} in {parts} micro-batch{"es" * (parts != 1)}, '
                f'{len(self.get("layers") or [])} layers>')

    def __copy__(self):
        return Plan(dict(self), self.result, self.given)

    def __deepcopy__(self, memo):
        return Plan(copy.deepcopy(dict(self), memo), self.result, copy.deepcopy(self.given, memo))

    def __or__(self, other):
        return Plan({**self, **other}, self.result, self.given)

    def __reduce__(self):
        return Plan, (dict(self), None, self.given)


def result_of(native, folder):
    """The native answer as a Result or ResultList; `folder` is taken out of all texts."""
    value = records((native.json or 'null').replace(folder, ''))
    result = (Result if isinstance(value, dict) else ResultList)(value or ())
    result.__dict__['_native'] = native
    result.__dict__['_folder'] = folder
    return result
