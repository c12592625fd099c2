"""Where operators can be exchanged in the sources, which of these places are drawn, and how a file
looks in which they are switches (mutants.hpp)."""
import collections
import pathlib
import random
import re
import tomllib

FOLDERS = ('core', 'networks', 'topologies', 'sim', 'lowering', 'strategies', 'experiment', 'report',
           'validation', 'app', 'hw')
# How an operator is exchanged: operator, what stands there instead, Kind in mutants.hpp.
SWAPS = [('<', '<=', 'lt_le'), ('<=', '<', 'le_lt'), ('>', '>=', 'gt_ge'), ('>=', '>', 'ge_gt'),
         ('==', '!=', 'eq_ne'), ('!=', '==', 'ne_eq'), ('+', '-', 'add_sub'), ('-', '+', 'sub_add'),
         ('*', '/', 'mul_div'), ('/', '*', 'div_mul'), ('%', '*', 'mod_mul')]
TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|R"(?P<raw>[^(]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"'
                    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'|^#[^\n]*", re.S | re.M)
# Values that the compiler needs, and checks that hold in every program without a mistake.
FIXED = re.compile(r'constexpr|static_assert|\bcase |template|\benum\b|std::array<|\bensure\(|\boperator')
STATEMENT = re.compile(r'^[ ]+(?P<code>(?:\+\+|--)?[A-Za-z_][\w:]*(?:(?:\.|->)\w+|\[[^\]\n]*\]|\([^()\n]*\))*'
                       r'(?:\(| [-+*/|&]?= |\+\+|--))', re.M)
KEYWORDS = re.compile(r'(return|if|for|while|switch|case|else|do|throw|using|delete|static|const|auto|'
                      r'static_assert|ensure|assert)\b')

Place = collections.namedtuple('Place', 'file line column operator start end text')


def hidden(text):
    """The text with comments, strings and directives as blanks of the same length."""
    def blank(match):
        found = match.group()
        inner = ''.join('\n' if c == '\n' else ' ' for c in found)
        return '"' + inner[1:-1] + '"' if found[0] in '"R\'' and len(found) > 1 else inner
    return TOKENS.sub(blank, text)


def closing(code, at):
    """The end of what opens at `at`, or of the statement that starts there (its semicolon)."""
    depth = 0
    opens = code[at] in '(['
    for i in range(at, len(code)):
        if code[i] in '([{':
            depth += 1
        elif code[i] in ')]}':
            depth -= 1
            if depth == 0 and opens:
                return i
            if depth < 0:
                return None
        elif code[i] == ';' and depth == 0:
            return None if opens else i
    return None


def places_of(name, text):
    code = hidden(text)
    lines = code.split('\n')
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)

    def place(operator, start, end):
        line = code.count('\n', 0, start)
        if not FIXED.search(lines[line]):
            yield Place(name, line + 1, start - starts[line] + 1, operator, start, end,
                        text[starts[line]:starts[line + 1]].strip())

    for operator, other, _ in SWAPS:
        for match in re.finditer(rf'(?<=[^ ] ){re.escape(operator)}(?=[ \n])', code):
            beside = code[match.start() - 2] + code[match.end():].lstrip()[:1]
            if '"' not in beside and 'operator' not in code[match.start() - 9:match.start()]:
                yield from place(f'{operator} {other}', match.start(), match.end())
    for match in re.finditer(r"(?<![\w.'\"])\d+(?![\w.'\"])", code):
        yield from place('constant', match.start(), match.end())
    for match in re.finditer(r'\bif \(', code):
        start = match.end() - 1
        end = closing(code, start)
        condition = code[start + 1:end] if end else ';'
        if ';' not in condition and not re.search(r'[^=!<>+\-*/|&]=[^=]', condition):
            yield from place('condition', start + 1, end)
    for match in STATEMENT.finditer(code):
        start = match.start('code')
        before = code[:start].rstrip()[-1:]
        end = closing(code, start)
        if before not in (';', '{', '}') or not end or KEYWORDS.match(match['code']):
            continue
        if '.reserve(' in match['code'] or re.match(r'\s*else\b', code[end + 1:]):
            continue
        yield from place('statement', start, end)


def drawn(root, files, count, seed):
    """`count` places: a file, an operator that it has, one of its places, each by chance."""
    chance = random.Random(seed)
    by_file = {}
    for name in sorted(files):
        by_operator = collections.defaultdict(list)
        for place in places_of(name, pathlib.Path(root, name).read_text()):
            by_operator[place.operator].append(place)
        if by_operator:
            by_file[name] = by_operator
    result = {}
    while len(result) < count and by_file:
        by_operator = by_file[chance.choice(sorted(by_file))]
        place = chance.choice(by_operator[chance.choice(sorted(by_operator))])
        result.setdefault(place[:4], place)
    return list(result.values())


def known(root):
    """The mistakes of known.toml as places, and what is written there."""
    result = []
    with open(pathlib.Path(__file__).with_name('known.toml'), 'rb') as file:
        mistakes = tomllib.load(file)['mistake']
    for mistake in mistakes:
        text = pathlib.Path(root, mistake['file']).read_text()
        if text.count(mistake['before']) != 1:
            raise SystemExit(f"{mistake['file']}: not there once: {mistake['before']}")
        start = text.index(mistake['before'])
        place = Place(mistake['file'], text.count('\n', 0, start) + 1, start - text.rfind('\n', 0, start),
                      'known', start, start + len(mistake['before']), mistake['what'])
        result.append((place, mistake['after']))
    return result


def switched(text, numbered, replaced):
    """The text of a file with (number, place) as switches, and with (number, place, code). Lines keep
    their numbers."""
    for number, place, code in replaced:
        blanks = ' ' * (place.end - place.start)
        text = text[:place.start] + blanks + text[place.end:]
    insertions = []  # offset, closings before openings, inner closings first, outer openings first
    kinds = {f'{operator} {other}': (operator, kind) for operator, other, kind in SWAPS}
    for number, place in numbered:
        length = place.end - place.start
        if place.operator in kinds:
            operator, kind = kinds[place.operator]
            insertions.append((place.end, 0, 0,
                               f' mutants::Swap<{number}, mutants::Kind::{kind}>{{}} {operator}'))
        elif place.operator == 'statement':
            insertions.append((place.start, 1, -length, f'if (mutants::kept<{number}>()) '))
        else:
            insertions.append((place.start, 1, -length, f'mutants::{place.operator}<{number}>('))
            insertions.append((place.end, 0, length, ')'))
    for number, place, code in replaced:
        insertions.append((place.end, 0, 0, code.replace('ON', f'mutants::on({number})')))
    for offset, _, _, words in sorted(insertions, reverse=True):
        text = text[:offset] + words + text[offset:]
    return '#include "tests/mutants/mutants.hpp"\n#line 1\n' + text
