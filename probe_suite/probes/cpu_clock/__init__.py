"""At what clock does one core run under load? Every figure in cycles rests on it."""

from __future__ import annotations

import ctypes
from pathlib import Path

from probe_suite import samples, toolchain
from probe_suite.probe import Answer, Plot, Probe, Setting
from probe_suite.record import Finding, Series

_ROUNDS = 10_000  # a quarter of a millisecond: shorter than a scheduler's turn


def run(setting: Setting) -> Answer:
    """Warm up until the clock is steady, then time a chain of one-cycle operations."""
    library = setting.scratch / "cpu_clock.so"
    built = toolchain.build_cpu(Path(__file__).with_name("kernel.cpp"), library, setting.arch)
    seen = toolchain.see_cpu(library, "chain", r"\b(?:xor|eor)\b", 64)
    built.chain.restype = ctypes.c_double
    chain = built.chain
    warm = [chain(ctypes.c_int64(_ROUNDS)) for _ in range(400)][::8]
    found = samples.repeat(lambda: chain(ctypes.c_int64(_ROUNDS)))
    note = "one link of a dependent chain is one cycle"
    finding = Finding("clock", 1.0 / found.best, "Hz", found.spread, found.count, note)
    order = tuple(float(index) for index in range(len(warm)))
    curve = Series("clock while warming up", order, tuple(1.0 / t for t in warm), "run", "Hz")
    return Answer((finding,), (curve,), (seen,))


PROBE = Probe(
    name="cpu_clock",
    kind="cpu",
    question="At what clock does one core run under load?",
    yields=("clock",),
    run=run,
    plot=Plot("run", "clock"),
)
