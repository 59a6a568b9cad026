"""Proof that a package computes what its model means: oracles, tolerances, verdicts, golden runs.

Not here: running a package (runtime/), what users see of it (cli/).
"""

from unistack_aot.check.checker import check
from unistack_aot.check.compile import compile_model
from unistack_aot.check.verdict import Verdict

__all__ = ["Verdict", "check", "compile_model"]
