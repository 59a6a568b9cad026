"""What does it cost to bring threads together: a barrier, an empty parallel region, waking
sleepers?

The answer depends on where the system has put the threads, which may change from one millisecond to
the next: on two cores of one last-level cache, on cores further apart, or on the halves of one core.
So many short bursts are timed, each between two pieces of arithmetic that take longer on a shared
core. The property is the median of the bursts that had a core for each thread; `.low` and `.high`
are what one burst in twenty stays below and above, wherever the threads were.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from pathlib import Path

from probe_suite import cpu_facts, samples, toolchain
from probe_suite.probe import Answer, NotHere, Plot, Probe, Setting
from probe_suite.record import Finding, Series

_WAYS = (
    ("barrier", "barrier", 200, "spinning, central counter"),
    ("launch", "spin_region", 200, "an empty task given to spinning workers"),
    ("launch.wake", "wake_region", 40, "an empty task given to sleeping workers"),
)
_LEAST, _PAUSE_S = (
    40,
    0.004,
)  # bursts, and the rest between two, in which the system may move threads
_END = "of twenty bursts one is"
_SHARED = 1.4  # times the arithmetic of an undisturbed thread: two threads have one core


@dataclass(frozen=True, slots=True)
class Burst:
    """Seconds of one round, and whether threads shared a core."""

    seconds: float
    shared: bool


def run(setting: Setting) -> Answer:
    """Time each way with 2 .. all threads."""
    threads = cpu_facts.cores()
    if threads < 2:
        raise NotHere("one processor only: there is nobody to meet")
    library = setting.scratch / "cpu_threads.so"
    built = toolchain.build_cpu(Path(__file__).with_name("kernel.cpp"), library, setting.arch)
    built.alone.restype = ctypes.c_double
    seen = (toolchain.see_cpu(library, "barrier", r"\block (?:x?add|inc|cmpxchg)|ldadd|ldaxr", 1),)
    counts = tuple(sorted({2, *(n for n in (4, 8, 16, 32, 64) if n <= threads), threads}))
    findings: list[Finding] = []
    series: list[Series] = []
    for name, function, rounds, how in _WAYS:
        curve = [bursts(built, function, n, rounds, 0.3 if setting.quick else 2.0) for n in counts]
        x = tuple(float(count) for count in counts)
        y = tuple(samples.typical(apart(each)).middle for each in curve)
        series.append(Series(name, x, y, "threads", "s"))
        findings += found(name, curve[-1], f"{counts[-1]} threads, {how}")
    return Answer(tuple(findings), tuple(series), seen)


def bursts(
    built: ctypes.CDLL, function: str, threads: int, rounds: int, budget_s: float
) -> list[Burst]:
    """Short runs, spread over the time."""
    timed = getattr(built, function)
    timed.restype = ctypes.c_double
    longest = ctypes.c_double()
    args = (ctypes.c_int64(threads), ctypes.c_int64(rounds), ctypes.byref(longest))
    usual = min(built.alone() for _ in range(50))
    made: list[Burst] = []
    end = time.monotonic() + budget_s
    while len(made) < _LEAST or time.monotonic() < end:
        seconds = timed(*args)
        made.append(Burst(seconds, longest.value > _SHARED * usual))
        time.sleep(_PAUSE_S)
    return made


def apart(made: list[Burst]) -> list[float]:
    """Seconds of the bursts that had a core for each thread; of all where none had."""
    return [each.seconds for each in made if not each.shared] or [each.seconds for each in made]


def found(name: str, made: list[Burst], note: str) -> tuple[Finding, ...]:
    """The typical figure, and the range of all."""
    usual, every = samples.typical(apart(made)), samples.typical([each.seconds for each in made])
    shared = sum(each.shared for each in made)
    words = f"{note}; median of bursts on cores of their own ({shared} of {len(made)} shared one)"
    return (
        Finding(name, usual.middle, "s", usual.spread, usual.count, words, of="middle"),
        Finding(f"{name}.low", every.low, "s", 0.0, every.count, f"{note}; {_END} below", of="low"),
        Finding(
            f"{name}.high", every.high, "s", 0.0, every.count, f"{note}; {_END} above", of="high"
        ),
    )


PROBE = Probe(
    name="cpu_threads",
    kind="cpu",
    question="What does it cost to bring threads together?",
    yields=tuple(f"{name}{end}" for name, *_ in _WAYS for end in ("", ".low", ".high")),
    run=run,
    plot=Plot("threads", "time", log_y=True),
)
