"""The code of docs/python.md runs, and prints what the page shows below it."""
import contextlib
import io
import os
import pathlib
import re
import tempfile
import unittest

PAGE = pathlib.Path(os.environ['PARSIM_ROOT']) / 'docs/python.md'
BLOCK = re.compile(r'```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?', re.DOTALL)


class Page(unittest.TestCase):
    def test_code(self):
        text = PAGE.read_text(encoding='utf-8')
        names = {}

        def run(block):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(block[1], str(PAGE), 'exec'), names)
            shown = out.getvalue()
            return f'```python\n{block[1]}```\n' + (f'\n```text\n{shown}```\n' if shown else '')
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                now = BLOCK.sub(run, text)
            finally:
                os.chdir(before)
        if os.environ.get('PARSIM_REGENERATE'):
            PAGE.write_text(now, encoding='utf-8')
        self.maxDiff = None
        self.assertEqual(now, PAGE.read_text(encoding='utf-8'))


if __name__ == '__main__':
    unittest.main()
