"""Compiles catalogue models for the emulator, runs and judges them in a process of its own; prints JSON verdicts.

Not here: what is asserted (test_emulator.py). A process has one driver, and the emulator's comes before pycuda.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from models.catalogue import Entry, entry
from unistack_aot.base.errors import UnistackError
from unistack_aot.check.checker import check
from unistack_aot.emulator.load import Emulator, Order, activate
from unistack_aot.pipeline import compile_model
from unistack_aot.runtime.session import load

ORDERS: tuple[tuple[Order, int], ...] = (("reverse", 1), ("random", 1), ("random", 7))


@dataclass(frozen=True)
class Outcome:
    """What one model did: failed outputs in words, and whether thread order mattered."""

    model: str
    target: str
    failures: tuple[str, ...]
    outputs: int
    same_in_any_order: bool
    launches: int


def judged(name: str, target: str, precision: str, emulator: Emulator) -> Outcome:
    """Compile, check every case of the catalogue, and compare with other orders of threads."""
    item = entry(name)
    model = item.load()
    with TemporaryDirectory() as folder:
        package = Path(folder) / "model.pkg"
        try:
            # A dimension may be 0 only where that is asked for: a decoder's empty cache.
            dims = {name: (0, 1 << 16) for name, sizes in item.dims(model).items() if 0 in sizes}
            report = compile_model(model, package, (target,), dims, precision)
            failures, outputs = _failures(item, model, package)
            same = _order_free(item, package, emulator)
        except UnistackError as error:
            words = f"{type(error).__name__}: {error} {emulator.last_error()}"
            return Outcome(name, target, (words,), 0, False, 0)
    launches = report.variants[0].launches
    return Outcome(name, target, tuple(failures), outputs, same, launches)


def _failures(item: Entry, model: object, package: Path) -> tuple[list[str], int]:
    found: list[str] = []
    outputs = 0
    for case in item.cases:
        verdict = check(model, package, "emulator", feeds=item.feeds(case), bisect=False)  # type: ignore[arg-type]
        outputs += len(verdict.results)
        found += [
            f"{case}, {r.output}: off by {r.error:.3g} of {r.allowed:.3g} allowed"
            for r in verdict.results
            if not r.passed
        ]
    return found, outputs


def _order_free(item: Entry, package: Path, emulator: Emulator) -> bool:
    """Whether outputs are bit-identical when ready threads run in the opposite order, or in any."""
    session = load(package, "emulator")
    feeds = item.feeds()
    forward = session.run(feeds)
    same = True
    for order, seed in ORDERS:
        emulator.set_order(order, seed)
        other = session.run(feeds)
        same &= all(np.array_equal(forward[k], other[k], equal_nan=True) for k in forward)
    emulator.set_order("forward")
    return same


def main(arguments: list[str]) -> None:
    """Arguments: target, precision, model names. One JSON line per model."""
    target, precision, *names = arguments
    emulator = activate()
    emulator.set_generation(int(target.rpartition("_")[2].partition("-")[0]))
    for name in names:
        print(json.dumps(asdict(judged(name, target, precision, emulator))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
