"""What does an element cost when its address comes from an index: by the gather instruction, by
scalar loads?
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

from probe_suite import fit, samples, toolchain
from probe_suite.probe import Answer, NotHere, Plot, Probe, Setting
from probe_suite.record import Finding, Series

KIB, MIB = 1 << 10, 1 << 20
_GATHERS = ("x86-64-v3", "x86-64-v4")


def run(setting: Setting) -> Answer:
    """Gather from tables of 8 KiB to 16 MiB."""
    if setting.arch not in _GATHERS:
        raise NotHere(f"{setting.arch} has no gather instruction")
    library = setting.scratch / "cpu_gather.so"
    built = toolchain.build_cpu(Path(__file__).with_name("kernel.cpp"), library, setting.arch)
    seen = (
        toolchain.see_cpu(library, "gather", r"\bvgatherdps\b", 2),
        toolchain.see_cpu(library, "scalar", r"\bvmovss\b", 4),
    )
    sizes = fit.geometric(8 * KIB, 16 * MIB, 1)
    series: list[Series] = []
    findings: list[Finding] = []
    for name in ("gather", "scalar"):
        function = getattr(built, name)
        function.restype = ctypes.c_double
        curve = [_point(built, function, size) for size in sizes]
        x = tuple(float(size) for size in sizes)
        series.append(Series(name, x, tuple(point.best for point in curve), "B", "s"))
        first = curve[0]
        note = f"one f32 element from a table of {sizes[0]} B"
        spread = first.spread
        findings.append(Finding(f"{name}.element", first.best, "s", spread, first.count, note))
    return Answer(tuple(findings), tuple(series), seen)


def _point(built: ctypes.CDLL, function: Callable[..., float], size: int) -> samples.Samples:
    built.prepare(ctypes.c_int64(size))
    rounds = ctypes.c_int64(100)
    function(rounds)
    return samples.repeat(lambda: function(rounds), budget_s=0.3)


PROBE = Probe(
    name="cpu_gather",
    kind="cpu",
    question="What does an element cost when its address comes from an index?",
    yields=("gather.element", "scalar.element"),
    run=run,
    plot=Plot("table", "time of one element", log_x=True, log_y=True),
)
