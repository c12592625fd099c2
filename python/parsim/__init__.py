"""How to train a neural network on a cluster, and how long a step takes.

Functions are named as the verbs of the command line and take its options as keywords:

    import parsim
    result = parsim.compare(network='resnet50', cluster='mixed-p100-v100', batch=256)
    print(result.table())

Times are in seconds, sizes in bytes, rates in bytes or FLOP per second. docs/python.md has more.
"""
from parsim._errors import InputError, SimulationError
from parsim._functions import FUNCTIONS as _FUNCTIONS
from parsim._functions import TABLE as _TABLE
from parsim._functions import read_plan
from parsim._results import Plan, Record, Result, ResultList

globals().update(_FUNCTIONS)

__version__ = _TABLE['version']
__all__ = ['InputError', 'Plan', 'Record', 'Result', 'ResultList', 'SimulationError', 'read_plan',
           *_FUNCTIONS]
