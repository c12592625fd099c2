"""The type stubs are those of today's options."""
import ast
import os
import pathlib
import unittest

import parsim
from parsim._stubs import stubs

STUBS = pathlib.Path(os.environ['PARSIM_ROOT']) / 'python/parsim/__init__.pyi'


class Stubs(unittest.TestCase):
    def test_fresh(self):
        if os.environ.get('PARSIM_REGENERATE'):
            STUBS.write_text(stubs(), encoding='utf-8')
        self.assertEqual(stubs(), STUBS.read_text(encoding='utf-8'),
                         'PARSIM_REGENERATE=1 tests/python/run.sh writes it anew')

    def test_names(self):
        defined = {node.name for node in ast.parse(stubs()).body if hasattr(node, 'name')}
        self.assertEqual(set(parsim.__all__), defined - {'_Answer'})

    def test_docstrings(self):
        for name in ('compare', 'collective', 'show'):
            self.assertIn('seconds', getattr(parsim, name).__doc__)
        self.assertIn('batch: samples per step', parsim.compare.__doc__)
