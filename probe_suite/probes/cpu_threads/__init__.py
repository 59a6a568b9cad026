"""What does it cost to bring threads together: a barrier, an empty parallel region, waking
sleepers?
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from probe_suite import cpu_facts, samples, toolchain
from probe_suite.probe import Answer, NotHere, Plot, Probe, Setting
from probe_suite.record import Finding, Series

_WAYS = (
    ("barrier", "barrier", 200, "spinning, central counter"),
    ("launch", "spin_region", 200, "an empty task given to spinning workers"),
    ("launch.wake", "wake_region", 40, "an empty task given to sleeping workers"),
)


def run(setting: Setting) -> Answer:
    """Time each way with 2 .. all threads."""
    threads = cpu_facts.cores()
    if threads < 2:
        raise NotHere("one processor only: there is nobody to meet")
    library = setting.scratch / "cpu_threads.so"
    built = toolchain.build_cpu(Path(__file__).with_name("kernel.cpp"), library, setting.arch)
    seen = (toolchain.see_cpu(library, "barrier", r"\block (?:x?add|inc|cmpxchg)|ldadd|ldaxr", 1),)
    counts = tuple(sorted({2, *(n for n in (4, 8, 16, 32, 64) if n <= threads), threads}))
    findings: list[Finding] = []
    series: list[Series] = []
    for name, function, rounds, how in _WAYS:
        curve = [_time(built, function, count, rounds) for count in counts]
        x = tuple(float(count) for count in counts)
        series.append(Series(name, x, tuple(point.best for point in curve), "threads", "s"))
        last, note = curve[-1], f"{counts[-1]} threads, {how}"
        spread = last.spread
        findings.append(Finding(name, last.best, "s", spread, last.count, note))
    return Answer(tuple(findings), tuple(series), seen)


def _time(built: ctypes.CDLL, function: str, threads: int, rounds: int) -> samples.Samples:
    timed = getattr(built, function)
    timed.restype = ctypes.c_double
    args = (ctypes.c_int64(threads), ctypes.c_int64(rounds))
    return samples.repeat(lambda: timed(*args), budget_s=1.0)


PROBE = Probe(
    name="cpu_threads",
    kind="cpu",
    question="What does it cost to bring threads together?",
    yields=("barrier", "launch", "launch.wake"),
    run=run,
    plot=Plot("threads", "time", log_y=True),
)
